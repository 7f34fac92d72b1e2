//! Hands due messages to consumers of topics without a sink: long polling that never polls the store.
//!
//! Upstream: the HTTP API. Downstream: `schedule`, `consumer_claim`. A waiter waits for its turn, then for shards to fall due,
//! and claims from the first of them, which takes its turn again behind the others. One that is known to have enough
//! fills the claim alone; else those that are due are asked side by side for what is missing, until the claim is full
//! or nothing more is due. What is in hand waits a tenth of a second at most for a shard whose answer is slow. Whatever
//! is not handed out goes back, see `consumer_claim`.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_WAIT_MAX};
use duetime_core::{ClaimAsk, ClaimedBatch, Consumers, StoreError, TopicName, Topics};
use duetime_metrics::TopicMeters;
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::budget::Permit;
use crate::config::{CLAIMS_IN_FLIGHT, STALLED_AFTER};
use crate::consumer_claim::{ConsumerBatch, ask};
use crate::schedule::Taken;
use crate::scheduler::Scheduler;
use crate::server_load::{Bounds, SLOW_AFTER};
use crate::shared_poll::SHARED_MAX;
use crate::work::{Work, bytes_of};

/// A topic that was created is claimed from at the latest this long after.
const TAKE_IN_WAIT: Duration = Duration::from_secs(1);

/// A consumer is given no more bytes of ids, headers and payloads at once, unless a single message is larger.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// A consumer waits no longer for the answer of one shard; then it goes on to the next.
const CLAIM_WITHIN: Duration = STALLED_AFTER;

/// Claimed messages wait for the answers of other shards as long again as their own claim took, but at least this long.
const IN_HAND_MIN: Duration = Duration::from_millis(5);
/// Upper bound of that wait.
const IN_HAND_MAX: Duration = Duration::from_millis(50);

/// While shards are known to have more that is due, a claim is filled no longer than this.
pub(crate) const GATHER_MAX: Duration = Duration::from_millis(100);

/// What is in hand waits for more no longer than this part of the visibility timeout.
const HELD_SHARE: u32 = 8;

/// Claims that one consumer waits for at most. Of those that hesitate each server has no more than it may have of all.
const ASKING_MAX: usize = CLAIMS_IN_FLIGHT;

/// A topic that consumers claim from, as it is until `closed`.
#[derive(Clone, Debug)]
pub(crate) struct OpenTopic {
    pub(crate) work: Work,
    /// The topic was changed or deleted: a claim that waits reads it again.
    pub(crate) closed: CancellationToken,
}

/// The topics without a sink and what is needed to claim from them.
pub(crate) type Open = RwLock<HashMap<TopicName, OpenTopic>>;

/// A poll under way.
type PollUnderWay = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

/// Hands due messages to consumers of topics without a sink: long polling that never polls the store.
#[derive(Debug)]
pub(crate) struct EngineConsumers {
    pub(crate) open: Arc<Open>,
    pub(crate) scheduler: Scheduler,
    pub(crate) topics: watch::Receiver<Arc<Topics>>,
    /// Changes whenever the engine has taken in a change of the topics.
    pub(crate) taken_in: watch::Receiver<()>,
    pub(crate) stop: CancellationToken,
    pub(crate) tracker: TaskTracker,
}

/// One claim under way.
struct UnderWay {
    number: u64,
    messages: usize,
    bytes: usize,
    asked_at: Instant,
    /// Its server was in doubt when it was asked.
    is_doubtful: bool,
    /// Its shard was known to be due.
    is_sure: bool,
}

/// What came of the claim with this number.
struct AskedClaim {
    number: u64,
    answer: Result<Option<ConsumerBatch>, StoreError>,
}

