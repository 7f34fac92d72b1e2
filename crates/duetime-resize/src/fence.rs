//! Tells every shard of a change: from then on it refuses whoever has not heard of it.

use duetime_core::reshard::Floor;
use duetime_core::{Reshard, Routing, StoreError, TopicName};
use futures::{StreamExt as _, TryStreamExt as _};

/// Shards fenced at once.
const AT_ONCE: usize = 32;

/// Raises every shard of both counts to `routing`, creating the new ones. Anybody may do it, any
/// number of times.
///
/// The shards that ids move into go on above the deadlines that were given in the old ones, so that
/// no receipt of an earlier life fits a later one.
///
/// # Errors
///
/// As [`Reshard::fence`].
pub async fn fence_all(store: &dyn Reshard, topic: &TopicName, routing: &Routing) -> Result<(), StoreError> {
    let raise = |index: u32, floor: Floor| async move { store.fence(topic, index, routing, &floor).await };
    let fenced: Vec<_> = futures::stream::iter(0..routing.previous)
        .map(|index| raise(index, Floor::default()))
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    let mut floor = Floor::default();
    fenced.iter().for_each(|fenced| floor.raise_all(&fenced.floor));
    let first = if routing.shards > routing.previous { routing.previous } else { 0 };
    futures::stream::iter(first..routing.shards)
        .map(|index| raise(index, floor))
        .buffer_unordered(AT_ONCE)
        .try_for_each(|_| async { Ok(()) })
        .await
}
