//! Finishes a batch: put at its destination, seen to be there, dropped at its source.
//!
//! Anybody may do it to any batch, any number of times, several at once: the number and the nonce
//! of a batch distinguish repetitions from another batch, and a batch is dropped only by its nonce.

use async_trait::async_trait;
use duetime_core::resize_store::{Batch, BatchName, BatchPut, Replication};
use duetime_core::{Mover, Routing, StoreError, TopicName};

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
        let destination = routing.shard(topic, batch.to);
        match deps.store.put(&destination, &batch).await? {
            BatchPut::Conflict { last } => {
                let new = BatchName { number: last.number + 1, nonce: deps.draw.next() };
                deps.store.rename_batch(&source, batch.name.nonce, new).await?;
                deps.steps.reached(Step::Renumbered).await;
            }
            BatchPut::Done { fresh: inserted, kept } => {
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

#[async_trait]
impl Mover for MoveDeps {
    async fn finish(&self, topic: &TopicName, routing: &Routing, from: u32) -> Result<u64, StoreError> {
        finish(self, topic, routing, from, None).await
    }

    async fn fence_all(&self, topic: &TopicName, routing: &Routing) -> Result<(), StoreError> {
        fence_all(&*self.store, topic, routing).await
    }
}
