//! Whether this node is able to serve, and what it found of the things that it depends on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use duetime_core::limits::CLOCK_SKEW_MAX;
use duetime_core::{StoreError, some_of};
use duetime_router::Reach;
use serde::Serialize;
use utoipa::ToSchema;

use crate::json::found::ReadyFound;
use crate::json::problem::Problem;
use crate::json::schema;
use crate::routes::issues::own_issues;
use crate::routes::observe::is_this;
use crate::server::state::HttpParts;

/// Whether the node is able to serve.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReadyView {
    #[schema(value_type = schema::Readiness)]
    status: &'static str,
    /// What harms topics or the sharing of shards, or a log that takes no lines; absent when nothing does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    issues: Vec<String>,
    found: ReadyFound,
}

/// What others learn of a store that does not serve.
const STORE_NOT_READY: &str = "the store does not serve this node; send a token for all topics to see why";

/// What is found of the things that a node does not ask while it drains.
const NOT_ASKED: &str = "not asked: the node is draining";

/// Sinks that `found` names; `issues` has all of them.
const SINKS_NAMED: usize = 10;

/// Whether names, files and addresses are for who asks.
fn sees_all(app: &HttpParts, headers: &HeaderMap) -> bool {
    app.auth.caller(headers).is_ok_and(|caller| caller.sees_all())
}

/// Why the node is not ready; here nobody asked for anything that could be repeated. The whole text, which may name
/// files and addresses, is for whoever may see all.
fn not_ready(app: &HttpParts, headers: &HeaderMap, error: &StoreError) -> Problem {
    let mut problem = Problem::from(error);
    // How far the clocks are apart is in every answer of a node that is ready.
    let is_shown = matches!(error, StoreError::ClockSkew(_)) || sees_all(app, headers);
    problem.detail = if is_shown { error.to_string() } else { STORE_NOT_READY.to_owned() };
    problem
}

/// What is wrong with topics or shards, for whoever may see all; others learn only that there is something.
fn issues_for(app: &HttpParts, headers: &HeaderMap, silent: Option<String>) -> Vec<String> {
    let of_sinks = app.sinks.issues().into_iter().map(|issue| issue.detail);
    let issues = silent.into_iter().chain(own_issues(app)).chain(of_sinks).collect::<Vec<_>>();
    if issues.is_empty() || sees_all(app, headers) {
        return issues;
    }
    vec!["topics, shards, the store or a log have issues; send a token for all topics to see them".to_owned()]
}

/// Which sinks take nothing, for whoever may see all; others learn only that there are some.
fn sinks_found(app: &HttpParts, headers: &HeaderMap) -> String {
    let sinks: BTreeSet<String> = app.sinks.issues().into_iter().map(|issue| issue.sink).collect();
    if sinks.is_empty() {
        "none is known to be down".to_owned()
    } else if sees_all(app, headers) {
        format!("these take nothing: {}", some_of(sinks, SINKS_NAMED))
    } else {
        "some take nothing; send a token for all topics to see which".to_owned()
    }
}

/// What is known of the things that nobody has to be asked for.
fn found(app: &HttpParts, headers: &HeaderMap) -> ReadyFound {
    let test_clock = app.test_clock.as_ref();
    ReadyFound {
        store: NOT_ASKED,
        servers: NOT_ASKED.to_owned(),
        clock: NOT_ASKED.to_owned(),
        test_clock: test_clock
            .map(|moved| format!("{} ms ahead of the machine's: this node is for tests alone", moved.clock.ahead_ms())),
        sharing: match app.ownership.issue() {
            None => format!("{} works", app.ownership.mode()),
            Some(_) => format!("{} does not work, see GET /v1/issues", app.ownership.mode()),
        },
        sinks: sinks_found(app, headers),
    }
}

/// Why the node is to be sent no requests, if it drains.
fn drains(app: &HttpParts) -> Option<&'static str> {
    if app.draining.is_cancelled() {
        return Some("the node is draining; send requests to another one");
    }
    let is_drained = app.cluster.borrow().members.values().any(|member| is_this(app, member) && member.drain.is_some());
    is_drained.then_some("an operator drains this node; send requests to another one, or end it by `duetime undrain`")
}

/// Able to serve
///
/// It is about this node and what it needs for its work; what harms single topics, servers or sinks is an issue, and the
/// node serves the others. `found` says of each thing that the node depends on what it found, also where it is not able
/// to serve. Needs no token; one that is for all topics sees the issues, and which sinks take nothing.
#[utoipa::path(
    get, path = "/readyz", tag = "operations", operation_id = "readyz", security(()),
    responses(
        (status = 200, description = "The store answers, its clock and the node's agree, and the node is neither ending nor \
            drained", body = ReadyView),
        (status = 503, description = "It is not able to serve: `detail` says why, `found` what was found of each thing"),
    )
)]
pub(crate) async fn readyz(State(app): State<Arc<HttpParts>>, headers: HeaderMap) -> Result<Json<ReadyView>, Problem> {
    let mut found = found(&app, &headers);
    if let Some(detail) = drains(&app) {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "draining", detail).found(found));
    }
    let (ready, apart, reach) =
        tokio::join!(app.store.ready(), app.store.clock_skew_ms(&*app.clock), app.router.reach());
    let Reach { servers, answering } = reach;
    found.store = if ready.is_ok() { "serves" } else { "does not serve, see detail" };
    found.clock = match &apart {
        Ok(apart_ms) => format!("{} ms apart", apart_ms.unsigned_abs()),
        Err(_) => "not known: the store does not say its time".to_owned(),
    };
    found.servers = match servers {
        0 => "none has a shard yet".to_owned(),
        _ => format!("{answering} of {servers} answer"),
    };
    let far = |apart_ms: &i64| Duration::from_millis(apart_ms.unsigned_abs()) > CLOCK_SKEW_MAX;
    let fault = match (ready, apart) {
        (Err(error), _) | (Ok(()), Err(error)) => Some(error),
        (Ok(()), Ok(apart_ms)) if far(&apart_ms) => Some(StoreError::ClockSkew(apart_ms)),
        (Ok(()), Ok(_)) if answering == 0 && servers > 0 => {
            let source = format!("none of its {servers} servers answers when a shard of it is asked").into();
            Some(StoreError::Unavailable { doing: "ask for a shard", source })
        }
        (Ok(()), Ok(_)) => None,
    };
    if let Some(error) = fault {
        return Err(not_ready(&app, &headers, &error).found(found));
    }
    let silent = (answering < servers)
        .then(|| format!("{} of {servers} servers of the store do not answer: their shards wait", servers - answering));
    let issues = issues_for(&app, &headers, silent);
    Ok(Json(ReadyView { status: if issues.is_empty() { "ready" } else { "degraded" }, issues, found }))
}
