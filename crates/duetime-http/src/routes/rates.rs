//! Rates and lateness of the last minutes, as this node measured them, or as all nodes did.

mod sum;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use duetime_core::{TopicConfig, TopicName, TopicRecord};
use duetime_metrics::{Event, RecentStep, SinkMeters, TopicMeters};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::json::path::{Query, read_topic};
use crate::json::problem::Problem;
use crate::routes::cluster::{self, FiguresOf, OfNodes, PARAMETERS, Question};
use crate::routes::sinks::{NodeSinkIssueView, SinkIssueView};
use crate::server::state::HttpParts;

/// One step of the past.
#[derive(Serialize, Deserialize, ToSchema)]
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
#[derive(Serialize, Deserialize, ToSchema)]
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
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct LatenessView {
    /// When they ended, milliseconds since the Unix epoch.
    at: i64,
    /// Deliveries whose lateness is at most each of `bounds_ms` and above the one before; the last: above all of them.
    counts: Vec<u64>,
}

/// Deliveries from the node's start to a moment.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct BudgetView {
    /// The moment, milliseconds since the Unix epoch.
    at: i64,
    deliveries: u64,
    /// Of these, later than a second.
    late: u64,
}

/// One topic in more detail.
#[derive(Serialize, Deserialize, ToSchema)]
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
#[skip_serializing_none]
#[derive(Serialize, Deserialize, ToSchema)]
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
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    of_rest: bool,
    /// Half of the deliveries were later than this; absent: there were none.
    late_p50_ms: Option<f64>,
    /// One delivery of a hundred was later than this; an hour at most.
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
    capacity: Option<f64>,
    /// How late the last message of a herd of the coming hour will be, as `duetime_forecast_late_seconds`; absent: all will be
    /// in time, as far as that is known.
    herd_late_ms: Option<f64>,
    /// The last five minutes in steps of ten seconds, the oldest first; none where nothing happened in all of them.
    steps: Vec<StepView>,
    /// Why nothing is delivered to its sink, by the nodes that say so; absent: nothing is wrong as far as they know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    sink_issues: Vec<NodeSinkIssueView>,
    /// With `histogram=true`, and of the cluster: the `deliveries` by lateness, at most each of `late_bounds_ms` and above the one
    /// before; the last: above all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    late_counts: Vec<u64>,
    /// Only of the `topic` that was asked for.
    detail: Option<TopicDetailView>,
}

/// Messages that a sink did not accept.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct RefusedView {
    /// As in `duetime_sink_errors_total`.
    #[schema(value_type = String)]
    kind: Cow<'static, str>,
    /// Since the node started.
    count: u64,
    /// In the last minute; less after the start.
    last_minute: u64,
}

/// One sink, at the answering node.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct SinkRatesView {
    sink: String,
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: Cow<'static, str>,
    /// Deliveries of a batch a second.
    calls: f64,
    /// Half of them took longer; absent: there were none.
    call_p50_ms: Option<f64>,
    /// One of a hundred took longer.
    call_p99_ms: Option<f64>,
    refused: Vec<RefusedView>,
    /// With `histogram=true`, and of the cluster: deliveries of the time that the percentiles are of, as `late_counts`, by
    /// `call_bounds_ms`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    call_counts: Vec<u64>,
}

/// Rates of the last minute.
#[derive(Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct RatesView {
    /// By name.
    topics: Vec<TopicRatesView>,
    /// By name, those that the token may use; for tokens with the scope `view` or `admin`.
    sinks: Vec<SinkRatesView>,
    /// Upper bounds of `late_counts`, where there are any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    late_bounds_ms: Vec<f64>,
    /// Upper bounds of `call_counts`, where there are any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    call_bounds_ms: Vec<f64>,
    /// The buckets of its nodes are not the same ones.
    #[serde(skip)]
    other_buckets: bool,
}

type RatesAnswer = OfNodes<RatesView>;

fn of(per_second: &[f64], event: Event) -> f64 {
    per_second.get(event as usize).copied().unwrap_or(0.0)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn in_ms(seconds: Option<f64>) -> Option<f64> {
    seconds.map(|seconds| seconds * 1000.0)
}

/// Finite upper bounds, in milliseconds.
fn bounds_ms(bounds: impl Iterator<Item = f64>) -> Vec<f64> {
    bounds.filter(|bound| bound.is_finite()).map(|bound| bound * 1000.0).collect()
}

/// What is in each bucket, from what is below each bound; none where nothing is in any.
fn counts(below: &[(f64, u64)]) -> Vec<u64> {
    let mut before = 0;
    let counts = below.iter().map(|(_, all)| all.saturating_sub(std::mem::replace(&mut before, *all)));
    let counts: Vec<u64> = counts.collect();
    if counts.iter().all(|count| *count == 0) { Vec::new() } else { counts }
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
            herd_late_ms: in_ms(Some(meters.forecast_late.get()).filter(|late| *late > 0.0)),
            steps: steps.into_iter().map(step).collect(),
            sink_issues: Vec::new(),
            late_counts: counts(&recent.below),
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
            bounds_ms: bounds_ms(history.bounds.iter().copied()),
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
            kind: kind.into(),
            calls: recent.per_second.first().copied().unwrap_or(0.0),
            call_p50_ms: in_ms(recent.p50),
            call_p99_ms: in_ms(recent.p99),
            refused: refused
                .map(|(kind, count, last_minute)| RefusedView { kind: kind.into(), count, last_minute })
                .collect(),
            call_counts: counts(&recent.below),
        }
    }
}

