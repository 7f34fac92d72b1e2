//! Pauses and resumes all topics that deliver through a sink: its breaker, opened by hand for all nodes.
//!
//! Each topic is paused by itself, with a note of the sink in its record, and that note says which topics the resume of
//! the sink is for. There is no record of the sink: a topic that comes to it later is not paused.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, extract::Path};
use duetime_core::{TopicName, TopicRecord};
use duetime_router::{CatalogError, TopicChange};
use serde::Serialize;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::audit::Entry;
use crate::auth::Caller;
use crate::json::problem::Problem;
use crate::json::schema;
use crate::routes::pause::{PauseSchema, read_reason};
use crate::routes::topics::to_its_end;
use crate::server::body;
use crate::server::state::HttpParts;

/// Topics that one request changes: so many are written within the time that a request has.
const SINK_TOPICS_MAX: usize = 1000;

const OWN_PAUSE: &str = "it is paused by itself, and stays so until it is resumed by itself";
const OTHER_SINK: &str = "it does not deliver through this sink any more";
const GONE: &str = "it was deleted";

/// Why a topic could not be paused or resumed.
#[derive(Serialize, ToSchema)]
pub(crate) struct SinkTopicProblem {
    /// Stable word for programs.
    #[schema(value_type = schema::Code)]
    code: &'static str,
    /// What is wrong and what to do, for people.
    detail: String,
    /// The same may be done later, without anybody doing anything else.
    retryable: bool,
}

/// What became of one topic.
#[skip_serializing_none]
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct SinkTopicView {
    topic: String,
    /// `paused` through the sink, `resumed`, or `left` as it was, of which `detail` has the reason. Absent: it failed.
    #[schema(value_type = Option<String>)]
    outcome: Option<&'static str>,
    #[schema(value_type = Option<String>)]
    detail: Option<&'static str>,
    error: Option<SinkTopicProblem>,
}

/// What became of the topics of a sink.
#[derive(Serialize, ToSchema)]
pub(crate) struct SinkTopicsView {
    sink: String,
    /// By name. After a resume: those that were paused.
    topics: Vec<SinkTopicView>,
    /// Topics of this sink that the token is not for. They were left as they are.
    other_topics: usize,
    /// There are more to be changed: send the same request again.
    more: bool,
}

/// What is asked of the topics of a sink.
#[derive(Clone, Debug)]
struct SinkAsk {
    sink: String,
    pauses: bool,
    change: TopicChange,
}

impl SinkAsk {
    /// Whether the answer names this topic.
    fn is_about(&self, record: &TopicRecord) -> bool {
        let delivers = record.config.sink.as_ref().is_some_and(|sink| sink.name == self.sink);
        if self.pauses { delivers } else { self.holds(record) || (delivers && record.config.paused) }
    }

    fn holds(&self, record: &TopicRecord) -> bool {
        record.pause().is_some_and(|note| note.sink.as_ref() == Some(&self.sink))
    }

    fn outcome(&self, record: Option<&TopicRecord>) -> (&'static str, Option<&'static str>) {
        match record {
            None => ("left", Some(GONE)),
            Some(record) if self.pauses && self.holds(record) => ("paused", None),
            Some(record) if !record.config.paused && self.pauses => ("left", Some(OTHER_SINK)),
            Some(record) if !record.config.paused => ("resumed", None),
            Some(_) => ("left", Some(OWN_PAUSE)),
        }
    }

    /// What the answer says of a topic that is as `made` says by now, or could not be changed.
    fn view(&self, topic: &TopicName, made: Result<Option<Arc<TopicRecord>>, CatalogError>) -> SinkTopicView {
        let topic = topic.to_string();
        match made {
            Ok(record) => {
                let (outcome, detail) = self.outcome(record.as_deref());
                SinkTopicView { topic, outcome: Some(outcome), detail, error: None }
            }
            Err(error) => {
                let Problem { code, detail, retryable, .. } = Problem::from(error);
                let error = Some(SinkTopicProblem { code, detail, retryable });
                SinkTopicView { topic, error, ..SinkTopicView::default() }
            }
        }
    }
}

