//! What happened to messages at a node, for people who look at one: in memory, with a bound, and gone with the node.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::message::Nonce;
use crate::names::{MessageId, TopicName};
use crate::time::Timestamp;
use crate::tracer::HandOverOutcome;

/// Hand-overs that are kept of those that succeeded, and as many of those that failed: a herd that is delivered does
/// not push out why another message was not. Settlements likewise: see [`PAST_SETTLEMENTS_MAX`].
pub const PAST_HAND_OVERS_MAX: usize = 4096;

/// Settlements that are kept of acks and extensions that took effect, and as many of all others.
pub const PAST_SETTLEMENTS_MAX: usize = 4096;

/// A hand-over that has ended.
#[derive(Clone, Debug)]
pub struct PastHandOver {
    /// The topic.
    pub topic: TopicName,
    /// The message.
    pub id: MessageId,
    /// Of the enqueue.
    pub nonce: Nonce,
    /// The due time it was given.
    pub due_at: Timestamp,
    /// From 1.
    pub attempt: u8,
    /// When it ended.
    pub at: Timestamp,
    /// How long it took.
    pub took: Duration,
    /// How late the message was when it ended.
    pub lateness: Duration,
    /// How it ended.
    pub outcome: HandOverOutcome,
    /// The name of the token that claimed it; `None`: none was asked for, or a sink was handed it.
    pub by: Option<Arc<str>>,
}

/// What a consumer asked for with a receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PastAsk {
    /// It is done.
    Ack,
    /// Again after this long (`None`: after the topic's backoff), for this reason.
    Nack(Option<Duration>, Option<Arc<str>>),
    /// A dead letter at once, for this reason.
    Bury(Option<Arc<str>>),
    /// More time: hidden until then, where it was given.
    Extend(Option<Timestamp>),
}

/// What a consumer was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PastVerdict {
    /// As asked.
    Ok,
    /// The receipt proved nothing any more.
    Expired,
    /// The message was not there any more.
    Gone,
}

/// An ack, nack or extension by a consumer.
#[derive(Clone, Debug)]
pub struct PastSettlement {
    /// The topic.
    pub topic: TopicName,
    /// The message.
    pub id: MessageId,
    /// Which attempt the receipt is of, from 1; 0: of a message that was removed as it was claimed.
    pub attempt: u8,
    /// When it was answered.
    pub at: Timestamp,
    /// What was asked for.
    pub asked: PastAsk,
    /// What was answered.
    pub verdict: PastVerdict,
    /// The name of the token; `None`: none was asked for.
    pub by: Option<Arc<str>>,
}

impl PastSettlement {
    /// Whether it is one of those of which each message that is consumed well has some.
    fn is_common(&self) -> bool {
        matches!((&self.asked, self.verdict), (PastAsk::Ack | PastAsk::Extend(_), PastVerdict::Ok))
    }
}

/// What happened to messages at a node, for people who look at one: in memory, with a bound, and gone with the node.
#[derive(Debug, Default)]
pub struct Past(Mutex<Rings>);

#[derive(Debug, Default)]
struct Rings {
    succeeded: VecDeque<PastHandOver>,
    failed: VecDeque<PastHandOver>,
    settled: VecDeque<PastSettlement>,
    refused: VecDeque<PastSettlement>,
    /// When the last one ended that is not kept any more.
    forgotten: Option<Timestamp>,
}

/// Adds one; answers the oldest where there are too many.
fn push<T>(ring: &mut VecDeque<T>, one: T, max: usize) -> Option<T> {
    let oldest = if ring.len() >= max { ring.pop_front() } else { None };
    ring.push_back(one);
    oldest
}

impl Past {
    fn rings(&self) -> MutexGuard<'_, Rings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps hand-overs, in place of the oldest where there are too many.
    pub fn note(&self, some: impl IntoIterator<Item = PastHandOver>) {
        let mut rings = self.rings();
        for one in some {
            let failed = matches!(one.outcome, HandOverOutcome::Failed { .. });
            let ring = if failed { &mut rings.failed } else { &mut rings.succeeded };
            let oldest = push(ring, one, PAST_HAND_OVERS_MAX);
            rings.forgotten = rings.forgotten.max(oldest.map(|oldest| oldest.at));
        }
    }

