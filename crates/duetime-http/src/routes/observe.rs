//! What operators and their machines look at: nodes, health, metrics, the API's document, the page.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use duetime_core::{Member, MemberState, Vitals};
use serde::Serialize;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::json::schema;
use crate::routes::issues::own_issues;
use crate::server::state::{Document, HttpParts};

/// Who has a node leave its shards to others, and since when.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct NodeDrain {
    /// The name of the token, for a token with the scope `admin`; absent: none was asked for.
    by: Option<String>,
    /// Milliseconds since the Unix epoch.
    at: i64,
}

/// One node.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct NodeView {
    id: String,
    #[schema(value_type = schema::NodeState)]
    state: &'static str,
    /// Why it is unhealthy.
    unhealthy: Option<String>,
    /// An operator drains it: its shards go to others.
    drain: Option<NodeDrain>,
    /// Where it listens.
    address: String,
    /// When it started, milliseconds since the Unix epoch.
    since: i64,
    #[schema(value_type = schema::OwnershipMode)]
    mode: &'static str,
    version: String,
    /// How many shards it scans.
    shards_owned: u32,
    /// How many of each topic; in round-robin a node knows only of its own.
    topics: BTreeMap<String, u32>,
    /// How it does; absent while nothing was heard of that.
    vitals: Option<VitalsView>,
}

/// How a node does, as it measured it itself.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct VitalsView {
    /// When, milliseconds since the Unix epoch by its own clock. Others say it every ten seconds at most.
    at: i64,
    /// Messages it claimed a minute, in the last minute; absent for a token of single topics.
    claims_per_minute: Option<u64>,
    /// Memory that it holds (resident), in bytes; absent where its system does not say.
    memory_bytes: Option<u64>,
    /// So far the store's clock is ahead of its own, in milliseconds; the worst of the store's servers.
    clock_skew_ms: i64,
    /// Since when it has had its lease without a break, as above; absent where nodes have none.
    lease_since: Option<i64>,
}

impl VitalsView {
    fn new(member: &Member, vitals: &Vitals, all: bool) -> Self {
        let at = member.since_ms.saturating_add_unsigned(vitals.up_ms);
        Self {
            at,
            claims_per_minute: Some(vitals.claims_per_minute).filter(|_| all),
            memory_bytes: vitals.memory_bytes,
            clock_skew_ms: vitals.clock_skew_ms,
            lease_since: vitals.lease_ms.map(|lease| at.saturating_sub_unsigned(lease)),
        }
    }
}

/// A node that went.
#[derive(Serialize, ToSchema)]
pub(crate) struct GoneNodeView {
    id: String,
    /// Where it listened.
    address: String,
    version: String,
    /// When it had started, milliseconds since the Unix epoch.
    since: i64,
    /// When another node missed it first, or it said that it stops, milliseconds since the Unix epoch.
    gone_at: i64,
    /// It said itself that it stops; false: it died, or was cut off.
    stopped: bool,
}

/// All nodes.
#[derive(Serialize, ToSchema)]
pub(crate) struct NodesView {
    nodes: Vec<NodeView>,
    /// Nodes that went in the last day and were not started again under the same name, the latest first: 64 at most. Absent:
    /// none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    gone: Vec<GoneNodeView>,
    /// What harms topics, the sharing of shards, the store or a log of the node that answers, as `/readyz` says it, a
    /// sentence each; what is wrong with a sink, its topics say. Absent when nothing is wrong, and for a token that is not
    /// for all topics.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    issues: Vec<String>,
}

/// Whether it is the node that answers.
pub(crate) fn is_this(app: &HttpParts, member: &Member) -> bool {
    member.id == app.node.id && member.address == app.node.address
}

/// List nodes
#[utoipa::path(
    get, path = "/v1/nodes", tag = "operations", operation_id = "list_nodes",
    security(("token" = [])),
    responses((status = 200, description = "Nodes and what they scan, as this node sees them", body = NodesView))
)]
pub(crate) async fn nodes(State(app): State<Arc<HttpParts>>, Extension(caller): Extension<Caller>) -> Response {
    let cluster = app.cluster.borrow().clone();
    let view = |(name, member): (&Arc<str>, &Member)| {
        let scanned = cluster.scanned_by(name).into_iter().filter(|(topic, _)| caller.sees(topic.as_str()));
        let topics: BTreeMap<String, u32> =
            scanned.map(|(topic, shards)| (topic.as_str().to_owned(), shards)).collect();
        // How many there are in all would reveal topics that the caller may not see.
        let all = member.shards.filter(|_| caller.sees_all());
        let heard = member.vitals.as_ref();
        let own = is_this(&app, member).then(|| {
            let now = app.meters.vitals();
            let lease_ms = heard.and_then(|old| Some(old.lease_ms? + now.up_ms.saturating_sub(old.up_ms)));
            Vitals { lease_ms, ..now }
        });
        let drains = is_this(&app, member) && app.draining.is_cancelled();
        NodeView {
            id: member.id.clone(),
            state: if drains { MemberState::Draining } else { member.state }.as_str(),
            unhealthy: member.unhealthy.clone(),
            drain: member.drain.as_ref().map(|drain| NodeDrain {
                by: drain.by.clone().filter(|_| caller.may_change_topics()),
                at: drain.at_ms,
            }),
            address: member.address.clone(),
            since: member.since_ms,
            mode: app.ownership.mode(),
            version: member.version.clone(),
            shards_owned: all.unwrap_or_else(|| topics.values().sum()),
            topics,
            vitals: own.as_ref().or(heard).map(|vitals| VitalsView::new(member, vitals, caller.sees_all())),
        }
    };
    let issues = if caller.sees_all() { own_issues(&app) } else { Vec::new() };
    let gone = app.gone.borrow().clone();
    let gone = gone.iter().map(|node| GoneNodeView {
        id: node.id.clone(),
        address: node.address.clone(),
        version: node.version.clone(),
        since: node.since_ms,
        gone_at: node.gone_ms,
        stopped: node.stopped,
    });
    let gone = gone.collect();
    Json(NodesView { nodes: cluster.members.iter().map(view).collect(), gone, issues }).into_response()
}

/// A word about the node.
#[derive(Serialize, ToSchema)]
pub(crate) struct StatusView {
    status: &'static str,
}

/// Alive
#[utoipa::path(
    get, path = "/healthz", tag = "operations", operation_id = "healthz", security(()),
    responses((status = 200, description = "The program answers", body = StatusView))
)]
pub(crate) async fn healthz() -> Json<StatusView> {
    Json(StatusView { status: "alive" })
}

/// This document
#[utoipa::path(
    get, path = "/openapi.json", tag = "operations", operation_id = "openapi", security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value, content_type = "application/json"))
)]
pub(crate) async fn openapi(Extension(document): Extension<Document>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], (document.0)()).into_response()
}
