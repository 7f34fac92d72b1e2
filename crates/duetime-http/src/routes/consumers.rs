//! Who claims the messages of a topic.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

use crate::json::path::Topic;
use crate::json::problem::Problem;
use crate::json::schema;
use crate::server::state::HttpParts;

schema::one_of!(
    /// Of what an answer is.
    ScopeOfAnswer,
    {"type": "string", "enum": ["node"]}
);

/// A consumer that names itself.
#[derive(Serialize, ToSchema)]
pub(crate) struct ConsumerView {
    consumer: String,
    /// When it claimed last, milliseconds since the Unix epoch. A claim that waits counts from its beginning.
    last_claim_at: i64,
    /// Its claims in the last minute, those that found nothing too.
    claims_per_minute: u32,
    /// Messages that it claimed at this node and that nobody settled here, while their visibility timeouts last.
    held: usize,
    /// When the last of these timeouts ends; absent: it holds nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    held_until: Option<i64>,
}

/// The consumers of a topic that name themselves.
#[derive(Serialize, ToSchema)]
pub(crate) struct ConsumersView {
    /// `node`: those that claimed at the node that answers, since it started.
    #[schema(value_type = ScopeOfAnswer)]
    scope: &'static str,
    /// The node that answers.
    node: String,
    /// By name, those that claimed last: 256 at most.
    consumers: Vec<ConsumerView>,
}

/// List the consumers of a topic
///
/// Those that name themselves in their claims, as the node that answers has seen them since it started. Ask each node
/// for its own.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/consumers", tag = "consumers", operation_id = "list_consumers",
    security(("token" = ["consume"]), ("token" = ["view"])),
    params(("topic" = String, Path, description = "Name of the topic")),
    responses((status = 200, description = "Who claims, how often, and what each holds", body = ConsumersView))
)]
pub(crate) async fn list(
    State(app): State<Arc<HttpParts>>,
    Topic(topic): Topic,
) -> Result<Json<ConsumersView>, Problem> {
    app.router.topic(&topic).await?;
    let seen = app.options.named_consumers.of(&topic, app.clock.now());
    let consumers = seen.into_iter().map(|one| ConsumerView {
        consumer: one.name.to_string(),
        last_claim_at: one.last.as_millis(),
        claims_per_minute: one.claims_per_minute,
        held: one.held,
        held_until: one.until.map(|until| until.as_millis()),
    });
    Ok(Json(ConsumersView { scope: "node", node: app.node.id.clone(), consumers: consumers.collect() }))
}
