//! One message by its id: read, explained, cancelled, rescheduled; and many cancelled at once.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use duetime_core::store::{Edit, Edited};
use duetime_core::units::show_duration;
use duetime_core::{End, MessageId, Outcome, ShardLocation, StoredMessage, TopicName, own_visibility};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::json::became::BecameView;
use crate::json::bounded_vec::BoundedVec;
use crate::json::fields;
use crate::json::message_in::{late_by_ms, read_due, text};
use crate::json::path::{Query, Topic, TopicAndId, refuse_id};
use crate::json::problem::{Problem, Refusal, Verdict};
use crate::json::schema;
use crate::routes::next_step;
use crate::routes::pause_view::PauseView;
use crate::routes::results::{Outcomes, Results, Style};
use crate::routes::sinks::SinkIssueView;
use crate::routes::view::{MessageView, OutcomeView};
use crate::server::body::{self, ITEMS_BYTES_MAX};
use crate::server::memory;
use crate::server::state::HttpParts;

/// Largest body of a request about one message.
const SMALL_BYTES_MAX: usize = 64 << 10;

/// Ids that are read before others get their turn.
const IDS_AT_ONCE: usize = 1024;

async fn find(app: &HttpParts, topic: &TopicName, id: MessageId) -> Result<(u32, StoredMessage), Problem> {
    let (shard, found) = app.router.find(topic, vec![id.clone()]).await.pop().expect("one answer")?;
    let message = found.map_err(|became| {
        let became = became.as_ref();
        not_there(topic, &id, became).with(Verdict { became: became.map(BecameView::new), ..Verdict::default() })
    })?;
    Ok((shard, message))
}

/// There is no message to read or to change.
fn not_there(topic: &TopicName, id: &MessageId, became: Option<&Outcome>) -> Problem {
    let why = became.map_or_else(|| "never enqueued, cancelled, or delivered already".to_owned(), end_in_words);
    let detail = format!("topic {topic:?} has no message {id:?}: {why}");
    Problem::new(StatusCode::NOT_FOUND, "unknown_message", detail)
}

/// How a message ended, for people.
fn end_in_words(became: &Outcome) -> String {
    let (at, attempts) = (became.at, became.attempts());
    match became.end {
        End::Delivered => {
            let late = became.late_by().map(show_duration);
            let late = late.map(|late| format!(", {late} after its due time")).unwrap_or_default();
            format!("delivered at {at} on attempt {attempts}{late}")
        }
        End::Cancelled => format!("cancelled at {at}"),
        End::CancelledInFlight => format!("cancelled at {at} while it was claimed, so it may have been delivered"),
        End::Expired => format!("it expired, and was removed at {at}"),
        End::Dead => format!("a dead letter after {attempts} attempts, removed at {at}"),
        End::Moved => format!("moved elsewhere at {at}, undelivered; ask where it was moved to"),
        End::CancelledBefore => format!(
            "a cancel of it came at {at}, before any enqueue, or after it had moved elsewhere (ask there), and an enqueue \
             is refused"
        ),
    }
}

/// Read a message
#[utoipa::path(
    get, path = "/v1/topics/{topic}/messages/{id}", tag = "messages", operation_id = "get_message",
    security(("token" = ["produce"]), ("token" = ["view"])),
    responses((status = 200, description = "The message", body = MessageView))
)]
pub(crate) async fn get(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    TopicAndId(topic, id): TopicAndId,
) -> Result<Response, Problem> {
    let (shard, message) = find(&app, &topic, id).await?;
    Ok(Json(MessageView::new(&message, shard, app.clock.now()).for_caller(&caller)).into_response())
}

/// Where a message is, and what happens to it next.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct Explained<'a> {
    #[schema(value_type = String)]
    id: &'a str,
    shard: u32,
    /// The Redis Cluster slot of its shard; absent on another store.
    slot: Option<u16>,
    /// The key of its shard's sorted set in Redis; absent on another store.
    key: Option<String>,
    /// The file of the embedded store, for a token with the scope `admin`; absent on another store.
    file: Option<String>,
    #[schema(value_type = schema::MessageState)]
    state: &'static str,
    due_at: i64,
    /// The first part of its score; of a dead letter, when it died.
    visible_at: i64,
    /// The last part of its score.
    attempts: u8,
    /// How many times it was redriven; a redrive sets `attempts` back to 0.
    redrives: u16,
    max_attempts: u8,
    /// How long its next claim hides it, where that asks for no other.
    visibility_timeout: String,
    /// Who says so.
    #[schema(value_type = schema::VisibilityFrom)]
    visibility_from: &'static str,
    /// What happens next, in words.
    next: String,
}

