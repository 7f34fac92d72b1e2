//! The meters of topics, with a bound on the number of series.
//!
//! The first [`TOPIC_SERIES_MAX`] topics that a node comes to know have series of their own. The others are summed up
//! (or their greatest value is taken, where a sum says nothing) as the topic [`REST`], which no topic can be called.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use duetime_core::TopicName;
use parking_lot::{Mutex, RwLock};
use prometheus::{CounterVec, Gauge, GaugeVec, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use crate::labels::{CancelVerdict, Event, FORECAST_WITHIN};
use crate::register::{counter, float_gauge, gauge, histogram, opts, registered};
use crate::shards::{self, ShardBacklog, ShardMeters};
use crate::table;
use crate::topic::TopicMeters;

/// Topics with series of their own, at each node.
pub const TOPIC_SERIES_MAX: usize = 256;
/// The topic as which the others are shown.
pub const REST: &str = "(rest)";

/// Which gauge of a topic.
type Of = fn(&TopicMeters) -> &IntGauge;

/// The gauge of a topic: served under its name, or kept to be summed up.
fn topic_gauge(all: &IntGaugeVec, shown: Option<&str>) -> IntGauge {
    let kept = || IntGauge::new("kept", "Not served by itself.").expect("a valid name");
    shown.map_or_else(kept, |name| all.with_label_values(&[name]))
}

/// The same of one that is no whole number.
fn float_topic_gauge(all: &GaugeVec, shown: Option<&str>) -> Gauge {
    let kept = || Gauge::new("kept", "Not served by itself.").expect("a valid name");
    shown.map_or_else(kept, |name| all.with_label_values(&[name]))
}

/// The series of all topics, and the meters that write them.
#[derive(Debug)]
pub(crate) struct TopicSeries {
    topics: RwLock<HashMap<TopicName, Arc<TopicMeters>>>,
    lateness: HistogramVec,
    messages: IntCounterVec,
    scheduled: IntGaugeVec,
    due: IntGaugeVec,
    in_flight: IntGaugeVec,
    dead: IntGaugeVec,
    oldest_due_age: GaugeVec,
    shards: IntGaugeVec,
    shards_owned: IntGaugeVec,
    shards_unowned: IntGaugeVec,
    retries_waiting: IntGaugeVec,
    pending_bytes: IntGaugeVec,
    resize_remaining: IntGaugeVec,
    claim_batch_size: HistogramVec,
    claims_expired: IntCounterVec,
    settlements_lost: IntCounterVec,
    claims_unanswered: IntCounterVec,
    breaker_open: IntGaugeVec,
    breaker_opens: IntCounterVec,
    breaker_open_seconds: CounterVec,
    claim_delay: HistogramVec,
    hand_over: HistogramVec,
    paused: IntGaugeVec,
    forecast: IntGaugeVec,
    forecast_late: GaugeVec,
    capacity: GaugeVec,
    shards_lost: IntGaugeVec,
    shard_backlogs: ShardMeters,
    cancels: IntCounterVec,
}

impl TopicSeries {
    pub(crate) fn new(r: &Registry) -> Self {
        Self {
            topics: RwLock::default(),
            lateness: histogram(r, &table::LATENESS),
            messages: counter(r, &table::MESSAGES),
            scheduled: gauge(r, &table::SCHEDULED),
            due: gauge(r, &table::DUE),
            in_flight: gauge(r, &table::IN_FLIGHT),
            dead: gauge(r, &table::DEAD),
            oldest_due_age: float_gauge(r, &table::OLDEST_DUE_AGE),
            shards: gauge(r, &table::SHARDS),
            shards_owned: gauge(r, &table::SHARDS_OWNED),
            shards_unowned: gauge(r, &table::SHARDS_UNOWNED),
            retries_waiting: gauge(r, &table::RETRIES_WAITING),
            pending_bytes: gauge(r, &table::PENDING_BYTES),
            resize_remaining: gauge(r, &table::RESIZE_REMAINING),
            claim_batch_size: histogram(r, &table::CLAIM_BATCH_SIZE),
            claims_expired: counter(r, &table::CLAIMS_EXPIRED),
            settlements_lost: counter(r, &table::SETTLEMENTS_LOST),
            claims_unanswered: counter(r, &table::CLAIMS_UNANSWERED),
            breaker_open: gauge(r, &table::BREAKER_OPEN),
            breaker_opens: counter(r, &table::BREAKER_OPENS),
            breaker_open_seconds: {
                let row = &table::BREAKER_OPEN_SECONDS;
                registered(r, CounterVec::new(opts(row), row.labels))
            },
            claim_delay: histogram(r, &table::CLAIM_DELAY),
            hand_over: histogram(r, &table::HAND_OVER),
            paused: gauge(r, &table::PAUSED),
            forecast: gauge(r, &table::FORECAST),
            forecast_late: float_gauge(r, &table::FORECAST_LATE),
            capacity: float_gauge(r, &table::CAPACITY),
            shards_lost: gauge(r, &table::SHARDS_LOST),
            shard_backlogs: ShardMeters::new(gauge(r, &table::SHARD_DUE), float_gauge(r, &table::SHARD_OLDEST_DUE_AGE)),
            cancels: counter(r, &table::CANCELS),
        }
    }

    /// The meters of a topic; made at the first call.
    pub(crate) fn of(&self, topic: &TopicName) -> Arc<TopicMeters> {
        if let Some(found) = self.topics.read().get(topic) {
            return found.clone();
        }
        let mut topics = self.topics.write();
        let is_named = topics.values().filter(|topic| topic.is_named).count() < TOPIC_SERIES_MAX;
        let make = || Arc::new(self.made(if is_named { topic.as_str() } else { REST }, is_named));
        topics.entry(topic.clone()).or_insert_with(make).clone()
    }

    fn made(&self, name: &str, is_named: bool) -> TopicMeters {
        let labels = &[name];
        // Counters and histograms of the others are one; their gauges are summed up when they are served.
        let gauge = |all: &IntGaugeVec| topic_gauge(all, is_named.then_some(name));
        let float_gauge = |all: &GaugeVec| float_topic_gauge(all, is_named.then_some(name));
        TopicMeters {
            is_named,
            lateness: self.lateness.with_label_values(labels),
            events: {
                let counter = |event: &&str| self.messages.with_label_values(&[name, event]);
                Event::ALL.iter().map(|(_, event)| (counter(event), AtomicU64::default())).collect()
            },
            cancels: {
                let all = CancelVerdict::ALL.iter();
                all.map(|(_, verdict)| self.cancels.with_label_values(&[name, verdict])).collect()
            },
            scheduled: gauge(&self.scheduled),
            due: gauge(&self.due),
            in_flight: gauge(&self.in_flight),
            dead: gauge(&self.dead),
            oldest_due_age: float_gauge(&self.oldest_due_age),
            shards: gauge(&self.shards),
            shards_owned: gauge(&self.shards_owned),
            shards_unowned: gauge(&self.shards_unowned),
            shards_lost: topic_gauge(&self.shards_lost, None),
            shards_of_rest: Mutex::default(),
            retries_waiting: gauge(&self.retries_waiting),
            pending_bytes: gauge(&self.pending_bytes),
            retries: Mutex::default(),
            resize_remaining: gauge(&self.resize_remaining),
            claim_batch_size: self.claim_batch_size.with_label_values(labels),
            claims_expired: self.claims_expired.with_label_values(labels),
            settlements_lost: self.settlements_lost.with_label_values(labels),
            claims_unanswered: self.claims_unanswered.with_label_values(labels),
            breaker_open: gauge(&self.breaker_open),
            breaker_opens: self.breaker_opens.with_label_values(labels),
            breaker_open_seconds: self.breaker_open_seconds.with_label_values(labels),
            claim_delay: self.claim_delay.with_label_values(labels),
            hand_over: self.hand_over.with_label_values(labels),
            paused: gauge(&self.paused),
            forecast: {
                let shown = |of: &str| {
                    if is_named {
                        self.forecast.with_label_values(&[name, of])
                    } else {
                        topic_gauge(&self.forecast, None)
                    }
                };
                FORECAST_WITHIN.iter().map(|(of, _)| shown(of)).collect()
            },
            forecast_late: float_gauge(&self.forecast_late),
            capacity_shown: float_gauge(&self.capacity),
            capacity: Mutex::default(),
            samples: Mutex::default(),
        }
    }

    /// Takes a deleted topic's rows out of the answer.
    pub(crate) fn forget(&self, topic: &TopicName) {
        self.shard_backlogs(topic, Vec::new());
        // What is summed up stays in the counts of the rest.
        if self.topics.write().remove(topic).is_none_or(|meters| !meters.is_named) {
            return;
        }
        let labels = &[topic.as_str()];
        for (_, event) in Event::ALL {
            let _ = self.messages.remove_label_values(&[topic.as_str(), event]);
        }
        for (_, verdict) in CancelVerdict::ALL {
            let _ = self.cancels.remove_label_values(&[topic.as_str(), verdict]);
        }
        for gauges in [
            &self.scheduled,
            &self.due,
            &self.in_flight,
            &self.dead,
            &self.shards,
            &self.shards_owned,
            &self.shards_unowned,
            &self.retries_waiting,
            &self.pending_bytes,
            &self.resize_remaining,
            &self.breaker_open,
            &self.paused,
        ] {
            let _ = gauges.remove_label_values(labels);
        }
        let _ = self.shards_lost.remove_label_values(labels);
        let _ = self.oldest_due_age.remove_label_values(labels);
        let _ = self.claims_expired.remove_label_values(labels);
        let _ = self.settlements_lost.remove_label_values(labels);
        let _ = self.claims_unanswered.remove_label_values(labels);
        let _ = self.lateness.remove_label_values(labels);
        let _ = self.claim_batch_size.remove_label_values(labels);
        let _ = self.breaker_opens.remove_label_values(labels);
        let _ = self.breaker_open_seconds.remove_label_values(labels);
        let _ = self.claim_delay.remove_label_values(labels);
        let _ = self.hand_over.remove_label_values(labels);
        for (within, _) in FORECAST_WITHIN {
            let _ = self.forecast.remove_label_values(&[topic.as_str(), within]);
        }
        let _ = self.forecast_late.remove_label_values(labels);
        let _ = self.capacity.remove_label_values(labels);
    }

    /// What is due in each shard of `topic` that this node scans, and how late; none: it scans none.
    pub(crate) fn shard_backlogs(&self, topic: &TopicName, shards: Vec<ShardBacklog>) {
        let known = self.known(topic);
        match known.filter(|meters| !meters.is_named) {
            Some(meters) => *meters.shards_of_rest.lock() = shards::sum(shards),
            None => self.shard_backlogs.set(topic, shards),
        }
    }

    /// The meters of all topics, those that are summed up among them.
    pub(crate) fn all(&self) -> Vec<Arc<TopicMeters>> {
        self.topics.read().values().cloned().collect()
    }

    /// The meters of a topic, if it has any yet.
    pub(crate) fn known(&self, topic: &TopicName) -> Option<Arc<TopicMeters>> {
        self.topics.read().get(topic).cloned()
    }

    /// So many shards of `topic` are lost.
    pub(crate) fn shards_lost(&self, topic: &TopicName, shards: usize) {
        let known = self.known(topic);
        let shards = i64::try_from(shards).unwrap_or(i64::MAX);
        if let Some(meters) = known.filter(|meters| !meters.is_named) {
            meters.shards_lost.set(shards);
        } else if shards == 0 {
            // It may have had none before.
            let _ = self.shards_lost.remove_label_values(&[topic.as_str()]);
        } else {
            self.shards_lost.with_label_values(&[topic.as_str()]).set(shards);
        }
    }

    /// Sums up what has no series of its own.
    pub(crate) fn sum_up_rest(&self) {
        let rest: Vec<_> = self.all().into_iter().filter(|topic| !topic.is_named).collect();
        let sums: [(&IntGaugeVec, Of); 10] = [
            (&self.scheduled, |topic| &topic.scheduled),
            (&self.due, |topic| &topic.due),
            (&self.in_flight, |topic| &topic.in_flight),
            (&self.dead, |topic| &topic.dead),
            (&self.shards, |topic| &topic.shards),
            (&self.shards_owned, |topic| &topic.shards_owned),
            (&self.shards_unowned, |topic| &topic.shards_unowned),
            (&self.resize_remaining, |topic| &topic.resize_remaining),
            (&self.retries_waiting, |topic| &topic.retries_waiting),
            (&self.pending_bytes, |topic| &topic.pending_bytes),
        ];
        let lost: i64 = rest.iter().map(|topic| topic.shards_lost.get()).sum();
        if lost == 0 {
            let _ = self.shards_lost.remove_label_values(&[REST]);
        } else {
            self.shards_lost.with_label_values(&[REST]).set(lost);
        }
        let shards = rest.iter().filter_map(|topic| *topic.shards_of_rest.lock());
        self.shard_backlogs.set_rest(REST, shards);
        if rest.is_empty() {
            for (all, _) in sums {
                let _ = all.remove_label_values(&[REST]);
            }
            let _ = self.breaker_open.remove_label_values(&[REST]);
            let _ = self.paused.remove_label_values(&[REST]);
            let _ = self.oldest_due_age.remove_label_values(&[REST]);
            let _ = self.capacity.remove_label_values(&[REST]);
            let _ = self.forecast_late.remove_label_values(&[REST]);
            for (within, _) in FORECAST_WITHIN {
                let _ = self.forecast.remove_label_values(&[REST, within]);
            }
            return;
        }
        for (all, of) in sums {
            all.with_label_values(&[REST]).set(rest.iter().map(|topic| of(topic).get()).sum());
        }
        let open = rest.iter().map(|topic| topic.breaker_open.get()).max().unwrap_or_default();
        self.breaker_open.with_label_values(&[REST]).set(open);
        // One that is not paused has to be watched.
        let paused = rest.iter().map(|topic| topic.paused.get()).min().unwrap_or_default();
        self.paused.with_label_values(&[REST]).set(paused);
        let oldest = rest.iter().map(|topic| topic.oldest_due_age.get()).fold(0.0, f64::max);
        self.oldest_due_age.with_label_values(&[REST]).set(oldest);
        let late = rest.iter().map(|topic| topic.forecast_late.get()).fold(0.0, f64::max);
        self.forecast_late.with_label_values(&[REST]).set(late);
        self.capacity.with_label_values(&[REST]).set(rest.iter().map(|topic| topic.capacity_shown.get()).sum());
        for (at, (within, _)) in FORECAST_WITHIN.iter().enumerate() {
            let sum = rest.iter().map(|topic| topic.forecast[at].get()).sum();
            self.forecast.with_label_values(&[REST, within]).set(sum);
        }
    }
}
