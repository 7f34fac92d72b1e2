//! What a node answers. Fields that a newer node adds are ignored.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duetime_core::{PREVIOUS, Timestamp, TopicConfig};
use reqwest::header::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::became::Became;
use crate::error::Problem;
use crate::pause::TopicPause;
use crate::repeat::RepeatRule;
use crate::sink_issue::SinkIssue;

/// A topic: its settings as they apply, and its counts.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its settings as they apply.
    #[serde(flatten)]
    pub config: TopicConfig,
    /// Why it is paused, where it is and that is known.
    pub pause: Option<TopicPause>,
    /// How many shards it has.
    #[serde(default)]
    pub shard_count: u32,
    /// Grows by one with every change.
    #[serde(default)]
    pub version: u64,
    /// Milliseconds since the Unix epoch.
    #[serde(default)]
    pub created_at: i64,
    /// Messages nobody holds, due or not. With `in_flight` and `dead` it is every message.
    #[serde(default)]
    pub scheduled: u64,
    /// Messages that can be claimed now: a part of `scheduled` and of `in_flight`.
    #[serde(default)]
    pub due: u64,
    /// Messages claimed and not settled, also those whose claim ran out.
    #[serde(default)]
    pub in_flight: u64,
    /// Dead letters.
    #[serde(default)]
    pub dead: u64,
    /// When the first message that is due fell due.
    pub oldest_due_at: Option<i64>,
    /// Shards that are not in the counts, because their server does not answer.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unreachable_shards: usize,
    /// Why nothing is delivered to its sink, as the answering node sees it.
    pub sink_issue: Option<SinkIssue>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(crate) fn is_none(count: &usize) -> bool {
    *count == 0
}

/// One item of many: done, or refused by itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer<T> {
    /// This item was refused or failed; the others were not.
    Refused(Refused),
    /// What became of it.
    Done(T),
}

impl<T> Answer<T> {
    /// What became of it, if it was done.
    pub fn done(&self) -> Option<&T> {
        match self {
            Self::Done(done) => Some(done),
            Self::Refused(_) => None,
        }
    }

    /// What became of it, or why nothing did.
    ///
    /// # Errors
    ///
    /// Why this item was refused or failed.
    pub fn into_result(self) -> Result<T, ItemProblem> {
        match self {
            Self::Done(done) => Ok(done),
            Self::Refused(refused) => Err(refused.error),
        }
    }
}

/// An item that was refused or failed.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Refused {
    /// Its id, where it could be read.
    pub id: Option<String>,
    /// Why.
    pub error: ItemProblem,
}

/// Why one item of many was refused or failed.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ItemProblem {
    /// Stable word for programs.
    pub code: String,
    /// The field to blame.
    pub field: Option<String>,
    /// What is wrong and what to do, for people.
    pub detail: String,
    /// The same item may be done later, without anybody doing anything else.
    #[serde(default)]
    pub retryable: bool,
    /// Which item it was, from 0.
    #[serde(default)]
    pub index: u64,
    /// Which line it was, from 1.
    pub line: Option<u64>,
    /// The id of the request that it was in.
    #[serde(skip)]
    pub request_id: Option<Box<str>>,
}

impl std::fmt::Display for ItemProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        write!(f, "{} ({}", self.detail, self.code)?;
        match &self.request_id {
            Some(id) => write!(f, ", request {id})"),
            None => write!(f, ")"),
        }
    }
}

/// What became of one enqueue.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// The message.
    pub id: String,
    /// `scheduled`, `replaced`, `kept`, `duplicate` or `cancelled_before`.
    pub outcome: String,
    /// Its due time, milliseconds since the Unix epoch.
    pub due_at: Option<i64>,
    /// It was replaced while somebody held it, who may be delivering what it was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_flight: bool,
    /// How many milliseconds the due time that was asked for was past already; absent: it was not.
    pub late_by_ms: Option<u64>,
    /// Its home.
    pub shard: u32,
    /// Replicas of Redis that have it, where `store.durability` waits for them.
    pub replicas: Option<u32>,
    /// How many milliseconds later than asked for it falls due, where its topic has a `smear`.
    pub smeared_ms: Option<u64>,
    /// What became of the message that had this id, where it is gone and its topic remembers.
    pub became: Option<Became>,
    /// An earlier try of this call may have been carried out: a `duplicate` may be this very message. Said by the client.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

