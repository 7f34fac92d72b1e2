//! One consumer's claim: what it has, what it waits for, and when what is in hand goes out.
//!
//! Upstream: `consumers`, which drives it. Downstream: `consumer_claim`, which asks one shard.

use std::pin::Pin;
use std::time::Duration;

use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_WAIT_MAX};
use duetime_core::{ClaimAsk, ClaimedBatch, StoreError};
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::budget::Permit;
use crate::config::{CLAIMS_IN_FLIGHT, STALLED_AFTER};
use crate::consumer_claim::{Brought, ConsumerBatch, ask};
use crate::schedule::Taken;
use crate::server_load::{Bounds, SLOW_AFTER};
use crate::work::{Work, bytes_of};

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
pub(crate) const HELD_SHARE: u32 = 8;

/// What is in hand waits until it is extended for so many of these parts, where nothing else is ready to go out.
const ALONE_SHARES: u32 = HELD_SHARE / 2;

/// Claims that one consumer waits for at most. Of those that hesitate each server has no more than it may have of all.
const ASKING_MAX: usize = CLAIMS_IN_FLIGHT;

/// One claim under way.
pub(crate) struct UnderWay {
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
pub(crate) struct AskedClaim {
    number: u64,
    pub(crate) answer: Result<Brought, StoreError>,
}

/// One consumer's claim: what it has and what it waits for.
pub(crate) struct Asker {
    pub(crate) until: Instant,
    pub(crate) visibility: Option<Duration>,
    /// Most messages it takes.
    max: usize,
    /// The last answer brought nothing that could be handed out, though something was due: it had expired, or had used
    /// up its attempts.
    pub(crate) found_none: bool,
    /// Messages in hand.
    count: usize,
    /// The store has several servers: a claim that hesitates is not waited for, as if it were to bring nothing. What
    /// it brings all the same and has no room goes back.
    pub(crate) several: bool,
    pub(crate) given: Vec<ConsumerBatch>,
    bytes: usize,
    pub(crate) asking: FuturesUnordered<Pin<Box<dyn Future<Output = AskedClaim> + Send>>>,
    /// The same claims, what was asked for.
    pub(crate) under_way: Vec<UnderWay>,
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
    pub(crate) held_max: Duration,
    /// When something was in hand first.
    in_hand_since: Option<Instant>,
    /// What is in hand goes out then, unless more is known to be due.
    goes_out_at: Option<Instant>,
    /// The message in hand may have killed its consumers: it goes out alone, so that it takes nobody along.
    is_alone: bool,
    /// Some server answered, if only that nothing is due.
    pub(crate) answered: bool,
    /// What a server answered came when too little was left of its visibility timeout, and went back.
    pub(crate) came_too_late: bool,
    pub(crate) failed: Option<StoreError>,
}

impl Asker {
    pub(crate) fn new(wanted: ClaimAsk) -> Self {
        let now = Instant::now();
        Self {
            until: now + wanted.wait.min(CLAIM_WAIT_MAX),
            visibility: wanted.visibility,
            max: wanted.max.clamp(1, BATCH_ITEMS_MAX),
            found_none: false,
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

    pub(crate) async fn end(self) -> Result<Vec<ClaimedBatch>, StoreError> {
        match self.failed {
            Some(error) if self.given.is_empty() && !self.answered => Err(error),
            _ => {
                let had_some = !self.given.is_empty();
                let in_time: Vec<ConsumerBatch> = self.given.into_iter().filter(|given| !given.is_too_late()).collect();
                if had_some && in_time.is_empty() {
                    return Err(too_late());
                }
                // What is ready is not kept by a server that does not answer. Where nothing is, an answer that takes
                // long is waited for: else it would be given up each time, and the messages go to nobody.
                let is_any_ready = in_time.iter().any(ConsumerBatch::is_ready);
                let patience = if is_any_ready { self.held_max } else { self.held_max * ALONE_SHARES };
                let patience = patience.min(CLAIM_WITHIN);
                let ready = join_all(in_time.into_iter().map(|given| given.ready_to_go(patience))).await;
                let ready = ready.into_iter().flatten().map(ConsumerBatch::without_late);
                Ok(ready.filter(|given| !given.messages().is_empty()).map(ConsumerBatch::into_answer).collect())
            }
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_alone || self.bytes >= ANSWER_BYTES_MAX || self.count >= self.max
    }

    /// The claims whose answer is waited for: those that do not hesitate.
    fn awaited(&self) -> impl Iterator<Item = &UnderWay> {
        self.under_way.iter().filter(|claim| !self.several || claim.asked_at.elapsed() < SLOW_AFTER)
    }

    /// Messages that are neither in hand nor waited for.
    pub(crate) fn room(&self) -> usize {
        let awaited: usize = self.awaited().map(|claim| claim.messages).sum();
        // What stands before the first that can be handed out goes in whole batches; what is too much goes back.
        let max = if self.found_none && self.given.is_empty() { BATCH_ITEMS_MAX } else { self.max };
        max.saturating_sub(self.count + awaited)
    }

    /// Shards that may be asked for the rest, this one counted.
    pub(crate) fn others(&self) -> usize {
        ASKING_MAX - self.awaited().count().min(ASKING_MAX - 1)
    }

    /// Whether what is in hand goes out although more is asked for, or may be.
    pub(crate) fn goes_out(&self, work: &Work) -> bool {
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

    /// Nothing is in hand or on its way, and there was time to find something: a backlog of what has expired is not gone
    /// through for one consumer.
    pub(crate) fn gives_up(&self) -> bool {
        let is_empty = self.given.is_empty() && self.asking.is_empty();
        is_empty && self.answered && self.until + GATHER_MAX <= Instant::now()
    }

    /// When it is looked again whether others are asked, or what is in hand goes out.
    pub(crate) fn again_at(&self, work: &Work) -> Instant {
        // Others are asked while a server hesitates.
        self.out_at(work).unwrap_or(self.asked_at + SLOW_AFTER)
    }

    /// Takes in what a claim brought; what comes too late, or is beyond the bounds, is given back.
    pub(crate) fn take_in(&mut self, mut more: ConsumerBatch) {
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
    pub(crate) fn may_ask(&self, work: &Work) -> bool {
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
    pub(crate) fn bounds(&self) -> Bounds {
        let nothing_yet = self.given.is_empty() && self.asking.is_empty();
        let patient = nothing_yet && (self.failed.is_none() || Instant::now() < self.until);
        Bounds { patient, ..Bounds::claims(CLAIMS_IN_FLIGHT) }
    }

    /// Claims from the shard that was taken, in the background.
    pub(crate) fn ask(&mut self, work: &Work, tracker: &TaskTracker, taken: Taken, permit: Permit) {
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
    pub(crate) fn heard(&mut self, asked: &AskedClaim) {
        self.under_way.retain(|claim| claim.number != asked.number);
    }
}

/// Why a claim brought nothing although messages are due.
pub(crate) fn too_late() -> StoreError {
    let source = "its answers come when less than a quarter of the visibility timeout is left: claim with a longer \
                  visibility_timeout, or give the topic one";
    StoreError::Unavailable { doing: "claim", source: source.into() }
}
