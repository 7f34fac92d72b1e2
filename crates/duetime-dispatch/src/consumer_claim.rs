//! One claim for a consumer, from one shard.
//!
//! The claim runs in a task of its own: a consumer may go away, or go on because the shard's answer is slow. The claimed
//! messages are a [`ConsumerBatch`], which is released at no cost of an attempt unless it goes into an answer. With
//! at-most-once delivery too: messages are removed from their shard just before the answer, and only what that removed is
//! answered. So no removed message is ever put back, after a cancel may have been answered.
//!
//! A claim hides all that it takes for one visibility timeout. Where the consumer asked for none, a message with one of
//! its own is extended to that just before the answer.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::{ClaimRequest, ClaimedMessage, Settle, Settled, Settlement};
use duetime_core::{
    ClaimedBatch, DeliveryMode, HeldBudget, LeaseClass, Receipt, ReleaseAction, RetryPolicy, Shard, StoreError,
    Timestamp, own_visibility,
};
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

/// At least this share of a claim is left when its messages go into an answer: a quarter.
const LEFT_SHARE: u32 = 4;
/// How often a release is tried while the store does not answer.
const RELEASE_TRIES: u32 = 5;
/// What was extended too slowly for its visibility timeout is due again after this: behind what is due by then, so that
/// it does not keep that from being claimed.
const SLOW_WAIT: Duration = Duration::from_millis(100);

/// Messages that were claimed for a consumer. They are released when it is dropped.
#[derive(Debug)]
pub(crate) struct ConsumerBatch {
    work: Work,
    tracker: TaskTracker,
    shard: Shard,
    messages: Vec<ClaimedMessage>,
    guard: Option<InFlightGuard>,
    /// The consumer asked for a visibility timeout: no message has another.
    is_asked: bool,
    /// The store's time, at or after `sent`, by the earlier and the later clock.
    now: Timestamp,
    later: Timestamp,
    sent: Instant,
    /// When those with a visibility timeout of their own were extended to that: the claim counts from then on for them.
    extended_at: Option<Instant>,
}

impl ConsumerBatch {
    pub(crate) fn messages(&self) -> &[ClaimedMessage] {
        &self.messages
    }

    /// True if the batch is one message that may kill its consumer.
    pub(crate) fn is_alone(&self) -> bool {
        let retry = &self.work.record.config.retry;
        let is_alone = |one: &ClaimedMessage| {
            one.suspect && RetryPolicy::suspect_is_alone(one.attempt - 1, retry.attempts_of(&one.headers))
        };
        self.messages.iter().any(is_alone)
    }

    /// True if so little is left of the claim that no consumer may start with its messages: another may have had them by
    /// now, and a cancel of them may have been answered.
    pub(crate) fn is_too_late(&self) -> bool {
        self.messages.iter().any(|message| self.is_late(message))
    }

    /// The same of one message.
    fn is_late(&self, message: &ClaimedMessage) -> bool {
        if message.score == Receipt::SETTLED {
            // What was removed nobody else can have.
            return false;
        }
        let (since, deadline) = match self.extended_at.zip(self.own_visibility(message)) {
            Some((since, visibility)) => (since, since + visibility),
            None => (self.sent, deadline_of(message.score, self.later, self.sent)),
        };
        deadline.saturating_duration_since(Instant::now()) * LEFT_SHARE < deadline.duration_since(since)
    }

    /// Releases the messages of whose claim too little is left by now. One with a short visibility timeout of its own
    /// takes none of the others along.
    #[must_use]
    pub(crate) fn without_late(mut self) -> Self {
        let messages = std::mem::take(&mut self.messages);
        let (late, in_time): (Vec<_>, Vec<_>) = messages.into_iter().partition(|message| self.is_late(message));
        self.messages = in_time;
        let at_once = (self.shard.index, Duration::ZERO);
        release_in_background(self.work.clone(), &self.tracker, at_once, late, None);
        self
    }

    /// True if nothing is asked of the store before its messages go out.
    pub(crate) fn is_ready(&self) -> bool {
        !self.work.at_most_once() && self.own_visibilities().is_empty()
    }

    /// The visibility timeout of the message's own, where that counts.
    fn own_visibility(&self, message: &ClaimedMessage) -> Option<Duration> {
        own_visibility::of(&message.headers).filter(|_| !self.is_asked)
    }

    /// With at-most-once delivery, removes the messages from the shard, in the background; else they stay claimed, those
    /// with a visibility timeout of their own for as long as that. `None`: the node stops, or the store did not say within
    /// `patience` that they are; what it says later is released.
    pub(crate) async fn ready_to_go(self, patience: Duration) -> Option<Self> {
        if self.is_ready() {
            return Some(self);
        }
        let is_removed = self.work.at_most_once();
        let (to, ready) = oneshot::channel();
        self.tracker.clone().spawn(async move {
            // The caller may have gone: what was removed is dropped, and counted; what was extended is released by the
            // score that it has now.
            let _ = to.send(if is_removed { self.removed().await } else { self.extended().await });
        });
        if is_removed { ready.await.ok() } else { tokio::time::timeout(patience, ready).await.ok()?.ok() }
    }

