//! Says that the machine's clock was ahead and was put back, as the moments of claims show it.

use std::time::{Duration, UNIX_EPOCH};

use duetime_core::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

/// Every shard notices by itself; one line within this time is for all of them.
const SAY_EVERY: Duration = Duration::from_secs(60);

static SAID: Mutex<Option<Instant>> = Mutex::new(None);

/// A claim was made by a clock this much ahead of the present one.
pub fn was_put_back(back: Duration) {
    let mut said = SAID.lock();
    if said.is_some_and(|at| at.elapsed() < SAY_EVERY) {
        return;
    }
    *said = Some(Instant::now());
    warn!(
        back_ms = u64::try_from(back.as_millis()).unwrap_or(u64::MAX),
        "the clock was ahead and was put back; what fell due by the wrong clock was delivered then, delays and \
         claims that began by it are late by as much, all else is due by the present one. Set the clock by NTP"
    );
}

/// The machine's clock, to compare with what is stored; calls are given the time.
pub fn machine() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "what is compared is the machine's clock itself")]
    let now = std::time::SystemTime::now();
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
