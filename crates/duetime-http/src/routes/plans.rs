//! Bulk actions: planned, started, stopped, shown and forgotten. The router carries them out.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use duetime_core::Timestamp;
use duetime_core::limits::ID_BYTES_MAX;
use duetime_core::units::check_due_at;
use duetime_router::{BulkAction, BulkFilter, BulkPlan, ListedState, PER_SECOND_MAX, PlanAsk, PlanError, PlanStart};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::audit;
use crate::auth::Caller;
use crate::json::path::{Topic, TopicAndId};
use crate::json::problem::Problem;
use crate::json::{fields, schema};
use crate::routes::plan_view::{PlanView, PlanViews};
use crate::server::state::HttpParts;
use crate::server::{body, memory};

/// Largest body of a plan.
const BODY_MAX: usize = 64 << 10;
/// Messages a second, unless asked for otherwise.
const PER_SECOND: u32 = 100;
/// Bytes of a reason.
const REASON_BYTES_MAX: usize = 2048;

/// What is to be done to which messages.
#[derive(Deserialize, ToSchema)]
#[schema(as = PlanRequest)]
#[serde(deny_unknown_fields)]
struct PlanIn<'a> {
    #[schema(value_type = schema::BulkAction)]
    action: BulkAction,
    /// Live messages: only those that are so.
    #[schema(value_type = Option<schema::ListedState>)]
    state: Option<ListedState>,
    /// Live messages: only those with this `visible_at` or a later one.
    #[serde(default, borrow)]
    #[schema(value_type = Option<schema::TimeIn>)]
    due_from: Option<&'a RawValue>,
    /// Live messages: only those with a `visible_at` before it.
    #[serde(default, borrow)]
    #[schema(value_type = Option<schema::TimeIn>)]
    due_to: Option<&'a RawValue>,
    /// Only ids that begin so.
    #[schema(value_type = Option<String>, max_length = 256)]
    prefix: Option<String>,
    /// Dead letters: only those of this `reason`, as `…/dead/groups` has it.
    #[schema(value_type = Option<String>, max_length = 2048)]
    reason: Option<String>,
    /// The new due time of a `reschedule`.
    #[serde(default, borrow)]
    #[schema(value_type = Option<schema::TimeIn>)]
    due_at: Option<&'a RawValue>,
    /// Most messages a second; 100 if absent.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 10000)]
    per_second: Option<u32>,
    /// Of a `cancel` or a `purge`: true to keep what it removes in the memory of its node, so that it can be put back for
    /// ten minutes after the plan ended. Only where the topic has a `remember` of ten minutes or more; the answer says so.
    #[serde(default)]
    #[schema(required = false)]
    undoable: bool,
}

/// What who starts it agrees to.
#[derive(Default, Deserialize, ToSchema)]
#[schema(as = PlanStart)]
#[serde(deny_unknown_fields)]
struct StartIn {
    /// The most messages that it may act on, as a rule what it `expected`. A plan that is `planned` wants it; one that
    /// was stopped goes on as agreed if absent.
    #[schema(value_type = Option<u64>, minimum = 1)]
    at_most: Option<u64>,
    /// Most messages a second; as planned if absent.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 10000)]
    per_second: Option<u32>,
}

impl From<PlanError> for Problem {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Unknown => {
                Self::new(StatusCode::NOT_FOUND, "unknown_plan", "the topic has no such plan; GET …/plans lists them")
            }
            PlanError::Refused(detail) => Self::new(StatusCode::CONFLICT, "conflict", detail),
            PlanError::TooMany(detail) => Self::new(StatusCode::CONFLICT, "too_many_plans", detail),
            PlanError::Route(error) => error.into(),
        }
    }
}

fn refused(field: &str, detail: &str) -> Problem {
    Problem::bad("invalid_value", format!("{field}: {detail}")).at(field)
}

fn time(field: &str, raw: Option<&RawValue>) -> Result<Option<Timestamp>, Problem> {
    let Some(raw) = raw else { return Ok(None) };
    let text = raw.get().trim_matches('"');
    duetime_core::units::parse_time(text).map(Some).map_err(|error| refused(field, &error))
}

fn rate(per_second: Option<u32>) -> Result<Option<u32>, Problem> {
    match per_second {
        Some(rate) if !(1..=PER_SECOND_MAX).contains(&rate) => {
            Err(refused("per_second", &format!("give 1 to {PER_SECOND_MAX}")))
        }
        rate => Ok(rate),
    }
}

