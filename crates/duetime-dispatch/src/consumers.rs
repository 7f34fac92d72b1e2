//! Hands due messages to consumers of topics without a sink: long polling that never polls the store.
//!
//! Upstream: the front door. Downstream: `lane`, `Store`. A waiter waits for its turn, then for a
//! shard to fall due. The claim runs in a task of its own: if the waiter has gone away meanwhile, what
//! was claimed for it is released and costs no attempt.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_WAIT_MAX};
use duetime_core::store::{ClaimRequest, ClaimedMessage, Settle, Settlement};
use duetime_core::{ClaimAsk, Consumers, HandedOver, LeaseClass, Receipt, StoreError, TopicName, Topics};
use duetime_metrics::Event;
use parking_lot::RwLock;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::claimer::Answer;
use crate::lane::Taken;
use crate::pace::Pace;
use crate::work::Work;

/// A topic that was created is claimed from at the latest this long after.
const TAKE_IN_WAIT: Duration = Duration::from_secs(1);

/// A consumer is given no further shard's messages once its payloads have so many bytes. A claim of one
/// shard brings `CLAIM_BYTES_MAX`, or one message, on top at most.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// How often a release is tried while the store does not answer.
const RELEASE_TRIES: u32 = 5;

/// The topics without a sink and what is needed to claim from them.
pub(crate) type Open = RwLock<std::collections::HashMap<TopicName, Work>>;

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

#[async_trait]
impl Consumers for EngineConsumers {
    async fn claim(&self, topic: &TopicName, ask: ClaimAsk) -> Result<Vec<HandedOver>, StoreError> {
        let until = Instant::now() + ask.wait.min(CLAIM_WAIT_MAX);
        let max = ask.max.clamp(1, BATCH_ITEMS_MAX);
        let mut handed: Vec<HandedOver> = Vec::new();
        let mut room = max;
        let (mut looked, mut bytes) = (false, 0);
        loop {
            if self.stop.is_cancelled() {
                return Ok(handed);
            }
            let work = self.find(topic).await?;
            // One look tells what no hint has told yet; from then on the pace tells.
            if !looked && !work.lane.has_due() {
                self.pace.look_at(&work.lane).await?;
            }
            looked = true;
            let Some((taken, tokens)) =
                self.next(&work, room, if handed.is_empty() { until } else { Instant::now() }).await
            else {
                return Ok(handed);
            };
            match self.claim_for(work, taken, tokens, ask.visibility).await {
                Ok(Some(more)) => {
                    bytes += more.messages.iter().map(|message| message.payload.len()).sum::<usize>();
                    room -= more.messages.len();
                    handed.push(more);
                }
                Ok(None) => {}
                // What was claimed already goes out; the trouble shows in the next claim.
                Err(_) if !handed.is_empty() => return Ok(handed),
                Err(error) => return Err(error),
            }
            if room == 0 || bytes >= ANSWER_BYTES_MAX {
                return Ok(handed);
            }
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

    /// Waits until `until` for a shard that is due and for leave to claim up to `max` from it.
    async fn next(&self, work: &Work, max: usize, until: Instant) -> Option<(Taken, usize)> {
        let wait = async {
            let _turn = work.lane.turn.lock().await;
            loop {
                work.rate.available().await;
                work.lane.due().await;
                let tokens = work.rate.take(max);
                if tokens == 0 {
                    continue;
                }
                match work.lane.take() {
                    Some(taken) => return (taken, tokens),
                    None => work.rate.give_back(tokens),
                }
            }
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            found = wait => Some(found),
            () = tokio::time::sleep_until(until) => None,
        }
    }

    async fn claim_for(
        &self,
        work: Work,
        taken: Taken,
        tokens: usize,
        visibility: Option<Duration>,
    ) -> Result<Option<HandedOver>, StoreError> {
        let (to, answer) = oneshot::channel();
        // A claim whose answer was lost was another's: its messages go back and are claimed anew.
        let repeated = taken.repeat.is_some();
        let request = taken.repeat.unwrap_or_else(|| own_request(&work, tokens, visibility));
        self.tracker.spawn(async move {
            let answered = work.ask(taken.shard, request).await;
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
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Ok(None),
        }
    }
}

fn own_request(work: &Work, limit: usize, visibility: Option<Duration>) -> ClaimRequest {
    let own = work.record.config.visibility_timeout;
    let visibility = visibility.unwrap_or(own);
    ClaimRequest { visibility, class: LeaseClass::for_visibility(visibility, own), ..work.request(limit) }
}

impl Work {
    /// Gives messages back that nobody was given.
    async fn release(&self, index: u32, messages: Vec<ClaimedMessage>) {
        let count = messages.len();
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
        self.lane.settled(index, count);
    }
}
