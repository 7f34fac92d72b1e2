//! Acts on messages by id: each goes to its home shard, shards work at once, answers keep their order.
//!
//! Upstream: the front door. Downstream: lanes, and through them `Store`. A shard that fails fails
//! for its own items only; one that has moved on is asked again after a look at the topics.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::limits::SHARDS_MAX;
use duetime_core::routing::{shard_of, topic_seed};
use duetime_core::store::{Edit, Edited, Enqueue, EnqueueOutcome, Settle, Settled, Settlement};
use duetime_core::{
    Clock, LeaseClass, MessageId, Receipt, Shard, Store, StoredMessage, Timestamp, TopicName, TopicRecord,
};
use duetime_metrics::Meters;
use futures::StreamExt as _;

use crate::catalog::Catalog;
use crate::error::RouteError;
use crate::lane::{Kit, Lanes, Op, fits};
use crate::ops::{EditOp, EnqueueOp, GetOp, SettleOp};

/// Shards one request works on at once.
const SHARDS_AT_ONCE: usize = 64;

/// How often items are sent again because the shard or this node was behind with the routing.
const REROUTES_MAX: u32 = 6;

/// Wait before the first such repetition; doubles with each.
const REROUTE_WAIT: Duration = Duration::from_millis(10);

/// What became of one enqueue, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Scheduled, replaced or duplicate.
    pub outcome: EnqueueOutcome,
    /// As [`duetime_core::store::Enqueued::due_at`].
    pub due_at: Timestamp,
    /// The message's home.
    pub shard: u32,
}

/// How a consumer settles what it claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleAsk {
    /// Done.
    Ack,
    /// Again after this long, or after the topic's backoff; a dead letter if attempts are used up.
    Nack(Option<Duration>),
    /// Hidden for this long from now, or for the topic's own visibility timeout.
    Extend(Option<Duration>),
}

/// What became of one settlement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettleAnswer {
    /// As asked.
    Ok,
    /// Extended: the receipt that counts from now on.
    Extended(Receipt),
    /// The receipt proves nothing any more.
    Expired,
}

/// See the module.
pub struct Router {
    pub(crate) kit: Kit,
    pub(crate) catalog: Arc<Catalog>,
    enqueues: Lanes<EnqueueOp>,
    edits: Lanes<EditOp>,
    gets: Lanes<GetOp>,
    settles: Lanes<SettleOp>,
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("store", &self.kit.store).finish_non_exhaustive()
    }
}

/// Items of one shard, with their places in the request.
struct Group<I> {
    shard: Shard,
    places: Vec<usize>,
    items: Vec<I>,
}

type Answers<T> = Vec<Result<T, RouteError>>;
/// Answers as they come in, each at its place.
type Slots<T> = Vec<Option<Result<T, RouteError>>>;

