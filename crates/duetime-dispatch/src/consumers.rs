//! Hands due messages to consumers of topics without a sink: long polling that never polls the store.
//!
//! Upstream: the HTTP API. Downstream: `schedule`, `asker`. A waiter waits for its turn, then for shards to fall due,
//! and claims from the first of them, which takes its turn again behind the others. One that is known to have enough
//! fills the claim alone; else those that are due are asked side by side in the same turn, until the claim is full or
//! nothing more is due. What is in hand waits a tenth of a second at most for a shard whose answer is slow. Whatever
//! is not handed out goes back, see `consumer_claim`.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::{ClaimAsk, ClaimedBatch, Consumers, StoreError, TopicName, Topics};
use duetime_metrics::TopicMeters;
use futures::StreamExt;
use parking_lot::RwLock;
use tokio::sync::{MutexGuard, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::asker::{Asker, HELD_SHARE, too_late};
use crate::budget::Permit;
use crate::config::CLAIMS_IN_FLIGHT;
use crate::consumer_claim::Brought;
use crate::schedule::Taken;
use crate::scheduler::Scheduler;
use crate::server_load::Bounds;
use crate::work::Work;

/// A topic that was created is claimed from at the latest this long after.
const TAKE_IN_WAIT: Duration = Duration::from_secs(1);

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

#[async_trait]
impl Consumers for EngineConsumers {
    async fn claim(&self, topic: &TopicName, wanted: ClaimAsk) -> Result<Vec<ClaimedBatch>, StoreError> {
        // The end of the node waits for what this gives back.
        let _under_way = self.tracker.token();
        let mut asker = Asker::new(wanted);
        let mut asks = None;
        loop {
            let open = self.find(topic).await?;
            if open.work.at_most_once() && !wanted.may_remove {
                let why = format!("topic {topic:?} delivers at most once; claim from it alone");
                return Err(StoreError::Setup(why));
            }
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

    fn has_due(&self, topic: &TopicName) -> bool {
        let open = self.open.read();
        let work = open.get(topic).map(|open| &open.work).filter(|work| !work.record.config.paused);
        work.is_some_and(|work| work.schedule.has_due(Bounds::claims(CLAIMS_IN_FLIGHT)))
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
            if self.stop.is_cancelled() || asker.goes_out(work) || asker.gives_up() {
                return Ok(());
            }
            let (bounds, may_ask, idle) = (asker.bounds(), asker.may_ask(work), asker.asking.is_empty());
            let (others, room) = (asker.others(), asker.room());
            let nothing_more = asker.given.is_empty().then_some(asker.until);
            let polled_enough = poll.is_none() || !asker.given.is_empty();
            let again_at = asker.again_at(work);
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                Some(asked) = asker.asking.next() => {
                    asker.heard(&asked);
                    asker.found_none = matches!(asked.answer, Ok(Brought::Unfit));
                    match asked.answer {
                        Ok(Brought::Messages(more)) => {
                            asker.take_in(*more);
                            if asker.is_full() {
                                return Ok(());
                            }
                            // What went back is due at once, and would be claimed and come too late for ever.
                            if asker.came_too_late && asker.given.is_empty() && asker.until <= Instant::now() {
                                return Err(too_late());
                            }
                        }
                        Ok(Brought::Unfit | Brought::Nothing) => asker.answered = true,
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
                (taken, permit, _turn) = next(work, room, others, bounds), if may_ask => {
                    asker.ask(work, &self.tracker, taken, permit);
                    // One answer with what is due in several shards costs less than an answer for each.
                    while asker.may_ask(work)
                        && let Some((taken, permit)) = take(work, asker.room(), asker.others(), asker.bounds())
                    {
                        asker.ask(work, &self.tracker, taken, permit);
                    }
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
        let wait = asker.until.saturating_duration_since(Instant::now());
        Some(Box::pin(
            async move { schedule.shared_polls.wait_or_poll(wait, || scheduler.poll_topic(&schedule)).await },
        ))
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

/// Waits until this moment. Without one returns at once: a sleep until now may last as long as the runtime's timer is
/// coarse, 2 ms.
async fn at_or_now(at: Option<Instant>) {
    if let Some(at) = at {
        tokio::time::sleep_until(at).await;
    }
}

/// Waits for its turn, for a shard that is due, and for leave to claim its part of `room` messages. Holds only the turn
/// while it waits, so it may be dropped any time.
async fn next(work: &Work, room: usize, others: usize, bounds: Bounds) -> (Taken, Permit, MutexGuard<'_, ()>) {
    let turn = work.schedule.turn.lock().await;
    loop {
        work.rate.available().await;
        work.budget.available().await;
        work.schedule.due(|| bounds).await;
        if let Some((taken, permit)) = take(work, room, others, bounds) {
            return (taken, permit, turn);
        }
    }
}

/// Takes a shard that is due, and leave to claim its part of `room` messages.
fn take(work: &Work, room: usize, others: usize, bounds: Bounds) -> Option<(Taken, Permit)> {
    let Work { schedule, rate, budget, .. } = work;
    let mut permit = budget.reserve(schedule.part(bounds, room, others))?;
    let tokens = rate.take(permit.messages());
    let taken = if tokens > 0 { schedule.take(bounds) } else { None };
    let Some(taken) = taken else {
        rate.give_back(tokens);
        return None;
    };
    drop(permit.split(permit.messages() - tokens, 0));
    Some((taken, permit))
}
