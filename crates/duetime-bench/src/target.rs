//! What a workload sees: a topic of its own somewhere, and who is notified of deliveries.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use duetime_core::store::ShardCounts;
use duetime_core::{MessageId, Timestamp};
use hdrhistogram::Histogram;

/// One message to be scheduled.
#[derive(Clone, Debug)]
pub struct Item {
    pub id: MessageId,
    /// A past one is due at once.
    pub due_at: Timestamp,
    pub payload: Bytes,
}

/// What became of one cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// It will not be delivered.
    Cancelled,
    /// It was being delivered.
    InFlight,
    /// It was not there.
    Unknown,
}

/// A recorder is notified of every delivery, from many tasks at once.
pub trait Recorder: Send + Sync + std::fmt::Debug + 'static {
    /// Records messages, with their due times, that were just delivered.
    fn delivered(&self, messages: &[(MessageId, Timestamp)]);
}

/// Deliveries that go on until they are stopped.
#[async_trait]
pub trait Consuming: Send {
    /// Settles what is in flight and stops.
    async fn stop(self: Box<Self>) -> anyhow::Result<()>;
}

/// A topic of the bench's own: on a node, or straight in a store.
#[async_trait]
pub trait LoadTarget: Send + Sync + 'static {
    /// Groups that batches are made for: the shards of a store, one for a node.
    fn groups(&self) -> usize;

    /// The group of an id.
    fn group_of(&self, id: &MessageId) -> usize;

    /// Schedules messages of one group; how many were new.
    async fn enqueue(&self, batch: Vec<Item>) -> anyhow::Result<u64>;

    /// Cancels messages of one group.
    async fn cancel(&self, batch: Vec<MessageId>) -> anyhow::Result<Vec<CancelOutcome>>;

    /// Begins to deliver what is due, and to settle it.
    async fn consume(&self, recorder: Arc<dyn Recorder>) -> anyhow::Result<Box<dyn Consuming>>;

    /// Counts over all shards.
    async fn survey(&self) -> anyhow::Result<ShardCounts>;

    /// Resident memory of the process that claims and delivers, in bytes.
    async fn memory(&self) -> Option<u64>;

    /// What to keep with the figures.
    async fn notes(&self) -> BTreeMap<String, serde_json::Value>;

    /// Microseconds of the calls to the store, by operation, where they can be seen.
    fn store_calls(&self) -> Vec<(&'static str, Histogram<u64>)>;

    /// Removes the topic and everything in it.
    async fn delete(&self) -> anyhow::Result<()>;
}