async fn set(app: Arc<HttpParts>, caller: &Caller, ask: SinkAsk) -> Result<Response, Problem> {
    caller.check_sink(&ask.sink)?;
    app.catalog.refresh().await?;
    let all = app.catalog.all();
    let (about, others): (Vec<_>, Vec<_>) =
        all.values().filter(|record| ask.is_about(record)).partition(|record| caller.sees(record.name.as_str()));
    if about.is_empty()
        && others.is_empty()
        && !all.values().any(|record| record.config.sink.as_ref().is_some_and(|sink| sink.name == ask.sink))
    {
        let detail =
            format!("no topic delivers through a sink {:?}; see the sinks of topics in GET /v1/topics", ask.sink);
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown_sink", detail).at("sink"));
    }
    let now = app.clock.now();
    // What cannot be made of a topic is said when it is tried.
    let is_so = |record: &&Arc<TopicRecord>| matches!(ask.change.made(Some(&**record), now), Ok(None));
    let (left, changed): (Vec<_>, Vec<_>) = about.into_iter().partition(is_so);
    let mut to_change: Vec<TopicName> = changed.into_iter().map(|record| record.name.clone()).collect();
    to_change.sort_unstable();
    let more = to_change.len() > SINK_TOPICS_MAX;
    to_change.truncate(SINK_TOPICS_MAX);
    let puts = to_its_end({
        let (app, change) = (app.clone(), ask.change.clone());
        async move { app.catalog.change_each(to_change, &change).await }
    });
    let left = left.into_iter().map(|record| (record.name.clone(), Ok(Some(record.clone()))));
    let made = puts.await??.into_iter().map(|(put, name)| (name, put.map(|put| put.map(|put| put.record))));
    let mut made: Vec<_> = left.chain(made).collect();
    made.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let topics: Vec<SinkTopicView> = made.into_iter().map(|(name, made)| ask.view(&name, made)).collect();
    if let Some(entry) = Entry::current() {
        entry.count(topics.len() as u64, topics.iter().filter(|topic| topic.error.is_some()).count() as u64);
    }
    Ok(Json(SinkTopicsView { sink: ask.sink, topics, other_topics: others.len(), more }).into_response())
}

/// Pause a sink
///
/// Pauses every topic that delivers through it and that the token is for, each by itself, and notes the sink in their
/// records: its circuit breaker opened by hand, at all nodes and over restarts. A topic that is paused by itself is left
/// as it is. One that is given this sink later is not paused: send the request again. The resume of the sink ends it.
#[utoipa::path(
    post, path = "/v1/sinks/{sink}/pause", tag = "operations", operation_id = "pause_sink",
    security(("token" = ["admin"])),
    request_body(content = Option<PauseSchema>, content_type = "application/json"),
    responses(
        (status = 200, description = "What became of each topic: one that fails fails alone", body = SinkTopicsView),
        (status = 404, description = "`unknown_sink`: no topic delivers through it"),
    )
)]
pub(crate) async fn pause(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    Path(sink): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let reason = read_reason(&headers, body).await?;
    let change = TopicChange::pause_sink(&sink, reason).by(caller.name());
    set(app, &caller, SinkAsk { sink, pauses: true, change }).await
}

/// Resume a sink
///
/// Resumes the topics that were paused through it and that the token is for, wherever they deliver by now. What was
/// paused by itself stays so.
#[utoipa::path(
    post, path = "/v1/sinks/{sink}/resume", tag = "operations", operation_id = "resume_sink",
    security(("token" = ["admin"])),
    responses(
        (status = 200, description = "What became of each topic: one that fails fails alone", body = SinkTopicsView),
        (status = 404, description = "`unknown_sink`: no topic delivers through it"),
    )
)]
pub(crate) async fn resume(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    Path(sink): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    body::json_only(&headers)?;
    let change = TopicChange::resume_sink(&sink);
    set(app, &caller, SinkAsk { sink, pauses: false, change }).await
}