/// Explain a message
///
/// Its shard and where the store keeps it, the parts of its score, and what happens next in words.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/messages/{id}/explain", tag = "messages", operation_id = "explain_message",
    security(("token" = ["produce"]), ("token" = ["view"])),
    responses((status = 200, description = "Where it is and what happens next", body = Explained))
)]
pub(crate) async fn explain(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    TopicAndId(topic, id): TopicAndId,
) -> Result<Response, Problem> {
    let record = app.router.topic(&topic).await?;
    let (shard, message) = find(&app, &topic, id).await?;
    let issue = SinkIssueView::of(&app, &topic, &caller);
    let pause = PauseView::of(&record, &caller);
    let waits = next_step::waits_for(&app, &record, &message, shard, issue.as_ref()).await;
    let ShardLocation { key, slot, file, .. } = app.store.locate(&record.routing.shard(&topic, shard));
    // A sink has what it is handed for as long as its topic says.
    let own = own_visibility::of(&message.headers).filter(|_| record.config.sink.is_none());
    let explained = Explained {
        id: message.id.as_str(),
        shard,
        slot: slot.map(|(slot, _)| slot),
        key,
        file: file.filter(|_| caller.sees_files()),
        state: message.state.as_str(),
        due_at: message.due_at.as_millis(),
        visible_at: message.visible_at.as_millis(),
        attempts: message.attempts,
        redrives: message.redrives,
        max_attempts: record.config.retry.attempts_of(&message.headers),
        visibility_timeout: show_duration(own.unwrap_or(record.config.visibility_timeout)),
        visibility_from: if own.is_some() { "message" } else { "topic" },
        next: next_step::in_words(&message, &record, waits.as_deref(), pause.as_ref(), app.clock.now()),
    };
    Ok(Json(explained).into_response())
}

/// The word for a message that ended before.
fn gone(became: &Outcome) -> &'static str {
    match became.end {
        End::Delivered => "delivered",
        End::Cancelled | End::CancelledInFlight => "cancelled",
        End::Dead => "dead",
        End::Expired => "expired",
        End::CancelledBefore => "unknown",
        End::Moved => "moved",
    }
}

fn became(answer: &Edited) -> Option<BecameView> {
    if let Edited::Gone(became) = answer { Some(BecameView::new(became)) } else { None }
}

/// The word users see.
fn edited(answer: &Edited) -> &'static str {
    match answer {
        Edited::Cancelled => "cancelled",
        Edited::Rescheduled(_) => "rescheduled",
        Edited::InFlight => "in_flight",
        Edited::Dead => "dead",
        Edited::Changed => "changed",
        // Of a cancel without room the router answers an error.
        Edited::Unknown | Edited::Full => "unknown",
        Edited::Gone(became) => gone(became),
    }
}

/// `held`: what it means for the message that it is in flight.
fn refusal(topic: &TopicName, id: &MessageId, answer: &Edited, held: &str) -> Option<Problem> {
    match answer {
        Edited::Cancelled | Edited::Rescheduled(_) => None,
        Edited::InFlight => {
            let detail = format!("message {id:?} is being delivered, or was without an answer: {held}");
            Some(Problem::new(StatusCode::CONFLICT, "in_flight", detail))
        }
        Edited::Dead => {
            let detail =
                format!("message {id:?} is a dead letter: redrive it with POST /v1/topics/{topic}/dead/redrive");
            Some(Problem::new(StatusCode::CONFLICT, "dead", detail))
        }
        Edited::Changed => {
            let detail =
                format!("message {id:?} is not the version of if_version any more: read it again, and decide anew");
            Some(Problem::new(StatusCode::PRECONDITION_FAILED, "changed", detail))
        }
        Edited::Unknown | Edited::Full => Some(not_there(topic, id, None)),
        Edited::Gone(became) => Some(not_there(topic, id, Some(became))),
    }
}

