//! The contract between the front door and the engine for topics without a sink: consumers claim.

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
pub struct HandedOver {
    /// Where they were claimed.
    pub shard: Shard,
    /// The messages.
    pub messages: Vec<ClaimedMessage>,
}

/// Hands due messages to consumers, waiting without polling.
#[async_trait]
pub trait Consumers: Send + Sync + std::fmt::Debug + 'static {
    /// Takes what is due, or waits up to `ask.wait` for something to fall due. Empty: nothing did.
    ///
    /// # Errors
    ///
    /// As [`crate::ClaimStore::claim`]; [`StoreError::UnknownShard`] when the topic does not exist.
    async fn claim(&self, topic: &TopicName, ask: ClaimAsk) -> Result<Vec<HandedOver>, StoreError>;
}
