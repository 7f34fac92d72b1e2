//! The reference store behind a bad network, on servers that fail over.
//!
//! Every call that is answered is on the replica by then, as the contract of the resize has it and as
//! `durability` promises producers; a failover in between makes the answer `unavailable`, and whether the
//! call took place is unknown.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::reshard::{
    AtOld, Batch, BatchName, Cursor, Fenced, Floor, Inspected, Kept, Put, RoutingRecord, ScanPage,
};
use duetime_core::store::{
    Claim, ClaimRequest, DeadAction, DeadPage, Edit, Edited, Enqueue, Enqueued, Settle, Settled, Survey, Wakeup,
};
use duetime_core::{
    MessageId, Reshard, Routing, RoutingAuthority, Shard, Store, StoreError, StoredMessage, Timestamp, TopicName,
    TopicRecord,
};
use duetime_testkit::MemStore;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use crate::draw::Dice;

/// Longest way to the store and back, each, in virtual time.
const WAY_MS_MAX: u64 = 3;
/// Longest time a replica of the topics' records is behind.
const LAG_MS_MAX: u64 = 1_500;
/// Where the terms of the topics' server are kept.
const AUTHORITY: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub struct FaultyStore {
    pub inner: Arc<MemStore>,
    pub topic: TopicName,
    pub dice: Arc<Dice>,
    /// Questions and answers lost, each, in a thousand.
    pub lost_permille: Mutex<u64>,
    /// Changes of a topic's record that are undone by a failover before they are answered, in a thousand.
    pub fails_over_permille: Mutex<u64>,
    /// A put is not on a replica when it is answered, and says so.
    pub alone: Mutex<bool>,
    terms: Mutex<BTreeMap<u32, u64>>,
}

fn lost() -> StoreError {
    StoreError::Unavailable { doing: "ask over a bad network", source: "no answer".into() }
}

impl FaultyStore {
    pub fn new(topic: TopicName, dice: Arc<Dice>, lost_permille: u64) -> Arc<Self> {
        let (lost_permille, fails_over_permille) = (Mutex::new(lost_permille), Mutex::new(0));
        Arc::new(Self {
            inner: MemStore::new(),
            topic,
            dice,
            lost_permille,
            fails_over_permille,
            alone: Mutex::default(),
            terms: Mutex::default(),
        })
    }

    /// The server of a shard fails over to its replica.
    pub fn fail_over(&self, index: u32) {
        self.inner.fail_over(&self.topic, index);
        *self.terms.lock().entry(index).or_default() += 1;
    }

    fn term(&self, index: u32) -> u64 {
        self.terms.lock().get(&index).copied().unwrap_or_default()
    }

    fn is_lost(&self) -> bool {
        self.dice.permille(*self.lost_permille.lock())
    }

    /// There and back: lost on either way, or answered once the replica has it.
    async fn on<T>(
        &self,
        index: u32,
        act: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.dice.pause(WAY_MS_MAX).await;
        if self.is_lost() {
            return Err(lost());
        }
        let term = self.term(index);
        let answer = act.await;
        self.dice.pause(WAY_MS_MAX).await;
        if self.term(index) != term {
            return Err(lost());
        }
        self.inner.replicate(&self.topic, index);
        if self.is_lost() { Err(lost()) } else { answer }
    }

    /// The server of the topics' records, who decides on their routing, fails over to its replica.
    pub fn fail_over_authority(&self) {
        self.inner.fail_over_topics();
        *self.terms.lock().entry(AUTHORITY).or_default() += 1;
    }

    /// The same for a change of a topic's record.
    async fn decide<T>(&self, act: impl Future<Output = Result<T, StoreError>> + Send) -> Result<T, StoreError> {
        self.dice.pause(WAY_MS_MAX).await;
        if self.is_lost() {
            return Err(lost());
        }
        let term = self.term(AUTHORITY);
        let answer = act.await;
        if self.dice.permille(*self.fails_over_permille.lock()) {
            // Its replica lags until it takes over; others look meanwhile.
            self.dice.pause(LAG_MS_MAX).await;
            self.fail_over_authority();
        }
        self.dice.pause(WAY_MS_MAX).await;
        if self.term(AUTHORITY) != term {
            return Err(lost());
        }
        self.inner.replicate_topics();
        if self.is_lost() { Err(lost()) } else { answer }
    }

