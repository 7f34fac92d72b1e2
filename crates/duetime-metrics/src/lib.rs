//! The meters: every metric is in [`table`], and this is the only place that registers any.
//!
//! Handles are cheap to clone; those of a topic are looked up once and kept.

mod budget;
mod capacity;
mod labels;
mod recent;
mod register;
mod retries;
mod series;
mod shards;
mod sinks;
mod spans;
mod surveys;
pub mod table;
mod topic;
mod topics;
mod vitals;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use duetime_core::{StoreError, Timestamp, TopicName, Vitals};
use parking_lot::RwLock;
use prometheus::{GaugeVec, HistogramVec, IntCounterVec, IntGaugeVec, Registry, TextEncoder};

use labels::LEASE_KINDS;
use register::{counter, float_gauge, from_zero, gauge, histogram};
use topics::TopicSeries;

pub use budget::BudgetMeters;
pub use capacity::{CAPACITY_MESSAGES_MIN, CAPACITY_STRETCH, SAMPLE_EVERY};
pub use labels::{AUTH_REFUSALS, CancelVerdict, Event, FORECAST_WITHIN, StoreIssue};
pub use recent::{
    BUDGET_STEP, LATE_ABOVE_S, RECENT_SPAN, RECENT_STEP, Recent, RecentStep, Shares, TopicHistory, quantile,
};
pub use shards::{SHARD_SERIES_MAX, ShardBacklog};
pub use sinks::{SINK_ERROR_KINDS, SinkMeters};
pub use spans::SpanMeters;
pub use surveys::{SURVEYS_KEPT, Surveys};
pub use topic::{ConsumerAsk, TopicMeters};
pub use topics::{REST, TOPIC_SERIES_MAX};

/// Sinks with series of their own, at each node: those that are put by the API have ever other names.
pub const SINK_SERIES_MAX: usize = 512;

/// All meters of one program.
#[derive(Debug)]
pub struct Meters {
    /// The last counts of shards. No metric.
    pub surveys: Surveys,
    /// The last sample, in milliseconds after the start of the program.
    sampled_ms: AtomicU64,
    registry: Registry,
    topics: TopicSeries,
    /// By name and type.
    sinks: RwLock<BTreeMap<(String, &'static str), SinkMeters>>,
    store_used: GaugeVec,
    store_limit: GaugeVec,
    store_call: HistogramVec,
    store_errors: IntCounterVec,
    replica_waits: IntCounterVec,
    shard_refusals: IntCounterVec,
    topic_issues: IntGaugeVec,
    store_issues: IntGaugeVec,
    sink_call: HistogramVec,
    sink_errors: IntCounterVec,
    lease_changes: IntCounterVec,
    ownership_up: IntGaugeVec,
    nodes_serving: IntGaugeVec,
    /// The store answered a survey since the last sample.
    is_surveyed: AtomicBool,
    /// The last sample by which it had, as `sampled_ms`.
    surveyed_ms: AtomicU64,
    survey_age: GaugeVec,
    store_clock_skew: GaugeVec,
    budget_held: IntGaugeVec,
    budget_size: IntGaugeVec,
    loop_restarts: IntCounterVec,
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    auth_refused: IntCounterVec,
    build_info: IntGaugeVec,
    certificate_ends: GaugeVec,
    config_reloaded: IntGaugeVec,
    spans: IntCounterVec,
    lines_lost: IntCounterVec,
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
            sampled_ms: AtomicU64::new(0),
            topics: TopicSeries::new(r),
            sinks: RwLock::default(),
            store_used: float_gauge(r, &table::STORE_USED),
            store_limit: float_gauge(r, &table::STORE_LIMIT),
            store_call: histogram(r, &table::STORE_CALL),
            store_errors: from_zero(counter(r, &table::STORE_ERRORS), &StoreError::KINDS),
            replica_waits: from_zero(counter(r, &table::REPLICA_WAITS), &["yes", "no"]),
            shard_refusals: from_zero(counter(r, &table::SHARD_REFUSALS), &["vanished", "occupied", "lost"]),
            topic_issues: {
                let issues = gauge(r, &table::TOPIC_ISSUES);
                for kind in ["vanished", "outdated", "unreadable", "stranded"] {
                    issues.with_label_values(&[kind]).set(0);
                }
                issues
            },
            store_issues: {
                let issues = gauge(r, &table::STORE_ISSUES);
                // An alarm needs a 0 to compare with, also where nobody looks (the embedded store).
                StoreIssue::ALL.iter().for_each(|(_, kind)| issues.with_label_values(&[*kind]).set(0));
                issues
            },
            sink_call: histogram(r, &table::SINK_CALL),
            sink_errors: counter(r, &table::SINK_ERRORS),
            lease_changes: from_zero(counter(r, &table::LEASE_CHANGES), &LEASE_KINDS),
            ownership_up: gauge(r, &table::OWNERSHIP_UP),
            nodes_serving: gauge(r, &table::NODES_SERVING),
            is_surveyed: AtomicBool::new(false),
            surveyed_ms: AtomicU64::new(0),
            survey_age: {
                let age = float_gauge(r, &table::SURVEY_AGE);
                age.with_label_values::<&str>(&[]).set(0.0);
                age
            },
            store_clock_skew: {
                let skew = float_gauge(r, &table::STORE_CLOCK_SKEW);
                skew.with_label_values::<&str>(&[]).set(0.0);
                skew
            },
            budget_held: gauge(r, &table::IN_FLIGHT_BUDGET_HELD),
            budget_size: gauge(r, &table::IN_FLIGHT_BUDGET_SIZE),
            loop_restarts: counter(r, &table::LOOP_RESTARTS),
            requests: counter(r, &table::REQUESTS),
            request_seconds: histogram(r, &table::REQUEST_SECONDS),
            auth_refused: {
                let refused = counter(r, &table::AUTH_REFUSED);
                AUTH_REFUSALS.iter().for_each(|reason| refused.with_label_values(&[reason]).inc_by(0));
                refused
            },
            build_info: gauge(r, &table::BUILD_INFO),
            certificate_ends: float_gauge(r, &table::CERTIFICATE_ENDS),
            config_reloaded: {
                let reloaded = gauge(r, &table::CONFIG_RELOADED);
                reloaded.with_label_values::<&str>(&[]).set(1);
                reloaded
            },
            spans: from_zero(counter(r, &table::SPANS), &["exported", "queue_full", "failed"]),
            lines_lost: from_zero(counter(r, &table::LINES_LOST), &["log", "audit"]),
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
        self.topics.of(topic)
    }

