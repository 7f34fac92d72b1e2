//! The contracts of whoever changes a topic's number of shards: with the HTTP API, which asks for it, and
//! with the router, which meets messages on their way.

use std::time::Duration;

use async_trait::async_trait;

use crate::names::TopicName;
use crate::routing::{Routing, RoutingRecord};
use crate::shard_count::ShardCount;
use crate::store::StoreError;

/// How far a change of the number of shards has come. Counted from the shards themselves, so that
/// every node reports the same; while messages come and go the numbers are estimates.
#[derive(Clone, Debug, PartialEq)]
pub struct ResizeProgress {
    /// Shards before.
    pub from: u32,
    /// Shards after.
    pub to: u32,
    /// The next request, which starts after this change.
    pub desired: Option<u32>,
    /// Messages that are in their new home.
    pub moved: u64,
    /// Messages that are not.
    pub remaining: u64,
    /// Messages moved a second lately; `None`: not known yet.
    pub per_second: Option<f64>,
    /// Time until nothing remains, at that rate.
    pub left: Option<Duration>,
    /// Why it does not go on at present, as far as this node knows.
    pub blocked: Option<String>,
}

/// Why a request for another number of shards was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// There is no such topic, or it is being deleted.
    #[error("topic {:?} does not exist or is being deleted", .0.as_str())]
    UnknownTopic(TopicName),
    /// The routing authority, shard 0 of the topic, did not answer; nothing was begun.
    #[error("the routing authority did not answer: {0}")]
    AuthorityAway(#[source] StoreError),
    /// The store's own answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Changes numbers of shards while everything goes on.
#[async_trait]
pub trait Resizing: Send + Sync + std::fmt::Debug + 'static {
    /// Whether a request could be taken now; asked before anything else is changed for it.
    ///
    /// # Errors
    ///
    /// [`ResizeError`].
    async fn check(&self, topic: &TopicName) -> Result<RoutingRecord, ResizeError>;

    /// The number of shards that `shards` means now, and how many messages a second this node moves at most.
    fn meaning(&self, shards: ShardCount) -> (u32, u32);

    /// Begins the change to `shards`, or keeps the request until the one that runs is done: the last request
    /// wins. Answers the record as it is now.
    ///
    /// # Errors
    ///
    /// [`ResizeError`].
    async fn ask(&self, topic: &TopicName, shards: ShardCount) -> Result<RoutingRecord, ResizeError>;

    /// How far the topic's change has come; `None`: none is under way.
    ///
    /// # Errors
    ///
    /// [`ResizeError`].
    async fn progress(&self, topic: &TopicName) -> Result<Option<ResizeProgress>, ResizeError>;
}

/// Finishes what a change of the number of shards has begun, for who meets it on its way.
#[async_trait]
pub trait Mover: Send + Sync + std::fmt::Debug + 'static {
    /// Finishes the batch on its way out of shard `from`, if there is one; how many messages it brought to their home.
    ///
    /// # Errors
    ///
    /// The store's; [`StoreError::Stale`] and [`StoreError::NotReady`] say who is behind.
    async fn finish(&self, topic: &TopicName, routing: &Routing, from: u32) -> Result<u64, StoreError>;

    /// Raises every shard of both counts to `routing`. Anybody may do it, any number of times.
    ///
    /// # Errors
    ///
    /// As [`crate::ResizeStore::fence`].
    async fn fence_all(&self, topic: &TopicName, routing: &Routing) -> Result<(), StoreError>;
}
