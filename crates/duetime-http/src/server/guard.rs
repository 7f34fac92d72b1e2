//! Around every request: counted, let in, answered in time, and never lost to a panic.

use std::any::Any;
use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::middleware::Next;
use axum::response::IntoResponse;
use duetime_core::Timestamp;
use duetime_core::limits::CLAIM_WAIT_MAX;
use duetime_request::{RequestDeadline, RequestName};
use futures::FutureExt as _;
use percent_encoding::percent_decode_str;
use tokio::time::Instant;
use tracing::{debug, error};

use crate::audit;
use crate::auth::operations::{Operation, Operations};
use crate::auth::origin;
use crate::json::problem::{PROBLEM_JSON, Problem, ProblemCode};
use crate::json::trace::trace_of;
use crate::server::memory::FoundCaller;
use crate::server::request_id;
use crate::server::state::HttpParts;
use crate::server::{body, memory, packed};

/// The header in which a client says until when it waits, in milliseconds since the Unix epoch.
pub(crate) const NOT_AFTER: &str = "duetime-not-after";

/// A request is answered, or its stream of answers begun, within this time.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// The template of its route; a clone of it allocates nothing.
fn route(request: &Request) -> Option<MatchedPath> {
    request.extensions().get().cloned()
}

fn template(route: Option<&MatchedPath>) -> &str {
    route.map_or("other", MatchedPath::as_str)
}

/// Methods that are counted by their name: a client may send any other.
fn method(request: &Request) -> &'static str {
    let known = ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"];
    known.into_iter().find(|name| request.method().as_str() == *name).unwrap_or("other")
}

/// What [`around`] needs.
#[derive(Clone)]
pub(crate) struct Around {
    pub app: Arc<HttpParts>,
    pub operations: &'static Operations,
}

/// What is around every request, from outside to inside.
pub(crate) async fn around(State(around): State<Around>, request: Request, next: Next) -> Response<Body> {
    let (app, options) = (&*around.app, &around.app.options);
    let route = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str);
    let operation = around.operations.find(request.method(), route);
    let allowed = |request| let_in(app, operation, request, |request| next.run(request));
    let in_store = |request| memory::counted(app, request, allowed);
    let unbroken = |request| {
        let answered = AssertUnwindSafe(in_time(app, request, in_store)).catch_unwind();
        answered.map(|answer| answer.unwrap_or_else(panicked))
    };
    let from_here = |request| origin::check(&options.hosts, request, unbroken);
    let recorded = |request| audit::recorded((&options.audit, &*app.clock), operation, request, from_here);
    counted(app, request, recorded).await
}

/// Counts requests by route template, method and status, and times them. Lines of the log, of any level, name the request
/// by its id, and its trace, where it has one.
async fn counted<F: Future<Output = Response<Body>>>(
    app: &HttpParts,
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response<Body> {
    let (route, method, began) = (route(&request), method(&request), Instant::now());
    let route = template(route.as_ref());
    let id = request_id::id_of(request.headers());
    let trace_id = trace_of(request.headers()).map(|trace| trace.span().trace());
    let name = RequestName { id: id.clone(), trace_id };
    let may_be_packed = packed::may_be(&request);
    let response = name.scope(async {
        let response = next(request).await;
        let (status, took_ms) = (response.status().as_u16(), began.elapsed().as_millis() as u64);
        debug!(method, route, status, took_ms, "request is answered");
        response
    });
    let response = response.await;
    debug_assert!(is_as_documented(&response), "{method} {route} answers {response:?}, and no problem");
    if let Some(ProblemCode(code)) = response.extensions().get() {
        app.meters.auth_refused(code);
    }
    app.meters.request(route, method, response.status().as_u16(), began.elapsed());
    let mut response = with_no_trace(if may_be_packed { packed::packed(response) } else { response });
    response.headers_mut().insert(request_id::REQUEST_ID, request_id::value(id));
    if app.test_clock.is_some() {
        // The times in the answer are those of this clock: who compares them with its own learns by how much it is off.
        response.headers_mut().insert(header::DATE, http_date(app.clock.now()));
    }
    response
}

fn http_date(now: Timestamp) -> HeaderValue {
    let at = UNIX_EPOCH + Duration::from_millis(u64::try_from(now.as_millis()).unwrap_or(0));
    HeaderValue::from_str(&httpdate::fmt_http_date(at)).expect("a date is plain text")
}

/// Whether what is no success is a problem: the document has nothing else.
fn is_as_documented(response: &Response<Body>) -> bool {
    let is_problem = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == PROBLEM_JSON);
    is_problem || !(response.status().is_client_error() || response.status().is_server_error())
}

/// The topic that a path under `/v1/topics/` names, decoded as the handlers decode it.
pub(crate) fn topic_in(path: &str) -> Cow<'_, str> {
    percent_decode_str(path.split('/').nth(3).unwrap_or_default()).decode_utf8_lossy()
}

/// Looks at the token where one is needed, and hands the caller on to the handlers.
async fn let_in<F: Future<Output = Response<Body>>>(
    app: &HttpParts,
    operation: Option<&Operation>,
    mut request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response<Body> {
    // What is no operation has no handler of the API: a page, or a refusal.
    if let Some((operation, scopes)) = operation.and_then(|operation| Some((operation, operation.scopes.as_ref()?))) {
        let found = request.extensions_mut().remove::<FoundCaller>();
        let caller = found.map_or_else(|| app.auth.caller(request.headers()), |found| found.0);
        let checked = caller.and_then(|caller| {
            let topic = operation.names_topic.then(|| topic_in(request.uri().path()));
            audit::called_by(caller.name());
            caller.limits().take_request()?;
            caller.check(scopes, topic.as_deref())?;
            body::typed(&request)?;
            operation.check_query(request.uri().query())?;
            audit::admit()?;
            Ok(caller)
        });
        match checked {
            Ok(caller) => request.extensions_mut().insert(caller),
            Err(problem) => return problem.into_response(),
        };
    }
    next(request).await
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
async fn in_time<F: Future<Output = Response<Body>>>(
    app: &HttpParts,
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response<Body> {
    let path = request.uri().path();
    let waits = path.ends_with("/claim") || path.ends_with("/watermark");
    let most = if waits { CLAIM_WAIT_MAX + ANSWER_MAX } else { ANSWER_MAX };
    let limit = match time_left(&request, app.machine_now()) {
        Ok(left) => left.map_or(most, |left| left.min(most)),
        Err(problem) => return problem.into_response(),
    };
    match tokio::time::timeout(limit, RequestDeadline::after(limit).scope(next(request))).await {
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
fn panicked(_: Box<dyn Any + Send>) -> Response<Body> {
    // Where and why, the panic itself has printed: its text may have a secret in it.
    error!("a request handler panicked; the line of the panic has more");
    let detail = "the node met a bug while answering; its log has the details, please report it";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail).into_response()
}
