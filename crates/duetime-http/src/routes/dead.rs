//! Dead letters: paged, redriven, purged.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use duetime_core::store::DeadAction;
use duetime_core::{MessageId, StoredMessage, TopicName};
use duetime_router::{DeadCursor, DeadList, DeadSettled, RouteError, normalised};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::audit;
use crate::auth::Caller;
use crate::json::bounded_vec::BoundedVec;
use crate::json::fields;
use crate::json::ndjson;
use crate::json::path::{Query, Topic};
use crate::json::problem::{Problem, Refusal};
use crate::json::schema;
use crate::routes::message_lines;
use crate::routes::messages::read_ids;
use crate::routes::view::MessageView;
use crate::server::body::{self, ITEMS_BYTES_MAX};
use crate::server::memory;
use crate::server::state::HttpParts;

/// Dead letters on one page, unless asked for otherwise.
const PAGE: usize = 50;
/// Most on one page.
const PAGE_MAX: usize = 500;
/// Most pages that are read for one of a single reason.
const READS_MAX: usize = 16;
/// A request that redrives or purges all answers after this time, and says whether any are left.
const SWEEP_MAX: Duration = Duration::from_secs(20);

pub(crate) fn show_cursor(cursor: DeadCursor) -> String {
    let mut bytes = cursor.shard.to_be_bytes().to_vec();
    bytes.extend(cursor.from.map(i64::to_be_bytes).into_iter().flatten());
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn read_cursor(text: &str) -> Result<Option<DeadCursor>, String> {
    let help = || "not a cursor; give back `next` of the page before, exactly".to_owned();
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| help())?;
    let (shard, from) = bytes.split_first_chunk::<4>().ok_or_else(help)?;
    let from = match from.len() {
        0 => None,
        8 => Some(i64::from_be_bytes(from.try_into().expect("eight bytes"))),
        _ => return Err(help()),
    };
    Ok(Some(DeadCursor { shard: u32::from_be_bytes(*shard), from }))
}

fn read_limit(text: &str) -> Result<usize, String> {
    let limit = text.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit));
    limit.ok_or_else(|| format!("give 1 to {PAGE_MAX}"))
}

/// One page of dead letters.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct DeadView<'a> {
    /// Shard by shard, oldest first in each.
    messages: Vec<MessageView<'a>>,
    /// Give it as `cursor` to get the next page; absent on the last.
    next: Option<String>,
}

/// List dead letters
///
/// With `reason`, only those of one group (see `GET …/dead/groups`): the letters of others are read and left out, and of
/// one page so many are read at most that it may have few messages, or none, and `next` all the same.
///
/// To export them, ask for `application/x-ndjson`: one message a line, and `next` as the header `Duetime-Next`.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/dead", tag = "dead letters", operation_id = "list_dead",
    security(("token" = ["view"])),
    params(
        ("limit" = inline(Option<usize>), Query, description = "Most on this page", minimum = 1, maximum = 500),
        ("cursor" = inline(Option<String>), Query, description = "`next` of the page before"),
        ("reason" = inline(Option<String>), Query, description = "Only those of this reason, as a group has it or as a dead letter has it"),
    ),
    responses(
        (status = 200, description = "One page", content((DeadView = "application/json"), (String = "application/x-ndjson")),
            headers(("Duetime-Next" = String, description = "Of `application/x-ndjson`: the next page; absent on the last"))),
    )
)]
pub(crate) async fn list(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    Topic(topic): Topic,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["limit", "cursor", "reason"])?;
    let limit = query.get("limit", PAGE, read_limit)?;
    let cursor = query.get("cursor", None, read_cursor)?;
    let reason = query.get("reason", None, |text| Ok(Some(normalised(text))))?;
    let _turn = memory::turn().await;
    let page = match reason {
        Some(reason) => page_of(&app, &topic, cursor, limit, &reason).await?,
        None => app.router.dead.page(&topic, cursor, limit).await?,
    };
    let now = app.clock.now();
    let messages =
        page.messages.iter().map(|(shard, message)| MessageView::new(message, *shard, now).for_caller(&caller));
    let next = page.next.map(show_cursor);
    if ndjson::is_accepted(&headers) {
        return Ok(message_lines::answer(messages, next.as_deref()));
    }
    Ok(Json(DeadView { messages: messages.collect(), next }).into_response())
}

/// A page of the letters of one reason: others are read and left out.
async fn page_of(
    app: &HttpParts,
    topic: &TopicName,
    mut cursor: Option<DeadCursor>,
    limit: usize,
    reason: &str,
) -> Result<DeadList, Problem> {
    let mut found = DeadList::default();
    for _ in 0..READS_MAX {
        let page = app.router.dead.page(topic, cursor, limit - found.messages.len()).await?;
        let is_wanted =
            |message: &StoredMessage| message.death.as_ref().is_some_and(|death| normalised(&death.reason) == reason);
        found.messages.extend(page.messages.into_iter().filter(|(_, message)| is_wanted(message)));
        found.next = page.next;
        cursor = page.next;
        if cursor.is_none() || found.messages.len() == limit {
            break;
        }
    }
    Ok(found)
}

