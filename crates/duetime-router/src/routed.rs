//! The store as the engine sees it: claims name shards by the present record, and settlements find
//! their messages wherever they have moved.

use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::in_place::{StreamTransfer, Streamed};
use duetime_core::routing::life_of;
use duetime_core::store::{AckWait, BatchReply, Claim, ClaimRequest, Settle, Settled, StoreError};
use duetime_core::{ClaimStore, Lookup, Role, Shard, Timestamp};

use crate::error::is_misrouted;
use crate::router::Router;

/// How often a claim is sent again because the shard or this node was behind with the routing.
const CLAIM_TRIES: u32 = 4;

/// The store as the engine sees it: claims name shards by the present record, and settlements find their messages
/// wherever they have moved.
#[derive(Debug)]
pub struct RoutedStore {
    inner: Arc<dyn ClaimStore>,
    router: Arc<Router>,
}

impl RoutedStore {
    /// The store of `router`, for an engine.
    #[must_use]
    pub fn new(router: Arc<Router>) -> Arc<Self> {
        Arc::new(Self { inner: router.dispatcher.context.claims.clone(), router })
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
            let catalog = &self.router.dispatcher.catalog;
            let record = catalog.get(topic);
            let Some(known) = record.as_ref() else {
                // What its shards are to keep is in the record that was known last, also once it is known why the topic
                // is missing; or it is there again.
                let last = catalog.missing_one(topic).or_else(|| catalog.issues().known(topic));
                let last = last.or_else(|| catalog.get(topic));
                let in_flight = last.as_ref().map_or(shard.in_flight, |last| last.routing.in_flight_bound(shard.index));
                let memory = last.map_or(shard.memory, |last| last.memory());
                return ask(Shard { in_flight, memory, ..shard.clone() }).await;
            };
            let routing = &known.routing;
            // What is claimed now would be settled in a life of the topic that has ended.
            if routing.life() > life_of(shard.epoch) {
                return Err(StoreError::UnknownShard(shard.to_string()));
            }
            match ask(known.shard(shard.index)).await {
                Err(error) if is_misrouted(&error) && tries < CLAIM_TRIES => {
                    self.router.dispatcher.refresh_routing(topic, routing, shard.index, &error).await?;
                }
                answer => return answer,
            }
            tries += 1;
        }
    }
}

#[async_trait]
impl ClaimStore for RoutedStore {
    async fn claim(&self, shard: &Shard, now: Timestamp, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.by_present_record(shard, |shard| async move { self.inner.claim(&shard, now, request).await }).await
    }

    async fn deliver_in_place(
        &self,
        shard: &Shard,
        now: Timestamp,
        ask: &StreamTransfer,
    ) -> Result<Streamed, StoreError> {
        self.by_present_record(shard, |shard| async move { self.inner.deliver_in_place(&shard, now, ask).await }).await
    }

    fn has_streams(&self) -> bool {
        self.inner.has_streams()
    }

    /// Whatever the shard is to the messages, and whether acks wait, is known to the router.
    async fn settle_at(
        &self,
        shard: &Shard,
        _role: Role,
        _now: Timestamp,
        batch: &[Settle],
        _wait: AckWait,
    ) -> Result<BatchReply<Lookup<Settled>>, StoreError> {
        Ok(BatchReply::here(self.router.settle_claimed(shard, batch).await?).found())
    }
}
