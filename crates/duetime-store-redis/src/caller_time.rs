//! Times as arguments of scripts.

use std::time::Duration;

use duetime_core::Timestamp;
use duetime_core::limits::SAFETY_POLL_EVERY;
use tokio::time::Instant;

/// A call that waited longer is sent with the time it is by then.
const OLD_AFTER: Duration = Duration::from_millis(500);
/// A new head that is visible later than this is found by the regular poll in time.
pub(crate) const HINT_WITHIN: Duration = SAFETY_POLL_EVERY.saturating_add(Duration::from_millis(500));
/// "There is none", for a script that takes the smaller of two times.
pub(crate) const NEVER_MS: i64 = 9_000_000_000_000_000;

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(NEVER_MS)
}

/// The caller's time: its clock goes on while a call waits to be sent, or to be sent again. It is made before anything is
/// done for the call, and once for a batch in parts: the last is sent with the time it is by then, whoever stood still.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallerTime {
    now: Timestamp,
    began: Instant,
}

impl CallerTime {
    /// The caller's clock says `now`.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { now, began: Instant::now() }
    }

    /// For a call that does not depend on the caller's clock.
    pub(crate) fn none() -> Self {
        Self::new(Timestamp::ZERO)
    }

    /// The caller's time by now, in milliseconds since the Unix epoch.
    pub(crate) fn millis(self) -> i64 {
        let waited = self.began.elapsed();
        if waited > OLD_AFTER { self.now.plus(waited).as_millis() } else { self.now.as_millis() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_sent_after_a_stall_has_the_time_after_it() {
        let present = CallerTime::new(Timestamp::from_millis(1_000_000));
        tokio::time::advance(OLD_AFTER).await;
        assert_eq!(present.millis(), 1_000_000);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(present.millis(), 1_010_500);
    }
}
