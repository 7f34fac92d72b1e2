//! Hands over places to new shards, where a topic has a bound of what is in flight: as many as the old ones give up.
//!
//! From the fence on an old shard claims no more than its part under the new count, so what it has in flight beyond
//! that only ends. What ended is free for the new shards, and the change is done when all of it is.

use std::time::Duration;

use duetime_core::{Routing, StoreError, TopicName};
use futures::{StreamExt as _, TryStreamExt as _};

use crate::context::Context;

/// How often old shards are asked that have more in flight than their part.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Shards asked at once.
const AT_ONCE: usize = 32;

/// How far the places of one change are handed over.
pub(crate) struct Places<'a> {
    context: &'a Context,
    topic: &'a TopicName,
    routing: &'a Routing,
    /// How many messages each old shard had in flight when it was asked last.
    in_flight: Vec<Option<u64>>,
    /// How many places each shard was told of.
    handed_over: Vec<u32>,
}

impl<'a> Places<'a> {
    /// Every old shard has been fenced.
    pub(crate) fn new(context: &'a Context, topic: &'a TopicName, routing: &'a Routing) -> Self {
        let (in_flight, handed_over) = (vec![None; routing.previous as usize], vec![0; routing.shards as usize]);
        Self { context, topic, routing, in_flight, handed_over }
    }

    /// Tells shards how many places they have; how many messages each has in flight.
    async fn tell(&self, all: Vec<(u32, u32)>) -> Result<Vec<(u32, u64)>, StoreError> {
        let (store, topic, routing) = (&self.context.given.deps.store, self.topic, self.routing);
        let told = futures::stream::iter(all).map(|(index, places)| async move {
            let in_flight = store.hand_over_places(&routing.shard(topic, index), places).await?;
            Ok::<_, StoreError>((index, in_flight))
        });
        told.buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Hands over what is free by now; whether the new shards have all their places.
    pub(crate) async fn hand_over(&mut self) -> Result<bool, StoreError> {
        if !self.routing.hands_over_places() {
            return Ok(true);
        }
        let part = |index| self.routing.in_flight_bound(index).most(0).map_or(0, u64::from);
        let has_more = |index: &u32| self.in_flight[*index as usize].is_none_or(|held| held > part(*index));
        let asked = (0..self.routing.previous).filter(has_more).map(|index| (index, 0)).collect();
        for (index, held) in self.tell(asked).await? {
            self.in_flight[index as usize] = Some(held);
        }
        let (places, is_all) = self.routing.places(self.in_flight.iter().copied());
        let is_more = |(index, places): &(u32, u32)| *places > self.handed_over[*index as usize];
        let more: Vec<(u32, u32)> = places.into_iter().filter(is_more).collect();
        self.tell(more.clone()).await?;
        for (index, places) in more {
            self.handed_over[index as usize] = places;
        }
        Ok(is_all)
    }

    /// Hands over whatever comes free, until the new shards have all their places or the record is another one.
    pub(crate) async fn hand_over_all(&mut self) -> Result<(), StoreError> {
        let mut has_waited = false;
        while !self.hand_over().await? && self.context.is_present(self.topic, self.routing).await? {
            let why = "messages in flight hold places that new shards are to have";
            self.context.tracks.blocked(self.topic, why.to_owned());
            has_waited = true;
            tokio::time::sleep(ASK_EVERY).await;
        }
        if has_waited {
            self.context.tracks.unblocked(self.topic);
        }
        Ok(())
    }
}
