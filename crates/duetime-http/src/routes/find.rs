//! Finds messages by their id alone: which topics have one of this id?

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::Json;
use axum::extract::{RawQuery, State};
use duetime_core::{MessageId, StoredMessage, TopicName};
use duetime_router::RouteError;
use futures::future::join_all;
use serde::Serialize;
use serde_with::skip_serializing_none;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::json::path::Query;
use crate::json::problem::Problem;
use crate::json::schema;
use crate::json::topic_failure::TopicFailure;
use crate::server::memory;
use crate::server::state::HttpParts;

/// Topics that one request looks at, each by one call to the store.
pub(crate) const TOPICS_MAX: usize = 64;
/// Topics that are asked at the same time.
const TOPICS_AT_ONCE: usize = 16;
/// No more topics are asked when a page has taken this long, so that a store that is slow ends it early.
const PAGE_TIME: Duration = Duration::from_secs(2);
/// How long the names of the topics are waited for; after it they are those that this node knows.
const NAMES_WAIT: Duration = Duration::from_secs(1);

/// A message of the id in one topic, without payload and headers.
#[derive(Serialize, ToSchema)]
pub(crate) struct FoundView {
    topic: String,
    shard: u32,
    #[schema(value_type = schema::MessageState)]
    state: &'static str,
    /// The due time it was given, milliseconds since the Unix epoch.
    due_at: i64,
    /// When it may be claimed (again); of a dead letter, when it died.
    visible_at: i64,
    /// How many times it was claimed.
    attempts: u8,
}

impl FoundView {
    fn new(topic: &TopicName, shard: u32, message: &StoredMessage) -> Self {
        Self {
            topic: topic.to_string(),
            shard,
            state: message.state.as_str(),
            due_at: message.due_at.as_millis(),
            visible_at: message.visible_at.as_millis(),
            attempts: message.attempts,
        }
    }
}

/// One page of topics that were searched.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct FindView {
    /// By topic; empty: none of these topics has it.
    messages: Vec<FoundView>,
    /// Topics that may have it or not, for they did not answer; ask for them again.
    failed: Vec<TopicFailure>,
    /// Topics that this page asked.
    scanned: usize,
    /// Topics that the token is for.
    topics: usize,
    /// Give it as `cursor` to ask the next topics, also where this page is empty; absent on the last.
    next: Option<String>,
}

fn read_id(text: &str) -> Result<Option<MessageId>, String> {
    MessageId::new(text).map(Some).map_err(|error| error.to_string())
}

fn read_cursor(text: &str) -> Result<Option<TopicName>, String> {
    let help = |_| "not a cursor; give back `next` of the page before, exactly".to_owned();
    TopicName::new(text).map(Some).map_err(help)
}

/// Find messages
///
/// Those with exactly this id, in all topics that the token is for. A page asks 64 topics at most, so it may be empty
/// and yet have a `next`. Where no topic has it the list is empty.
#[utoipa::path(
    get, path = "/v1/find", tag = "messages", operation_id = "find_messages",
    security(("token" = ["produce"]), ("token" = ["view"])),
    params(
        ("id" = String, Query, description = "Id of the message, whole", min_length = 1, max_length = 256),
        ("cursor" = inline(Option<String>), Query, description = "`next` of the page before"),
    ),
    responses((status = 200, description = "One page", body = FindView))
)]
pub(crate) async fn get(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Json<FindView>, Problem> {
    let query = Query::read(query.as_deref(), &["id", "cursor"])?;
    let missing = || Problem::bad("invalid_query", "id: say which id is looked for, as ?id=order-42").at("id");
    let id = query.get("id", None, read_id)?.ok_or_else(missing)?;
    let cursor = query.get("cursor", None, read_cursor)?;
    let _turn = memory::turn().await;
    let _ = tokio::time::timeout(NAMES_WAIT, app.catalog.refresh()).await;
    let all = app.catalog.all();
    let mut names: Vec<&TopicName> = all.keys().filter(|name| caller.sees(name.as_str())).collect();
    let topics = names.len();
    names.retain(|name| cursor.as_ref().is_none_or(|cursor| *name > cursor));
    let mut view = FindView { messages: Vec::new(), failed: Vec::new(), scanned: 0, topics, next: None };
    let begun = Instant::now();
    for some in names[..names.len().min(TOPICS_MAX)].chunks(TOPICS_AT_ONCE) {
        if view.scanned > 0 && begun.elapsed() > PAGE_TIME {
            break;
        }
        let answers = join_all(some.iter().map(|name| app.router.get(name, vec![id.clone()]))).await;
        for (name, mut answer) in some.iter().zip(answers) {
            match answer.pop().expect("one answer") {
                Ok((shard, Some(message))) => view.messages.push(FoundView::new(name, shard, &message)),
                // One that was deleted meanwhile has no messages.
                Ok((_, None)) | Err(RouteError::UnknownTopic(_)) => {}
                Err(error) => view.failed.push(TopicFailure::new(name, error.into())),
            }
        }
        view.scanned += some.len();
    }
    if view.scanned < names.len() {
        view.next = names[..view.scanned].last().map(ToString::to_string);
    }
    Ok(Json(view))
}
