//! What answers look like.

use std::borrow::Cow;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duetime_core::units::show_duration;
use duetime_core::{
    Expiry, Headers, PREVIOUS, Previous, SinkDown, StoredMessage, Timestamp, TopicConfig, max_attempts, own_visibility,
};
use duetime_router::TopicCounts;
use serde::Serialize;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::json::became::BecameView;
use crate::json::repeat::RepeatView;
use crate::json::schema;
use crate::json::setting_schema::TopicSettings;
use crate::routes::pause_view::PauseView;
use crate::routes::sinks::SinkIssueView;

/// The headers of a message that is read, as a JSON object, in order; without its former payload where that is shown by
/// itself.
struct HeadersView<'a> {
    headers: &'a Headers,
    has_previous: bool,
}

impl Serialize for HeadersView<'_> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let shown = self.headers.iter().filter(|(name, _)| !self.has_previous || *name != PREVIOUS);
        to.collect_map(shown)
    }
}

/// The headers that a consumer or a sink sees, as a JSON object.
pub(crate) struct ShownHeaders<'a>(pub &'a Headers);

impl Serialize for ShownHeaders<'_> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.delivered())
    }
}

/// A payload: a string where it is UTF-8, else base64.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct PayloadView<'a> {
    /// The payload, if it is UTF-8.
    #[schema(value_type = Option<String>)]
    payload: Option<&'a str>,
    /// The payload, if it is not.
    payload_base64: Option<String>,
}

impl<'a> From<&'a [u8]> for PayloadView<'a> {
    fn from(payload: &'a [u8]) -> Self {
        match std::str::from_utf8(payload) {
            Ok(text) => Self { payload: Some(text), payload_base64: None },
            Err(_) => Self { payload: None, payload_base64: Some(STANDARD.encode(payload)) },
        }
    }
}

/// Why and when a message died.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeathView<'a> {
    /// Milliseconds since the Unix epoch.
    at: i64,
    /// Why.
    #[schema(value_type = String)]
    reason: &'a str,
}

/// What a message was before it was edited, as a dead letter that was redriven with another payload.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct PreviousView {
    /// Milliseconds since the Unix epoch.
    edited_at: i64,
    /// Of the former payload.
    bytes: u64,
    /// The former payload, if it is UTF-8 and not longer than 8 KiB.
    payload: Option<String>,
    /// The former payload, if it is not UTF-8 and not longer than 8 KiB.
    payload_base64: Option<String>,
}

impl From<Previous> for PreviousView {
    fn from(previous: Previous) -> Self {
        let Previous { edited_at, bytes, payload } = previous;
        let (text, raw) = match payload.map(|payload| String::from_utf8(payload.into())) {
            Some(Ok(text)) => (Some(text), None),
            Some(Err(raw)) => (None, Some(STANDARD.encode(raw.as_bytes()))),
            None => (None, None),
        };
        Self { edited_at: edited_at.as_millis(), bytes, payload: text, payload_base64: raw }
    }
}

/// A message as its shard holds it.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct MessageView<'a> {
    #[schema(value_type = String)]
    id: &'a str,
    #[schema(value_type = schema::MessageState)]
    state: &'static str,
    /// The due time it was given, milliseconds since the Unix epoch.
    due_at: i64,
    /// When it may be claimed (again): its due time, a retry's time or a claim's deadline.
    visible_at: i64,
    /// Until when it may be handed over; absent: it does not expire.
    expires_at: Option<i64>,
    /// How many times it was claimed.
    attempts: u8,
    /// How many times it is delivered before it is a dead letter, where it says so itself; absent: as its topic says.
    max_attempts: Option<u8>,
    /// How long a claim of it by a consumer hides it, where it says so itself; absent: as its topic says.
    visibility_timeout: Option<String>,
    /// By which rule it comes again; absent: it comes once.
    repeat: Option<RepeatView>,
    /// How many times it was redriven; a redrive sets `attempts` back to 0. No more than 999 are counted.
    redrives: u16,
    #[serde(flatten)]
    payload: PayloadView<'a>,
    #[schema(value_type = std::collections::HashMap<String, String>)]
    headers: HeadersView<'a>,
    shard: u32,
    /// What it is now, for a cancel with `if_version`; absent while it is claimed, and of a dead letter.
    version: Option<String>,
    death: Option<DeathView<'a>>,
    /// What it was before somebody edited it; absent: nobody did.
    previous: Option<PreviousView>,
}

