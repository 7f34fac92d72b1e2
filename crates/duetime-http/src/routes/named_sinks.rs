//! Sinks by their names: those of the node's file, which are shown, and those that are put by the API.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use duetime_core::names::is_dots;
use duetime_core::records::SINK_BYTES_MAX;
use duetime_core::{NamedSink, SinkRef, SinkRefusal, TopicName, some_of};
use duetime_router::{PutSinkError, SinkPut};
use serde::Serialize;
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::audit;
use crate::auth::Caller;
use crate::json::fields;
use crate::json::once_map::OnceMap;
use crate::json::path::Query;
use crate::json::problem::Problem;
use crate::routes::topics::to_its_end;
use crate::routes::view::OutcomeView;
use crate::server::body;
use crate::server::state::HttpParts;

/// Longest name of a sink that is put.
const NAME_BYTES_MAX: usize = 100;
/// Topics that a refusal names.
const TOPICS_SHOWN: usize = 10;

/// The settings of a sink, as a section `[sinks.NAME]` of the file has them: `type` and what belongs to that type. A secret
/// is not sent itself: `{"file": "NAME"}` is in the folder of secrets of each node, `{"env": "DUETIME_SINK_NAME"}` in its
/// environment.
#[derive(ToSchema)]
#[schema(as = SinkSettings, value_type = Object)]
#[allow(dead_code)]
pub(crate) struct SinkSettingsSchema(Map<String, Value>);

/// A sink as the answering node has it.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct NamedSinkView {
    name: String,
    /// The kind of sink; absent: its record cannot be read.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// `file`: of the file of this node, which alone changes it; `api`: it was put.
    #[schema(value_type = String)]
    origin: &'static str,
    /// Another, higher one with each change, also when it is put again after it was deleted; only of one that was put.
    version: Option<u64>,
    /// When it was put last, in milliseconds since the Unix epoch.
    changed_at: Option<i64>,
    /// The token that put it last.
    changed_by: Option<String>,
    /// Its settings as they were put, with the names of its secrets and never a secret; only of one that was put.
    #[schema(value_type = Option<SinkSettingsSchema>)]
    config: Option<Map<String, Value>>,
    /// How many topics deliver through it, of those that the token is for.
    topics: usize,
    /// Why this node cannot use it: messages of its topics wait. Absent: it can.
    problem: Option<String>,
}

/// The sinks of a node.
#[derive(Serialize, ToSchema)]
pub(crate) struct NamedSinkViews {
    /// By name.
    sinks: Vec<NamedSinkView>,
    /// Whether this node takes sinks that are put: `enabled` of `[sinks_by_api]` in its file.
    by_api: bool,
}

impl NamedSinkView {
    fn new(sink: NamedSink, topics: &BTreeMap<String, usize>) -> Self {
        let NamedSink { name, kind, record, is_of_file, fault } = sink;
        let topics = topics.get(&name).copied().unwrap_or_default();
        let (version, changed_at) = record.as_ref().map(|record| (record.version, record.changed_at_ms)).unzip();
        let (changed_by, config) = record.map_or((None, None), |record| (record.by, Some(record.config)));
        let origin = if is_of_file { "file" } else { "api" };
        Self { name, kind, origin, version, changed_at, changed_by, config, topics, problem: fault }
    }

    /// The sink of this name, after a look at the store.
    async fn of(app: &HttpParts, caller: &Caller, name: &str) -> Result<Self, Problem> {
        caller.check_sink(name)?;
        app.catalog.refresh().await?;
        let found = app.put_sinks.all().into_iter().find(|sink| sink.name == name);
        found.map(|sink| Self::new(sink, &topics_by_sink(app, caller))).ok_or_else(|| unknown(name))
    }
}

/// How many topics that the caller sees deliver through each sink.
fn topics_by_sink(app: &HttpParts, caller: &Caller) -> BTreeMap<String, usize> {
    let mut topics = BTreeMap::new();
    for record in app.catalog.all().values().filter(|record| caller.sees(record.name.as_str())) {
        if let Some(sink) = &record.config.sink {
            *topics.entry(sink.name.clone()).or_default() += 1;
        }
    }
    topics
}

/// The topics that deliver through a sink, with what they say of it.
fn topics_of(app: &HttpParts, name: &str) -> Vec<(TopicName, SinkRef)> {
    let all = app.catalog.all();
    let sinks = all.values().filter_map(|record| Some((record, record.config.sink.as_ref()?)));
    sinks.filter(|(_, sink)| sink.name == name).map(|(record, sink)| (record.name.clone(), sink.clone())).collect()
}

