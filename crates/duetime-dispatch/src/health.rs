//! What the engine knows of its store's health: says once what is wrong, and once that it is fixed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_core::StoreError;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{error, info, warn};

/// The same complaint is repeated no sooner than this, also when calls fail and succeed by turns.
const COMPLAIN_EVERY: Duration = Duration::from_secs(30);

/// Shared by every loop that calls the store.
#[derive(Debug, Default)]
pub(crate) struct Health {
    ill: AtomicBool,
    complained: Mutex<Option<(&'static str, Instant)>>,
    stale: Arc<Notify>,
}

impl Health {
    /// Notified when a shard refuses this node's picture of the topics, which must then be read again.
    pub(crate) fn stale(&self) -> Arc<Notify> {
        self.stale.clone()
    }

    /// A call was answered; true: that was worth a line.
    pub(crate) fn ok(&self) -> bool {
        let recovered = self.ill.load(Ordering::Relaxed) && self.ill.swap(false, Ordering::Relaxed);
        if recovered {
            info!("store answers again");
        }
        recovered
    }

    /// A call failed; true: that was worth a line.
    pub(crate) fn failed(&self, error: &StoreError) -> bool {
        if matches!(error, StoreError::Stale(_) | StoreError::NotReady(_) | StoreError::UnknownShard(_)) {
            self.stale.notify_one();
            return false;
        }
        let (kind, now) = (error.kind(), Instant::now());
        let mut complained = self.complained.lock();
        if let Some((last, at)) = *complained
            && last == kind
            && (self.ill.load(Ordering::Relaxed) || now < at + COMPLAIN_EVERY)
        {
            return false;
        }
        *complained = Some((kind, now));
        self.ill.store(true, Ordering::Relaxed);
        match error {
            StoreError::Damaged(_) => error!(%error, "store is damaged, the engine goes on trying"),
            _ => warn!(%error, kind, "store calls are failing, the engine waits and tries again"),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away() -> StoreError {
        StoreError::Unavailable { doing: "claim", source: "the wire is cut".into() }
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_worth_one_line_and_its_end_another() {
        let health = Health::default();
        assert!(!health.ok());
        assert!(health.failed(&away()));
        tokio::time::sleep(COMPLAIN_EVERY * 10).await;
        assert!(!health.failed(&away()));
        assert!(health.failed(&StoreError::ClockSkew(3_000)), "another fault is reported too");
        assert!(health.ok() && !health.ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_fails_and_answers_by_turns_does_not_fill_the_log() {
        let health = Health::default();
        let mut lines = 0;
        for _ in 0..1_000 {
            lines += usize::from(health.failed(&away())) + usize::from(health.ok());
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        assert!(lines <= 6, "{lines} lines in a minute");
    }

    #[tokio::test(start_paused = true)]
    async fn a_picture_of_the_topics_that_is_old_is_a_call_for_a_new_one() {
        let health = Health::default();
        assert!(!health.failed(&StoreError::NotReady("orders:1".to_owned())));
        tokio::time::timeout(Duration::from_millis(1), health.stale().notified()).await.unwrap();
    }
}
