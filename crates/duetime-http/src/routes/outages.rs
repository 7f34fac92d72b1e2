//! When nodes took sinks to be down.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use duetime_core::SinkOutage;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::json::path::{Query, read_topic};
use crate::json::problem::Problem;
use crate::routes::cluster::{self, ClusterView, FiguresOf, FiguresParams, OfNodes, PARAMETERS, Question};
use crate::server::state::HttpParts;

/// Most outages in an answer about several nodes.
const OUTAGES_MAX: usize = 1024;

/// A time in which the node took the sink of a topic to be down: it claimed nothing, and no message lost an attempt.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct OutageView {
    topic: String,
    /// As the topic named it then.
    sink: String,
    /// Milliseconds since the Unix epoch, by the node's clock.
    since: i64,
    /// Absent: it lasts.
    until: Option<i64>,
    /// How it ended. `accepted`: the sink did again; `nothing_due`: nothing waited for it on this node any more; `dropped`: the topic was paused, changed or deleted meanwhile.
    #[schema(value_type = Option<String>)]
    end: Option<Cow<'static, str>>,
    /// What was said first.
    reason: String,
    /// What was said last, where that is something else.
    last_reason: Option<String>,
    /// How often it was tried meanwhile and was down still.
    probes: u64,
    /// The node that took it to be down; absent where it is the one that answers.
    node: Option<String>,
}

/// Outages of sinks.
#[derive(Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct OutagesView {
    /// The latest first.
    outages: Vec<OutageView>,
}

type OutagesAnswer = OfNodes<OutagesView>;

impl From<SinkOutage> for OutageView {
    fn from(outage: SinkOutage) -> Self {
        let SinkOutage { topic, sink, since, ended, reason, last_reason, probes } = outage;
        Self {
            topic: topic.to_string(),
            sink,
            since: since.as_millis(),
            until: ended.map(|(at, _)| at.as_millis()),
            end: ended.map(|(_, how)| how.as_str().into()),
            reason,
            last_reason,
            probes,
            node: None,
        }
    }
}

impl ClusterView for OutagesView {
    fn add(&mut self, node: &str, other: Self) {
        self.outages.extend(other.outages.into_iter().map(|one| OutageView { node: Some(node.to_owned()), ..one }));
        self.outages.sort_by_key(|one| Reverse(one.since));
        self.outages.truncate(OUTAGES_MAX);
    }
}

/// When sinks were down
///
/// When the answering node took the sinks of topics to be down, why, and until when: the last 32 times of each topic,
/// 1,024 in all, since the node started; with `scope=cluster` those of all nodes, the last 1,024 of them. Kept in memory;
/// costs the store nothing.
#[utoipa::path(
    get, path = "/v1/outages", tag = "operations", operation_id = "list_outages",
    security(("token" = ["view"])),
    params(
        ("topic" = inline(Option<String>), Query, description = "Only of this topic"),
        FiguresParams,
    ),
    responses(
        (status = 200, description = "The latest first", body = OutagesAnswer),
        (status = 404, description = "`unknown_node`: there is no `node` of that name"),
    )
)]
pub(crate) async fn list(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["topic", PARAMETERS[0], PARAMETERS[1]])?;
    let (wanted, whose) = (query.get("topic", None, read_topic)?, FiguresOf::read(&query)?);
    let seen = |outage: &SinkOutage| {
        caller.sees(outage.topic.as_str()) && wanted.as_ref().is_none_or(|topic| *topic == outage.topic)
    };
    let own = async {
        let outages = app.sinks.outages().into_iter().filter(seen).map(OutageView::from).collect();
        Ok(OutagesView { outages })
    };
    let parameters = wanted.iter().map(|topic| ("topic", topic.to_string())).collect();
    let question = Question { path: &["v1", "outages"], parameters };
    cluster::answer(&app, &headers, &whose, question, OutagesView::default(), own).await
}
