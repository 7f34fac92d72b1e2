//! Where an id is looked for, in which order, and what is done when a shard refuses the caller.
//!
//! At rest an id has one home. While ids move it is looked for at its source shard first, and what is
//! absent there is final: then its new home decides, and messages are made only there. A claim may
//! also have been made in a shard that is neither (found by the scrubber, or before a change): then
//! that one comes first.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use duetime_core::resize_store::{DeadlineFloor, Lookup};
use duetime_core::routing::life_of;
use duetime_core::{MessageId, Outcome, Role, Routing, Shard, StoreError, TopicName, TopicRecord};
use duetime_metrics::Event;
use futures::StreamExt as _;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::calls::batch_queue::{BatchQueues, Op, OpContext, fits};
use crate::calls::candidates::Candidates;
use crate::catalog::Catalog;
use crate::error::RouteError;

use crate::catalog::reports::Reports;
use crate::catalog::store_rollback::accept_rollback;
use crate::catalog::vanished::look_once;

/// Shards one request works on at once.
const SHARDS_AT_ONCE: usize = 64;

/// What is known of a topic is good enough when the catalog has not answered for this long.
pub(crate) const FRESH_WAIT: Duration = Duration::from_secs(1);

/// How often items are sent again because the shard or this node was behind with the routing, or
/// because they were on their way between shards.
const REROUTES_MAX: u32 = 12;

/// Wait before such a repetition, from the second in a row on; doubles with each up to the longest.
const REROUTE_WAIT: Duration = Duration::from_millis(10);
const REROUTE_WAIT_MAX: Duration = Duration::from_millis(500);

/// The message that an item refers to.
pub(crate) struct MessageRef {
    pub id: MessageId,
    /// The shard in which it was claimed.
    pub claimed: Option<u32>,
    /// The incarnation of the topic that the request refers to; `None`: the current one.
    pub life: Option<u64>,
}

impl MessageRef {
    /// Refers to a message by its id.
    pub fn by_id(id: &MessageId) -> Self {
        Self { id: id.clone(), claimed: None, life: None }
    }

    /// Refers to a message of one incarnation of the topic.
    pub fn in_incarnation(id: &MessageId, life: Option<u64>) -> Self {
        Self { life, ..Self::by_id(id) }
    }

    /// Refers to a message that was claimed in a shard under an epoch.
    pub fn claimed(id: &MessageId, shard: u32, epoch: u64) -> Self {
        Self { id: id.clone(), claimed: Some(shard), life: Some(life_of(epoch)) }
    }
}

/// An item without an answer yet: its index in the request, and the candidate shard to ask next.
struct PendingItem<I> {
    at: usize,
    candidate: usize,
    item: I,
    /// What the shards that were asked remember of its message.
    became: Option<Outcome>,
}

pub(crate) type Answers<T> = Vec<Result<T, RouteError>>;
/// Answers by index in the request, as they arrive.
type OpenAnswers<T> = Vec<Option<Result<T, RouteError>>>;

/// A record that all shards of its topic were raised to, or one shard beside them.
type RaisedTo = (Routing, Option<u32>);
/// What this node raised a topic's shards to last, and when; held while it does.
type Fencing = Arc<Mutex<Option<(RaisedTo, Instant)>>>;

/// What came of one shard's items.
struct ShardOutcome<O: Op> {
    key: (Shard, Role),
    /// Answers with the index of their item.
    done: Vec<(usize, O::Answer)>,
    /// To go on at the next candidate.
    absent: Vec<PendingItem<O::Item>>,
    /// To be sent again: on their way between shards, or behind those that are.
    frozen: Vec<PendingItem<O::Item>>,
    error: Option<RouteError>,
    /// Items that were not processed because of the error.
    left: Vec<PendingItem<O::Item>>,
    lost: Vec<usize>,
}