/// One consumer's claim: what it has and what it waits for.
struct Asker {
    until: Instant,
    visibility: Option<Duration>,
    /// Most messages it takes.
    max: usize,
    /// Messages in hand.
    count: usize,
    /// The store has several servers: a claim that hesitates is not waited for, as if it were to bring nothing. What
    /// it brings all the same and has no room goes back.
    several: bool,
    given: Vec<ConsumerBatch>,
    bytes: usize,
    asking: FuturesUnordered<Pin<Box<dyn Future<Output = AskedClaim> + Send>>>,
    /// The same claims, what was asked for.
    under_way: Vec<UnderWay>,
    /// How many were asked.
    number: u64,
    /// When the last one was asked.
    asked_at: Instant,
    /// When the first one was asked whose answer is waited for.
    began: Instant,
    /// So many shards were due when the first one was asked and were not asked since.
    owed: usize,
    /// How long the last answer took, within bounds.
    took: Duration,
    /// What is in hand waits for more no longer than this: an eighth of the visibility timeout.
    held_max: Duration,
    /// When something was in hand first.
    in_hand_since: Option<Instant>,
    /// What is in hand goes out then, unless more is known to be due.
    goes_out_at: Option<Instant>,
    /// The message in hand may have killed its consumers: it goes out alone, so that it takes nobody along.
    is_alone: bool,
    /// Some server answered, if only that nothing is due.
    answered: bool,
    /// What a server answered came when too little was left of its visibility timeout, and went back.
    came_too_late: bool,
    failed: Option<StoreError>,
}

impl Asker {
    fn new(wanted: ClaimAsk) -> Self {
        let now = Instant::now();
        Self {
            until: now + wanted.wait.min(CLAIM_WAIT_MAX),
            visibility: wanted.visibility,
            max: wanted.max.clamp(1, BATCH_ITEMS_MAX),
            count: 0,
            several: false,
            owed: 0,
            took: IN_HAND_MIN,
            held_max: GATHER_MAX,
            in_hand_since: None,
            given: Vec::new(),
            bytes: 0,
            asking: FuturesUnordered::new(),
            under_way: Vec::new(),
            number: 0,
            asked_at: now,
            began: now,
            goes_out_at: None,
            is_alone: false,
            answered: false,
            came_too_late: false,
            failed: None,
        }
    }

    async fn end(self) -> Result<Vec<ClaimedBatch>, StoreError> {
        match self.failed {
            Some(error) if self.given.is_empty() && !self.answered => Err(error),
            _ => {
                let had_some = !self.given.is_empty();
                let in_time: Vec<ConsumerBatch> = self.given.into_iter().filter(|given| !given.is_too_late()).collect();
                if had_some && in_time.is_empty() {
                    return Err(too_late());
                }
                let ready = join_all(in_time.into_iter().map(ConsumerBatch::ready_to_go)).await.into_iter().flatten();
                Ok(ready.filter(|given| !given.messages().is_empty()).map(ConsumerBatch::into_answer).collect())
            }
        }
    }

    fn is_full(&self) -> bool {
        self.is_alone || self.bytes >= ANSWER_BYTES_MAX || self.count >= self.max
    }

    /// The claims whose answer is waited for: those that do not hesitate.
    fn awaited(&self) -> impl Iterator<Item = &UnderWay> {
        self.under_way.iter().filter(|claim| !self.several || claim.asked_at.elapsed() < SLOW_AFTER)
    }

    /// Messages that are neither in hand nor waited for.
    fn room(&self) -> usize {
        let awaited: usize = self.awaited().map(|claim| claim.messages).sum();
        self.max.saturating_sub(self.count + awaited)
    }

    /// Whether what is in hand goes out although more is asked for, or may be.
    fn goes_out(&self, work: &Work) -> bool {
        let in_vain = self.under_way.iter().all(|claim| claim.is_doubtful) && !self.under_way.is_empty();
        self.out_at(work).is_some_and(|at| in_vain || at <= Instant::now())
    }

