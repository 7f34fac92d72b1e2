//! What a sentence of the suite stands in: a topic of three shards, about to have five.

use crate::at_home::{MessagesAtHome as _, SettledAtHome as _};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use duetime_core::resize_store::{ApplyOutcome, Batch, DeadlineFloor};
use duetime_core::routing::RoutingState;
use duetime_core::store::{Claim, ClaimRequest, ClaimedMessage, EnqueueOutcome, Settle, Settled, Settlement};
use duetime_core::{ChangeId, Due, MessageId, RetryPolicy, Routing, RoutingRecord, Shard, StoredMessage};

use crate::claim_request;
use crate::conformance::store::world::{id, message};
use crate::conformance::{StoreFactory, store};

/// Shards after the change.
pub(super) const MORE: u32 = 5;
pub(super) const LONG: Duration = Duration::from_secs(30);
pub(super) const SHORT: Duration = Duration::from_millis(60);

/// The files with sentences, for the test that none is forgotten.
#[cfg(test)]
pub(super) const SOURCES: [(&str, &str); 6] = [
    ("fence", include_str!("fence.rs")),
    ("in_flight", include_str!("in_flight.rs")),
    ("moves", include_str!("moves.rs")),
    ("source", include_str!("source.rs")),
    ("outbox", include_str!("outbox.rs")),
    ("routing", include_str!("routing.rs")),
];

/// What a sentence of the suite stands in: a topic of three shards, about to have five.
#[derive(Debug)]
pub(super) struct World(store::world::World);

impl Deref for World {
    type Target = store::world::World;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

pub(super) fn ids(texts: &[&str]) -> Vec<MessageId> {
    texts.iter().map(|text| id(text)).collect()
}

impl World {
    pub async fn new(factory: &dyn StoreFactory) -> Self {
        Self(store::world::World::new(factory).await)
    }

    pub async fn with_watermark(factory: &dyn StoreFactory) -> Self {
        Self(store::world::World::with_watermark(factory).await)
    }

    pub async fn with_max_in_flight(factory: &dyn StoreFactory, max: u32) -> Self {
        Self(store::world::World::with_max_in_flight(factory, max).await)
    }

    /// The record of the next change to `shards`, under way.
    pub fn next(&self, shards: u32) -> Routing {
        let now = &self.record.routing;
        Routing {
            epoch: now.epoch + 1,
            change_id: ChangeId(rand::random()),
            shards,
            previous: now.shards,
            state: RoutingState::Moving,
            ..now.clone()
        }
    }

    /// Begins a change to `shards` and fences every shard.
    pub async fn begin(&mut self, shards: u32) {
        let (seen, routing) = (self.record.routing_record(), self.next(shards));
        let new = RoutingRecord { routing: routing.clone(), desired: None, earlier: Vec::new() };
        self.store.swap_routing(&self.record.name, &seen, &new).await.expect("nobody else changes it");
        for index in 0..shards.max(routing.previous) {
            let fenced = self.store.fence(&self.record.name, index, &routing, &DeadlineFloor::default()).await;
            fenced.expect("a shard is fenced");
        }
        self.record.set_routing(&new);
    }

    /// A world in which a change from three to five shards is under way.
    pub async fn moving(factory: &dyn StoreFactory) -> Self {
        let mut world = Self::new(factory).await;
        world.begin(MORE).await;
        world
    }

    pub fn shard(&self, index: u32) -> Shard {
        self.shard_at(index)
    }

    pub async fn put(&self, index: u32, text: &str, due: Due) {
        let answers =
            self.store.enqueue(&self.shard(index), self.now(), &[message(text, due)]).await.expect("answered");
        assert_eq!(answers[0].outcome, EnqueueOutcome::Scheduled, "{text} is new");
    }

    pub fn request(&self, limit: usize, visibility: Duration) -> ClaimRequest {
        let retry = RetryPolicy { initial: Duration::ZERO, ..RetryPolicy::default() };
        ClaimRequest { visibility, retry, ..claim_request(limit) }
    }

    pub async fn claim(&self, index: u32, limit: usize) -> Claim {
        let request = self.request(limit, LONG);
        self.store.claim(&self.shard(index), self.now(), &request).await.expect("claim is answered")
    }

    pub async fn claim_one(&self, index: u32) -> ClaimedMessage {
        let mut claim = self.claim(index, 1).await;
        assert_eq!(claim.messages.len(), 1, "one message is due: {claim:?}");
        claim.messages.remove(0)
    }

    pub async fn settle(&self, index: u32, claimed: &ClaimedMessage, how: Settlement) -> Settled {
        let settle = Settle { id: claimed.id.clone(), score: claimed.score, action: how };
        self.store.settle(&self.shard(index), self.now(), &[settle]).await.expect("settle is answered")[0]
    }

    pub async fn put_dead(&self, index: u32, text: &str) {
        self.put(index, text, self.ago(1000)).await;
        let claimed = self.claim_one(index).await;
        assert_eq!(self.settle(index, &claimed, Settlement::Bury(format!("{text} was refused"))).await, Settled::Ok);
    }

    pub async fn get(&self, index: u32, text: &str) -> Option<StoredMessage> {
        self.store.get(&self.shard(index), &[id(text)]).await.expect("get is answered").remove(0)
    }

    pub async fn take(&self, from: u32, to: u32, texts: &[&str]) -> Batch {
        let taken = self.store.freeze_batch(&self.shard(from), to, &ids(texts), rand::random()).await;
        taken.expect("take is answered").expect("something is there")
    }

    /// Puts a batch, which must be new there; how many messages were inserted.
    pub async fn put_batch(&self, batch: &Batch) -> u64 {
        match self.store.apply_batch(&self.shard(batch.to), batch).await.expect("put is answered") {
            ApplyOutcome::Done { fresh, .. } => fresh,
            ApplyOutcome::Conflict { last } => panic!("in the way: {last:?}"),
        }
    }

    pub async fn discard_batch(&self, batch: &Batch) {
        assert!(self.store.discard_batch(&self.shard(batch.from), batch.name.nonce).await.expect("drop is answered"));
    }

    /// The whole way from one shard to another.
    pub async fn carry(&self, from: u32, to: u32, texts: &[&str]) {
        let batch = self.take(from, to, texts).await;
        self.put_batch(&batch).await;
        assert_eq!(self.store.last_applied_batch(&self.shard(to), from).await.expect("answered"), Some(batch.name));
        self.discard_batch(&batch).await;
    }
}
