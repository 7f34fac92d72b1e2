//! Times every call to the store and counts the failed ones, on the way down.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::reshard::{AtOld, Batch, BatchName, Cursor, Fenced, Floor, Inspected, Put, Reshard, ScanPage};
use duetime_core::store::{
    Adopt, Adopted, Claim, ClaimRequest, DeadAction, DeadPage, Edit, Edited, Enqueue, Enqueued, Kept, Settle, Settled,
    StoreError, Survey, Wakeup,
};
use duetime_core::{
    ClaimStore, Clock, HandOver, MessageId, MessageStore, Place, Routing, ScheduleStore, Shard, Store, StoreHealth,
    StoredMessage, Streamed, Timestamp, TopicName, TopicRecord, TopicStore,
};
use duetime_metrics::Meters;
use tokio::sync::broadcast;
use tokio::time::Instant;

/// A store with a stop-watch. Changes nothing else.
#[derive(Debug)]
pub struct MeteredStore {
    inner: Arc<dyn Store>,
    meters: Arc<Meters>,
}

impl MeteredStore {
    /// Puts the watch on `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, meters: Arc<Meters>) -> Arc<Self> {
        Arc::new(Self { inner, meters })
    }

    async fn timed<T>(
        &self,
        op: &'static str,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let begun = Instant::now();
        let answer = call.await;
        self.meters.store_call(op, begun.elapsed());
        if let Err(error) = &answer {
            self.meters.store_error(error.kind());
        }
        answer
    }
}

#[async_trait]
impl TopicStore for MeteredStore {
    async fn topics(&self) -> Result<Vec<TopicRecord>, StoreError> {
        self.timed("topics", self.inner.topics()).await
    }

    async fn confirm(&self, record: &TopicRecord) -> Result<(), StoreError> {
        self.timed("confirm", self.inner.confirm(record)).await
    }

    async fn put_topic(&self, record: &TopicRecord, seen: Option<u64>) -> Result<TopicRecord, StoreError> {
        self.timed("put_topic", self.inner.put_topic(record, seen)).await
    }

    async fn delete_topic(&self, topic: &TopicName) -> Result<bool, StoreError> {
        self.timed("delete_topic", self.inner.delete_topic(topic)).await
    }

    async fn remains(&self, topic: &TopicName) -> Result<u64, StoreError> {
        self.timed("remains", self.inner.remains(topic)).await
    }

    async fn adopt_topic(&self, topic: &TopicName, ask: &Adopt) -> Result<Adopted, StoreError> {
        self.timed("adopt_topic", self.inner.adopt_topic(topic, ask)).await
    }

    async fn finish_deletions(&self) -> Result<(), StoreError> {
        self.timed("finish_deletions", self.inner.finish_deletions()).await
    }

    fn unreadable(&self) -> Vec<String> {
        self.inner.unreadable()
    }
}

#[async_trait]
impl MessageStore for MeteredStore {
    async fn enqueue(&self, shard: &Shard, now: Timestamp, batch: &[Enqueue]) -> Result<Vec<Enqueued>, StoreError> {
        self.timed("enqueue", self.inner.enqueue(shard, now, batch)).await
    }

    async fn edit(&self, shard: &Shard, now: Timestamp, batch: &[Edit]) -> Result<Vec<Edited>, StoreError> {
        self.timed("edit", self.inner.edit(shard, now, batch)).await
    }

    async fn edit_kept(&self, shard: &Shard, now: Timestamp, batch: &[Edit]) -> Result<Kept<Edited>, StoreError> {
        self.timed("edit", self.inner.edit_kept(shard, now, batch)).await
    }

    async fn get(&self, shard: &Shard, ids: &[MessageId]) -> Result<Vec<Option<StoredMessage>>, StoreError> {
        self.timed("get", self.inner.get(shard, ids)).await
    }

    async fn dead(&self, shard: &Shard, from: Option<i64>, limit: usize) -> Result<DeadPage, StoreError> {
        self.timed("dead", self.inner.dead(shard, from, limit)).await
    }

