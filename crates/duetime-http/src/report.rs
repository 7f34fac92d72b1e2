//! How a topic did at the answering node, and where its settings come from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use duetime_core::TopicConfig;
use duetime_metrics::{Event, TopicMeters};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::path::Topic;
use crate::problem::Problem;
use crate::state::HttpParts;

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

impl FlowView {
    fn new(count: impl Fn(Event) -> u64) -> Self {
        Self {
            scheduled: count(Event::Scheduled),
            cancelled: count(Event::Cancelled),
            delivered: count(Event::Delivered),
            retried: count(Event::Retried),
            dead: count(Event::Dead),
            redriven: count(Event::Redriven),
        }
    }
}

/// The lateness of what was handed over in ten seconds.
#[derive(Serialize, ToSchema)]
pub(crate) struct LatenessView {
    /// When they ended, milliseconds since the Unix epoch.
    at: i64,
    /// Hand-overs up to each of `bounds_ms` and later than the one before; the last: later than all of them.
    counts: Vec<u64>,
}

/// What was handed over since the start until a moment.
#[derive(Serialize, ToSchema)]
pub(crate) struct BudgetView {
    /// The moment, milliseconds since the Unix epoch.
    at: i64,
    handed_over: u64,
    /// Of these, later than a second.
    late: u64,
}

/// How a topic did at one node.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReportView {
    /// The node that answers: the whole is the sum over the nodes.
    node: String,
    /// Since it started.
    flow: FlowView,
    /// The last five minutes; less after the start.
    flow_lately: FlowView,
    /// How long that is, in milliseconds.
    lately_ms: u64,
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
pub(crate) fn origins(config: &TopicConfig, file: Option<&TopicConfig>) -> BTreeMap<String, String> {
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

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn view(node: String, meters: &TopicMeters, now_ms: i64, origins: BTreeMap<String, String>) -> ReportView {
    let report = meters.report();
    let at = |ago: Duration| now_ms.saturating_sub_unsigned(millis(ago));
    ReportView {
        node,
        flow: FlowView::new(|event| meters.counted(event)),
        flow_lately: FlowView::new(|event| report.grown.get(event as usize).copied().unwrap_or(0)),
        lately_ms: millis(report.over),
        bounds_ms: report.bounds.iter().filter(|bound| bound.is_finite()).map(|bound| bound * 1000.0).collect(),
        lateness: report.steps.into_iter().map(|(ago, counts)| LatenessView { at: at(ago), counts }).collect(),
        budget: report
            .budget
            .into_iter()
            .map(|(ago, shares)| BudgetView { at: at(ago), handed_over: shares.counted, late: shares.late })
            .collect(),
        origins,
    }
}

/// Report of a topic
///
/// What became of its messages at the answering node, how late they were step by step, how its error budget went over the
/// last day, and which settings are not their defaults and why. Costs the store nothing.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/report", tag = "operations", operation_id = "get_report",
    params(("topic" = String, Path, description = "Name of the topic")),
    responses((status = 200, description = "As this node counted it", body = ReportView))
)]
pub(crate) async fn get(State(app): State<Arc<HttpParts>>, Topic(topic): Topic) -> Result<Json<ReportView>, Problem> {
    let record = app.router.topic(&topic).await?;
    let origins = origins(&record.config, app.options.topics.get(topic.as_str()));
    let meters = app.meters.topic(&topic);
    Ok(Json(view(app.node.id.clone(), &meters, app.clock.now().as_millis(), origins)))
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
