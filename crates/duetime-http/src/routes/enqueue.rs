//! `POST /v1/topics/{topic}/messages`: one message, an array, or NDJSON of any length.
//!
//! One bad message never takes others along. A stream is read, enqueued and answered batch by
//! batch, so neither its length nor its answer's is ever held in memory.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, BodyDataStream};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use duetime_core::store::EnqueueOutcome;
use duetime_core::trace::ProducerTrace;
use duetime_core::{End, MessageId, TopicRecord};
use duetime_request::RequestDeadline;
use duetime_router::Placed;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::audit;
use crate::auth::standing::StandingCaller;
use crate::auth::{Caller, Scope};
use crate::json::became::BecameView;
use crate::json::bounded_vec::BoundedVec;
use crate::json::message_in::{self, MessageSchema, Rules};
use crate::json::ndjson::{self, Lines};
use crate::json::path::Topic;
use crate::json::problem::{Problem, Refusal, Verdict};
use crate::json::trace::trace_of;
use crate::routes::enqueue_batch::EnqueueBatch;
use crate::routes::first_message;
use crate::routes::results::{ItemError, PlacedView, Results, Style, outcome_word, write_placed};
use crate::server::body::{self, BODY_BYTES_MAX, BodyKind, BodyProgress};
use crate::server::memory::{self, Account};
use crate::server::state::HttpParts;

/// Most messages of a stream that are enqueued, and then answered, together.
const STREAM_ITEMS: usize = 4096;

/// Messages of an array that are enqueued together: a larger array in smaller portions, so that single calls of others
/// pass between them.
const ARRAY_ITEMS: usize = memory::LARGE_ITEMS;
const LARGE_ARRAY_ITEMS: usize = 256;

/// Bytes of a message beside its payload: id, headers, times, with escapes.
const AROUND_PAYLOAD: usize = 128 << 10;

/// A message takes at most so many bytes: its payload, half of it escaped, and the rest.
fn message_bytes_max(record: &TopicRecord) -> usize {
    usize::try_from(record.config.max_payload).unwrap_or(usize::MAX / 4) * 2 + AROUND_PAYLOAD
}

/// One message, or an array of messages.
#[derive(ToSchema)]
#[schema(as = OneOrMany)]
#[serde(untagged)]
#[allow(dead_code)]
enum OneOrManySchema {
    One(MessageSchema),
    Many(Vec<MessageSchema>),
}

/// One of many answers: an outcome or an error.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code)]
enum EnqueueItem {
    Placed(PlacedView),
    Error(ItemError<'static>),
}

/// Answers in the order of the request.
#[derive(ToSchema)]
#[allow(dead_code)]
struct EnqueueItems {
    results: Vec<EnqueueItem>,
}

/// One message's outcome, or those of many.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code)]
enum EnqueueAnswer {
    One(PlacedView),
    Many(EnqueueItems),
}

/// Enqueue messages
///
/// One message answers with its own status. An array, or NDJSON as a stream of any length, answers
/// 200 with one outcome or error for each, in order; with `Accept: application/x-ndjson` the answer has that type
/// and one of `results` a line. A topic that is not there is made by its first message where the configuration of the
/// node allows that (`topics_default`).
/// A stream is answered while it is sent: read the answer meanwhile.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/messages", tag = "messages", operation_id = "enqueue",
    security(("token" = ["produce"])),
    request_body(content(
        (OneOrManySchema = "application/json"),
        (MessageSchema = "application/x-ndjson"),
    )),
    responses(
        (status = 201, description = "Scheduled", body = PlacedView),
        (status = 200, description = "Replaced, or kept; or several, an outcome or an error for each",
            body = EnqueueAnswer),
        (status = 409, description = "`duplicate`: the id lives already, or what became of it is remembered; \
            `cancelled_before`: a cancel of it came first. Nothing was changed"),
        (status = 507, description = "The store is full, or the topic (`topic_full`); nothing was changed"),
    )
)]
pub(crate) async fn post(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    Topic(topic): Topic,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let kind = body::kind(&headers)?;
    let record = first_message::topic_of(&app, &topic, &caller).await?;
    let (style, trace) = (style(&headers), trace_of(&headers));
    if kind == BodyKind::Ndjson {
        let caller = StandingCaller::of(&app.auth, &headers, &[Scope::Produce], std::slice::from_ref(&topic))?;
        return Ok(stream(app, caller, record, body, (style, trace)).await);
    }
    let limit = message_bytes_max(&record).max(BODY_BYTES_MAX);
    let bytes = body::whole(body, &headers, limit).await?;
    if bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[') {
        many(&app, &caller, &record, &bytes, (style, trace)).await
    } else {
        caller.limits().take_messages(1)?;
        memory::take_items(1, memory::STORE_COPIES * bytes.len())?;
        one(&app, &record, bytes, trace).await
    }
}