async fn edit(app: &HttpParts, topic: &TopicName, id: &MessageId, edit: Edit) -> Result<Response, Problem> {
    let (late_by_ms, held) = match &edit {
        Edit::Reschedule(_, due) => (late_by_ms(*due, app.clock.now()), "nothing was changed"),
        Edit::Cancel(_) | Edit::CancelGone(_) | Edit::CancelIf { .. } | Edit::TakeOut { .. } => {
            (None, "it may still arrive, and will not be tried again")
        }
    };
    let answer = app.router.edit(topic, vec![edit]).await.pop().expect("one answer")?;
    let (outcome, replicas) = (edited(&answer.edited), answer.replicas);
    if let Some(problem) = refusal(topic, id, &answer.edited, held) {
        let (id, outcome, became) = (Some(id.as_str().to_owned()), Some(outcome), became(&answer.edited));
        return Err(problem.with(Verdict { id, outcome, replicas, became, ..Verdict::default() }));
    }
    let due_at = if let Edited::Rescheduled(due_at) = answer.edited { Some(due_at.as_millis()) } else { None };
    let smeared_ms = answer.smeared.map(|by| u64::try_from(by.as_millis()).expect("within the bound of a smear"));
    let word = OutcomeView::word(Some(id.as_str()), outcome);
    Ok(Json(OutcomeView { due_at, smeared_ms, late_by_ms, replicas, ..word }).into_response())
}

/// Cancel a message
///
/// 409 `in_flight`: it is being delivered, or was without an answer and may still arrive; it will not be tried again.
#[utoipa::path(
    delete, path = "/v1/topics/{topic}/messages/{id}", tag = "messages", operation_id = "cancel_message",
    security(("token" = ["produce"])),
    params(("if_version" = inline(Option<String>), Query, description = "Only if it is this `version` of it")),
    responses(
        (status = 200, description = "`cancelled`: it will not be delivered", body = OutcomeView),
        (status = 412, description = "`changed`: it is not the version of `if_version`; nothing was changed"),
        (status = 409, description = "`in_flight`: being delivered, or perhaps delivered without an answer; it will not be tried again"),
        (status = 404, description = "No such topic, or `unknown_message`: its `outcome` is `unknown` or, where the \
            topic remembers, what became of it before: `delivered`, `cancelled`, `dead` or `moved`, with `became`"),
        (status = 507, description = "`store_full`: the topic remembers, no message has this id, and there is no room \
            to note the cancel for an enqueue that it has overtaken; cancel again later"),
    )
)]
pub(crate) async fn cancel(
    State(app): State<Arc<HttpParts>>,
    TopicAndId(topic, id): TopicAndId,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["if_version"])?;
    let version = query.get("if_version", None, |text| text.parse().map(Some))?;
    let cancel = match version {
        None => Edit::Cancel(id.clone()),
        Some(version) => Edit::CancelIf { id: id.clone(), version, moved: false },
    };
    edit(&app, &topic, &id, cancel).await
}

/// Another due time: give one of the two.
#[derive(Deserialize, ToSchema)]
#[schema(as = Reschedule)]
#[serde(deny_unknown_fields)]
struct RescheduleIn<'a> {
    #[serde(borrow, default)]
    #[schema(value_type = Option<schema::DurationIn>)]
    delay: Option<&'a RawValue>,
    #[serde(borrow, default)]
    #[schema(value_type = Option<schema::TimeIn>)]
    due_at: Option<&'a RawValue>,
}

/// Reschedule a message
///
/// Gives it another due time while nobody holds it. Its attempts count from 0 again, as after a redrive: it has
/// as many as a new message before it is a dead letter.
#[utoipa::path(
    patch, path = "/v1/topics/{topic}/messages/{id}", tag = "messages", operation_id = "reschedule_message",
    security(("token" = ["produce"])),
    request_body(content = RescheduleIn, content_type = "application/json"),
    responses(
        (status = 200, description = "`rescheduled`", body = OutcomeView),
        (status = 409, description = "`in_flight` or `dead`: nothing was changed"),
    )
)]
pub(crate) async fn reschedule(
    State(app): State<Arc<HttpParts>>,
    TopicAndId(topic, id): TopicAndId,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    body::json_only(&headers)?;
    let bytes = body::whole(body, &headers, SMALL_BYTES_MAX).await?;
    let ask: RescheduleIn<'_> = fields::read(&bytes)?;
    let due = read_due(ask.delay, ask.due_at, app.clock.now())?
        .ok_or_else(|| Problem::bad("missing_due_time", "give delay or due_at: the new due time").at("due_at"))?;
    edit(&app, &topic, &id, Edit::Reschedule(id.clone(), due)).await
}

