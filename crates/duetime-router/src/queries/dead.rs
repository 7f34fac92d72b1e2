//! Dead letters across the shards of a topic: paged, redriven, purged, always in bounded steps.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::{DeadAction, DeadEdit, DeadEdited, DeadKept, DeadPage};
use duetime_core::{MessageId, Shard, StoreError, StoredMessage, Timestamp, TopicName, TopicRecord};
use duetime_metrics::Event;
use tokio::time::Instant;

use crate::calls::batch_queue::BatchQueues;
use crate::calls::ops::{DeadEditOp, DeadOp};
use crate::calls::route::{Dispatcher, MessageRef};
use crate::error::{RouteError, is_misrouted};
use crate::queries::body_steps::BodySteps;
use crate::queries::topic_counts::TopicCounter;

/// Dead letters read in one call: their bodies come along.
const STEP: usize = 64;

/// How often a page is asked for while the routing changes.
const PAGE_TRIES: u32 = 4;

/// Between two passes of a sweep while shards change.
const PASS_PAUSE: Duration = Duration::from_millis(200);

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
    /// The fewest replicas that have what was done to one of them; `None`: none were waited for.
    pub replicas: Option<u32>,
}

/// What became of dead letters by id.
#[derive(Clone, Debug, Default)]
pub struct DeadSettled {
    /// For each: whether it was a dead letter; or the error of its shard, which fails for its own alone.
    pub done: Vec<Result<bool, RouteError>>,
    /// The fewest replicas that have what was done to one of them; `None`: none were waited for.
    pub replicas: Option<u32>,
}

/// The smaller of two counts of replicas, where there are any.
fn fewest(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    one.into_iter().chain(other).min()
}

/// The dead letters of topics: listed, redriven and purged.
pub struct DeadLetters {
    dispatcher: Arc<Dispatcher>,
    counter: TopicCounter,
    queues: BatchQueues<DeadOp>,
    edits: BatchQueues<DeadEditOp>,
}

impl DeadLetters {
    pub(crate) fn new(dispatcher: Arc<Dispatcher>) -> Self {
        let queues = BatchQueues::new(dispatcher.context.clone());
        let edits = BatchQueues::new(dispatcher.context.clone());
        Self { counter: TopicCounter::new(dispatcher.clone()), queues, edits, dispatcher }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.dispatcher.context.clock.now()
    }

    /// The shards of `topic` that have dead letters, from `first` on, and how many at most: what is on its way to
    /// another shard may be some.
    async fn shards_with_any(&self, topic: &TopicName, first: u32) -> Result<Vec<(Shard, u64)>, RouteError> {
        let counts = self.counter.count(topic).await?;
        // Half a list would look like a whole one.
        let each: Option<Vec<_>> = counts.shards.iter().copied().collect();
        let silent =
            || StoreError::Unavailable { doing: "count dead letters", source: "a server does not answer".into() };
        let shards = counts.record.routing.all(topic).zip(each.ok_or_else(silent)?);
        let with_dead =
            shards.map(|(shard, counts)| (shard, counts.dead + counts.moving)).filter(|(_, dead)| *dead > 0);
        Ok(with_dead.filter(|(shard, _)| shard.index >= first).collect())
    }

    /// One page of one shard; asked again where the shard or this node was behind with the routing.
    pub(crate) async fn page_of(&self, shard: &Shard, from: Option<i64>, limit: usize) -> Result<DeadPage, RouteError> {
        for _ in 0..PAGE_TRIES {
            let record = self.dispatcher.topic(&shard.topic).await?;
            let present = record.routing.shard(&shard.topic, shard.index);
            match self.dispatcher.context.messages.dead_letters(&present, from, limit).await {
                Err(error) if is_misrouted(&error) => {
                    self.dispatcher.refresh_routing(&shard.topic, &record.routing, shard.index, &error).await?;
                }
                answer => return Ok(answer?),
            }
        }
        Err(StoreError::NotReady(shard.to_string()).into())
    }

    /// One page of dead letters, at most `limit`. While shards change, one may be missed or listed twice.
    ///
    /// # Errors
    ///
    /// [`RouteError::UnknownTopic`], or the store's.
    pub async fn page(
        &self,
        topic: &TopicName,
        cursor: Option<DeadCursor>,
        limit: usize,
    ) -> Result<DeadList, RouteError> {
        let start = cursor.unwrap_or(DeadCursor { shard: 0, from: None });
        let mut list = DeadList::default();
        let mut steps = BodySteps::new(&self.dispatcher.topic(topic).await?.config);
        for (shard, _) in self.shards_with_any(topic, start.shard).await? {
            let mut from = if shard.index == start.shard { start.from } else { None };
            loop {
                let step = steps.next_step().min(limit.saturating_sub(list.messages.len()));
                if step == 0 {
                    list.next = Some(DeadCursor { shard: shard.index, from });
                    return Ok(list);
                }
                let page = self.page_of(&shard, from, step).await?;
                steps.took(page.messages.iter().map(|message| message.payload.len()));
                list.messages.extend(page.messages.into_iter().map(|message| (shard.index, message)));
                from = page.next;
                if from.is_none() {
                    break;
                }
            }
        }
        Ok(list)
    }