/// What this node measured.
fn own(app: &HttpParts, caller: &Caller, wanted: Option<&TopicName>, histogram: bool) -> RatesView {
    let (all, now_ms) = (app.catalog.all(), app.clock.now().as_millis());
    let seen = all
        .values()
        .filter(|record| caller.sees(record.name.as_str()) && wanted.is_none_or(|topic| *topic == record.name));
    let (mut late_bounds_ms, mut call_bounds_ms) = (Vec::new(), Vec::new());
    let mut topic = |record: &TopicRecord| {
        let meters = app.meters.topic(&record.name);
        let detail = wanted.map(|topic| {
            let (options, name) = (&app.options, topic.as_str());
            let file = options.topics.get(name).or_else(|| options.first_messages.settings_of(name));
            let origins = origins(&record.config, file);
            TopicDetailView::new(&meters, now_ms, origins)
        });
        let issue = SinkIssueView::of(app, &record.name, caller);
        let sink_issues = issue.map(|issue| NodeSinkIssueView::new(&app.node.id, issue)).into_iter().collect();
        let mut view = TopicRatesView { detail, sink_issues, ..TopicRatesView::new(record, &meters, now_ms) };
        if !histogram {
            view.late_counts.clear();
        } else if late_bounds_ms.is_empty() {
            late_bounds_ms = bounds_ms(meters.recent().below.iter().map(|(bound, _)| *bound));
        }
        view
    };
    let topics = seen.map(|record| topic(record)).collect();
    let sinks = if caller.sees_reasons() { app.meters.sinks() } else { Vec::new() };
    let sink = |meters: &SinkMeters| {
        let mut view = SinkRatesView::new(meters);
        if !histogram {
            view.call_counts.clear();
        } else if call_bounds_ms.is_empty() {
            call_bounds_ms = bounds_ms(meters.recent().below.iter().map(|(bound, _)| *bound));
        }
        view
    };
    let sinks = sinks.iter().filter(|sink| caller.sees_sink(sink.named().0)).map(sink).collect();
    RatesView { topics, sinks, late_bounds_ms, call_bounds_ms, other_buckets: false }
}

/// Rates of the last minute
///
/// What the answering node took in and delivered, how late that was, and how its sinks did; with `scope=cluster` what all
/// nodes did together. Of one `topic` also what became of its messages, how late they were step by step, how its error
/// budget went over the last day, and which settings are not their defaults and why. Costs the store nothing.
#[utoipa::path(
    get, path = "/v1/rates", tag = "operations", operation_id = "get_rates",
    security(("token" = [])),
    params(
        ("topic" = inline(Option<String>), Query, description = "Only of this topic, in detail"),
        ("scope" = inline(Option<String>), Query, description = "`node` (if absent): the node that answers; `cluster`: \
            all nodes together, which are asked with the same token; `nodes` says which have not answered"),
        ("node" = inline(Option<String>), Query, description = "Only of the node with this name, whichever answers"),
        ("histogram" = inline(Option<bool>), Query, description = "`true`: also the buckets behind the percentiles; \
            `false` if absent"),
    ),
    responses(
        (status = 200, description = "By topic and by sink", body = RatesAnswer),
        (status = 404, description = "`unknown_node`: there is no `node` of that name"),
    )
)]
pub(crate) async fn get(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["topic", "histogram", PARAMETERS[0], PARAMETERS[1]])?;
    let (wanted, whose) = (query.get("topic", None, read_topic)?, FiguresOf::read(&query)?);
    let histogram = query.flag("histogram")?;
    // Percentiles of several nodes are those of their buckets together.
    let with_buckets = histogram || whose != FiguresOf::ThisNode;
    let mut parameters = vec![("histogram", "true".to_owned())];
    parameters.extend(wanted.iter().map(|topic| ("topic", topic.to_string())));
    let question = Question { path: &["v1", "rates"], parameters };
    let own = async { Ok(own(&app, &caller, wanted.as_ref(), with_buckets)) };
    cluster::answer(&app, &headers, &whose, question, RatesView::default(), own).await
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
