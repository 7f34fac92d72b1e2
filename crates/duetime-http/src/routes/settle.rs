//! Settles claims by their receipts: ack, nack, release, extend.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use duetime_core::topic_config::check_visibility;
use duetime_core::units::check_delay;
use duetime_core::{Receipt, TopicName, units};
use duetime_router::{SettleAnswer, SettleAsk};
use futures::future::join_all;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::json::bounded_vec::BoundedVec;
use crate::json::problem::{Problem, Refusal};
use crate::json::{message_in, schema};
use crate::routes::command::Asked;
use crate::routes::results::{Outcomes, Results, Style};
use crate::routes::view::OutcomeView;
use crate::server::body::ITEMS_BYTES_MAX;
use crate::server::memory::{self, Account};
use crate::server::state::HttpParts;

/// Longest reason of a nack. Of characters of several bytes a store keeps fewer.
const REASON_CHARS_MAX: usize = 400;

/// Receipts that are read before others get their turn.
const ITEMS_AT_ONCE: usize = 1024;

/// A duration as users write it.
#[derive(Clone, Copy, Deserialize)]
pub(crate) struct Span(#[serde(with = "units::duration")] pub Duration);

pub(crate) fn visibility(asked: Option<Span>) -> Result<Option<Duration>, Problem> {
    asked
        .map(|span| check_visibility(span.0))
        .transpose()
        .map_err(|error| Problem::bad("invalid_value", error).at("visibility_timeout"))
}

/// What is asked of claims of a topic.
type Receipts<T> = Asked<T, ITEMS_BYTES_MAX>;

/// Receipts of claimed messages.
#[derive(Deserialize, ToSchema)]
#[schema(as = ReceiptList)]
#[serde(deny_unknown_fields)]
pub(crate) struct AckIn {
    #[schema(value_type = Vec<String>, max_items = 65536)]
    receipts: BoundedVec<Box<RawValue>>,
}

/// Receipts of claimed messages that were not done.
#[derive(Deserialize, ToSchema)]
#[schema(as = Nack)]
#[serde(deny_unknown_fields)]
pub(crate) struct NackIn {
    #[schema(value_type = Vec<String>, max_items = 65536)]
    receipts: BoundedVec<Box<RawValue>>,
    /// Until the next attempt; the topic's backoff if absent.
    #[schema(value_type = Option<schema::DurationIn>)]
    delay: Option<Span>,
    /// Why, for people; kept with the dead letter if this makes it one.
    #[schema(max_length = 400)]
    reason: Option<String>,
    /// Whether it is a dead letter at once, whatever attempts are left; not together with `delay`.
    #[serde(default)]
    dead: bool,
}

/// Receipts of claimed messages that need more time.
#[derive(Deserialize, ToSchema)]
#[schema(as = Extend)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExtendIn {
    #[schema(value_type = Vec<String>, max_items = 65536)]
    receipts: BoundedVec<Box<RawValue>>,
    /// From now on; that of each message if absent, else that of the topic.
    #[schema(value_type = Option<schema::DurationIn>)]
    visibility_timeout: Option<Span>,
}

/// A receipt, and which of the topics it is of.
fn read_receipt(topics: &[TopicName], field: &str, raw: &RawValue) -> Result<(usize, Receipt), Refusal> {
    let text = message_in::text(raw, field, "invalid_receipt")?;
    Receipt::parse_of(topics, &text).map_err(|error| Refusal::new("invalid_receipt", error).at(field))
}

/// What became of receipts.
pub(crate) struct SettledReceipts {
    /// For each in order, as JSON.
    pub results: Vec<u8>,
    /// True if each is `ok` or `already`.
    pub all_done: bool,
}

impl SettledReceipts {
    /// The results for an answer that comes later. What the receipts took is not held while a claim waits.
    pub(crate) fn held_as_json(self) -> Box<RawValue> {
        Account::current().hold(self.results.len());
        let results = String::from_utf8(self.results).expect("JSON is UTF-8");
        RawValue::from_string(results).expect("it was written as JSON")
    }
}

/// Settles the receipts of `field` of a request about one topic.
pub(crate) async fn settle(
    app: &HttpParts,
    topic: &TopicName,
    given: (&str, &[Box<RawValue>]),
    ask: SettleAsk,
    style: Style,
) -> Result<SettledReceipts, Problem> {
    app.router.topic(topic).await?;
    settle_each(app, std::slice::from_ref(topic), given, ask, style).await
}

