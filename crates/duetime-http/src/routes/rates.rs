//! Rates and lateness of the last minutes, as this node measured them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::{Extension, Json};
use duetime_core::{TopicConfig, TopicRecord};
use duetime_metrics::{Event, RecentStep, SinkMeters, TopicMeters};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::json::path::{Query, read_topic};
use crate::json::problem::Problem;
use crate::server::state::HttpParts;

/// One step of the past.
#[derive(Serialize, ToSchema)]
pub(crate) struct StepView {
    /// When it ended, milliseconds since the Unix epoch.
    at: i64,
    /// New messages, a second.
    scheduled: f64,
    /// Cancelled a second.
    cancelled: f64,
    /// Delivered a second.
    delivered: f64,
    /// Deliveries in it: attempts that the sink accepted, and messages that consumers were given.
    deliveries: u64,
    /// Of these, later than a second.
    late: u64,
}

/// What became of messages.
#[derive(Serialize, ToSchema)]
pub(crate) struct FlowView {
    /// New messages.
    scheduled: u64,
    cancelled: u64,
    /// Accepted by the sink, or acked.
    delivered: u64,
    /// Attempts that are to be repeated.
    retried: u64,
    /// Became dead letters.
    dead: u64,
    /// Came back from the dead letters.
    redriven: u64,
}

/// The lateness of the deliveries of ten seconds.
#[derive(Serialize, ToSchema)]
pub(crate) struct LatenessView {
    /// When they ended, milliseconds since the Unix epoch.
    at: i64,
    /// Deliveries whose lateness is at most each of `bounds_ms` and above the one before; the last: above all of them.
    counts: Vec<u64>,
}

/// Deliveries from the node's start to a moment.
#[derive(Serialize, ToSchema)]
pub(crate) struct BudgetView {
    /// The moment, milliseconds since the Unix epoch.
    at: i64,
    deliveries: u64,
    /// Of these, later than a second.
    late: u64,
}

/// One topic in more detail.
#[derive(Serialize, ToSchema)]
pub(crate) struct TopicDetailView {
    /// Since the node started.
    flow: FlowView,
    /// Upper bounds of the lateness.
    bounds_ms: Vec<f64>,
    /// The last five minutes in steps of ten seconds, the oldest first. Of topics without series of their own in
    /// `/metrics` (beyond 256), it is that of all of them.
    lateness: Vec<LatenessView>,
    /// Every 15 minutes of the last day, and now, the oldest first.
    budget: Vec<BudgetView>,
    /// Settings that are not their defaults, by name (`retry.max_attempts`). `file`: as this node's configuration file
    /// has it, which makes the topic where there is none; `set`: as somebody set it, or the file of another node.
    origins: BTreeMap<String, String>,
}

/// One topic, at the answering node: what it took in and what it delivered.
#[derive(Serialize, ToSchema)]
pub(crate) struct TopicRatesView {
    topic: String,
    /// Milliseconds that the rates and percentiles are of: a minute, less after the start.
    over_ms: u64,
    /// Messages taken in as new a second.
    scheduled: f64,
    cancelled: f64,
    /// Accepted by the sink, or acked.
    delivered: f64,
    retried: f64,
    /// Became dead letters.
    dead: f64,
    /// The topic has no series of its own in `/metrics` (beyond 256): lateness, and how many deliveries there were, are
    /// those of all such topics together. Absent: false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    of_rest: bool,
    /// Half of the deliveries were later than this; absent: there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    late_p50_ms: Option<f64>,
    /// One delivery of a hundred was later than this; an hour at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    late_p99_ms: Option<f64>,
    /// Deliveries in the time that the percentiles are of.
    deliveries: u64,
    /// Of these, later than a second.
    late: u64,
    /// Deliveries since the node started.
    deliveries_total: u64,
    /// Of these, later than a second.
    late_total: u64,
    /// Messages a second that the node was able to deliver, see the forecast; absent: it never had enough to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    capacity: Option<f64>,
    /// The last five minutes in steps of ten seconds, the oldest first; none where nothing happened in all of them.
    steps: Vec<StepView>,
    /// Only of the `topic` that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    detail: Option<TopicDetailView>,
}