    /// The same for what is only looked at: nothing that is seen has to be on a replica.
    async fn ask<T>(&self, act: impl Future<Output = Result<T, StoreError>> + Send) -> Result<T, StoreError> {
        self.dice.pause(WAY_MS_MAX).await;
        if self.is_lost() {
            return Err(lost());
        }
        let answer = act.await;
        self.dice.pause(WAY_MS_MAX).await;
        if self.is_lost() { Err(lost()) } else { answer }
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn topics(&self) -> Result<Vec<TopicRecord>, StoreError> {
        self.ask(self.inner.topics()).await
    }

    async fn confirm(&self, record: &TopicRecord) -> Result<(), StoreError> {
        let routing = record.routing_record();
        self.swap_routing(&record.name, &routing, &routing).await
    }

    async fn put_topic(&self, record: &TopicRecord, seen: Option<u64>) -> Result<TopicRecord, StoreError> {
        self.decide(self.inner.put_topic(record, seen)).await
    }

    async fn delete_topic(&self, topic: &TopicName) -> Result<bool, StoreError> {
        self.decide(self.inner.delete_topic(topic)).await
    }

    async fn enqueue(&self, shard: &Shard, now: Timestamp, batch: &[Enqueue]) -> Result<Vec<Enqueued>, StoreError> {
        self.on(shard.index, self.inner.enqueue(shard, now, batch)).await
    }

    async fn edit(&self, shard: &Shard, now: Timestamp, batch: &[Edit]) -> Result<Vec<Edited>, StoreError> {
        self.on(shard.index, self.inner.edit(shard, now, batch)).await
    }

    async fn get(&self, shard: &Shard, ids: &[MessageId]) -> Result<Vec<Option<StoredMessage>>, StoreError> {
        self.on(shard.index, self.inner.get(shard, ids)).await
    }

    async fn claim(&self, shard: &Shard, now: Timestamp, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.on(shard.index, self.inner.claim(shard, now, request)).await
    }

    async fn settle(&self, shard: &Shard, now: Timestamp, batch: &[Settle]) -> Result<Vec<Settled>, StoreError> {
        self.on(shard.index, self.inner.settle(shard, now, batch)).await
    }

    async fn dead(&self, shard: &Shard, from: Option<i64>, limit: usize) -> Result<DeadPage, StoreError> {
        self.on(shard.index, self.inner.dead(shard, from, limit)).await
    }

    async fn settle_dead(
        &self,
        shard: &Shard,
        now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<Vec<bool>, StoreError> {
        self.on(shard.index, self.inner.settle_dead(shard, now, ids, action)).await
    }

    async fn survey(&self, shards: &[Shard], now: Timestamp) -> Result<Vec<Survey>, StoreError> {
        self.ask(self.inner.survey(shards, now)).await
    }

    async fn heads(&self, shards: &[Shard]) -> Result<Vec<Option<Timestamp>>, StoreError> {
        self.ask(self.inner.heads(shards)).await
    }

    async fn forecast(&self, shards: &[Shard], edges: &[Timestamp]) -> Result<Vec<u64>, StoreError> {
        self.ask(self.inner.forecast(shards, edges)).await
    }

    fn wakeups(&self) -> broadcast::Receiver<Wakeup> {
        self.inner.wakeups()
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.ask(self.inner.ready()).await
    }
}

#[async_trait]
impl RoutingAuthority for FaultyStore {
    async fn routing(&self, topic: &TopicName) -> Result<Option<RoutingRecord>, StoreError> {
        self.ask(self.inner.routing(topic)).await
    }

    async fn swap_routing(
        &self,
        topic: &TopicName,
        seen: &RoutingRecord,
        new: &RoutingRecord,
    ) -> Result<(), StoreError> {
        self.decide(self.inner.swap_routing(topic, seen, new)).await
    }
}

#[async_trait]
impl Reshard for FaultyStore {
    async fn fence(&self, topic: &TopicName, index: u32, to: &Routing, floor: &Floor) -> Result<Fenced, StoreError> {
        self.on(index, self.inner.fence(topic, index, to, floor)).await
    }

    async fn inspect(&self, topic: &TopicName, indexes: Range<u32>) -> Result<Vec<Option<Inspected>>, StoreError> {
        self.ask(self.inner.inspect(topic, indexes)).await
    }

    async fn enqueue_old(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: &[Enqueue],
    ) -> Result<Vec<AtOld<Enqueued>>, StoreError> {
        self.on(shard.index, self.inner.enqueue_old(shard, now, batch)).await
    }

    async fn edit_old(&self, shard: &Shard, now: Timestamp, batch: &[Edit]) -> Result<Vec<AtOld<Edited>>, StoreError> {
        self.on(shard.index, self.inner.edit_old(shard, now, batch)).await
    }

    async fn get_old(&self, shard: &Shard, ids: &[MessageId]) -> Result<Vec<AtOld<StoredMessage>>, StoreError> {
        self.on(shard.index, self.inner.get_old(shard, ids)).await
    }

    async fn settle_old(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: &[Settle],
    ) -> Result<Vec<AtOld<Settled>>, StoreError> {
        self.on(shard.index, self.inner.settle_old(shard, now, batch)).await
    }

    async fn settle_dead_old(
        &self,
        shard: &Shard,
        now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<Vec<AtOld<bool>>, StoreError> {
        self.on(shard.index, self.inner.settle_dead_old(shard, now, ids, action)).await
    }

    async fn scan(&self, shard: &Shard, from: Option<&Cursor>, limit: usize) -> Result<ScanPage, StoreError> {
        self.on(shard.index, self.inner.scan(shard, from, limit)).await
    }

    async fn take(&self, shard: &Shard, to: u32, ids: &[MessageId], nonce: u64) -> Result<Option<Batch>, StoreError> {
        self.on(shard.index, self.inner.take(shard, to, ids, nonce)).await
    }

    async fn outbox(&self, shard: &Shard) -> Result<Option<Batch>, StoreError> {
        self.on(shard.index, self.inner.outbox(shard)).await
    }

    async fn put(&self, shard: &Shard, batch: &Batch) -> Result<Put, StoreError> {
        if !*self.alone.lock() {
            return self.on(shard.index, self.inner.put(shard, batch)).await;
        }
        // Answered by its server alone: the next failover may undo it.
        match self.ask(self.inner.put(shard, batch)).await? {
            Put::Done { fresh, .. } => Ok(Put::Done { fresh, kept: Kept::Alone }),
            conflict @ Put::Conflict { .. } => Ok(conflict),
        }
    }

    async fn memory(&self, shard: &Shard, from: u32) -> Result<Option<BatchName>, StoreError> {
        self.on(shard.index, self.inner.memory(shard, from)).await
    }

    async fn renumber(&self, shard: &Shard, seen: u64, new: BatchName) -> Result<bool, StoreError> {
        self.on(shard.index, self.inner.renumber(shard, seen, new)).await
    }

    async fn drop_batch(&self, shard: &Shard, nonce: u64) -> Result<bool, StoreError> {
        self.on(shard.index, self.inner.drop_batch(shard, nonce)).await
    }
}
