//! When the answering node took sinks to be down.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::{Extension, Json};
use duetime_core::SinkOutage;
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::json::path::{Query, read_topic};
use crate::json::problem::Problem;
use crate::server::state::HttpParts;

/// A time in which the node took the sink of a topic to be down: it claimed nothing, and no message lost an attempt.
#[derive(Serialize, ToSchema)]
pub(crate) struct OutageView {
    topic: String,
    /// As the topic named it then.
    sink: String,
    /// Milliseconds since the Unix epoch, by the node's clock.
    since: i64,
    /// Absent: it lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    until: Option<i64>,
    /// How it ended. `accepted`: the sink did again; `nothing_due`: nothing waited for it on this node any more; `dropped`: the topic was paused, changed or deleted meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    end: Option<&'static str>,
    /// What was said first.
    reason: String,
    /// What was said last, where that is something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    last_reason: Option<String>,
    /// How often it was tried meanwhile and was down still.
    probes: u64,
}

/// Outages of sinks.
#[derive(Serialize, ToSchema)]
pub(crate) struct OutagesView {
    /// The node that answers: each finds out for itself, and keeps its own.
    node: String,
    /// The latest first.
    outages: Vec<OutageView>,
}

impl From<SinkOutage> for OutageView {
    fn from(outage: SinkOutage) -> Self {
        let SinkOutage { topic, sink, since, ended, reason, last_reason, probes } = outage;
        Self {
            topic: topic.to_string(),
            sink,
            since: since.as_millis(),
            until: ended.map(|(at, _)| at.as_millis()),
            end: ended.map(|(_, how)| how.as_str()),
            reason,
            last_reason,
            probes,
        }
    }
}

/// When sinks were down
///
/// When the answering node took the sinks of topics to be down, why, and until when: the last 32 times of each topic,
/// 1,024 in all, since the node started. Kept in memory; costs the store nothing.
#[utoipa::path(
    get, path = "/v1/outages", tag = "operations", operation_id = "list_outages",
    security(("token" = ["view"])),
    params(("topic" = inline(Option<String>), Query, description = "Only of this topic")),
    responses((status = 200, description = "The latest first", body = OutagesView))
)]
pub(crate) async fn list(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Json<OutagesView>, Problem> {
    let wanted = Query::read(query.as_deref(), &["topic"])?.get("topic", None, read_topic)?;
    let seen = |outage: &SinkOutage| {
        caller.sees(outage.topic.as_str()) && wanted.as_ref().is_none_or(|topic| *topic == outage.topic)
    };
    let outages = app.sinks.outages().into_iter().filter(seen).map(OutageView::from).collect();
    Ok(Json(OutagesView { node: app.node.id.clone(), outages }))
}
