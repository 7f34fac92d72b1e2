//! What a topic remembers of messages that are gone: when and how each ended.
//!
//! Written by the step of the store that ends a message, read where an id is not found. A store keeps it for the topic's
//! `remember`, by its own clock; see the section on it in `docs/PROTOCOL.md`.

use std::time::Duration;

use crate::end::End;
use crate::message::{Nonce, Version};
use crate::score::Score;
use crate::time::Timestamp;

/// What a call on a shard is to remember, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Memory {
    /// How long an outcome is remembered; zero: nothing is.
    pub window: Duration,
    /// The version of the topic that began it: what was remembered before is of another memory, and void.
    pub since: u64,
    /// Whether the topic has a watermark: the shard keeps the due times of what was claimed and is not done. Always or
    /// never in one life of a topic.
    pub watermark: bool,
}

impl Memory {
    /// Whether anything is remembered.
    #[must_use]
    pub fn is_on(self) -> bool {
        !self.window.is_zero()
    }

    /// The window in milliseconds.
    #[must_use]
    pub fn window_ms(self) -> i64 {
        i64::try_from(self.window.as_millis()).unwrap_or(i64::MAX)
    }
}

/// What became of a message that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Which change of the topic's routing it ended under: orders what several shards remember of one id.
    pub change: u32,
    /// When it ended, by the store's clock.
    pub at: Timestamp,
    /// The due time it had; zero where its body was missing, and of [`End::CancelledBefore`].
    pub due_at: Timestamp,
    /// Of its enqueue, in the same way.
    pub nonce: Nonce,
    /// Delivered by an ack: the score of the receipt. Else only the attempts in it count.
    pub score: Score,
}

/// Bytes of an outcome as it is stored. What follows them is of a later version.
pub const OUTCOME_BYTES: usize = 1 + 4 + 8 + 8 + 8 + 8;

/// Stands behind an outcome whose message may be put back, until somebody cancels its id, with the eight bytes of who
/// removed it behind it: see [`crate::MessageStore::restore`].
const UNDOABLE: u8 = 1;

/// What stands behind the outcome of a message that `by` removed and may put back.
#[must_use]
pub fn undo_mark(by: u64) -> [u8; 9] {
    let mut mark = [UNDOABLE; 9];
    mark[1..].copy_from_slice(&by.to_be_bytes());
    mark
}

impl Outcome {
    /// How often it was tried.
    #[must_use]
    pub fn attempts(&self) -> u8 {
        self.score.attempts()
    }

    /// Whether the message was there once: not so of a cancel that came before it.
    #[must_use]
    pub fn was_there(&self) -> bool {
        self.end != End::CancelledBefore
    }

    /// How long after its due time it was delivered.
    #[must_use]
    pub fn late_by(&self) -> Option<Duration> {
        let known = self.end == End::Delivered && self.due_at != Timestamp::ZERO;
        known.then(|| self.at.since(self.due_at))
    }

    /// Whether it was settled as delivered by the receipt with this score.
    #[must_use]
    pub fn is_ack_of(&self, score: Score) -> bool {
        self.end == End::Delivered && self.score == score
    }

    /// Whether the message is over: it is neither elsewhere nor was it never there.
    fn is_over(&self) -> bool {
        self.was_there() && self.end != End::Moved
    }

    /// Whether a cancel of the id is noted for the enqueue that it has overtaken, although this is remembered.
    #[must_use]
    pub fn takes_note(&self) -> bool {
        !self.is_over()
    }

    /// The version that the message had, where its end took the place of a scheduled one.
    #[must_use]
    pub fn version(&self) -> Version {
        Version { nonce: self.nonce, score: self.score }
    }

    /// Which of two outcomes of an id counts, of which `later` was found in the shard that had it later: the one of the
    /// later change, and a message that ended before a cancel that came too early.
    #[must_use]
    pub fn latest(earlier: Option<Self>, later: Option<Self>) -> Option<Self> {
        match (earlier, later) {
            (Some(earlier), Some(later)) => {
                let is_note_after_end = |note: &Self, end: &Self| !note.was_there() && end.is_over();
                let is_earlier = is_note_after_end(&later, &earlier)
                    || earlier.change > later.change && !is_note_after_end(&earlier, &later);
                Some(if is_earlier { earlier } else { later })
            }
            (one, other) => other.or(one),
        }
    }