fn unknown(name: &str) -> Problem {
    let detail = format!("there is no sink {name:?}; see GET /v1/sinks");
    Problem::new(StatusCode::NOT_FOUND, "unknown_sink", detail).at("sink")
}

fn refused(app: &HttpParts, name: &str, error: PutSinkError) -> Problem {
    let node = &app.node.id;
    let conflict = |code, detail: String| Problem::new(StatusCode::CONFLICT, code, detail);
    match error {
        PutSinkError::Off => conflict(
            "sinks_by_api_off",
            format!(
                "node {node:?} takes no sinks by the API; set enabled = true and targets in [sinks_by_api] of the file \
                 of every node, and start them again"
            ),
        ),
        PutSinkError::OfFile => conflict(
            "sink_of_file",
            format!(
                "the sink {name:?} is of the file of node {node:?}; change [sinks.{name}] there and start the node \
                 again, or give another name"
            ),
        )
        .at("sink"),
        PutSinkError::Unknown => unknown(name),
        PutSinkError::Changed(version) => {
            let is = if version == 0 { "there is none".to_owned() } else { format!("it is version {version}") };
            let detail =
                format!("the sink {name:?} is not the version of if_version: {is}; read it again, and decide anew");
            Problem::new(StatusCode::PRECONDITION_FAILED, "changed", detail)
        }
        PutSinkError::Refused(SinkRefusal::Invalid { field, detail }) => {
            let problem = Problem::bad("invalid_sink", detail);
            match field {
                Some(field) => problem.at(field),
                None => problem,
            }
        }
        PutSinkError::Refused(SinkRefusal::Unusable(said)) => conflict(
            "sink_unusable",
            format!("node {node:?} tried it: {said}. It was not put; to put it all the same, send it with ?try=false"),
        ),
        PutSinkError::Store(error) => error.into(),
    }
}

fn check_name(name: &str) -> Result<(), Problem> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain) && !is_dots(name) {
        return Ok(());
    }
    let detail =
        format!("the name of a sink has 1 to {NAME_BYTES_MAX} of the characters A-Z a-z 0-9 . _ -, and not dots alone");
    Err(Problem::bad("invalid_sink", detail).at("sink"))
}

fn if_version(query: &Query) -> Result<Option<u64>, Problem> {
    query.get("if_version", None, |text| {
        text.parse().map(Some).map_err(|_| "give a whole number, 0 for none".to_owned())
    })
}

/// Who changes a sink changes where messages of all topics go that deliver through it.
fn check_admin(caller: &Caller, name: &str) -> Result<(), Problem> {
    caller.check_all("a change of a sink")?;
    caller.check_sink(name)
}

/// List sinks
///
/// Those of the file of the answering node, and those that were put by the API, which all nodes have.
#[utoipa::path(
    get, path = "/v1/sinks", tag = "operations", operation_id = "list_sinks",
    security(("token" = ["view"])),
    responses((status = 200, description = "Every sink that the token may use", body = NamedSinkViews))
)]
pub(crate) async fn list(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
) -> Json<NamedSinkViews> {
    let topics = topics_by_sink(&app, &caller);
    let seen = app.put_sinks.all().into_iter().filter(|sink| caller.sees_sink(&sink.name));
    let sinks = seen.map(|sink| NamedSinkView::new(sink, &topics)).collect();
    Json(NamedSinkViews { sinks, by_api: app.put_sinks.is_on() })
}

/// Look at a sink by its name
///
/// Its settings if it was put, and whether the answering node can use it.
#[utoipa::path(
    get, path = "/v1/sinks/{sink}", tag = "operations", operation_id = "get_named_sink",
    security(("token" = ["view"])),
    responses(
        (status = 200, description = "The sink as this node has it", body = NamedSinkView),
        (status = 404, description = "`unknown_sink`: there is none of this name"),
    )
)]
pub(crate) async fn get(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    Path(sink): Path<String>,
) -> Result<Response, Problem> {
    Ok(Json(NamedSinkView::of(&app, &caller, &sink).await?).into_response())
}