/// What a message of the topic must keep to, where the longest one has so many bytes of JSON. A limit that
/// another node has raised holds here too: before it refuses anything it is read again.
async fn rules<'a>(
    app: &HttpParts,
    record: &TopicRecord,
    longest: usize,
    trace: Option<&'a ProducerTrace>,
) -> Result<Rules<'a>, Problem> {
    let mut payload_bytes_max = record.config.max_payload;
    if longest as u64 > payload_bytes_max {
        payload_bytes_max = app.router.current_topic(&record.name).await?.config.max_payload;
    }
    Ok(Rules { now: app.clock.now(), payload_bytes_max, delay: record.config.delay, trace, body: None })
}

fn style(headers: &HeaderMap) -> Style {
    if ndjson::is_accepted(headers) { Style::Lines } else { Style::Object }
}

fn answer(style: Style, body: Body) -> Response {
    let content_type = match style {
        Style::Object | Style::Array => "application/json",
        Style::Lines => ndjson::NDJSON,
    };
    ([(header::CONTENT_TYPE, content_type)], body).into_response()
}

async fn one(
    app: &HttpParts,
    record: &TopicRecord,
    bytes: Bytes,
    trace: Option<ProducerTrace>,
) -> Result<Response, Problem> {
    let rules = rules(app, record, bytes.len(), trace.as_ref()).await?;
    let rules = Rules { body: Some(&bytes), ..rules };
    let now = rules.now;
    let item = message_in::read(&bytes, &rules).map_err(|(_, refusal)| Problem::from(refusal))?;
    // What the payload does not need of it is not kept while the store works.
    drop(bytes);
    let (id, late_by_ms) = (item.id.clone(), message_in::late_by_ms(item.due, now));
    let placed = app.router.enqueue(&record.name, vec![item]).await.pop().expect("one answer")?;
    audit::count(1);
    let status = match placed.outcome {
        EnqueueOutcome::Scheduled => StatusCode::CREATED,
        EnqueueOutcome::Replaced | EnqueueOutcome::ReplacedInFlight | EnqueueOutcome::Kept => StatusCode::OK,
        EnqueueOutcome::Duplicate | EnqueueOutcome::CancelledBefore => return Err(refusal(&id, &placed)),
    };
    let mut out = Vec::with_capacity(128);
    write_placed(&mut out, (id.as_str(), late_by_ms), &placed);
    Ok((status, [(header::CONTENT_TYPE, "application/json")], out).into_response())
}

/// Why nothing was scheduled.
fn refusal(id: &MessageId, placed: &Placed) -> Problem {
    let outcome = outcome_word(placed.outcome);
    let (why, rule) = match (placed.outcome, &placed.became) {
        (EnqueueOutcome::CancelledBefore, _) => ("was cancelled before it came, which its topic remembers", "replace"),
        (_, Some(became)) if became.end == End::Moved => {
            ("moved elsewhere and lives there, which its topic remembers", "return")
        }
        (_, Some(_)) => ("was there before and has ended, which its topic remembers", "replace"),
        (_, None) => ("is there already", "replace"),
    };
    let detail = format!("nothing was changed: {id:?} {why}; \"on_conflict\": \"{rule}\" schedules it all the same");
    let due_at = placed.due_at.as_millis();
    Problem::new(StatusCode::CONFLICT, outcome, detail).with(Verdict {
        id: Some(id.as_str().to_owned()),
        outcome: Some(outcome),
        due_at: (due_at != 0).then_some(due_at),
        shard: Some(placed.shard),
        replicas: placed.replicas,
        became: placed.became.as_ref().map(BecameView::new),
    })
}

