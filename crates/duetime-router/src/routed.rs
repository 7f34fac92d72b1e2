//! The store as the engine sees it: claims name shards by the present record, and settlements find
//! their messages wherever they have moved.

use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::hand_over::{HandOver, Streamed};
use duetime_core::store::{
    Adopt, Adopted, Claim, ClaimRequest, DeadAction, DeadPage, Edit, Edited, Enqueue, Enqueued, Settle, Settled, Store,
    StoreError, Survey, Wakeup,
};
use duetime_core::{Clock, MessageId, Place, Shard, StoredMessage, Timestamp, TopicName, TopicRecord};
use tokio::sync::broadcast;

use crate::error::is_misrouted;
use crate::router::Router;

/// How often a claim is sent again because the shard or this node was behind with the routing.
const CLAIM_TRIES: u32 = 4;

/// See the module.
#[derive(Debug)]
pub struct RoutedStore {
    inner: Arc<dyn Store>,
    router: Arc<Router>,
}

impl RoutedStore {
    /// The store of `router`, for an engine.
    #[must_use]
    pub fn new(router: Arc<Router>) -> Arc<Self> {
        Arc::new(Self { inner: router.kit.tools.store.clone(), router })
    }
}

impl RoutedStore {
    /// Asks a shard by the present record. The engine may be a moment behind with it, and a shard is
    /// the same in all of them.
    async fn by_present_record<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        shard: &Shard,
        ask: impl Fn(Shard) -> F,
    ) -> Result<T, StoreError> {
        let topic = &shard.topic;
        let mut tries = 1;
        loop {
            let record = self.router.catalog.get(topic);
            let Some(routing) = record.as_ref().map(|record| &record.routing) else { return ask(shard.clone()).await };
            match ask(routing.shard(topic, shard.index)).await {
                Err(error) if is_misrouted(&error) && tries < CLAIM_TRIES => {
                    self.router.catch_up(topic, routing, shard.index, &error).await?;
                }
                answer => return answer,
            }
            tries += 1;
        }
    }
}

#[async_trait]
impl Store for RoutedStore {
    async fn claim(&self, shard: &Shard, now: Timestamp, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.by_present_record(shard, |shard| async move { self.inner.claim(&shard, now, request).await }).await
    }

    async fn hand_over(&self, shard: &Shard, now: Timestamp, ask: &HandOver) -> Result<Streamed, StoreError> {
        self.by_present_record(shard, |shard| async move { self.inner.hand_over(&shard, now, ask).await }).await
    }

    fn has_streams(&self) -> bool {
        self.inner.has_streams()
    }

    async fn apart(&self, clock: &dyn Clock) -> Result<i64, StoreError> {
        self.inner.apart(clock).await
    }

    async fn settle(&self, shard: &Shard, _now: Timestamp, batch: &[Settle]) -> Result<Vec<Settled>, StoreError> {
        self.router.settle_claimed(shard, batch).await
    }

    async fn topics(&self) -> Result<Vec<TopicRecord>, StoreError> {
        self.inner.topics().await
    }

    async fn confirm(&self, record: &TopicRecord) -> Result<(), StoreError> {
        self.inner.confirm(record).await
    }

    async fn put_topic(&self, record: &TopicRecord, seen: Option<u64>) -> Result<TopicRecord, StoreError> {
        self.inner.put_topic(record, seen).await
    }

    async fn delete_topic(&self, topic: &TopicName) -> Result<bool, StoreError> {
        self.inner.delete_topic(topic).await
    }

    async fn remains(&self, topic: &TopicName) -> Result<u64, StoreError> {
        self.inner.remains(topic).await
    }

    async fn adopt_topic(&self, topic: &TopicName, ask: &Adopt) -> Result<Adopted, StoreError> {
        self.inner.adopt_topic(topic, ask).await
    }

    fn unreadable(&self) -> Vec<String> {
        self.inner.unreadable()
    }

    async fn enqueue(&self, shard: &Shard, now: Timestamp, batch: &[Enqueue]) -> Result<Vec<Enqueued>, StoreError> {
        self.inner.enqueue(shard, now, batch).await
    }

    async fn edit(&self, shard: &Shard, now: Timestamp, batch: &[Edit]) -> Result<Vec<Edited>, StoreError> {
        self.inner.edit(shard, now, batch).await
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

    async fn survey(&self, shards: &[Shard], now: Timestamp) -> Result<Vec<Survey>, StoreError> {
        self.inner.survey(shards, now).await
    }

    async fn heads(&self, shards: &[Shard]) -> Result<Vec<Option<Timestamp>>, StoreError> {
        self.inner.heads(shards).await
    }

    async fn survey_known(&self, shards: &[Shard], now: Timestamp) -> Result<Vec<Option<Survey>>, StoreError> {
        self.inner.survey_known(shards, now).await
    }

    async fn forecast_known(&self, shards: &[Shard], edges: &[Timestamp]) -> Result<(Vec<u64>, usize), StoreError> {
        self.inner.forecast_known(shards, edges).await
    }

    async fn forecast(&self, shards: &[Shard], edges: &[Timestamp]) -> Result<Vec<u64>, StoreError> {
        self.inner.forecast(shards, edges).await
    }

    fn place_of(&self, shard: &Shard) -> Place {
        self.inner.place_of(shard)
    }

    fn wakeups(&self) -> broadcast::Receiver<Wakeup> {
        self.inner.wakeups()
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.inner.ready().await
    }
}
