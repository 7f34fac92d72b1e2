//! Pauses and resumes a topic: nothing is claimed meanwhile, and all else goes on.

use axum::Json;
use axum::response::{IntoResponse, Response};
use duetime_router::{RouteError, TopicChange};
use serde_json::{Map, Value};

use crate::command::CommandRequest;
use crate::problem::Problem;
use crate::sinks::SinkTroubleView;
use crate::topics::{survey_of, to_its_end};
use crate::view::TopicView;

async fn set(command: CommandRequest, paused: bool) -> Result<Response, Problem> {
    let CommandRequest { app, caller, topic } = command;
    let change = TopicChange::new(Map::from_iter([("paused".to_owned(), Value::Bool(paused))]));
    let put = to_its_end({
        let (app, topic) = (app.clone(), topic.clone());
        async move { app.catalog.change(&topic, &change).await }
    });
    let put = put.await??.ok_or_else(|| RouteError::UnknownTopic(topic.clone()))?;
    let survey = survey_of(&app, &put.record).await?;
    Ok(Json(TopicView::new(&survey, SinkTroubleView::of(&app, &topic, &caller))).into_response())
}

/// Pause a topic
///
/// Nothing is claimed until it is resumed, whether for its sink or by consumers, whose claims wait and are answered
/// with no messages. All nodes stop within a second; what was claimed before is delivered and settled. Delays go on
/// falling due, and messages are enqueued, cancelled and rescheduled as ever. Kept with the topic: it holds over
/// restarts.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/pause", tag = "topics", operation_id = "pause_topic",
    params(("topic" = String, Path, description = "Name of the topic")),
    responses(
        (status = 200, description = "Paused, or already so", body = TopicView),
        (status = 409, description = "Others keep changing it", body = Problem,
            content_type = "application/problem+json"),
    )
)]
pub(crate) async fn pause(command: CommandRequest) -> Result<Response, Problem> {
    set(command, true).await
}

/// Resume a topic
///
/// What is due is claimed again, the oldest first.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/resume", tag = "topics", operation_id = "resume_topic",
    params(("topic" = String, Path, description = "Name of the topic")),
    responses(
        (status = 200, description = "Resumed, or not paused", body = TopicView),
        (status = 409, description = "Others keep changing it", body = Problem,
            content_type = "application/problem+json"),
    )
)]
pub(crate) async fn resume(command: CommandRequest) -> Result<Response, Problem> {
    set(command, false).await
}
