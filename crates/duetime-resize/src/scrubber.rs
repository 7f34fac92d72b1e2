//! Looks through every shard for ever, slowly, for what a failover brought back where it does not
//! belong, and moves it home.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::resize_store::DeadlineFloor;
use duetime_core::routing::shard_of;
use duetime_core::{StoreError, TopicRecord};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::context::Context;
use crate::mover;

/// Ids that are checked in one page.
const PAGE: usize = 100;

/// Pause after each shard, and the least pause between two rounds.
const SHARD_PAUSE: Duration = Duration::from_millis(100);
const ROUND_PAUSE: Duration = Duration::from_secs(10);

/// Scrubs until `shutdown`.
pub(crate) async fn scrub(context: Arc<Context>, shutdown: CancellationToken) {
    if context.given.config.scrub_per_second == 0 {
        return;
    }
    let rounds = async {
        loop {
            tokio::time::sleep(ROUND_PAUSE).await;
            let topics = context.given.topics.borrow().clone();
            for record in topics.values() {
                scrub_topic(&context, record).await;
            }
        }
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = rounds => {}
    }
}

/// One round over the shards this node scans, and over the retired ones, which nobody scans.
pub(crate) async fn scrub_topic(context: &Context, record: &TopicRecord) {
    let owned = context.given.owned.borrow().clone();
    let retired = record.routing.shards..record.max_shards_ever();
    let mine = (0..record.routing.shards).filter(|index| owned.has(&record.name, *index));
    for index in mine.chain(retired) {
        match scrub_shard(context, record, index).await {
            Ok(0) => {}
            Ok(moved) => info!(topic = %record.name, index, moved, "messages were brought back to their homes"),
            Err(error) => debug!(topic = %record.name, index, %error, "shard could not be scrubbed this time"),
        }
        tokio::time::sleep(SHARD_PAUSE).await;
    }
}

async fn scrub_shard(context: &Context, known: &TopicRecord, index: u32) -> Result<u64, StoreError> {
    let topic = &known.name;
    let Some(record) = context.given.authority.routing(topic).await? else { return Ok(0) };
    let routing = record.routing;
    // By a record that the store went back to, a shard that is lost would be none of the topic's, and made anew.
    if routing.is_moving() || routing.id() != known.routing.id() {
        return Ok(0);
    }
    // A retired shard may never have heard of this record.
    context.given.deps.store.fence(topic, index, &routing, &DeadlineFloor::default()).await?;
    let (shard, seed) = (routing.shard(topic, index), routing.seed(topic));
    let per_page = Duration::from_secs_f64(PAGE as f64 / f64::from(context.given.config.scrub_per_second));
    let mut cursor = None;
    let mut dirty = context.given.deps.store.outbox(&shard).await?.is_some();
    while !dirty {
        let page = context.given.deps.store.scan(&shard, cursor.as_ref(), PAGE).await?;
        dirty = page.found.iter().any(|scanned| shard_of(&scanned.id, seed, routing.shards) != index);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
        tokio::time::sleep(per_page).await;
    }
    if !dirty {
        return Ok(0);
    }
    Ok(mover::clear(context, topic, &routing, index, context.given.config.leave_due_within).await?.moved)
}
