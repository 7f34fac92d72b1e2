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

    /// A number below `count`; 0 where that is 0.
    #[must_use]
    pub fn below(&self, count: u64) -> u64 {
        self.next() % count.max(1)
    }

    /// A number from 0 up to, but not including, 1.
    #[must_use]
    pub fn unit(&self) -> f64 {
        // As many bits as a double holds.
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl fmt::Debug for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Draw")
    }
}