impl Router {
    /// A router over `store`. Wrap the store in a [`crate::MeteredStore`] to see its times.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, catalog: Arc<Catalog>, clock: Arc<dyn Clock>, meters: Arc<Meters>) -> Arc<Self> {
        let kit = Kit { store, clock, meters };
        Arc::new(Self {
            enqueues: Lanes::new(kit.clone()),
            edits: Lanes::new(kit.clone()),
            gets: Lanes::new(kit.clone()),
            settles: Lanes::new(kit.clone()),
            kit,
            catalog,
        })
    }

    /// The topic, from memory or else from the store.
    ///
    /// # Errors
    ///
    /// [`RouteError::UnknownTopic`], or the store's.
    pub async fn topic(&self, name: &TopicName) -> Result<Arc<TopicRecord>, RouteError> {
        self.catalog.find(name).await?.ok_or_else(|| RouteError::UnknownTopic(name.clone()))
    }

    /// Schedules messages, any number of them. Items of one id act one after the other, in order.
    pub async fn enqueue(&self, topic: &TopicName, items: Vec<Enqueue>) -> Answers<Placed> {
        let by_id = |record: &TopicRecord, seed, _, item: &Enqueue| home(record, seed, &item.id);
        let answers = self.run(&self.enqueues, topic, items, by_id).await.into_iter();
        answers
            .map(|answer| answer.map(|(shard, done)| Placed { outcome: done.outcome, due_at: done.due_at, shard }))
            .collect()
    }

    /// Cancels and reschedules.
    pub async fn edit(&self, topic: &TopicName, edits: Vec<Edit>) -> Answers<Edited> {
        let by_id = |record: &TopicRecord, seed, _, edit: &Edit| {
            let (Edit::Cancel(id) | Edit::Reschedule(id, _)) = edit;
            home(record, seed, id)
        };
        let answers = self.run(&self.edits, topic, edits, by_id).await.into_iter();
        answers.map(|answer| answer.map(|(_, edited)| edited)).collect()
    }

    /// Reads messages, each with the shard it lives in.
    pub async fn get(&self, topic: &TopicName, ids: Vec<MessageId>) -> Answers<(u32, Option<StoredMessage>)> {
        self.run(&self.gets, topic, ids, |record, seed, _, id| home(record, seed, id)).await
    }

    /// Settles claims by their receipts.
    pub async fn settle(&self, topic: &TopicName, asks: Vec<(Receipt, SettleAsk)>) -> Answers<SettleAnswer> {
        let record = match self.topic(topic).await {
            Ok(record) => record,
            Err(error) => return asks.iter().map(|_| Err(error.clone())).collect(),
        };
        let mut answers: Slots<SettleAnswer> = asks.iter().map(|_| None).collect();
        let (mut places, mut receipts, mut items) = (Vec::new(), Vec::new(), Vec::new());
        for (place, (receipt, ask)) in asks.into_iter().enumerate() {
            if receipt.score == Receipt::SETTLED {
                let done = if ask == SettleAsk::Ack { SettleAnswer::Ok } else { SettleAnswer::Expired };
                answers[place] = Some(Ok(done));
            } else {
                items.push(settlement(&record, &receipt, ask));
                receipts.push(receipt);
                places.push(place);
            }
        }
        // A receipt names the shard it was claimed from; one beyond the present ones has moved home.
        let by_receipt = |record: &TopicRecord, seed, at: usize, settle: &Settle| match receipts[at].shard {
            shard if shard < record.routing.shards => shard,
            _ => home(record, seed, &settle.id),
        };
        let settled = self.run(&self.settles, topic, items, by_receipt).await;
        for ((place, receipt), answer) in places.into_iter().zip(&receipts).zip(settled) {
            answers[place] = Some(answer.map(|(shard, settled)| match settled {
                Settled::Ok => SettleAnswer::Ok,
                Settled::Expired => SettleAnswer::Expired,
                Settled::Extended(score) => {
                    let epoch = record.routing.epoch;
                    SettleAnswer::Extended(Receipt::new(topic, shard, epoch, receipt.id.clone(), score))
                }
            }));
        }
        answers.into_iter().map(|answer| answer.expect("every item was answered")).collect()
    }

    /// Sends every item to the shard that `home` names, and again where the routing was behind.
    /// Each answer comes with the shard that gave it.
    async fn run<O: Op>(
        &self,
        lanes: &Lanes<O>,
        topic: &TopicName,
        items: Vec<O::Item>,
        home: impl Fn(&TopicRecord, u32, usize, &O::Item) -> u32,
    ) -> Answers<(u32, O::Answer)> {
        let seed = topic_seed(topic);
        let mut answers: Slots<(u32, O::Answer)> = items.iter().map(|_| None).collect();
        let mut pending: Vec<(usize, O::Item)> = items.into_iter().enumerate().collect();
        for round in 0.. {
            let record = match self.topic(topic).await {
                Ok(record) => record,
                Err(error) => {
                    pending.drain(..).for_each(|(place, _)| answers[place] = Some(Err(error.clone())));
                    break;
                }
            };
            let groups = group(topic, &record, pending, |place, item| home(&record, seed, place, item));
            let mut works = futures::stream::iter(groups.into_iter().map(|group| work(lanes, group)))
                .buffer_unordered(SHARDS_AT_ONCE);
            let mut again = Vec::new();
            while let Some(worked) = works.next().await {
                for (place, answer) in worked.done {
                    answers[place] = Some(Ok((worked.shard, answer)));
                }
                let Some(error) = worked.error else { continue };
                let retry = error.is_misrouted() && round < REROUTES_MAX;
                let mut left = worked.left.into_iter();
                for place in worked.places_left {
                    match left.next() {
                        Some(item) if retry => again.push((place, item)),
                        _ => answers[place] = Some(Err(error.clone())),
                    }
                }
            }
            drop(works);
            pending = again;
            if pending.is_empty() {
                break;
            }
            pending.sort_unstable_by_key(|(place, _)| *place);
            tokio::time::sleep(REROUTE_WAIT * 2u32.pow(round)).await;
            // What went wrong with the look shows in the next round's answers.
            let _ = self.catalog.refresh().await;
        }
        answers.into_iter().map(|answer| answer.expect("every item was answered")).collect()
    }
}

