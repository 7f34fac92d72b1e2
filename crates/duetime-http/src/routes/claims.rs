//! Consumers: claim what is due, then ack, nack or extend by receipts.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_WAIT_MAX};
use duetime_core::store::ClaimedMessage;
use duetime_core::topic_config::check_visibility;
use duetime_core::trace::SpanRef;
use duetime_core::tracer::{AttemptOf, DeliveryEnd, DeliveryOutcome, attempt_span};
use duetime_core::units::check_delay;
use duetime_core::{ClaimAsk, Receipt, Shard, Timestamp, TopicName, units};
use duetime_router::{SettleAnswer, SettleAsk};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::audit;
use crate::auth::Scope;
use crate::auth::standing::StandingCaller;
use crate::json::bounded_vec::BoundedVec;
use crate::json::path::Topic;
use crate::json::problem::{Problem, Refusal};
use crate::json::schema;
use crate::json::{fields, message_in};
use crate::routes::results::{Outcomes, Results, Style};
use crate::routes::view::{HeadersView, OutcomeView, PayloadView};
use crate::server::body::{self, ITEMS_BYTES_MAX};
use crate::server::memory;
use crate::server::memory::Account;
use crate::server::state::HttpParts;
use crate::server::unsent::IfUnsent;

/// A claimed payload is there as the store gave it, as text for JSON, and in the answer.
const CLAIM_COPIES: usize = 3;
/// About what a claimed message takes in the answer beside its payload; more makes the buffer grow.
const CLAIMED_BYTES: usize = 400;

/// Largest body of a claim: a few small fields.
const CLAIM_BODY_BYTES_MAX: usize = 64 << 10;

/// Longest reason of a nack. Of characters of several bytes a store keeps fewer.
const REASON_CHARS_MAX: usize = 400;

/// Receipts that are read before others get their turn.
const ITEMS_AT_ONCE: usize = 1024;

/// A duration as users write it.
#[derive(Clone, Copy, Deserialize)]
struct Span(#[serde(with = "units::duration")] Duration);

/// What to claim.
#[derive(Deserialize, ToSchema)]
#[schema(as = Claim)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimIn {
    /// Most messages; 1 if absent.
    #[serde(default)]
    #[schema(nullable = false, minimum = 1, maximum = 256)]
    max: Option<u64>,
    /// How long to wait for something due, 60 s at most; not at all if absent.
    #[serde(default)]
    #[schema(value_type = Option<schema::DurationIn>, nullable = false)]
    wait: Option<Span>,
    /// How long the messages stay hidden; the topic's own if absent.
    #[serde(default)]
    #[schema(value_type = Option<schema::DurationIn>, nullable = false)]
    visibility_timeout: Option<Span>,
}

impl ClaimIn {
    pub(crate) fn checked(&self) -> Result<ClaimAsk, Problem> {
        let asked = self.max.unwrap_or(1);
        let max = usize::try_from(asked).ok().filter(|max| (1..=BATCH_ITEMS_MAX).contains(max)).ok_or_else(|| {
            Problem::bad("invalid_value", format!("max is {asked}; give 1 to {BATCH_ITEMS_MAX}")).at("max")
        })?;
        let wait = self.wait.map_or(Duration::ZERO, |span| span.0);
        if wait > CLAIM_WAIT_MAX {
            let detail = format!("wait is longer than {} s; wait less and claim again", CLAIM_WAIT_MAX.as_secs());
            return Err(Problem::bad("invalid_value", detail).at("wait"));
        }
        Ok(ClaimAsk { max, wait, visibility: visibility(self.visibility_timeout)? })
    }
}

fn visibility(asked: Option<Span>) -> Result<Option<Duration>, Problem> {
    asked
        .map(|span| check_visibility(span.0))
        .transpose()
        .map_err(|error| Problem::bad("invalid_value", error).at("visibility_timeout"))
}

/// A claimed message. Settle it with its receipt before its visibility timeout ends.
#[derive(Serialize, ToSchema)]
pub(crate) struct ClaimedView<'a> {
    #[schema(value_type = String)]
    id: &'a str,
    #[serde(flatten)]
    payload: PayloadView<'a>,
    #[schema(value_type = std::collections::HashMap<String, String>)]
    headers: HeadersView<'a>,
    /// The due time it was given, milliseconds since the Unix epoch.
    due_at: i64,
    /// Which attempt this is, from 1.
    attempt: u8,
    /// The same for every attempt of one life of the message, another one for another life: for dedupe.
    delivery_id: String,
    /// When others may have it, by the store's clock, milliseconds since the Unix epoch; absent where nothing is to be
    /// settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    deadline: Option<i64>,
    /// The span that handling it belongs to, as W3C Trace Context writes it: that of this claim where the node
    /// exports traces, else that of its producer. Absent where neither is there: the claim is not recorded, and its
    /// producer named none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    traceparent: Option<String>,
    receipt: String,
}

