//! Lists live messages by state, time and beginning of their id: without bodies, or as lines with them.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use duetime_core::limits::ID_BYTES_MAX;
use duetime_core::units::parse_time;
use duetime_core::{ListPlace, MessageState, StoredMessage, Timestamp, TopicName};
use duetime_router::{BodySteps, Listed, ListedState, MessageCursor, MessageFilter, MessageList};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::json::ndjson;
use crate::json::path::{Query, Topic};
use crate::json::problem::Problem;
use crate::json::schema;
use crate::routes::message_lines;
use crate::routes::view::MessageView;
use crate::server::memory;
use crate::server::state::HttpParts;

/// Messages on one page, unless asked for otherwise.
const PAGE: usize = 50;
/// Most on one page.
const PAGE_MAX: usize = 500;
/// Messages of a page that are read, where their scores leave open whether they were deferred.
const LOOKED_UP_MAX: usize = 64;
/// No message can be due later: scores are exact until then.
const LAST_MOMENT: Timestamp = Timestamp::from_millis(9_000_000_000_000);

/// What a cursor holds: shard, epoch, and the place in the shard.
#[derive(Serialize, Deserialize)]
struct CursorPlace(u32, u64, Option<(i64, String)>);

pub(crate) fn show_cursor(cursor: MessageCursor) -> String {
    let place = CursorPlace(cursor.shard, cursor.epoch, cursor.after.map(|after| (after.score, after.tie)));
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&place).expect("numbers and a string"))
}

pub(crate) fn read_cursor(text: &str) -> Result<Option<MessageCursor>, String> {
    let help = || "not a cursor; give back `next` of the page before, exactly".to_owned();
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| help())?;
    let CursorPlace(shard, epoch, after) = serde_json::from_slice(&bytes).map_err(|_| help())?;
    let after = after.map(|(score, tie)| ListPlace { score, tie });
    if after.as_ref().is_some_and(|after| after.tie.len() > ID_BYTES_MAX || after.score < 0) {
        return Err(help());
    }
    Ok(Some(MessageCursor { shard, epoch, after }))
}

fn read_limit(text: &str) -> Result<usize, String> {
    let limit = text.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit));
    limit.ok_or_else(|| format!("give 1 to {PAGE_MAX}"))
}

fn read_state(text: &str) -> Result<Option<ListedState>, String> {
    match ListedState::named(text) {
        Some(state) => Ok(Some(state)),
        None if text == "dead" => Err("dead letters have a list of their own: GET …/dead".to_owned()),
        None => Err(format!("give one of {}", ListedState::WORDS.join(", "))),
    }
}

fn read_prefix(text: &str) -> Result<String, String> {
    if text.len() > ID_BYTES_MAX {
        return Err(format!("an id has {ID_BYTES_MAX} bytes at most"));
    }
    Ok(text.to_owned())
}

/// The parameters that say which messages are meant.
pub(crate) fn read_filter(query: &Query) -> Result<MessageFilter, Problem> {
    let from = query.get("due_from", Timestamp::ZERO, parse_time)?;
    let till = query.get("due_to", LAST_MOMENT, parse_time)?.min(LAST_MOMENT);
    if till <= from {
        let detail = "due_to: the list ends before it begins; give a moment after due_from";
        return Err(Problem::bad("invalid_query", detail).at("due_to"));
    }
    let state = query.get("state", None, read_state)?;
    Ok(MessageFilter { state, from, till, prefix: query.get("prefix", String::new(), read_prefix)? })
}

/// One message of a list. Its payload and headers are read by its id.
#[derive(Serialize, ToSchema)]
pub(crate) struct ListedView {
    id: String,
    shard: u32,
    #[schema(value_type = schema::ListedState)]
    state: &'static str,
    /// When it may be claimed next, milliseconds since the Unix epoch; in flight, when its claim ends.
    visible_at: i64,
    /// How often it was claimed.
    attempts: u8,
}

impl From<Listed> for ListedView {
    fn from(listed: Listed) -> Self {
        let visible_at = listed.visible_at.as_millis();
        Self {
            id: listed.id.to_string(),
            shard: listed.shard,
            state: listed.state.as_str(),
            visible_at,
            attempts: listed.attempts,
        }
    }
}

/// One page of live messages.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct ListView {
    /// Shard by shard, by time in each.
    messages: Vec<ListedView>,
    /// Messages that this page read, whether or not they match.
    scanned: u64,
    /// Shards that were read to their end, by this page and those before it.
    shards_done: u32,
    /// Shards there are.
    shards: u32,
    /// The shard count changes, or did since the first page: some messages may be missing, or come twice.
    changing: bool,
    /// Give it as `cursor` to get the next page, also where this one is empty; absent on the last.
    next: Option<String>,
}

