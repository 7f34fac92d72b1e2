//! The meters of topics, with a bound on the number of series.
//!
//! The first [`TOPIC_SERIES_MAX`] topics that a node comes to know have series of their own; it comes to know them by
//! age, as all nodes do. The others are summed up
//! (or their greatest value is taken, where a sum says nothing) as the topic [`REST`], which no topic can be called.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use duetime_core::TopicName;
use parking_lot::{Mutex, RwLock};
use prometheus::{IntGauge, IntGaugeVec, Registry};

use crate::labels::{CancelVerdict, Event, FORECAST_WITHIN};
use crate::register::{float_gauge, gauge};
use crate::series::{Fold, RowVecs, Series, SeriesMaker};
use crate::shards::{self, ShardBacklog, ShardMeters};
use crate::table;
use crate::topic::TopicMeters;

/// Topics with series of their own, at each node.
pub const TOPIC_SERIES_MAX: usize = 256;
/// The topic as which the others are shown.
pub const REST: &str = "(rest)";

/// The series of all topics, and the meters that write them.
#[derive(Debug)]
pub(crate) struct TopicSeries {
    topics: RwLock<HashMap<TopicName, Arc<TopicMeters>>>,
    rows: RowVecs,
    /// The gauges of the rest that are served at present.
    rest: Mutex<Vec<Series>>,
    shards_lost: IntGaugeVec,
    breaker_open: IntGaugeVec,
    /// The topics and sinks of which it is served at present.
    breakers_shown: Mutex<BTreeMap<TopicAndSink, i64>>,
    shard_backlogs: ShardMeters,
}

/// The names of a topic, or [`REST`], and its sink.
type TopicAndSink = (String, String);

