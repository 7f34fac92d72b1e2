//! Writes the answers of many items straight into bytes, as `{"results":[…]}` or one per line.

use std::io::Write as _;
use std::sync::Arc;

use duetime_core::Timestamp;
use duetime_core::store::EnqueueOutcome;
use duetime_router::{Placed, RouteError};
use serde::Serialize;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::audit::Entry;
use crate::json::became::BecameView;
use crate::json::codes::is_retryable;
use crate::json::problem::Refusal;
use crate::json::schema;
use crate::routes::view::OutcomeView;

/// An answer that has so many bytes explains no more: with its bound of items it ends below 64 MiB.
const SHORT_AFTER_BYTES: usize = 8 << 20;

/// About what the answer of one item takes; more makes the buffer grow.
const ITEM_BYTES: usize = 64;
/// An answer begins with no larger buffer than this.
const FIRST_BYTES_MAX: usize = 64 << 10;

/// What is said instead.
const SHORT: &str = "not explained: the answer is long already; send fewer at once";

/// How answers are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `{"results":[…]}`.
    Object,
    /// `[…]`.
    Array,
    /// One JSON object a line.
    Lines,
}

/// Why one item of many was refused or failed.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct ItemProblem<'a> {
    /// Stable word for programs.
    #[schema(value_type = schema::Code)]
    pub code: &'a str,
    /// The field to blame.
    pub field: Option<&'a str>,
    /// What is wrong and what to do, for people.
    pub detail: &'a str,
    /// The same item may be done later, without anybody doing anything else.
    pub retryable: bool,
    /// Which item of the request it was, from 0.
    pub index: u64,
    /// Which line of the request it was, from 1. NDJSON only.
    pub line: Option<u64>,
}

/// An item that was refused or failed.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct ItemError<'a> {
    /// Its id, where it could be read.
    pub id: Option<&'a str>,
    pub error: ItemProblem<'a>,
}

/// What became of one message.
#[derive(ToSchema)]
#[schema(as = Placed)]
#[allow(dead_code)]
pub(crate) struct PlacedView {
    id: String,
    outcome: schema::PlacedOutcome,
    /// Milliseconds since the Unix epoch; of a duplicate, where the store knows it.
    due_at: Option<i64>,
    /// How many milliseconds later than asked for that is, where the topic has a `smear`; not of a duplicate.
    smeared_ms: Option<u64>,
    /// How many milliseconds the `due_at` that was asked for was past already; absent: it was not.
    late_by_ms: Option<u64>,
    /// Only where it is true: it was replaced while somebody held it, who may be delivering what it was.
    in_flight: Option<bool>,
    shard: u32,
    /// Replicas of Redis that have it, where `store.durability` waits for them.
    replicas: Option<u32>,
    /// What became of the message that had this id, where it is gone and its topic remembers: of a `duplicate`, and of
    /// `cancelled_before`.
    became: Option<BecameView>,
}

/// One of many answers: an outcome or an error.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code)]
pub(crate) enum OutcomeItem {
    Outcome(OutcomeView<'static>),
    Error(ItemError<'static>),
}

/// Answers in the order of the request.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct Outcomes {
    results: Vec<OutcomeItem>,
}

/// Gathers answers in order.
pub(crate) struct Results {
    style: Style,
    out: Vec<u8>,
    index: u64,
    /// Counts what is answered.
    entry: Option<Arc<Entry>>,
}

impl Results {
    /// `items`: how many there will be, as far as that is known.
    pub fn new(style: Style, items: usize) -> Self {
        let out = Vec::with_capacity((ITEM_BYTES * (items + 1)).min(FIRST_BYTES_MAX));
        let mut results = Self { style, out, index: 0, entry: Entry::current() };
        results.out.extend_from_slice(match style {
            Style::Object => b"{\"results\":[",
            Style::Array => b"[",
            Style::Lines => b"",
        });
        results
    }

    fn begin_item(&mut self) {
        if self.style != Style::Lines && self.index > 0 {
            self.out.push(b',');
        }
    }

    fn end_item(&mut self) {
        if self.style == Style::Lines {
            self.out.push(b'\n');
        }
        self.index += 1;
        if let Some(entry) = &self.entry {
            entry.count(1, 0);
        }
    }

