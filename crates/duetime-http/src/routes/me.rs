//! What the caller's token is for.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use serde::Serialize;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::auth::rate_limit::RequestRate;
use crate::auth::{Caller, Scope};
use crate::json::schema;
use crate::server::state::HttpParts;

schema::one_of!(
    /// What a token may do.
    ScopeSchema,
    {"type": "string", "enum": Scope::ALL.map(Scope::as_str)}
);

/// The caller's token.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct MeView {
    /// Its name; absent: the node asks for no token.
    name: Option<String>,
    /// What it may do; `admin` may do all.
    #[schema(value_type = Vec<ScopeSchema>)]
    scopes: Vec<&'static str>,
    /// On which topics: names, or beginnings of names followed by `*`. Absent: on all.
    topics: Option<Vec<String>>,
    /// Which sinks it may give to topics, pause and look at: names, or beginnings followed by `*`. Absent: all.
    sinks: Option<Vec<String>>,
    /// Most requests a second; absent: no limit.
    requests_per_second: Option<f64>,
    /// Most messages enqueued a second; absent: no limit.
    messages_per_second: Option<f64>,
    /// Most topics among those it is for; absent: no limit.
    max_topics: Option<usize>,
    /// Most `max_messages` of a topic that it makes or changes; absent: no limit.
    max_topic_messages: Option<u64>,
    /// Most `max_bytes` of such a topic; absent: no limit.
    max_topic_bytes: Option<u64>,
    /// Most shards of such a topic; absent: no limit.
    max_topic_shards: Option<u32>,
    /// The clock of the node is moved by hand: it is for tests alone. Absent: it is the machine's.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    test_clock: bool,
    /// The node that answers.
    node: String,
    /// The version of its program.
    version: &'static str,
}

/// Who am I
///
/// What the token of the request may do, on which topics, with which sinks and how often. Never its secret.
#[utoipa::path(
    get, path = "/v1/me", tag = "operations", operation_id = "get_me",
    security(("token" = [])),
    responses((status = 200, description = "The token's name, scopes, topics and rates", body = MeView))
)]
pub(crate) async fn get(State(app): State<Arc<HttpParts>>, Extension(caller): Extension<Caller>) -> Json<MeView> {
    let limits = caller.limits();
    let per_second = |rate: &Option<Arc<RequestRate>>| rate.as_ref().map(|rate| rate.per_second());
    Json(MeView {
        name: caller.name().map(str::to_owned),
        scopes: caller.scopes().into_iter().map(Scope::as_str).collect(),
        topics: caller.topics().map(<[String]>::to_vec),
        sinks: caller.sinks().map(<[String]>::to_vec),
        requests_per_second: per_second(&limits.requests),
        messages_per_second: per_second(&limits.messages),
        max_topics: limits.max_topics,
        max_topic_messages: limits.ceilings.messages,
        max_topic_bytes: limits.ceilings.bytes,
        max_topic_shards: limits.ceilings.shards,
        test_clock: app.test_clock.is_some(),
        node: app.node.id.clone(),
        version: env!("CARGO_PKG_VERSION"),
    })
}
