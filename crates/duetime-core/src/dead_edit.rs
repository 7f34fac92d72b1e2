//! Changes of one dead letter, each carried out only while it is the letter that was read.

use bytes::Bytes;

use crate::message::{Headers, Nonce};
use crate::names::MessageId;
use crate::time::Timestamp;

/// One change of a dead letter. A letter of another enqueue, or one that died at another time, is left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadEdit {
    /// The letter.
    pub id: MessageId,
    /// Of its enqueue.
    pub nonce: Nonce,
    /// When it died. One that was redriven and died again is another letter.
    pub died_at: Timestamp,
    /// What becomes of it.
    pub change: DeadChange,
}

/// What becomes of a dead letter that is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeadChange {
    /// It is scheduled at once as another message, in the letter's place: attempts and redrives count from 0.
    Rewrite {
        /// Of the message that takes the letter's place. A repetition is known by it.
        nonce: Nonce,
        /// Its headers.
        headers: Headers,
        /// Its payload.
        payload: Bytes,
    },
    /// It is removed: it lives in another topic from now on.
    MoveOut,
}

/// What became of a [`DeadEdit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadEdited {
    /// It was done.
    Done,
    /// It was done before: the rewritten message is there, or is remembered.
    Already,
    /// Something else of this id is there, and stays as it is.
    Changed,
    /// Nothing of this id is there.
    Unknown,
}

impl DeadEdit {
    /// Whether both are of one kind, so that they are one step of a store.
    #[must_use]
    pub fn is_one_step(one: &Self, other: &Self) -> bool {
        one.rewritten().is_some() == other.rewritten().is_some()
    }

    /// The nonce of the message that takes the letter's place, if one does.
    #[must_use]
    pub fn rewritten(&self) -> Option<Nonce> {
        match self.change {
            DeadChange::Rewrite { nonce, .. } => Some(nonce),
            DeadChange::MoveOut => None,
        }
    }

    /// Bytes of payload and headers that it writes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.change {
            DeadChange::Rewrite { headers, payload, .. } => headers.bytes() + payload.len(),
            DeadChange::MoveOut => 0,
        }
    }
}