/// Put a sink
///
/// Creates it or replaces all of its settings. It is kept in the store, and all nodes have it within about a second,
/// without a restart. It is tried before, from the answering node. What is in flight ends through the sink as it was;
/// secrets are read again. Only where the node's file has it enabled, within what that allows. A dry run has the same
/// answer, and changes nothing.
#[utoipa::path(
    put, path = "/v1/sinks/{sink}", tag = "operations", operation_id = "put_sink",
    security(("token" = ["admin"])),
    params(
        ("dry_run" = inline(Option<bool>), Query, description = "Check it, and put nothing; default false"),
        ("if_version" = inline(Option<u64>), Query, description = "Only if it is this `version` of it; 0: only if there is none"),
        ("try" = inline(Option<bool>), Query, description = "Connect to the target before; default true"),
    ),
    request_body(content = SinkSettingsSchema, content_type = "application/json"),
    responses(
        (status = 201, description = "Created", body = NamedSinkView),
        (status = 200, description = "Replaced", body = NamedSinkView),
        (status = 409, description = "`sinks_by_api_off`, `sink_of_file`: the file has one of this name; \
            `sink_unusable`: it was tried, and `detail` has what was found"),
        (status = 412, description = "`changed`: it is not the version of `if_version`; nothing was changed"),
        (status = 507, description = "The store is full, or has as many sinks as it may"),
    )
)]
pub(crate) async fn put(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    Path(sink): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    body::json_only(&headers)?;
    check_admin(&caller, &sink)?;
    let query = Query::read(query.as_deref(), &["dry_run", "if_version", "try"])?;
    let dry_run = query.flag("dry_run")?;
    if dry_run {
        audit::because("dry run");
    }
    let tries = query.get("try", true, |text| text.parse().map_err(|_| "give true or false".to_owned()))?;
    let if_version = if_version(&query)?;
    let OnceMap(config) = fields::read(&body::whole(body, &headers, SINK_BYTES_MAX).await?)?;
    check_name(&sink)?;
    app.catalog.refresh().await?;
    let (topics, by) = (topics_of(&app, &sink), caller.name().map(str::to_owned));
    let put = SinkPut { name: sink.clone(), config, if_version, topics, tries, dry_run, by };
    let put = to_its_end({
        let app = app.clone();
        async move { app.put_sinks.put(&put).await }
    });
    let (record, created) = put.await?.map_err(|error| refused(&app, &sink, error))?;
    app.catalog.refresh().await?;
    let is_it = |one: &NamedSink| one.record.as_ref() == Some(&record);
    let found = app.put_sinks.all().into_iter().find(|one| one.name == sink && is_it(one));
    // A dry run; or somebody else has changed or deleted it since: what was put is answered, and whoever holds its
    // version is told.
    let kind = record.config.get("type").and_then(Value::as_str).map(str::to_owned);
    let put = || NamedSink { name: sink, kind, record: Some(record), is_of_file: false, fault: None };
    let view = NamedSinkView::new(found.unwrap_or_else(put), &topics_by_sink(&app, &caller));
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(view)).into_response())
}

/// Delete a sink
///
/// One that was put and that no topic delivers through.
#[utoipa::path(
    delete, path = "/v1/sinks/{sink}", tag = "operations", operation_id = "delete_sink",
    security(("token" = ["admin"])),
    params(("if_version" = inline(Option<u64>), Query, description = "Only if it is this `version` of it")),
    responses(
        (status = 200, description = "`deleted`", body = OutcomeView),
        (status = 404, description = "`unknown_sink`: there is none of this name"),
        (status = 409, description = "`sink_in_use`: `detail` names topics that deliver through it; \
            `sinks_by_api_off`, `sink_of_file`"),
        (status = 412, description = "`changed`: it is not the version of `if_version`; nothing was changed"),
    )
)]
pub(crate) async fn delete(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    Path(sink): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    check_admin(&caller, &sink)?;
    let query = Query::read(query.as_deref(), &["if_version"])?;
    let if_version = if_version(&query)?;
    app.catalog.refresh().await?;
    let used_by = topics_of(&app, &sink);
    let mut topics: Vec<&str> = used_by.iter().map(|(topic, _)| topic.as_str()).collect();
    topics.sort_unstable();
    if !topics.is_empty() {
        let shown = some_of(&topics, TOPICS_SHOWN);
        let detail = format!("topics deliver through the sink {sink:?}: {shown}; give them another one before");
        return Err(Problem::new(StatusCode::CONFLICT, "sink_in_use", detail));
    }
    let deleted = to_its_end({
        let (app, sink) = (app.clone(), sink.clone());
        async move { app.put_sinks.delete(&sink, if_version).await }
    });
    deleted.await?.map_err(|error| refused(&app, &sink, error))?;
    app.catalog.refresh().await?;
    Ok(Json(OutcomeView::word(None, "deleted")).into_response())
}
