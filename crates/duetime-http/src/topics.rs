//! Topics: created, changed, looked at, deleted; and how much falls due when.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use duetime_core::TopicName;
use duetime_core::limits::FORECAST_BUCKETS_MAX;
use duetime_core::units::parse_duration;
use duetime_router::TopicChange;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::app::App;
use crate::auth::Caller;
use crate::body;
use crate::doc;
use crate::fields;
use crate::path::{Query, Topic};
use crate::problem::{Problem, Refusal};
use crate::view::{OutcomeView, TopicView};

/// Largest body of a topic's settings.
pub(crate) const SETTINGS_BYTES_MAX: usize = 256 << 10;

/// Shortest and longest bucket of a forecast.
const BUCKET_MIN: Duration = Duration::from_millis(1);
const BUCKET_MAX: Duration = Duration::from_secs(366 * 86_400);
/// Buckets of a forecast, unless asked for otherwise.
const BUCKETS: usize = 60;

const FIELDS: [&str; 10] = [
    "shards",
    "sink",
    "visibility_timeout",
    "retry",
    "rate_limit",
    "delivery",
    "max_payload",
    "max_messages",
    "max_bytes",
    "confirm_acks",
];
const RETRY_FIELDS: [&str; 5] = ["max_attempts", "initial", "max", "factor", "jitter"];
const RATE_FIELDS: [&str; 2] = ["per_second", "burst"];

/// All topics.
#[derive(Serialize, ToSchema)]
pub(crate) struct TopicViews<'a> {
    /// By name.
    topics: Vec<TopicView<'a>>,
}

/// List topics
#[utoipa::path(
    get, path = "/v1/topics", tag = "topics", operation_id = "list_topics",
    responses((status = 200, description = "Every topic with its counts", body = TopicViews))
)]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let surveys = app.router.survey_all().await?;
    let seen = surveys.iter().filter(|survey| caller.sees(survey.record.name.as_str()));
    Ok(Json(TopicViews { topics: seen.map(TopicView::from).collect() }).into_response())
}

async fn view(app: &App, topic: &TopicName, status: StatusCode) -> Result<Response, Problem> {
    let survey = app.router.survey(topic).await?;
    Ok((status, Json(TopicView::from(&survey))).into_response())
}

/// Look at a topic
#[utoipa::path(
    get, path = "/v1/topics/{topic}", tag = "topics", operation_id = "get_topic",
    params(("topic" = String, Path, description = "Name of the topic")),
    responses((status = 200, description = "Its settings and counts", body = TopicView))
)]
pub(crate) async fn get(State(app): State<Arc<App>>, Topic(topic): Topic) -> Result<Response, Problem> {
    view(&app, &topic, StatusCode::OK).await
}

fn read_change(bytes: &[u8]) -> Result<TopicChange, Refusal> {
    change_of(fields::read(bytes)?)
}

/// A change that names settings there are, and no others.
pub(crate) fn change_of(fields: Map<String, Value>) -> Result<TopicChange, Refusal> {
    for (name, value) in &fields {
        if !FIELDS.contains(&name.as_str()) {
            return Err(fields::unknown_field(name, &FIELDS));
        }
        let inner: &[&str] = match name.as_str() {
            "retry" => &RETRY_FIELDS,
            "rate_limit" => &RATE_FIELDS,
            _ => continue,
        };
        if !value.is_object() && !value.is_null() {
            return Err(Refusal::new("invalid_topic_settings", format!("{name} must be an object or null")).at(name));
        }
        let unknown = value.as_object().and_then(|object| object.keys().find(|key| !inner.contains(&key.as_str())));
        if let Some(key) = unknown {
            return Err(fields::unknown_field(key, inner).at(format!("{name}.{key}")));
        }
    }
    Ok(TopicChange::new(fields))
}