/// Messages that a sink did not accept.
#[derive(Serialize, ToSchema)]
pub(crate) struct RefusedView {
    /// As in `duetime_sink_errors_total`.
    kind: &'static str,
    /// Since the node started.
    count: u64,
    /// In the last minute; less after the start.
    last_minute: u64,
}

/// One sink, at the answering node.
#[derive(Serialize, ToSchema)]
pub(crate) struct SinkRatesView {
    sink: String,
    #[serde(rename = "type")]
    kind: &'static str,
    /// Deliveries of a batch a second.
    calls: f64,
    /// Half of them took longer; absent: there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    call_p50_ms: Option<f64>,
    /// One of a hundred took longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    call_p99_ms: Option<f64>,
    refused: Vec<RefusedView>,
}

/// Rates of the last minute.
#[derive(Serialize, ToSchema)]
pub(crate) struct RatesView {
    /// The node that answers: the whole is the sum over the nodes.
    node: String,
    /// By name.
    topics: Vec<TopicRatesView>,
    /// By name, those that the token may use; for tokens with the scope `view` or `admin`.
    sinks: Vec<SinkRatesView>,
}

fn of(per_second: &[f64], event: Event) -> f64 {
    per_second.get(event as usize).copied().unwrap_or(0.0)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn in_ms(seconds: Option<f64>) -> Option<f64> {
    seconds.map(|seconds| seconds * 1000.0)
}

impl TopicRatesView {
    fn new(record: &TopicRecord, meters: &TopicMeters, now_ms: i64) -> Self {
        let (recent, mut steps, whole) = (meters.recent(), meters.steps(), meters.shares());
        let is_still = |step: &RecentStep| step.shares.counted == 0 && step.per_second.iter().all(|rate| *rate == 0.0);
        if steps.iter().all(is_still) {
            steps.clear();
        }
        let rate = |event| of(&recent.per_second, event);
        let step = |step: RecentStep| StepView {
            at: now_ms.saturating_sub_unsigned(millis(step.ago)),
            scheduled: of(&step.per_second, Event::Scheduled),
            cancelled: of(&step.per_second, Event::Cancelled),
            delivered: of(&step.per_second, Event::Delivered),
            deliveries: step.shares.counted,
            late: step.shares.late,
        };
        Self {
            topic: record.name.to_string(),
            over_ms: millis(recent.over),
            scheduled: rate(Event::Scheduled),
            cancelled: rate(Event::Cancelled),
            delivered: rate(Event::Delivered),
            retried: rate(Event::Retried),
            dead: rate(Event::Dead),
            of_rest: meters.is_of_rest(),
            late_p50_ms: in_ms(recent.p50),
            late_p99_ms: in_ms(recent.p99),
            deliveries: recent.shares.counted,
            late: recent.shares.late,
            deliveries_total: whole.counted,
            late_total: whole.late,
            capacity: meters.capacity(),
            steps: steps.into_iter().map(step).collect(),
            detail: None,
        }
    }
}

/// The settings by name, what is in an object by itself.
fn leaves(config: &TopicConfig) -> BTreeMap<String, Value> {
    fn flat(to: &mut BTreeMap<String, Value>, name: String, value: Value) {
        match value {
            Value::Object(map) => map.into_iter().for_each(|(key, value)| {
                let name = if name.is_empty() { key } else { format!("{name}.{key}") };
                flat(to, name, value);
            }),
            value => drop(to.insert(name, value)),
        }
    }
    let mut found = BTreeMap::new();
    flat(&mut found, String::new(), serde_json::to_value(config).expect("settings are plain"));
    found
}

/// Where what is not the default comes from; `file`: the topic in this node's configuration.
fn origins(config: &TopicConfig, file: Option<&TopicConfig>) -> BTreeMap<String, String> {
    let (now, default) = (leaves(config), leaves(&TopicConfig::default()));
    let file = file.map_or_else(|| default.clone(), leaves);
    let mut found = BTreeMap::new();
    for name in now.keys().chain(file.keys()) {
        let origin = match (now.get(name), file.get(name), default.get(name)) {
            (now, file, default) if now == file && now == default => continue,
            (now, file, _) if now == file => "file",
            _ => "set",
        };
        found.insert(name.clone(), origin.to_owned());
    }
    found
}

impl TopicDetailView {
    fn new(meters: &TopicMeters, now_ms: i64, origins: BTreeMap<String, String>) -> Self {
        let (history, count) = (meters.history(), |event| meters.counted(event));
        let at = |ago: Duration| now_ms.saturating_sub_unsigned(millis(ago));
        let budget = history.budget.into_iter();
        Self {
            flow: FlowView {
                scheduled: count(Event::Scheduled),
                cancelled: count(Event::Cancelled),
                delivered: count(Event::Delivered),
                retried: count(Event::Retried),
                dead: count(Event::Dead),
                redriven: count(Event::Redriven),
            },
            bounds_ms: history.bounds.iter().filter(|bound| bound.is_finite()).map(|bound| bound * 1000.0).collect(),
            lateness: history.steps.into_iter().map(|(ago, counts)| LatenessView { at: at(ago), counts }).collect(),
            budget: budget
                .map(|(ago, shares)| BudgetView { at: at(ago), deliveries: shares.counted, late: shares.late })
                .collect(),
            origins,
        }
    }
}

impl SinkRatesView {
    fn new(meters: &SinkMeters) -> Self {
        let ((name, kind), recent) = (meters.named(), meters.recent());
        let refused = meters.refused(&recent).into_iter();
        Self {
            sink: name.to_owned(),
            kind,
            calls: recent.per_second.first().copied().unwrap_or(0.0),
            call_p50_ms: in_ms(recent.p50),
            call_p99_ms: in_ms(recent.p99),
            refused: refused.map(|(kind, count, last_minute)| RefusedView { kind, count, last_minute }).collect(),
        }
    }
}

/// Rates of the last minute
///
/// What the answering node took in and delivered, how late that was, and how its sinks did. Of one `topic` also what
/// became of its messages, how late they were step by step, how its error budget went over the last day, and which
/// settings are not their defaults and why. Costs the store nothing.
#[utoipa::path(
    get, path = "/v1/rates", tag = "operations", operation_id = "get_rates",
    security(("token" = [])),
    params(("topic" = inline(Option<String>), Query, description = "Only of this topic, in detail")),
    responses((status = 200, description = "By topic and by sink", body = RatesView))
)]
pub(crate) async fn get(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Json<RatesView>, Problem> {
    let wanted = Query::read(query.as_deref(), &["topic"])?.get("topic", None, read_topic)?;
    let (all, now_ms) = (app.catalog.all(), app.clock.now().as_millis());
    let seen = all.values().filter(|record| {
        caller.sees(record.name.as_str()) && wanted.as_ref().is_none_or(|topic| *topic == record.name)
    });
    let topic = |record: &TopicRecord| {
        let meters = app.meters.topic(&record.name);
        let detail = wanted.as_ref().map(|topic| {
            let (options, name) = (&app.options, topic.as_str());
            let file = options.topics.get(name).or_else(|| options.first_messages.settings_of(name));
            let origins = origins(&record.config, file);
            TopicDetailView::new(&meters, now_ms, origins)
        });
        TopicRatesView { detail, ..TopicRatesView::new(record, &meters, now_ms) }
    };
    let topics = seen.map(|record| topic(record)).collect();
    let sinks = if caller.sees_reasons() { app.meters.sinks() } else { Vec::new() };
    let sinks = sinks.iter().filter(|sink| caller.sees_sink(sink.named().0)).map(SinkRatesView::new).collect();
    Ok(Json(RatesView { node: app.node.id.clone(), topics, sinks }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_is_not_its_default_is_of_the_file_or_was_set() {
        let read = |text: &str| serde_json::from_str::<TopicConfig>(text).unwrap();
        let shown = |now: &str, file: Option<&str>| {
            let found = origins(&read(now), file.map(read).as_ref());
            found.into_iter().map(|(name, origin)| format!("{name} {origin}")).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(shown("{}", None), "");
        assert_eq!(
            shown(r#"{"visibility_timeout":"45s","retry":{"max_attempts":3}}"#, None),
            "retry.max_attempts set, visibility_timeout set"
        );
        let file = r#"{"sink":{"name":"out"},"visibility_timeout":"45s","max_messages":9}"#;
        let now = r#"{"sink":{"name":"out"},"visibility_timeout":"50s"}"#;
        assert_eq!(shown(now, Some(file)), "max_messages set, sink.name file, visibility_timeout set");
    }
}
