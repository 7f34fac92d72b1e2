//! The watermark of a topic: a moment before which everything that was due is done.
//!
//! Done: handed over and settled, cancelled, expired, or a dead letter. Read from each shard, the oldest of them counts;
//! see the section on it in `docs/PROTOCOL.md`.

use crate::names::MessageId;
use crate::score::Score;
use crate::time::Timestamp;

/// Entries of messages that are gone without their entry which one look into a shard drops.
pub const UNDONE_DROPPED_MAX: usize = 16;

/// What a shard says of what is not done there, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undone {
    /// The present, by the earlier of the clocks of the store and the caller.
    pub now: Timestamp,
    /// What has the oldest due time, in the past or not; `None`: there is nothing.
    pub oldest: Option<UndoneMessage>,
}

impl Undone {
    /// Everything in the shard that was due before this moment is done.
    #[must_use]
    pub fn watermark(&self) -> Timestamp {
        self.oldest.as_ref().map_or(self.now, |oldest| oldest.due_at.min(self.now))
    }

    /// What holds the watermark back, where anything does.
    #[must_use]
    pub fn held_by(&self) -> Option<&UndoneMessage> {
        self.oldest.as_ref().filter(|oldest| oldest.due_at < self.now)
    }
}

/// A message that is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoneMessage {
    /// Its id; `None`: it is not known which one it is.
    pub id: Option<MessageId>,
    /// The due time that counts.
    pub due_at: Timestamp,
    /// What it waits for.
    pub state: UndoneState,
}

/// What a message that is not done waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoneState {
    /// For its due time, or to be claimed.
    Due,
    /// For its next attempt, at this moment.
    Retrying(Timestamp),
    /// For the settlement of its claim, which runs out at this moment.
    InFlight(Timestamp),
    /// For the end of its move to another shard.
    Moving,
}

impl UndoneState {
    /// That of a message with this score in its shard. `was_claimed`: since it was scheduled.
    #[must_use]
    pub fn of(score: Score, was_claimed: bool) -> Self {
        match was_claimed {
            _ if score.class().is_held() => Self::InFlight(score.visible_at()),
            true => Self::Retrying(score.visible_at()),
            false => Self::Due,
        }
    }
}
