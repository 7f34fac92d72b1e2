//! One claim for a consumer, from one shard.
//!
//! It runs in a task of its own: a consumer may go away, or go on because the shard's answer is slow. Whatever
//! the claim brings is [`Given`], which goes back to the shard, and costs no attempt, unless it is handed out. At most
//! once, too: what is handed out is removed from its shard just before, and only what that removed is handed out. So
//! nothing that was removed is ever put back, where a cancel may have been answered meanwhile.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::{ClaimRequest, ClaimedMessage, Settle, Settled, Settlement};
use duetime_core::{ClaimedBatch, DeliveryMode, GoBack, HeldBudget, LeaseClass, Receipt, Shard, StoreError, Timestamp};
use duetime_metrics::Event;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::budget::Permit;
use crate::claimer::ClaimAnswer;
use crate::in_flight::InFlightGuard;
use crate::schedule::Taken;
use crate::work::{Work, bytes_of, deadline_of};

/// Of a claim at least this share is left when its messages are handed out: a quarter.
const LEFT_SHARE: u32 = 4;
/// How often a release is tried while the store does not answer.
const RELEASE_TRIES: u32 = 5;

/// Messages that were claimed for a consumer. Dropped, they go back at once.
#[derive(Debug)]
pub(crate) struct Given {
    work: Work,
    tracker: TaskTracker,
    shard: Shard,
    messages: Vec<ClaimedMessage>,
    guard: Option<InFlightGuard>,
    /// The store's time, at or after `sent`, by the earlier and the later clock.
    now: Timestamp,
    later: Timestamp,
    sent: Instant,
}

impl Given {
    pub(crate) fn messages(&self) -> &[ClaimedMessage] {
        &self.messages
    }

    /// Whether it is one message that may kill its consumer.
    pub(crate) fn is_alone(&self) -> bool {
        let retry = &self.work.record.config.retry;
        self.messages.iter().any(|message| message.suspect && retry.suspect_is_alone(message.attempt - 1))
    }

    /// Whether so little is left of the claim that nobody is to begin with its messages: others may have had them by
    /// now, and a user may have been answered that they are cancelled.
    pub(crate) fn is_too_late(&self) -> bool {
        let deadline = self.messages.iter().map(|message| deadline_of(message.score, self.later, self.sent)).min();
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        deadline.is_some_and(|deadline| left(deadline) * LEFT_SHARE < deadline.duration_since(self.sent))
    }

    /// At most once, removes the messages from the shard, in the background; else they stay claimed. `None`: the node
    /// stops.
    pub(crate) async fn ready_to_go(self) -> Option<Self> {
        if !self.work.at_most_once() {
            return Some(self);
        }
        let (to, removed) = oneshot::channel();
        self.tracker.clone().spawn(async move {
            // Who asked may have gone: what was removed is dropped, and counted.
            let _ = to.send(self.removed().await);
        });
        removed.await.ok()
    }

    /// Removes the messages; those that others hold by now, or that were cancelled, are left out.
    async fn removed(mut self) -> Self {
        let messages = std::mem::take(&mut self.messages);
        let ack = |one: &ClaimedMessage| Settle { id: one.id.clone(), score: one.score, how: Settlement::Ack };
        let batch: Vec<Settle> = messages.iter().map(ack).collect();
        match self.work.settle(&self.shard, self.work.clock.now(), &batch).await {
            Ok(settled) => {
                let removed = messages.into_iter().zip(settled).filter(|(_, settled)| *settled == Settled::Ok);
                self.messages =
                    removed.map(|(message, _)| ClaimedMessage { score: Receipt::SETTLED, ..message }).collect();
            }
            Err(error) => {
                self.work.health.failed(&error);
                let why = format!("whether they were removed is not known: {error}");
                nobody_has(&self.work, messages.len(), &why);
            }
        }
        self
    }

    /// Takes out all but the first `count` messages.
    #[must_use]
    pub(crate) fn split_off(&mut self, count: usize) -> Option<Self> {
        if count >= self.messages.len() {
            return None;
        }
        let messages = self.messages.split_off(count);
        let guard = self.guard.as_mut().map(|guard| guard.split(messages.len(), messages.iter().map(bytes_of).sum()));
        let (work, tracker, shard) = (self.work.clone(), self.tracker.clone(), self.shard.clone());
        Some(Self { work, tracker, shard, messages, guard, now: self.now, later: self.later, sent: self.sent })
    }

    /// The consumer settles them, once the answer with them is on its way.
    pub(crate) fn hand_out(mut self) -> ClaimedBatch {
        let took = self.sent.elapsed();
        for message in &self.messages {
            let waited = self.now.since(message.due_at);
            self.work.topic_meters.lateness.observe((waited + took).as_secs_f64());
            self.work.topic_meters.claim_delay.observe(waited.as_secs_f64());
            self.work.topic_meters.delivery.observe(took.as_secs_f64());
        }
        let held = self.guard.take().map(|guard| HeldBudget::new(guard.into_permit())).unwrap_or_default();
        let messages = Arc::new(std::mem::take(&mut self.messages));
        let (work, tracker, index, back) =
            (self.work.clone(), self.tracker.clone(), self.shard.index, Arc::clone(&messages));
        let go_back = GoBack::new(move || go_back(work, &tracker, index, back.to_vec(), None));
        ClaimedBatch { shard: self.shard.clone(), messages, held, go_back }
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        let (messages, guard) = (std::mem::take(&mut self.messages), self.guard.take());
        go_back(self.work.clone(), &self.tracker, self.shard.index, messages, guard);
    }
}

