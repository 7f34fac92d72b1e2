//! What operators and their machines look at: nodes, health, metrics, the API's document, the page.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use duetime_core::limits::CLOCK_SKEW_MAX;
use duetime_core::{Member, MemberState, StoreError, Vitals};
use duetime_router::Reach;
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::json::problem::Problem;
use crate::json::schema;
use crate::server::state::{Document, HttpParts};

/// Who has a node leave its shards to others, and since when.
#[derive(Serialize, ToSchema)]
pub(crate) struct NodeDrain {
    /// The name of the token, for a token with the scope `admin`; absent: none was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    by: Option<String>,
    /// Milliseconds since the Unix epoch.
    at: i64,
}

/// One node.
#[derive(Serialize, ToSchema)]
pub(crate) struct NodeView {
    id: String,
    #[schema(value_type = schema::NodeState)]
    state: &'static str,
    /// Why it is unhealthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    unhealthy: Option<String>,
    /// An operator drains it: its shards go to others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    vitals: Option<VitalsView>,
}

/// How a node does, as it measured it itself.
#[derive(Serialize, ToSchema)]
pub(crate) struct VitalsView {
    /// When, milliseconds since the Unix epoch by its own clock. Others say it every ten seconds at most.
    at: i64,
    /// Messages it claimed a minute, in the last minute; absent for a token of single topics.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    claims_per_minute: Option<u64>,
    /// Memory that it holds (resident), in bytes; absent where its system does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    memory_bytes: Option<u64>,
    /// So far the store's clock is ahead of its own, in milliseconds; the worst of the store's servers.
    clock_skew_ms: i64,
    /// Since when it has had its lease without a break, as above; absent where nodes have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
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

/// All nodes.
#[derive(Serialize, ToSchema)]
pub(crate) struct NodesView {
    nodes: Vec<NodeView>,
    /// What harms topics, the sharing of shards, the store or a log of the node that answers, as `/readyz` says it, a
    /// sentence each; what is wrong with a sink, its topics say. Absent when nothing is wrong, and for a token that is not
    /// for all topics.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    issues: Vec<String>,
}

/// Whether it is the node that answers.
fn is_this(app: &HttpParts, member: &Member) -> bool {
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
            mode: app.node.mode,
            version: member.version.clone(),
            shards_owned: all.unwrap_or_else(|| topics.values().sum()),
            topics,
            vitals: own.as_ref().or(heard).map(|vitals| VitalsView::new(member, vitals, caller.sees_all())),
        }
    };
    let issues = if caller.sees_all() { issues_of(&app) } else { Vec::new() };
    Json(NodesView { nodes: cluster.members.iter().map(view).collect(), issues }).into_response()
}

/// A word about the node.
#[derive(Serialize, ToSchema)]
pub(crate) struct StatusView {
    status: &'static str,
}

/// Whether the node is able to serve.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReadyView {
    #[schema(value_type = schema::Readiness)]
    status: &'static str,
    /// What harms topics or the sharing of shards, or a log that takes no lines; absent when nothing does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    issues: Vec<String>,
    found: ReadyFound,
}

/// What was found of what the node needs for its work, in a few words each.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReadyFound {
    /// The store, and whether it takes writes where one node alone writes to it.
    store: &'static str,
    /// How many of the store's servers that have shards answered when one shard of each was asked.
    servers: String,
    /// How far the store's clock and the node's are apart.
    clock: String,
    /// That the clock is moved by hand, which is for tests alone, and how far it is ahead; absent: it is the machine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    test_clock: Option<String>,
    /// What nodes share the shards by.
    sharing: String,
}

/// Alive
#[utoipa::path(
    get, path = "/healthz", tag = "operations", operation_id = "healthz", security(()),
    responses((status = 200, description = "The program answers", body = StatusView))
)]
pub(crate) async fn healthz() -> Json<StatusView> {
    Json(StatusView { status: "alive" })
}

/// Why the node is not ready; here nobody asked for anything that could be repeated. The whole text, which may name
/// files and addresses, is for whoever may see all.
fn not_ready(app: &HttpParts, headers: &HeaderMap, error: &StoreError) -> Problem {
    let mut problem = Problem::from(error);
    // How far the clocks are apart is in every answer of a node that is ready.
    let is_shown = matches!(error, StoreError::ClockSkew(_)) || app.auth.caller(headers).is_ok_and(|it| it.sees_all());
    problem.detail = if is_shown { error.to_string() } else { STORE_NOT_READY.to_owned() };
    problem
}

