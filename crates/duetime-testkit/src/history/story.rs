//! What the checks work on: all that happened to one message, its changes with their answers, and what is found.

use serde::{Deserialize, Serialize};

use super::event::{Change, Event, What};
use super::fault::{Fault, Rules};

/// The numbers of `docs/PROTOCOL.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the protocol describes them")]
pub enum Invariant {
    I1,
    I2,
    I3,
    I4,
    I5,
    I6,
    I7,
    I8,
    I9,
    I10,
    I12,
    I13,
    I14,
    I15,
}

/// One message that is there at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Its topic.
    pub topic: String,
    /// Its id.
    pub id: String,
    /// `scheduled`, `in_flight` or `dead`.
    pub state: String,
    /// Digest of its payload.
    pub payload: u64,
    /// Reason of a dead letter.
    pub reason: Option<String>,
}

/// All that is there at the end.
#[derive(Clone, Debug, Default)]
pub struct FinalState {
    /// One entry for each message in each place it is in.
    pub left: Vec<Left>,
    /// Counts of a survey over all topics, if one was made: scheduled, in flight, dead.
    pub counts: Option<(u64, u64, u64)>,
}

/// A broken invariant with the few events that show it.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// In a sentence.
    pub says: String,
    /// The fewest events of the one message that show it.
    pub witness: Vec<Event>,
}

/// All that happened to one message.
pub(super) struct Story<'a> {
    pub topic: &'a str,
    pub id: &'a str,
    pub events: Vec<&'a Event>,
    pub left: Vec<&'a Left>,
    pub faults: &'a [Fault],
    pub rules: Rules,
}

impl Story<'_> {
    /// Whether a fault, or what follows from it, touches the time between the two moments, so that a
    /// claim may have been lost.
    pub fn may_have_lost_a_claim(&self, from_ms: i64, to_ms: i64) -> bool {
        self.faults.iter().any(|fault| fault.from_ms <= to_ms && from_ms <= fault.until_ms)
    }

    /// Whether a delivery that was made and settled at these moments was in flight at a fault that had begun
    /// when the message was delivered again.
    pub fn was_in_flight(&self, handed_ms: i64, settled_ms: i64, again_ms: i64) -> bool {
        self.faults.iter().any(|fault| fault.from_ms <= again_ms && fault.met(handed_ms, settled_ms))
    }

    /// Whether what the store was asked and answered at these moments may be undone by a fault after it.
    pub fn may_be_undone(&self, asked_ms: i64, answered_ms: i64) -> bool {
        self.faults.iter().any(|fault| fault.may_undo(asked_ms, answered_ms))
    }

    /// A violation of this story, shown by these of its events.
    pub fn broken(&self, invariant: Invariant, says: &str, witness: &[&Event]) -> Violation {
        let says = format!("{}/{}: {says}", self.topic, self.id);
        Violation { invariant, says, witness: witness.iter().map(|event| (*event).clone()).collect() }
    }

    /// Changes with their answers, in the order of their beginnings; `None`: unanswered, or answered by
    /// a store that lost it.
    pub fn changes(&self) -> Vec<Changed<'_>> {
        let mut changes: Vec<Changed<'_>> = Vec::new();
        for event in &self.events {
            match &event.what {
                What::Invoked(change) => {
                    changes.push(Changed { change: *change, began: event, ended: None, is_undone: false });
                }
                What::Answered { .. } | What::Unanswered => {
                    // A test makes one change of an id after the other.
                    if let Some(open) = changes.iter_mut().rev().find(|open| open.ended.is_none()) {
                        open.ended = Some(event);
                    }
                }
                _ => {}
            }
        }
        for change in &mut changes {
            let asked_ms = change.began.at_ms;
            change.is_undone = change.ended.is_some_and(|event| self.may_be_undone(asked_ms, event.at_ms));
        }
        changes
    }
}

/// One change from question to answer.
#[derive(Clone, Copy)]
pub(super) struct Changed<'a> {
    pub change: Change,
    pub began: &'a Event,
    pub ended: Option<&'a Event>,
    /// Answered, but the store may have lost it since.
    pub is_undone: bool,
}

impl Changed<'_> {
    /// The answer's word; `None`: whether it took place is unknown.
    pub fn outcome(&self) -> Option<&str> {
        match &self.ended?.what {
            What::Answered { outcome } if !self.is_undone => Some(outcome),
            _ => None,
        }
    }

    /// Whether its answer says that it left the message as it was.
    pub fn changed_nothing(&self) -> bool {
        matches!(self.outcome(), Some("kept" | "duplicate" | "unknown" | "in_flight" | "dead" | "changed"))
    }

    /// When it was over, for all anybody knows.
    pub fn ended_ms(&self) -> i64 {
        self.outcome().and(self.ended).map_or(i64::MAX, |event| event.at_ms)
    }
}
