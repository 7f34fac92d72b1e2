//! Hands due messages to consumers of topics without a sink: long polling that never polls the store.
//!
//! Upstream: the front door. Downstream: `lane`, `ClaimStore`. A waiter waits for its turn, then for a
//! shard to fall due. The claim runs in a task of its own: if the waiter has gone away meanwhile, or gone
//! on because the shard's server did not answer, what was claimed for it is released and costs no attempt.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_WAIT_MAX};
use duetime_core::store::{ClaimRequest, ClaimedMessage, Settle, Settlement};
use duetime_core::{ClaimAsk, Consumers, HandedOver, LeaseClass, Receipt, StoreError, TopicName, Topics};
use duetime_metrics::Event;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::RwLock;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::claimer::Answer;
use crate::config::{CLAIMS_IN_FLIGHT, STALLED_AFTER};
use crate::lane::Taken;
use crate::pace::Pace;
use crate::places::{Bounds, HESITATES};
use crate::work::Work;

/// A topic that was created is claimed from at the latest this long after.
const TAKE_IN_WAIT: Duration = Duration::from_secs(1);

/// A consumer is given no further shard's messages once its payloads have so many bytes. A claim of one
/// shard brings `CLAIM_BYTES_MAX`, or one message, on top at most.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// A consumer waits no longer for the answer of one shard; then it goes on to the next.
const CLAIM_WITHIN: Duration = STALLED_AFTER;

/// What is claimed already waits no longer for the answer of one more shard.
const IN_HAND_WITHIN: Duration = Duration::from_millis(50);

/// Claims that one consumer has under way at most, while those before hesitate.
const ASKING_MAX: usize = 4;

/// How often a release is tried while the store does not answer.
const RELEASE_TRIES: u32 = 5;

/// The topics without a sink and what is needed to claim from them.
pub(crate) type Open = RwLock<std::collections::HashMap<TopicName, Work>>;

/// A look under way.
type Look = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

/// See the module.
#[derive(Debug)]
pub(crate) struct EngineConsumers {
    pub(crate) open: Arc<Open>,
    pub(crate) pace: Pace,
    pub(crate) topics: watch::Receiver<Arc<Topics>>,
    /// Changes whenever the engine has taken in a change of the topics.
    pub(crate) taken_in: watch::Receiver<()>,
    pub(crate) stop: CancellationToken,
    pub(crate) tracker: TaskTracker,
}

/// What one claim under way may bring to the consumer that asked, and whether its server was in doubt.
type Asked = Pin<Box<dyn Future<Output = (bool, Result<Option<HandedOver>, StoreError>)> + Send>>;

/// One consumer's claim: what it has and what it waits for.
struct Asker {
    until: Instant,
    room: usize,
    handed: Vec<HandedOver>,
    /// Claims under way; the last was asked then.
    asking: FuturesUnordered<Asked>,
    asked_at: Instant,
    /// So many of them at servers that are not in doubt.
    hopeful: usize,
    /// Some server answered, if only that nothing is due.
    answered: bool,
    failed: Option<StoreError>,
}

impl Asker {
    /// Bytes of the payloads in hand.
    fn bytes(&self) -> usize {
        self.handed.iter().flat_map(|handed| &handed.messages).map(|message| message.payload.len()).sum()
    }

    fn end(self) -> Result<Vec<HandedOver>, StoreError> {
        match self.failed {
            Some(error) if self.handed.is_empty() && !self.answered => Err(error),
            _ => Ok(self.handed),
        }
    }

    /// Whether the shard that was asked last has not answered at once.
    fn hesitates(&self) -> bool {
        !self.asking.is_empty() && self.asked_at.elapsed() >= HESITATES
    }

    /// Whether what is claimed already goes out although more is asked for. The only server there is gets
    /// its time.
    fn goes_out(&self, places: usize) -> bool {
        let waits = self.hopeful > 0 && (places == 1 || self.asked_at.elapsed() < IN_HAND_WITHIN);
        !self.handed.is_empty() && !self.asking.is_empty() && !waits
    }