    /// The messages with a visibility timeout of their own that counts, by their places.
    fn own_visibilities(&self) -> Vec<(usize, Duration)> {
        let messages = self.messages.iter().enumerate();
        messages.filter_map(|(at, message)| Some((at, self.own_visibility(message)?))).collect()
    }

    /// Hides each message with a visibility timeout of its own for that. Those whose claim is over by now are left out,
    /// and so are all of which that is not known or too little is left: those are released.
    async fn extended(mut self) -> Self {
        let own = self.own_visibilities();
        let extend = |(at, visibility): &(usize, Duration)| {
            let ClaimedMessage { id, score, .. } = &self.messages[*at];
            let action = Settlement::Extend(*visibility, LeaseClass::for_visibility(*visibility));
            Settle { id: id.clone(), score: *score, action }
        };
        let batch: Vec<Settle> = own.iter().map(extend).collect();
        let sent = Instant::now();
        let settled = self.work.settle(&self.shard, self.work.clock.now(), &batch).await;
        let took = sent.elapsed();
        if let Err(error) = &settled {
            self.work.health.failed(error);
        }
        let (mut back, mut slow, mut earliest) = (Vec::new(), Vec::new(), None);
        let mut messages: Vec<Option<ClaimedMessage>> =
            std::mem::take(&mut self.messages).into_iter().map(Some).collect();
        for (n, (at, visibility)) in own.into_iter().enumerate() {
            let answer = settled.as_ref().ok().map(|settled| settled[n]);
            let message = messages[at].take().expect("each has one place");
            match answer {
                Some(Settled::Extended(score)) => {
                    let message = ClaimedMessage { score, ..message };
                    earliest = earliest.into_iter().chain([score.visible_at()]).min();
                    if visibility.saturating_sub(took) * LEFT_SHARE < visibility {
                        slow.push(message);
                    } else {
                        messages[at] = Some(message);
                    }
                }
                // It was cancelled, or another has it.
                Some(_) => {}
                // If it was extended all the same, its release does nothing, and it comes again when that ends.
                None => back.push(message),
            }
        }
        self.messages = messages.into_iter().flatten().collect();
        self.extended_at = Some(sent);
        if let Some(at) = earliest {
            self.work.schedule.hint(self.shard.index, at);
        }
        for (messages, wait) in [(back, Duration::ZERO), (slow, SLOW_WAIT)] {
            release_in_background(self.work.clone(), &self.tracker, (self.shard.index, wait), messages, None);
        }
        self
    }

