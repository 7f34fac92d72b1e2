//! What the engine knows of its store's health: says once what is wrong, and once that it is mended.

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
    /// Told when a shard refuses this node's picture of the topics: read them again.
    pub(crate) fn stale(&self) -> Arc<Notify> {
        self.stale.clone()
    }

    /// A call was answered.
    pub(crate) fn ok(&self) {
        if self.ill.load(Ordering::Relaxed) && self.ill.swap(false, Ordering::Relaxed) {
            info!("store answers again");
        }
    }

    /// A call failed.
    pub(crate) fn failed(&self, error: &StoreError) {
        if matches!(error, StoreError::Stale(_) | StoreError::NotReady(_) | StoreError::UnknownShard(_)) {
            self.stale.notify_one();
            return;
        }
        let kind = error.kind();
        let now = Instant::now();
        let mut complained = self.complained.lock();
        if let Some((last, at)) = *complained
            && last == kind
            && (self.ill.load(Ordering::Relaxed) || now < at + COMPLAIN_EVERY)
        {
            self.ill.store(true, Ordering::Relaxed);
            return;
        }
        *complained = Some((kind, now));
        self.ill.store(true, Ordering::Relaxed);
        match error {
            StoreError::Damaged(_) => error!(%error, "store is damaged, the engine goes on trying"),
            _ => warn!(%error, kind, "store calls are failing, the engine waits and tries again"),
        }
    }
}