/// What came of one shard's items.
struct Worked<O: Op> {
    shard: u32,
    done: Vec<(usize, O::Answer)>,
    error: Option<RouteError>,
    /// Places of the items that were not done, and as many of the items as came back.
    places_left: Vec<usize>,
    left: Vec<O::Item>,
}

/// Does a group in calls of the right size, one after the other, up to the first that fails: what
/// comes behind it must not overtake it.
async fn work<O: Op>(lanes: &Lanes<O>, group: Group<O::Item>) -> Worked<O> {
    let shard = group.shard.index;
    let mut done = Vec::with_capacity(group.places.len());
    let mut places = group.places.into_iter();
    let mut items = group.items.into_iter().peekable();
    let mut error = None;
    let mut left = Vec::new();
    while items.peek().is_some() {
        let (mut batch, mut weight) = (Vec::new(), 0);
        while let Some(item) = items.next_if(|item| fits(batch.len() + 1, weight + O::weight(item))) {
            weight += O::weight(&item);
            batch.push(item);
        }
        match lanes.submit(&group.shard, batch).await {
            Ok(answers) => done.extend(places.by_ref().take(answers.len()).zip(answers)),
            Err((reason, given_back)) => {
                left = given_back;
                error = Some(reason);
                break;
            }
        }
    }
    left.extend(items);
    Worked { shard, done, error, places_left: places.collect(), left }
}

fn group<I>(
    topic: &TopicName,
    record: &TopicRecord,
    items: Vec<(usize, I)>,
    home: impl Fn(usize, &I) -> u32,
) -> Vec<Group<I>> {
    let mut at: Vec<Option<usize>> = vec![None; record.routing.shards.min(SHARDS_MAX) as usize];
    let mut groups: Vec<Group<I>> = Vec::new();
    for (place, item) in items {
        let index = home(place, &item);
        let slot = *at[index as usize].get_or_insert_with(|| {
            let shard = record.routing.shard(topic, index);
            groups.push(Group { shard, places: Vec::new(), items: Vec::new() });
            groups.len() - 1
        });
        groups[slot].places.push(place);
        groups[slot].items.push(item);
    }
    groups
}

fn home(record: &TopicRecord, seed: u32, id: &MessageId) -> u32 {
    shard_of(id, seed, record.routing.shards)
}

fn settlement(record: &TopicRecord, receipt: &Receipt, ask: SettleAsk) -> Settle {
    let retry = &record.config.retry;
    let attempts = receipt.score.attempts();
    let how = match ask {
        SettleAsk::Ack => Settlement::Ack,
        SettleAsk::Nack(_) if attempts >= retry.max_attempts => {
            Settlement::Bury(format!("given back by its consumer on attempt {attempts} of {}", retry.max_attempts))
        }
        SettleAsk::Nack(delay) => {
            Settlement::Nack(delay.unwrap_or_else(|| retry.backoff(attempts, rand::random::<f64>())))
        }
        SettleAsk::Extend(asked) => {
            let own = record.config.visibility_timeout;
            let visibility = asked.unwrap_or(own);
            Settlement::Extend(visibility, LeaseClass::for_visibility(visibility, own))
        }
    };
    Settle { id: receipt.id.clone(), score: receipt.score, how }
}
