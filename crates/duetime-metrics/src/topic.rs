//! The handles of one topic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duetime_core::Timestamp;
use parking_lot::Mutex;
use prometheus::{Counter, Gauge, Histogram, IntCounter, IntGauge};

use crate::capacity::{CAPACITY_STRETCH, Capacity};
use crate::labels::{CancelVerdict, Event, FORECAST_WITHIN};
use crate::recent::{Recent, RecentStep, Samples, Shares, TopicHistory};
use crate::retries::Retries;
use crate::series::Series;
use crate::shards::ShardBacklog;

/// When consumers asked for messages of a topic.
#[derive(Debug, Default)]
pub(crate) struct ConsumerAsks {
    /// Consumers claim from the topic: it has no sink.
    is_claimed: bool,
    waiting: usize,
    /// One asked since the last sample.
    asked: bool,
    /// The last sample at which one asked or waited.
    last: Duration,
}

/// A consumer asks for messages until this is dropped.
#[derive(Debug)]
pub struct ConsumerAsk(Arc<TopicMeters>);

impl Drop for ConsumerAsk {
    fn drop(&mut self) {
        self.0.asks.lock().waiting -= 1;
    }
}

/// The meters of one topic.
#[derive(Debug)]
pub struct TopicMeters {
    /// See [`crate::table::LATENESS`].
    pub lateness: Histogram,
    /// It has series of its own; see [`crate::TOPIC_SERIES_MAX`].
    pub(crate) is_named: bool,
    pub(crate) events: Vec<(IntCounter, AtomicU64)>,
    pub(crate) cancels: Vec<IntCounter>,
    /// See [`crate::table::SCHEDULED`].
    pub scheduled: IntGauge,
    /// See [`crate::table::DUE`].
    pub due: IntGauge,
    /// See [`crate::table::IN_FLIGHT`].
    pub in_flight: IntGauge,
    /// See [`crate::table::DEAD`].
    pub dead: IntGauge,
    /// See [`crate::table::OLDEST_DUE_AGE`].
    pub oldest_due_age: Gauge,
    /// See [`crate::table::SHARDS`].
    pub shards: IntGauge,
    /// See [`crate::table::SHARDS_OWNED`].
    pub shards_owned: IntGauge,
    /// See [`crate::table::SHARDS_UNOWNED`].
    pub shards_unowned: IntGauge,
    /// See [`crate::table::SHARDS_UNREACHABLE`].
    pub shards_unreachable: IntGauge,
    /// See [`crate::table::SHARDS_FULL`].
    pub shards_full: IntGauge,
    pub(crate) consumer_claim_age: Gauge,
    pub(crate) asks: Mutex<ConsumerAsks>,
    pub(crate) shards_lost: IntGauge,
    pub(crate) shards_of_rest: Mutex<Option<ShardBacklog>>,
    pub(crate) retries_waiting: IntGauge,
    pub(crate) retries: Mutex<Retries>,
    /// See [`crate::table::PENDING_BYTES`].
    pub pending_bytes: IntGauge,
    /// See [`crate::table::RESIZE_REMAINING`].
    pub resize_remaining: IntGauge,
    /// See [`crate::table::CLAIM_BATCH_SIZE`].
    pub claim_batch_size: Histogram,
    /// See [`crate::table::CLAIMS_EXPIRED`].
    pub claims_expired: IntCounter,
    /// See [`crate::table::SETTLEMENTS_EXPIRED`].
    pub settlements_expired: IntCounter,
    /// See [`crate::table::CLAIMS_UNANSWERED`].
    pub claims_unanswered: IntCounter,
    /// See [`crate::table::BREAKER_OPEN`]; served once the topic has a sink, see [`TopicMeters::set_sink`].
    pub breaker_open: IntGauge,
    /// The name of the sink.
    pub(crate) sink: Mutex<Option<String>>,
    /// See [`crate::table::BREAKER_OPENS`].
    pub breaker_opens: IntCounter,
    /// See [`crate::table::FAILURES_UNDECIDED`].
    pub failures_undecided: IntCounter,
    /// See [`crate::table::BREAKER_OPEN_SECONDS`].
    pub breaker_open_seconds: Counter,
    /// See [`crate::table::CLAIM_DELAY`].
    pub claim_delay: Histogram,
    /// See [`crate::table::DELIVERY`].
    pub delivery: Histogram,
    /// See [`crate::table::PAUSED`].
    pub paused: IntGauge,
    /// See [`crate::table::FORECAST_LATE`].
    pub forecast_late: Gauge,
    pub(crate) forecast: Vec<IntGauge>,
    pub(crate) capacity_shown: Gauge,
    pub(crate) capacity: Mutex<Capacity>,
    pub(crate) samples: Mutex<Samples>,
    /// All that are served or summed up.
    pub(crate) series: Vec<Series>,
}

