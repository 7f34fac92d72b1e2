//! The reference model: the whole `Store` contract in the obvious, slow way, in memory.
//!
//! Upstream: the conformance suite and the property tests, which hold every other store against
//! it, and unit tests that want a store without a server. One lock, plain maps, no cleverness:
//! where model and contract differ, one of the two is wrong and must be fixed.

mod claim;
mod enqueue;
mod moves;
mod plans;
mod resize;
mod server;
mod settle;
mod shard;
mod store;

use std::collections::BTreeMap;
use std::sync::Arc;

use duetime_core::store::{BatchReply, Wakeup};
use duetime_core::{Clock, MessageId, Shard, StoreError, Timestamp, TopicName, TopicRecord};
use parking_lot::Mutex;
use tokio::sync::broadcast;

use shard::ShardState;

/// Hints kept for a slow listener.
const WAKEUPS_KEPT: usize = 1024;

/// The model.
#[derive(Debug)]
pub struct MemStore {
    inside: Mutex<Inside>,
    own_clock: Mutex<Option<Arc<dyn Clock>>>,
    /// What its callers said last that the time is.
    last_caller: Mutex<Timestamp>,
    wakeups: broadcast::Sender<Wakeup>,
    replicas: Mutex<Option<u32>>,
}

#[derive(Debug, Default)]
struct Inside {
    topics: BTreeMap<TopicName, TopicRecord>,
    shards: BTreeMap<(TopicName, u32), ShardState>,
    /// The last number of a life.
    lives: u64,
    /// Bulk plans.
    plans: BTreeMap<String, String>,
    /// What the replica of a shard has, where there is one.
    replicas: BTreeMap<(TopicName, u32), ShardState>,
    /// What the replica of the topics' records has.
    replica_of_topics: BTreeMap<TopicName, TopicRecord>,
}

