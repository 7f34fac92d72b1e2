//! Moments in whole milliseconds since the Unix epoch, and the clock that gives them.

use std::fmt;
use std::time::Duration;

/// A moment: whole milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The Unix epoch.
    pub const ZERO: Self = Self(0);

    /// The moment `millis` milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This moment moved ahead; stays at the end of time instead of overflowing.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

/// A source of the time. The program's is the system clock; a test's is moved by hand.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// The present moment by this clock.
    fn now(&self) -> Timestamp;

    /// The present moment, and how much of its millisecond has passed: nothing, as far as a coarse clock knows.
    fn precise_now(&self) -> (Timestamp, Duration) {
        (self.now(), Duration::ZERO)
    }
}