impl<'a> MessageView<'a> {
    pub fn new(message: &'a StoredMessage, shard: u32, now: Timestamp) -> Self {
        let previous = Previous::of(&message.headers).map(PreviousView::from);
        Self {
            id: message.id.as_str(),
            state: message.state.as_str(),
            due_at: message.due_at.as_millis(),
            visible_at: message.visible_at.as_millis(),
            expires_at: Expiry::of(&message.headers).map(|expiry| expiry.of_due(message.due_at).as_millis()),
            attempts: message.attempts,
            max_attempts: max_attempts::of(&message.headers),
            visibility_timeout: own_visibility::of(&message.headers).map(show_duration),
            repeat: RepeatView::of(&message.headers, message.due_at, now),
            redrives: message.redrives,
            payload: PayloadView::from(&message.payload[..]),
            headers: HeadersView { headers: &message.headers, has_previous: previous.is_some() },
            shard,
            version: message.version().map(|version| version.to_string()),
            death: message.death.as_ref().map(|death| DeathView { at: death.at.as_millis(), reason: &death.reason }),
            previous,
        }
    }
}

impl MessageView<'_> {
    /// What the caller may see of it.
    pub fn for_caller(mut self, caller: &Caller) -> Self {
        static NONE: LazyLock<Headers> = LazyLock::new(Headers::default);
        if !caller.sees_payloads() {
            self.payload = PayloadView { payload: None, payload_base64: None };
            self.headers = HeadersView { headers: &NONE, has_previous: false };
            self.previous = None;
        }
        self
    }
}

/// A topic: its settings as they apply, and its counts.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct TopicView<'a> {
    #[schema(value_type = String)]
    name: &'a str,
    #[serde(flatten)]
    #[schema(value_type = TopicSettings)]
    config: Cow<'a, TopicConfig>,
    /// How many shards it has.
    shard_count: u32,
    /// Grows by one with every change.
    version: u64,
    /// Milliseconds since the Unix epoch.
    created_at: i64,
    /// Messages nobody holds, due or not, and what is on its way between shards while their number changes. With
    /// `in_flight` and `dead` it is every message; one that has just arrived may be counted twice for a moment.
    scheduled: u64,
    /// Messages that can be claimed now: a part of `scheduled` (their time has come) and of `in_flight` (their
    /// claim ran out).
    due: u64,
    /// Messages claimed and not settled, also those whose claim ran out.
    in_flight: u64,
    /// Dead letters.
    dead: u64,
    /// When the first message that is due fell due, or, if that is earlier, when its sink was taken to be down (then also
    /// of what waits for the next try, or is tried); absent when none is due.
    oldest_due_at: Option<i64>,
    /// Shards that are not in the counts, because their server does not answer; absent when all are.
    #[serde(skip_serializing_if = "none")]
    #[schema(required = false)]
    unreachable_shards: usize,
    /// Why nothing is delivered to its sink, as the answering node sees it; absent when nothing is wrong.
    sink_issue: Option<SinkIssueView>,
    /// Why it is paused; absent when it is not, or when nothing was noted.
    pause: Option<PauseView<'a>>,
}

/// Whether to leave a count of what is missing out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(crate) fn none(count: &usize) -> bool {
    *count == 0
}

/// The same for messages.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(crate) fn zero(count: &u64) -> bool {
    *count == 0
}

impl<'a> TopicView<'a> {
    pub fn new(counts: &'a TopicCounts, sink_issue: Option<SinkIssueView>, caller: &Caller) -> Self {
        let (record, total) = (&counts.record, &counts.total);
        let down = sink_issue.as_ref().and_then(|issue| issue.down.as_ref());
        let oldest = SinkDown::oldest_due(down, total);
        Self {
            name: record.name.as_str(),
            config: Cow::Borrowed(&record.config),
            shard_count: record.routing.shards,
            version: record.version,
            created_at: record.created_at_ms,
            scheduled: total.waiting(),
            due: total.due,
            in_flight: total.in_flight,
            dead: total.dead,
            oldest_due_at: oldest.map(Timestamp::as_millis),
            unreachable_shards: counts.unreachable_shards(),
            sink_issue,
            pause: PauseView::of(record, caller),
        }
    }
}

/// One outcome.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct OutcomeView<'a> {
    #[schema(value_type = Option<String>)]
    pub id: Option<&'a str>,
    #[schema(value_type = schema::Outcome)]
    pub outcome: &'a str,
    /// The due time it has now, milliseconds since the Unix epoch. After a reschedule only.
    pub due_at: Option<i64>,
    /// How many milliseconds later than asked for that is, where the topic has a `smear`. After a reschedule only.
    pub smeared_ms: Option<u64>,
    /// How many milliseconds the `due_at` that was asked for was past already; absent: it was not.
    pub late_by_ms: Option<u64>,
    /// The receipt that counts from now on. After an extension only.
    pub receipt: Option<String>,
    /// Replicas of Redis that have it, where `store.durability` waits for them.
    pub replicas: Option<u32>,
    /// What became of the message that is gone, where its topic remembers. After a cancel only.
    pub became: Option<BecameView>,
}

impl<'a> OutcomeView<'a> {
    /// Just a word.
    pub fn word(id: Option<&'a str>, outcome: &'a str) -> Self {
        let (due_at, smeared_ms, late_by_ms) = (None, None, None);
        Self { id, outcome, due_at, smeared_ms, late_by_ms, receipt: None, replicas: None, became: None }
    }
}