    /// The meters of a topic, if it has any yet.
    #[must_use]
    pub fn known_topic(&self, topic: &TopicName) -> Option<Arc<TopicMeters>> {
        self.topics.known(topic)
    }

    /// Takes a deleted topic's rows out of the answer.
    pub fn forget_topic(&self, topic: &TopicName) {
        self.topics.forget(topic);
    }

    /// Takes out of the gauges of retries what has fallen due by now.
    pub fn retries_due(&self, now: Timestamp) {
        self.topics.all().iter().for_each(|topic| topic.retries_due(now));
    }

    /// So many shards of `topic` are lost.
    pub fn shards_lost(&self, topic: &TopicName, shards: usize) {
        self.topics.shards_lost(topic, shards);
    }

    /// What is due in each shard of `topic` that this node scans, and how late; none: it scans none. A topic without
    /// meters gets none.
    pub fn shard_backlogs(&self, topic: &TopicName, shards: Vec<ShardBacklog>) {
        self.topics.shard_backlogs(topic, shards);
    }

    /// The gauges of what this node holds of its in-flight budget, which has this size.
    #[must_use]
    pub fn in_flight_budget(&self, messages_max: usize, bytes_max: usize) -> BudgetMeters {
        for (unit, size) in [("messages", messages_max), ("bytes", bytes_max)] {
            self.budget_size.with_label_values(&[unit]).set(i64::try_from(size).unwrap_or(i64::MAX));
        }
        BudgetMeters::new(&self.budget_held)
    }

    /// The counters of spans.
    #[must_use]
    pub fn spans(&self) -> SpanMeters {
        SpanMeters::new(&self.spans)
    }

    /// Counts what was delivered until `at` after the start of the program, each [`SAMPLE_EVERY`].
    pub fn sample(&self, at: Duration) {
        let at_ms = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        self.sampled_ms.store(at_ms, Ordering::Relaxed);
        if self.is_surveyed.swap(false, Ordering::Relaxed) {
            self.surveyed_ms.store(at_ms, Ordering::Relaxed);
        }
        let silent = Duration::from_millis(at_ms.saturating_sub(self.surveyed_ms.load(Ordering::Relaxed)));
        self.survey_age.with_label_values::<&str>(&[]).set(silent.as_secs_f64());
        self.topics.all().iter().for_each(|topic| topic.sample(at));
        self.sinks.read().values().for_each(|sink| sink.sample(at));
    }