    /// Takes in what a claim brought. What is beyond the ask is given back.
    fn take_in(&mut self, mut more: HandedOver) -> Option<HandedOver> {
        let beyond = more.messages.split_off(more.messages.len().min(self.room));
        let back = HandedOver { shard: more.shard.clone(), messages: beyond };
        self.room -= more.messages.len();
        if !more.messages.is_empty() {
            self.handed.push(more);
        }
        (!back.messages.is_empty()).then_some(back)
    }

    /// Whether one more shard may be asked of `places` servers.
    fn may_ask(&self, places: usize) -> bool {
        match self.asking.len() {
            0 => true,
            ASKING_MAX.. => false,
            _ => places > 1 && self.hesitates(),
        }
    }

    /// While one server hesitates, only those are asked that do not. What is claimed already is not kept
    /// waiting by one that does, nor a consumer for longer than it wants to wait.
    fn bounds(&self) -> Bounds {
        let nothing_yet = self.handed.is_empty() && self.asking.is_empty();
        let patient = nothing_yet && (self.failed.is_none() || Instant::now() < self.until);
        Bounds { patient, ..Bounds::claims(CLAIMS_IN_FLIGHT) }
    }
}

#[async_trait]
impl Consumers for EngineConsumers {
    async fn claim(&self, topic: &TopicName, ask: ClaimAsk) -> Result<Vec<HandedOver>, StoreError> {
        let now = Instant::now();
        let mut asker = Asker {
            until: now + ask.wait.min(CLAIM_WAIT_MAX),
            room: ask.max.clamp(1, BATCH_ITEMS_MAX),
            handed: Vec::new(),
            asking: FuturesUnordered::new(),
            asked_at: now,
            hopeful: 0,
            answered: false,
            failed: None,
        };
        // One look tells what no hint has told yet; from then on the pace tells.
        let mut look = self.look(self.find(topic).await?, asker.bounds());
        loop {
            if self.stop.is_cancelled() {
                return Ok(asker.handed);
            }
            let work = self.find(topic).await?;
            if asker.goes_out(work.lane.places()) {
                return Ok(asker.handed);
            }
            let (room, bounds, may_ask, idle) =
                (asker.room, asker.bounds(), asker.may_ask(work.lane.places()), asker.asking.is_empty());
            let nothing_more = if asker.handed.is_empty() { asker.until } else { Instant::now() };
            let looked_enough = look.is_none() || !asker.handed.is_empty();
            let again_at = asker.asked_at + if asker.handed.is_empty() { HESITATES } else { IN_HAND_WITHIN };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(asker.handed),
                Some((is_doubtful, answer)) = asker.asking.next() => {
                    asker.hopeful -= usize::from(!is_doubtful);
                    match answer {
                        Ok(Some(more)) => {
                            if let Some(back) = asker.take_in(more) {
                                let work = work.clone();
                                self.tracker.spawn(async move { work.give_back(back.shard.index, back.messages).await });
                            }
                            if asker.room == 0 || asker.bytes() >= ANSWER_BYTES_MAX {
                                return Ok(asker.handed);
                            }
                        }
                        Ok(None) => asker.answered = true,
                        // What was claimed already goes out; the trouble shows in the next claim.
                        Err(_) if !asker.handed.is_empty() => return Ok(asker.handed),
                        Err(error) if work.lane.places() == 1 || !error.is_transient() => return Err(error),
                        Err(error) => {
                            asker.failed = Some(error);
                            // Whether the others have nothing due or are silent too is not known yet.
                            if !asker.answered && asker.asking.is_empty() && look.is_none() {
                                look = self.look(work, asker.bounds());
                            }
                        }
                    }
                }
                (taken, tokens) = self.next(&work, room, bounds), if may_ask => {
                    asker.asked_at = Instant::now();
                    let longest = asker.asked_at + CLAIM_WITHIN;
                    // The only server there is may take as long as the consumer does.
                    let longest = if work.lane.places() == 1 { longest.max(asker.until) } else { longest };
                    let is_doubtful = taken.is_doubtful;
                    asker.hopeful += usize::from(!is_doubtful);
                    let answer = self.ask(work, taken, tokens, ask.visibility);
                    asker.asking.push(Box::pin(async move { (is_doubtful, answer.within(longest).await) }));
                }
                looked = looked(&mut look) => match looked {
                    Ok(()) => asker.answered = true,
                    Err(error) if asker.asking.is_empty() && asker.handed.is_empty() => return Err(error),
                    Err(error) => asker.failed = Some(error),
                },
                () = tokio::time::sleep_until(nothing_more), if looked_enough && idle => {
                    return asker.end();
                }
                () = tokio::time::sleep_until(again_at), if !idle && again_at > Instant::now() => {}
            }
        }
    }
}