/// Create or change a topic
///
/// What is absent stays as it is, `null` goes back to the default. Another shard count of a topic
/// that is there begins a resize, as `PUT /v1/topics/{topic}/shards` does.
#[utoipa::path(
    put, path = "/v1/topics/{topic}", tag = "topics", operation_id = "put_topic",
    params(("topic" = String, Path, description = "Name of the topic")),
    request_body(content = Option<doc::TopicChangeSchema>, content_type = "application/json"),
    responses(
        (status = 201, description = "Created", body = TopicView),
        (status = 200, description = "Changed, or already so", body = TopicView),
        (status = 409, description = "Others keep changing it, or the topic that had this name vanished: adopt or delete it",
            body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Topic(topic): Topic,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    body::json_only(&headers)?;
    let change = read_change(&body::whole(body, &headers, SETTINGS_BYTES_MAX).await?)?;
    let _alone = if caller.has_topic_limit() { Some(app.options.making_topics.lock().await) } else { None };
    if caller.has_topic_limit() && app.catalog.find(&topic).await?.is_none() {
        caller.check_topics(app.catalog.all().keys().filter(|name| caller.sees(name.as_str())).count())?;
    }
    let put = app.catalog.put(&topic, &change).await?;
    if !put.created && change.has("shards") {
        app.resizing.ask(&topic, put.record.config.shards).await?;
    }
    view(&app, &topic, if put.created { StatusCode::CREATED } else { StatusCode::OK }).await
}

/// Delete a topic
///
/// With everything in it.
#[utoipa::path(
    delete, path = "/v1/topics/{topic}", tag = "topics", operation_id = "delete_topic",
    params(("topic" = String, Path, description = "Name of the topic")),
    responses((status = 200, description = "`deleted`", body = OutcomeView))
)]
pub(crate) async fn delete(State(app): State<Arc<App>>, Topic(topic): Topic) -> Result<Response, Problem> {
    // In a task of its own: a deletion that was begun goes on when its client goes away.
    let work = tokio::spawn({
        let (app, topic) = (app.clone(), topic.clone());
        async move {
            let was = app.catalog.delete(&topic).await;
            app.meters.forget_topic(&topic);
            was
        }
    });
    let was = work.await.map_err(|_| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the deletion broke off; send it again")
    })?;
    if !was? {
        return Err(duetime_router::RouteError::UnknownTopic(topic).into());
    }
    Ok(Json(OutcomeView::word(None, "deleted")).into_response())
}

/// Messages that fall due in one stretch of time.
#[derive(Serialize, ToSchema)]
pub(crate) struct BucketView {
    /// Milliseconds since the Unix epoch.
    from: i64,
    /// The beginning of the next.
    to: i64,
    count: u64,
}

/// How much falls due when.
#[derive(Serialize, ToSchema)]
pub(crate) struct ForecastView {
    /// Messages that are due already.
    due: u64,
    /// From now on.
    buckets: Vec<BucketView>,
    /// Shards that are not in the counts, because their server does not answer; absent when all are.
    #[serde(skip_serializing_if = "crate::view::none")]
    #[schema(required = false)]
    silent_shards: usize,
}

fn read_bucket(text: &str) -> Result<Duration, String> {
    let bucket = parse_duration(text)?;
    if (BUCKET_MIN..=BUCKET_MAX).contains(&bucket) { Ok(bucket) } else { Err("give 1ms to 366 days".to_owned()) }
}

fn read_buckets(text: &str) -> Result<usize, String> {
    let buckets = text.parse().ok().filter(|n| (1..FORECAST_BUCKETS_MAX).contains(n));
    buckets.ok_or_else(|| format!("give 1 to {}", FORECAST_BUCKETS_MAX - 1))
}

/// Forecast
///
/// How many messages fall due in each coming bucket.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/forecast", tag = "topics", operation_id = "forecast",
    params(
        ("topic" = String, Path, description = "Name of the topic"),
        ("bucket" = inline(Option<String>), Query, description = "Length of a bucket: `1m`, or milliseconds"),
        ("buckets" = inline(Option<usize>), Query, description = "How many, 60 if absent", minimum = 1, maximum = 1439),
    ),
    responses((status = 200, description = "Counts per bucket", body = ForecastView))
)]
pub(crate) async fn forecast(
    State(app): State<Arc<App>>,
    Topic(topic): Topic,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["bucket", "buckets"])?;
    let bucket = query.get("bucket", Duration::from_secs(60), read_bucket)?;
    let buckets = query.get("buckets", BUCKETS, read_buckets)?;
    let mut edges = vec![app.clock.now()];
    for at in 0..buckets {
        edges.push(edges[at].plus(bucket));
    }
    let survey = app.router.survey(&topic).await?;
    let (counts, silent) = app.router.forecast(&topic, &edges).await?;
    let view = |(edge, count): (&[duetime_core::Timestamp], u64)| BucketView {
        from: edge[0].as_millis(),
        to: edge[1].as_millis(),
        count,
    };
    let (due, silent_shards) = (survey.total.due, silent.max(survey.silent()));
    let buckets = edges.windows(2).zip(counts).map(view).collect();
    Ok(Json(ForecastView { due, buckets, silent_shards }).into_response())
}
