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
    /// `None`: the topic's own.
    pub visibility: Option<Duration>,
}

/// Messages of one shard, handed to a consumer.
#[derive(Clone, Debug)]
pub struct ClaimedBatch {
    /// Where they were claimed.
    pub shard: Shard,
    /// The messages.
    pub messages: Vec<ClaimedMessage>,
    /// What the node's budget counts for them. To be kept until the answer is made of them.
    pub held: HeldBudget,
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
}