impl TopicSeries {
    pub(crate) fn new(r: &Registry) -> Self {
        Self {
            topics: RwLock::default(),
            rows: RowVecs::new(r),
            rest: Mutex::default(),
            shards_lost: gauge(r, &table::SHARDS_LOST),
            breaker_open: gauge(r, &table::BREAKER_OPEN),
            breakers_shown: Mutex::default(),
            shard_backlogs: ShardMeters::new(gauge(r, &table::SHARD_DUE), float_gauge(r, &table::SHARD_OLDEST_DUE_AGE)),
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

    /// Each row of the table that a topic has a series of, with how those of the rest become one.
    fn made(&self, name: &str, is_named: bool) -> TopicMeters {
        use Fold::{Max, Min, Sum};
        let kept = || IntGauge::new("kept", "Not served by itself.").expect("a valid name");
        let mut of = SeriesMaker::new(&self.rows, name, is_named);
        TopicMeters {
            is_named,
            lateness: of.histogram(&table::LATENESS),
            events: {
                let each = Event::ALL.iter();
                each.map(|(_, event)| (of.counter(&table::MESSAGES, &[event]), AtomicU64::default())).collect()
            },
            cancels: {
                let each = CancelVerdict::ALL.iter();
                each.map(|(_, verdict)| of.counter(&table::CANCELS, &[verdict])).collect()
            },
            scheduled: of.gauge(&table::SCHEDULED, &[], Sum),
            due: of.gauge(&table::DUE, &[], Sum),
            in_flight: of.gauge(&table::IN_FLIGHT, &[], Sum),
            dead: of.gauge(&table::DEAD, &[], Sum),
            oldest_due_age: of.float_gauge(&table::OLDEST_DUE_AGE, Max),
            shards: of.gauge(&table::SHARDS, &[], Sum),
            shards_owned: of.gauge(&table::SHARDS_OWNED, &[], Sum),
            shards_unowned: of.gauge(&table::SHARDS_UNOWNED, &[], Sum),
            shards_unreachable: of.gauge(&table::SHARDS_UNREACHABLE, &[], Sum),
            shards_full: of.gauge(&table::SHARDS_FULL, &[], Sum),
            consumer_claim_age: of.float_gauge(&table::CONSUMER_CLAIM_AGE, Max),
            asks: Mutex::default(),
            shards_lost: kept(),
            shards_of_rest: Mutex::default(),
            retries_waiting: of.gauge(&table::RETRIES_WAITING, &[], Sum),
            pending_bytes: of.gauge(&table::PENDING_BYTES, &[], Sum),
            retries: Mutex::default(),
            resize_remaining: of.gauge(&table::RESIZE_REMAINING, &[], Sum),
            claim_batch_size: of.histogram(&table::CLAIM_BATCH_SIZE),
            claims_expired: of.counter(&table::CLAIMS_EXPIRED, &[]),
            settlements_expired: of.counter(&table::SETTLEMENTS_EXPIRED, &[]),
            claims_unanswered: of.counter(&table::CLAIMS_UNANSWERED, &[]),
            breaker_open: kept(),
            sink: Mutex::default(),
            breaker_opens: of.counter(&table::BREAKER_OPENS, &[]),
            failures_undecided: of.counter(&table::FAILURES_UNDECIDED, &[]),
            breaker_open_seconds: of.float_counter(&table::BREAKER_OPEN_SECONDS),
            claim_delay: of.histogram(&table::CLAIM_DELAY),
            delivery: of.histogram(&table::DELIVERY),
            // One that is not paused has to be watched.
            paused: of.gauge(&table::PAUSED, &[], Min),
            forecast: {
                let each = FORECAST_WITHIN.iter();
                each.map(|(within, _)| of.gauge(&table::FORECAST, &[within], Sum)).collect()
            },
            forecast_late: of.float_gauge(&table::FORECAST_LATE, Max),
            capacity_shown: of.float_gauge(&table::CAPACITY, Sum),
            capacity: Mutex::default(),
            samples: Mutex::default(),
            series: of.made,
        }
    }

    /// Takes a deleted topic's rows out of the answer.
    pub(crate) fn forget(&self, topic: &TopicName) {
        // What is summed up stays in the counts of the rest.
        let removed = self.topics.write().remove(topic);
        if let Some(meters) = removed.filter(|meters| meters.is_named) {
            meters.series.iter().for_each(Series::remove);
            self.shard_backlogs.set(topic, Vec::new());
            let _ = self.shards_lost.remove_label_values(&[topic.as_str()]);
        }
    }

    /// What is due in each shard of `topic` that this node scans, and how late; none: it scans none. A topic without
    /// meters gets none.
    pub(crate) fn shard_backlogs(&self, topic: &TopicName, shards: Vec<ShardBacklog>) {
        // The lock is held until they are set: a topic that is forgotten meanwhile loses them after that.
        match self.topics.read().get(topic) {
            Some(meters) if !meters.is_named => *meters.shards_of_rest.lock() = shards::sum(shards),
            Some(_) => self.shard_backlogs.set(topic, shards),
            None => {}
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

    /// Serves the breakers with the sinks that topics have now; of the rest, one for each sink.
    fn show_breakers(&self) {
        let mut now: BTreeMap<TopicAndSink, i64> = BTreeMap::new();
        for (topic, meters) in &*self.topics.read() {
            let Some(sink) = meters.sink.lock().clone() else { continue };
            let topic = if meters.is_named { topic.as_str() } else { REST };
            let open = now.entry((topic.to_owned(), sink)).or_default();
            *open = (*open).max(meters.breaker_open.get());
        }
        let mut shown = self.breakers_shown.lock();
        for (topic, sink) in shown.keys().filter(|it| !now.contains_key(*it)) {
            let _ = self.breaker_open.remove_label_values(&[topic, sink]);
        }
        for ((topic, sink), open) in &now {
            self.breaker_open.with_label_values(&[topic, sink]).set(*open);
        }
        *shown = now;
    }

    /// Sums up what has no series of its own.
    pub(crate) fn sum_up_rest(&self) {
        self.show_breakers();
        let rest: Vec<_> = self.all().into_iter().filter(|topic| !topic.is_named).collect();
        let lost: i64 = rest.iter().map(|topic| topic.shards_lost.get()).sum();
        if lost == 0 {
            let _ = self.shards_lost.remove_label_values(&[REST]);
        } else {
            self.shards_lost.with_label_values(&[REST]).set(lost);
        }
        let shards = rest.iter().filter_map(|topic| *topic.shards_of_rest.lock());
        self.shard_backlogs.set_rest(REST, shards);
        let mut shown = self.rest.lock();
        if rest.is_empty() {
            shown.drain(..).for_each(|series| series.remove());
            return;
        }
        // The series of each topic are made in one order.
        for at in 0..rest[0].series.len() {
            rest[0].series[at].show(rest.iter().filter_map(|topic| topic.series[at].value()));
        }
        *shown = rest[0].series.iter().filter(|series| series.value().is_some()).cloned().collect();
    }
}
