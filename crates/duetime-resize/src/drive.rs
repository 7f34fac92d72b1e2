//! Carries one change from wherever it is to its commit: fence, clear the shards, verify, commit.
//!
//! It begins at the fence each time, and each time that is right: every step is idempotent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duetime_core::resize_store::{DeadlineFloor, Inspected};
use duetime_core::routing::RoutingState;
use duetime_core::{Routing, StoreError, TopicName};
use futures::{StreamExt as _, TryStreamExt as _};
use tokio::time::Instant;
use tracing::{debug, error, warn};

use crate::batch::finish;
use crate::context::Context;
use crate::fence::{fence_all, raise_above_sources};
use crate::places::Places;
use crate::steps::Step;
use crate::{mover, verifier};

/// Pause before another try after the first failure; doubles with each, up to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Pause before shards with messages left in them are checked again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// The longest such pause, where what is in flight stays until it is settled.
const LOOK_AGAIN_MAX: Duration = Duration::from_secs(8);

/// A shard that another node scans is left to that node's mover for this long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Messages about to fall due are left where they are for this long, then they move like all others.
const LEAVE_FOR: Duration = Duration::from_secs(30);

/// Whether there is more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Went {
    On,
    Ended,
}

/// Works on the topic's change, and on the next request after it, until neither is left or the
/// topic is gone.
pub(crate) async fn drive(context: &Context, topic: &TopicName) {
    let mut failures: u32 = 0;
    loop {
        match drive_once(context, topic).await {
            Ok(Went::Ended) => break,
            Ok(Went::On) => {
                failures = 0;
                context.tracks.unblocked(topic);
            }
            // The topic was deleted meanwhile, or is about to be made.
            Err(StoreError::UnknownShard(_)) if matches!(context.given.authority.routing(topic).await, Ok(None)) => {
                break;
            }
            Err(reason) => {
                failures = failures.saturating_add(1);
                complain(topic, &reason, failures);
                context.tracks.blocked(topic, why(&reason));
                tokio::time::sleep((PAUSE_MIN * 2u32.pow(failures.min(8) - 1)).min(PAUSE_MAX)).await;
            }
        }
    }
    context.tracks.ended(topic);
    context.given.meters.topic(topic).resize_remaining.set(0);
}

fn complain(topic: &TopicName, reason: &StoreError, failures: u32) {
    match reason {
        // Two changes were begun at once: nothing goes on until an operator has looked.
        StoreError::Damaged(_) => error!(%topic, error = %reason, "change of the shard count is halted"),
        StoreError::Stale(_) | StoreError::NotReady(_) => debug!(%topic, error = %reason, "looking anew"),
        _ if failures == 3 => warn!(%topic, error = %reason, "change of the shard count does not go on"),
        _ => {}
    }
}

async fn drive_once(context: &Context, topic: &TopicName) -> Result<Went, StoreError> {
    let Some(record) = context.given.authority.routing(topic).await? else { return Ok(Went::Ended) };
    if record.routing.is_moving() {
        // Answered when replicated: no shard learns of a change that a failover of the authority undoes.
        context.given.authority.swap_routing(topic, &record, &record).await?;
        carry_on(context, topic, &record.routing).await?;
        return Ok(Went::On);
    }
    match record.desired {
        None => Ok(Went::Ended),
        Some(shards) => context.take_up(topic, &record, shards).await.map(|()| Went::On),
    }
}

/// One change from the fence to the commit, unless it is the present one no more.
async fn carry_on(context: &Context, topic: &TopicName, routing: &Routing) -> Result<(), StoreError> {
    context.tracks.began(topic, routing);
    match fence_all(&*context.given.deps.store, topic, routing).await {
        // Of a change that was forgotten: the store went back since its record was read.
        Err(StoreError::Damaged(_)) if !context.is_present(topic, routing).await? => return Ok(()),
        fenced => fenced?,
    }
    context.given.deps.steps.reached(Step::Fenced).await;
    let mut places = Places::new(context, topic, routing);
    // Before anything is moved, which a full store refuses: what new shards have is claimed meanwhile.
    places.hand_over().await?;
    tokio::try_join!(empty_sources(context, topic, routing), places.hand_over_all())?;
    if !context.is_present(topic, routing).await? {
        return Ok(());
    }
    let ever = context.record(topic).await?.map_or(0, |record| record.max_shards_ever());
    let found = context.given.deps.store.inspect(topic, 0..ever).await?;
    if bring_strays_home(context, topic, routing, &found).await? {
        return Ok(());
    }
    raise_above_sources(&*context.given.deps.store, topic, routing, &found).await?;
    context.given.deps.steps.reached(Step::Verified).await;
    if context.commit(topic, routing).await? {
        let stable = Routing { state: RoutingState::Stable, ..routing.clone() };
        if let Err(error) = fence_all(&*context.given.deps.store, topic, &stable).await {
            debug!(%topic, %error, "not every shard knows that the change is done, and need not know");
        }
    }
    Ok(())
}