    /// When what is in hand goes out: later while more is known to be due, or surely on its way.
    fn out_at(&self, work: &Work) -> Option<Instant> {
        let at = self.goes_out_at?;
        let (due, left) = work.schedule.due_now(self.bounds());
        let is_more = self.room() > 0 && (left || self.owed.min(due) > 0) || self.awaited().any(|claim| claim.is_sure);
        Some(if is_more { at.max(self.in_hand_since? + GATHER_MAX.min(self.held_max)) } else { at })
    }

    /// When it is looked again whether others are asked, or what is in hand goes out.
    fn again_at(&self, work: &Work) -> Instant {
        // Others are asked while a server hesitates.
        self.out_at(work).unwrap_or(self.asked_at + SLOW_AFTER)
    }

    /// Takes in what a claim brought; what comes too late, or is beyond the bounds, is given back.
    fn take_in(&mut self, mut more: ConsumerBatch) {
        if more.is_too_late() {
            (self.answered, self.came_too_late) = (true, true);
            return;
        }
        if more.is_alone() {
            // What was in hand goes back, and is due at once.
            self.given.clear();
            (self.count, self.bytes, self.is_alone) = (0, 0, true);
        }
        let mut fits = 0;
        for bytes in more.messages().iter().take(self.max - self.count).map(bytes_of) {
            if self.bytes > 0 && self.bytes + bytes > ANSWER_BYTES_MAX {
                // There is more to come than one answer holds.
                self.bytes = ANSWER_BYTES_MAX;
                break;
            }
            self.bytes += bytes;
            fits += 1;
        }
        drop(more.split_off(fits));
        self.count += fits;
        if fits > 0 {
            self.given.push(more);
        }
        self.took = self.began.elapsed().clamp(IN_HAND_MIN, IN_HAND_MAX).min(self.held_max);
        self.goes_out_at.get_or_insert(Instant::now() + self.took);
        self.in_hand_since.get_or_insert_with(Instant::now);
    }

    /// Whether one more shard may be asked.
    fn may_ask(&self, work: &Work) -> bool {
        if self.asking.is_empty() {
            return true;
        }
        // Until it is known how large messages are, a second claim could bring too much.
        let hesitates = self.several && self.asked_at.elapsed() >= SLOW_AFTER;
        let bytes_awaited: usize = self.awaited().map(|claim| claim.bytes).sum();
        let fits = self.bytes + bytes_awaited < ANSWER_BYTES_MAX && (work.budget.is_measured() || hesitates);
        self.room() > 0 && self.awaited().count() < ASKING_MAX && fits
    }

    /// While one server hesitates, only those are asked that do not. What is claimed already is not kept
    /// waiting by one that does, nor a consumer for longer than it wants to wait.
    fn bounds(&self) -> Bounds {
        let nothing_yet = self.given.is_empty() && self.asking.is_empty();
        let patient = nothing_yet && (self.failed.is_none() || Instant::now() < self.until);
        Bounds { patient, ..Bounds::claims(CLAIMS_IN_FLIGHT) }
    }

    /// Claims from the shard that was taken, in the background.
    fn ask(&mut self, work: &Work, tracker: &TaskTracker, taken: Taken, permit: Permit) {
        self.asked_at = Instant::now();
        if self.asking.is_empty() {
            self.began = self.asked_at;
        }
        // An answer that surely brings some of what is missing is waited for as long as the one before took.
        let is_first = self.given.is_empty() && self.asking.is_empty();
        let is_sure = is_first || taken.has_left || self.owed > 0;
        if is_sure && let (Some(at), Some(since)) = (self.goes_out_at, self.in_hand_since) {
            self.goes_out_at = Some(at.max((self.asked_at + self.took).min(since + GATHER_MAX.min(self.held_max))));
        }
        self.owed = match is_first {
            true => work.schedule.due_now(self.bounds()).0,
            false => self.owed.saturating_sub(1),
        };
        let longest = self.asked_at + CLAIM_WITHIN;
        // The only server there is may take as long as the consumer does.
        let longest = if self.several { longest } else { longest.max(self.until) };
        self.number += 1;
        let (number, asked_at) = (self.number, self.asked_at);
        let (messages, bytes, is_doubtful) = (permit.messages(), permit.bytes(), taken.is_doubtful);
        self.under_way.push(UnderWay { number, messages, bytes, asked_at, is_doubtful, is_sure });
        let answer = ask(work.clone(), tracker.clone(), taken, permit, self.visibility, longest);
        self.asking.push(Box::pin(async move { AskedClaim { number, answer: answer.await } }));
    }

