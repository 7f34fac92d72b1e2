//! Hands due messages to consumers of topics without a sink: long polling that never polls the store.
//!
//! Upstream: the HTTP API. Downstream: `schedule`, `asks`. A waiter waits for its turn, then for shards to fall due,
//! and claims from those that are due side by side, each a part of what it asks for. What is in hand does not
//! wait for a shard whose answer is slow. Whatever is not handed out goes back, see `asks`.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_WAIT_MAX};
use duetime_core::{ClaimAsk, ClaimedBatch, Consumers, StoreError, TopicName, Topics};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::asks::{Given, ask};
use crate::budget::Permit;
use crate::config::{CLAIMS_IN_FLIGHT, STALLED_AFTER};
use crate::places::{Bounds, HESITATES};
use crate::schedule::Taken;
use crate::scheduler::Scheduler;
use crate::work::{Work, bytes_of};

/// A topic that was created is claimed from at the latest this long after.
const TAKE_IN_WAIT: Duration = Duration::from_secs(1);

/// A consumer is given no more bytes of ids, headers and payloads at once, unless a single message is larger.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// A consumer waits no longer for the answer of one shard; then it goes on to the next.
const CLAIM_WITHIN: Duration = STALLED_AFTER;

/// What is claimed already waits for the answers of other shards as long again as it took itself, but at least
/// this long.
const IN_HAND_MIN: Duration = Duration::from_millis(5);
/// And no longer than this.
const IN_HAND_MAX: Duration = Duration::from_millis(50);

/// Claims that one consumer has under way at most.
const ASKING_MAX: usize = CLAIMS_IN_FLIGHT;

/// A topic that consumers claim from, as it is until `closed`.
#[derive(Clone, Debug)]
pub(crate) struct OpenTopic {
    pub(crate) work: Work,
    /// It was changed or deleted: who waits looks for it anew.
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

/// One claim under way: what was reserved for it, and what it brings.
struct AskedClaim {
    messages: usize,
    bytes: usize,
    /// Its server was in doubt when it was asked.
    is_doubtful: bool,
    answer: Result<Option<Given>, StoreError>,
}

/// One consumer's claim: what it has and what it waits for.
struct Asker {
    until: Instant,
    visibility: Option<Duration>,
    /// Messages that are neither in hand nor asked for.
    room: usize,
    /// One shard after the other, each of which is waited for while it does not hesitate: what a claim at most
    /// once brings too late has to be scheduled again.
    one_at_a_time: bool,
    given: Vec<Given>,
    bytes: usize,
    asking: FuturesUnordered<Pin<Box<dyn Future<Output = AskedClaim> + Send>>>,
    /// Bytes that are expected of the claims under way.
    bytes_asked: usize,
    /// When the last one was asked.
    asked_at: Instant,
    /// When the first one was asked whose answer is waited for.
    began: Instant,
    /// So many of them at servers that are not in doubt.
    hopeful: usize,
    /// What is in hand goes out then.
    goes_out_at: Option<Instant>,
    /// Some server answered, if only that nothing is due.
    answered: bool,
    failed: Option<StoreError>,
}

impl Asker {
    fn new(wanted: ClaimAsk) -> Self {
        let now = Instant::now();
        Self {
            until: now + wanted.wait.min(CLAIM_WAIT_MAX),
            visibility: wanted.visibility,
            room: wanted.max.clamp(1, BATCH_ITEMS_MAX),
            one_at_a_time: false,
            given: Vec::new(),
            bytes: 0,
            asking: FuturesUnordered::new(),
            bytes_asked: 0,
            asked_at: now,
            began: now,
            hopeful: 0,
            goes_out_at: None,
            answered: false,
            failed: None,
        }
    }

    fn end(self) -> Result<Vec<ClaimedBatch>, StoreError> {
        match self.failed {
            Some(error) if self.given.is_empty() && !self.answered => Err(error),
            _ => {
                let in_time = self.given.into_iter().filter(|given| !given.is_too_late());
                Ok(in_time.map(Given::hand_out).collect())
            }
        }
    }

    fn is_full(&self) -> bool {
        self.bytes >= ANSWER_BYTES_MAX || (self.room == 0 && self.asking.is_empty())
    }

    /// Whether what is in hand goes out although more is asked for, or may be.
    fn goes_out(&self) -> bool {
        if self.one_at_a_time {
            return !self.given.is_empty() && !self.asking.is_empty() && self.again_at() <= Instant::now();
        }
        let in_vain = self.hopeful == 0 && !self.asking.is_empty();
        self.goes_out_at.is_some_and(|at| in_vain || at <= Instant::now())
    }

    /// When it is looked again whether others are asked, or what is in hand goes out.
    fn again_at(&self) -> Instant {
        match self.goes_out_at {
            Some(_) if self.one_at_a_time => self.asked_at + IN_HAND_MAX,
            Some(at) => at,
            // Others are asked while a server hesitates.
            None => self.asked_at + HESITATES,
        }
    }

