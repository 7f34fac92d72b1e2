//! A wall clock that ticks in microseconds: the host's clock ticks in milliseconds, which is too
//! coarse for lateness.

use std::sync::Arc;

use duetime_core::{Clock, Timestamp};
use tokio::time::Instant;

/// The host's clock, read finer by a monotonic one.
#[derive(Debug, Clone)]
pub struct FineClock {
    host: Arc<dyn Clock>,
    base: Timestamp,
    began: Instant,
}

impl FineClock {
    /// Ticks to compare: a reading that was held up between the two clocks makes ours slow, and the
    /// one that was held up least wins.
    const TICKS: usize = 20;

    /// Waits for some ticks of the host's clock, about 20 ms of one core.
    #[must_use]
    pub fn set(host: Arc<dyn Clock>) -> Self {
        let tick = |host: &Arc<dyn Clock>| {
            let before = host.now();
            loop {
                let now = host.now();
                if now > before {
                    return (now, Instant::now());
                }
            }
        };
        let (mut base, mut began) = tick(&host);
        for _ in 1..Self::TICKS {
            let (now, at) = tick(&host);
            // The anchor that shows the latest moment was held up least.
            if now.since(base) > at.duration_since(began) {
                (base, began) = (now, at);
            }
        }
        Self { host, base, began }
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub fn micros(&self) -> i64 {
        let since = i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.base.as_millis() * 1000 + since
    }

    /// The host's own reading.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.host.now()
    }

    /// Microseconds from `due_at` to the present moment, and whether `due_at` is still ahead by the
    /// host's clock.
    #[must_use]
    pub fn lateness(&self, due_at: Timestamp) -> (u64, bool) {
        let late = self.micros() - due_at.as_millis() * 1000;
        (u64::try_from(late).unwrap_or(0), self.host.now() < due_at)
    }
}