/// Does a group in calls of the right size, one after the other, up to the first that fails or
/// meets a frozen id: what comes behind it must not overtake it.
async fn work<O: Op>(
    queues: &BatchQueues<O>,
    op: O,
    key: (Shard, Role),
    group: Vec<PendingItem<O::Item>>,
) -> ShardOutcome<O>
where
    O::Item: Clone,
{
    let mut outcome = ShardOutcome {
        key,
        done: Vec::new(),
        absent: Vec::new(),
        frozen: Vec::new(),
        error: None,
        left: Vec::new(),
        lost: Vec::new(),
    };
    let mut group = group.into_iter().peekable();
    while group.peek().is_some() {
        let (mut batch, mut weight) = (Vec::new(), 0);
        while let Some(next) = group.next_if(|next| fits(batch.len() + 1, weight + O::weight(&next.item))) {
            weight += O::weight(&next.item);
            batch.push(next);
        }
        // At home all answers are final; at a source shard the items may have to go on.
        let keep = outcome.key.1 == Role::Source;
        let asked: Vec<(usize, usize, Option<Outcome>)> =
            batch.iter().map(|next| (next.at, next.candidate, next.became)).collect();
        let kept: Vec<O::Item> = if keep { batch.iter().map(|next| next.item.clone()).collect() } else { Vec::new() };
        let items = batch.into_iter().map(|next| next.item).collect();
        let done = queues.submit(&outcome.key, op, items).await;
        let (mut asked, mut kept) = (asked.into_iter(), kept.into_iter());
        for (answer, (at, candidate, before)) in done.answers.into_iter().zip(asked.by_ref()) {
            match (answer, kept.next()) {
                (Lookup::Found(answer), _) => outcome.done.push((at, O::with_past(answer, before))),
                (Lookup::Absent(here), Some(item)) => {
                    let became = Outcome::latest(before, here);
                    outcome.absent.push(PendingItem { at, candidate: candidate + 1, item, became });
                }
                (Lookup::Frozen, Some(item)) => {
                    outcome.frozen.push(PendingItem { at, candidate, item, became: before });
                }
                (_, None) => unreachable!("at home every answer is final"),
            }
        }
        if let Some((reason, given_back)) = done.failed {
            let mut given_back = given_back.into_iter();
            for (at, candidate, became) in asked {
                match given_back.next() {
                    Some(item) => outcome.left.push(PendingItem { at, candidate, item, became }),
                    None => outcome.lost.push(at),
                }
            }
            outcome.left.extend(group.by_ref());
            outcome.error = Some(reason);
        } else if !outcome.frozen.is_empty() {
            outcome.frozen.extend(group.by_ref());
        }
    }
    outcome
}

/// Sends items to the shards where they may be, and again after a shard refused.
pub(crate) struct Dispatcher {
    pub(crate) context: OpContext,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) reports: Reports,
    /// Of topics with a shard that had not heard of their record, a moment ago.
    fencing: parking_lot::Mutex<HashMap<TopicName, Fencing>>,
}

impl Dispatcher {
    pub(crate) fn new(context: OpContext, catalog: Arc<Catalog>) -> Self {
        let reports = Reports::new(catalog.clone(), context.meters.clone());
        Self { context, catalog, reports, fencing: parking_lot::Mutex::default() }
    }

    /// The topic, from memory or else from the store.
    pub(crate) async fn topic(&self, name: &TopicName) -> Result<Arc<TopicRecord>, RouteError> {
        if let Some(found) = self.catalog.find(name).await? {
            return Ok(found);
        }
        look_once(&*self.context.topics, &self.catalog, name).await?;
        Err(self.reports.unknown(name))
    }

    /// The topic as the store has it, whatever node changed it last; as it was known, where the catalog does
    /// not answer and shards may.
    pub(crate) async fn current_topic(&self, topic: &TopicName) -> Result<Arc<TopicRecord>, RouteError> {
        if self.catalog.get(topic).is_some()
            && let Ok(Ok(())) = tokio::time::timeout(FRESH_WAIT, self.catalog.refresh()).await
        {
            return self.catalog.get(topic).ok_or_else(|| self.reports.unknown(topic));
        }
        self.topic(topic).await
    }

