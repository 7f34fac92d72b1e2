//! The last hand-overs at a node, for people who look at one message: in memory, with a bound, and gone with the node.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::message::Nonce;
use crate::names::{MessageId, TopicName};
use crate::time::Timestamp;
use crate::tracer::HandOverOutcome;

/// Hand-overs that are kept of those that succeeded, and as many of those that failed: a herd that is delivered does
/// not push out why another message was not.
pub const PAST_HAND_OVERS_MAX: usize = 4096;

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
}

/// See the module.
#[derive(Debug, Default)]
pub struct PastHandOvers(Mutex<Rings>);

#[derive(Debug, Default)]
struct Rings {
    succeeded: VecDeque<PastHandOver>,
    failed: VecDeque<PastHandOver>,
    /// When the last one ended that is not kept any more.
    forgotten: Option<Timestamp>,
}

impl PastHandOvers {
    fn rings(&self) -> MutexGuard<'_, Rings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps one, in place of the oldest where there are too many.
    pub fn note(&self, one: PastHandOver) {
        let mut rings = self.rings();
        let failed = matches!(one.outcome, HandOverOutcome::Failed { .. });
        let ring = if failed { &mut rings.failed } else { &mut rings.succeeded };
        let oldest = if ring.len() >= PAST_HAND_OVERS_MAX { ring.pop_front() } else { None };
        ring.push_back(one);
        rings.forgotten = rings.forgotten.max(oldest.map(|oldest| oldest.at));
    }

    /// Those of a message, the oldest first. O(kept).
    #[must_use]
    pub fn of(&self, topic: &TopicName, id: &MessageId) -> Vec<PastHandOver> {
        let rings = self.rings();
        let all = rings.succeeded.iter().chain(&rings.failed);
        let mut found: Vec<PastHandOver> = all.filter(|one| one.id == *id && one.topic == *topic).cloned().collect();
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

    #[test]
    fn a_herd_that_is_delivered_does_not_push_out_why_another_message_was_not() {
        let past = PastHandOvers::default();
        let note = |id: &str, at: i64, outcome| {
            past.note(PastHandOver {
                topic: TopicName::new("orders").unwrap(),
                id: MessageId::new(id).unwrap(),
                nonce: Nonce(1),
                due_at: Timestamp::from_millis(0),
                attempt: 1,
                at: Timestamp::from_millis(at),
                took: Duration::ZERO,
                lateness: Duration::ZERO,
                outcome,
            });
        };
        let of = |id: &str| past.of(&TopicName::new("orders").unwrap(), &MessageId::new(id).unwrap());
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
}
