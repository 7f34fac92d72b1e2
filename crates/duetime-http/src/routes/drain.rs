//! Drains nodes: an operator has one leave its shards to others while it goes on answering requests.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use duetime_core::{Drain, MemberState};
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::json::problem::Problem;
use crate::server::body;
use crate::server::state::HttpParts;

/// What was asked of a node.
#[derive(Serialize, ToSchema)]
pub(crate) struct DrainAnswer {
    id: String,
    /// Whether it is to leave its shards to others. It does within seconds: see `GET /v1/nodes`.
    draining: bool,
    /// How many nodes have this id.
    nodes: usize,
}

async fn set(
    app: &HttpParts,
    caller: &Caller,
    headers: &HeaderMap,
    id: String,
    draining: bool,
) -> Result<Response, Problem> {
    body::json_only(headers)?;
    caller.check_all("where a node's shards go")?;
    let cluster = app.cluster.borrow().clone();
    let names: Vec<&Arc<str>> =
        cluster.members.iter().filter(|(_, member)| member.id == id).map(|(name, _)| name).collect();
    if names.is_empty() {
        let detail = format!("there is no node {id:?}; see GET /v1/nodes for those that were heard of lately");
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown_node", detail));
    }
    let others = cluster.members.values().filter(|member| member.id != id);
    if draining && !others.into_iter().any(|member| member.state == MemberState::Serving) {
        let detail = "no other node takes shards, so nobody would deliver; start one first, or pause the topics";
        return Err(Problem::new(StatusCode::CONFLICT, "last_node", detail));
    }
    let at_ms = app.clock.now().as_millis();
    let drain = draining.then(|| Drain { by: caller.name().map(str::to_owned), at_ms });
    for name in &names {
        app.ownership.drain(name, drain.clone()).await.map_err(|why| {
            let detail =
                format!("it is not known whether the node is notified: {why}; ask again, and see GET /v1/nodes");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "authority_unavailable", detail)
        })?;
    }
    Ok(Json(DrainAnswer { id, draining, nodes: names.len() }).into_response())
}

/// Drain a node
///
/// It leaves its shards to the other nodes within seconds, finishes what it has claimed, claims no more for sinks, and
/// goes on answering requests; its `/readyz` answers 503, so that a balancer sends them elsewhere. Any node may be
/// asked, with a token for all topics. It holds for as long as that node runs: one that is started again takes its share. While no other node
/// takes shards, it scans on.
#[utoipa::path(
    post, path = "/v1/nodes/{id}/drain", tag = "operations", operation_id = "drain_node",
    security(("token" = ["admin"])),
    responses(
        (status = 200, description = "The node is notified", body = DrainAnswer),
        (status = 404, description = "`unknown_node`"),
        (status = 409, description = "`last_node`: no other node takes shards"),
    )
)]
pub(crate) async fn drain(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    set(&app, &caller, &headers, id, true).await
}

/// End the drain of a node
///
/// It takes its share of the shards again. Asks for a token for all topics.
#[utoipa::path(
    post, path = "/v1/nodes/{id}/undrain", tag = "operations", operation_id = "undrain_node",
    security(("token" = ["admin"])),
    responses(
        (status = 200, description = "The node is notified, whether it was drained or not", body = DrainAnswer),
        (status = 404, description = "`unknown_node`"),
    )
)]
pub(crate) async fn undrain(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    set(&app, &caller, &headers, id, false).await
}