    async fn settle_dead(
        &self,
        shard: &Shard,
        now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<Vec<bool>, StoreError> {
        self.timed("settle_dead", self.inner.settle_dead(shard, now, ids, action)).await
    }

    async fn settle_dead_kept(
        &self,
        shard: &Shard,
        now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<Kept<bool>, StoreError> {
        self.timed("settle_dead", self.inner.settle_dead_kept(shard, now, ids, action)).await
    }

    async fn forecast_known(&self, shards: &[Shard], edges: &[Timestamp]) -> Result<(Vec<u64>, usize), StoreError> {
        self.timed("forecast", self.inner.forecast_known(shards, edges)).await
    }

    async fn bytes(&self, shards: &[Shard]) -> Result<u64, StoreError> {
        self.timed("bytes", self.inner.bytes(shards)).await
    }

    async fn forecast(&self, shards: &[Shard], edges: &[Timestamp]) -> Result<Vec<u64>, StoreError> {
        self.timed("forecast", self.inner.forecast(shards, edges)).await
    }
}

#[async_trait]
impl ClaimStore for MeteredStore {
    async fn claim(&self, shard: &Shard, now: Timestamp, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.timed("claim", self.inner.claim(shard, now, request)).await
    }

    async fn hand_over(&self, shard: &Shard, now: Timestamp, ask: &HandOver) -> Result<Streamed, StoreError> {
        self.timed("hand_over", self.inner.hand_over(shard, now, ask)).await
    }

    fn has_streams(&self) -> bool {
        self.inner.has_streams()
    }

    async fn settle(&self, shard: &Shard, now: Timestamp, batch: &[Settle]) -> Result<Vec<Settled>, StoreError> {
        self.timed("settle", self.inner.settle(shard, now, batch)).await
    }

    async fn settle_kept(&self, shard: &Shard, now: Timestamp, batch: &[Settle]) -> Result<Kept<Settled>, StoreError> {
        self.timed("settle", self.inner.settle_kept(shard, now, batch)).await
    }
}

#[async_trait]
impl ScheduleStore for MeteredStore {
    async fn survey(&self, shards: &[Shard], now: Timestamp) -> Result<Vec<Survey>, StoreError> {
        self.timed("survey", self.inner.survey(shards, now)).await
    }

    async fn heads(&self, shards: &[Shard]) -> Result<Vec<Option<Timestamp>>, StoreError> {
        self.timed("heads", self.inner.heads(shards)).await
    }

    async fn survey_known(&self, shards: &[Shard], now: Timestamp) -> Result<Vec<Option<Survey>>, StoreError> {
        self.timed("survey", self.inner.survey_known(shards, now)).await
    }

    fn place_of(&self, shard: &Shard) -> Place {
        self.inner.place_of(shard)
    }

    fn wakeups(&self) -> broadcast::Receiver<Wakeup> {
        self.inner.wakeups()
    }
}

#[async_trait]
impl StoreHealth for MeteredStore {
    async fn apart(&self, clock: &dyn Clock) -> Result<i64, StoreError> {
        self.timed("apart", self.inner.apart(clock)).await
    }

    fn troubles(&self) -> Vec<String> {
        self.inner.troubles()
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.timed("ready", self.inner.ready()).await
    }
}

#[async_trait]
impl Reshard for MeteredStore {
    async fn fence(
        &self,
        topic: &TopicName,
        index: u32,
        routing: &Routing,
        floor: &Floor,
    ) -> Result<Fenced, StoreError> {
        self.timed("fence", self.inner.fence(topic, index, routing, floor)).await
    }

    async fn inspect(&self, topic: &TopicName, indexes: Range<u32>) -> Result<Vec<Option<Inspected>>, StoreError> {
        self.timed("inspect", self.inner.inspect(topic, indexes)).await
    }

    async fn enqueue_old(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: &[Enqueue],
    ) -> Result<Vec<AtOld<Enqueued>>, StoreError> {
        self.timed("enqueue_old", self.inner.enqueue_old(shard, now, batch)).await
    }

    async fn edit_old(&self, shard: &Shard, now: Timestamp, batch: &[Edit]) -> Result<Vec<AtOld<Edited>>, StoreError> {
        self.timed("edit_old", self.inner.edit_old(shard, now, batch)).await
    }

    async fn get_old(&self, shard: &Shard, ids: &[MessageId]) -> Result<Vec<AtOld<StoredMessage>>, StoreError> {
        self.timed("get_old", self.inner.get_old(shard, ids)).await
    }

    async fn settle_old(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: &[Settle],
    ) -> Result<Vec<AtOld<Settled>>, StoreError> {
        self.timed("settle_old", self.inner.settle_old(shard, now, batch)).await
    }

    async fn settle_dead_old(
        &self,
        shard: &Shard,
        now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<Vec<AtOld<bool>>, StoreError> {
        self.timed("settle_dead_old", self.inner.settle_dead_old(shard, now, ids, action)).await
    }

    async fn scan(&self, shard: &Shard, from: Option<&Cursor>, limit: usize) -> Result<ScanPage, StoreError> {
        self.timed("scan", self.inner.scan(shard, from, limit)).await
    }

    async fn take(&self, shard: &Shard, to: u32, ids: &[MessageId], nonce: u64) -> Result<Option<Batch>, StoreError> {
        self.timed("take", self.inner.take(shard, to, ids, nonce)).await
    }

    async fn outbox(&self, shard: &Shard) -> Result<Option<Batch>, StoreError> {
        self.timed("outbox", self.inner.outbox(shard)).await
    }

    async fn put(&self, shard: &Shard, batch: &Batch) -> Result<Put, StoreError> {
        self.timed("put", self.inner.put(shard, batch)).await
    }

    async fn memory(&self, shard: &Shard, from: u32) -> Result<Option<BatchName>, StoreError> {
        self.timed("memory", self.inner.memory(shard, from)).await
    }

    async fn renumber(&self, shard: &Shard, seen: u64, new: BatchName) -> Result<bool, StoreError> {
        self.timed("renumber", self.inner.renumber(shard, seen, new)).await
    }

    async fn drop_batch(&self, shard: &Shard, nonce: u64) -> Result<bool, StoreError> {
        self.timed("drop_batch", self.inner.drop_batch(shard, nonce)).await
    }
}