    /// One of the claims is over; its messages, if any, are still to be taken in.
    fn heard(&mut self, asked: &AskedClaim) {
        self.under_way.retain(|claim| claim.number != asked.number);
    }
}

#[async_trait]
impl Consumers for EngineConsumers {
    async fn claim(&self, topic: &TopicName, wanted: ClaimAsk) -> Result<Vec<ClaimedBatch>, StoreError> {
        // The end of the node waits for what this gives back.
        let _under_way = self.tracker.token();
        let mut asker = Asker::new(wanted);
        let mut asks = None;
        loop {
            let open = self.find(topic).await?;
            asks = asks.or_else(|| self.scheduler.meters.known_topic(topic).map(TopicMeters::consumer_asks));
            if open.work.record.config.paused {
                // What is on its way goes back at once.
                asker.asking.clear();
                asker.under_way.clear();
                tokio::select! {
                    biased;
                    () = self.stop.cancelled() => {}
                    () = open.closed.cancelled() => continue,
                    () = tokio::time::sleep_until(asker.until) => {}
                }
                // What is claimed already and not handed out goes back.
                return Ok(Vec::new());
            }
            tokio::select! {
                biased;
                ended = self.gather(&open.work, &mut asker) => { ended?; }
                () = open.closed.cancelled() => if asker.given.is_empty() { continue },
            }
            return asker.end().await;
        }
    }
}