/// The plan as it is now, for a caller who may see all of it.
fn answer(app: &HttpParts, plan: BulkPlan) -> Response {
    Json(PlanView::of(plan, app.clock.now())).into_response()
}

fn read_ask(ask: PlanIn<'_>, by: Option<String>, now: Timestamp) -> Result<PlanAsk, Problem> {
    let (due_from, due_to) = (time("due_from", ask.due_from)?, time("due_to", ask.due_to)?);
    let to = time("due_at", ask.due_at)?;
    let is_of_live = ask.state.is_some() || due_from.is_some() || due_to.is_some();
    if ask.action.is_of_dead() && is_of_live {
        return Err(refused("action", "dead letters have no state and no due time; choose them by reason or prefix"));
    }
    if !ask.action.is_of_dead() && ask.reason.is_some() {
        return Err(refused("reason", "only dead letters have one"));
    }
    if due_to.is_some_and(|to| to <= due_from.unwrap_or_default()) {
        return Err(refused("due_to", "give a moment after due_from"));
    }
    match (ask.action, to) {
        (BulkAction::Reschedule, None) => return Err(refused("due_at", "a reschedule needs it")),
        (BulkAction::Reschedule, Some(at)) => {
            check_due_at(at, now).map(drop).map_err(|error| refused("due_at", &error))?
        }
        (_, Some(_)) => return Err(refused("due_at", "only a reschedule has it")),
        (_, None) => {}
    }
    if ask.undoable && !matches!(ask.action, BulkAction::Cancel | BulkAction::Purge) {
        return Err(refused("undoable", "only a cancel and a purge can be taken back"));
    }
    let prefix = ask.prefix.unwrap_or_default();
    if prefix.len() > ID_BYTES_MAX {
        return Err(refused("prefix", &format!("an id has {ID_BYTES_MAX} bytes at most")));
    }
    if ask.reason.as_ref().is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
        return Err(refused("reason", &format!("give {REASON_BYTES_MAX} bytes at most")));
    }
    let millis = |at: Option<Timestamp>| at.map(Timestamp::as_millis);
    let filter =
        BulkFilter { state: ask.state, due_from: millis(due_from), due_to: millis(due_to), prefix, reason: ask.reason };
    let per_second = rate(ask.per_second)?.unwrap_or(PER_SECOND);
    Ok(PlanAsk { action: ask.action, to, filter, per_second, by, undoable: ask.undoable })
}

/// Plan a bulk action
///
/// Counts what matches, shows some of it, and does nothing else until who agrees to a number of messages starts it.
/// Until then no list shows it, and after 15 minutes it is forgotten. 16 plans of a topic are kept, and 128 in all, of
/// which one token may have as many as it leaves to others; of more, its own oldest that has ended, or was never started,
/// is forgotten, first one that cannot be taken back.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/plans", tag = "bulk", operation_id = "create_plan",
    security(("token" = ["admin"])),
    request_body(content = PlanIn, content_type = "application/json"),
    responses((status = 201, description = "The plan", body = PlanView),
        (status = 409, description = "`too_many_plans`: the topic or the token has as many plans as may be, and all are running"),
        (status = 507, description = "The store is full"))
)]
pub(crate) async fn create(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    Topic(topic): Topic,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    body::json_only(&headers)?;
    let bytes = body::whole(body, &headers, BODY_MAX).await?;
    let ask = read_ask(fields::read(&bytes)?, caller.name().map(str::to_owned), app.clock.now())?;
    let _turn = memory::turn().await;
    let plan = app.plans.create(&topic, ask).await?;
    audit::count(plan.expected);
    Ok((StatusCode::CREATED, answer(&app, plan)).into_response())
}

/// List bulk plans
///
/// Those that were started: what is only planned is known to who planned it.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/plans", tag = "bulk", operation_id = "list_plans",
    security(("token" = ["view"])),
    responses((status = 200, description = "The newest first", body = PlanViews))
)]
pub(crate) async fn list(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    Topic(topic): Topic,
) -> Result<Response, Problem> {
    app.router.topic(&topic).await?;
    let plans = app.plans.of_topic(&topic).await?;
    let now = app.clock.now();
    let plans = plans.into_iter().map(|plan| PlanView::of(plan, now).for_caller(&caller)).collect();
    Ok(Json(PlanViews { plans }).into_response())
}

