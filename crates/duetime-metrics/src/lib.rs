//! The meters: every metric is in [`table`], and this is the only place that registers any.
//!
//! Handles are cheap to clone; those of a topic are looked up once and kept.

mod budget;
mod capacity;
mod labels;
mod recent;
mod retries;
mod shards;
mod sinks;
mod spans;
mod surveys;
pub mod table;
mod topic;
mod topics;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use duetime_core::{StoreError, TopicName};
use parking_lot::{Mutex, RwLock};
use prometheus::core::Collector;
use prometheus::{
    CounterVec, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder,
};

use labels::{LEASE_KINDS, shown_op};
use shards::ShardMeters;
use table::{Kind, Metric};

pub use budget::BudgetMeters;
pub use capacity::{CAPACITY_MESSAGES_MIN, CAPACITY_STRETCH, SAMPLE_EVERY};
pub use labels::{AUTH_REFUSALS, CancelVerdict, Event, FORECAST_WITHIN, StoreTrouble};
pub use recent::{LATE_ABOVE_S, RECENT_SPAN, RECENT_STEP, Recent, RecentStep, Shares};
pub use shards::{SHARD_SERIES_MAX, ShardBacklog};
pub use sinks::{SINK_ERROR_KINDS, SinkMeters};
pub use spans::SpanMeters;
pub use surveys::{SURVEYS_KEPT, Surveys};
pub use topic::TopicMeters;
pub use topics::{REST, TOPIC_SERIES_MAX};

/// All meters of one program.
#[derive(Debug)]
pub struct Meters {
    /// The last counts of shards. No metric.
    pub surveys: Surveys,
    registry: Registry,
    topics: RwLock<HashMap<TopicName, Arc<TopicMeters>>>,
    /// By name and type.
    sinks: RwLock<BTreeMap<(String, &'static str), SinkMeters>>,
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
    resize_remaining: IntGaugeVec,
    claim_batch_size: HistogramVec,
    claims_expired: IntCounterVec,
    settlements_lost: IntCounterVec,
    breaker_open: IntGaugeVec,
    breaker_opens: IntCounterVec,
    breaker_open_seconds: CounterVec,
    claim_delay: HistogramVec,
    hand_over: HistogramVec,
    paused: IntGaugeVec,
    forecast: IntGaugeVec,
    forecast_late: GaugeVec,
    capacity: GaugeVec,
    store_used: GaugeVec,
    store_limit: GaugeVec,
    store_call: HistogramVec,
    store_errors: IntCounterVec,
    durability: IntCounterVec,
    shard_refusals: IntCounterVec,
    shards_lost: IntGaugeVec,
    topics_troubled: IntGaugeVec,
    store_troubles: IntGaugeVec,
    sink_call: HistogramVec,
    sink_errors: IntCounterVec,
    shard_backlogs: ShardMeters,
    lease_changes: IntCounterVec,
    owners: IntGaugeVec,
    store_clock_skew: GaugeVec,
    budget_held: IntGaugeVec,
    budget_size: IntGaugeVec,
    loop_restarts: IntCounterVec,
    cancels: IntCounterVec,
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    auth_refused: IntCounterVec,
    build_info: IntGaugeVec,
    spans: IntCounterVec,
}

fn registered<C: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    let collector = made.expect("the table's names and labels are valid");
    registry.register(Box::new(collector.clone())).expect("each row is registered once");
    collector
}

fn opts(row: &Metric) -> Opts {
    Opts::new(row.name, row.help)
}

fn counter(registry: &Registry, row: &Metric) -> IntCounterVec {
    registered(registry, IntCounterVec::new(opts(row), row.labels))
}

/// A rate misses the increment that a series begins with, so series that can be known begin at 0.
fn from_zero(counters: IntCounterVec, kinds: &[&str]) -> IntCounterVec {
    kinds.iter().for_each(|kind| counters.with_label_values(&[kind]).inc_by(0));
    counters
}

fn gauge(registry: &Registry, row: &Metric) -> IntGaugeVec {
    registered(registry, IntGaugeVec::new(opts(row), row.labels))
}

