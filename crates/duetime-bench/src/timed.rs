//! A store that notes how long each call took, so that the longest one is known exactly.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::routing::Shard;
use duetime_core::store::{
    Claim, ClaimRequest, DeadAction, DeadPage, Edit, Edited, Enqueue, Enqueued, Settle, Settled, Survey, Wakeup,
};
use duetime_core::{
    ClaimStore, MessageId, MessageStore, Place, ScheduleStore, Store, StoreError, StoreHealth, StoredMessage,
    Timestamp, TopicName, TopicRecord, TopicStore,
};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::load::{histogram, micros};

const OPS: [&str; 5] = ["enqueue", "edit", "claim", "settle", "look"];

#[derive(Clone, Copy)]
enum Op {
    Enqueue,
    Edit,
    Claim,
    Settle,
    Look,
}

/// See the module.
#[derive(Debug)]
pub struct TimedStore {
    inner: Arc<dyn Store>,
    calls: [Mutex<Histogram<u64>>; OPS.len()],
}

impl TimedStore {
    /// Around `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, calls: std::array::from_fn(|_| Mutex::new(histogram())) }
    }

    /// Microseconds by operation.
    #[must_use]
    pub fn calls(&self) -> Vec<(&'static str, Histogram<u64>)> {
        OPS.iter().zip(&self.calls).map(|(op, calls)| (*op, calls.lock().clone())).collect()
    }

    fn note(&self, op: Op, took: Duration) {
        self.calls[op as usize].lock().saturating_record(micros(took));
    }
}

/// Calls the inner store and notes the time.
macro_rules! timed {
    ($self:ident, $op:expr, $call:expr) => {{
        let asked = Instant::now();
        let answer = $call.await;
        $self.note($op, asked.elapsed());
        answer
    }};
}

#[async_trait]
impl TopicStore for TimedStore {
    async fn topics(&self) -> Result<Vec<TopicRecord>, StoreError> {
        self.inner.topics().await
    }

    async fn put_topic(&self, record: &TopicRecord, seen: Option<u64>) -> Result<TopicRecord, StoreError> {
        self.inner.put_topic(record, seen).await
    }

    async fn delete_topic(&self, topic: &TopicName) -> Result<bool, StoreError> {
        self.inner.delete_topic(topic).await
    }
}

#[async_trait]
impl MessageStore for TimedStore {
    async fn enqueue(&self, shard: &Shard, now: Timestamp, batch: &[Enqueue]) -> Result<Vec<Enqueued>, StoreError> {
        timed!(self, Op::Enqueue, self.inner.enqueue(shard, now, batch))
    }

    async fn edit(&self, shard: &Shard, now: Timestamp, batch: &[Edit]) -> Result<Vec<Edited>, StoreError> {
        timed!(self, Op::Edit, self.inner.edit(shard, now, batch))
    }

    async fn get(&self, shard: &Shard, ids: &[MessageId]) -> Result<Vec<Option<StoredMessage>>, StoreError> {
        self.inner.get(shard, ids).await
    }

    async fn dead(&self, shard: &Shard, from: Option<i64>, limit: usize) -> Result<DeadPage, StoreError> {
        self.inner.dead(shard, from, limit).await
    }

    async fn settle_dead(
        &self,
        shard: &Shard,
        now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<Vec<bool>, StoreError> {
        self.inner.settle_dead(shard, now, ids, action).await
    }

    async fn bytes(&self, shards: &[Shard]) -> Result<u64, StoreError> {
        self.inner.bytes(shards).await
    }
    async fn forecast(&self, shards: &[Shard], edges: &[Timestamp]) -> Result<Vec<u64>, StoreError> {
        self.inner.forecast(shards, edges).await
    }
}

#[async_trait]
impl ClaimStore for TimedStore {
    async fn claim(&self, shard: &Shard, now: Timestamp, request: &ClaimRequest) -> Result<Claim, StoreError> {
        timed!(self, Op::Claim, self.inner.claim(shard, now, request))
    }

    async fn settle(&self, shard: &Shard, now: Timestamp, batch: &[Settle]) -> Result<Vec<Settled>, StoreError> {
        timed!(self, Op::Settle, self.inner.settle(shard, now, batch))
    }
}

#[async_trait]
impl ScheduleStore for TimedStore {
    async fn survey(&self, shards: &[Shard], now: Timestamp) -> Result<Vec<Survey>, StoreError> {
        self.inner.survey(shards, now).await
    }

    async fn heads(&self, shards: &[Shard]) -> Result<Vec<Option<Timestamp>>, StoreError> {
        timed!(self, Op::Look, self.inner.heads(shards))
    }

    fn place_of(&self, shard: &Shard) -> Place {
        self.inner.place_of(shard)
    }

    fn wakeups(&self) -> broadcast::Receiver<Wakeup> {
        self.inner.wakeups()
    }
}

#[async_trait]
impl StoreHealth for TimedStore {
    async fn ready(&self) -> Result<(), StoreError> {
        self.inner.ready().await
    }
}