    /// Sends every item to the shards that may have its id, and again where the routing was outdated. Returns each answer
    /// with the shard that gave it. An item of an earlier incarnation of the topic is refused, if need be by the shard,
    /// whose epoch names the incarnation that was read here.
    pub(crate) async fn run<O: Op>(
        &self,
        queues: &BatchQueues<O>,
        op: O,
        topic: &TopicName,
        items: Vec<O::Item>,
        of: impl Fn(usize, &O::Item) -> MessageRef,
    ) -> Answers<(u32, O::Answer)>
    where
        O::Item: Clone,
    {
        let mut answers: OpenAnswers<(u32, O::Answer)> = items.iter().map(|_| None).collect();
        let mut pending: Vec<PendingItem<O::Item>> = items
            .into_iter()
            .enumerate()
            .map(|(at, item)| PendingItem { at, candidate: 0, item, became: None })
            .collect();
        let (mut reroutes, mut seen, mut earlier) = (0, None, Vec::new());
        while !pending.is_empty() {
            let record = match self.settled_topic(topic).await {
                Ok(record) => record,
                Err(error) => {
                    pending.drain(..).for_each(|next| answers[next.at] = Some(Err(error.clone())));
                    break;
                }
            };
            // After a change of the record all candidates are asked again, from the first. They stay the same until then,
            // whatever time passes.
            if seen.as_ref() != Some(&record.routing) {
                seen = Some(record.routing.clone());
                pending.iter_mut().for_each(|next| (next.candidate, next.became) = (0, None));
                let counts = record.remembered_counts(self.context.clock.now());
                earlier = if op.looks_back() { counts.collect() } else { Vec::new() };
            }
            let seed = record.routing.seed(topic);
            let mut groups: BTreeMap<(u32, Role), Vec<PendingItem<O::Item>>> = BTreeMap::new();
            let mut of_newer = Vec::new();
            for next in pending.drain(..) {
                let message = of(next.at, &next.item);
                match message.life.map_or(Ordering::Equal, |life| life.cmp(&record.routing.life())) {
                    Ordering::Less => answers[next.at] = Some(Err(RouteError::EarlierLife(topic.clone()))),
                    Ordering::Greater => of_newer.push(next),
                    Ordering::Equal => {
                        let candidates = Candidates::of(&record, seed, &message.id, message.claimed, &earlier);
                        let key = candidates.at(next.candidate);
                        let item = O::knowing(next.item, next.became);
                        groups.entry(key).or_default().push(PendingItem { item, ..next });
                    }
                }
            }
            let works =
                groups.into_iter().map(|((index, role), group)| work(queues, op, (record.shard(index), role), group));
            let mut works = futures::stream::iter(works).buffer_unordered(SHARDS_AT_ONCE);
            let (mut failed, mut frozen_in) = (Vec::new(), BTreeSet::new());
            // With the shards they come back from.
            let mut again: Vec<(u32, PendingItem<O::Item>)> = Vec::new();
            while let Some(outcome) = works.next().await {
                let index = outcome.key.0.index;
                for (at, answer) in outcome.done {
                    answers[at] = Some(Ok((index, answer)));
                }
                pending.extend(outcome.absent);
                if !outcome.frozen.is_empty() {
                    frozen_in.insert(index);
                    again.extend(outcome.frozen.into_iter().map(|next| (index, next)));
                }
                let Some(error) = outcome.error else { continue };
                outcome.lost.iter().for_each(|at| answers[*at] = Some(Err(error.clone())));
                if error.is_misrouted() && reroutes < REROUTES_MAX {
                    again.extend(outcome.left.into_iter().map(|next| (index, next)));
                    failed.push((index, error));
                } else {
                    outcome.left.iter().for_each(|next| answers[next.at] = Some(Err(error.clone())));
                }
            }
            drop(works);
            if !again.is_empty() {
                let (lost, helped) = self.repair_routing(topic, &record, failed, &frozen_in).await;
                reroutes += 1;
                // A lost shard fails for its own items only, and at once.
                for (index, next) in again.extract_if(.., |(index, _)| lost.contains(index)) {
                    answers[next.at] = Some(Err(StoreError::Lost(format!("{topic}:{index}")).into()));
                }
                if let Some(error) = helped.err().filter(|error| !error.is_misrouted() || reroutes > REROUTES_MAX) {
                    again.drain(..).for_each(|(_, next)| answers[next.at] = Some(Err(error.clone())));
                } else if reroutes > REROUTES_MAX {
                    let error = RouteError::from(StoreError::NotReady(format!("of topic {topic}")));
                    again.drain(..).for_each(|(_, next)| answers[next.at] = Some(Err(error.clone())));
                }
                if reroutes > 1 && !again.is_empty() {
                    tokio::time::sleep((REROUTE_WAIT * 2u32.pow(reroutes.min(8) - 2)).min(REROUTE_WAIT_MAX)).await;
                }
                pending.extend(again.into_iter().map(|(_, next)| next));
            }
            if !of_newer.is_empty() {
                let claimed = of_newer.first().and_then(|next| of(next.at, &next.item).claimed);
                let error = self.check_incarnation(topic, &record.routing, claimed).await.err();
                match error {
                    Some(error) => {
                        of_newer.iter().for_each(|next| answers[next.at] = Some(Err(error.clone())));
                    }
                    None => pending.append(&mut of_newer),
                }
            }
            pending.sort_unstable_by_key(|next| next.at);
        }
        answers.into_iter().map(|answer| answer.expect("every item was answered")).collect()
    }

