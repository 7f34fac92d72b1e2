//! One thing that a client, a target or the test itself saw.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};

/// A short number for a payload: equal payloads have equal ones.
#[must_use]
pub fn digest(payload: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    payload.hash(&mut hasher);
    hasher.finish()
}

/// What a producer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "change")]
pub enum Change {
    /// Schedule it, with this payload.
    Enqueue {
        /// When.
        due_at_ms: i64,
        /// Of what.
        payload: u64,
    },
    /// Take it back.
    Cancel,
    /// Give it another time.
    Reschedule {
        /// When.
        due_at_ms: i64,
    },
    /// Bring a dead letter back.
    Redrive,
}

/// What a target, or a consumer's ack, made of one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The target has it.
    Accepted,
    /// Try again; it costs an attempt.
    Retry,
    /// Try again; it may be the target's own matter, and then it costs none.
    Unavailable,
    /// Refused for good.
    Rejected,
    /// Nobody knows: whoever settled it had no answer, and was refused when they tried again. It may be any of these.
    Unknown,
}

/// What can make a duplicate, or cost an attempt without a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A node was killed.
    NodeKilled,
    /// A node was stalled.
    NodeStalled,
    /// The store was killed or restarted.
    StoreStopped,
    /// The store was killed, and what it answered in the last moments before may not be on its disk.
    StoreKilledUnsaved,
    /// The store was stalled.
    StoreStalled,
    /// The network was cut, or lost answers.
    NetworkFailed,
    /// The target failed after it had taken something.
    TargetFailed,
}

/// One thing that a client, a target or the test itself saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum What {
    /// A change was asked for. The next [`What::Answered`] or [`What::Unanswered`] of the id is its end.
    Invoked(Change),
    /// It was answered with this word: `scheduled`, `replaced`, `duplicate`, `cancelled`,
    /// `in_flight`, `unknown`, `dead`, `rescheduled`, `redriven`.
    Answered {
        /// The outcome's word.
        outcome: String,
    },
    /// It was not answered, or with an error: whether it took place is unknown.
    Unanswered,
    /// A consumer's claim, or a request that reached the target.
    Handed {
        /// As said with it, from 1.
        attempt: u8,
        /// What came.
        payload: u64,
        /// Until when nobody else may have it; `None`: not known.
        until_ms: Option<i64>,
    },
    /// What became of the delivery of this attempt.
    Settled {
        /// Which.
        attempt: u8,
        /// What.
        outcome: Outcome,
    },
    /// It was seen among the dead letters.
    Dead {
        /// As said with it.
        attempts: u8,
        /// As said with it.
        reason: String,
    },
    /// A fault begins. Its event has no topic and no id.
    FaultBegins(FaultFields),
    /// It ends.
    FaultEnds(FaultFields),
}

/// Which fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultFields {
    /// Its kind.
    pub kind: FaultKind,
}

/// One thing that a client, a target or the test itself saw. one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// The topic.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub topic: String,
    /// The message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}