/// What was claimed; empty: nothing fell due in time.
#[derive(Serialize, ToSchema)]
pub(crate) struct ClaimedViews<'a> {
    messages: Vec<ClaimedView<'a>>,
}

/// Claim due messages
///
/// Waits up to `wait` (60 s at most) for something to fall due. What is claimed stays hidden from
/// others for the visibility timeout.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/claim", tag = "consumers", operation_id = "claim",
    params(("topic" = String, Path, description = "Name of the topic")),
    request_body(content = Option<ClaimIn>, content_type = "application/json"),
    responses(
        (status = 200, description = "What is due", body = ClaimedViews),
        (status = 409, description = "The topic has a sink", body = Problem,
            content_type = "application/problem+json"),
    )
)]
pub(crate) async fn claim(
    State(app): State<Arc<HttpParts>>,
    Topic(topic): Topic,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    body::json_only(&headers)?;
    let bytes = body::whole(body, &headers, CLAIM_BODY_BYTES_MAX).await?;
    let ask = fields::read::<ClaimIn>(&bytes)?.checked()?;
    let mut record = app.router.topic(&topic).await?;
    if record.config.sink.is_some() {
        // Another node may have taken it away.
        record = app.router.current_topic(&topic).await?;
    }
    if let Some(sink) = &record.config.sink {
        let detail = format!(
            "messages of topic {topic:?} are handed to the sink {:?}; to claim them instead, set its sink to null",
            sink.name
        );
        return Err(Problem::new(StatusCode::CONFLICT, "topic_has_sink", detail));
    }
    let given = if ask.wait.is_zero() {
        app.consumers.claim(&topic, ask).await?
    } else {
        let _place = Account::current().wait()?;
        let mut caller = StandingCaller::of(&app.auth, &headers, &[Scope::Consume], Some(&topic))?;
        tokio::select! {
            biased;
            // First: nothing is given to a token that was taken back while it waited.
            problem = caller.refused() => return Err(problem),
            given = app.consumers.claim(&topic, ask) => given?,
            () = app.draining.cancelled() => Vec::new(),
        }
    };
    audit::count(given.iter().map(|given| given.messages.len() as u64).sum());
    let all = || given.iter().flat_map(|given| given.messages.iter());
    let payloads: usize = all().map(|message| message.payload.len()).sum();
    memory::add_answer(CLAIM_COPIES * payloads);
    let mut answer = Vec::with_capacity(payloads + CLAIMED_BYTES * all().count());
    let claimed = given.iter().flat_map(|given| given.messages.iter().map(move |message| (&given.shard, message)));
    let now = app.clock.now();
    let messages = claimed.map(|(shard, message)| ClaimedView {
        id: message.id.as_str(),
        payload: PayloadView::from(&message.payload[..]),
        headers: HeadersView(&message.headers),
        due_at: message.due_at.as_millis(),
        attempt: message.attempt,
        delivery_id: duetime_core::sink::delivery_id(&topic, &message.id, message.nonce),
        deadline: (message.score != Receipt::SETTLED).then(|| message.score.visible_at().as_millis()),
        traceparent: span_of(&app, shard, message, now).map(|span| span.to_string()),
        receipt: Receipt::new(&topic, shard.index, shard.epoch, message.id.clone(), message.score).to_string(),
    });
    serde_json::to_writer(&mut answer, &ClaimedViews { messages: messages.collect() }).expect("a Vec takes all");
    let mut response = ([(header::CONTENT_TYPE, "application/json")], answer).into_response();
    response.extensions_mut().insert(IfUnsent::new(given.into_iter().map(|given| given.release.unless_sent())));
    Ok(response)
}

