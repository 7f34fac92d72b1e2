//! Around every request: counted, let in, answered in time, and never lost to a panic.

use std::any::Any;
use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use axum::middleware::Next;
use axum::response::IntoResponse;
use duetime_core::Timestamp;
use duetime_core::limits::CLAIM_WAIT_MAX;
use duetime_request::{RequestDeadline, RequestName};
use futures::FutureExt as _;
use percent_encoding::percent_decode_str;
use tokio::time::Instant;
use tracing::{debug, error};

use crate::audit::Entry;
use crate::auth::operations::{Operation, Operations};
use crate::auth::origin;
use crate::json::problem::{PROBLEM_JSON, Problem, ProblemCode};
use crate::json::trace::trace_of;
use crate::server::memory::Account;
use crate::server::request_id;
use crate::server::state::HttpParts;
use crate::server::{body, memory, packed};

/// The header in which a client says until when it waits, in milliseconds since the Unix epoch.
pub(crate) const NOT_AFTER: &str = "duetime-not-after";

/// Longest time until a request is answered, or its stream of answers begun.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// The label `route` of what has none.
pub(crate) const NO_ROUTE: &str = "other";

/// What [`around`] needs.
#[derive(Clone)]
pub(crate) struct Around {
    pub app: Arc<HttpParts>,
    pub operations: &'static Operations,
}

/// What is around every request: counted, named and recorded. Few futures, for they are moved as a whole and allocated
/// for each request: one for each step would hold the request as often.
pub(crate) async fn around(State(around): State<Around>, request: Request, next: Next) -> Response<Body> {
    let Around { app, operations } = around;
    let counted = Counted::of(&request);
    let operation = operations.find(request.method(), counted.route());
    let entry = operation.and_then(|operation| Entry::open(&app.options.audit, &*app.clock, operation, &request));
    let trace_id = trace_of(request.headers()).map(|trace| trace.span().trace());
    let name = Arc::new(RequestName { id: request_id::id_of(request.headers()), trace_id });
    let work = AssertUnwindSafe(answer(&app, operation, entry.clone(), request, next)).catch_unwind();
    let work = work.map(|answered| {
        let response = answered.unwrap_or_else(panicked);
        if let Some(entry) = entry {
            entry.answered(response.status());
        }
        counted.answered(&app, &name.id, response)
    });
    // Where the client goes away, all of it is dropped under this name too: the entry's line has it.
    name.scope(work).await
}

/// The answer to a request: a refusal, or that of its handler, in time.
async fn answer(
    app: &HttpParts,
    operation: Option<&Operation>,
    entry: Option<Arc<Entry>>,
    request: Request,
    next: Next,
) -> Response<Body> {
    let Admitted { request, account, limit } = match Admitted::look(app, operation, entry.as_deref(), request) {
        Ok(admitted) => admitted,
        Err(problem) => return problem.into_response(),
    };
    let work = RequestDeadline::after(limit).scope(account.scope(Entry::scope(entry, next.run(request))));
    match tokio::time::timeout(limit, work).await {
        Ok(response) => memory::held_until_sent(account, response),
        Err(_) => too_late(limit).into_response(),
    }
}

/// The label `method`: a client may send any other.
pub(crate) fn method_label(method: &Method) -> &'static str {
    let known = ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"];
    known.into_iter().find(|name| method.as_str() == *name).unwrap_or("other")
}

/// A request as it is counted: by the template of its route, its method and its status. It is timed, too.
struct Counted {
    /// A clone of it allocates nothing.
    route: Option<MatchedPath>,
    method: &'static str,
    began: Instant,
    may_be_packed: bool,
}

impl Counted {
    fn of(request: &Request) -> Self {
        Self {
            route: request.extensions().get().cloned(),
            method: method_label(request.method()),
            began: Instant::now(),
            may_be_packed: packed::may_be(request),
        }
    }

    fn route(&self) -> &str {
        self.route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str)
    }

    /// The answer as it is sent. A line of the log says what it was.
    fn answered(self, app: &HttpParts, id: &str, response: Response<Body>) -> Response<Body> {
        let (route, method, took) = (self.route(), self.method, self.began.elapsed());
        let (status, took_ms) = (response.status().as_u16(), took.as_millis() as u64);
        debug!(method, route, status, took_ms, "request is answered");
        debug_assert!(is_as_documented(&response), "{method} {route} answers {response:?}, and no problem");
        if let Some(ProblemCode(code)) = response.extensions().get() {
            app.meters.auth_refused(code);
        }
        app.meters.request(route, method, status, took);
        let mut response = with_no_trace(if self.may_be_packed { packed::packed(response) } else { response });
        response.headers_mut().insert(request_id::REQUEST_ID, request_id::value(id));
        if app.test_clock.is_some() {
            // The times in the answer are those of this clock: who compares them with its own learns by how much it is off.
            response.headers_mut().insert(header::DATE, http_date(app.clock.now()));
        }
        response
    }
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

/// A request that its handler may have.
struct Admitted {
    request: Request,
    account: Arc<Account>,
    /// It is answered, or its stream of answers begun, within this time.
    limit: Duration,
}

impl Admitted {
    /// Looks at where the request comes from, until when it is wanted, what it costs, and at its token where one is
    /// needed; hands the caller on to the handlers.
    fn look(
        app: &HttpParts,
        operation: Option<&Operation>,
        entry: Option<&Entry>,
        mut request: Request,
    ) -> Result<Self, Problem> {
        origin::check(&app.options.hosts, &request)?;
        let path = request.uri().path();
        let waits = path.ends_with("/claim") || path.ends_with("/watermark");
        let most = if waits { CLAIM_WAIT_MAX + ANSWER_MAX } else { ANSWER_MAX };
        let limit = time_left(&request, app.machine_now())?.map_or(most, |left| left.min(most));
        let caller = app.auth.caller(request.headers());
        let account = Account::open(app, &caller, &request)?;
        // What is no operation has no handler of the API: a page, or a refusal.
        if let Some((operation, scopes)) = operation.and_then(|operation| Some((operation, operation.scopes.as_ref()?)))
        {
            let caller = caller?;
            let topic = operation.names_topic.then(|| topic_in(request.uri().path()));
            if let Some(entry) = entry {
                entry.called_by(caller.name());
            }
            caller.limits().take_request()?;
            caller.check(scopes, topic.as_deref())?;
            body::typed(&request)?;
            operation.check_query(request.uri().query())?;
            if let Some(entry) = entry {
                entry.admit()?;
            }
            request.extensions_mut().insert(caller);
        }
        let request = memory::counted_as_it_arrives(&account, request);
        Ok(Self { request, account, limit })
    }
}

/// What is in an answer, a refusal too, is for its caller alone, and is what its type says. A page says itself how long
/// it may be kept.
fn with_no_trace(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The answer to a request that took too long, or as long as its client waits for it. What it began in the store may
/// still be done, nothing else of it is begun.
fn too_late(limit: Duration) -> Problem {
    let detail = format!(
        "no answer within {} s; whether it was done is unknown: repeat it, or wait for the store's response_timeout (5s \
         unless it is set) before you ask for the opposite",
        limit.as_secs()
    );
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", detail)
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
