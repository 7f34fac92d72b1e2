//! Consumers claim what is due, and ack what is done with the same request.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_WAIT_MAX};
use duetime_core::store::ClaimedMessage;
use duetime_core::trace::SpanRef;
use duetime_core::tracer::{AttemptOf, DeliveryEnd, DeliveryOutcome, attempt_span};
use duetime_core::{
    ClaimAsk, ClaimedBatch, Receipt, Repeat, Shard, Timestamp, TopicName, TopicRecord, max_attempts, own_visibility,
};
use duetime_router::SettleAsk;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::audit;
use crate::auth::Scope;
use crate::auth::standing::StandingCaller;
use crate::json::bounded_vec::BoundedVec;
use crate::json::problem::Problem;
use crate::json::schema;
use crate::routes::command::Asked;
use crate::routes::results::{OutcomeItem, Style};
use crate::routes::settle::{Span, settle, visibility};
use crate::routes::view::{PayloadView, ShownHeaders};
use crate::server::body::ITEMS_BYTES_MAX;
use crate::server::consumers::CONSUMER_BYTES_MAX;
use crate::server::memory;
use crate::server::memory::Account;
use crate::server::state::HttpParts;
use crate::server::unsent::IfUnsent;

/// A claimed payload is there as the store gave it, as text for JSON, and in the answer.
const CLAIM_COPIES: usize = 3;
/// About what a claimed message takes in the answer beside its payload; more makes the buffer grow.
const CLAIMED_BYTES: usize = 400;

/// Declares the body of a claim: fields of its own, then those that every claim has. (With `serde(flatten)` a body
/// refuses no unknown fields and reads no `RawValue`.)
macro_rules! claim_body {
    ($(#[$meta:meta])* pub(crate) struct $name:ident { $($own:tt)* }) => {
        #[derive(Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        $(#[$meta])*
        pub(crate) struct $name {
            $($own)*
            /// Most messages; 1 if absent.
            #[serde(default)]
            #[schema(minimum = 1, maximum = 256)]
            max: Option<u64>,
            /// How long to wait for something due, 60 s at most; not at all if absent.
            #[serde(default)]
            #[schema(value_type = Option<schema::DurationIn>)]
            wait: Option<$crate::routes::settle::Span>,
            /// How long the messages stay hidden; that of each message if absent, else that of their topic.
            #[serde(default)]
            #[schema(value_type = Option<schema::DurationIn>)]
            visibility_timeout: Option<$crate::routes::settle::Span>,
            /// The name of the consumer, for people: see `GET …/consumers`.
            #[serde(default)]
            #[schema(min_length = 1, max_length = 100)]
            consumer: Option<String>,
        }

        impl $name {
            /// What it asks for, within its bounds.
            pub(crate) fn checked(&self) -> Result<ClaimAsk, Problem> {
                $crate::routes::claims::checked(self.max, self.wait, self.visibility_timeout)
            }

            /// The name by which its consumer wants to be known.
            fn consumer(&self) -> Result<Option<Arc<str>>, Problem> {
                $crate::routes::claims::read_consumer(self.consumer.as_deref())
            }
        }
    };
}
pub(super) use claim_body;

claim_body! {
    /// What to claim.
    #[schema(as = Claim)]
    pub(crate) struct ClaimIn {
        /// Receipts of earlier claims whose messages are done. They are acked before anything is claimed.
        #[serde(default)]
        #[schema(value_type = Option<Vec<String>>, max_items = 65536)]
        ack: Option<BoundedVec<Box<RawValue>>>,
    }
}

pub(super) fn read_consumer(name: Option<&str>) -> Result<Option<Arc<str>>, Problem> {
    let Some(name) = name else { return Ok(None) };
    if name.is_empty() || name.len() > CONSUMER_BYTES_MAX || name.chars().any(char::is_control) {
        let detail = format!("consumer is a name of 1 to {CONSUMER_BYTES_MAX} bytes in one line");
        return Err(Problem::bad("invalid_value", detail).at("consumer"));
    }
    Ok(Some(Arc::from(name)))
}

pub(super) fn checked(
    max: Option<u64>,
    wait: Option<Span>,
    visibility_timeout: Option<Span>,
) -> Result<ClaimAsk, Problem> {
    let asked = max.unwrap_or(1);
    let max = usize::try_from(asked).ok().filter(|max| (1..=BATCH_ITEMS_MAX).contains(max)).ok_or_else(|| {
        Problem::bad("invalid_value", format!("max is {asked}; give 1 to {BATCH_ITEMS_MAX}")).at("max")
    })?;
    let wait = wait.map_or(Duration::ZERO, |span| span.0);
    if wait > CLAIM_WAIT_MAX {
        let detail = format!("wait is longer than {} s; wait less and claim again", CLAIM_WAIT_MAX.as_secs());
        return Err(Problem::bad("invalid_value", detail).at("wait"));
    }
    Ok(ClaimAsk { max, wait, visibility: visibility(visibility_timeout)?, may_remove: true })
}

/// A claimed message. Settle it with its receipt before its visibility timeout ends.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct ClaimedView<'a> {
    #[schema(value_type = String)]
    id: &'a str,
    #[serde(flatten)]
    payload: PayloadView<'a>,
    #[schema(value_type = std::collections::HashMap<String, String>)]
    headers: ShownHeaders<'a>,
    /// The due time it was given, milliseconds since the Unix epoch.
    due_at: i64,
    /// Which attempt this is, from 1.
    attempt: u8,
    /// The same for every attempt of one life of the message, another one for another life: for dedupe.
    delivery_id: String,
    /// When others may have it, by the store's clock, milliseconds since the Unix epoch; absent where nothing is to be
    /// settled.
    deadline: Option<i64>,
    /// The span that handling it belongs to, as W3C Trace Context writes it: that of this claim where the node
    /// exports traces, else that of its producer. Absent where neither is there: the claim is not recorded, and its
    /// producer named none.
    traceparent: Option<String>,
    receipt: String,
}

