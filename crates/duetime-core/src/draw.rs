//! Where random numbers come from: an argument, so that a simulation can repeat them.

use std::fmt;
use std::sync::Arc;

/// A source of random numbers.
#[derive(Clone)]
pub struct Draw(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Draw {
    /// From `source`.
    pub fn new(source: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(source))
    }

    /// The next one.
    #[must_use]
    pub fn next(&self) -> u64 {
        (self.0)()
    }
}

impl fmt::Debug for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Draw")
    }
}