    /// Checks a request that refers to a newer incarnation of the topic than that of `known`: reads the catalog, which should
    /// have it. If it has not, shard `claimed` shows whether the catalog is outdated: the request may be forged, or of
    /// before a store rollback.
    async fn check_incarnation(
        &self,
        topic: &TopicName,
        known: &Routing,
        claimed: Option<u32>,
    ) -> Result<(), RouteError> {
        self.catalog.refresh().await?;
        if self.catalog.get(topic).is_none_or(|record| record.routing.life() > known.life()) {
            return Ok(());
        }
        if let Some(index) = claimed.filter(|index| *index < known.reach()) {
            let found = self.context.shards.inspect(topic, index..index + 1).await?;
            if found.iter().flatten().any(|shard| shard.routing.life() > known.life()) {
                return Err(self.reports.outdated(topic).into());
            }
        }
        Err(StoreError::Outdated(topic.to_string()).into())
    }

    /// Does what makes another try worth it: learns the present record, informs a shard of it that has
    /// not heard, finishes what is on its way. The first answer: shards that are lost, where none is.
    async fn repair_routing(
        &self,
        topic: &TopicName,
        record: &TopicRecord,
        failed: Vec<(u32, RouteError)>,
        frozen_in: &BTreeSet<u32>,
    ) -> (BTreeSet<u32>, Result<(), RouteError>) {
        let mut lost = BTreeSet::new();
        for (index, error) in failed {
            if let RouteError::Store(error) = error {
                match self.refresh_routing(topic, &record.routing, index, &error).await {
                    Err(StoreError::Lost(_)) => {
                        lost.insert(index);
                    }
                    Err(error) => return (lost, Err(error.into())),
                    Ok(()) => {}
                }
            }
        }
        let finished = self.finish_frozen(topic, record, frozen_in).await;
        (lost, finished)
    }

    async fn finish_frozen(
        &self,
        topic: &TopicName,
        record: &TopicRecord,
        frozen_in: &BTreeSet<u32>,
    ) -> Result<(), RouteError> {
        for index in frozen_in {
            let moved = self.context.mover.finish(topic, &record.routing, *index).await;
            let moved = match moved {
                Ok(moved) => moved,
                Err(error) => {
                    self.refresh_routing(topic, &record.routing, *index, &error).await?;
                    return Err(error.into());
                }
            };
            self.context.meters.topic(topic).count(Event::Moved, moved);
        }
        Ok(())
    }

    /// After the catalog was read again: the store may have gone back to before `routing`.
    async fn accept_rollback(&self, topic: &TopicName, routing: &Routing) -> Result<(), StoreError> {
        accept_rollback(&*self.context.shards, &self.catalog, &self.reports, topic, routing.epoch).await
    }

