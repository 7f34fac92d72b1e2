//! Changes to messages that are there: cancel and reschedule.

use crate::lookup::Lookup;
use crate::memory::Outcome;
use crate::message::{Due, Nonce, Version};
use crate::names::MessageId;
use crate::score::Score;
use crate::store_error::StoreError;
use crate::time::Timestamp;

/// One change to a message that is there.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Remove the message, whatever its state. Where the topic remembers, a cancel that finds nothing is noted, for the
    /// enqueue that it has overtaken.
    Cancel(MessageId),
    /// The same of an id whose message ended in another shard, as that remembers: nothing is noted.
    CancelGone(MessageId),
    /// Remove the message if it is this version; what is claimed, was delivered without an answer or is dead is none.
    /// `moved`: it is remembered as one that lives elsewhere. Of what is gone it answers what became of it; nothing is
    /// noted.
    CancelIf {
        /// The message.
        id: MessageId,
        /// What it must be.
        version: Version,
        /// It lives elsewhere from now on.
        moved: bool,
    },
    /// Remove the message if it is what `was` says; where the topic remembers, [`crate::MessageStore::restore`] can put it
    /// back. Of what is gone it answers what became of it; nothing is noted.
    TakeOut {
        /// The message.
        id: MessageId,
        /// Of its enqueue.
        nonce: Nonce,
        /// What it must be.
        was: TakenState,
        /// Who removes it: that one alone puts it back.
        by: u64,
    },
    /// Give the message another due time and all its attempts. Only while it is not claimed.
    Reschedule(MessageId, Due),
}

/// Where a message is in its life that [`Edit::TakeOut`] removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenState {
    /// Nobody holds it and none of its deliveries was without an answer. It is remembered as cancelled.
    Scheduled(Score),
    /// A dead letter that died at this moment. It is remembered as a dead letter that was removed.
    Dead(Timestamp),
}

impl Edit {
    /// The message that it is about.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        let (Self::Cancel(id)
        | Self::CancelGone(id)
        | Self::CancelIf { id, .. }
        | Self::TakeOut { id, .. }
        | Self::Reschedule(id, _)) = self;
        id
    }

    /// Whether it is a cancel.
    #[must_use]
    pub fn is_cancel(&self) -> bool {
        !matches!(self, Self::Reschedule(..) | Self::TakeOut { was: TakenState::Dead(_), .. })
    }

    /// Whether both are of one kind, so that they are one step of a store.
    #[must_use]
    pub fn is_one_step(one: &Self, other: &Self) -> bool {
        let how = |edit: &Self| {
            matches!(edit, Self::CancelIf { moved: true, .. } | Self::TakeOut { was: TakenState::Dead(_), .. })
        };
        let whose = |edit: &Self| if let Self::TakeOut { by, .. } = edit { Some(*by) } else { None };
        std::mem::discriminant(one) == std::mem::discriminant(other)
            && how(one) == how(other)
            && whose(one) == whose(other)
    }

    /// Whether it gives a relative due time.
    #[must_use]
    pub fn is_relative(&self) -> bool {
        matches!(self, Self::Reschedule(_, Due::In(_)))
    }
}

/// What a cancel does with an id that is unknown, where the shard remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notes {
    /// Nothing.
    None,
    /// It is noted.
    Written,
    /// It is to be noted and there is no space for it.
    Refused,
}

/// What became of one [`Edit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edited {
    /// Removed; it will never be claimed. A dead letter is removed too.
    Cancelled,
    /// It has this due time.
    Rescheduled(Timestamp),
    /// The message is claimed, or its last delivery had no answer. Cancel: it is removed and will not be tried again, but
    /// may be delivered. Reschedule of a claimed message: nothing was changed.
    InFlight,
    /// Reschedule of a dead letter: nothing was changed.
    Dead,
    /// Conditional cancel: it is there and another version, so nothing was changed.
    Changed,
    /// No message has this id, and none that is remembered had it.
    Unknown,
    /// Of a cancel: the message of this id is gone, and this became of it.
    Gone(Outcome),
    /// Of a cancel of an id that does not live: there is no room for its note ([`crate::limits::NOTES_MAX`], or the
    /// store is full), so it would not hold. Nothing was changed; cancel again later.
    Full,
}

impl Edited {
    /// The answer, unless there was no room for it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`], of [`Self::Full`].
    pub fn with_room(self) -> Result<Self, StoreError> {
        match self {
            Self::Full => {
                let why =
                    "no message has this id, and there is no room to note its cancel for an enqueue that comes later";
                Err(StoreError::Full(why.to_owned()))
            }
            answer => Ok(answer),
        }
    }

    /// The answer of a source to an edit of what lived there: what an earlier edit removed is left to the home.
    #[must_use]
    pub fn at_source(answer: Lookup<Self>) -> Lookup<Self> {
        match answer {
            Lookup::Found(Self::Unknown) => Lookup::Absent(None),
            Lookup::Found(Self::Gone(outcome)) => Lookup::Absent(Some(outcome)),
            answer => answer,
        }
    }
}