fn float_gauge(registry: &Registry, row: &Metric) -> GaugeVec {
    registered(registry, GaugeVec::new(opts(row), row.labels))
}

fn histogram(registry: &Registry, row: &Metric) -> HistogramVec {
    let Kind::Histogram(buckets) = row.kind else { unreachable!("{} is no histogram", row.name) };
    let opts = HistogramOpts::new(row.name, row.help).buckets(buckets.to_vec());
    registered(registry, HistogramVec::new(opts, row.labels))
}

impl Default for Meters {
    fn default() -> Self {
        Self::new()
    }
}

impl Meters {
    /// Meters with a registry of their own, so that several nodes can live in one test.
    #[must_use]
    pub fn new() -> Self {
        let registry = Registry::new();
        let r = &registry;
        Self {
            surveys: Surveys::default(),
            topics: RwLock::default(),
            sinks: RwLock::default(),
            lateness: histogram(r, &table::LATENESS),
            messages: counter(r, &table::MESSAGES),
            scheduled: gauge(r, &table::SCHEDULED),
            due: gauge(r, &table::DUE),
            in_flight: gauge(r, &table::IN_FLIGHT),
            dead: gauge(r, &table::DEAD),
            oldest_due_age: registered(r, GaugeVec::new(opts(&table::OLDEST_DUE_AGE), table::OLDEST_DUE_AGE.labels)),
            shards: gauge(r, &table::SHARDS),
            shards_owned: gauge(r, &table::SHARDS_OWNED),
            shards_unowned: gauge(r, &table::SHARDS_UNOWNED),
            retries_waiting: gauge(r, &table::RETRIES_WAITING),
            resize_remaining: gauge(r, &table::RESIZE_REMAINING),
            claim_batch_size: histogram(r, &table::CLAIM_BATCH_SIZE),
            claims_expired: counter(r, &table::CLAIMS_EXPIRED),
            settlements_lost: counter(r, &table::SETTLEMENTS_LOST),
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
            store_used: float_gauge(r, &table::STORE_USED),
            store_limit: float_gauge(r, &table::STORE_LIMIT),
            store_call: histogram(r, &table::STORE_CALL),
            store_errors: from_zero(counter(r, &table::STORE_ERRORS), &StoreError::KINDS),
            durability: from_zero(counter(r, &table::DURABILITY), &["yes", "no"]),
            shard_refusals: from_zero(counter(r, &table::SHARD_REFUSALS), &["vanished", "occupied", "lost"]),
            shards_lost: gauge(r, &table::SHARDS_LOST),
            topics_troubled: {
                let troubled = gauge(r, &table::TOPICS_TROUBLED);
                for kind in ["vanished", "outdated", "unreadable"] {
                    troubled.with_label_values(&[kind]).set(0);
                }
                troubled
            },
            store_troubles: {
                let troubles = gauge(r, &table::STORE_TROUBLES);
                // An alarm needs a 0 to compare with, also where nobody looks (the embedded store).
                StoreTrouble::ALL.iter().for_each(|kind| troubles.with_label_values(&[kind.as_str()]).set(0));
                troubles
            },
            sink_call: histogram(r, &table::SINK_CALL),
            sink_errors: counter(r, &table::SINK_ERRORS),
            shard_backlogs: ShardMeters::new(
                gauge(r, &table::SHARD_DUE),
                registered(r, GaugeVec::new(opts(&table::SHARD_OLDEST_DUE_AGE), table::SHARD_OLDEST_DUE_AGE.labels)),
            ),
            lease_changes: from_zero(counter(r, &table::LEASE_CHANGES), &LEASE_KINDS),
            owners: gauge(r, &table::OWNERS),
            store_clock_skew: {
                let skew = registered(r, GaugeVec::new(opts(&table::STORE_CLOCK_SKEW), table::STORE_CLOCK_SKEW.labels));
                skew.with_label_values::<&str>(&[]).set(0.0);
                skew
            },
            budget_held: gauge(r, &table::IN_FLIGHT_BUDGET_HELD),
            budget_size: gauge(r, &table::IN_FLIGHT_BUDGET_SIZE),
            loop_restarts: counter(r, &table::LOOP_RESTARTS),
            cancels: counter(r, &table::CANCELS),
            requests: counter(r, &table::REQUESTS),
            request_seconds: histogram(r, &table::REQUEST_SECONDS),
            auth_refused: {
                let refused = counter(r, &table::AUTH_REFUSED);
                AUTH_REFUSALS.iter().for_each(|reason| refused.with_label_values(&[reason]).inc_by(0));
                refused
            },
            build_info: gauge(r, &table::BUILD_INFO),
            spans: from_zero(counter(r, &table::SPANS), &["exported", "queue_full", "failed"]),
            registry,
        }
    }