impl EngineConsumers {
    /// Claims until the consumer has what it asks for, or nothing more is to be waited for.
    async fn gather(&self, work: &Work, asker: &mut Asker) -> Result<(), StoreError> {
        asker.held_max = asker.visibility.unwrap_or(work.record.config.visibility_timeout) / HELD_SHARE;
        // One poll finds what no hint has announced yet; from then on the timer does.
        let mut poll = self.poll(work, asker);
        loop {
            asker.several = work.schedule.servers() > 1;
            if self.stop.is_cancelled() || asker.goes_out(work) {
                return Ok(());
            }
            let (bounds, may_ask, idle) = (asker.bounds(), asker.may_ask(work), asker.asking.is_empty());
            let others = ASKING_MAX - asker.awaited().count().min(ASKING_MAX - 1);
            let room = asker.room();
            let nothing_more = asker.given.is_empty().then_some(asker.until);
            let polled_enough = poll.is_none() || !asker.given.is_empty();
            let again_at = asker.again_at(work);
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                Some(asked) = asker.asking.next() => {
                    asker.heard(&asked);
                    match asked.answer {
                        Ok(Some(more)) => {
                            asker.take_in(more);
                            if asker.is_full() {
                                return Ok(());
                            }
                            // What went back is due at once, and would be claimed and come too late for ever.
                            if asker.came_too_late && asker.given.is_empty() && asker.until <= Instant::now() {
                                return Err(too_late());
                            }
                        }
                        Ok(None) => asker.answered = true,
                        // What was claimed already goes out; the error shows in the next claim.
                        Err(_) if !asker.given.is_empty() => return Ok(()),
                        Err(error) if work.schedule.servers() == 1 || !error.is_transient() => return Err(error),
                        Err(error) => {
                            asker.failed = Some(error);
                            // Whether the others have nothing due or are silent too is not known yet.
                            if !asker.answered && asker.asking.is_empty() && poll.is_none() {
                                poll = self.poll(work, asker);
                            }
                        }
                    }
                }
                (taken, permit) = next(work, room, others, bounds), if may_ask => {
                    asker.ask(work, &self.tracker, taken, permit);
                }
                polled = polled(&mut poll) => match polled {
                    Ok(()) => asker.answered = true,
                    Err(error) if asker.asking.is_empty() && asker.given.is_empty() => return Err(error),
                    Err(error) => asker.failed = Some(error),
                },
                () = at_or_now(nothing_more), if polled_enough && idle => return Ok(()),
                () = tokio::time::sleep_until(again_at), if !idle && again_at > Instant::now() => {}
            }
        }
    }

    /// The topic, if consumers may claim from it. One that was created a moment ago is waited for.
    async fn find(&self, topic: &TopicName) -> Result<OpenTopic, StoreError> {
        let mut taken_in = self.taken_in.clone();
        let until = Instant::now() + TAKE_IN_WAIT;
        loop {
            taken_in.mark_unchanged();
            if let Some(open) = self.open.read().get(topic).cloned() {
                return Ok(open);
            }
            let sink = self.topics.borrow().get(topic).map(|record| record.config.sink.is_some());
            match sink {
                None => return Err(StoreError::UnknownShard(topic.to_string())),
                Some(true) => {
                    let why = format!("topic {topic:?} has a sink; its messages go there and cannot be claimed");
                    return Err(StoreError::Setup(why));
                }
                Some(false) if tokio::time::timeout_at(until, taken_in.changed()).await.is_ok_and(|ok| ok.is_ok()) => {}
                Some(false) => return Err(StoreError::NotReady(topic.to_string())),
            }
        }
    }

    /// A poll of a topic of which nothing is known to be due.
    fn poll(&self, work: &Work, asker: &Asker) -> Option<PollUnderWay> {
        if work.schedule.has_due(asker.bounds()) {
            return None;
        }
        let (scheduler, schedule) = (self.scheduler.clone(), work.schedule.clone());
        let is_shared = asker.until.saturating_duration_since(Instant::now()) > SHARED_MAX;
        Some(Box::pin(async move {
            let poll = || scheduler.poll_topic(&schedule);
            if is_shared { schedule.shared_poll.wait_or_poll(poll).await } else { poll().await }
        }))
    }
}

/// Why a claim brought nothing although messages are due.
fn too_late() -> StoreError {
    let source = "its answers come when less than a quarter of the visibility timeout is left: claim with a longer \
                  visibility_timeout, or give the topic one";
    StoreError::Unavailable { doing: "claim", source: source.into() }
}

/// The end of a poll, if one is under way.
async fn polled(poll: &mut Option<PollUnderWay>) -> Result<(), StoreError> {
    match poll {
        Some(under_way) => {
            let polled = under_way.await;
            *poll = None;
            polled
        }
        None => std::future::pending().await,
    }
}

/// Waits until this moment. Without one returns at once: a sleep until now may last as long as the runtime's timer is
/// coarse, 2 ms.
async fn at_or_now(at: Option<Instant>) {
    if let Some(at) = at {
        tokio::time::sleep_until(at).await;
    }
}

/// Waits for a shard that is due and for leave to claim its part of `room` messages. Holds nothing while it waits, so
/// it may be dropped any time.
async fn next(work: &Work, room: usize, others: usize, bounds: Bounds) -> (Taken, Permit) {
    let Work { schedule, rate, budget, .. } = work;
    let _turn = schedule.turn.lock().await;
    loop {
        rate.available().await;
        budget.available().await;
        schedule.due(|| bounds).await;
        let Some(mut permit) = budget.reserve(schedule.part(bounds, room, others)) else { continue };
        let tokens = rate.take(permit.messages());
        if tokens == 0 {
            continue;
        }
        match schedule.take(bounds) {
            Some(taken) => {
                drop(permit.split(permit.messages() - tokens, 0));
                return (taken, permit);
            }
            None => rate.give_back(tokens),
        }
    }
}
