//! Acts on messages by id: each goes to its home shard, shards work at once, answers keep their order.
//!
//! Upstream: the HTTP API. Downstream: `route`, queues, and through them the store. A shard that
//! fails fails for its own items only.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use duetime_core::limits::SHARDS_MAX;
use duetime_core::routing::{life_of, shard_of};
use duetime_core::smear::{offset, spread};
use duetime_core::store::{AckWait, Edit, Edited, Enqueue, EnqueueOutcome, Settle, Settled};
use duetime_core::{
    Clock, End, Lookup, MessageId, Mover, Nonce, Outcome, Receipt, Role, Score, Shard, Store, StoreError,
    StoredMessage, Timestamp, TopicName, TopicRecord,
};
use duetime_metrics::Meters;
use futures::StreamExt as _;

use crate::calls::batch_queue::{BatchQueues, OpContext};
use crate::calls::endings::SettleKind;
use crate::calls::ops::{EditOp, EnqueueOp, FoundMessage, GetOp, SettleOp};
use crate::calls::route::{Answers, Dispatcher, MessageRef};
use crate::calls::topic_limits::TopicLimits;
use crate::catalog::Catalog;
use crate::consistency::ConsistencyChecker;
use crate::error::RouteError;
use crate::queries::dead::DeadLetters;
use crate::queries::forecast::Forecaster;
use crate::queries::list::LiveMessages;
use crate::queries::topic_counts::TopicCounter;
use crate::queries::watermark::Watermarks;
use crate::settlement::{SettleAsk, bodies_at_once, portion, settlement};

/// Messages that are looked up at once to see whether they are there; shards asked at once why receipts are void.
pub(crate) const BODIES_AT_ONCE: usize = 64;
const SHARDS_AT_ONCE: usize = 64;

/// What became of one enqueue, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Scheduled, replaced or duplicate.
    pub outcome: EnqueueOutcome,
    /// As [`duetime_core::store::Enqueued::due_at`].
    pub due_at: Timestamp,
    /// The message's home.
    pub shard: u32,
    /// As [`duetime_core::store::Enqueued::replicas`].
    pub replicas: Option<u32>,
    /// As [`duetime_core::store::Enqueued::became`].
    pub became: Option<Outcome>,
    /// How much later than asked for it falls due, where its topic has a `smear`. Not of a duplicate: what is there
    /// may have been asked for otherwise.
    pub smeared: Option<Duration>,
}

/// What became of one cancel or reschedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Cancelled, rescheduled, or why not.
    pub edited: Edited,
    /// As [`duetime_core::store::Kept::replicas`].
    pub replicas: Option<u32>,
    /// As [`Placed::smeared`], of a reschedule.
    pub smeared: Option<Duration>,
}

/// What became of one settlement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettleAnswer {
    /// As asked.
    Ok,
    /// Extended: the receipt that counts from now on.
    Extended(Receipt),
    /// Done as asked by an earlier request: this one is a repetition.
    Already,
    /// A cancel ended the claim.
    Cancelled,
    /// The receipt proves nothing any more: the message is due again, in other hands, or a dead letter.
    Expired,
    /// The message is not there any more, and neither this node nor the shard remembers why.
    Gone,
}

/// The shard that settled a claim, what it answered, and how many replicas have it.
pub(crate) type SettledIn = Result<(u32, (Settled, Option<u32>)), RouteError>;

/// Acts on messages by id: each goes to its home shard, shards work at once, answers keep their order.
pub struct Router {
    /// Counts messages by state.
    pub counter: TopicCounter,
    /// Lists what is live.
    pub live: LiveMessages,
    /// Says up to when topics are done.
    pub watermarks: Watermarks,
    /// Lists and settles what is dead.
    pub dead: DeadLetters,
    /// Counts what falls due.
    pub forecaster: Forecaster,
    /// Looks for what is missing.
    pub consistency: ConsistencyChecker,
    pub(crate) dispatcher: Arc<Dispatcher>,
    limits: TopicLimits,
    enqueues: BatchQueues<EnqueueOp>,
    edits: BatchQueues<EditOp>,
    gets: BatchQueues<GetOp>,
    settles: BatchQueues<SettleOp>,
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").field("store", &self.dispatcher.context.messages).finish_non_exhaustive()
    }
}