impl MemStore {
    /// An empty store whose own time is whatever its callers say.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let (wakeups, _) = broadcast::channel(WAKEUPS_KEPT);
        let last_caller = Mutex::new(Timestamp::ZERO);
        let (inside, own_clock, replicas) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { inside, own_clock, last_caller, wakeups, replicas })
    }

    /// Gives the store a clock of its own, which may be apart from the callers'; `None`: theirs.
    pub fn set_clock(&self, clock: Option<Arc<dyn Clock>>) {
        *self.own_clock.lock() = clock;
    }

    /// What is said of how many replicas have a change; `None`: the store waits for none.
    pub fn set_replicas(&self, replicas: Option<u32>) {
        *self.replicas.lock() = replicas;
    }

    fn kept<A>(&self, answers: Vec<A>) -> BatchReply<A> {
        BatchReply { answers, replicas: *self.replicas.lock() }
    }

    /// Loses the body of a message, as an evicting server would.
    pub fn lose_body(&self, shard: &Shard, id: &MessageId) {
        if let Some(state) = self.inside.lock().shards.get_mut(&(shard.topic.clone(), shard.index)) {
            state.bodies.remove(id);
        }
    }

    /// Brings the replica of a shard up to date, making one where there was none.
    pub fn replicate(&self, topic: &TopicName, index: u32) {
        let mut inside = self.inside.lock();
        let seat = (topic.clone(), index);
        if let Some(state) = inside.shards.get(&seat).cloned() {
            inside.replicas.insert(seat, state);
        }
    }

    /// Puts the replica of a shard, where there is one, in its place: what it had not heard of is lost.
    pub fn fail_over(&self, topic: &TopicName, index: u32) {
        let mut inside = self.inside.lock();
        let seat = (topic.clone(), index);
        if let Some(state) = inside.replicas.get(&seat).cloned() {
            inside.shards.insert(seat, state);
        }
    }

    /// Brings the replica of the topics' records up to date.
    pub fn replicate_topics(&self) {
        let mut inside = self.inside.lock();
        inside.replica_of_topics = inside.topics.clone();
    }

    /// Puts the replica of the topics' records in their place: what it had not heard of is lost.
    pub fn fail_over_topics(&self) {
        let mut inside = self.inside.lock();
        inside.topics = inside.replica_of_topics.clone();
    }

    fn own(&self, caller: Timestamp) -> Timestamp {
        *self.last_caller.lock() = caller;
        self.own_clock.lock().as_ref().map_or(caller, |clock| clock.now())
    }

    /// The store's present, in calls that do not say theirs too.
    fn present(&self) -> Timestamp {
        self.own_clock.lock().as_ref().map_or_else(|| *self.last_caller.lock(), |clock| clock.now())
    }

    /// The earlier and the later of the store's clock and the caller's.
    fn both(&self, caller: Timestamp) -> (Timestamp, Timestamp) {
        let own = self.own(caller);
        (own.min(caller), own.max(caller))
    }

    /// Refuses clocks that are too far apart for a call with a relative time in it.
    fn agree_on(&self, caller: Timestamp, relative: bool) -> Result<(), StoreError> {
        if relative { claim::agree(self.own(caller), caller) } else { Ok(()) }
    }

    /// Runs one operation on one shard, as one atomic step, and announces a sooner head.
    fn on_shard<A>(
        &self,
        shard: &Shard,
        act: impl FnOnce(&mut ShardState) -> Result<A, StoreError>,
    ) -> Result<A, StoreError> {
        let mut inside = self.inside.lock();
        let state = inside
            .shards
            .get_mut(&(shard.topic.clone(), shard.index))
            .ok_or_else(|| StoreError::UnknownShard(shard.to_string()))?;
        state.check_epoch(shard)?;
        let before = state.head();
        state.begin(shard.memory, self.present());
        let answer = act(state)?;
        if let Some(visible_at) = state.head()
            && before.is_none_or(|before| visible_at < before)
        {
            // Nobody listening is fine: it is a hint.
            let _ = self.wakeups.send(Wakeup { topic: shard.topic.clone(), index: shard.index, visible_at });
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use crate::at_home::MessagesAtHome as _;
    use duetime_core::store::ClaimRequest;
    use duetime_core::{
        ChangeId, ClaimStore as _, DeliveryMode, LeaseClass, MessageState, RetryPolicy, TopicConfig, TopicRecord,
        TopicStore as _,
    };

    use super::*;
    use crate::ManualClock;
    use crate::conformance::store::message_due;

    const START: Timestamp = Timestamp::from_millis(1_000_000);

    async fn with_one_due() -> (Arc<MemStore>, Shard, MessageId, ClaimRequest) {
        let store = MemStore::new();
        let record = TopicRecord::new("t".parse().unwrap(), TopicConfig::default(), 1, ChangeId(1), START);
        let record = store.put_topic(&record, None).await.unwrap();
        let shard = record.routing.shard(&record.name, 0);
        let message = message_due("a", duetime_core::Due::At(START));
        store.enqueue(&shard, START, std::slice::from_ref(&message)).await.unwrap();
        let request = ClaimRequest {
            request: 1,
            limit: 10,
            visibility: std::time::Duration::from_secs(30),
            class: LeaseClass::TOPIC,
            retry: RetryPolicy::default(),
            delivery: DeliveryMode::AtLeastOnce,
        };
        (store, shard, message.id, request)
    }

    #[tokio::test]
    async fn a_message_that_lost_its_body_is_a_dead_letter_and_not_dropped() {
        let (store, shard, id, request) = with_one_due().await;
        store.lose_body(&shard, &id);
        let claim = store.claim(&shard, START, &request).await.unwrap();
        assert_eq!((claim.messages.len(), claim.buried), (0, 1));
        let found = store.get(&shard, &[id]).await.unwrap().remove(0).unwrap();
        assert_eq!(found.state, MessageState::Dead);
        assert!(found.death.unwrap().reason.contains("body"));
    }

    #[tokio::test]
    async fn a_store_with_a_clock_of_its_own_refuses_a_caller_more_than_two_seconds_apart() {
        let (store, shard, _, request) = with_one_due().await;
        for (own_ms, taken) in [(2001, None), (-2001, None), (-1, Some(0)), (2000, Some(1))] {
            store.set_clock(Some(ManualClock::at(Timestamp::from_millis(START.as_millis() + own_ms))));
            let claim = store.claim(&shard, START, &request).await;
            assert_eq!(claim.ok().map(|claim| claim.messages.len()), taken, "{own_ms} ms apart");
        }
    }
}