/// Moves whatever has another home, until there is nothing of that in any old shard, or the record is another one.
async fn empty_sources(context: &Context, topic: &TopicName, routing: &Routing) -> Result<(), StoreError> {
    // Batches that were frozen under an earlier record may go to what is a source shard now: they
    // arrive before the first look, so that it sees them.
    each(context, 0..routing.previous, |from| async move {
        let moved = finish(&context.given.deps, topic, routing, from, None).await?;
        mover::count(context, topic, moved);
        Ok(())
    })
    .await?;
    let (mine, others): (Vec<u32>, Vec<u32>) = {
        let owned = context.given.owned.borrow();
        (0..routing.previous).partition(|index| owned.has(topic, *index))
    };
    let begun = Instant::now();
    clear_all(context, topic, routing, &mine, begun).await?;
    // A shard that was clean once stays so: nothing new is made in it, and what was seen is replicated.
    let (mut unclean, mut waited) = ([mine, others].concat(), (usize::MAX, begun));
    loop {
        let mut dirty = Vec::new();
        for index in unclean {
            if !verifier::is_clean(context, topic, routing, index).await? {
                dirty.push(index);
            }
        }
        if dirty.is_empty() {
            break;
        }
        if !context.is_present(topic, routing).await? {
            return Ok(());
        }
        if waited.0 != dirty.len() {
            waited = (dirty.len(), Instant::now());
        }
        let impatient = waited.1.elapsed() >= PATIENCE;
        // In round-robin shards go from hand to hand: what is held here at this moment counts.
        let due: Vec<u32> = {
            let owned = context.given.owned.borrow();
            dirty.iter().filter(|index| impatient || owned.has(topic, **index)).copied().collect()
        };
        let left = clear_all(context, topic, routing, &due, begun).await?;
        // By then only what is in flight is left.
        if left > 0 && begun.elapsed() >= LEAVE_FOR {
            let why = "messages in flight stay in their shards until they are settled or their claims run out";
            context.tracks.blocked(topic, why.to_owned());
        }
        unclean = dirty;
        // What is claimed for long is not looked for all the time.
        let longest = if routing.max_in_flight.is_some() { LOOK_AGAIN_MAX } else { LOOK_AGAIN };
        tokio::time::sleep((waited.1.elapsed() / 4).clamp(LOOK_AGAIN, longest)).await;
    }
    Ok(())
}

/// Finishes what is on its way to shards that the topic will not have, wherever it is; whether there was any. After the
/// commit nobody would look for it.
async fn bring_strays_home(
    context: &Context,
    topic: &TopicName,
    routing: &Routing,
    found: &[Option<Inspected>],
) -> Result<bool, StoreError> {
    let is_stray = |shard: &Inspected| shard.outbox.is_some_and(|(_, to, _)| to >= routing.shards);
    let strays: Vec<u32> =
        (0..).zip(found).filter(|(_, shard)| shard.as_ref().is_some_and(is_stray)).map(|(index, _)| index).collect();
    for index in &strays {
        // A retired shard may never have heard of this record.
        context.given.deps.store.fence(topic, *index, routing, &DeadlineFloor::default()).await?;
        mover::clear(context, topic, routing, *index, Duration::ZERO).await?;
    }
    Ok(!strays.is_empty())
}

/// Moves what has another home; how many messages are left where they are.
async fn clear_all(
    context: &Context,
    topic: &TopicName,
    routing: &Routing,
    shards: &[u32],
    begun: Instant,
) -> Result<u64, StoreError> {
    let leave = if begun.elapsed() < LEAVE_FOR { context.given.config.leave_due_within } else { Duration::ZERO };
    let all = AtomicU64::new(0);
    let left = &all;
    each(context, shards.iter().copied(), |from| async move {
        left.fetch_add(mover::clear(context, topic, routing, from, leave).await?.left, Ordering::Relaxed);
        Ok(())
    })
    .await?;
    Ok(all.into_inner())
}

async fn each<F: Future<Output = Result<(), StoreError>>>(
    context: &Context,
    shards: impl IntoIterator<Item = u32>,
    act: impl Fn(u32) -> F,
) -> Result<(), StoreError> {
    let at_once = context.given.config.shards_at_once.max(1);
    futures::stream::iter(shards).map(act).buffer_unordered(at_once).try_for_each(|()| async { Ok(()) }).await
}

/// The reason as the operator reads it.
fn why(error: &StoreError) -> String {
    match error {
        StoreError::Full(text) => format!("a shard that messages move to is full: {text}"),
        StoreError::Damaged(text) => format!("halted: {text}; see docs/RESIZE.md"),
        other => other.to_string(),
    }
}
