//! Topics: created, changed, shown, deleted.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use duetime_core::store::{Deletion, ShardCounts};
use duetime_core::{ResizeError, StoreError, TopicConfig, TopicName, TopicRecord, setting};
use duetime_request::RequestDeadline;
use duetime_router::{CatalogError, RouteError, TopicChange, TopicCounts, TopicPut};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::auth::{Caller, Scope};
use crate::json::fields;
use crate::json::once_map::OnceMap;
use crate::json::path::{Query, Topic};
use crate::json::problem::{Problem, Refusal};
use crate::json::setting_schema::TopicChangeSchema;
use crate::routes::sinks::SinkIssueView;
use crate::routes::view::{OutcomeView, TopicView};
use crate::server::body;
use crate::server::memory;
use crate::server::state::HttpParts;

/// Largest body of a topic's settings.
pub(crate) const SETTINGS_BYTES_MAX: usize = 256 << 10;

/// A deletion that takes longer is answered before it has ended.
const DELETE_ANSWER_MAX: Duration = Duration::from_secs(20);

/// Tries to change a topic that others keep deleting.
const PUTS_MAX: u32 = 3;

/// All topics.
#[derive(Serialize, ToSchema)]
pub(crate) struct TopicViews<'a> {
    /// By name.
    topics: Vec<TopicView<'a>>,
}

/// List topics
#[utoipa::path(
    get, path = "/v1/topics", tag = "topics", operation_id = "list_topics",
    security(("token" = [])),
    responses((status = 200, description = "Every topic with its counts", body = TopicViews))
)]
pub(crate) async fn list(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let _turn = memory::turn().await;
    let all_counts = app.router.counter.count_all().await?;
    let seen = all_counts.iter().filter(|counts| caller.sees(counts.record.name.as_str()));
    let issue = |name: &TopicName| SinkIssueView::of(&app, name, &caller);
    let topics = seen.map(|counts| TopicView::new(counts, issue(&counts.record.name), &caller)).collect();
    Ok(Json(TopicViews { topics }).into_response())
}

/// Look at a topic
#[utoipa::path(
    get, path = "/v1/topics/{topic}", tag = "topics", operation_id = "get_topic",
    security(("token" = [])),
    responses((status = 200, description = "Its settings and counts", body = TopicView))
)]
pub(crate) async fn get(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    Topic(topic): Topic,
) -> Result<Response, Problem> {
    let counts = app.router.counter.count(&topic).await?;
    let issue = SinkIssueView::of(&app, &topic, &caller);
    Ok(Json(TopicView::new(&counts, issue, &caller)).into_response())
}

fn read_change(bytes: &[u8]) -> Result<TopicChange, Refusal> {
    change_of(fields::read::<OnceMap>(bytes)?.0)
}