    /// Takes in what a claim brought; what comes too late, or is beyond the bounds, is given back.
    fn take_in(&mut self, mut more: Given) {
        if more.is_too_late() {
            self.answered = true;
            self.room += more.messages().len();
            return;
        }
        let mut fits = 0;
        for bytes in more.messages().iter().map(bytes_of) {
            if self.bytes > 0 && self.bytes + bytes > ANSWER_BYTES_MAX {
                // There is more to come than one answer holds.
                self.bytes = ANSWER_BYTES_MAX;
                break;
            }
            self.bytes += bytes;
            fits += 1;
        }
        drop(more.split_off(fits));
        if fits > 0 {
            self.given.push(more);
        }
        let took = self.began.elapsed().clamp(IN_HAND_MIN, IN_HAND_MAX);
        self.goes_out_at.get_or_insert(Instant::now() + took);
    }

    /// Whether one more shard may be asked.
    fn may_ask(&self, work: &Work) -> bool {
        if self.asking.is_empty() {
            return true;
        }
        if self.one_at_a_time {
            return false;
        }
        // Until it is known how large messages are, a second claim could bring too much.
        let hesitates = work.schedule.places() > 1 && self.asked_at.elapsed() >= HESITATES;
        let fits = self.bytes + self.bytes_asked < ANSWER_BYTES_MAX && (work.budget.is_measured() || hesitates);
        self.room > 0 && self.asking.len() < ASKING_MAX && fits
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
        let longest = self.asked_at + CLAIM_WITHIN;
        // The only server there is may take as long as the consumer does.
        let longest = if work.schedule.places() == 1 { longest.max(self.until) } else { longest };
        let (messages, bytes, is_doubtful) = (permit.messages(), permit.bytes(), taken.is_doubtful);
        self.room -= messages;
        self.bytes_asked += bytes;
        self.hopeful += usize::from(!is_doubtful);
        let answer = ask(work.clone(), tracker.clone(), taken, permit, self.visibility, longest);
        self.asking.push(Box::pin(async move { AskedClaim { messages, bytes, is_doubtful, answer: answer.await } }));
    }

    /// One of the claims is over; its messages, if any, are still to be taken in.
    fn heard(&mut self, asked: &AskedClaim) {
        let brought = asked.answer.as_ref().ok().and_then(Option::as_ref).map_or(0, |given| given.messages().len());
        self.room += asked.messages.saturating_sub(brought);
        self.bytes_asked -= asked.bytes;
        self.hopeful -= usize::from(!asked.is_doubtful);
    }
}

#[async_trait]
impl Consumers for EngineConsumers {
    async fn claim(&self, topic: &TopicName, wanted: ClaimAsk) -> Result<Vec<ClaimedBatch>, StoreError> {
        // The end of the node waits for what this gives back.
        let _under_way = self.tracker.token();
        let mut asker = Asker::new(wanted);
        loop {
            let open = self.find(topic).await?;
            if open.work.record.config.paused {
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
            return asker.end();
        }
    }
}

impl EngineConsumers {
    /// Claims until the consumer has what it asks for, or nothing more is to be waited for.
    async fn gather(&self, work: &Work, asker: &mut Asker) -> Result<(), StoreError> {
        asker.one_at_a_time = work.at_most_once();
        // One poll finds what no hint has announced yet; from then on the timer does.
        let mut poll = self.poll(work, asker.bounds());
        loop {
            if self.stop.is_cancelled() || asker.goes_out() {
                return Ok(());
            }
            let (bounds, may_ask, idle) = (asker.bounds(), asker.may_ask(work), asker.asking.is_empty());
            let others = if asker.one_at_a_time { 1 } else { ASKING_MAX - asker.asking.len().min(ASKING_MAX - 1) };
            let room = asker.room;
            let nothing_more = if asker.given.is_empty() { asker.until } else { Instant::now() };
            let polled_enough = poll.is_none() || !asker.given.is_empty();
            let again_at = asker.again_at();
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
                        }
                        Ok(None) => asker.answered = true,
                        // What was claimed already goes out; the trouble shows in the next claim.
                        Err(_) if !asker.given.is_empty() => return Ok(()),
                        Err(error) if work.schedule.places() == 1 || !error.is_transient() => return Err(error),
                        Err(error) => {
                            asker.failed = Some(error);
                            // Whether the others have nothing due or are silent too is not known yet.
                            if !asker.answered && asker.asking.is_empty() && poll.is_none() {
                                poll = self.poll(work, asker.bounds());
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
                () = tokio::time::sleep_until(nothing_more), if polled_enough && idle => return Ok(()),
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
    fn poll(&self, work: &Work, bounds: Bounds) -> Option<PollUnderWay> {
        if work.schedule.has_due(bounds) {
            return None;
        }
        let (scheduler, schedule) = (self.scheduler.clone(), work.schedule.clone());
        Some(Box::pin(async move { scheduler.poll_topic(&schedule).await }))
    }
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

/// Waits for a shard that is due and for leave to claim from it: its part of `room` messages, where up to
/// `others` shards that are due share them. Holds nothing while it waits, so it may be dropped any time.
async fn next(work: &Work, room: usize, others: usize, bounds: Bounds) -> (Taken, Permit) {
    let Work { schedule, rate, budget, .. } = work;
    let _turn = schedule.turn.lock().await;
    loop {
        rate.available().await;
        budget.available().await;
        schedule.due(|| bounds).await;
        let part = room.div_ceil(schedule.claimable(bounds, others).max(1));
        let Some(mut permit) = budget.reserve(part) else { continue };
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
