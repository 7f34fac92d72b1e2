//! Moves what does not belong out of one shard: pages through it, takes, finishes.
//!
//! Upstream: the drive of a change, and the scrubber. Downstream: the store contract.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use duetime_core::reshard::Scanned;
use duetime_core::routing::{shard_of, topic_seed};
use duetime_core::{MessageId, MessageState, Routing, StoreError, Timestamp, TopicName};
use duetime_metrics::Event;

use crate::batch::finish;
use crate::controller::Inner;
use crate::steps::Step;

/// Ids asked for in one page.
pub(crate) const PAGE: usize = 1_000;

/// Messages in one batch: a script of this size holds the store up for well under a millisecond.
const BATCH: usize = 128;

/// What a pass over one shard met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Messages moved.
    pub moved: u64,
    /// Left to be delivered where they are.
    pub left: u64,
}

impl Inner {
    /// Finishes what is on its way out of shard `from`, then moves all that has its home elsewhere.
    ///
    /// `leave`: what falls due so soon before or after the present is left.
    pub(crate) async fn clear(
        &self,
        topic: &TopicName,
        routing: &Routing,
        from: u32,
        leave: Duration,
    ) -> Result<Pass, StoreError> {
        let source = routing.shard(topic, from);
        let mut pass = Pass::default();
        pass.moved += self.count(topic, finish(&self.tools, topic, routing, from, None).await?);
        let mut cursor = None;
        loop {
            let page = self.tools.store.scan(&source, cursor.as_ref(), PAGE).await?;
            let (misplaced, left) = self.misplaced(topic, routing, from, page.found, leave);
            pass.left += left;
            for (to, ids) in misplaced {
                pass.moved += self.move_to(topic, routing, from, to, ids).await?;
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(pass);
            }
        }
    }

    fn misplaced(
        &self,
        topic: &TopicName,
        routing: &Routing,
        from: u32,
        found: Vec<Scanned>,
        leave: Duration,
    ) -> (BTreeMap<u32, VecDeque<MessageId>>, u64) {
        let (seed, now) = (topic_seed(topic), self.clock.now());
        let mut misplaced: BTreeMap<u32, VecDeque<MessageId>> = BTreeMap::new();
        let mut left = 0;
        for scanned in found {
            let home = shard_of(&scanned.id, seed, routing.shards);
            if home == from {
                continue;
            }
            if scanned.state == MessageState::Scheduled && is_near(scanned.visible_at, now, leave) {
                left += 1;
            } else {
                misplaced.entry(home).or_default().push_back(scanned.id);
            }
        }
        (misplaced, left)
    }

    async fn move_to(
        &self,
        topic: &TopicName,
        routing: &Routing,
        from: u32,
        to: u32,
        mut ids: VecDeque<MessageId>,
    ) -> Result<u64, StoreError> {
        let source = routing.shard(topic, from);
        let mut moved = 0;
        while !ids.is_empty() {
            let some: Vec<MessageId> = ids.iter().take(BATCH).cloned().collect();
            self.throttle.take(some.len()).await;
            let nonce = self.tools.draw.next();
            let Some(batch) = self.tools.store.take(&source, to, &some, nonce).await? else {
                ids.drain(..some.len());
                continue;
            };
            self.tools.steps.reached(Step::Taken).await;
            if batch.name.nonce == nonce {
                let taken: Vec<&MessageId> = batch.messages.iter().map(|frozen| &frozen.id).collect();
                ids.retain(|id| !taken.contains(&id));
            }
            moved += self.count(topic, finish(&self.tools, topic, routing, from, Some(batch)).await?);
        }
        Ok(moved)
    }

    pub(crate) fn count(&self, topic: &TopicName, moved: u64) -> u64 {
        self.meters.topic(topic).count(Event::Moved, moved);
        moved
    }
}

/// Whether `at` is no further from `now` than `leave`. What has been due for longer is a backlog.
fn is_near(at: Timestamp, now: Timestamp, leave: Duration) -> bool {
    at.since(now) <= leave && now.since(at) <= leave && !leave.is_zero()
}
