//! Who had a shard, since when and why, as the answering node saw it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use duetime_core::OwnerChange;
use serde::Serialize;
use utoipa::ToSchema;

use crate::path::TopicAndShard;
use crate::problem::Problem;
use crate::schema;
use crate::state::HttpParts;

/// One change of a shard's owner.
#[derive(Serialize, ToSchema)]
struct OwnerChangeView {
    /// When the answering node saw it, by its own clock.
    at: i64,
    /// The node that scans the shard from then on; absent: nobody, or, in round-robin, none that the answering node
    /// knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    owner: Option<String>,
    /// Why, as far as it is known. A shard that is taken has the reason for which it was given up.
    #[schema(value_type = schema::OwnerReason)]
    reason: &'static str,
}

impl From<OwnerChange> for OwnerChangeView {
    fn from(OwnerChange { at, owner, reason }: OwnerChange) -> Self {
        Self { at: at.as_millis(), owner: owner.as_deref().map(str::to_owned), reason: reason.as_str() }
    }
}

/// What the answering node knows of the owners of a shard.
#[derive(Serialize, ToSchema)]
pub(crate) struct ShardOwnersView {
    index: u32,
    /// The node that answers.
    node: String,
    /// How nodes share the shards. In `round-robin` a node knows of its own turns only; otherwise of all nodes.
    #[schema(value_type = schema::OwnershipMode)]
    mode: &'static str,
    /// Since when it looks: it keeps this in memory. Absent where it keeps nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    since: Option<i64>,
    /// The last changes that it saw, the newest first.
    changes: Vec<OwnerChangeView>,
    /// Earlier ones were forgotten, or may have been; absent when it has all since `since`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    forgotten: bool,
}

/// Look at who had a shard
///
/// Which node scanned it since when, and why that changed, as far as the answering node saw it since it started: a few
/// changes of each shard, in memory.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/shards/{shard}/owners", tag = "topics", operation_id = "get_shard_owners",
    params(
        ("topic" = String, Path, description = "Name of the topic"),
        ("shard" = u32, Path, description = "Number of the shard, from 0"),
    ),
    responses(
        (status = 200, description = "The changes, the newest first", body = ShardOwnersView),
        (status = 404, description = "`unknown_topic` or `unknown_shard`", body = Problem,
            content_type = "application/problem+json"),
    )
)]
pub(crate) async fn get(
    State(app): State<Arc<HttpParts>>,
    TopicAndShard(topic, index): TopicAndShard,
) -> Result<Response, Problem> {
    let record = app.router.topic(&topic).await?;
    let reach = record.routing.reach();
    if index >= reach {
        let detail = format!("topic {topic} has {reach} shards, 0 to {}", reach - 1);
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown_shard", detail).at("shard"));
    }
    let past = app.ownership.past_owners(&topic, index);
    let seen = ShardOwnersView {
        index,
        node: app.node.id.clone(),
        mode: app.node.mode,
        since: past.since.map(|since| since.as_millis()),
        changes: past.changes.into_iter().map(OwnerChangeView::from).collect(),
        forgotten: past.forgotten,
    };
    Ok(Json(seen).into_response())
}
