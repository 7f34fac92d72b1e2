//! One poll of a topic serves all consumers who wait at that time.
//!
//! A consumer who asks has the topic polled once, because no hint may have announced what is due by then. With many
//! consumers that is more polls than claims; those who wait longer than [`SHARED_MAX`] share one.

use std::time::Duration;

use duetime_core::StoreError;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::config::POLL_GAP;

/// Who waits for less does not share its poll of a topic with others. A poll of others is waited for no longer.
pub(crate) const SHARED_MAX: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
struct LastPoll {
    began: Instant,
    answered: bool,
}

/// The last poll of one topic that was shared; locked while one is under way.
#[derive(Debug, Default)]
pub(crate) struct SharedPoll(Mutex<Option<LastPoll>>);

impl SharedPoll {
    /// Waits for a poll that began after this was called: somebody else's, or its own, [`POLL_GAP`] after the one before.
    ///
    /// # Errors
    ///
    /// Those of its own poll: nobody waits for the failures of others, one after the other.
    pub(crate) async fn wait_or_poll<P>(&self, poll: impl Fn() -> P) -> Result<(), StoreError>
    where
        P: Future<Output = Result<(), StoreError>>,
    {
        let asked = Instant::now();
        let Ok(mut last) = tokio::time::timeout(SHARED_MAX, self.0.lock()).await else { return poll().await };
        if let Some(before) = *last {
            if before.began >= asked {
                drop(last);
                return if before.answered { Ok(()) } else { poll().await };
            }
            tokio::time::sleep_until(before.began + POLL_GAP).await;
        }
        let began = Instant::now();
        let polled = poll().await;
        *last = Some(LastPoll { began, answered: polled.is_ok() });
        polled
    }
}
