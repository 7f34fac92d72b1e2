//! The clock of a node for tests of users: shown, and moved ahead.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use duetime_core::Clock as _;
use duetime_core::units::{parse_duration, parse_time};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::json::problem::Problem;
use crate::json::{fields, schema};
use crate::server::body;
use crate::server::state::{HttpParts, MovedClock};

/// Largest body of a request to move the clock.
const MOVE_BYTES_MAX: usize = 1 << 10;

/// How far the clock is to be moved: give one of the two.
#[derive(Deserialize, ToSchema)]
#[schema(as = ClockMove)]
#[serde(deny_unknown_fields)]
struct ClockMoveIn<'a> {
    /// By so much ahead.
    #[serde(borrow, default)]
    #[schema(value_type = Option<schema::DurationIn>)]
    advance: Option<&'a RawValue>,
    /// To this moment, which has not passed by this clock.
    #[serde(borrow, default)]
    #[schema(value_type = Option<schema::TimeIn>)]
    to: Option<&'a RawValue>,
}

/// A clock for tests.
#[derive(Serialize, ToSchema)]
pub(crate) struct TestClockView {
    /// What it shows, milliseconds since the Unix epoch.
    now: i64,
    /// By how much that is ahead of the machine's clock, in milliseconds.
    ahead_ms: i64,
}

impl TestClockView {
    fn of(moved: &MovedClock) -> Self {
        Self { now: moved.clock.now().as_millis(), ahead_ms: moved.clock.ahead_ms() }
    }
}

fn clock_of(app: &HttpParts) -> Result<&MovedClock, Problem> {
    app.test_clock.as_ref().ok_or_else(|| {
        let detail =
            "this node goes by the machine's clock; a node for tests is started by `duetime serve --test-clock`";
        Problem::new(StatusCode::NOT_FOUND, "no_test_clock", detail)
    })
}

fn apply(moved: &MovedClock, ask: &ClockMoveIn<'_>) -> Result<(), Problem> {
    let refused =
        |field: &'static str| move |why: String| Problem::bad("invalid_value", format!("{field}: {why}")).at(field);
    match (ask.advance, ask.to) {
        (Some(by), None) => {
            let by = parse_duration(by.get().trim_matches('"')).map_err(refused("advance"))?;
            moved.clock.advance(by).map_err(refused("advance"))
        }
        (None, Some(to)) => {
            let to = parse_time(to.get().trim_matches('"')).map_err(refused("to"))?;
            moved.clock.advance_to(to).map_err(refused("to"))
        }
        _ => Err(Problem::bad("invalid_value", "give one of advance and to: how far the clock is moved").at("advance")),
    }
}

/// Show the test clock
///
/// Only a node that was started with `--test-clock` has one.
#[utoipa::path(
    get, path = "/v1/test-clock", tag = "operations", operation_id = "get_test_clock",
    security(("token" = [])),
    responses(
        (status = 200, description = "What it shows", body = TestClockView),
        (status = 404, description = "`no_test_clock`: the node goes by the machine's clock"),
    )
)]
pub(crate) async fn get(State(app): State<Arc<HttpParts>>) -> Result<Json<TestClockView>, Problem> {
    Ok(Json(TestClockView::of(clock_of(&app)?)))
}

/// Move the test clock
///
/// Ahead, by a duration or to a moment; it goes on by itself between moves and is never set back. What falls due by
/// the move is delivered at once. Only a node that was started with `--test-clock` has one, and it asks for a token for
/// all topics.
#[utoipa::path(
    post, path = "/v1/test-clock", tag = "operations", operation_id = "move_test_clock",
    security(("token" = ["admin"])),
    request_body(content = ClockMoveIn, content_type = "application/json"),
    responses(
        (status = 200, description = "What it shows now", body = TestClockView),
        (status = 404, description = "`no_test_clock`: the node goes by the machine's clock"),
    )
)]
pub(crate) async fn post(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    body::json_only(&headers)?;
    caller.check_all("the clock of a node")?;
    let moved = clock_of(&app)?;
    let bytes = body::whole(body, &headers, MOVE_BYTES_MAX).await?;
    apply(moved, &fields::read(&bytes)?)?;
    moved.moved.notify_one();
    let view = TestClockView::of(moved);
    tracing::warn!(now = view.now, ahead_ms = view.ahead_ms, "the test clock was moved");
    Ok(Json(view).into_response())
}