    /// Any answer.
    pub fn item(&mut self, answer: &impl Serialize) {
        self.begin_item();
        serde_json::to_writer(&mut self.out, answer).expect("answers are plain data");
        self.end_item();
    }

    /// An item that was refused or failed.
    pub fn refused(&mut self, id: Option<&str>, refusal: &Refusal, line: Option<u64>) {
        let (field, index) = (refusal.field.as_deref(), self.index);
        let detail = if self.out.len() < SHORT_AFTER_BYTES { &*refusal.detail } else { SHORT };
        let retryable = is_retryable(refusal.code);
        let error = ItemProblem { code: refusal.code, field, detail, retryable, index, line };
        self.item(&ItemError { id, error });
        if let Some(entry) = &self.entry {
            entry.count(0, 1);
        }
    }

    /// What became of one enqueue. The commonest answer, so it is written by hand.
    pub fn placed(
        &mut self,
        (id, late_by_ms): (&str, Option<u64>),
        answer: &Result<Placed, RouteError>,
        line: Option<u64>,
    ) {
        match answer {
            Ok(placed) => {
                self.begin_item();
                write_placed(&mut self.out, (id, late_by_ms), placed);
                self.end_item();
            }
            Err(error) => self.refused(Some(id), &Refusal::from(error), line),
        }
    }

    /// Leaves a line in the audit log of a stream that goes on at `now`.
    pub fn goes_on(&self, now: Timestamp) {
        if let Some(entry) = &self.entry {
            entry.goes_on(now);
        }
    }

    /// What was gathered since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// The rest, with whatever closes the answer.
    pub fn finish(mut self) -> Vec<u8> {
        self.out.extend_from_slice(match self.style {
            Style::Object => b"]}",
            Style::Array => b"]",
            Style::Lines => b"",
        });
        self.out
    }
}

/// The word users see.
pub(crate) fn outcome_word(outcome: EnqueueOutcome) -> &'static str {
    match outcome {
        EnqueueOutcome::Scheduled => "scheduled",
        EnqueueOutcome::Replaced | EnqueueOutcome::ReplacedInFlight => "replaced",
        EnqueueOutcome::Kept => "kept",
        EnqueueOutcome::Duplicate => "duplicate",
        EnqueueOutcome::CancelledBefore => "cancelled_before",
    }
}

/// `{"id":…,"outcome":…,"due_at":…,"smeared_ms":…,"late_by_ms":…,"in_flight":…,"shard":…,"became":…}`; no due time where the store does not know it.
pub(crate) fn write_placed(out: &mut Vec<u8>, (id, late_by_ms): (&str, Option<u64>), placed: &Placed) {
    const INFALLIBLE: &str = "memory can be written";
    out.extend_from_slice(b"{\"id\":");
    serde_json::to_writer(&mut *out, id).expect(INFALLIBLE);
    write!(out, ",\"outcome\":\"{}\"", outcome_word(placed.outcome)).expect(INFALLIBLE);
    let is_unchanged = placed.outcome.is_unchanged();
    if placed.due_at.as_millis() != 0 || !is_unchanged {
        write!(out, ",\"due_at\":{}", placed.due_at.as_millis()).expect(INFALLIBLE);
    }
    if let Some(smeared) = placed.smeared {
        write!(out, ",\"smeared_ms\":{}", smeared.as_millis()).expect(INFALLIBLE);
    }
    if let Some(late) = late_by_ms.filter(|_| !is_unchanged) {
        write!(out, ",\"late_by_ms\":{late}").expect(INFALLIBLE);
    }
    if placed.outcome == EnqueueOutcome::ReplacedInFlight {
        out.extend_from_slice(b",\"in_flight\":true");
    }
    write!(out, ",\"shard\":{}", placed.shard).expect(INFALLIBLE);
    if let Some(replicas) = placed.replicas {
        write!(out, ",\"replicas\":{replicas}").expect(INFALLIBLE);
    }
    if let Some(became) = &placed.became {
        out.extend_from_slice(b",\"became\":");
        serde_json::to_writer(&mut *out, &BecameView::new(became)).expect(INFALLIBLE);
    }
    out.push(b'}');
}
