//! Clocks for tests: moved by hand, moved along with tokio's paused time, or the wall's.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use duetime_core::{Clock, Timestamp};

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub fn at(start: Timestamp) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(start.as_millis())))
    }

    /// Moves it ahead.
    pub fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).expect("a test moves time by less than an age");
        self.0.fetch_add(by, Ordering::SeqCst);
    }

    /// Sets it, backwards too.
    pub fn set(&self, to: Timestamp) {
        self.0.store(to.as_millis(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// Wall time counted from tokio's time: under `start_paused` both move together.
#[derive(Debug)]
pub struct TokioClock {
    start: Timestamp,
    started: tokio::time::Instant,
}

impl TokioClock {
    /// A clock that shows `start` at this moment of tokio's time.
    #[must_use]
    pub fn at(start: Timestamp) -> Arc<Self> {
        Arc::new(Self { start, started: tokio::time::Instant::now() })
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.start.plus(self.started.elapsed())
    }
}

/// The clock on the wall, for tests on servers that have no other.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    #[expect(clippy::disallowed_methods, reason = "here the wall's time enters the tests")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is after 1970");
        Timestamp::ZERO.plus(since)
    }
}