/// Corrects the states of messages that a sink which is down gave back without an attempt: their scores look like those
/// of messages that are scheduled for then. One more read a page, of a bounded number, and only while the sink is down.
async fn find_deferred(app: &HttpParts, topic: &TopicName, messages: &mut [Listed]) {
    let Some(down) = app.sinks.state(topic).and_then(|state| state.down) else { return };
    let may_be = |one: &&mut Listed| {
        one.state == ListedState::Scheduled && one.attempts == 0 && one.visible_at <= down.deferred_until
    };
    let open: Vec<&mut Listed> = messages.iter_mut().filter(may_be).take(LOOKED_UP_MAX).collect();
    if open.is_empty() {
        return;
    }
    let ids = open.iter().map(|one| one.id.clone()).collect();
    let (answers, now) = (app.router.get(topic, ids).await, app.clock.now());
    for (one, answer) in open.into_iter().zip(answers) {
        // What cannot be read stays as its score says.
        if answer.is_ok_and(|(_, message)| message.is_some_and(|message| message.is_deferred(now))) {
            one.state = ListedState::Retrying;
        }
    }
}

/// The bodies of a page, read in steps until it has as many bytes as it may; it then ends there. What was settled, or
/// died, since it was listed is left out.
async fn with_bodies(
    app: &HttpParts,
    topic: &TopicName,
    page: &mut MessageList,
) -> Result<Vec<(u32, StoredMessage)>, Problem> {
    let (mut read, mut at) = (Vec::with_capacity(page.messages.len()), 0);
    let mut steps = BodySteps::new(&app.router.topic(topic).await?.config);
    while at < page.messages.len() && steps.next_step() > 0 {
        let ids: Vec<_> = page.messages[at..].iter().take(steps.next_step()).map(|one| one.id.clone()).collect();
        at += ids.len();
        let before = read.len();
        for answer in app.router.get(topic, ids).await {
            if let (shard, Some(message)) = answer?
                && message.state != MessageState::Dead
            {
                read.push((shard, message));
            }
        }
        steps.took(read[before..].iter().map(|(_, message)| message.payload.len()));
    }
    if at < page.messages.len() {
        let last = &page.messages[at - 1];
        page.next = Some(MessageCursor { shard: last.shard, epoch: page.epoch, after: Some(last.place.clone()) });
    }
    memory::take_items(read.len(), memory::STORE_COPIES * steps.bytes())?;
    Ok(read)
}

/// List messages
///
/// Those that are not dead letters, without payloads. A page reads 4,096 messages and takes a quarter of a second at
/// most, so it may be empty and yet have a `next`.
///
/// To export them, ask for `application/x-ndjson`: one message a line, with its payload and headers, and `next` as the
/// header `Duetime-Next`. Such a page has about 4 MiB of payloads at most.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/messages", tag = "messages", operation_id = "list_messages",
    security(("token" = ["view"])),
    params(
        ("state" = inline(Option<schema::ListedState>), Query, description = "Only messages in this state: \
            `scheduled`, for later; `due`, may be claimed; `in_flight`, claimed; `retrying`, tried, and waiting for the next attempt \
            (those that were deferred without paying one, for their sink is down, are found without this parameter only)"),
        ("due_from" = inline(Option<schema::TimeIn>), Query, description = "Only those with this `visible_at` or a later one"),
        ("due_to" = inline(Option<schema::TimeIn>), Query, description = "Only those with a `visible_at` before it"),
        ("prefix" = inline(Option<String>), Query, description = "Only ids that begin so", max_length = 256),
        ("limit" = inline(Option<usize>), Query, description = "Most on this page, 50 if absent", minimum = 1, maximum = 500),
        ("cursor" = inline(Option<String>), Query, description = "`next` of the page before; the other parameters as they were then"),
    ),
    responses(
        (status = 200, description = "One page", content((ListView = "application/json"), (String = "application/x-ndjson")),
            headers(("Duetime-Next" = String, description = "Of `application/x-ndjson`: the next page; absent on the last"))),
    )
)]
pub(crate) async fn get(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    Topic(topic): Topic,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let known = ["state", "due_from", "due_to", "prefix", "limit", "cursor"];
    let query = Query::read(query.as_deref(), &known)?;
    let filter = read_filter(&query)?;
    let (limit, cursor) = (query.get("limit", PAGE, read_limit)?, query.get("cursor", None, read_cursor)?);
    let _turn = memory::turn().await;
    let mut page = app.router.live.page(&topic, &filter, cursor, limit).await?;
    find_deferred(&app, &topic, &mut page.messages).await;
    page.messages.retain(|one| filter.state.is_none_or(|wanted| wanted == one.state));
    if ndjson::is_accepted(&headers) {
        let read = with_bodies(&app, &topic, &mut page).await?;
        let now = app.clock.now();
        let views = read.iter().map(|(shard, message)| MessageView::new(message, *shard, now).for_caller(&caller));
        return Ok(message_lines::answer(views, page.next.map(show_cursor).as_deref()));
    }
    let view = ListView {
        messages: page.messages.into_iter().map(ListedView::from).collect(),
        scanned: page.scanned,
        shards_done: page.shards_done,
        shards: page.shards,
        changing: page.changing,
        next: page.next.map(show_cursor),
    };
    Ok(Json(view).into_response())
}