impl Placed {
    /// The same with what the client knows: whether an earlier try may have been carried out, and whether it made the id.
    pub(crate) fn told(mut self, repeated: bool, is_made: bool) -> Self {
        self.repeated = repeated;
        if repeated && is_made && self.outcome == "duplicate" {
            // Nobody else has an id that was made here: an earlier try stored it.
            "scheduled".clone_into(&mut self.outcome);
        }
        self
    }
}

/// What became of one cancel, reschedule or settlement.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The message.
    pub id: Option<String>,
    /// `cancelled`, `rescheduled`, `in_flight`, `dead`, `unknown`, `ok`, `already`, `expired`, `gone` …
    pub outcome: String,
    /// Of a cancel, what became of the message before, where its topic remembers.
    pub became: Option<Became>,
    /// The due time it has now. After a reschedule only.
    pub due_at: Option<i64>,
    /// How many milliseconds later than asked for that is, where its topic has a `smear`. After a reschedule only.
    pub smeared_ms: Option<u64>,
    /// How many milliseconds the due time that was asked for was past already. After a reschedule only.
    pub late_by_ms: Option<u64>,
    /// The receipt that counts from now on. After an extension only.
    pub receipt: Option<String>,
    /// Replicas of Redis that have it, where `store.durability` waits for them.
    pub replicas: Option<u32>,
    /// Of a cancel: an earlier try of this call may have been carried out, so with `unknown` it may have cancelled the
    /// message. Said by the client.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// Why and when a message died.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Death {
    /// Milliseconds since the Unix epoch.
    pub at: i64,
    /// Why.
    pub reason: String,
}

/// A message as its shard holds it.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Message {
    /// Its id.
    pub id: String,
    /// `scheduled`, `in_flight` or `dead`.
    pub state: String,
    /// The due time it was given.
    pub due_at: i64,
    /// When it may be claimed (again).
    #[serde(default)]
    pub visible_at: i64,
    /// Until when it may be handed over; absent: it does not expire.
    pub expires_at: Option<i64>,
    /// How many times it was claimed.
    pub attempts: u8,
    /// How many times it is delivered before it is a dead letter, where it says so itself; `None`: as its topic says.
    pub max_attempts: Option<u8>,
    /// How long a claim of it hides it, where it says so itself, as `5m`; `None`: as its topic says.
    pub visibility_timeout: Option<String>,
    /// By which rule it comes again; `None`: it comes once.
    pub repeat: Option<RepeatRule>,
    /// How many times it was redriven; a redrive sets `attempts` back.
    #[serde(default)]
    pub redrives: u16,
    /// The payload, if it is UTF-8.
    pub payload: Option<String>,
    /// The payload, if it is not.
    pub payload_base64: Option<String>,
    /// The headers of the enqueue.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// How many milliseconds the due time that was asked for was past already; absent: it was not.
    pub late_by_ms: Option<u64>,
    /// Its home.
    pub shard: u32,
    /// What it is now, for [`cancel_if`](crate::Client::cancel_if); absent while it is claimed, and of a dead letter.
    pub version: Option<String>,
    /// Of a dead letter.
    pub death: Option<Death>,
    /// What it was before somebody edited it; absent: nobody did.
    pub previous: Option<Previous>,
}

/// What a message was before it was edited, as a dead letter that was redriven with another payload.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Previous {
    /// Milliseconds since the Unix epoch.
    pub edited_at: i64,
    /// Bytes of the former payload.
    pub bytes: u64,
    /// The former payload, if it is UTF-8 and not longer than 8 KiB.
    pub payload: Option<String>,
    /// The former payload, if it is not UTF-8 and not longer than 8 KiB.
    pub payload_base64: Option<String>,
}

impl Previous {
    /// The header that keeps it, of a message that is enqueued again as it was read.
    #[must_use]
    pub fn header(&self) -> (String, String) {
        let Self { edited_at, bytes, payload, payload_base64 } = self;
        let is_kept = payload.is_some() || payload_base64.is_some();
        let former = is_kept.then(|| bytes_of(payload.as_deref(), payload_base64.as_deref()).into());
        let kept =
            duetime_core::Previous { edited_at: Timestamp::from_millis(*edited_at), bytes: *bytes, payload: former };
        (PREVIOUS.to_owned(), kept.value())
    }
}