/// The end of a look, if one is under way.
async fn looked(look: &mut Option<Look>) -> Result<(), StoreError> {
    match look {
        Some(under_way) => {
            let looked = under_way.await;
            *look = None;
            looked
        }
        None => std::future::pending().await,
    }
}

/// The answer to one claim under way. What nobody takes out of it is given back.
struct Awaited {
    answer: oneshot::Receiver<Result<Option<HandedOver>, StoreError>>,
    work: Work,
    tracker: TaskTracker,
}

impl Awaited {
    /// What the claim brings until then. What it brings later is given back.
    async fn within(mut self, until: Instant) -> Result<Option<HandedOver>, StoreError> {
        match tokio::time::timeout_at(until, &mut self.answer).await {
            Ok(Ok(answer)) => answer,
            // The node stops.
            Ok(Err(_)) => Ok(None),
            Err(_) => {
                Err(StoreError::Unavailable { doing: "claim", source: "no answer from the shard in time".into() })
            }
        }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.answer.close();
        // It may have come a moment before nobody waits for it any more.
        if let Ok(Ok(Some(handed))) = self.answer.try_recv() {
            let work = self.work.clone();
            self.tracker.spawn(async move { work.give_back(handed.shard.index, handed.messages).await });
        }
    }
}

impl EngineConsumers {
    /// The topic, if consumers may claim from it. One that was created a moment ago is waited for.
    async fn find(&self, topic: &TopicName) -> Result<Work, StoreError> {
        let mut taken_in = self.taken_in.clone();
        let until = Instant::now() + TAKE_IN_WAIT;
        loop {
            taken_in.mark_unchanged();
            if let Some(work) = self.open.read().get(topic).cloned() {
                return Ok(work);
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

    /// A look at a topic of which nothing is known to be due.
    fn look(&self, work: Work, bounds: Bounds) -> Option<Look> {
        if work.lane.has_due(bounds) {
            return None;
        }
        let pace = self.pace.clone();
        Some(Box::pin(async move { pace.look_at(&work.lane).await }))
    }

    /// Waits for a shard that is due and for leave to claim up to `max` from it. Holds nothing while it
    /// waits, so it may be dropped any time.
    async fn next(&self, work: &Work, max: usize, bounds: Bounds) -> (Taken, usize) {
        let _turn = work.lane.turn.lock().await;
        loop {
            work.rate.available().await;
            work.lane.due(|| bounds).await;
            let tokens = work.rate.take(max);
            if tokens == 0 {
                continue;
            }
            match work.lane.take(bounds) {
                Some(taken) => return (taken, tokens),
                None => work.rate.give_back(tokens),
            }
        }
    }

    /// Claims in the background, whether the consumer waits for it or not.
    fn ask(&self, work: Work, taken: Taken, tokens: usize, visibility: Option<Duration>) -> Awaited {
        let (to, answer) = oneshot::channel();
        let awaited = Awaited { answer, work: work.clone(), tracker: self.tracker.clone() };
        // A claim whose answer was lost was another's: its messages go back and are claimed anew.
        let repeated = taken.repeat.is_some();
        let request = taken.repeat.unwrap_or_else(|| own_request(&work, tokens, visibility));
        self.tracker.spawn(async move {
            let (answered, has_stalled) = work.ask(taken.shard, request, || work.rate.give_back(tokens)).await;
            let tokens = if has_stalled { 0 } else { tokens };
            work.note(&answered);
            let Answer { shard, claim, sent, .. } = answered;
            let claim = match claim {
                Ok(claim) => claim,
                Err(error) => {
                    work.rate.give_back(tokens);
                    let _ = to.send(Err(error));
                    return;
                }
            };
            let brought = claim.messages.len();
            if repeated {
                work.rate.give_back(tokens);
                work.release(shard.index, claim.messages).await;
                let _ = to.send(Ok(None));
                return;
            }
            work.rate.give_back(tokens.saturating_sub(brought));
            work.rate.take(brought.saturating_sub(tokens));
            if brought == 0 {
                let _ = to.send(Ok(None));
                return;
            }
            let lateness: Vec<Duration> = claim.messages.iter().map(|m| claim.now.since(m.due_at)).collect();
            let index = shard.index;
            match to.send(Ok(Some(HandedOver { shard, messages: claim.messages }))) {
                Ok(()) => {
                    let took = sent.elapsed();
                    for late in lateness {
                        work.topic_meters.lateness.observe((late + took).as_secs_f64());
                        work.topic_meters.claim_delay.observe(late.as_secs_f64());
                        work.topic_meters.hand_over.observe(took.as_secs_f64());
                    }
                    // The consumer settles them from here on.
                    work.lane.settled(index, brought);
                }
                Err(unwanted) => {
                    work.rate.give_back(brought);
                    if let Ok(Some(handed)) = unwanted {
                        debug!(topic = %work.record.name, brought, "the consumer went away, messages are given back");
                        work.release(index, handed.messages).await;
                    }
                }
            }
        });
        awaited
    }
}

fn own_request(work: &Work, limit: usize, visibility: Option<Duration>) -> ClaimRequest {
    let visibility = visibility.unwrap_or(work.record.config.visibility_timeout);
    ClaimRequest { visibility, class: LeaseClass::for_visibility(visibility), ..work.request(limit) }
}

impl Work {
    /// Gives messages back that nobody was given, and holds them no longer.
    async fn release(&self, index: u32, messages: Vec<ClaimedMessage>) {
        let count = messages.len();
        self.give_back(index, messages).await;
        self.lane.settled(index, count);
    }

    async fn give_back(&self, index: u32, messages: Vec<ClaimedMessage>) {
        let (gone, held): (Vec<_>, Vec<_>) =
            messages.into_iter().partition(|message| message.score == Receipt::SETTLED);
        if !gone.is_empty() {
            self.topic_meters.count(Event::Dead, gone.len() as u64);
            warn!(topic = %self.record.name, dropped = gone.len(), "at-most-once messages had no taker and are gone");
        }
        let release =
            |message: ClaimedMessage| Settle { id: message.id, score: message.score, how: Settlement::Release };
        let batch: Vec<Settle> = held.into_iter().map(release).collect();
        let mut tries = 0;
        while !batch.is_empty() {
            match self.store.settle(&self.lane.shard(index), self.clock.now(), &batch).await {
                Ok(_) => {
                    self.lane.hint(index, self.clock.now());
                    break;
                }
                Err(error) => {
                    self.health.failed(&error);
                }
            }
            tries += 1;
            if tries == RELEASE_TRIES {
                break;
            }
            tokio::time::sleep(crate::config::store_backoff(tries)).await;
        }
    }
}