async fn many(
    app: &HttpParts,
    caller: &Caller,
    record: &TopicRecord,
    bytes: &Bytes,
    (style, trace): (Style, Option<ProducerTrace>),
) -> Result<Response, Problem> {
    let raw: BoundedVec<&RawValue> =
        serde_json::from_slice(bytes).map_err(|error| crate::json::fields::refuse(&error))?;
    memory::take_items(raw.len(), bytes.len())?;
    caller.limits().take_messages(raw.len())?;
    let _turn = memory::turn_for(raw.len()).await;
    let longest = raw.iter().map(|item| item.get().len()).max().unwrap_or(0);
    let rules = rules(app, record, longest, trace.as_ref()).await?;
    let mut results = Results::new(style, raw.len());
    let portion = if raw.len() > ARRAY_ITEMS { LARGE_ARRAY_ITEMS } else { ARRAY_ITEMS };
    for (at, some) in raw.chunks(portion).enumerate() {
        if at > 0 {
            tokio::task::yield_now().await;
        }
        let mut batch = EnqueueBatch::default();
        for item in some {
            batch.read(item.get().as_bytes(), None, &rules).await;
        }
        batch.enqueue(app, &record.name, &mut results).await;
    }
    Ok(answer(style, Body::from(results.finish())))
}

/// A batch of a stream is enqueued within this time.
const BATCH_MAX: Duration = Duration::from_secs(60);

/// A stream under way.
struct EnqueueStream {
    app: Arc<HttpParts>,
    caller: StandingCaller,
    account: Arc<Account>,
    record: Arc<TopicRecord>,
    trace: Option<ProducerTrace>,
    chunks: BodyDataStream,
    lines: Lines,
    line_bytes_max: usize,
    results: Results,
    end: RequestDeadline,
    ended: bool,
}

impl EnqueueStream {
    /// The next batch: what is here already, or else what comes next.
    async fn batch(&mut self) -> EnqueueBatch {
        if let Some(record) = self.app.catalog.get(&self.record.name) {
            self.record = record;
        }
        let (payload_bytes_max, delay) = (self.record.config.max_payload, self.record.config.delay);
        let (now, trace) = (self.app.clock.now(), self.trace.as_ref());
        let mut rules = Rules { now, payload_bytes_max, delay, trace, body: None };
        let mut is_fresh = false;
        let mut batch = EnqueueBatch::default();
        let items_max = match self.caller.current() {
            Ok(caller) => STREAM_ITEMS.min(caller.limits().portion()),
            Err(problem) => return self.refused(&problem),
        };
        // Only a whole message, or a good part of a long one, keeps a stream open.
        let mut progress = BodyProgress::new();
        loop {
            while let Some(line) = self.lines.next() {
                let length = line.bytes.as_ref().map_or(0, Bytes::len);
                if length as u64 > rules.payload_bytes_max && !is_fresh {
                    // Once for a batch. A topic that is gone is found out by the enqueue.
                    let again = self::rules(&self.app, &self.record, length, rules.trace).await;
                    rules = again.unwrap_or(rules);
                    is_fresh = true;
                }
                batch.read_line(line, &rules, self.line_bytes_max).await;
                if batch.is_full(items_max) {
                    return batch;
                }
            }
            if self.ended {
                return batch;
            }
            let chunk = if batch.is_empty() {
                tokio::select! {
                    biased;
                    problem = self.caller.refused() => return self.refused(&problem),
                    chunk = tokio::time::timeout_at(progress.until(), self.chunks.next()) => chunk,
                }
            } else {
                match self.chunks.next().now_or_never() {
                    Some(chunk) => Ok(chunk),
                    None => return batch,
                }
            };
            match chunk {
                Ok(Some(Ok(chunk))) => {
                    progress.brought(chunk.len());
                    self.lines.push(&chunk);
                }
                Ok(None) => {
                    self.ended = true;
                    if let Some(line) = self.lines.last() {
                        batch.read_line(line, &rules, self.line_bytes_max).await;
                    }
                }
                Ok(Some(Err(error))) => {
                    self.ended = true;
                    let early = || Refusal::new("body_unreadable", format!("the stream ended early: {error}"));
                    let busy = self.account.refusal("send what follows again after a pause");
                    let refusal = busy.map_or_else(early, |busy| Refusal::new(busy.code, busy.detail));
                    batch.refuse(refusal);
                }
                Err(_) => {
                    self.ended = true;
                    let refusal = Refusal::new("body_timeout", body::too_slow().detail);
                    batch.refuse(refusal);
                }
            }
        }
    }

