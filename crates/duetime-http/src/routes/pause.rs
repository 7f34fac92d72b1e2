//! Pauses and resumes a topic: nothing is claimed meanwhile, and all else goes on.

use axum::Json;
use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use duetime_core::check_pause_reason;
use duetime_router::{RouteError, TopicChange};
use serde_json::Value;
use utoipa::ToSchema;

use crate::audit;
use crate::json::fields;
use crate::json::once_map::OnceMap;
use crate::json::problem::Problem;
use crate::routes::command::CommandRequest;
use crate::routes::sinks::SinkIssueView;
use crate::routes::topics::{counts_of, to_its_end};
use crate::routes::view::TopicView;
use crate::server::body;

/// Largest body of a request to pause: a reason of full length, each byte of it escaped, and some space.
const PAUSE_BODY_BYTES_MAX: usize = 4 << 10;

/// Why something is to be paused.
#[derive(ToSchema)]
#[schema(as = Pause)]
#[allow(dead_code)]
pub(crate) struct PauseSchema {
    /// For people: one line, 200 bytes at most. Absent: what is paused already keeps the reason it has.
    #[schema(nullable = true, max_length = 200)]
    reason: Option<String>,
}

/// The reason that a body gives, if any; the audit log has it.
pub(crate) async fn read_reason(headers: &HeaderMap, body: Body) -> Result<Option<String>, Problem> {
    body::json_only(headers)?;
    let OnceMap(mut given) = fields::read(&body::whole(body, headers, PAUSE_BODY_BYTES_MAX).await?)?;
    if let Some(name) = given.keys().find(|name| *name != "reason") {
        return Err(fields::unknown_field(name, &["reason"]).into());
    }
    let invalid = |detail: String| Problem::bad("invalid_value", detail).at("reason");
    let reason = match given.remove("reason") {
        None | Some(Value::Null) => None,
        Some(Value::String(reason)) => Some(reason),
        Some(_) => return Err(invalid("reason must be a string; leave it out for none".to_owned())),
    };
    if let Some(reason) = &reason {
        check_pause_reason(reason).map_err(invalid)?;
        audit::because(reason);
    }
    Ok(reason)
}

async fn set(command: CommandRequest, change: TopicChange) -> Result<Response, Problem> {
    let CommandRequest { app, caller, topic } = command;
    let change = change.by(caller.name());
    let put = to_its_end({
        let (app, topic) = (app.clone(), topic.clone());
        async move { app.catalog.change(&topic, &change).await }
    });
    let put = put.await??.ok_or_else(|| RouteError::UnknownTopic(topic.clone()))?;
    let counts = counts_of(&app, &put.record).await?;
    Ok(Json(TopicView::new(&counts, SinkIssueView::of(&app, &topic, &caller), &caller)).into_response())
}

/// Pause a topic
///
/// Nothing is claimed until it is resumed, whether for its sink or by consumers, whose claims wait and are answered
/// with no messages. All nodes stop within a second; what was claimed before is delivered and settled. Delays go on
/// falling due, and messages are enqueued, cancelled and rescheduled as ever. Kept with the topic, with the reason, when
/// and by whom: it holds over restarts. Another reason replaces that of a topic that is paused already, and makes the
/// pause the topic's own where it was paused through a sink.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/pause", tag = "topics", operation_id = "pause_topic",
    security(("token" = ["admin"])),
    request_body(content = Option<PauseSchema>, content_type = "application/json"),
    responses(
        (status = 200, description = "Paused, or already so", body = TopicView),
        (status = 409, description = "Others keep changing it"),
    )
)]
pub(crate) async fn pause(command: CommandRequest, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    let reason = read_reason(&headers, body).await?;
    set(command, TopicChange::pause(reason)).await
}

/// Resume a topic
///
/// What is due is claimed again, the oldest first. However it was paused.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/resume", tag = "topics", operation_id = "resume_topic",
    security(("token" = ["admin"])),
    responses(
        (status = 200, description = "Resumed, or not paused", body = TopicView),
        (status = 409, description = "Others keep changing it"),
    )
)]
pub(crate) async fn resume(command: CommandRequest) -> Result<Response, Problem> {
    set(command, TopicChange::resume()).await
}
