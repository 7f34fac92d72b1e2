//! One claim for a consumer, from one shard.
//!
//! It runs in a task of its own: a consumer may go away, or go on because the shard's answer is slow. Whatever
//! the claim brings is [`Given`], which goes back to the shard, and costs no attempt, unless it is handed out. What
//! an at-most-once claim brings is in no shard any more: it is scheduled again.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::{ClaimRequest, ClaimedMessage, Settle, Settlement};
use duetime_core::{ClaimedBatch, GoBack, HeldBudget, LeaseClass, Receipt, Shard, StoreError, Timestamp};
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
/// How often it is tried to schedule messages again that are nowhere but in this node: for about a minute.
const REINSTATE_TRIES: u32 = 64;

/// Messages that were claimed for a consumer. Dropped, they go back at once.
#[derive(Debug)]
pub(crate) struct Given {
    work: Work,
    tracker: TaskTracker,
    shard: Shard,
    messages: Vec<ClaimedMessage>,
    guard: Option<InFlightGuard>,
    /// The store's time, at or after `sent`.
    now: Timestamp,
    sent: Instant,
}

impl Given {
    pub(crate) fn messages(&self) -> &[ClaimedMessage] {
        &self.messages
    }

    /// Whether so little is left of the claim that nobody is to begin with its messages: others may have had them by
    /// now, and a user may have been answered that they are cancelled.
    pub(crate) fn is_too_late(&self) -> bool {
        // What was removed as it was claimed has no deadline: nobody else can have it.
        let claimed = self.messages.iter().filter(|message| message.score != Receipt::SETTLED);
        let deadline = claimed.map(|message| deadline_of(message.score, self.now, self.sent)).min();
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        deadline.is_some_and(|deadline| left(deadline) * LEFT_SHARE < deadline.duration_since(self.sent))
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
        Some(Self { work, tracker, shard, messages, guard, now: self.now, sent: self.sent })
    }

    /// The consumer settles them, once the answer with them is on its way.
    pub(crate) fn hand_out(mut self) -> ClaimedBatch {
        let took = self.sent.elapsed();
        for message in &self.messages {
            let waited = self.now.since(message.due_at);
            self.work.topic_meters.lateness.observe((waited + took).as_secs_f64());
            self.work.topic_meters.claim_delay.observe(waited.as_secs_f64());
            self.work.topic_meters.hand_over.observe(took.as_secs_f64());
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

/// Gives back, in the background, what was claimed for a consumer that does not get it.
fn go_back(work: Work, tracker: &TaskTracker, index: u32, messages: Vec<ClaimedMessage>, guard: Option<InFlightGuard>) {
    // Without a runtime the program has ended.
    if messages.is_empty() || tokio::runtime::Handle::try_current().is_err() {
        return;
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
    let (now, messages) = match claim {
        Ok(claim) => (claim.now, claim.messages),
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
    let given = Given { work, tracker, shard, messages, guard, now, sent };
    Ok((brought > 0 && !is_repeated).then_some(given))
}

fn own_request(work: &Work, limit: usize, visibility: Option<Duration>) -> ClaimRequest {
    let visibility = visibility.unwrap_or(work.record.config.visibility_timeout);
    ClaimRequest { visibility, class: LeaseClass::for_visibility(visibility), ..work.request(limit) }
}

/// Gives messages back that nobody was given.
async fn release(work: &Work, index: u32, messages: Vec<ClaimedMessage>) {
    let (gone, held): (Vec<_>, Vec<_>) = messages.into_iter().partition(|message| message.score == Receipt::SETTLED);
    reinstate(work, index, gone).await;
    let release = |message: ClaimedMessage| Settle { id: message.id, score: message.score, how: Settlement::Release };
    let batch: Vec<Settle> = held.into_iter().map(release).collect();
    let mut tries = 0;
    while !batch.is_empty() {
        match work.store.settle(&work.schedule.shard(index), work.clock.now(), &batch).await {
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

/// Schedules again what an at-most-once claim brought for nobody.
async fn reinstate(work: &Work, index: u32, messages: Vec<ClaimedMessage>) {
    let mut tries = 0;
    while !messages.is_empty() {
        tries += 1;
        let why = match work.reinstate.reinstate(&work.schedule.shard(index), &messages).await {
            Ok(done) => {
                work.schedule.hint(index, work.clock.now());
                let unneeded = done.iter().filter(|done| !**done).count();
                debug!(topic = %work.record.name, scheduled = done.len() - unneeded, unneeded, "scheduled again");
                return;
            }
            Err(error) => error,
        };
        work.health.failed(&why);
        if tries == REINSTATE_TRIES {
            work.topic_meters.count(Event::Dead, messages.len() as u64);
            warn!(
                topic = %work.record.name, dropped = messages.len(), error = %why,
                "at-most-once messages had no taker, could not be scheduled again, and are gone"
            );
            return;
        }
        tokio::time::sleep(crate::config::store_backoff(tries)).await;
    }
}
