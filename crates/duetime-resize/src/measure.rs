//! Asks the shards how far changes have come, for who asks and for the metrics.
//!
//! Upstream: the controller. Downstream: the store, and `progress`.

use duetime_core::store::ShardCounts;
use duetime_core::{ResizeProgress, RoutingRecord, Shard, StoreError, TopicName, Topics};

use crate::context::Context;

pub(crate) async fn progress_of(
    context: &Context,
    topic: &TopicName,
    record: &RoutingRecord,
) -> Result<Option<ResizeProgress>, StoreError> {
    if !record.routing.is_moving() {
        return Ok(None);
    }
    let shards: Vec<Shard> = record.routing.all(topic).collect();
    let surveys: Option<Vec<ShardCounts>> =
        context.given.counts.counts(&shards, context.given.clock.now()).await?.into_iter().collect();
    let silent = || StoreError::Unavailable { doing: "count messages", source: "a server does not answer".into() };
    let surveys = surveys.ok_or_else(silent)?;
    Ok(Some(context.tracks.progress(topic, record, &surveys)))
}

/// Measures every change under way, for rate and metrics.
pub(crate) async fn measure(context: &Context, topics: &Topics) {
    for record in topics.values() {
        let remaining = match progress_of(context, &record.name, &record.routing_record()).await {
            Ok(progress) => progress.map(|progress| progress.remaining),
            // It is asked again a second later.
            Err(_) => continue,
        };
        let gauge = &context.given.meters.topic(&record.name).resize_remaining;
        gauge.set(i64::try_from(remaining.unwrap_or(0)).unwrap_or(i64::MAX));
        if let Some(remaining) = remaining {
            context.tracks.sample(&record.name, &record.routing, remaining);
        }
    }
}