/// Where a message is and what happens to it next.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explained {
    /// The message.
    pub id: String,
    /// How many milliseconds the due time that was asked for was past already; absent: it was not.
    pub late_by_ms: Option<u64>,
    /// Its home.
    pub shard: u32,
    /// The cluster slot of its home, where the store is Redis.
    pub slot: Option<u16>,
    /// The ZSET in Redis, where the store is that.
    pub key: Option<String>,
    /// The file of the embedded store, where the store is that and the token has the scope `admin`.
    pub file: Option<String>,
    /// `scheduled`, `in_flight` or `dead`.
    pub state: String,
    /// The due time it was given.
    pub due_at: i64,
    /// When it may be claimed (again).
    pub visible_at: i64,
    /// How many times it was claimed.
    pub attempts: u8,
    /// How many times it was redriven; a redrive sets `attempts` back.
    #[serde(default)]
    pub redrives: u16,
    /// How often it may be.
    pub max_attempts: u8,
    /// How long its next claim hides it, where that asks for no other, as `30s`; `None`: the node is of an earlier version.
    pub visibility_timeout: Option<String>,
    /// Who says so: `message` or `topic`.
    pub visibility_from: Option<String>,
    /// In words.
    pub next: String,
}

/// A claimed message.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClaimedMessage {
    /// Its id.
    pub id: String,
    /// The payload, if it is UTF-8.
    pub payload: Option<String>,
    /// The payload, if it is not.
    pub payload_base64: Option<String>,
    /// The headers of the enqueue.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The due time it was given.
    pub due_at: i64,
    /// Which attempt this is, from 1.
    pub attempt: u8,
    /// The same for every attempt of one life of the message, another one for another life: for dedupe.
    #[serde(default)]
    pub delivery_id: String,
    /// When others may have it, by the store's clock, milliseconds since the Unix epoch; absent where nothing is to be
    /// settled.
    pub deadline: Option<i64>,
    /// The span that handling it belongs to, as W3C Trace Context writes it; absent where none was given.
    pub traceparent: Option<String>,
    /// Proof of the claim.
    pub receipt: String,
}

/// What a claim brought.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Claimed {
    /// What was due; empty: nothing fell due.
    pub messages: Vec<ClaimedMessage>,
    /// Of each receipt that was to be acked, in order: `ok`, `already`, `cancelled`, `expired` or `gone`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<Answer<Outcome>>,
    /// Why nothing could be claimed after the acks.
    pub error: Option<Problem>,
}

impl ClaimedMessage {
    /// The payload, bit for bit.
    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        bytes_of(self.payload.as_deref(), self.payload_base64.as_deref())
    }

    /// The headers of the span that handling it belongs to, for a propagator of OpenTelemetry: `traceparent`, and the
    /// `tracestate` of its producer where that belongs to the same span. Empty where there is none.
    #[must_use]
    pub fn trace_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let Some(traceparent) = &self.traceparent else { return headers };
        let mut insert = |name: &'static str, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        };
        insert("traceparent", traceparent);
        // A delivery that the node records is a span of its own, of which the tracestate of the producer says nothing. The
        // flags, of which the node keeps those that it knows, are no part of a span's name.
        let span = |traceparent: &str| traceparent.rsplit_once('-').map(|(span, _)| span.to_owned());
        let producer = self.headers.get("traceparent").and_then(|producer| span(producer));
        if let Some(state) =
            self.headers.get("tracestate").filter(|_| producer.is_some() && producer == span(traceparent))
        {
            insert("tracestate", state);
        }
        headers
    }
}

impl Message {
    /// The payload, bit for bit.
    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        bytes_of(self.payload.as_deref(), self.payload_base64.as_deref())
    }
}

fn bytes_of(text: Option<&str>, base64: Option<&str>) -> Vec<u8> {
    match (text, base64) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(base64)) => STANDARD.decode(base64).unwrap_or_default(),
        (None, None) => Vec::new(),
    }
}

/// One page of dead letters.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeadPage {
    /// Shard by shard, oldest first.
    pub messages: Vec<Message>,
    /// Names the next page; absent: this was the last.
    pub next: Option<String>,
}

/// What a redrive or purge did.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeadDone {
    /// Dead letters acted on.
    pub done: u64,
    /// The time was up before all were: ask again.
    #[serde(default)]
    pub more: bool,
    /// The fewest replicas of Redis that have what was done, where `store.durability` waits for them.
    pub replicas: Option<u32>,
    /// For each id, in order.
    pub results: Option<Vec<DeadOutcome>>,
}

/// What became of one dead letter.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeadOutcome {
    /// The message, where its id could be read.
    pub id: Option<String>,
    /// `redriven`, `purged`, `unknown`, `refused`, `failed`, `duplicate` or `changed`.
    pub outcome: String,
    /// Why it was refused, why nothing was done or more than was asked for, or why it failed: then it may be sent
    /// again.
    pub detail: Option<String>,
}