/// Ids of messages, and what they must be.
#[derive(Deserialize, ToSchema)]
#[schema(as = MessageIds)]
#[serde(deny_unknown_fields)]
struct IdsIn<'a> {
    #[serde(borrow)]
    #[schema(value_type = Vec<String>, max_items = 65536)]
    ids: BoundedVec<&'a RawValue>,
    /// The `version` of each, in order: only what is still that is cancelled.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Vec<String>>, max_items = 65536)]
    if_versions: Option<BoundedVec<&'a RawValue>>,
    /// They live elsewhere from now on, and are remembered so; with `if_versions` only.
    #[serde(default)]
    moved: bool,
}

impl IdsIn<'_> {
    /// How the message with this id is cancelled, the `at`-th of the list.
    fn cancel(&self, at: usize, id: &MessageId) -> Result<Edit, Refusal> {
        let Some(versions) = &self.if_versions else { return Ok(Edit::Cancel(id.clone())) };
        let version = text(versions[at], "if_versions", "invalid_version")?.parse();
        let version = version.map_err(|why: String| Refusal::new("invalid_version", why).at("if_versions"))?;
        Ok(Edit::CancelIf { id: id.clone(), version, moved: self.moved })
    }
}

/// Reads one id of a list.
fn read_id(raw: &RawValue) -> Result<MessageId, Refusal> {
    MessageId::new(&text(raw, "id", "invalid_id")?).map_err(|error| refuse_id(&error))
}

/// Reads a list of ids from a body of `bytes`.
pub(crate) async fn read_ids(raw: &[&RawValue], bytes: usize) -> Result<Vec<Result<MessageId, Refusal>>, Problem> {
    memory::take_items(raw.len(), bytes)?;
    let mut read = Vec::with_capacity(raw.len());
    for some in raw.chunks(IDS_AT_ONCE) {
        // Between two portions only: a turn of the runtime costs more than a few ids.
        if !read.is_empty() {
            tokio::task::yield_now().await;
        }
        read.extend(some.iter().map(|id| read_id(id)));
    }
    Ok(read)
}

/// Cancel many messages
#[utoipa::path(
    post, path = "/v1/topics/{topic}/cancel", tag = "messages", operation_id = "cancel_messages",
    security(("token" = ["produce"])),
    request_body(content = IdsIn, content_type = "application/json"),
    responses((status = 200, description = "An outcome for each: `cancelled`, `in_flight`, `unknown`; \
        with `if_versions`, `changed`; where the topic remembers, `delivered`, `cancelled`, `dead` or `moved` with `became`, \
        and the error `store_full` where there is no room to note the cancel of an id that is unknown",
        body = Outcomes))
)]
pub(crate) async fn cancel_many(
    State(app): State<Arc<HttpParts>>,
    Topic(topic): Topic,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    body::json_only(&headers)?;
    app.router.topic(&topic).await?;
    let bytes = body::whole(body, &headers, ITEMS_BYTES_MAX).await?;
    let ask: IdsIn<'_> = fields::read(&bytes)?;
    let _turn = memory::turn_for(ask.ids.len()).await;
    if ask.if_versions.as_ref().is_some_and(|versions| versions.len() != ask.ids.len()) {
        let detail = "if_versions must have a version for each of ids, in order";
        return Err(Problem::bad("invalid_version", detail).at("if_versions"));
    }
    if ask.moved && ask.if_versions.is_none() {
        let detail = "moved needs if_versions: what changed since it was copied must stay";
        return Err(Problem::bad("invalid_version", detail).at("moved"));
    }
    let ids = read_ids(&ask.ids, bytes.len()).await?;
    let mut edits = Vec::with_capacity(ids.len());
    let mut read = Vec::with_capacity(ids.len());
    for (at, id) in ids.into_iter().enumerate() {
        read.push(id.and_then(|id| {
            edits.push(ask.cancel(at, &id)?);
            Ok(id)
        }));
    }
    let ids = read;
    let mut answers = app.router.edit(&topic, edits).await.into_iter();
    let mut results = Results::new(Style::Object, ids.len());
    for id in &ids {
        let id = match id {
            Ok(id) => id.as_str(),
            Err(refusal) => {
                results.refused(None, refusal, None);
                continue;
            }
        };
        match answers.next().expect("one answer for each") {
            Ok(answer) => {
                let word = OutcomeView::word(Some(id), edited(&answer.edited));
                let (became, replicas) = (became(&answer.edited), answer.replicas);
                results.item(&OutcomeView { replicas, became, ..word });
            }
            Err(error) => results.refused(Some(id), &Refusal::from(&error), None),
        }
    }
    Ok(([(header::CONTENT_TYPE, "application/json")], results.finish()).into_response())
}