    /// Redrives or purges dead letters by id; false: it is not a dead letter. An error of one can be repeated, it is safe.
    pub async fn settle(&self, topic: &TopicName, ids: &[MessageId], action: DeadAction) -> DeadSettled {
        self.settle_in(topic, None, ids, action).await
    }

    /// [`Self::settle`] in one life of the topic.
    pub(crate) async fn settle_in(
        &self,
        topic: &TopicName,
        life: Option<u64>,
        ids: &[MessageId],
        action: DeadAction,
    ) -> DeadSettled {
        let items = ids.iter().map(|id| (id.clone(), action)).collect();
        let named = |_, (id, _): &(MessageId, DeadAction)| MessageRef::in_incarnation(id, life);
        let answers = self.dispatcher.run(&self.queues, DeadOp::new(action), topic, items, named).await;
        let mut all = DeadSettled::default();
        for answer in answers {
            all.done.push(answer.map(|(_, (done, replicas))| {
                all.replicas = fewest(all.replicas, replicas);
                done
            }));
        }
        all
    }

    /// Changes dead letters, all in one way, each only if it is still the letter that was read. An error of one can be
    /// repeated, it is safe.
    pub async fn edit(&self, topic: &TopicName, edits: Vec<DeadEdit>) -> Vec<Result<DeadEdited, RouteError>> {
        let op = DeadEditOp { rewrites: edits.first().is_some_and(|edit| edit.rewritten().is_some()) };
        let answers = self.dispatcher.run(&self.edits, op, topic, edits, |_, edit| MessageRef::by_id(&edit.id)).await;
        answers.into_iter().map(|answer| answer.map(|(_, (done, _))| done)).collect()
    }

    /// Removes dead letters of one shard that are not kept, in one step, by the topic as it is in `record`; how many. Where the
    /// shard knows another record nothing is removed, and whoever is behind catches up.
    ///
    /// # Errors
    ///
    /// The store's: what was removed stays removed.
    pub(crate) async fn expire(&self, record: &TopicRecord, index: u32, kept: DeadKept) -> Result<u64, RouteError> {
        let shard = record.shard(index);
        let context = &self.dispatcher.context;
        match context.messages.expire_dead_letters(&shard, context.clock.now(), kept).await {
            Err(error) if is_misrouted(&error) => {
                self.dispatcher.refresh_routing(&record.name, &record.routing, index, &error).await?;
                Ok(0)
            }
            answer => {
                let removed = answer?;
                context.meters.topic(&record.name).count(Event::DeadExpired, removed);
                Ok(removed)
            }
        }
    }

    /// Redrives or purges everything that is dead when it begins, for at most `budget`.
    ///
    /// What dies again meanwhile is left alone, so a sweep ends; while shards change it may be met again.
    ///
    /// # Errors
    ///
    /// [`RouteError::UnknownTopic`], or the store's: repeat it, what was done stays done.
    pub async fn sweep(
        &self,
        topic: &TopicName,
        action: DeadAction,
        budget: Duration,
    ) -> Result<DeadSweep, RouteError> {
        let end = Instant::now() + budget;
        let mut sweep = DeadSweep::default();
        loop {
            let before = self.dispatcher.current_topic(topic).await?.routing.clone();
            let shards = self.shards_with_any(topic, 0).await?;
            let is_empty = shards.is_empty();
            for (shard, count) in shards {
                sweep.more = !self.sweep_shard(&shard, action, (count, end), &mut sweep).await?;
                if sweep.more {
                    return Ok(sweep);
                }
            }
            let after = self.dispatcher.current_topic(topic).await?.routing.clone();
            if before == after && (is_empty || !before.is_moving()) {
                return Ok(sweep);
            }
            // What moved from a shard that was not reached yet to one that was is met in another pass.
            if Instant::now() + PASS_PAUSE >= end {
                sweep.more = true;
                return Ok(sweep);
            }
            tokio::time::sleep(PASS_PAUSE).await;
        }
    }

    /// The part of a sweep in one shard, of so many at most and until then. Returns false if the time was up before.
    async fn sweep_shard(
        &self,
        shard: &Shard,
        action: DeadAction,
        (count, end): (u64, Instant),
        sweep: &mut DeadSweep,
    ) -> Result<bool, RouteError> {
        let mut left = usize::try_from(count).unwrap_or(usize::MAX);
        let mut from = None;
        while left > 0 {
            if Instant::now() >= end {
                return Ok(false);
            }
            let page = self.page_of(shard, from, STEP.min(left)).await?;
            let ids: Vec<MessageId> = page.messages.into_iter().map(|message| message.id).collect();
            if !ids.is_empty() {
                let settled = self.settle(&shard.topic, &ids, action).await;
                sweep.replicas = fewest(sweep.replicas, settled.replicas);
                for done in settled.done {
                    sweep.done += u64::from(done?);
                }
            }
            left = left.saturating_sub(ids.len());
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        Ok(true)
    }
}
