//! Clocks that jump: the true time of the world, and what one machine takes it for.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use duetime_core::{Clock, Timestamp};
use duetime_testkit::TokioClock;

/// The clock of one node or one server.
#[derive(Debug)]
pub struct SimClock {
    truth: Arc<TokioClock>,
    ahead_ms: AtomicI64,
}

impl SimClock {
    /// A clock that shows the true time.
    pub fn new(truth: Arc<TokioClock>) -> Arc<Self> {
        Arc::new(Self { truth, ahead_ms: AtomicI64::new(0) })
    }

    /// Sets it ahead of the true time, or behind.
    pub fn set_ahead_ms(&self, ms: i64) {
        self.ahead_ms.store(ms, Ordering::Relaxed);
    }

    /// By how much it is ahead.
    pub fn ahead_ms(&self) -> i64 {
        self.ahead_ms.load(Ordering::Relaxed)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.truth.now().as_millis() + self.ahead_ms())
    }
}
