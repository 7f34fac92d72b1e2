//! What is known of a message's past: its last hand-overs and settlements at this node, and who changed it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use duetime_core::tracer::{AttemptOf, HandOverOutcome, attempt_span};
use duetime_core::{DeliveryMode, Headers, MessageState, PastAsk, PastHandOver, PastSettlement, PastVerdict};
use serde::Serialize;
use utoipa::ToSchema;

use crate::audit::AuditLine;
use crate::auth::{Caller, Scope};
use crate::path::TopicAndId;
use crate::problem::Problem;
use crate::schema;
use crate::state::HttpParts;

/// Changes of one message that are shown.
const CHANGES_MAX: usize = 100;

/// A hand-over that has ended.
#[derive(Serialize, ToSchema)]
pub(crate) struct HandOverView {
    /// When it ended, milliseconds since the Unix epoch.
    at: i64,
    /// From 1.
    attempt: u8,
    #[schema(value_type = schema::HandOverOutcome)]
    outcome: &'static str,
    /// Of a failure: `retry`, `rejected`, `unavailable`, `destination`, `limit`, `timeout`, `broken`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    kind: Option<&'static str>,
    /// What the sink said, of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<String>,
    /// It costs no attempt, as far as was known when it ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    free: bool,
    /// The due time it had.
    due_at: i64,
    /// How late it was when it ended, in milliseconds.
    late_ms: u64,
    /// How long the sink took, in milliseconds.
    took_ms: u64,
    /// As its target was given it.
    delivery_id: String,
    /// The trace of this attempt, if it was recorded.
    trace_id: String,
    /// The name of the token that claimed it; only for administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    by: Option<String>,
}