    /// As it is stored: the code of the end, the change, then the four others in eight bytes each, big endian.
    #[must_use]
    pub fn encode(&self) -> [u8; OUTCOME_BYTES] {
        let mut out = [0; OUTCOME_BYTES];
        out[0] = self.end.code();
        out[1..5].copy_from_slice(&self.change.to_be_bytes());
        out[5..13].copy_from_slice(&self.at.as_millis().to_be_bytes());
        out[13..21].copy_from_slice(&self.due_at.as_millis().to_be_bytes());
        out[21..29].copy_from_slice(&self.nonce.0.to_be_bytes());
        out[29..37].copy_from_slice(&self.score.raw().to_be_bytes());
        out
    }

    /// Reads what [`Self::encode`] wrote; `None`: a later version wrote it, or nobody did.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..OUTCOME_BYTES)?;
        let eight = |at: usize| <[u8; 8]>::try_from(&bytes[at..at + 8]).expect("eight bytes");
        let moment = |at: usize| Timestamp::from_millis(i64::from_be_bytes(eight(at)));
        Some(Self {
            end: End::of_code(bytes[0])?,
            change: u32::from_be_bytes(bytes[1..5].try_into().expect("four bytes")),
            at: moment(5),
            due_at: moment(13),
            nonce: Nonce(u64::from_be_bytes(eight(21))),
            score: Score::from_raw(i64::from_be_bytes(eight(29))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(end: End, change: u32) -> Outcome {
        let at = Timestamp::from_millis(1_763_700_000_123);
        let score = Score::from_raw(1_763_700_000_123_107);
        Outcome { end, change, at, due_at: Timestamp::from_millis(1_763_700_000_000), nonce: Nonce(u64::MAX), score }
    }

    #[test]
    fn an_outcome_is_read_as_it_was_written_also_with_what_a_later_version_adds() {
        for end in End::ALL {
            let told = outcome(end, 7);
            let mut bytes = told.encode().to_vec();
            assert_eq!(Outcome::decode(&bytes), Some(told));
            bytes.extend(b"mailer");
            assert_eq!(Outcome::decode(&bytes), Some(told));
        }
        assert_eq!(Outcome::decode(&[0; OUTCOME_BYTES]), None);
        assert_eq!(Outcome::decode(&[8; OUTCOME_BYTES]), None, "of a later version");
        assert_eq!(Outcome::decode(b"short"), None);
        assert_eq!(outcome(End::Delivered, 1).late_by(), Some(Duration::from_millis(123)));
    }

    #[test]
    fn the_outcome_of_the_later_change_counts_and_a_message_before_a_note() {
        let (first, second) = (outcome(End::Delivered, 3), outcome(End::Cancelled, 5));
        assert_eq!(Outcome::latest(Some(second), Some(first)), Some(second));
        assert_eq!(Outcome::latest(Some(first), Some(second)), Some(second));
        let same = outcome(End::Dead, 3);
        assert_eq!(Outcome::latest(Some(first), Some(same)), Some(same), "the shard that had it later");
        let note = outcome(End::CancelledBefore, 9);
        assert_eq!(Outcome::latest(Some(first), Some(note)), Some(first));
        assert_eq!(Outcome::latest(None, Some(note)), Some(note));
        let moved = outcome(End::Moved, 7);
        assert_eq!(Outcome::latest(Some(moved), Some(note)), Some(note), "a cancel that came after the move");
        assert_eq!(Outcome::latest(Some(note), Some(first)), Some(first));
        assert_eq!(Outcome::latest(Some(first), Some(moved)), Some(moved), "it was there anew, and moved");
        assert_eq!(Outcome::latest(Some(moved), Some(outcome(End::Delivered, 8))).unwrap().end, End::Delivered);
        assert_eq!(Outcome::latest(Some(moved), Some(first)), Some(moved), "the later change counts");
    }
}