/// Counts what was removed at most once and has no taker, or may have been: those that were not removed are due again
/// when their claim ends.
fn nobody_has(work: &Work, count: usize, why: &str) {
    work.topic_meters.count(Event::Dead, count as u64);
    warn!(topic = %work.record.name, count, why, "at-most-once messages had no taker and are gone");
}

/// Gives back, in the background, what was claimed for a consumer that does not get it.
fn go_back(work: Work, tracker: &TaskTracker, index: u32, messages: Vec<ClaimedMessage>, guard: Option<InFlightGuard>) {
    // Without a runtime the program has ended.
    if messages.is_empty() || tokio::runtime::Handle::try_current().is_err() {
        return;
    }
    let (removed, messages): (Vec<_>, Vec<_>) =
        messages.into_iter().partition(|message| message.score == Receipt::SETTLED);
    if !removed.is_empty() {
        nobody_has(&work, removed.len(), "the consumer went away as it was answered");
    }
    debug!(topic = %work.record.name, count = messages.len(), "nobody takes what was claimed, it is given back");
    work.rate.give_back(messages.len());
    tracker.spawn(async move {
        release(&work, index, messages).await;
        drop(guard);
    });
}

/// Claims in the background, whether the consumer waits for it or not. Answers what the claim brings until
/// `longest`; `None`: nothing.
pub(crate) fn ask(
    work: Work,
    tracker: TaskTracker,
    taken: Taken,
    permit: Permit,
    visibility: Option<Duration>,
    longest: Instant,
) -> impl Future<Output = Result<Option<Given>, StoreError>> + Send {
    let (to, answer) = oneshot::channel();
    tracker.clone().spawn(async move {
        // Who asked may have gone: what it does not receive is dropped, and so given back.
        let _ = to.send(claim(work, tracker, taken, permit, visibility).await);
    });
    async move {
        match tokio::time::timeout_at(longest, answer).await {
            Ok(Ok(answer)) => answer,
            // The node stops.
            Ok(Err(_)) => Ok(None),
            Err(_) => {
                Err(StoreError::Unavailable { doing: "claim", source: "no answer from the shard in time".into() })
            }
        }
    }
}

async fn claim(
    work: Work,
    tracker: TaskTracker,
    mut taken: Taken,
    mut permit: Permit,
    visibility: Option<Duration>,
) -> Result<Option<Given>, StoreError> {
    let tokens = permit.messages();
    // A claim whose answer was lost was another's: its messages go back and are claimed anew.
    let repeat = taken.repeat.take();
    let is_repeated = repeat.is_some();
    let request = repeat.unwrap_or_else(|| own_request(&work, tokens, visibility));
    let stalled = || {
        work.rate.give_back(tokens);
        permit.set(0, 0);
    };
    let (mut answer, has_stalled) = work.ask(taken, request, stalled).await;
    work.note(&mut answer);
    let ClaimAnswer { taken, claim, sent, .. } = answer;
    let (now, later, messages) = match claim {
        Ok(claim) => (claim.now, claim.later, claim.messages),
        Err(error) => {
            work.rate.give_back(if has_stalled { 0 } else { tokens });
            return Err(error);
        }
    };
    let (brought, bytes) = (messages.len(), messages.iter().map(bytes_of).sum());
    let tokens = if has_stalled { 0 } else { tokens };
    work.rate.give_back(tokens.saturating_sub(brought));
    work.rate.take(brought.saturating_sub(tokens));
    permit.set(brought, bytes);
    let shard = taken.shard.clone();
    let guard = Some(InFlightGuard::new(work.schedule.clone(), shard.index, permit));
    let given = Given { work, tracker, shard, messages, guard, now, later, sent };
    Ok((brought > 0 && !is_repeated).then_some(given))
}

fn own_request(work: &Work, limit: usize, visibility: Option<Duration>) -> ClaimRequest {
    let visibility = visibility.unwrap_or(work.record.config.visibility_timeout);
    let (class, delivery) = (LeaseClass::for_visibility(visibility), DeliveryMode::AtLeastOnce);
    ClaimRequest { visibility, class, delivery, ..work.request(limit) }
}

/// Gives messages back that nobody was given.
async fn release(work: &Work, index: u32, messages: Vec<ClaimedMessage>) {
    let release = |ClaimedMessage { id, score, suspect, .. }: ClaimedMessage| {
        // That an earlier claim of it ended without a verdict stays.
        let marked = Settlement::Unanswered { wait: Duration::ZERO, charged: false };
        Settle { id, score, how: if suspect { marked } else { Settlement::Release } }
    };
    let batch: Vec<Settle> = messages.into_iter().map(release).collect();
    let mut tries = 0;
    while !batch.is_empty() {
        match work.settle(&work.schedule.shard(index), work.clock.now(), &batch).await {
            Ok(_) => {
                work.schedule.hint(index, work.clock.now());
                break;
            }
            Err(error) => {
                work.health.failed(&error);
            }
        }
        tries += 1;
        if tries == RELEASE_TRIES {
            break;
        }
        tokio::time::sleep(crate::config::store_backoff(tries)).await;
    }
}