impl Router {
    /// A router over `store`. Put [`crate::Metering`] around it to see its times. `mover` finishes what is met on
    /// its way between shards.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        mover: Arc<dyn Mover>,
        catalog: Arc<Catalog>,
        clock: Arc<dyn Clock>,
        meters: Arc<Meters>,
    ) -> Arc<Self> {
        let context = OpContext::new(store, mover, clock, meters);
        let dispatcher = Arc::new(Dispatcher::new(context.clone(), catalog));
        Arc::new(Self {
            counter: TopicCounter::new(dispatcher.clone()),
            live: LiveMessages::new(dispatcher.clone()),
            watermarks: Watermarks::new(dispatcher.clone()),
            dead: DeadLetters::new(dispatcher.clone()),
            forecaster: Forecaster::new(dispatcher.clone()),
            consistency: ConsistencyChecker::new(dispatcher.clone()),
            dispatcher,
            limits: TopicLimits::default(),
            enqueues: BatchQueues::new(context.clone()),
            edits: BatchQueues::new(context.clone()),
            gets: BatchQueues::new(context.clone()),
            settles: BatchQueues::new(context),
        })
    }

    /// The topic, from memory or else from the store.
    ///
    /// # Errors
    ///
    /// [`RouteError::UnknownTopic`], or the store's.
    pub async fn topic(&self, name: &TopicName) -> Result<Arc<TopicRecord>, RouteError> {
        self.dispatcher.topic(name).await
    }

    /// The topic as the store has it, whatever node changed it last; as it was known, where the catalog does
    /// not answer and shards may.
    ///
    /// # Errors
    ///
    /// [`RouteError::UnknownTopic`], or the store's.
    pub async fn current_topic(&self, name: &TopicName) -> Result<Arc<TopicRecord>, RouteError> {
        self.dispatcher.current_topic(name).await
    }

    /// Schedules messages, any number of them. Items of one id act one after the other, in order. What the
    /// topic has no space for is refused by itself.
    pub async fn enqueue(&self, topic: &TopicName, items: Vec<Enqueue>) -> Answers<Placed> {
        let admission = match self.topic(topic).await {
            Ok(record) => {
                let nodes = *self.dispatcher.catalog.nodes().borrow();
                let admission = self.limits.admit(&self.dispatcher.context, nodes, &record, &items).await;
                let checked = admission.map(|admission| self.refuse_series(admission, &record, &items));
                checked.map(|admission| (admission, record.config.smear)).map_err(RouteError::from)
            }
            Err(error) => Err(error),
        };
        let (admission, smear) = match admission {
            Ok(admission) => admission,
            Err(error) => return items.iter().map(|_| Err(error.clone())).collect(),
        };
        if admission.refused.iter().all(Option::is_none) {
            return self.place_smeared(topic, items, smear).await;
        }
        let fitting = items.into_iter().zip(&admission.refused).filter(|(_, refused)| refused.is_none());
        let fitting: Vec<Enqueue> = fitting.map(|(item, _)| item).collect();
        let mut placed = self.place_smeared(topic, fitting, smear).await.into_iter();
        let answer = |refused: &Option<RouteError>| match refused {
            Some(error) => Err(error.clone()),
            None => placed.next().expect("one answer for each that was let in"),
        };
        admission.refused.iter().map(answer).collect()
    }

    /// The due times are spread once, before anything is sent: what is sent again is spread as before.
    async fn place_smeared(&self, topic: &TopicName, mut items: Vec<Enqueue>, smear: Duration) -> Answers<Placed> {
        if smear.is_zero() {
            return self.place(topic, None, items).await;
        }
        let now = self.dispatcher.context.clock.now();
        let smeared: Vec<Option<Duration>> = items.iter_mut().map(|item| spread(item, smear, now)).collect();
        let placed = self.place(topic, None, items).await.into_iter().zip(smeared);
        let say = |placed: Placed, by| {
            if placed.outcome.is_unchanged() { placed } else { Placed { smeared: by, ..placed } }
        };
        placed.map(|(answer, by)| answer.map(|placed| say(placed, by))).collect()
    }

    async fn place(&self, topic: &TopicName, life: Option<u64>, items: Vec<Enqueue>) -> Answers<Placed> {
        let of = |_, item: &Enqueue| MessageRef::in_incarnation(&item.id, life);
        let remembers = self.dispatcher.catalog.get(topic).is_none_or(|record| record.memory().is_on());
        let named: Vec<(MessageId, Nonce)> =
            items.iter().filter(|_| remembers).map(|item| (item.id.clone(), item.nonce)).collect();
        let answers = self.dispatcher.run(&self.enqueues, EnqueueOp, topic, items, of).await;
        let mut placed: Answers<Placed> = answers
            .into_iter()
            .map(|answer| {
                agreed(answer).map(|(shard, done)| Placed {
                    outcome: done.outcome,
                    due_at: done.due_at,
                    shard,
                    replicas: done.replicas,
                    became: done.became,
                    smeared: None,
                })
            })
            .collect();
        if remembers {
            self.complete_remembered(topic, &named, &mut placed).await;
        }
        placed
    }

    /// Cancels and reschedules.
    pub async fn edit(&self, topic: &TopicName, edits: Vec<Edit>) -> Answers<Changed> {
        self.edit_in(topic, None, edits).await
    }

    /// [`Self::edit`] in one life of the topic.
    pub(crate) async fn edit_in(&self, topic: &TopicName, life: Option<u64>, mut edits: Vec<Edit>) -> Answers<Changed> {
        let mut smeared = vec![None; edits.len()];
        if edits.iter().any(|edit| matches!(edit, Edit::Reschedule(..))) {
            let smear = match self.topic(topic).await {
                Ok(record) => record.config.smear,
                Err(error) => return edits.iter().map(|_| Err(error.clone())).collect(),
            };
            for (edit, smeared) in edits.iter_mut().zip(&mut smeared).filter(|_| !smear.is_zero()) {
                if let Edit::Reschedule(id, due) = edit {
                    let by = offset(id, smear);
                    (*due, *smeared) = (due.later(by), Some(by));
                }
            }
        }
        let of = |_, edit: &Edit| MessageRef::in_incarnation(edit.id(), life);
        let cancels: Vec<bool> = edits.iter().map(Edit::is_cancel).collect();
        let answers = self.dispatcher.run(&self.edits, EditOp, topic, edits, of).await.into_iter();
        let changed = |(edited, replicas), is_cancel: bool, smeared: Option<Duration>| {
            let smeared = smeared.filter(|_| matches!(edited, Edited::Rescheduled(_)));
            let is_gone = matches!(edited, Edited::Gone(_));
            let edited = if is_gone && !is_cancel { Edited::Unknown } else { edited };
            Changed { edited, replicas, smeared }
        };
        let answers = answers.zip(cancels).zip(smeared);
        let each = answers.map(|((answer, is_cancel), smeared)| {
            let (_, (edited, replicas)) = agreed(answer)?;
            Ok(changed((edited.with_room()?, replicas), is_cancel, smeared))
        });
        each.collect()
    }

    /// Reads messages, each with the shard it lives in.
    pub async fn get(&self, topic: &TopicName, ids: Vec<MessageId>) -> Answers<(u32, Option<StoredMessage>)> {
        self.find(topic, ids).await.into_iter().map(|found| found.map(|(shard, found)| (shard, found.ok()))).collect()
    }

    /// Reads messages, each with its home; of one that is gone, what the topic remembers.
    pub async fn find(&self, topic: &TopicName, ids: Vec<MessageId>) -> Answers<(u32, FoundMessage)> {
        self.dispatcher.run(&self.gets, GetOp, topic, ids, |_, id| MessageRef::by_id(id)).await
    }

    /// Settles claims by their receipts; with each answer, how many replicas have it where the topic's acks
    /// wait for them.
    pub async fn settle(
        &self,
        topic: &TopicName,
        asks: Vec<(Receipt, SettleAsk)>,
    ) -> Answers<(SettleAnswer, Option<u32>)> {
        let record = match self.topic(topic).await {
            Ok(record) => record,
            Err(error) => return asks.iter().map(|_| Err(error.clone())).collect(),
        };
        let bodies = bodies_at_once(&record, BODIES_AT_ONCE);
        let (mut answers, mut asks) = (Vec::with_capacity(asks.len()), asks.into_iter().peekable());
        while asks.peek().is_some() {
            answers.extend(self.settle_portion(topic, &record, portion(&mut asks, bodies)).await);
        }
        answers
    }

    /// [`Self::settle`] of one [`portion`].
    async fn settle_portion(
        &self,
        topic: &TopicName,
        record: &TopicRecord,
        asks: Vec<(Receipt, SettleAsk)>,
    ) -> Answers<(SettleAnswer, Option<u32>)> {
        let mut answers: Vec<Option<Result<_, RouteError>>> = asks.iter().map(|_| None).collect();
        let (mut places, mut receipts, mut asked, mut items) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (found, mut nexts) = (self.successors(topic, &asks).await, Vec::new());
        for (place, ((receipt, ask), next)) in asks.into_iter().zip(found).enumerate() {
            let next = match next {
                Ok(next) => next,
                Err(error) => {
                    answers[place] = Some(Err(error));
                    continue;
                }
            };
            if receipt.score == Receipt::SETTLED {
                let done = if ask == SettleAsk::Ack { SettleAnswer::Ok } else { SettleAnswer::Expired };
                answers[place] = Some(Ok((done, None)));
            } else {
                items.push(settlement(record, &receipt, ask.clone(), &next));
                nexts.push(next);
                asked.push(ask);
                receipts.push(receipt);
                places.push(place);
            }
        }
        let kinds: Vec<SettleKind> = items.iter().map(|settle| SettleKind::of(&settle.action)).collect();
        let op = SettleOp { wait: ack_wait(record), is_counted: true, looks_back: false };
        let mut settled = self.settle_receipts(topic, op, &receipts, items).await;
        // A claim that was extended by a request whose answer its consumer does not have goes on under another score.
        let mut extended = Vec::new();
        for (at, receipt) in receipts.iter_mut().enumerate().filter(|(at, _)| is_void(&settled[*at])) {
            let (score, end) = self.dispatcher.context.endings.of(topic, &receipt.id, receipt.score);
            if score != receipt.score && end.is_none() {
                receipt.score = score;
                extended.push(at);
            }
        }
        if !extended.is_empty() {
            let theirs: Vec<Receipt> = extended.iter().map(|at| receipts[*at].clone()).collect();
            let again = |(own, at): (&Receipt, &usize)| settlement(record, own, asked[*at].clone(), &nexts[*at]);
            let again = theirs.iter().zip(&extended).map(again).collect();
            let answers = self.settle_receipts(topic, op, &theirs, again).await;
            extended.into_iter().zip(answers).for_each(|(at, answer)| settled[at] = answer);
        }
        self.look_back(topic, record, &receipts, (&kinds, &nexts), &mut settled).await;
        let void = receipts.iter().zip(&kinds).zip(&settled).filter(|(_, answer)| is_void(answer));
        let mut whys =
            self.why_void(topic, void.map(|((receipt, kind), _)| (receipt, *kind)).collect()).await.into_iter();
        for ((place, receipt), answer) in places.into_iter().zip(&receipts).zip(settled) {
            // Its message went with the life of the topic that it was in.
            if let Err(RouteError::EarlierLife(_)) = answer {
                answers[place] = Some(Ok((SettleAnswer::Gone, None)));
                continue;
            }
            answers[place] = Some(answer.map(|(shard, (settled, replicas))| {
                let answer = match settled {
                    Settled::Ok => SettleAnswer::Ok,
                    Settled::Already => SettleAnswer::Already,
                    Settled::Expired => whys.next().expect("one for each that is void"),
                    Settled::Extended(score) => SettleAnswer::Extended(receipt.extended(shard, score)),
                };
                (answer, replicas)
            }));
        }
        answers.into_iter().map(|answer| answer.expect("every item was answered")).collect()
    }

    /// Settles by receipts that are looked for where they were given.
    pub(crate) async fn settle_receipts(
        &self,
        topic: &TopicName,
        op: SettleOp,
        receipts: &[Receipt],
        items: Vec<Settle>,
    ) -> Vec<SettledIn> {
        let of = |at: usize, settle: &Settle| {
            let receipt: &Receipt = &receipts[at];
            MessageRef::claimed(&settle.id, receipt.shard, receipt.epoch)
        };
        let settled = self.dispatcher.run(&self.settles, op, topic, items, of).await;
        settled.into_iter().map(agreed).collect()
    }

    /// Why each of these receipts proves nothing: what this node remembers of it, then whether its message is there,
    /// then what the shards remember.
    async fn why_void(&self, topic: &TopicName, void: Vec<(&Receipt, SettleKind)>) -> Vec<SettleAnswer> {
        let endings = &self.dispatcher.context.endings;
        let ends = void.iter().map(|(receipt, _)| endings.of(topic, &receipt.id, receipt.score));
        let ends: Vec<(Score, Option<SettleKind>)> = ends.collect();
        let mut whys = vec![SettleAnswer::Expired; void.len()];
        let mut open = Vec::new();
        for (at, ((_, asked), (_, done))) in void.iter().zip(&ends).enumerate() {
            if *done == Some(*asked) {
                whys[at] = SettleAnswer::Already;
            } else {
                open.push(at);
            }
        }
        let mut absent = Vec::new();
        // Some at a time: their bodies are read too, and whoever asks may name any message.
        for some in open.chunks(BODIES_AT_ONCE) {
            let found = self.find(topic, some.iter().map(|at| void[*at].0.id.clone()).collect()).await;
            for (at, found) in some.iter().zip(found) {
                let Ok((_, Err(became))) = found else { continue };
                let is_its = |outcome: Outcome| outcome.end == End::CancelledInFlight && outcome.score == ends[*at].0;
                if became.is_some_and(is_its) {
                    whys[*at] = SettleAnswer::Cancelled;
                } else {
                    absent.push(*at);
                }
            }
        }
        let claims: Vec<(&Receipt, Score)> = absent.iter().map(|at| (void[*at].0, ends[*at].0)).collect();
        for (at, is_cancelled) in absent.iter().zip(self.are_cancelled(topic, &claims).await) {
            whys[*at] = if is_cancelled { SettleAnswer::Cancelled } else { SettleAnswer::Gone };
        }
        whys
    }

    /// Whether a cancel ended each of these claims, as far as the shards remember: those they were made in, and the
    /// present homes of their messages.
    async fn are_cancelled(&self, topic: &TopicName, claims: &[(&Receipt, Score)]) -> Vec<bool> {
        let Ok(record) = self.topic(topic).await else { return vec![false; claims.len()] };
        let (routing, seed) = (&record.routing, record.routing.seed(topic));
        let shards_of = |receipt: &Receipt| [receipt.shard, shard_of(&receipt.id, seed, routing.shards)];
        let all = claims.iter().flat_map(|(receipt, _)| shards_of(receipt));
        let shards: BTreeSet<u32> = all.filter(|index| *index < SHARDS_MAX).collect();
        let store = &self.dispatcher.context.messages;
        let ask = |index: u32| async move { store.cancelled_claims(&routing.shard(topic, index)).await };
        // A shard that does not answer explains nothing.
        let asked = futures::stream::iter(shards.into_iter().map(ask)).buffered(SHARDS_AT_ONCE);
        let cancelled: HashSet<(MessageId, Score)> =
            asked.filter_map(async |noted| noted.ok()).flat_map(futures::stream::iter).collect().await;
        claims.iter().map(|(receipt, score)| cancelled.contains(&(receipt.id.clone(), *score))).collect()
    }

    /// Settles for the engine what it claimed in `shard`, wherever the messages are by now.
    pub(crate) async fn settle_claimed(&self, shard: &Shard, batch: &[Settle]) -> Result<Vec<Settled>, StoreError> {
        let topic = &shard.topic;
        let record = self.topic(topic).await?;
        let (routing, seed, wait) = (&record.routing, record.routing.seed(topic), ack_wait(&record));
        let at_home = |settle: &Settle| shard_of(&settle.id, seed, routing.shards) == shard.index;
        let is_of_this_life = routing.life() == life_of(shard.epoch);
        if is_of_this_life && !routing.is_moving() && batch.iter().all(at_home) {
            let (present, now) = (record.shard(shard.index), self.dispatcher.context.clock.now());
            let store = &self.dispatcher.context.claims;
            let settled = store.settle_at(&present, Role::Home, now, batch, wait).await;
            let settled = settled.and_then(|kept| Lookup::finals(kept.answers));
            match settled {
                Err(error) if crate::error::is_misrouted(&error) => {}
                answer => return answer,
            }
        }
        let of = |_, settle: &Settle| MessageRef::claimed(&settle.id, shard.index, shard.epoch);
        let op = SettleOp { wait, is_counted: false, looks_back: false };
        let settled = self.dispatcher.run(&self.settles, op, topic, batch.to_vec(), of).await;
        let settled = settled.into_iter().map(|answer| match agreed(answer) {
            Err(RouteError::EarlierLife(_)) => Ok(Settled::Expired),
            answer => answer.map(|(_, (settled, _))| settled).map_err(StoreError::from),
        });
        settled.collect()
    }
}

pub(crate) fn is_void(answer: &SettledIn) -> bool {
    matches!(answer, Ok((_, (Settled::Expired, _))))
}

pub(crate) fn ack_wait(record: &TopicRecord) -> AckWait {
    if record.config.confirm_acks { AckWait::ForReplicas } else { AckWait::No }
}

/// An answer, or that the clocks are too far apart for the relative time in the item.
fn agreed<A>(answer: Result<(u32, Result<A, i64>), RouteError>) -> Result<(u32, A), RouteError> {
    let (shard, answer) = answer?;
    Ok((shard, answer.map_err(StoreError::ClockSkew)?))
}
