//! The contract between the HTTP API and the engine for topics without a sink: consumers claim.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::names::TopicName;
use crate::routing::Shard;
use crate::store::{ClaimedMessage, StoreError};

/// What a consumer asks for.
#[derive(Clone, Copy, Debug)]
pub struct ClaimAsk {
    /// Most messages, at most [`crate::limits::BATCH_ITEMS_MAX`].
    pub max: usize,
    /// How long to wait for something due.
    pub wait: Duration,
    /// `None`: that of each message, else the topic's.
    pub visibility: Option<Duration>,
    /// Takes from a topic that delivers at most once too, which removes what it hands out. Where not, a claim from such
    /// a one fails, also if it became one while the claim waited.
    pub may_remove: bool,
}

/// Messages of one shard, handed to a consumer.
#[derive(Debug)]
pub struct ClaimedBatch {
    /// Where they were claimed.
    pub shard: Shard,
    /// The messages.
    pub messages: Arc<Vec<ClaimedMessage>>,
    /// What the node's budget counts for them. To be kept until the answer is made of them.
    pub held: HeldBudget,
    /// Releases the messages, if the consumer does not get them after all.
    pub release: ReleaseAction,
}

/// Releases claimed messages, at no cost of an attempt.
#[derive(Default)]
pub struct ReleaseAction(Option<Box<dyn FnOnce() + Send + Sync>>);

impl ReleaseAction {
    /// Wraps `release`, which must not block.
    #[must_use]
    pub fn new(release: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(release)))
    }

    /// Returns a guard that releases when it is dropped before it is [sent](UnlessSent::sent).
    #[must_use]
    pub fn unless_sent(self) -> UnlessSent {
        UnlessSent(self)
    }
}

impl fmt::Debug for ReleaseAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReleaseAction")
    }
}

/// Claimed messages that are not sent to their consumer yet. They are released when this is dropped.
#[derive(Debug)]
pub struct UnlessSent(ReleaseAction);

impl UnlessSent {
    /// From here on the messages are the consumer's.
    pub fn sent(mut self) {
        self.0 = ReleaseAction::default();
    }
}

impl Drop for UnlessSent {
    fn drop(&mut self) {
        if let Some(release) = self.0.0.take() {
            release();
        }
    }
}

/// A part of a budget that is given back when the last clone is dropped.
#[derive(Clone, Default)]
pub struct HeldBudget(#[expect(dead_code, reason = "it is kept to be dropped")] Option<Arc<dyn Any + Send + Sync>>);

impl HeldBudget {
    /// Keeps `permit`, which gives itself back when it is dropped.
    #[must_use]
    pub fn new(permit: impl Any + Send + Sync) -> Self {
        Self(Some(Arc::new(permit)))
    }
}

impl fmt::Debug for HeldBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldBudget")
    }
}

/// Hands due messages to consumers, waiting without polling.
#[async_trait]
pub trait Consumers: Send + Sync + std::fmt::Debug + 'static {
    /// Takes what is due, or waits up to `ask.wait` for something to fall due. Empty: nothing did.
    ///
    /// # Errors
    ///
    /// As [`crate::ClaimStore::claim`]; [`StoreError::UnknownShard`] when the topic does not exist.
    async fn claim(&self, topic: &TopicName, ask: ClaimAsk) -> Result<Vec<ClaimedBatch>, StoreError>;

    /// Whether the node knows of something due in the topic that may be claimed. Asks no store, so there may be more.
    fn has_due(&self, topic: &TopicName) -> bool;
}
