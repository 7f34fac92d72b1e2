//! What the loops of one topic share, and what they pass to each other.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::{AckWait, ClaimedMessage, Settle, Settled};
use duetime_core::tracer::Tracer;
use duetime_core::{
    ClaimStore, Clock, Delivery, DeliveryMode, End, Receipt, Role, Score, Shard, StoreError, Successor, Timestamp,
    TopicRecord,
};
use duetime_metrics::{Meters, TopicMeters};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::budget::TopicBudget;
use crate::config::DispatchConfig;
use crate::health::Health;
use crate::in_flight::InFlightGuard;
use crate::rate::Rate;
use crate::schedule::TopicSchedule;

/// How the loops end, in this order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shutdown {
    /// Claim no more; give back what was not sent; finish calls and settlements.
    pub(crate) stop: CancellationToken,
    /// Wait for no call any more: what they hold stays claimed until its deadline.
    pub(crate) abandon: CancellationToken,
    /// Return.
    pub(crate) abort: CancellationToken,
}

impl Shutdown {
    /// Phases that follow these and may come earlier.
    pub(crate) fn child(&self) -> Self {
        Self { stop: self.stop.child_token(), abandon: self.abandon.child_token(), abort: self.abort.child_token() }
    }
}

/// Everything the loops of one topic need. One is made for each version of the topic's record.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) record: Arc<TopicRecord>,
    pub(crate) store: Arc<dyn ClaimStore>,
    pub(crate) schedule: Arc<TopicSchedule>,
    pub(crate) budget: Arc<TopicBudget>,
    pub(crate) rate: Arc<Rate>,
    pub(crate) health: Arc<Health>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) topic_meters: Arc<TopicMeters>,
    pub(crate) config: Arc<DispatchConfig>,
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
}

impl Work {
    /// Settles messages of `shard` by their claims.
    pub(crate) async fn settle(
        &self,
        shard: &Shard,
        at: Timestamp,
        batch: &[Settle],
    ) -> Result<Vec<Settled>, StoreError> {
        Ok(self.store.settle_at(shard, Role::Home, at, batch, AckWait::No).await?.finals()?.answers)
    }

    /// Whether messages are removed before they are delivered.
    pub(crate) fn at_most_once(&self) -> bool {
        self.record.config.delivery == DeliveryMode::AtMostOnce
    }

    /// What follows a message that was delivered, where it is one of a series.
    pub(crate) fn successor_of(&self, delivered: &Delivery) -> Option<Box<Successor>> {
        let Delivery { headers, payload, due_at, nonce, .. } = delivered;
        Successor::of((headers, payload), (*due_at, *nonce), End::Delivered, self.clock.now())
    }

    /// A message is only sent while its deadline is at least this far ahead: a part of the
    /// visibility timeout, or what a call takes, going by the slow ones lately.
    pub(crate) fn send_margin(&self, call_time: Duration) -> Duration {
        let visibility = self.record.config.visibility_timeout;
        let least = (visibility / 4).min(Duration::from_secs(5));
        (call_time + self.settle_margin()).clamp(least, visibility / 4 * 3)
    }

    /// A message that waits for a decision is settled at least this long before its deadline: many may be at once.
    pub(crate) fn decision_margin(&self) -> Duration {
        (self.record.config.visibility_timeout / 4).min(Duration::from_secs(5))
    }

    /// The end of a call is at least this long before the deadline, so that it can be settled.
    pub(crate) fn settle_margin(&self) -> Duration {
        (self.record.config.visibility_timeout / 20).min(Duration::from_secs(1))
    }
}

/// When and from where a message was claimed. Times are this node's monotonic clock, tied to the
/// store's time by the claim's answer: a wall clock that jumps changes nothing.
#[derive(Debug)]
pub(crate) struct ClaimInfo {
    pub(crate) guard: InFlightGuard,
    pub(crate) index: u32,
    pub(crate) score: Score,
    /// When the claim was sent: the store's `now` was no earlier.
    pub(crate) sent: Instant,
    /// When somebody else may have it.
    pub(crate) deadline: Instant,
    /// How late it was at `sent`.
    pub(crate) late: Duration,
    /// Of its id, headers and payload.
    pub(crate) bytes: usize,
    pub(crate) suspect: bool,
    pub(crate) probe: bool,
}

impl ClaimInfo {
    /// How late the message is at `at`.
    pub(crate) fn lateness(&self, at: Instant) -> Duration {
        self.late + at.saturating_duration_since(self.sent)
    }
}

/// A message this node holds and has not sent.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) delivery: Delivery,
    pub(crate) claim: ClaimInfo,
}

/// What a claimed message takes of the budget.
pub(crate) fn bytes_of(message: &ClaimedMessage) -> usize {
    message.id.as_str().len() + message.headers.bytes() + message.payload.len()
}

/// When the claim on `message` ends, given the store's later present at (or after) `sent`: nobody else has it sooner.
pub(crate) fn deadline_of(score: Score, later: Timestamp, sent: Instant) -> Instant {
    sent + score.visible_at().since(later).min(duetime_core::limits::VISIBILITY_MAX)
}

impl Claimed {
    pub(crate) fn new(
        record: &TopicRecord,
        index: u32,
        (now, later): (Timestamp, Timestamp),
        sent: Instant,
        probe: bool,
        guard: InFlightGuard,
        message: ClaimedMessage,
    ) -> Self {
        // What was removed as it was claimed has no deadline: nobody else can have it.
        let settled = message.score == Receipt::SETTLED;
        let deadline = if settled { sent + NEVER } else { deadline_of(message.score, later, sent) };
        let claim = ClaimInfo {
            guard,
            index,
            score: message.score,
            sent,
            deadline,
            late: now.since(message.due_at),
            bytes: bytes_of(&message),
            suspect: message.suspect,
            probe,
        };
        let delivery = Delivery {
            topic: record.name.clone(),
            id: message.id,
            due_at: message.due_at,
            attempt: message.attempt,
            nonce: message.nonce,
            headers: message.headers,
            payload: message.payload,
            not_after: message.score.visible_at(),
            at_most_once: record.config.delivery == DeliveryMode::AtMostOnce,
            span: None,
        };
        Self { delivery, claim }
    }
}

/// Far enough ahead to be never, near enough to be a valid instant.
pub(crate) const NEVER: Duration = Duration::from_secs(365 * 86_400);

/// Where verdicts go on their way to the store.
pub(crate) type ToSettler = tokio::sync::mpsc::Sender<Vec<Unsettled>>;

/// A verdict on its way to the store.
#[derive(Debug)]
pub(crate) struct Unsettled {
    pub(crate) guard: InFlightGuard,
    pub(crate) index: u32,
    pub(crate) settle: Settle,
    /// After this the verdict cannot be settled any more.
    pub(crate) deadline: Instant,
}
