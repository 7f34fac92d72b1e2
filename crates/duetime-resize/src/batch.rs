//! Finishes a batch: put at its destination, seen to be there, dropped at its source.
//!
//! Anybody may do it to any batch, any number of times, several at once: the number and the nonce
//! of a batch distinguish repetitions from another batch, and a batch is dropped only by its nonce.

use std::collections::BTreeMap;

use async_trait::async_trait;
use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::resize_store::{ApplyOutcome, Batch, BatchId, DeadlineFloor, Replication};
use duetime_core::routing::shard_of;
use duetime_core::{InFlightBound, MessageId, Mover, Routing, Shard, StoreError, TopicName};
use tracing::error;

use crate::fence::fence_all;
use crate::steps::{MoveDeps, Step};

/// Rounds of one batch before the caller has to look anew: conflicts and failovers cost one each.
const ROUNDS_MAX: u32 = 16;

/// Finishes what is in the outbox of shard `from`, if anything is; answers how many messages this
/// call inserted at their destination.
///
/// `held`: what the caller has just seen in that outbox.
///
/// # Errors
///
/// The store's. [`StoreError::Full`]: the destination has no memory left; the batch stays frozen.
pub async fn finish(
    deps: &MoveDeps,
    topic: &TopicName,
    routing: &Routing,
    from: u32,
    held: Option<Batch>,
) -> Result<u64, StoreError> {
    let source = routing.shard(topic, from);
    let (mut held, mut fresh) = (held, 0);
    for _ in 0..ROUNDS_MAX {
        let batch = match held.take() {
            Some(batch) => batch,
            None => match deps.store.outbox(&source).await? {
                Some(batch) => batch,
                None => return Ok(fresh),
            },
        };
        if batch.to >= routing.reach() {
            bring_home(deps, topic, routing, &batch).await?;
            continue;
        }
        let destination = routing.shard(topic, batch.to);
        match deps.store.apply_batch(&destination, &batch).await? {
            ApplyOutcome::Conflict { last } => {
                let new = BatchId { number: last.number + 1, nonce: deps.draw.next() };
                deps.store.rename_batch(&source, batch.name.nonce, new).await?;
                deps.steps.reached(Step::Renumbered).await;
            }
            ApplyOutcome::Done { fresh: inserted, kept } => {
                fresh += inserted;
                deps.steps.reached(Step::Put).await;
                if kept == Replication::Unreplicated && !deps.grace.is_zero() {
                    tokio::time::sleep(deps.grace).await;
                }
                // Its present primary is asked: a failover may have undone the put.
                if deps.store.last_applied_batch(&destination, from).await? != Some(batch.name) {
                    continue;
                }
                deps.steps.reached(Step::Checked).await;
                deps.store.discard_batch(&source, batch.name.nonce).await?;
                deps.steps.reached(Step::Dropped).await;
                return Ok(fresh);
            }
        }
    }
    let source = format!("shard {source} was given {ROUNDS_MAX} tries").into();
    Err(StoreError::Unavailable { doing: "finish a batch on its way between shards", source })
}

/// A batch is on its way to a shard that the topic does not have: whoever took it went by a change that the store has
/// forgotten since. It goes back to its place in its source, from where what belongs elsewhere is moved as always.
///
/// First the destination has the present record, so that nobody puts the batch there any more. Where that was done
/// before, the messages are moved home from there, and the batch is dropped when none is left.
async fn bring_home(deps: &MoveDeps, topic: &TopicName, routing: &Routing, batch: &Batch) -> Result<(), StoreError> {
    let (from, to, messages) = (batch.from, batch.to, batch.messages.len());
    error!(
        %topic, from, to, messages, shards = routing.shards,
        "messages are on their way to a shard that the topic does not have; they are brought home"
    );
    deps.store.fence(topic, to, routing, &DeadlineFloor::default()).await?;
    let (source, place) = (routing.shard(topic, from), routing.shard(topic, to));
    if deps.store.last_applied_batch(&place, from).await? == Some(batch.name) {
        empty(deps, topic, routing, to).await?;
        deps.store.discard_batch(&source, batch.name.nonce).await?;
    } else {
        deps.store.restore_batch(&source, batch).await?;
    }
    Ok(())
}

/// Moves all messages of shard `index`, which the topic does not have, to their homes.
async fn empty(deps: &MoveDeps, topic: &TopicName, routing: &Routing, index: u32) -> Result<(), StoreError> {
    // It has no place of a bound of what is in flight, so what is claimed moves too.
    let shard = Shard { in_flight: InFlightBound::None, ..routing.shard(topic, index) };
    let seed = routing.seed(topic);
    loop {
        Box::pin(finish(deps, topic, routing, index, None)).await?;
        let mut homes: BTreeMap<u32, Vec<MessageId>> = BTreeMap::new();
        let mut cursor = None;
        while homes.is_empty() {
            let page = deps.store.scan(&shard, cursor.as_ref(), BATCH_ITEMS_MAX).await?;
            for scanned in page.found {
                homes.entry(shard_of(&scanned.id, seed, routing.shards)).or_default().push(scanned.id);
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        if homes.is_empty() {
            return Ok(());
        }
        for (home, ids) in homes {
            let batch = deps.store.freeze_batch(&shard, home, &ids, deps.draw.next()).await?;
            Box::pin(finish(deps, topic, routing, index, batch)).await?;
        }
    }
}

#[async_trait]
impl Mover for MoveDeps {
    async fn finish(&self, topic: &TopicName, routing: &Routing, from: u32) -> Result<u64, StoreError> {
        finish(self, topic, routing, from, None).await
    }

    async fn fence_all(&self, topic: &TopicName, routing: &Routing) -> Result<(), StoreError> {
        fence_all(&*self.store, topic, routing).await
    }
}
