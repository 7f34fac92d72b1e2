//! What operators and their machines look at: nodes, health, metrics, the API's document, the page.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use duetime_core::limits::CLOCK_SKEW_MAX;
use duetime_core::{Member, MemberState, StoreError};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::doc;
use crate::problem::Problem;

/// One node.
#[derive(Serialize, ToSchema)]
pub(crate) struct NodeView {
    id: String,
    /// `serving`, `draining`, or `unfit`: it cannot claim and has given its shards away.
    state: &'static str,
    /// Why it is unfit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    unfit: Option<String>,
    /// Where it listens.
    address: String,
    /// When it started, milliseconds since the Unix epoch.
    since: i64,
    /// How shards are shared: `solo`, `round-robin` or `etcd`.
    mode: &'static str,
    version: String,
    /// How many shards it scans.
    shards_owned: u32,
    /// How many of each topic; in round-robin a node knows only of its own.
    topics: std::collections::BTreeMap<String, u32>,
}

/// All nodes.
#[derive(Serialize, ToSchema)]
pub(crate) struct NodesView {
    nodes: Vec<NodeView>,
}

/// List nodes
#[utoipa::path(
    get, path = "/v1/nodes", tag = "operations", operation_id = "list_nodes",
    responses((status = 200, description = "Nodes and what they scan, as this node sees them", body = NodesView))
)]
pub(crate) async fn nodes(State(app): State<Arc<App>>) -> Response {
    let fleet = app.fleet.borrow().clone();
    let view = |(name, member): (&Arc<str>, &Member)| {
        let scanned = fleet.scanned_by(name);
        let is_this = member.id == app.node.id && member.address == app.node.address;
        let drains = is_this && app.draining.is_cancelled();
        NodeView {
            id: member.id.clone(),
            state: if drains { MemberState::Draining } else { member.state }.as_str(),
            unfit: member.unfit.clone(),
            address: member.address.clone(),
            since: member.since_ms,
            mode: app.node.mode,
            version: member.version.clone(),
            shards_owned: member.shards.unwrap_or_else(|| scanned.values().sum()),
            topics: scanned.into_iter().map(|(topic, shards)| (topic.as_str().to_owned(), shards)).collect(),
        }
    };
    Json(NodesView { nodes: fleet.members.iter().map(view).collect() }).into_response()
}

/// A word about the node.
#[derive(Serialize, ToSchema)]
pub(crate) struct StatusView {
    status: &'static str,
}

/// Whether the node is able to serve.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReadyView {
    /// `ready`, or `degraded`: single topics are harmed.
    status: &'static str,
    /// What harms single topics; absent when nothing does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    troubles: Vec<String>,
}

/// Alive
#[utoipa::path(
    get, path = "/healthz", tag = "operations", operation_id = "healthz", security(()),
    responses((status = 200, description = "The program answers", body = StatusView))
)]
pub(crate) async fn healthz() -> Json<StatusView> {
    Json(StatusView { status: "alive" })
}

/// Able to serve
#[utoipa::path(
    get, path = "/readyz", tag = "operations", operation_id = "readyz", security(()),
    responses((status = 200, description = "The store answers, its clock and the node's agree, and the node is not draining", body = ReadyView))
)]
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Result<Json<ReadyView>, Problem> {
    if app.draining.is_cancelled() {
        let detail = "the node is draining; send requests to another one";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "draining", detail));
    }
    app.store.ready().await?;
    let apart_ms = app.store.apart(&*app.clock).await?;
    if Duration::from_millis(apart_ms.unsigned_abs()) > CLOCK_SKEW_MAX {
        return Err(StoreError::Skew(apart_ms).into());
    }
    if let Some(detail) = app.catalog.troubles().not_ready() {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "topic_vanished", detail));
    }
    let troubles = app.catalog.troubles().of_topics();
    Ok(Json(ReadyView { status: if troubles.is_empty() { "ready" } else { "degraded" }, troubles }))
}

/// Metrics
#[utoipa::path(
    get, path = "/metrics", tag = "operations", operation_id = "metrics", security(()),
    responses((status = 200, description = "Prometheus text", body = String, content_type = "text/plain"))
)]
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], app.meters.render()).into_response()
}

/// This document
#[utoipa::path(
    get, path = "/openapi.json", tag = "operations", operation_id = "openapi", security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value, content_type = "application/json"))
)]
pub(crate) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], doc::text()).into_response()
}

/// Status page
#[utoipa::path(
    get, path = "/", tag = "operations", operation_id = "page", security(()),
    responses((status = 200, description = "Topics and their counts, for people", body = String,
        content_type = "text/html"))
)]
pub(crate) async fn page() -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                  frame-ancestors 'none'";
    let headers = [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::CACHE_CONTROL, "no-cache"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, Html(include_str!("page.html"))).into_response()
}
