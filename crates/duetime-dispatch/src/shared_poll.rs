//! One poll of a topic serves all consumers who wait at that time.
//!
//! A consumer who asks has the topic polled once, because no hint may have announced what is due by then. With many
//! consumers that is more polls than claims, so they share them: those who wait longer than [`SHARED_MAX`] have one
//! every [`POLL_GAP`], the others one after the other.

use std::time::Duration;

use duetime_core::StoreError;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::config::POLL_GAP;

/// Who waits for less waits for no pause between two polls. A poll of others is waited for no longer.
const SHARED_MAX: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
struct LastPoll {
    began: Instant,
    answered: bool,
}

/// The polls of one topic that consumers share.
#[derive(Debug, Default)]
pub(crate) struct SharedPolls {
    patient: SharedPoll,
    hasty: SharedPoll,
}

impl SharedPolls {
    /// Waits, for a consumer who waits for `wait`, for a poll that began after this was called: somebody else's, or its
    /// own.
    ///
    /// # Errors
    ///
    /// Those of its own poll: nobody waits for the failures of others, one after the other.
    pub(crate) async fn wait_or_poll<P>(&self, wait: Duration, poll: impl Fn() -> P) -> Result<(), StoreError>
    where
        P: Future<Output = Result<(), StoreError>>,
    {
        // Who is in a hurry does not wait through the pause of those who are not.
        match wait > SHARED_MAX {
            true => self.patient.wait_or_poll(Some(POLL_GAP), poll).await,
            false => self.hasty.wait_or_poll(None, poll).await,
        }
    }
}

/// The last poll of one topic that was shared; locked while one is under way.
#[derive(Debug, Default)]
struct SharedPoll(Mutex<Option<LastPoll>>);

impl SharedPoll {
    /// See [`SharedPolls::wait_or_poll`]; its own poll begins `gap` after the one before.
    async fn wait_or_poll<P>(&self, gap: Option<Duration>, poll: impl Fn() -> P) -> Result<(), StoreError>
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
            if let Some(gap) = gap {
                tokio::time::sleep_until(before.began + gap).await;
            }
        }
        let began = Instant::now();
        let polled = poll().await;
        *last = Some(LastPoll { began, answered: polled.is_ok() });
        polled
    }
}