impl TopicMeters {
    /// So many messages fall due within each of [`FORECAST_WITHIN`].
    pub fn forecast(&self, within: [u64; FORECAST_WITHIN.len()]) {
        self.forecast.iter().zip(within).for_each(|(gauge, n)| gauge.set(i64::try_from(n).unwrap_or(i64::MAX)));
    }

    /// Messages a second this node was able to deliver, as [`crate::table::CAPACITY`]; `None`: it never had enough to
    /// do.
    #[must_use]
    pub fn capacity(&self) -> Option<f64> {
        self.capacity.lock().per_second()
    }

    /// It has no series of its own in `/metrics`: its lateness is that of all such topics together.
    #[must_use]
    pub fn is_of_rest(&self) -> bool {
        !self.is_named
    }

    /// What happened in the last minute: how many a second, by [`Event`], and how late deliveries were, in seconds.
    #[must_use]
    pub fn recent(&self) -> Recent {
        self.samples.lock().recent()
    }

    /// The same step by step over the last five minutes, the oldest first.
    #[must_use]
    pub fn steps(&self) -> Vec<RecentStep> {
        self.samples.lock().steps()
    }

    /// How many were delivered since the start, and how many of them late.
    #[must_use]
    pub fn shares(&self) -> Shares {
        self.samples.lock().shares()
    }

    /// The last minutes step by step, and the shares of the last day.
    #[must_use]
    pub fn history(&self) -> TopicHistory {
        self.samples.lock().history()
    }

    /// The topic's messages go to the sink of this name; `None`: it has none. Of another sink nothing is known at first.
    pub fn set_sink(&self, name: Option<&str>) {
        let mut sink = self.sink.lock();
        if sink.as_deref() != name {
            *sink = name.map(str::to_owned);
            self.breaker_open.set(0);
        }
    }

    /// Says whether consumers claim from the topic; else a sink is delivered to.
    pub fn set_claimed_by_consumers(&self, is_claimed: bool) {
        let mut asks = self.asks.lock();
        // One that was given a sink and lost it again begins anew.
        asks.asked |= is_claimed && !asks.is_claimed;
        asks.is_claimed = is_claimed;
    }

    /// A consumer asks for messages, see [`crate::table::CONSUMER_CLAIM_AGE`].
    #[must_use]
    pub fn consumer_asks(self: Arc<Self>) -> ConsumerAsk {
        {
            let mut asks = self.asks.lock();
            (asks.asked, asks.waiting) = (true, asks.waiting + 1);
        }
        ConsumerAsk(self)
    }

    fn sample_asks(&self, at: Duration) {
        let mut asks = self.asks.lock();
        if std::mem::take(&mut asks.asked) || asks.waiting > 0 || !asks.is_claimed {
            asks.last = at;
        }
        self.consumer_claim_age.set(at.saturating_sub(asks.last).as_secs_f64());
    }

    pub(crate) fn sample(&self, at: Duration) {
        self.sample_asks(at);
        let backlog = Duration::try_from_secs_f64(self.oldest_due_age.get()).unwrap_or_default();
        let backlog = (!self.is_held_up()).then_some(backlog);
        let events = Event::ALL.iter().map(|(event, _)| self.counted(*event)).collect();
        self.samples.lock().sample(at, events, &self.lateness);
        let mut capacity = self.capacity.lock();
        capacity.sample(at, self.counted(Event::Delivered), backlog);
        self.capacity_shown.set(capacity.per_second().unwrap_or(0.0));
    }

    /// What is due waits for something else than a node or a sink that can do no more: for a sink that is down, for a part
    /// of the store, for consumers that do not ask, or for the end of a pause.
    fn is_held_up(&self) -> bool {
        self.breaker_open.get() > 0
            || self.paused.get() > 0
            || self.shards_unreachable.get() > 0
            || self.consumer_claim_age.get() >= CAPACITY_STRETCH.as_secs_f64()
    }

    /// Counts `n` messages to which `event` happened.
    pub fn count(&self, event: Event, n: u64) {
        if n > 0 {
            let (counter, own) = &self.events[event as usize];
            counter.inc_by(n);
            own.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// Counts `n` cancels that were answered so.
    pub fn cancels(&self, verdict: CancelVerdict, n: u64) {
        if n > 0 {
            self.cancels[verdict as usize].inc_by(n);
        }
    }

    /// How many messages `event` happened to so far.
    #[must_use]
    pub fn counted(&self, event: Event) -> u64 {
        self.events[event as usize].1.load(Ordering::Relaxed)
    }

    /// How many events there were of any kind: it changes when something happened to a message of the topic.
    #[must_use]
    pub fn activity(&self) -> u64 {
        Event::ALL.iter().map(|(event, _)| self.counted(*event)).sum()
    }

    /// This node gave back `n` messages for another attempt after `wait`.
    pub fn retry_later(&self, now: Timestamp, wait: Duration, n: u64) {
        self.retries.lock().add(now, wait, n);
    }

    pub(crate) fn retries_due(&self, now: Timestamp) {
        let waiting = self.retries.lock().waiting(now);
        self.retries_waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }
}