/// Look at a bulk plan
#[utoipa::path(
    get, path = "/v1/topics/{topic}/plans/{id}", tag = "bulk", operation_id = "get_plan",
    security(("token" = ["view"])),
    responses((status = 200, description = "How far it is", body = PlanView))
)]
pub(crate) async fn get(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    TopicAndId(topic, id): TopicAndId,
) -> Result<Response, Problem> {
    let plan = app.plans.get(&topic, id.as_str()).await?;
    Ok(Json(PlanView::of(plan, app.clock.now()).for_caller(&caller)).into_response())
}

/// Start a bulk plan
///
/// Some node carries it out, page by page; when that node ends, another goes on. One that was stopped goes on where it
/// was. It acts on what matches at the time of each page, and ends after `at_most` messages: some of them may have come
/// after it was planned, but no dead letter that died later.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/plans/{id}/start", tag = "bulk", operation_id = "start_plan",
    security(("token" = ["admin"])),
    request_body(content = StartIn, content_type = "application/json"),
    responses((status = 200, description = "It runs", body = PlanView),
        (status = 409, description = "It has ended, is being stopped, or wants `at_most`"))
)]
pub(crate) async fn start(
    State(app): State<Arc<HttpParts>>,
    TopicAndId(topic, id): TopicAndId,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    app.router.current_topic(&topic).await?;
    body::json_only(&headers)?;
    let bytes = body::whole(body, &headers, BODY_MAX).await?;
    let ask: StartIn = fields::read(&bytes)?;
    if ask.at_most == Some(0) {
        return Err(refused("at_most", "give 1 or more"));
    }
    let how = PlanStart { at_most: ask.at_most, per_second: rate(ask.per_second)? };
    Ok(answer(&app, app.plans.start(&topic, id.as_str(), how).await?))
}

/// Stop a bulk plan
///
/// No other page is begun. The page that is under way (256 messages at most) is still carried out; the plan is `stopping`
/// until that is written down, or until its node has not been heard of for 15 s.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/plans/{id}/stop", tag = "bulk", operation_id = "stop_plan",
    security(("token" = ["admin"])),
    responses((status = 200, description = "It is stopping, or has stopped", body = PlanView),
        (status = 409, description = "It does not run"))
)]
pub(crate) async fn stop(
    State(app): State<Arc<HttpParts>>,
    TopicAndId(topic, id): TopicAndId,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    body::json_only(&headers)?;
    Ok(answer(&app, app.plans.stop(&topic, id.as_str()).await?))
}

/// Take a bulk plan back
///
/// Puts back what a `cancel` or `purge` removed that was planned with `undoable`, up to ten minutes after it ended: each
/// message as it was, with its due time and attempts, but only where nothing else happened to its id since. The node that
/// keeps them begins within some 5 s; look at the plan for how far it is. Asking again changes nothing. What fell due
/// meanwhile is delivered at once.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/plans/{id}/undo", tag = "bulk", operation_id = "undo_plan",
    security(("token" = ["admin"])),
    responses((status = 200, description = "It is asked for, or was before", body = PlanView),
        (status = 409, description = "It cannot be taken back; as `undo.why_not`"))
)]
pub(crate) async fn undo(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    TopicAndId(topic, id): TopicAndId,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    body::json_only(&headers)?;
    let plan = app.plans.undo(&topic, id.as_str(), caller.name()).await?;
    audit::count(plan.undo.as_ref().map_or(0, |undo| undo.kept));
    Ok(answer(&app, plan))
}

/// Forget a bulk plan
///
/// What it removed cannot be put back any more.
#[utoipa::path(
    delete, path = "/v1/topics/{topic}/plans/{id}", tag = "bulk", operation_id = "delete_plan",
    security(("token" = ["admin"])),
    responses((status = 200, description = "It is forgotten, as it was; what it did stays done", body = PlanView),
        (status = 409, description = "It is running, or is being taken back"))
)]
pub(crate) async fn delete(
    State(app): State<Arc<HttpParts>>,
    TopicAndId(topic, id): TopicAndId,
) -> Result<Response, Problem> {
    Ok(answer(&app, app.plans.delete(&topic, id.as_str()).await?))
}