/// The name of a token, for whom it is.
fn shown(by: &Option<Arc<str>>, to_admin: bool) -> Option<String> {
    by.as_deref().filter(|_| to_admin).map(str::to_owned)
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl HandOverView {
    fn new(one: &PastHandOver, to_admin: bool) -> Self {
        let PastHandOver { topic, id, nonce, due_at, attempt, at, took, lateness, outcome, by } = one;
        let of =
            AttemptOf { topic, id, nonce: *nonce, due_at: *due_at, attempt: *attempt, headers: &Headers::default() };
        let (word, kind, reason, free) = match outcome {
            HandOverOutcome::Accepted => ("accepted", None, None, false),
            HandOverOutcome::Claimed => ("claimed", None, None, false),
            HandOverOutcome::Failed { kind, reason, free } => ("failed", Some(*kind), Some(reason.clone()), *free),
        };
        Self {
            at: at.as_millis(),
            attempt: *attempt,
            outcome: word,
            kind,
            reason,
            free,
            due_at: due_at.as_millis(),
            late_ms: millis(*lateness),
            took_ms: millis(*took),
            delivery_id: duetime_core::sink::delivery_id(topic, id, *nonce),
            trace_id: format!("{:032x}", attempt_span(of).trace_id),
            by: shown(by, to_admin),
        }
    }
}

/// An ack, nack or extension by a consumer.
#[derive(Serialize, ToSchema)]
pub(crate) struct SettlementView {
    /// When it was answered, milliseconds since the Unix epoch.
    at: i64,
    /// Which attempt the receipt is of, from 1; absent: the message was removed as it was claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    attempt: Option<u8>,
    #[schema(value_type = schema::SettlementAction)]
    action: &'static str,
    #[schema(value_type = schema::SettlementOutcome)]
    outcome: &'static str,
    /// What the consumer said, of a nack.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<String>,
    /// Until the next attempt, in milliseconds, of a nack that named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    delay_ms: Option<u64>,
    /// When others may have it, milliseconds since the Unix epoch, of an extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    deadline: Option<i64>,
    /// The name of the token; only for administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    by: Option<String>,
}

impl SettlementView {
    fn new(one: &PastSettlement, to_admin: bool) -> Self {
        let outcome = match one.verdict {
            PastVerdict::Ok => "ok",
            PastVerdict::Expired => "expired",
            PastVerdict::Gone => "gone",
        };
        let text = |reason: &Option<Arc<str>>| reason.as_deref().map(str::to_owned);
        let (action, reason, delay_ms, deadline) = match &one.asked {
            PastAsk::Ack => ("ack", None, None, None),
            PastAsk::Nack(delay, reason) => ("nack", text(reason), delay.map(millis), None),
            PastAsk::Bury(reason) => ("dead", text(reason), None, None),
            PastAsk::Extend(until) => ("extend", None, None, until.map(|until| until.as_millis())),
        };
        let attempt = Some(one.attempt).filter(|attempt| *attempt > 0);
        Self {
            at: one.at.as_millis(),
            attempt,
            action,
            outcome,
            reason,
            delay_ms,
            deadline,
            by: shown(&one.by, to_admin),
        }
    }
}

/// Whether the message ended by one of these.
fn ended(hand_overs: &[PastHandOver], settlements: &[PastSettlement], mode: DeliveryMode) -> bool {
    let by_claim = mode == DeliveryMode::AtMostOnce;
    let handed = |one: &PastHandOver| match one.outcome {
        HandOverOutcome::Accepted => true,
        HandOverOutcome::Claimed => by_claim,
        HandOverOutcome::Failed { .. } => false,
    };
    let acked = |one: &PastSettlement| one.asked == PastAsk::Ack && one.verdict == PastVerdict::Ok;
    hand_overs.iter().any(handed) || settlements.iter().any(acked)
}

/// What is known of a message's past.
#[derive(Serialize, ToSchema)]
pub(crate) struct LifeView {
    id: String,
    /// The node that answers: each remembers its own hand-overs.
    node: String,
    /// Where it is now; absent: it is not there any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::MessageState>, nullable = false)]
    state: Option<&'static str>,
    /// The node that scans its shard, whose memory knows most; absent while this node knows of none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    owner: Option<String>,
    /// Hand-overs at this node, the oldest first: to its sink, or to a consumer that claimed it.
    hand_overs: Vec<HandOverView>,
    /// What consumers did with receipts of it at this node, the oldest first.
    settlements: Vec<SettlementView>,
    /// Requests about this message at this node, the newest first; only for administrators.
    changes: Vec<AuditLine>,
    /// Hand-overs and settlements up to then may be missing; absent: none of this node's since it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    forgotten_until: Option<i64>,
    /// The trace that the message came with; absent: none, or it is not there any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    trace_id: Option<String>,
    /// What nobody knows, in words.
    not_known: Vec<String>,
}

/// The life of a message
///
/// What is known of its past, also when it is not there any more: the last hand-overs at the answering node, which
/// remembers 4,096 that succeeded and 4,096 that failed; what consumers did with its receipts there (4,096 acks and
/// extensions, and 4,096 nacks and receipts that were too late); and who changed it. Nothing is stored for it, so what
/// other nodes did is known to them alone.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/messages/{id}/life", tag = "messages", operation_id = "message_life",
    params(
        ("topic" = String, Path, description = "Name of the topic"),
        ("id" = String, Path, description = "Id of the message, percent-encoded once"),
    ),
    responses((status = 200, description = "What is known", body = LifeView))
)]
pub(crate) async fn get(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    TopicAndId(topic, id): TopicAndId,
) -> Result<Response, Problem> {
    let record = app.router.topic(&topic).await?;
    let (shard, found) = app.router.get(&topic, vec![id.clone()]).await.pop().expect("one answer")?;
    let (past, settled) = (app.past.hand_overs(&topic, &id), app.past.settlements(&topic, &id));
    let to_admin = caller.has(Scope::Admin);
    let is_this = |line: &AuditLine| line.is_about(topic.as_str(), id.as_str());
    let changes = if to_admin { app.options.audit.last(CHANGES_MAX, is_this) } else { Vec::new() };
    if found.is_none() && past.is_empty() && settled.is_empty() && changes.is_empty() {
        let detail = format!(
            "topic {topic:?} has no message {id:?}, and this node remembers nothing of it: ask the other nodes too"
        );
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown_message", detail));
    }
    let cluster = app.cluster.borrow().clone();
    let owner = cluster.owner(&topic, shard).map(str::to_owned);
    let mut not_known = vec!["when it was enqueued, and by whom: nothing is stored for that".to_owned()];
    if cluster.members.len() > 1 {
        not_known.push("what other nodes did with it: each remembers its own hand-overs and settlements".to_owned());
    }
    let forgotten_until = app.past.forgotten().map(|at| at.as_millis());
    if found.is_none() && !ended(&past, &settled, record.config.delivery) {
        not_known.push(
            "how it ended: it was delivered, acked by a consumer or cancelled, or its topic was emptied".to_owned(),
        );
    }
    let trace = found.as_ref().and_then(|message| message.headers.creator());
    let state = found.as_ref().map(|message| message.state);
    Ok(Json(LifeView {
        id: id.as_str().to_owned(),
        node: app.node.id.clone(),
        state: state.map(MessageState::as_str),
        owner,
        hand_overs: past.iter().map(|one| HandOverView::new(one, to_admin)).collect(),
        settlements: settled.iter().map(|one| SettlementView::new(one, to_admin)).collect(),
        changes,
        forgotten_until,
        trace_id: trace.map(|span| format!("{:032x}", span.trace_id)),
        not_known,
    })
    .into_response())
}
