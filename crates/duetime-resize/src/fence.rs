//! Informs every shard of a change: from then on it refuses whoever has not heard of it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use duetime_core::resize_store::{DeadlineFloor, Fenced, Inspected};
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
    let (sources, destinations) = routing.sources_and_destinations();
    let fenced = raise_each(store, topic, routing, sources, DeadlineFloor::default()).await?;
    let mut floor = DeadlineFloor::default();
    fenced.iter().for_each(|fenced| floor.raise_all(&fenced.floor));
    raise_each(store, topic, routing, destinations, floor).await?;
    Ok(())
}

/// Raises the shards that ids have moved into above the deadlines that were given in their sources meanwhile: from the
/// commit on nothing else keeps them apart ([`Routing::deadlines`]). `found`: all shards, since no source has an id that
/// belongs elsewhere.
pub(crate) async fn raise_above_sources(
    store: &dyn ResizeStore,
    topic: &TopicName,
    routing: &Routing,
    found: &[Option<Inspected>],
) -> Result<(), StoreError> {
    let (sources, destinations) = routing.sources_and_destinations();
    let mut floor = DeadlineFloor::default();
    let sources = sources.filter_map(|index| found.get(index as usize)?.as_ref());
    sources.for_each(|source| floor.raise_all(&source.floor));
    raise_each(store, topic, routing, destinations, floor).await.map(drop)
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