/// What was claimed; empty: nothing fell due in time.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct ClaimedViews<'a> {
    messages: Vec<ClaimedView<'a>>,
    /// What became of each receipt of `ack`, in order; absent without `ack`.
    #[schema(value_type = Option<Vec<OutcomeItem>>)]
    results: Option<&'a RawValue>,
    /// Why nothing could be claimed after the acks: what a claim without `ack` is refused with.
    error: Option<&'a Problem>,
}

/// Claim due messages
///
/// Waits up to `wait` (60 s at most) for something to fall due. What is claimed stays hidden from
/// others for the visibility timeout: the one that is asked for, else that of each message, else that of the topic.
///
/// With `ack` the messages of these receipts are acked first, and `results` says what became of each. If one is neither
/// `ok` nor `already`, the claim takes what is due and does not wait. Whatever keeps the claim from succeeding after the
/// acks is `error`, beside `results` and no messages.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/claim", tag = "consumers", operation_id = "claim",
    security(("token" = ["consume"])),
    request_body(content = Option<ClaimIn>, content_type = "application/json", examples(
        ("claim" = (summary = "Claim", value = json!({"max": 10, "wait": "20s"}))),
        ("claim and ack" = (summary = "Ack what is done, then claim",
            value = json!({"max": 10, "wait": "20s", "ack": ["RECEIPT"]}))),
    )),
    responses(
        (status = 200, description = "What is due, and what became of each receipt of `ack`", body = ClaimedViews),
        (status = 409, description = "The topic has a sink"),
    )
)]
pub(crate) async fn claim(asked: Asked<ClaimIn, ITEMS_BYTES_MAX>) -> Result<Response, Problem> {
    let Asked { app, caller, topic, headers, ask: asked } = asked;
    let (mut ask, consumer) = (asked.checked()?, asked.consumer()?);
    let named = &app.options.named_consumers;
    if let Some(name) = &consumer {
        app.router.topic(&topic).await?;
        named.asks(&topic, name, app.clock.now());
    }
    let acked = match asked.ack {
        Some(receipts) => {
            caller.limits().charge_request();
            let acked = settle(&app, &topic, ("ack", &receipts), SettleAsk::Ack, Style::Array).await?;
            if !acked.all_done {
                ask.wait = Duration::ZERO;
            }
            Some(acked.held_as_json())
        }
        None => None,
    };
    let (given, error) = match take(&app, &topic, ask, &headers).await {
        Ok(given) => (given, None),
        Err(problem) if acked.is_some() => (Vec::new(), Some(problem)),
        Err(problem) => return Err(problem),
    };
    if let Some(name) = &consumer {
        named.holds(&topic, name, given.iter().flat_map(|given| given.messages.iter()), app.clock.now());
    }
    Ok(respond(given, error.as_ref(), |given| {
        let acked = acked.as_deref();
        let views = ClaimedViews { messages: views(&app, given), results: acked, error: error.as_ref() };
        written(given, acked.map_or(0, |acked| acked.get().len()), &views)
    }))
}

