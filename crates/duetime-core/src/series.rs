//! Messages of a series as a store is asked for them: the first one, and what follows one that was claimed.

use crate::end::End;
use crate::message::Due;
use crate::repeat::{RepeatAsk, RepeatError, Successor};
use crate::store::{ClaimedMessage, Enqueue};
use crate::time::Timestamp;

impl Enqueue {
    /// Makes it the first of a series.
    ///
    /// # Errors
    ///
    /// [`RepeatError`].
    pub fn repeat(&mut self, ask: &RepeatAsk, is_due_given: bool, now: Timestamp) -> Result<(), RepeatError> {
        let first = ask.first(is_due_given.then(|| self.due.of(now)), now)?;
        // A moment of the rule, also where it was asked for as a delay.
        self.due = Due::At(first.at);
        self.headers = first.kept_in(&self.headers);
        Ok(())
    }
}

impl Successor {
    /// What follows a claimed message.
    #[must_use]
    pub fn of_claimed(message: &ClaimedMessage, end: End, now: Timestamp) -> Option<Box<Self>> {
        Self::of((&message.headers, &message.payload), (message.due_at, message.nonce), end, now)
    }
}