    /// How this node does.
    #[must_use]
    pub fn vitals(&self) -> Vitals {
        let up = Duration::from_millis(self.sampled_ms.load(Ordering::Relaxed));
        let skew = self.store_clock_skew.with_label_values::<&str>(&[]).get();
        vitals::vitals(up, self.topics.all().iter().map(|topic| topic.recent()), skew)
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

    /// One call to the store took this long.
    pub fn store_call(&self, op: &str, took: Duration) {
        self.store_call.with_label_values(&[op]).observe(took.as_secs_f64());
    }

    /// A shard was not made, for this reason.
    pub fn shard_refusal(&self, kind: &str) {
        self.shard_refusals.with_label_values(&[kind]).inc();
    }

    /// Sets how many topics have an issue of this kind.
    pub fn topic_issues(&self, kind: &str, topics: usize) {
        self.topic_issues.with_label_values(&[kind]).set(i64::try_from(topics).unwrap_or(i64::MAX));
    }

    /// Counts a wait for replicas: `is_reached` if as many have the change as `store.durability` asks for.
    pub fn replica_wait(&self, is_reached: bool) {
        self.replica_waits.with_label_values(&[if is_reached { "yes" } else { "no" }]).inc();
    }

    /// One call to the store failed.
    pub fn store_error(&self, kind: &str) {
        debug_assert!(StoreError::KINDS.contains(&kind), "{kind} does not begin at 0");
        self.store_errors.with_label_values(&[kind]).inc();
    }

    /// Sets how many servers of the store have this issue.
    pub fn store_issue(&self, kind: StoreIssue, servers: usize) {
        let servers = i64::try_from(servers).unwrap_or(i64::MAX);
        self.store_issues.with_label_values(&[kind.as_str()]).set(servers);
    }

    /// The meters of the sink called `name`, of type `kind`: of the first [`SINK_SERIES_MAX`] since the start its own, else
    /// those of [`REST`].
    #[must_use]
    pub fn sink(&self, name: &str, kind: &'static str) -> SinkMeters {
        let mut sinks = self.sinks.write();
        let is_named = sinks.len() < SINK_SERIES_MAX || sinks.contains_key(&(name.to_owned(), kind));
        let name = if is_named { name } else { REST };
        let make = || SinkMeters::new(&self.sink_call, &self.sink_errors, name, kind);
        sinks.entry((name.to_owned(), kind)).or_insert_with(make).clone()
    }

    /// The meters of all sinks that were used, by name.
    #[must_use]
    pub fn sinks(&self) -> Vec<SinkMeters> {
        self.sinks.read().values().cloned().collect()
    }

    /// Counts shards that this node took, released or lost.
    pub fn lease_changes(&self, kind: &str, n: u64) {
        self.lease_changes.with_label_values(&[kind]).inc_by(n);
    }

    /// Sets how many nodes share the shards.
    pub fn nodes_serving(&self, mode: &str, n: i64) {
        self.nodes_serving.with_label_values(&[mode]).set(n);
    }

    /// Sets whether what nodes share the shards by answers this node and takes its writes.
    pub fn ownership_up(&self, mode: &str, is_up: bool) {
        self.ownership_up.with_label_values(&[mode]).set(i64::from(is_up));
    }

    /// The store answered a survey of this node's shards, or there was nothing to ask.
    pub fn surveyed(&self) {
        self.is_surveyed.store(true, Ordering::Relaxed);
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
    #[expect(clippy::cast_precision_loss, reason = "a clock that is off by 285,000 years may be shown inexactly")]
    pub fn store_clock_skew(&self, apart_ms: i64) {
        self.store_clock_skew.with_label_values::<&str>(&[]).set(apart_ms as f64 / 1000.0);
    }

    /// One HTTP request was answered, and that took this long.
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

    /// So many lines of this log, `log` or `audit`, were lost since the start.
    pub fn lines_lost(&self, log: &str, total: u64) {
        let lost = self.lines_lost.with_label_values(&[log]);
        lost.inc_by(total.saturating_sub(lost.get()));
    }

    /// The certificate that `key` of the configuration names ends then, in seconds since the Unix epoch.
    #[expect(clippy::cast_precision_loss, reason = "a second of 285 million years is as good as another")]
    pub fn certificate_ends(&self, key: &str, ends_s: i64) {
        self.certificate_ends.with_label_values(&[key]).set(ends_s as f64);
    }

    /// Whether the configuration was taken when it was read last.
    pub fn config_reloaded(&self, is_taken: bool) {
        self.config_reloaded.with_label_values::<&str>(&[]).set(i64::from(is_taken));
    }

    /// Which program this is: its version, its commit and what is built in. Once.
    pub fn build_info(&self, [version, commit, features]: [&str; 3], store: &str, mode: &str) {
        self.build_info.with_label_values(&[version, commit, features, store, mode]).set(1);
    }

    /// Everything, in Prometheus's text format.
    #[must_use]
    pub fn render(&self) -> String {
        self.topics.sum_up_rest();
        TextEncoder::new().encode_to_string(&self.registry.gather()).expect("text can be written to memory")
    }
}

#[cfg(test)]
mod tests;