/// Under which span `message` is handled: that of its claim where the node records them, else that of its producer. Where
/// neither its producer nor a collector knows of any trace there is none to go on: to make one up for each message, and
/// to send it, cost a tenth of what can be claimed in a second.
fn span_of(app: &HttpParts, shard: &Shard, message: &ClaimedMessage, now: Timestamp) -> Option<SpanRef> {
    let Some(tracer) = &app.options.tracer else { return message.headers.creator() };
    let (topic, due_at) = (&shard.topic, message.due_at);
    let ClaimedMessage { id, nonce, attempt, headers, .. } = message;
    let of = AttemptOf { topic, id, nonce: *nonce, due_at, attempt: *attempt, headers };
    let lateness = now.since(due_at);
    let Some(span) = tracer.sample(of, lateness, now) else { return headers.creator().map(|_| attempt_span(of)) };
    tracer.end(DeliveryEnd { lateness, ..DeliveryEnd::new(of, span, shard.index, DeliveryOutcome::Claimed) });
    Some(span)
}

/// Receipts of claimed messages.
#[derive(Deserialize, ToSchema)]
#[schema(as = Receipts)]
#[serde(deny_unknown_fields)]
struct AckIn {
    #[schema(value_type = Vec<String>, max_items = 65536)]
    receipts: BoundedVec<Box<RawValue>>,
}

/// Receipts of claimed messages that were not done.
#[derive(Deserialize, ToSchema)]
#[schema(as = Nack)]
#[serde(deny_unknown_fields)]
struct NackIn {
    #[schema(value_type = Vec<String>, max_items = 65536)]
    receipts: BoundedVec<Box<RawValue>>,
    /// Until the next attempt; the topic's backoff if absent.
    #[serde(default)]
    #[schema(value_type = Option<schema::DurationIn>, nullable = false)]
    delay: Option<Span>,
    /// Why, for people; kept with the dead letter if this makes it one.
    #[serde(default)]
    #[schema(nullable = false, max_length = 400)]
    reason: Option<String>,
    /// Whether it is a dead letter at once, whatever attempts are left; not together with `delay`.
    #[serde(default)]
    dead: bool,
}

/// Receipts of claimed messages that need more time.
#[derive(Deserialize, ToSchema)]
#[schema(as = Extend)]
#[serde(deny_unknown_fields)]
struct ExtendIn {
    #[schema(value_type = Vec<String>, max_items = 65536)]
    receipts: BoundedVec<Box<RawValue>>,
    /// From now on; the topic's own if absent.
    #[serde(default)]
    #[schema(value_type = Option<schema::DurationIn>, nullable = false)]
    visibility_timeout: Option<Span>,
}

fn read_receipt(topic: &TopicName, raw: &RawValue) -> Result<Receipt, Refusal> {
    let text = message_in::text(raw, "receipts", "invalid_receipt")?;
    Receipt::parse(topic, &text).map_err(|error| Refusal::new("invalid_receipt", error).at("receipts"))
}

async fn settle(
    app: &HttpParts,
    topic: &TopicName,
    receipts: &[Box<RawValue>],
    ask: SettleAsk,
) -> Result<Response, Problem> {
    app.router.topic(topic).await?;
    memory::take_items(receipts.len(), receipts.iter().map(|raw| raw.get().len()).sum())?;
    let _turn = memory::turn_for(receipts.len()).await;
    let mut read: Vec<Result<Receipt, Refusal>> = Vec::with_capacity(receipts.len());
    for some in receipts.chunks(ITEMS_AT_ONCE) {
        read.extend(some.iter().map(|raw| read_receipt(topic, raw)));
        tokio::task::yield_now().await;
    }
    let asks = read.iter().flatten().map(|receipt| (receipt.clone(), ask.clone())).collect();
    let mut answers = app.router.settle(topic, asks).await.into_iter();
    let mut results = Results::new(Style::Object, read.len());
    for receipt in &read {
        let receipt = match receipt {
            Ok(receipt) => receipt,
            Err(refusal) => {
                results.refused(None, refusal, None);
                continue;
            }
        };
        let id = Some(receipt.id.as_str());
        match answers.next().expect("one answer for each") {
            Ok((answer, replicas)) => {
                let (word, receipt) = match answer {
                    SettleAnswer::Ok => ("ok", None),
                    SettleAnswer::Expired => ("expired", None),
                    SettleAnswer::Already => ("already", None),
                    SettleAnswer::Cancelled => ("cancelled", None),
                    SettleAnswer::Gone => ("gone", None),
                    SettleAnswer::Extended(fresh) => ("ok", Some(fresh.to_string())),
                };
                results.item(&OutcomeView { receipt, replicas, ..OutcomeView::word(id, word) });
            }
            Err(error) => results.refused(id, &Refusal::from(&error), None),
        }
    }
    Ok(([(header::CONTENT_TYPE, "application/json")], results.finish()).into_response())
}

