//! Dead letters across the shards of a topic: paged, redriven, purged, always in bounded steps.

use std::time::Duration;

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::store::DeadAction;
use duetime_core::{MessageId, Shard, StoredMessage, TopicName};
use duetime_metrics::Event;
use tokio::time::Instant;

use crate::error::RouteError;
use crate::router::Router;

/// Dead letters read in one call: their bodies come along.
const STEP: usize = 64;

/// A page ends early when its bodies have so many bytes.
const PAGE_BYTES_MAX: usize = 4 << 20;

/// Where the next page of a topic's dead letters starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadCursor {
    /// The shard.
    pub shard: u32,
    /// The place in it; `None`: its oldest.
    pub from: Option<i64>,
}

/// One page of a topic's dead letters: shard by shard, oldest first in each.
#[derive(Clone, Debug, Default)]
pub struct DeadList {
    /// Each with its shard.
    pub messages: Vec<(u32, StoredMessage)>,
    /// `None`: this was the last page.
    pub next: Option<DeadCursor>,
}

/// What a sweep over all dead letters did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadSweep {
    /// Dead letters acted on.
    pub done: u64,
    /// The time was up before all were: sweep again.
    pub more: bool,
}

impl Router {
    /// The shards of `topic` that have dead letters, from `first` on, and how many.
    async fn shards_with_dead(&self, topic: &TopicName, first: u32) -> Result<Vec<(Shard, u64)>, RouteError> {
        let survey = self.survey(topic).await?;
        let shards = survey.record.routing.all(topic).zip(&survey.shards);
        let with_dead = shards.map(|(shard, counts)| (shard, counts.dead)).filter(|(_, dead)| *dead > 0);
        Ok(with_dead.filter(|(shard, _)| shard.index >= first).collect())
    }

    /// One page of dead letters, at most `limit`.
    ///
    /// # Errors
    ///
    /// [`RouteError::UnknownTopic`], or the store's.
    pub async fn dead(
        &self,
        topic: &TopicName,
        cursor: Option<DeadCursor>,
        limit: usize,
    ) -> Result<DeadList, RouteError> {
        let start = cursor.unwrap_or(DeadCursor { shard: 0, from: None });
        let mut list = DeadList::default();
        let mut bytes = 0;
        for (shard, _) in self.shards_with_dead(topic, start.shard).await? {
            let mut from = if shard.index == start.shard { start.from } else { None };
            loop {
                if list.messages.len() >= limit || bytes >= PAGE_BYTES_MAX {
                    list.next = Some(DeadCursor { shard: shard.index, from });
                    return Ok(list);
                }
                let step = STEP.min(limit - list.messages.len());
                let page = self.kit.store.dead(&shard, from, step).await?;
                bytes += page.messages.iter().map(|message| message.payload.len()).sum::<usize>();
                list.messages.extend(page.messages.into_iter().map(|message| (shard.index, message)));
                from = page.next;
                if from.is_none() {
                    break;
                }
            }
        }
        Ok(list)
    }

    /// Redrives or purges dead letters by id; false: it is not a dead letter.
    ///
    /// # Errors
    ///
    /// [`RouteError::UnknownTopic`], or the store's: repeat the whole, it is safe.
    pub async fn settle_dead(
        &self,
        topic: &TopicName,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<Vec<bool>, RouteError> {
        let record = self.topic(topic).await?;
        let mut by_shard = std::collections::BTreeMap::<Shard, Vec<usize>>::new();
        for (place, id) in ids.iter().enumerate() {
            by_shard.entry(record.routing.home(topic, id)).or_default().push(place);
        }
        let mut answers = vec![false; ids.len()];
        for (shard, places) in by_shard {
            for some in places.chunks(BATCH_ITEMS_MAX) {
                let batch: Vec<MessageId> = some.iter().map(|place| ids[*place].clone()).collect();
                let done = self.settle_dead_in(&shard, &batch, action).await?;
                some.iter().zip(done).for_each(|(place, done)| answers[*place] = done);
            }
        }
        Ok(answers)
    }

    async fn settle_dead_in(
        &self,
        shard: &Shard,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<Vec<bool>, RouteError> {
        let done = self.kit.store.settle_dead(shard, self.kit.clock.now(), ids, action).await?;
        if action == DeadAction::Redrive {
            let n = done.iter().filter(|done| **done).count();
            self.kit.meters.topic(&shard.topic).count(Event::Redriven, n as u64);
        }
        Ok(done)
    }

    /// Redrives or purges everything that is dead when it begins, for at most `budget`.
    ///
    /// What dies again meanwhile is left alone, so a sweep ends.
    ///
    /// # Errors
    ///
    /// [`RouteError::UnknownTopic`], or the store's: repeat it, what was done stays done.
    pub async fn sweep_dead(
        &self,
        topic: &TopicName,
        action: DeadAction,
        budget: Duration,
    ) -> Result<DeadSweep, RouteError> {
        let begun = Instant::now();
        let mut sweep = DeadSweep::default();
        for (shard, count) in self.shards_with_dead(topic, 0).await? {
            let mut left = usize::try_from(count).unwrap_or(usize::MAX);
            let mut from = None;
            while left > 0 {
                if begun.elapsed() >= budget {
                    sweep.more = true;
                    return Ok(sweep);
                }
                let page = self.kit.store.dead(&shard, from, STEP.min(left)).await?;
                let ids: Vec<MessageId> = page.messages.into_iter().map(|message| message.id).collect();
                if !ids.is_empty() {
                    let done = self.settle_dead_in(&shard, &ids, action).await?;
                    sweep.done += done.iter().filter(|done| **done).count() as u64;
                }
                left = left.saturating_sub(ids.len());
                from = page.next;
                if from.is_none() {
                    break;
                }
            }
        }
        Ok(sweep)
    }
}