    /// Keeps settlements, in place of the oldest where there are too many.
    pub fn note_settled(&self, some: impl IntoIterator<Item = PastSettlement>) {
        let mut rings = self.rings();
        for one in some {
            let ring = if one.is_common() { &mut rings.settled } else { &mut rings.refused };
            let oldest = push(ring, one, PAST_SETTLEMENTS_MAX);
            rings.forgotten = rings.forgotten.max(oldest.map(|oldest| oldest.at));
        }
    }

    /// The hand-overs of a message, the oldest first. O(kept).
    #[must_use]
    pub fn hand_overs(&self, topic: &TopicName, id: &MessageId) -> Vec<PastHandOver> {
        let rings = self.rings();
        let all = rings.succeeded.iter().chain(&rings.failed);
        let mut found: Vec<PastHandOver> = all.filter(|one| one.id == *id && one.topic == *topic).cloned().collect();
        found.sort_by_key(|one| one.at);
        found
    }

    /// What consumers did with receipts of a message, the oldest first. O(kept).
    #[must_use]
    pub fn settlements(&self, topic: &TopicName, id: &MessageId) -> Vec<PastSettlement> {
        let rings = self.rings();
        let all = rings.settled.iter().chain(&rings.refused);
        let mut found: Vec<PastSettlement> = all.filter(|one| one.id == *id && one.topic == *topic).cloned().collect();
        found.sort_by_key(|one| one.at);
        found
    }

    /// Some that ended up to this moment are not kept any more; `None`: all since the node started are.
    #[must_use]
    pub fn forgotten(&self) -> Option<Timestamp> {
        self.rings().forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders() -> TopicName {
        TopicName::new("orders").unwrap()
    }

    #[test]
    fn a_herd_that_is_delivered_does_not_push_out_why_another_message_was_not() {
        let past = Past::default();
        let note = |id: &str, at: i64, outcome| {
            past.note([PastHandOver {
                topic: orders(),
                id: MessageId::new(id).unwrap(),
                nonce: Nonce(1),
                due_at: Timestamp::from_millis(0),
                attempt: 1,
                at: Timestamp::from_millis(at),
                took: Duration::ZERO,
                lateness: Duration::ZERO,
                outcome,
                by: None,
            }]);
        };
        let of = |id: &str| past.hand_overs(&orders(), &MessageId::new(id).unwrap());
        let failed = HandOverOutcome::Failed { kind: "retry", reason: "503".to_owned(), free: false };
        note("a", 1, failed);
        note("a", 2, HandOverOutcome::Accepted);
        assert_eq!(of("a").iter().map(|one| one.at.as_millis()).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(past.forgotten(), None);
        for n in 0..PAST_HAND_OVERS_MAX {
            note(&format!("herd-{n}"), 3, HandOverOutcome::Accepted);
        }
        assert_eq!(of("a").len(), 1, "the failure is kept");
        assert_eq!(past.forgotten(), Some(Timestamp::from_millis(2)));
    }

    #[test]
    fn acks_and_extensions_do_not_push_out_why_a_consumer_gave_a_message_back() {
        let past = Past::default();
        let note = |id: &str, at: i64, asked, verdict| {
            past.note_settled([PastSettlement {
                topic: orders(),
                id: MessageId::new(id).unwrap(),
                attempt: 1,
                at: Timestamp::from_millis(at),
                asked,
                verdict,
                by: None,
            }]);
        };
        note("a", 1, PastAsk::Extend(None), PastVerdict::Ok);
        note("a", 2, PastAsk::Nack(None, Some("busy".into())), PastVerdict::Ok);
        note("a", 3, PastAsk::Ack, PastVerdict::Expired);
        for n in 0..PAST_SETTLEMENTS_MAX {
            note(&format!("herd-{n}"), 4, PastAsk::Ack, PastVerdict::Ok);
        }
        let kept = past.settlements(&orders(), &MessageId::new("a").unwrap());
        let kept: Vec<_> = kept.iter().map(|one| (one.at.as_millis(), one.verdict)).collect();
        assert_eq!(kept, [(2, PastVerdict::Ok), (3, PastVerdict::Expired)]);
        assert_eq!(past.forgotten(), Some(Timestamp::from_millis(1)));
    }
}