    /// The last batch of a stream whose token was taken back, or is not for this any more.
    fn refused(&mut self, problem: &Problem) -> EnqueueBatch {
        self.ended = true;
        let detail = format!("{}; nothing that follows was stored, send it again with another token", problem.detail);
        EnqueueBatch::refused(Refusal::new(problem.code, detail))
    }

    /// Waits until the token may have so many messages more. Whoever is not let in any more by then has none stored.
    async fn admitted(&mut self, batch: EnqueueBatch) -> EnqueueBatch {
        loop {
            let waited = match self.caller.current() {
                Ok(caller) => caller.limits().try_messages(batch.messages()),
                Err(problem) => return self.refused(&problem),
            };
            let Err(wait) = waited else { return batch };
            tokio::select! {
                biased;
                problem = self.caller.refused() => return self.refused(&problem),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn step(&mut self) -> Vec<u8> {
        let mut batch = self.batch().await;
        // What was counted as it came is by now in the batch, in the line that is not whole, or gone.
        self.account.hold(self.lines.held() + 2 * batch.bytes() + batch.len() * memory::ITEM_BYTES);
        if !batch.is_empty() {
            batch = self.admitted(batch).await;
            let end = self.end.renewed(BATCH_MAX);
            end.scope(batch.enqueue(&self.app, &self.record.name, &mut self.results)).await;
        }
        if !self.ended {
            self.results.goes_on(self.app.clock.now());
        }
        let out = self.results.take();
        self.account.hold(self.lines.held() + out.len());
        out
    }
}

async fn stream(
    app: Arc<HttpParts>,
    caller: StandingCaller,
    record: Arc<TopicRecord>,
    body: Body,
    (style, trace): (Style, Option<ProducerTrace>),
) -> Response {
    let line_bytes_max = message_bytes_max(&record);
    let mut stream = EnqueueStream {
        app,
        caller,
        account: Account::current(),
        record,
        trace,
        chunks: body.into_data_stream(),
        lines: Lines::new(line_bytes_max),
        line_bytes_max,
        results: Results::new(style, 0),
        end: RequestDeadline::of_task().unwrap_or_else(|| RequestDeadline::after(BATCH_MAX)),
        ended: false,
    };
    // The first batch is read before the answer begins: a client that waits for "100 Continue" gets it.
    let first = stream.step().await;
    if stream.ended {
        let mut whole = first;
        whole.extend(stream.results.finish());
        return answer(style, Body::from(whole));
    }
    let rest = futures::stream::unfold(Some(stream), |stream| async {
        let mut stream = stream?;
        let mut out = stream.step().await;
        if stream.ended {
            out.extend(stream.results.finish());
            return Some((out, None));
        }
        Some((out, Some(stream)))
    });
    let first = futures::stream::once(std::future::ready(first));
    let chunks = first.chain(rest).map(|chunk| Ok::<_, std::convert::Infallible>(Bytes::from(chunk)));
    answer(style, Body::from_stream(chunks))
}