/// The topic, if consumers may claim from it.
pub(super) async fn claimable(app: &HttpParts, topic: &TopicName) -> Result<Arc<TopicRecord>, Problem> {
    let mut record = app.router.topic(topic).await?;
    if record.config.sink.is_some() {
        // Another node may have taken it away.
        record = app.router.current_topic(topic).await?;
    }
    if let Some(sink) = &record.config.sink {
        let detail = format!(
            "messages of topic {topic:?} are handed to the sink {:?}; to claim them instead, set its sink to null",
            sink.name
        );
        return Err(Problem::new(StatusCode::CONFLICT, "topic_has_sink", detail));
    }
    Ok(record)
}

/// Claims, and waits as long as may be waited.
async fn take(
    app: &HttpParts,
    topic: &TopicName,
    ask: ClaimAsk,
    headers: &HeaderMap,
) -> Result<Vec<ClaimedBatch>, Problem> {
    claimable(app, topic).await?;
    if ask.wait.is_zero() {
        return Ok(app.consumers.claim(topic, ask).await?);
    }
    let _place = Account::current().wait()?;
    let mut caller = StandingCaller::of(&app.auth, headers, &[Scope::Consume], std::slice::from_ref(topic))?;
    tokio::select! {
        biased;
        // First: nothing is given to a token that was taken back while it waited.
        problem = caller.refused() => Err(problem),
        given = app.consumers.claim(topic, ask) => Ok(given?),
        () = app.draining.cancelled() => Ok(Vec::new()),
    }
}

/// Claimed messages as an answer has them.
pub(super) fn views<'a>(app: &HttpParts, given: &'a [ClaimedBatch]) -> Vec<ClaimedView<'a>> {
    let now = app.clock.now();
    let view = |shard: &Shard, message: &'a ClaimedMessage| ClaimedView {
        id: message.id.as_str(),
        payload: PayloadView::from(&message.payload[..]),
        headers: ShownHeaders(&message.headers),
        due_at: message.due_at.as_millis(),
        attempt: message.attempt,
        delivery_id: duetime_core::sink::delivery_id(&shard.topic, &message.id, message.nonce),
        deadline: (message.score != Receipt::SETTLED).then(|| message.score.visible_at().as_millis()),
        traceparent: span_of(app, shard, message, now).map(|span| span.to_string()),
        receipt: Receipt::new(&shard.topic, shard.index, shard.epoch, message.id.clone(), message.score)
            .of_attempts(max_attempts::of(&message.headers))
            .of_series(Repeat::is_in(&message.headers))
            .of_visibility(own_visibility::of(&message.headers))
            .to_string(),
    };
    given.iter().flat_map(|given| given.messages.iter().map(|message| view(&given.shard, message))).collect()
}

/// The answer in which `given` is; `beside`: bytes that it has for something else.
pub(super) fn written(given: &[ClaimedBatch], beside: usize, answer: &impl Serialize) -> Vec<u8> {
    let all = || given.iter().flat_map(|given| given.messages.iter());
    let payloads: usize = all().map(|message| message.payload.len()).sum();
    memory::add_answer(CLAIM_COPIES * payloads);
    let mut bytes = Vec::with_capacity(payloads + CLAIMED_BYTES * all().count() + beside);
    serde_json::to_writer(&mut bytes, answer).expect("a Vec takes all");
    bytes
}

/// Hands `given` over with an answer: what is not sent is released.
pub(super) fn respond(
    given: Vec<ClaimedBatch>,
    error: Option<&Problem>,
    written: impl FnOnce(&[ClaimedBatch]) -> Vec<u8>,
) -> Response {
    audit::count(given.iter().map(|given| given.messages.len() as u64).sum());
    let mut response = ([(header::CONTENT_TYPE, "application/json")], written(&given)).into_response();
    if let Some(problem) = error {
        problem.mark(&mut response);
    }
    response.extensions_mut().insert(IfUnsent::new(given.into_iter().map(|given| given.release.unless_sent())));
    response
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