/// What others learn of a store that does not serve.
const STORE_NOT_READY: &str = "the store does not serve this node; send a token for all topics to see why";

/// What this node knows to be wrong with topics, the store, the sharing of shards or a log. Asks nobody.
fn issues_of(app: &HttpParts) -> Vec<String> {
    let catalog = app.catalog.issues().of_catalog().map(|(code, detail)| format!("{code}: {detail}"));
    let mut issues: Vec<String> = catalog.into_iter().chain(app.catalog.issues().of_topics()).collect();
    issues.extend(app.store.issues());
    issues.extend(app.ownership.issue());
    issues.extend(app.options.audit.issues());
    issues
}

/// What is wrong with topics or shards, for whoever may see all; others learn only that there is something.
fn issues_for(app: &HttpParts, headers: &HeaderMap, silent: Option<String>) -> Vec<String> {
    let issues = silent.into_iter().chain(issues_of(app)).chain(app.sinks.issues()).collect::<Vec<_>>();
    if issues.is_empty() || app.auth.caller(headers).is_ok_and(|caller| caller.sees_all()) {
        return issues;
    }
    vec!["topics, shards, the store or a log have issues; send a token for all topics to see them".to_owned()]
}

/// Able to serve
///
/// It is about this node and what it needs for its work; what harms single topics, servers or sinks is an issue, and the
/// node serves the others. Needs no token; one that is for all topics sees the issues.
#[utoipa::path(
    get, path = "/readyz", tag = "operations", operation_id = "readyz", security(()),
    responses((status = 200, description = "The store answers, its clock and the node's agree, and the node is neither ending nor drained", body = ReadyView))
)]
pub(crate) async fn readyz(State(app): State<Arc<HttpParts>>, headers: HeaderMap) -> Result<Json<ReadyView>, Problem> {
    if app.draining.is_cancelled() {
        let detail = "the node is draining; send requests to another one";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "draining", detail));
    }
    if app.cluster.borrow().members.values().any(|member| is_this(&app, member) && member.drain.is_some()) {
        let detail = "an operator drains this node; send requests to another one, or end it by `duetime undrain`";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "draining", detail));
    }
    app.store.ready().await.map_err(|error| not_ready(&app, &headers, &error))?;
    let apart_ms = app.store.clock_skew_ms(&*app.clock).await.map_err(|error| not_ready(&app, &headers, &error))?;
    if Duration::from_millis(apart_ms.unsigned_abs()) > CLOCK_SKEW_MAX {
        return Err(not_ready(&app, &headers, &StoreError::ClockSkew(apart_ms)));
    }
    let Reach { servers, answering } = app.router.reach().await;
    if answering == 0 && servers > 0 {
        let source = format!("none of its {servers} servers answers when a shard of it is asked").into();
        return Err(not_ready(&app, &headers, &StoreError::Unavailable { doing: "ask for a shard", source }));
    }
    let silent = (answering < servers)
        .then(|| format!("{} of {servers} servers of the store do not answer: their shards wait", servers - answering));
    let issues = issues_for(&app, &headers, silent);
    let found = ReadyFound {
        store: "serves",
        servers: match servers {
            0 => "none has a shard yet".to_owned(),
            _ => format!("{answering} of {servers} answer"),
        },
        clock: format!("{} ms apart", apart_ms.unsigned_abs()),
        test_clock: app
            .test_clock
            .as_ref()
            .map(|moved| format!("{} ms ahead of the machine's: this node is for tests alone", moved.clock.ahead_ms())),
        sharing: match app.ownership.issue() {
            None => format!("{} works", app.ownership.mode()),
            Some(_) => format!("{} does not work, see issues", app.ownership.mode()),
        },
    };
    Ok(Json(ReadyView { status: if issues.is_empty() { "ready" } else { "degraded" }, issues, found }))
}

/// This document
#[utoipa::path(
    get, path = "/openapi.json", tag = "operations", operation_id = "openapi", security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value, content_type = "application/json"))
)]
pub(crate) async fn openapi(Extension(document): Extension<Document>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], (document.0)()).into_response()
}
