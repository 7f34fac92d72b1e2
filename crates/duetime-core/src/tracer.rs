//! The contract of what records deliveries as spans of traces.
//!
//! Upstream: whoever hands a message over, to a sink or to a consumer. A message waits for hours or days, so nothing is
//! open meanwhile: each attempt is a trace of its own, whose span links to the one that made the message and to the
//! attempt before. Its ids are computed from the message ([`attempt_span`]), so nothing is stored for it, and every
//! node finds the same.

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use crate::message::{Headers, Nonce};
use crate::names::{MessageId, TopicName};
use crate::sink::Delivery;
use crate::time::Timestamp;
use crate::trace::SpanRef;

/// Of the hashes that ids of traces and of spans are.
const SEEDS: (u32, u32) = (0x7472_6163, 0x7370_616e);

/// Which attempt of which message, borrowed from whoever has it.
#[derive(Clone, Copy, Debug)]
pub struct AttemptOf<'a> {
    /// The topic.
    pub topic: &'a TopicName,
    /// The message.
    pub id: &'a MessageId,
    /// Of the enqueue.
    pub nonce: Nonce,
    /// The due time it was given.
    pub due_at: Timestamp,
    /// From 1.
    pub attempt: u8,
    /// The message's.
    pub headers: &'a Headers,
}

impl<'a> From<&'a Delivery> for AttemptOf<'a> {
    fn from(delivery: &'a Delivery) -> Self {
        let Delivery { topic, id, nonce, due_at, attempt, headers, .. } = delivery;
        Self { topic, id, nonce: *nonce, due_at: *due_at, attempt: *attempt, headers }
    }
}

/// What the ids of an attempt are hashes of.
fn named(of: AttemptOf<'_>) -> Vec<u8> {
    let [topic, id] = [of.topic.as_str(), of.id.as_str()].map(str::as_bytes);
    let mut text = Vec::with_capacity(topic.len() + id.len() + 18);
    text.extend_from_slice(&of.nonce.0.to_be_bytes());
    text.extend_from_slice(&of.due_at.as_millis().to_be_bytes());
    text.push(of.attempt);
    text.extend_from_slice(topic);
    // No name of a topic has this in it.
    text.push(0);
    text.extend_from_slice(id);
    text
}

fn hash(named: &[u8], seed: u32) -> u128 {
    murmur3::murmur3_x64_128(&mut Cursor::new(named), seed).expect("memory can be read")
}

/// Id of the trace of one attempt: that of [`attempt_span`], for who needs no more of it.
#[must_use]
pub fn attempt_trace(of: AttemptOf<'_>) -> u128 {
    hash(&named(of), SEEDS.0).max(1)
}

/// Ids of the span of one attempt. A redrive counts attempts from 1 again and keeps the due time: its
/// attempts are in the traces of those before it.
#[must_use]
pub fn attempt_span(of: AttemptOf<'_>) -> SpanRef {
    let named = named(of);
    let span_id = u64::try_from(hash(&named, SEEDS.1) >> 64).expect("64 bits");
    SpanRef { trace_id: hash(&named, SEEDS.0).max(1), span_id: span_id.max(1), sampled: false }
}

/// How a delivery ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The sink's target took it.
    Accepted,
    /// A consumer has it; how that ends, its own spans say.
    Claimed,
    /// Not this time.
    Failed {
        /// What kind of failure.
        kind: &'static str,
        /// Why, for the operator. Never a credential.
        reason: String,
        /// It cost no attempt: the same attempt will be delivered again.
        free: bool,
    },
}

/// A delivery that has ended: what its span says.
#[derive(Clone, Debug)]
pub struct DeliveryEnd {
    /// The topic.
    pub topic: TopicName,
    /// The message.
    pub id: MessageId,
    /// As [`crate::sink::delivery_id`].
    pub delivery_id: String,
    /// The shard it was in.
    pub shard: u32,
    /// Name of the sink; `None`: a consumer claimed it.
    pub sink: Option<Arc<str>>,
    /// The due time it was given.
    pub due_at: Timestamp,
    /// From 1.
    pub attempt: u8,
    /// Ids of the span of this attempt.
    pub span: SpanRef,
    /// Ids of the attempt before.
    pub before: Option<SpanRef>,
    /// The span that made the message.
    pub creator: Option<SpanRef>,
    /// How long it took.
    pub took: Duration,
    /// How long ago it ended.
    pub ago: Duration,
    /// How late the message was when it ended.
    pub lateness: Duration,
    /// How it ended.
    pub outcome: DeliveryOutcome,
}

impl DeliveryEnd {
    /// The end of an attempt whose span is `span`.
    #[must_use]
    pub fn new(of: AttemptOf<'_>, span: SpanRef, shard: u32, outcome: DeliveryOutcome) -> Self {
        let before = (of.attempt > 1).then(|| attempt_span(AttemptOf { attempt: of.attempt - 1, ..of }));
        Self {
            topic: of.topic.clone(),
            id: of.id.clone(),
            delivery_id: crate::sink::delivery_id(of.topic, of.id, of.nonce),
            shard,
            sink: None,
            due_at: of.due_at,
            attempt: of.attempt,
            span,
            before,
            creator: of.headers.creator(),
            took: Duration::ZERO,
            ago: Duration::ZERO,
            lateness: Duration::ZERO,
            outcome,
        }
    }
}

/// Records deliveries. Never waits, and what it cannot take it counts and drops.
pub trait Tracer: Send + Sync + std::fmt::Debug + 'static {
    /// Decides whether the delivery of an attempt that begins `now` is recorded: its span, else `None`. What is late is.
    /// Of most nothing is recorded, so no more is computed for these than the decision needs.
    fn sample(&self, of: AttemptOf<'_>, lateness: Duration, now: Timestamp) -> Option<SpanRef>;

    /// Whether the end of a delivery is to be reported: of what was decided to be recorded, or failed.
    fn wants(&self, span: &SpanRef, failed: bool) -> bool;

    /// Records the end of a delivery.
    fn end(&self, ended: DeliveryEnd);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_attempt_of_each_life_has_ids_of_its_own_and_every_node_computes_the_same() {
        let (headers, topic) = (Headers::default(), TopicName::new("orders").unwrap());
        let mut seen = HashSet::new();
        for id in ["a", "b"].map(|id| MessageId::new(id).unwrap()) {
            for nonce in [Nonce(1), Nonce(2)] {
                for (due_ms, attempt) in [(0, 1), (0, 2), (1, 1)] {
                    let due_at = Timestamp::from_millis(due_ms);
                    let of = AttemptOf { topic: &topic, id: &id, nonce, due_at, attempt, headers: &headers };
                    let span = attempt_span(of);
                    assert_eq!((span, span.trace_id), (attempt_span(of), attempt_trace(of)));
                    assert!(seen.insert(span.trace_id) && span.trace_id != 0 && span.span_id != 0);
                    let ended = DeliveryEnd::new(of, span, 0, DeliveryOutcome::Claimed);
                    let before = (attempt == 2).then(|| attempt_span(AttemptOf { attempt: 1, ..of }));
                    assert_eq!(ended.before, before, "the attempt before is known without asking anybody");
                }
            }
        }
    }
}
