//! What operators and their machines look at: nodes, health, metrics, the API's document, the page.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::doc;
use crate::problem::Problem;

/// One node.
#[derive(Serialize, ToSchema)]
pub(crate) struct NodeView<'a> {
    #[schema(value_type = String)]
    id: &'a str,
    /// `serving` or `draining`.
    state: &'static str,
    /// When it started, milliseconds since the Unix epoch.
    since: i64,
    /// How shards are shared: `solo`, `round-robin` or `etcd`.
    mode: &'static str,
    version: &'static str,
    /// How many shards it scans.
    shards_owned: usize,
    /// How many of each topic.
    #[schema(value_type = std::collections::BTreeMap<String, usize>)]
    topics: std::collections::BTreeMap<String, usize>,
}

/// All nodes.
#[derive(Serialize, ToSchema)]
pub(crate) struct NodesView<'a> {
    nodes: Vec<NodeView<'a>>,
}

/// List nodes
#[utoipa::path(
    get, path = "/v1/nodes", tag = "operations", operation_id = "list_nodes",
    responses((status = 200, description = "Nodes and what they scan", body = NodesView))
)]
pub(crate) async fn nodes(State(app): State<Arc<App>>) -> Response {
    let owned = app.owned.borrow().clone();
    let mut topics = std::collections::BTreeMap::new();
    for (topic, _) in &owned.0 {
        *topics.entry(topic.as_str().to_owned()).or_insert(0) += 1;
    }
    let node = NodeView {
        id: &app.node.id,
        state: if app.draining.is_cancelled() { "draining" } else { "serving" },
        since: app.node.since.as_millis(),
        mode: app.node.mode,
        version: app.node.version,
        shards_owned: owned.0.len(),
        topics,
    };
    Json(NodesView { nodes: vec![node] }).into_response()
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

/// Able to serve
#[utoipa::path(
    get, path = "/readyz", tag = "operations", operation_id = "readyz", security(()),
    responses((status = 200, description = "The store answers and the node is not draining", body = StatusView))
)]
pub(crate) async fn readyz(State(app): State<Arc<App>>) -> Result<Json<StatusView>, Problem> {
    if app.draining.is_cancelled() {
        let detail = "the node is draining; send requests to another one";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "draining", detail));
    }
    app.store.ready().await?;
    Ok(Json(StatusView { status: "ready" }))
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
