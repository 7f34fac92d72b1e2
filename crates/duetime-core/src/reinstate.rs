//! Messages that an at-most-once claim removed and nobody was given: they are scheduled again.
//!
//! Upstream: the engine. Downstream: the store, by the routing there is by then.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::contract::MessageStore;
use crate::store::{ClaimedMessage, Enqueue, EnqueueOutcome, StoreError};
use crate::{Clock, Due, OnConflict, Shard};

/// Messages that an at-most-once claim removed and nobody was given: they are scheduled again.
#[async_trait]
pub trait Reinstate: Send + Sync + fmt::Debug + 'static {
    /// Schedules messages again that were claimed at most once from `shard`, with the due time and the nonce they
    /// had; false: the id lives anew, or its topic is gone, and the message is not needed any more. May be
    /// repeated after an error: what was done the first time is found by its nonce.
    async fn reinstate(&self, shard: &Shard, messages: &[ClaimedMessage]) -> Result<Vec<bool>, StoreError>;
}

/// The enqueue that makes `message` as it was.
#[must_use]
pub fn as_it_was(message: &ClaimedMessage) -> Enqueue {
    Enqueue {
        id: message.id.clone(),
        due: Due::At(message.due_at),
        headers: message.headers.clone(),
        payload: message.payload.clone(),
        on_conflict: OnConflict::Reject,
        nonce: message.nonce,
    }
}

/// For stores whose shards never change: into the shard they came from.
#[derive(Debug)]
pub struct SameShard<S: ?Sized> {
    /// The time of the calls.
    pub clock: Arc<dyn Clock>,
    /// Where the messages are.
    pub store: Arc<S>,
}

#[async_trait]
impl<S: MessageStore + ?Sized> Reinstate for SameShard<S> {
    async fn reinstate(&self, shard: &Shard, messages: &[ClaimedMessage]) -> Result<Vec<bool>, StoreError> {
        let batch: Vec<Enqueue> = messages.iter().map(as_it_was).collect();
        let done = self.store.enqueue(shard, self.clock.now(), &batch).await?;
        Ok(done.iter().map(|one| one.outcome == EnqueueOutcome::Scheduled).collect())
    }
}
