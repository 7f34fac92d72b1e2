//! Informs every shard of a change: from then on it refuses whoever has not heard of it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use duetime_core::resize_store::{DeadlineFloor, Fenced};
use duetime_core::{ResizeStore, Routing, StoreError, TopicName};
use futures::StreamExt as _;

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
/// As [`ResizeStore::fence`].
pub async fn fence_all(store: &dyn ResizeStore, topic: &TopicName, routing: &Routing) -> Result<(), StoreError> {
    let fenced = raise_each(store, topic, routing, 0..routing.previous, DeadlineFloor::default()).await?;
    let mut floor = DeadlineFloor::default();
    fenced.iter().for_each(|fenced| floor.raise_all(&fenced.floor));
    let first = if routing.shards > routing.previous { routing.previous } else { 0 };
    raise_each(store, topic, routing, first..routing.shards, floor).await?;
    Ok(())
}

/// After the first error no other is begun, but those under way are waited for: who makes a shard for
/// a topic that is deleted meanwhile takes it back.
async fn raise_each(
    store: &dyn ResizeStore,
    topic: &TopicName,
    routing: &Routing,
    indexes: Range<u32>,
    floor: DeadlineFloor,
) -> Result<Vec<Fenced>, StoreError> {
    let failed = AtomicBool::new(false);
    let raise = async |index: u32| {
        if failed.load(Ordering::Relaxed) {
            return None;
        }
        let raised = store.fence(topic, index, routing, &floor).await;
        failed.fetch_or(raised.is_err(), Ordering::Relaxed);
        Some(raised)
    };
    let raised: Vec<_> = futures::stream::iter(indexes).map(raise).buffer_unordered(AT_ONCE).collect().await;
    raised.into_iter().flatten().collect()
}