async fn read_body<T: serde::de::DeserializeOwned>(headers: &HeaderMap, body: Body) -> Result<T, Problem> {
    body::json_only(headers)?;
    let bytes = body::whole(body, headers, ITEMS_BYTES_MAX).await?;
    Ok(fields::read(&bytes)?)
}

/// Ack: done
///
/// `already`: an earlier request did the same with this receipt. `cancelled`: the message was cancelled while you had
/// it, undo what was done. `expired`: the claim is over, and the message is due again, in other hands or a dead letter.
/// `gone`: it is not there any more, and the node that answers does not know which of these it was. The same of nack,
/// release and extend.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/ack", tag = "consumers", operation_id = "ack",
    params(("topic" = String, Path, description = "Name of the topic")),
    request_body(content = AckIn, content_type = "application/json"),
    responses((status = 200, description = "An outcome for each: `ok`, `already`, `cancelled`, `expired`, `gone`",
        body = Outcomes))
)]
pub(crate) async fn ack(
    State(app): State<Arc<HttpParts>>,
    Topic(topic): Topic,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let ask: AckIn = read_body(&headers, body).await?;
    settle(&app, &topic, &ask.receipts, SettleAsk::Ack).await
}

/// Nack: try again later
///
/// After `delay`, or after the topic's own backoff. A message whose attempts are used up becomes a
/// dead letter, and with `dead` any does at once; `reason` is kept with it.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/nack", tag = "consumers", operation_id = "nack",
    params(("topic" = String, Path, description = "Name of the topic")),
    request_body(content = NackIn, content_type = "application/json"),
    responses((status = 200, description = "An outcome for each: `ok`, `already`, `cancelled`, `expired`, `gone`",
        body = Outcomes))
)]
pub(crate) async fn nack(
    State(app): State<Arc<HttpParts>>,
    Topic(topic): Topic,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let ask: NackIn = read_body(&headers, body).await?;
    let reason = ask.reason.as_deref().map(str::trim).filter(|reason| !reason.is_empty());
    if reason.is_some_and(|reason| reason.chars().count() > REASON_CHARS_MAX) {
        let detail = format!("the reason is longer than {REASON_CHARS_MAX} characters; shorten it");
        return Err(Problem::bad("invalid_value", detail).at("reason"));
    }
    let reason: Option<Arc<str>> = reason.map(Arc::from);
    if ask.dead {
        if ask.delay.is_some() {
            let detail = "a message that is a dead letter at once is not tried again; leave delay or dead out";
            return Err(Problem::bad("invalid_value", detail).at("delay"));
        }
        return settle(&app, &topic, &ask.receipts, SettleAsk::Bury(reason)).await;
    }
    let delay = ask.delay.map(|span| check_delay(span.0)).transpose();
    let delay = delay.map_err(|error| Problem::bad("invalid_value", error).at("delay"))?;
    settle(&app, &topic, &ask.receipts, SettleAsk::Nack(delay, reason)).await
}

/// Release: not begun
///
/// The messages are due again at once, and the claim costs none of their attempts: what a consumer that stops has
/// claimed and not begun to handle.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/release", tag = "consumers", operation_id = "release",
    params(("topic" = String, Path, description = "Name of the topic")),
    request_body(content = AckIn, content_type = "application/json"),
    responses((status = 200, description = "An outcome for each: `ok`, `already`, `cancelled`, `expired`, `gone`",
        body = Outcomes))
)]
pub(crate) async fn release(
    State(app): State<Arc<HttpParts>>,
    Topic(topic): Topic,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let ask: AckIn = read_body(&headers, body).await?;
    settle(&app, &topic, &ask.receipts, SettleAsk::Release).await
}

/// Extend: I need more time
///
/// The visibility timeout begins again; answers new receipts. Old ones are of the same claim at the node that extended
/// it, as long as it remembers that: a request whose answer was lost is repeated there.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/extend", tag = "consumers", operation_id = "extend",
    params(("topic" = String, Path, description = "Name of the topic")),
    request_body(content = ExtendIn, content_type = "application/json"),
    responses((status = 200,
        description = "An outcome for each: `ok` with a new receipt, `cancelled`, `expired`, `gone`",
        body = Outcomes))
)]
pub(crate) async fn extend(
    State(app): State<Arc<HttpParts>>,
    Topic(topic): Topic,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let ask: ExtendIn = read_body(&headers, body).await?;
    let visibility = visibility(ask.visibility_timeout)?;
    settle(&app, &topic, &ask.receipts, SettleAsk::Extend(visibility)).await
}
