//! Up to when a topic is done.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use duetime_core::limits::CLAIM_WAIT_MAX;
use duetime_core::units::{parse_duration, parse_time};
use duetime_core::{Timestamp, TopicName, UndoneState};
use duetime_router::{HeldBy, Watermark};
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::auth::Scope;
use crate::auth::standing::StandingCaller;
use crate::json::path::{Query, Topic};
use crate::json::problem::Problem;
use crate::json::schema;
use crate::server::memory::Account;
use crate::server::state::HttpParts;

/// How often a watermark that is waited for is read: after the first of these, then half as often each time.
const AGAIN_MIN: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// What keeps a watermark from being later.
#[derive(Serialize, ToSchema)]
pub(crate) struct HeldView {
    /// `due`: a message waits to be claimed; `in_flight`: for the settlement of its claim; `retrying`: for its next attempt;
    /// `moving`: for the end of its move to another shard; `shard_unreachable`; `resizing`: the shard count changes, and not
    /// all shards have heard of it.
    #[schema(value_type = schema::HeldReason)]
    reason: &'static str,
    /// Absent for `resizing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    shard: Option<u32>,
    /// The message.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    id: Option<String>,
    /// Its due time, milliseconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    due_at: Option<i64>,
    /// When its claim runs out, or its next attempt is due, milliseconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    until: Option<i64>,
}

/// Up to when a topic is done.
#[derive(Serialize, ToSchema)]
pub(crate) struct WatermarkView {
    /// Everything that was due before this moment is done, milliseconds since the Unix epoch. It never goes back.
    watermark: i64,
    /// Whether it is `until` or later; absent without `until`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reached: Option<bool>,
    /// Absent: nothing; it is the present.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    held_by: Option<HeldView>,
}

impl From<HeldBy> for HeldView {
    fn from(held: HeldBy) -> Self {
        let without = |reason, shard| Self { reason, shard, id: None, due_at: None, until: None };
        match held {
            HeldBy::Unreachable(shard) => without("shard_unreachable", Some(shard)),
            HeldBy::Resizing => without("resizing", None),
            HeldBy::Message { shard, id, due_at, state } => {
                let (reason, until) = match state {
                    UndoneState::Due => ("due", None),
                    UndoneState::Retrying(at) => ("retrying", Some(at.as_millis())),
                    UndoneState::InFlight(at) => ("in_flight", Some(at.as_millis())),
                    UndoneState::Moving => ("moving", None),
                };
                let id = id.map(|id| id.to_string());
                Self { id, due_at: Some(due_at.as_millis()), until, ..without(reason, Some(shard)) }
            }
        }
    }
}

async fn read(app: &HttpParts, topic: &TopicName) -> Result<Watermark, Problem> {
    app.router.watermarks.read_together(topic).await?.ok_or_else(|| {
        let detail = format!(
            "topic {topic:?} has no watermark, which is decided when a topic is created; create another one with \
             watermark = true"
        );
        Problem::new(StatusCode::CONFLICT, "topic_has_no_watermark", detail)
    })
}

fn read_wait(text: &str) -> Result<Duration, String> {
    let wait = parse_duration(text)?;
    if wait <= CLAIM_WAIT_MAX { Ok(wait) } else { Err(format!("give {} s or less", CLAIM_WAIT_MAX.as_secs())) }
}

/// Reads it again until it is `until`, or `wait` is over.
async fn reached(app: &HttpParts, topic: &TopicName, until: Timestamp, wait: Duration) -> Result<Watermark, Problem> {
    let (ends, mut pause) = (Instant::now() + wait, AGAIN_MIN);
    loop {
        let read = read(app, topic).await?;
        let left = ends.saturating_duration_since(Instant::now());
        if read.at >= until || left.is_zero() {
            return Ok(read);
        }
        // It is never later than the present.
        let ahead = until.since(app.clock.now());
        tokio::time::sleep(pause.max(ahead).min(left)).await;
        pause = (pause * 2).min(AGAIN_MAX);
    }
}

/// Read the watermark
///
/// Everything that was due before this moment is done: handed over and settled, cancelled, expired, or a dead letter. It
/// never goes back, whichever node is asked. What is enqueued later with a due time before it, restored or redriven is late
/// and does not count. With `until`, the answer waits up to `wait` for the watermark to be that moment or later.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/watermark", tag = "topics", operation_id = "watermark",
    security(("token" = ["view", "consume"])),
    params(
        ("until" = inline(Option<schema::TimeIn>), Query, description = "The moment that is waited for: milliseconds since \
            the Unix epoch, or RFC 3339"),
        ("wait" = inline(Option<String>), Query, description = "How long it is waited for, 60 s at most; `0s` if absent"),
    ),
    responses(
        (status = 200, description = "The watermark, and what holds it back", body = WatermarkView),
        (status = 409, description = "`topic_has_no_watermark`: the topic was created without one"),
    )
)]
pub(crate) async fn get(
    State(app): State<Arc<HttpParts>>,
    Topic(topic): Topic,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["until", "wait"])?;
    let until = query.get("until", None, |text| parse_time(text).map(Some))?;
    let wait = query.get("wait", Duration::ZERO, read_wait)?;
    let found = match until {
        Some(until) if !wait.is_zero() => {
            let _place = Account::current().wait()?;
            let wanted = &[Scope::View, Scope::Consume];
            let mut caller = StandingCaller::of(&app.auth, &headers, wanted, std::slice::from_ref(&topic))?;
            tokio::select! {
                biased;
                problem = caller.refused() => return Err(problem),
                found = reached(&app, &topic, until, wait) => found?,
                () = app.draining.cancelled() => read(&app, &topic).await?,
            }
        }
        _ => read(&app, &topic).await?,
    };
    let view = WatermarkView {
        watermark: found.at.as_millis(),
        reached: until.map(|until| found.at >= until),
        held_by: found.held_by.map(HeldView::from),
    };
    Ok(Json(view).into_response())
}