/// Settles the receipts of `field` of a request, each in that of the topics that it is of. One of a topic that is not
/// there is refused by itself.
pub(crate) async fn settle_each(
    app: &HttpParts,
    topics: &[TopicName],
    (field, receipts): (&str, &[Box<RawValue>]),
    ask: SettleAsk,
    style: Style,
) -> Result<SettledReceipts, Problem> {
    memory::take_items(receipts.len(), receipts.iter().map(|raw| raw.get().len()).sum())?;
    let _turn = memory::turn_for(receipts.len()).await;
    let mut read: Vec<Result<(usize, Receipt), Refusal>> = Vec::with_capacity(receipts.len());
    for some in receipts.chunks(ITEMS_AT_ONCE) {
        // Between two portions only: a turn of the runtime costs more than a few receipts.
        if !read.is_empty() {
            tokio::task::yield_now().await;
        }
        read.extend(some.iter().map(|raw| read_receipt(topics, field, raw)));
    }
    let settle = |at: usize| {
        let its = read.iter().flatten().filter(|(of, _)| *of == at);
        let asks: Vec<_> = its.map(|(_, receipt)| (receipt.clone(), ask.clone())).collect();
        async move { if asks.is_empty() { Vec::new() } else { app.router.settle(&topics[at], asks).await } }
    };
    let answers = join_all((0..topics.len()).map(settle)).await;
    let mut answers: Vec<_> = answers.into_iter().map(Vec::into_iter).collect();
    let (mut results, mut all_done) = (Results::new(style, read.len()), true);
    let mut moved: Vec<Vec<_>> = topics.iter().map(|_| Vec::new()).collect();
    for receipt in &read {
        let (of, receipt) = match receipt {
            Ok((of, receipt)) => (*of, receipt),
            Err(refusal) => {
                all_done = false;
                results.refused(None, refusal, None);
                continue;
            }
        };
        let id = Some(receipt.id.as_str());
        match answers[of].next().expect("one answer for each") {
            Ok((answer, replicas)) => {
                moved[of].push((
                    &receipt.id,
                    match &answer {
                        SettleAnswer::Extended(fresh) => Some(fresh.score.visible_at()),
                        _ => None,
                    },
                ));
                let (word, receipt) = match answer {
                    SettleAnswer::Ok => ("ok", None),
                    SettleAnswer::Expired => ("expired", None),
                    SettleAnswer::Already => ("already", None),
                    SettleAnswer::Cancelled => ("cancelled", None),
                    SettleAnswer::Gone => ("gone", None),
                    SettleAnswer::Extended(fresh) => ("ok", Some(fresh.to_string())),
                };
                all_done &= matches!(word, "ok" | "already");
                results.item(&OutcomeView { receipt, replicas, ..OutcomeView::word(id, word) });
            }
            Err(error) => {
                all_done = false;
                results.refused(id, &Refusal::from(&error), None);
            }
        }
    }
    for (topic, moved) in topics.iter().zip(moved) {
        app.options.named_consumers.settled(topic, moved.into_iter());
    }
    Ok(SettledReceipts { results: results.finish(), all_done })
}

async fn answer(
    app: &HttpParts,
    topic: &TopicName,
    receipts: &[Box<RawValue>],
    ask: SettleAsk,
) -> Result<Response, Problem> {
    let settled = settle(app, topic, ("receipts", receipts), ask, Style::Object).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], settled.results).into_response())
}

/// Ack: done
///
/// `already`: an earlier request did the same with this receipt. `cancelled`: the message was cancelled while you had
/// it, undo what was done. `expired`: the claim is over, and the message is due again, in other hands or a dead letter.
/// `gone`: it is not there any more, and the node that answers does not know which of these it was. The same of nack,
/// release and extend.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/ack", tag = "consumers", operation_id = "ack",
    security(("token" = ["consume"])),
    request_body(content = AckIn, content_type = "application/json"),
    responses((status = 200, description = "An outcome for each: `ok`, `already`, `cancelled`, `expired`, `gone`",
        body = Outcomes))
)]
pub(crate) async fn ack(asked: Receipts<AckIn>) -> Result<Response, Problem> {
    let Asked { app, topic, ask, .. } = asked;
    answer(&app, &topic, &ask.receipts, SettleAsk::Ack).await
}

/// Nack: try again later
///
/// After `delay`, or after the topic's own backoff. A message whose attempts are used up becomes a
/// dead letter, and with `dead` any does at once; `reason` is kept with it.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/nack", tag = "consumers", operation_id = "nack",
    security(("token" = ["consume"])),
    request_body(content = NackIn, content_type = "application/json"),
    responses((status = 200, description = "An outcome for each: `ok`, `already`, `cancelled`, `expired`, `gone`",
        body = Outcomes))
)]
pub(crate) async fn nack(asked: Receipts<NackIn>) -> Result<Response, Problem> {
    let Asked { app, topic, ask, .. } = asked;
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
        return answer(&app, &topic, &ask.receipts, SettleAsk::Bury(reason)).await;
    }
    let delay = ask.delay.map(|span| check_delay(span.0)).transpose();
    let delay = delay.map_err(|error| Problem::bad("invalid_value", error).at("delay"))?;
    answer(&app, &topic, &ask.receipts, SettleAsk::Nack(delay, reason)).await
}

/// Release: not begun
///
/// The messages are due again at once, and the claim costs none of their attempts: what a consumer that stops has
/// claimed and not begun to handle.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/release", tag = "consumers", operation_id = "release",
    security(("token" = ["consume"])),
    request_body(content = AckIn, content_type = "application/json"),
    responses((status = 200, description = "An outcome for each: `ok`, `already`, `cancelled`, `expired`, `gone`",
        body = Outcomes))
)]
pub(crate) async fn release(asked: Receipts<AckIn>) -> Result<Response, Problem> {
    let Asked { app, topic, ask, .. } = asked;
    answer(&app, &topic, &ask.receipts, SettleAsk::Release).await
}

/// Extend: I need more time
///
/// The visibility timeout begins again; answers new receipts. Old ones are of the same claim at the node that extended
/// it, as long as it remembers that: a request whose answer was lost is repeated there.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/extend", tag = "consumers", operation_id = "extend",
    security(("token" = ["consume"])),
    request_body(content = ExtendIn, content_type = "application/json"),
    responses((status = 200,
        description = "An outcome for each: `ok` with a new receipt, `cancelled`, `expired`, `gone`",
        body = Outcomes))
)]
pub(crate) async fn extend(asked: Receipts<ExtendIn>) -> Result<Response, Problem> {
    let Asked { app, topic, ask, .. } = asked;
    let visibility = visibility(ask.visibility_timeout)?;
    answer(&app, &topic, &ask.receipts, SettleAsk::Extend(visibility)).await
}