    /// The topic, for calls that are about its messages: what is not found where this node looks is answered as unknown, so
    /// that it does not look by a record that the store has undone.
    async fn settled_topic(&self, topic: &TopicName) -> Result<Arc<TopicRecord>, RouteError> {
        if self.catalog.older(topic).is_some()
            && let Some(known) = self.catalog.get(topic)
        {
            // The review looks again each second.
            if self.catalog.issues().is_outdated(topic) {
                return Err(self.reports.outdated(topic).into());
            }
            self.catalog.refresh().await?;
            self.accept_rollback(topic, &known.routing).await?;
        }
        self.topic(topic).await
    }

    /// Of one topic, so that a server that does not answer holds up no others. Forgets those that are neither under way
    /// nor of the last moments.
    fn fencing_of(&self, topic: &TopicName) -> Fencing {
        let mut all = self.fencing.lock();
        let is_recent =
            |last: &Option<(RaisedTo, Instant)>| last.as_ref().is_some_and(|(_, at)| at.elapsed() < REROUTE_WAIT_MAX);
        all.retain(|_, one| Arc::strong_count(one) > 1 || one.try_lock().is_ok_and(|last| is_recent(&last)));
        all.entry(topic.clone()).or_default().clone()
    }

    /// Shard `index` refused a caller with `routing`: whoever is behind catches up.
    pub(crate) async fn refresh_routing(
        &self,
        topic: &TopicName,
        routing: &Routing,
        index: u32,
        error: &StoreError,
    ) -> Result<(), StoreError> {
        match error {
            StoreError::Stale(present) if self.catalog.learn(topic, present) => Ok(()),
            StoreError::UnknownShard(_) => {
                self.catalog.refresh().await?;
                self.accept_rollback(topic, routing).await?;
                // The catalog has the topic as before: the shard should be there.
                let same = self.catalog.get(topic).is_some_and(|present| present.routing == *routing);
                if same && !routing.may_lack(index) { Err(self.reports.lost(topic, index)) } else { Ok(()) }
            }
            StoreError::Stale(present) => {
                self.catalog.refresh().await?;
                let same = self.catalog.get(topic).is_some_and(|known| known.routing == *routing);
                // Of another change with the same epoch: one that the store forgot, or two that were begun at once.
                let is_other = present.life() > routing.life() || present.is_rival(routing);
                if same && is_other { Err(self.reports.outdated(topic)) } else { Ok(()) }
            }
            StoreError::NotReady(_) => {
                // One at a time: the others find it done.
                let fencing = self.fencing_of(topic);
                let mut fenced = fencing.lock().await;
                let beside = (index >= routing.shards.max(routing.previous)).then_some(index);
                let seen = (routing.clone(), beside);
                if fenced.as_ref().is_some_and(|(last, at)| *last == seen && at.elapsed() < REROUTE_WAIT_MAX) {
                    return Ok(());
                }
                // The topic may be another of the same name by now, and its shards at its first record.
                self.catalog.refresh().await?;
                self.accept_rollback(topic, routing).await?;
                if self.catalog.get(topic).is_none_or(|present| present.routing != *routing) {
                    return Ok(());
                }
                let store = &*self.context.shards;
                let learnt = match beside {
                    None => self.context.mover.fence_all(topic, routing).await,
                    Some(index) => store.fence(topic, index, routing, &DeadlineFloor::default()).await.map(drop),
                };
                match learnt {
                    // Another one of the topic. An old shard needs nothing of the others.
                    Err(StoreError::Lost(shard)) if shard != format!("{topic}:{index}") => {
                        if index < routing.previous {
                            store.fence(topic, index, routing, &DeadlineFloor::default()).await?;
                        }
                        return Ok(());
                    }
                    Err(StoreError::Lost(_)) => return Err(self.reports.lost(topic, index)),
                    // A deletion that did not come about had closed it: a later record opens it.
                    Err(StoreError::Stale(later)) if self.catalog.learn(topic, &later) => return Ok(()),
                    learnt => learnt?,
                }
                *fenced = Some((seen, Instant::now()));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
