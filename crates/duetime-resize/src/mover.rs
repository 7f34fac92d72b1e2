//! Moves what does not belong out of one shard: pages through it, takes, finishes.
//!
//! Upstream: the drive of a change, and the scrubber. Downstream: the store contract.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::resize_store::Scanned;
use duetime_core::routing::shard_of;
use duetime_core::{MessageId, MessageState, Routing, StoreError, Timestamp, TopicName};
use duetime_metrics::Event;

use crate::batch::finish;
use crate::context::Context;
use crate::steps::Step;

/// Ids asked for in one page: a script of this size holds the store up for half a millisecond.
pub(crate) const PAGE: usize = BATCH_ITEMS_MAX;

/// Messages in one batch: scripts of this size hold Redis up for well under a millisecond, with a million
/// pending for about one.
const BATCH: usize = 64;

/// Ids that wait for their batch to be full, at most: there are many destinations, and small batches cost more.
const GATHERED_MAX: usize = 8_192;

/// What a pass over one shard met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Messages moved.
    pub moved: u64,
    /// Left to be delivered where they are.
    pub left: u64,
}

/// Finishes what is on its way out of shard `from`, then moves all that has its home elsewhere.
///
/// `leave`: what falls due so soon before or after the present is left. Where there is a bound of what is in flight,
/// that is left too: it counts where it was claimed.
pub(crate) async fn clear(
    context: &Context,
    topic: &TopicName,
    routing: &Routing,
    from: u32,
    leave: Duration,
) -> Result<Pass, StoreError> {
    let source = routing.shard(topic, from);
    let mut pass = Pass::default();
    pass.moved += count(context, topic, finish(&context.given.deps, topic, routing, from, None).await?);
    let (mut gathered, mut cursor) = (BTreeMap::new(), None);
    loop {
        let page = context.given.deps.store.scan(&source, cursor.as_ref(), PAGE).await?;
        pass.left += gather(context, &mut gathered, topic, routing, from, page.found, leave);
        cursor = page.next;
        while let Some((to, ids)) = next_batch(&mut gathered, cursor.is_none()) {
            pass.moved += move_to(context, topic, routing, from, to, ids).await?;
        }
        if cursor.is_none() {
            return Ok(pass);
        }
    }
}

/// Adds what is misplaced to what waits for its batch; answers how many are left where they are.
fn gather(
    context: &Context,
    gathered: &mut BTreeMap<u32, Vec<MessageId>>,
    topic: &TopicName,
    routing: &Routing,
    from: u32,
    found: Vec<Scanned>,
    leave: Duration,
) -> u64 {
    let (seed, now) = (routing.seed(topic), context.given.clock.now());
    let mut left = 0;
    for scanned in found {
        let home = shard_of(&scanned.id, seed, routing.shards);
        if home == from {
            continue;
        }
        let is_held = scanned.state == MessageState::InFlight && scanned.visible_at > now;
        if is_held && routing.max_in_flight.is_some()
            || scanned.state == MessageState::Scheduled && is_near(scanned.visible_at, now, leave)
        {
            left += 1;
        } else {
            gathered.entry(home).or_default().push(scanned.id);
        }
    }
    left
}

/// Moves one batch, and what else is in the way.
async fn move_to(
    context: &Context,
    topic: &TopicName,
    routing: &Routing,
    from: u32,
    to: u32,
    mut ids: Vec<MessageId>,
) -> Result<u64, StoreError> {
    let source = routing.shard(topic, from);
    let mut moved = 0;
    while !ids.is_empty() {
        context.throttle.take(ids.len()).await;
        context.given.deps.store.check_room(&routing.shard(topic, to)).await?;
        let nonce = context.given.deps.draw.next();
        let Some(batch) = context.given.deps.store.freeze_batch(&source, to, &ids, nonce).await? else { break };
        context.given.deps.steps.reached(Step::Taken).await;
        if batch.name.nonce == nonce {
            let taken: HashSet<&MessageId> = batch.messages.iter().map(|frozen| &frozen.id).collect();
            ids.retain(|id| !taken.contains(id));
        }
        moved += count(context, topic, finish(&context.given.deps, topic, routing, from, Some(batch)).await?);
    }
    Ok(moved)
}

pub(crate) fn count(context: &Context, topic: &TopicName, moved: u64) -> u64 {
    context.given.meters.topic(topic).count(Event::Moved, moved);
    moved
}

/// The largest batch, once it is full or too many wait or no more will come.
fn next_batch(gathered: &mut BTreeMap<u32, Vec<MessageId>>, is_last: bool) -> Option<(u32, Vec<MessageId>)> {
    let all: usize = gathered.values().map(Vec::len).sum();
    let (to, ids) = gathered.iter_mut().max_by_key(|(_, ids)| ids.len())?;
    if ids.len() < BATCH && all <= GATHERED_MAX && !is_last {
        return None;
    }
    let (to, some) = (*to, ids.split_off(ids.len().saturating_sub(BATCH)));
    if ids.is_empty() {
        gathered.remove(&to);
    }
    Some((to, some))
}

/// Whether `at` is no further from `now` than `leave`. What has been due for longer is a backlog.
fn is_near(at: Timestamp, now: Timestamp, leave: Duration) -> bool {
    at.since(now) <= leave && now.since(at) <= leave && !leave.is_zero()
}
