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

/// Hands over so many places to a shard; how many messages it has in flight.
async fn tell(
    context: &Context,
    topic: &TopicName,
    routing: &Routing,
    index: u32,
    places: u32,
) -> Result<(u32, u64), StoreError> {
    let in_flight = context.given.deps.store.hand_over_places(&routing.shard(topic, index), places).await?;
    Ok((index, in_flight))
}

/// Hands over whatever comes free, until the new shards have all their places or the record is another one. Every old
/// shard has been fenced.
pub(crate) async fn hand_over(context: &Context, topic: &TopicName, routing: &Routing) -> Result<(), StoreError> {
    if !routing.hands_over_places() {
        return Ok(());
    }
    let part = |index| routing.in_flight_bound(index).most(0).map_or(0, u64::from);
    let (mut in_flight, mut handed_over) = (vec![None; routing.previous as usize], vec![0; routing.shards as usize]);
    loop {
        let asked: Vec<u32> = (0..routing.previous)
            .filter(|index| in_flight[*index as usize].is_none_or(|held| held > part(*index)))
            .collect();
        let asked = futures::stream::iter(asked).map(|index| tell(context, topic, routing, index, 0));
        let answers: Vec<(u32, u64)> = asked.buffer_unordered(AT_ONCE).try_collect().await?;
        for (index, held) in answers {
            in_flight[index as usize] = Some(held);
        }
        let (places, is_all) = routing.places(in_flight.iter().copied());
        for (index, places) in places {
            if places > handed_over[index as usize] {
                tell(context, topic, routing, index, places).await?;
                handed_over[index as usize] = places;
            }
        }
        if is_all || !context.is_present(topic, routing).await? {
            context.tracks.unblocked(topic);
            return Ok(());
        }
        context.tracks.blocked(topic, "messages in flight hold places that new shards are to have".to_owned());
        tokio::time::sleep(ASK_EVERY).await;
    }
}