/// Reads a change that names declared settings, and no others.
pub(crate) fn change_of(fields: Map<String, Value>) -> Result<TopicChange, Refusal> {
    for (name, value) in &fields {
        let Some(setting) = TopicConfig::SETTINGS.iter().find(|setting| setting.name == name) else {
            return Err(fields::unknown_field(name, &setting::names(TopicConfig::SETTINGS)));
        };
        let inner = setting::names(setting.kind.inner());
        if inner.is_empty() || value.is_null() {
            continue;
        }
        let may_be_list = setting.kind.list_form().is_some();
        if may_be_list && value.is_array() {
            continue;
        }
        let Some(object) = value.as_object() else {
            let list = if may_be_list { ", a list" } else { "" };
            let refusal = Refusal::new("invalid_topic_settings", format!("{name} must be an object{list} or null"));
            return Err(refusal.at(name));
        };
        if let Some(key) = object.keys().find(|key| !inner.contains(&key.as_str())) {
            return Err(fields::unknown_field(key, &inner).at(format!("{name}.{key}")));
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
    security(("token" = ["admin"])),
    request_body(content = Option<TopicChangeSchema>, content_type = "application/json"),
    responses(
        (status = 201, description = "Created", body = TopicView),
        (status = 200, description = "Changed, or already so", body = TopicView),
        (status = 409, description = "Others keep changing it, or the topic that had this name vanished: adopt or delete it"),
    )
)]
pub(crate) async fn put(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    Topic(topic): Topic,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    body::json_only(&headers)?;
    let change = read_change(&body::whole(body, &headers, SETTINGS_BYTES_MAX).await?)?.by(caller.name());
    check_sink(&change, &caller)?;
    check_dead_to(&change, &caller)?;
    let resizes = change.has("shards");
    let put = put_within(&app, &topic, &change, &caller).await?;
    if !put.created && resizes {
        match app.resizing.ask(&topic, put.record.config.shards).await {
            // Somebody deleted it meanwhile; it was changed all the same.
            Ok(_) | Err(ResizeError::UnknownTopic(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let counts = counts_of(&app, &put.record).await?;
    let status = if put.created { StatusCode::CREATED } else { StatusCode::OK };
    let issue = SinkIssueView::of(&app, &topic, &caller);
    Ok((status, Json(TopicView::new(&counts, issue, &caller))).into_response())
}

/// Makes the change within what the caller may do. A new topic has other bounds than one that exists, so the bounds are
/// looked at again if the topic is deleted meanwhile.
async fn put_within(
    app: &Arc<HttpParts>,
    topic: &TopicName,
    change: &TopicChange,
    caller: &Caller,
) -> Result<TopicPut, Problem> {
    let limits = caller.limits();
    let is_limited = limits.max_topics.is_some();
    let _alone = if is_limited { Some(app.options.making_topics.lock().await) } else { None };
    for _ in 0..PUTS_MAX {
        let present = app.catalog.find(topic).await?;
        let creates = present.is_none();
        if is_limited && creates {
            limits.check_topics(app.catalog.all().keys().filter(|name| caller.sees(name.as_str())).count())?;
        }
        let change = bounded(app, present.as_ref(), change.clone(), caller)?;
        let put = to_its_end({
            let (app, topic) = (app.clone(), topic.clone());
            async move {
                match creates {
                    true => app.catalog.put(&topic, &change).await.map(Some),
                    false => app.catalog.change(&topic, &change).await,
                }
            }
        });
        if let Some(put) = put.await?.map_err(|error| refused(error, caller))? {
            return Ok(put);
        }
    }
    Err(StoreError::Conflict.into())
}

/// Refuses a sink that the caller may not use. It goes by what is asked for, whatever the topic has already.
pub(crate) fn check_sink(change: &TopicChange, caller: &Caller) -> Result<(), Problem> {
    change.sink().map_or(Ok(()), |sink| caller.check_sink(sink))
}

/// Refuses to forward dead letters to a topic in which the caller may schedule nothing.
pub(crate) fn check_dead_to(change: &TopicChange, caller: &Caller) -> Result<(), Problem> {
    change.dead_to().map_or(Ok(()), |to| caller.check(&[Scope::Produce], Some(to)))
}

/// The change within what the caller may give a topic, to the topic that is there or to a new one.
pub(crate) fn bounded(
    app: &HttpParts,
    present: Option<&Arc<TopicRecord>>,
    change: TopicChange,
    caller: &Caller,
) -> Result<TopicChange, Problem> {
    let ceilings = &caller.limits().ceilings;
    if !ceilings.is_some() {
        return Ok(change);
    }
    ceilings.bound(change, present, |count| app.catalog.most_shards_of(count))
}

/// The problem of a change that was refused; names no sink that the caller may not use.
fn refused(error: CatalogError, caller: &Caller) -> Problem {
    match error {
        CatalogError::Sink(error) => Problem::of_sink(error.listing(|sink| caller.sees_sink(sink))),
        other => other.into(),
    }
}

/// Finishes what was begun when its client goes away.
pub(crate) async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Problem> {
    tokio::spawn(RequestDeadline::propagate(work)).await.map_err(|_| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the request broke off; send it again")
    })
}

/// The topic as this request made it, with what is in it by now. Others may have changed or deleted it since.
pub(crate) async fn counts_of(app: &HttpParts, made: &Arc<TopicRecord>) -> Result<TopicCounts, Problem> {
    match app.router.counter.count(&made.name).await {
        Ok(mut counts) if counts.record.routing.life() == made.routing.life() => {
            let mut record = (**made).clone();
            record.set_routing(&counts.record.routing_record());
            counts.record = Arc::new(record);
            Ok(counts)
        }
        Ok(_) | Err(RouteError::UnknownTopic(_)) => Ok(none_of(made)),
        Err(error) if error.is_misrouted() => Ok(none_of(made)),
        Err(error) => Err(error.into()),
    }
}

fn none_of(made: &Arc<TopicRecord>) -> TopicCounts {
    TopicCounts { record: made.clone(), total: ShardCounts::default(), shards: Vec::new() }
}

/// Refuses to delete what holds messages, or may. The store decides for good; this says more, and costs less.
async fn check_empty(app: &HttpParts, topic: &TopicName) -> Result<(), Problem> {
    let refuse = |what: String| {
        let detail = format!("{what}; to delete it as it is, send DELETE /v1/topics/{topic}?force=true");
        Err(Problem::new(StatusCode::CONFLICT, "topic_not_empty", detail))
    };
    let counts = match app.router.counter.count(topic).await {
        Ok(counts) => counts,
        // A deletion that was interrupted, or a record that went away without one.
        Err(RouteError::UnknownTopic(_)) => {
            return match app.catalog.remains(topic).await? {
                0 => Ok(()),
                messages => {
                    refuse(format!("topic {topic:?} is not in the catalog, and {messages} messages of it are there"))
                }
            };
        }
        Err(error) => return Err(error.into()),
    };
    let (total, silent) = (counts.total, counts.unreachable_shards());
    let messages = total.messages();
    if messages > 0 {
        return refuse(format!("topic {topic:?} holds {messages} messages"));
    }
    if silent > 0 {
        return refuse(format!("{silent} shards of topic {topic:?} do not answer and may hold messages"));
    }
    Ok(())
}

/// Delete a topic
///
/// One that holds messages, dead letters too, or whose streams have entries, only with `force=true`: they are deleted
/// with it. Without, nothing that was acknowledged goes, also what is enqueued while the request is on its way; while
/// its shard count changes it is refused. A large topic is out of sight at once and answered 202 while its messages
/// are still being removed.
#[utoipa::path(
    delete, path = "/v1/topics/{topic}", tag = "topics", operation_id = "delete_topic",
    security(("token" = ["admin"])),
    params(("force" = inline(Option<bool>), Query, description = "Delete it with all messages in it")),
    responses(
        (status = 200, description = "`deleted`", body = OutcomeView),
        (status = 202, description = "`deleting`: there is no such topic any more, its messages are being removed",
            body = OutcomeView, example = json!({"outcome": "deleting"})),
        (status = 409, description = "It holds something or its shard count changes, and `force` is not `true`"),
    )
)]
pub(crate) async fn delete(
    State(app): State<Arc<HttpParts>>,
    Topic(topic): Topic,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["force"])?;
    let force = query.flag("force")?;
    let how = if force { Deletion::Force } else { Deletion::IfEmpty };
    if how == Deletion::IfEmpty {
        check_empty(&app, &topic).await?;
    }
    let mut work = pin!(to_its_end({
        let (app, topic) = (app.clone(), topic.clone());
        async move {
            let was = app.catalog.delete(&topic, how).await;
            if app.catalog.get(&topic).is_none() {
                app.meters.forget_topic(&topic);
                app.options.named_consumers.forget(&topic);
            }
            was
        }
    }));
    let was = match tokio::time::timeout(DELETE_ANSWER_MAX, &mut work).await {
        Ok(was) => was,
        Err(_) if app.catalog.refresh().await.is_ok() && app.catalog.get(&topic).is_none() => {
            let view = OutcomeView::word(None, "deleting");
            return Ok((StatusCode::ACCEPTED, Json(view)).into_response());
        }
        Err(_) => work.await,
    };
    if !was?? {
        return Err(RouteError::UnknownTopic(topic).into());
    }
    Ok(Json(OutcomeView::word(None, "deleted")).into_response())
}