/// Dead letters: some by id, or all.
#[derive(Deserialize, ToSchema)]
#[schema(as = DeadLetters)]
#[serde(deny_unknown_fields)]
struct DeadIn<'a> {
    #[serde(borrow, default)]
    #[schema(value_type = Option<Vec<String>>, max_items = 65536)]
    ids: Option<BoundedVec<&'a RawValue>>,
    #[serde(default)]
    all: bool,
}

/// What became of one dead letter.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct DeadOutcome {
    id: Option<String>,
    #[schema(value_type = schema::DeadLetterOutcome)]
    outcome: &'static str,
    /// Why an id was refused, why nothing was done or more than was asked for, or why it failed: then it may be sent
    /// again.
    detail: Option<String>,
}

/// What was done.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct DeadDone {
    /// How many dead letters.
    pub(super) done: u64,
    /// `all` took long and some are left: send the same request again.
    pub(super) more: bool,
    /// The fewest replicas of Redis that have what was done, where `store.durability` waits for them.
    pub(super) replicas: Option<u32>,
    /// An outcome for each of `ids`.
    pub(super) results: Option<Vec<DeadOutcome>>,
}

/// Redrives or purges these dead letters, named in a body of so many bytes.
pub(super) async fn act(
    app: &HttpParts,
    topic: &TopicName,
    which: (Option<BoundedVec<&RawValue>>, bool),
    bytes: usize,
    action: DeadAction,
) -> Result<DeadDone, Problem> {
    let word = if action == DeadAction::Redrive { "redriven" } else { "purged" };
    let done = match which {
        (None, true) => {
            let sweep = app.router.dead.sweep(topic, action, SWEEP_MAX).await?;
            DeadDone { done: sweep.done, more: sweep.more, replicas: sweep.replicas, results: None }
        }
        (Some(raw), false) => {
            let _turn = memory::turn_for(raw.len()).await;
            let ids = read_ids(&raw, bytes).await?;
            let good: Vec<_> = ids.iter().flatten().cloned().collect();
            let DeadSettled { done: mut answers, replicas } = app.router.dead.settle(topic, &good, action).await;
            // Nothing of it was done: the request failed as a whole.
            if !answers.iter().any(Result::is_ok)
                && let Some(Err(error)) = answers.pop()
            {
                return Err(error.into());
            }
            let count = answers.iter().filter(|answer| matches!(answer, Ok(true))).count() as u64;
            let outcome = |done| if done { (word, None) } else { ("unknown", None) };
            let outcomes = answers.into_iter().map(|answer| answer.map(outcome)).collect();
            DeadDone { done: count, more: false, replicas, results: Some(results(ids, outcomes)) }
        }
        _ => return Err(Problem::bad("invalid_value", "give either {\"ids\": […]} or {\"all\": true}").at("ids")),
    };
    audit::count(done.done);
    Ok(done)
}

/// What became of a letter, in a word, and what is to be said of it.
pub(super) type DeadWord = (&'static str, Option<String>);

/// An outcome for each id: that of each that is one is in `outcomes`, in order.
pub(super) fn results(
    ids: Vec<Result<MessageId, Refusal>>,
    outcomes: Vec<Result<DeadWord, RouteError>>,
) -> Vec<DeadOutcome> {
    let mut outcomes = outcomes.into_iter();
    let result = |id: Result<MessageId, Refusal>| match id {
        Err(refusal) => DeadOutcome { id: None, outcome: "refused", detail: Some(refusal.detail) },
        Ok(id) => {
            let answer = outcomes.next().expect("one outcome for each");
            let (outcome, detail) = answer.unwrap_or_else(|error| ("failed", Some(Problem::from(error).detail)));
            DeadOutcome { id: Some(id.as_str().to_owned()), outcome, detail }
        }
    };
    ids.into_iter().map(result).collect()
}

/// Purge dead letters
#[utoipa::path(
    delete, path = "/v1/topics/{topic}/dead", tag = "dead letters", operation_id = "purge_dead",
    security(("token" = ["admin"])),
    request_body(content = DeadIn, content_type = "application/json"),
    responses((status = 200, description = "What was purged", body = DeadDone))
)]
pub(crate) async fn purge(
    State(app): State<Arc<HttpParts>>,
    Topic(topic): Topic,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<DeadDone>, Problem> {
    body::json_only(&headers)?;
    let bytes = body::whole(body, &headers, ITEMS_BYTES_MAX).await?;
    let ask: DeadIn<'_> = fields::read(&bytes)?;
    Ok(Json(act(&app, &topic, (ask.ids, ask.all), bytes.len(), DeadAction::Purge).await?))
}
