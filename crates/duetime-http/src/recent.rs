//! Rates and lateness of the last minutes, as this node measured them.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use duetime_core::TopicRecord;
use duetime_metrics::{Event, RecentStep, SinkMeters, TopicMeters};
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::state::HttpParts;

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
    /// Hand-overs in it.
    handed_over: u64,
    /// Of these, later than a second.
    late: u64,
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
    /// Half of the hand-overs were later than this; absent: there were none. Of topics without series of their own in
    /// `/metrics` (beyond 256), lateness is that of all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    late_p50_ms: Option<f64>,
    /// One hand-over of a hundred was later than this; an hour at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    late_p99_ms: Option<f64>,
    /// Hand-overs in the time that the percentiles are of.
    handed_over: u64,
    /// Of these, later than a second.
    late: u64,
    /// Hand-overs since the node started.
    handed_over_total: u64,
    /// Of these, later than a second.
    late_total: u64,
    /// Messages a second that the node was able to deliver, see the forecast; absent: it never had enough to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    capacity: Option<f64>,
    /// The last five minutes in steps of ten seconds, the oldest first.
    steps: Vec<StepView>,
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
    /// Hand-overs of a batch a second.
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
        let (recent, steps, whole) = (meters.recent(), meters.steps(), meters.shares());
        let rate = |event| of(&recent.per_second, event);
        let step = |step: RecentStep| StepView {
            at: now_ms.saturating_sub_unsigned(millis(step.ago)),
            scheduled: of(&step.per_second, Event::Scheduled),
            cancelled: of(&step.per_second, Event::Cancelled),
            delivered: of(&step.per_second, Event::Delivered),
            handed_over: step.shares.counted,
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
            late_p50_ms: in_ms(recent.p50),
            late_p99_ms: in_ms(recent.p99),
            handed_over: recent.shares.counted,
            late: recent.shares.late,
            handed_over_total: whole.counted,
            late_total: whole.late,
            capacity: meters.capacity(),
            steps: steps.into_iter().map(step).collect(),
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
/// What the answering node took in and delivered, how late that was, and how its sinks did. Costs the store nothing.
#[utoipa::path(
    get, path = "/v1/rates", tag = "operations", operation_id = "get_rates",
    responses((status = 200, description = "By topic and by sink", body = RatesView))
)]
pub(crate) async fn get(State(app): State<Arc<HttpParts>>, Extension(caller): Extension<Caller>) -> Json<RatesView> {
    let (all, now_ms) = (app.catalog.all(), app.clock.now().as_millis());
    let seen = duetime_core::topic::by_name(&all).into_iter().filter(|record| caller.sees(record.name.as_str()));
    let topics = seen.map(|record| TopicRatesView::new(record, &app.meters.topic(&record.name), now_ms)).collect();
    let sinks = if caller.sees_reasons() { app.meters.sinks() } else { Vec::new() };
    let sinks = sinks.iter().filter(|sink| caller.sees_sink(sink.named().0)).map(SinkRatesView::new).collect();
    Json(RatesView { node: app.node.id.clone(), topics, sinks })
}