    /// Removes the messages, but for those that another consumer holds by now, or that were cancelled.
    async fn removed(mut self) -> Self {
        let messages = std::mem::take(&mut self.messages);
        // An ack, repeated, counts as done where the message is gone: another consumer may have had it since.
        let remove = |one: &ClaimedMessage| Settle { id: one.id.clone(), score: one.score, action: Settlement::Remove };
        let batch: Vec<Settle> = messages.iter().map(remove).collect();
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

    /// Splits off all but the first `count` messages.
    #[must_use]
    pub(crate) fn split_off(&mut self, count: usize) -> Option<Self> {
        if count >= self.messages.len() {
            return None;
        }
        let messages = self.messages.split_off(count);
        let guard = self.guard.as_mut().map(|guard| guard.split(messages.len(), messages.iter().map(bytes_of).sum()));
        let (work, tracker, shard) = (self.work.clone(), self.tracker.clone(), self.shard.clone());
        let Self { is_asked, now, later, sent, extended_at, .. } = *self;
        Some(Self { work, tracker, shard, messages, guard, is_asked, now, later, sent, extended_at })
    }

    /// Turns the batch into an answer, whose messages the consumer settles once it is sent.
    pub(crate) fn into_answer(mut self) -> ClaimedBatch {
        let took = self.sent.elapsed();
        for message in &self.messages {
            let waited = self.now.since(message.due_at);
            self.work.topic_meters.lateness.observe((waited + took).as_secs_f64());
            self.work.topic_meters.claim_delay.observe(waited.as_secs_f64());
            self.work.topic_meters.delivery.observe(took.as_secs_f64());
        }
        let held = self.guard.take().map(|guard| HeldBudget::new(guard.into_permit())).unwrap_or_default();
        let messages = Arc::new(std::mem::take(&mut self.messages));
        let (work, tracker, back) = (self.work.clone(), self.tracker.clone(), Arc::clone(&messages));
        let at_once = (self.shard.index, Duration::ZERO);
        let release = ReleaseAction::new(move || release_in_background(work, &tracker, at_once, back.to_vec(), None));
        ClaimedBatch { shard: self.shard.clone(), messages, held, release }
    }
}

impl Drop for ConsumerBatch {
    fn drop(&mut self) {
        let (messages, guard) = (std::mem::take(&mut self.messages), self.guard.take());
        let at_once = (self.shard.index, Duration::ZERO);
        release_in_background(self.work.clone(), &self.tracker, at_once, messages, guard);
    }
}

/// Counts what was removed at most once and has no taker, or may have been: those that were not removed are due again
/// when their claim ends.
fn nobody_has(work: &Work, count: usize, why: &str) {
    work.topic_meters.count(Event::Dead, count as u64);
    warn!(topic = %work.record.name, count, why, "at-most-once messages had no taker and are gone");
}

/// Releases, in the background, what was claimed from a shard for a consumer that does not get it: it is due again at
/// once, or after a wait.
fn release_in_background(
    work: Work,
    tracker: &TaskTracker,
    (index, wait): (u32, Duration),
    messages: Vec<ClaimedMessage>,
    guard: Option<InFlightGuard>,
) {
    // Without a runtime the program has ended.
    if messages.is_empty() || tokio::runtime::Handle::try_current().is_err() {
        return;
    }
    let (removed, messages): (Vec<_>, Vec<_>) =
        messages.into_iter().partition(|message| message.score == Receipt::SETTLED);
    if !removed.is_empty() {
        nobody_has(&work, removed.len(), "the consumer went away as it was answered");
    }
    debug!(topic = %work.record.name, count = messages.len(), "no consumer takes what was claimed, it is released");
    work.rate.give_back(messages.len());
    tracker.spawn(async move {
        release(&work, (index, wait), messages).await;
        drop(guard);
    });
}

/// What a claim brings a consumer.
pub(crate) enum Brought {
    Messages(Box<ConsumerBatch>),
    /// What was due had expired, or had used up its attempts.
    Unfit,
    Nothing,
}

/// Claims in the background, whether or not the consumer waits for it. Returns what the claim brings until `longest`.
pub(crate) fn ask(
    work: Work,
    tracker: TaskTracker,
    taken: Taken,
    permit: Permit,
    visibility: Option<Duration>,
    longest: Instant,
) -> impl Future<Output = Result<Brought, StoreError>> + Send {
    let (to, answer) = oneshot::channel();
    tracker.clone().spawn(async move {
        // The caller may have gone: what it does not receive is dropped, and so released.
        let _ = to.send(claim(work, tracker, taken, permit, visibility).await);
    });
    async move {
        match tokio::time::timeout_at(longest, answer).await {
            Ok(Ok(answer)) => answer,
            // The node stops.
            Ok(Err(_)) => Ok(Brought::Nothing),
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
) -> Result<Brought, StoreError> {
    let (tokens, is_asked) = (permit.messages(), visibility.is_some());
    // A claim whose answer was lost was another consumer's: its messages are released and claimed again.
    // A claim from before the topic lost its sink may remove what it brings.
    let repeat = taken.repeat.take().filter(|repeat| repeat.delivery == DeliveryMode::AtLeastOnce);
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
    let (shard, was_unfit) = (taken.shard.clone(), taken.was_unfit);
    let guard = Some(InFlightGuard::new(work.schedule.clone(), shard.index, permit));
    let extended_at = None;
    let batch = ConsumerBatch { work, tracker, shard, messages, guard, is_asked, now, later, sent, extended_at };
    Ok(match brought {
        0 if was_unfit => Brought::Unfit,
        0 => Brought::Nothing,
        // What is dropped goes back.
        _ if is_repeated => Brought::Nothing,
        _ => Brought::Messages(Box::new(batch)),
    })
}

fn own_request(work: &Work, limit: usize, visibility: Option<Duration>) -> ClaimRequest {
    let visibility = visibility.unwrap_or(work.record.config.visibility_timeout);
    let (class, delivery) = (LeaseClass::for_visibility(visibility), DeliveryMode::AtLeastOnce);
    ClaimRequest { visibility, class, delivery, ..work.request(limit) }
}

/// Releases messages that no consumer was given.
async fn release(work: &Work, (index, wait): (u32, Duration), messages: Vec<ClaimedMessage>) {
    let release = |ClaimedMessage { id, score, suspect, .. }: ClaimedMessage| {
        // That an earlier claim of it ended without a verdict stays.
        let marked = Settlement::Unanswered { wait, charged: false };
        let plain = if wait.is_zero() { Settlement::Release } else { Settlement::Defer(wait) };
        Settle { id, score, action: if suspect { marked } else { plain } }
    };
    let batch: Vec<Settle> = messages.into_iter().map(release).collect();
    let mut tries = 0;
    while !batch.is_empty() {
        match work.settle(&work.schedule.shard(index), work.clock.now(), &batch).await {
            Ok(_) => {
                work.schedule.hint(index, work.clock.now().plus(wait));
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
