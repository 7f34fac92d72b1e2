//! Around every request: counted, let in, answered in time, and never lost to a panic.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::middleware::Next;
use axum::response::IntoResponse;
use duetime_core::Timestamp;
use duetime_core::limits::CLAIM_WAIT_MAX;
use duetime_request::RequestDeadline;
use percent_encoding::percent_decode_str;
use tokio::time::Instant;
use tracing::{Instrument as _, Span, debug, error, error_span};

use crate::audit;
use crate::auth::scopes::scopes_of;
use crate::json::problem::{Problem, ProblemCode};
use crate::json::trace::trace_of;
use crate::server::body;
use crate::server::memory::FoundCaller;
use crate::server::query_routes::QueryRoutes;
use crate::server::state::HttpParts;

/// The header in which a client says until when it waits, in milliseconds since the Unix epoch.
pub(crate) const NOT_AFTER: &str = "duetime-not-after";

/// A request is answered, or its stream of answers begun, within this time.
const ANSWER_MAX: Duration = Duration::from_secs(60);

fn route(request: &Request) -> String {
    request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned()
}

/// Methods that are counted by their name: a client may send any other.
fn method(request: &Request) -> &'static str {
    let known = ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"];
    known.into_iter().find(|name| request.method().as_str() == *name).unwrap_or("other")
}

/// Counts requests by route template, method and status, and times them; the outermost of all.
pub(crate) async fn counted(State(app): State<Arc<HttpParts>>, request: Request, next: Next) -> Response<Body> {
    let (route, method, began) = (route(&request), method(&request), Instant::now());
    let span = match trace_of(request.headers()) {
        // Lines of any level are in it.
        Some(trace) => error_span!("request", trace_id = trace.span().trace()),
        None => Span::none(),
    };
    let response = async {
        let response = next.run(request).await;
        let (status, took_ms) = (response.status().as_u16(), began.elapsed().as_millis() as u64);
        debug!(method, route, status, took_ms, "request is answered");
        response
    };
    let response = response.instrument(span).await;
    if let Some(ProblemCode(code)) = response.extensions().get() {
        app.meters.auth_refused(code);
    }
    app.meters.request(&route, method, response.status().as_u16(), began.elapsed());
    with_no_trace(response)
}

/// The topic that a path under `/v1/topics/` names, decoded as the handlers decode it.
pub(crate) fn topic_in(path: &str) -> Cow<'_, str> {
    percent_decode_str(path.split('/').nth(3).unwrap_or_default()).decode_utf8_lossy()
}

/// Looks at the token, and hands the caller on to the handlers.
pub(crate) async fn let_in(
    State((app, with_query)): State<(Arc<HttpParts>, Arc<QueryRoutes>)>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    let route = route(&request);
    if route.starts_with("/v1/") {
        let found = request.extensions_mut().remove::<FoundCaller>();
        let caller = found.map_or_else(|| app.auth.caller(request.headers()), |found| found.0);
        let checked = caller.and_then(|caller| {
            let topic = route.contains("{topic}").then(|| topic_in(request.uri().path()));
            audit::called_by(caller.name());
            caller.limits().take_request()?;
            caller.check(scopes_of(request.method(), &route), topic.as_deref())?;
            body::typed(&request)?;
            with_query.check(request.method(), &route, request.uri().query())?;
            audit::admit()?;
            Ok(caller)
        });
        match checked {
            Ok(caller) => request.extensions_mut().insert(caller),
            Err(problem) => return problem.into_response(),
        };
    }
    next.run(request).await
}

/// What is in an answer, a refusal too, is for its caller alone, and is what its type says. A page says itself how long
/// it may be kept.
fn with_no_trace(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Ends a request that takes too long, or as long as its client waits for it. What it began in the store may still be
/// done, nothing else of it is begun.
pub(crate) async fn in_time(State(app): State<Arc<HttpParts>>, request: Request, next: Next) -> Response<Body> {
    let waits = request.uri().path().ends_with("/claim");
    let most = if waits { CLAIM_WAIT_MAX + ANSWER_MAX } else { ANSWER_MAX };
    let limit = match time_left(&request, app.clock.now()) {
        Ok(left) => left.map_or(most, |left| left.min(most)),
        Err(problem) => return problem.into_response(),
    };
    match tokio::time::timeout(limit, RequestDeadline::after(limit).scope(next.run(request))).await {
        Ok(response) => response,
        Err(_) => {
            let detail = format!("no answer within {} s; whether it was done is unknown, repeat it", limit.as_secs());
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", detail).into_response()
        }
    }
}

/// How long the client waits for this request; `None`: it does not say. Refused where that is over.
fn time_left(request: &Request, now: Timestamp) -> Result<Option<Duration>, Problem> {
    if request.method().is_safe() {
        return Ok(None);
    }
    let mut ends = request.headers().get_all(NOT_AFTER).iter().peekable();
    if ends.peek().is_none() {
        return Ok(None);
    }
    let read = |value: &HeaderValue| value.to_str().ok()?.parse::<i64>().ok().filter(|end| *end >= 0);
    // A proxy may have added one: the earliest counts.
    let ends: Option<Vec<i64>> = ends.map(read).collect();
    let Some(end) = ends.and_then(|ends| ends.into_iter().min()) else {
        let detail = format!("{NOT_AFTER}: give a time in milliseconds since the Unix epoch");
        return Err(Problem::bad("invalid_value", detail).at(NOT_AFTER));
    };
    match u64::try_from(end.saturating_sub(now.as_millis())) {
        Ok(left) if left > 0 => Ok(Some(Duration::from_millis(left))),
        _ => {
            let detail = format!(
                "the request's deadline, {NOT_AFTER}: {end}, has passed: this node's clock says {}. Nothing was done; if the \
                 request is still wanted, send it again with a later deadline",
                now.as_millis()
            );
            Err(Problem::new(StatusCode::PRECONDITION_FAILED, "deadline_exceeded", detail))
        }
    }
}

/// The answer of a handler that broke.
pub(crate) fn panicked(_: Box<dyn Any + Send>) -> Response<Body> {
    // Where and why, the panic itself has printed: its text may have a secret in it.
    error!("a request handler panicked; the line of the panic has more");
    let detail = "the node met a bug while answering; its log has the details, please report it";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail).into_response()
}