    /// Adds the process's own metrics (CPU, memory, file descriptors). Once per program.
    pub fn with_process(self) -> Self {
        let process = prometheus::process_collector::ProcessCollector::for_self();
        self.registry.register(Box::new(process)).expect("registered once per program");
        self
    }

    /// The meters of a topic; made at the first call.
    #[must_use]
    pub fn topic(&self, topic: &TopicName) -> Arc<TopicMeters> {
        if let Some(found) = self.topics.read().get(topic) {
            return found.clone();
        }
        let mut topics = self.topics.write();
        let is_named = topics.values().filter(|topic| topic.is_named).count() < TOPIC_SERIES_MAX;
        let make = || Arc::new(self.make_topic(if is_named { topic.as_str() } else { REST }, is_named));
        topics.entry(topic.clone()).or_insert_with(make).clone()
    }

    fn make_topic(&self, name: &str, is_named: bool) -> TopicMeters {
        let labels = &[name];
        // Counters and histograms of the others are one; their gauges are summed up when they are served.
        let gauge = |all: &IntGaugeVec| topics::gauge(all, is_named.then_some(name));
        let float_gauge = |all: &GaugeVec| topics::float_gauge(all, is_named.then_some(name));
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
            shards_lost: topics::gauge(&self.shards_lost, None),
            shards_of_rest: Mutex::default(),
            retries_waiting: gauge(&self.retries_waiting),
            retries: Mutex::default(),
            resize_remaining: gauge(&self.resize_remaining),
            claim_batch_size: self.claim_batch_size.with_label_values(labels),
            claims_expired: self.claims_expired.with_label_values(labels),
            settlements_lost: self.settlements_lost.with_label_values(labels),
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
                        topics::gauge(&self.forecast, None)
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
    pub fn forget_topic(&self, topic: &TopicName) {
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

    /// Counts what was delivered until `at` after the start of the program, each [`SAMPLE_EVERY`].
    pub fn sample(&self, at: Duration) {
        self.all_topics().iter().for_each(|topic| topic.sample(at));
        self.sinks.read().values().for_each(|sink| sink.sample(at));
    }

    /// A server of the store uses so many bytes of so many; `None`: it has no limit.
    #[expect(clippy::cast_precision_loss, reason = "gauges are floating point")]
    pub fn store_bytes(&self, server: &str, used: u64, limit: Option<u64>) {
        self.store_used.with_label_values(&[server]).set(used as f64);
        match limit {
            Some(limit) => self.store_limit.with_label_values(&[server]).set(limit as f64),
            None => drop(self.store_limit.remove_label_values(&[server])),
        }
    }

    /// A server is not one of the store's any more.
    pub fn forget_store_bytes(&self, server: &str) {
        let _ = self.store_used.remove_label_values(&[server]);
        let _ = self.store_limit.remove_label_values(&[server]);
    }

    /// What is due in each shard of `topic` that this node scans, and how late; none: it scans none.
    pub fn shard_backlogs(&self, topic: &TopicName, shards: Vec<ShardBacklog>) {
        let known = self.known_topic(topic);
        match known.filter(|meters| !meters.is_named) {
            Some(meters) => *meters.shards_of_rest.lock() = shards::sum(shards),
            None => self.shard_backlogs.set(topic, shards),
        }
    }

    /// One call to the store took this long.
    pub fn store_call(&self, op: &str, took: Duration) {
        self.store_call.with_label_values(&[shown_op(op)]).observe(took.as_secs_f64());
    }

    /// A shard was not made, for this reason.
    pub fn shard_refusal(&self, kind: &str) {
        self.shard_refusals.with_label_values(&[kind]).inc();
    }

    /// So many topics are in trouble of this kind.
    pub fn topics_troubled(&self, kind: &str, topics: usize) {
        self.topics_troubled.with_label_values(&[kind]).set(i64::try_from(topics).unwrap_or(i64::MAX));
    }

    /// A change was waited for until replicas had it; as many as `store.durability` asks for, or fewer.
    pub fn durability(&self, is_reached: bool) {
        self.durability.with_label_values(&[if is_reached { "yes" } else { "no" }]).inc();
    }

    /// One call to the store failed.
    pub fn store_error(&self, kind: &str) {
        debug_assert!(StoreError::KINDS.contains(&kind), "{kind} does not begin at 0");
        self.store_errors.with_label_values(&[kind]).inc();
    }

    /// So many servers of the store have this trouble.
    pub fn store_trouble(&self, kind: StoreTrouble, servers: usize) {
        let servers = i64::try_from(servers).unwrap_or(i64::MAX);
        self.store_troubles.with_label_values(&[kind.as_str()]).set(servers);
    }

    /// The meters of the sink called `name`, of type `kind`.
    #[must_use]
    pub fn sink(&self, name: &str, kind: &'static str) -> SinkMeters {
        let mut sinks = self.sinks.write();
        let make = || SinkMeters::new(&self.sink_call, &self.sink_errors, name, kind);
        sinks.entry((name.to_owned(), kind)).or_insert_with(make).clone()
    }

    /// The meters of all sinks that were used, by name.
    #[must_use]
    pub fn sinks(&self) -> Vec<SinkMeters> {
        self.sinks.read().values().cloned().collect()
    }

    /// This node took, gave up or lost shards.
    pub fn lease_changes(&self, kind: &str, n: u64) {
        self.lease_changes.with_label_values(&[kind]).inc_by(n);
    }

    /// So many nodes share the shards.
    pub fn owners(&self, mode: &str, n: i64) {
        self.owners.with_label_values(&[mode]).set(n);
    }

    /// A background loop ended by itself and is started again.
    pub fn loop_restarted(&self, name: &str) {
        self.loop_restarts.with_label_values(&[name]).inc();
    }

    /// A background loop is started for the first time: an alarm has a 0 to compare with from now on.
    pub fn loop_started(&self, name: &str) {
        self.loop_restarts.with_label_values(&[name]).inc_by(0);
    }

    /// How often a background loop was started again.
    #[must_use]
    pub fn loop_restarts(&self, name: &str) -> u64 {
        self.loop_restarts.with_label_values(&[name]).get()
    }

    /// The store's clock is ahead of this node's by this many milliseconds.
    #[expect(clippy::cast_precision_loss, reason = "a clock that is off by 285,000 years may be told inexactly")]
    pub fn store_clock_skew(&self, apart_ms: i64) {
        self.store_clock_skew.with_label_values::<&str>(&[]).set(apart_ms as f64 / 1000.0);
    }

    /// One HTTP request was answered, and that took so long.
    pub fn request(&self, route: &str, method: &str, status: u16, took: Duration) {
        self.requests.with_label_values(&[route, method, &status.to_string()]).inc();
        self.request_seconds.with_label_values(&[route, method]).observe(took.as_secs_f64());
    }

    /// A request was refused because of its token, with this code; any other code is not counted.
    pub fn auth_refused(&self, code: &str) {
        if AUTH_REFUSALS.contains(&code) {
            self.auth_refused.with_label_values(&[code]).inc();
        }
    }

    /// Which program this is: its version, its commit and what is built in. Once.
    pub fn build_info(&self, [version, commit, features]: [&str; 3], store: &str, mode: &str) {
        self.build_info.with_label_values(&[version, commit, features, store, mode]).set(1);
    }

    /// Everything, in Prometheus's text format.
    #[must_use]
    pub fn render(&self) -> String {
        self.sum_up_rest();
        TextEncoder::new().encode_to_string(&self.registry.gather()).expect("text can be written to memory")
    }
}

#[cfg(test)]
mod tests;
