//! What is taken of a system, and still there.

use crate::item::Item;
use crate::source::Left;

/// Payloads of one batch, in bytes; its last message may have more.
pub(super) const BATCH_BYTES: usize = 8 << 20;

/// What a message that has the same id elsewhere is compared by, to tell the entry itself from another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sameness {
    /// The sender chose the id: payload and headers.
    Given {
        /// And the due time, which is the same whenever the entry is taken.
        with_due: bool,
    },
    /// The id is made of the content, which others may have too: the header [`HOLD`]. It is another one each time that
    /// the entry is taken, so only what this run enqueued itself is the same.
    Content,
    /// The system counts its ids, and may begin anew: the payload, and when the entry was put there, in seconds since
    /// the Unix epoch, which the message has in the header [`PUT_AT`].
    PutAt(i64),
}

/// The header with a random word, by which an entry is known as long as it is held.
pub const HOLD: &str = "rabbitmq-import-hold";
/// The header with the second in which an entry was put there.
pub const PUT_AT: &str = "beanstalkd-put-at";
/// Two readings of the age of one entry, in whole seconds, say moments that are so far apart at most. Seconds.
pub const PUT_AT_SLACK_S: i64 = 3;

/// Names an entry that is still there.
#[derive(Debug)]
pub struct Place(pub(super) PlaceIn);

#[derive(Debug)]
pub(super) enum PlaceIn {
    RabbitMq(Box<lapin::Acker>),
    Beanstalkd(Job),
}

/// An entry that is still there.
#[derive(Debug)]
pub struct Taken {
    /// What it is as a message; never [`Item::Other`].
    pub item: Item,
    /// How it is told from another one with its id.
    pub sameness: Sameness,
    /// Headers that no message can have, which are not carried.
    pub headers_dropped: u64,
    /// For [`Drain::remove`](super::Drain::remove) or [`Drain::keep`](super::Drain::keep).
    pub place: Place,
}

/// What there is before anything is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// What a pass takes.
    pub count: u64,
    /// What it leaves.
    pub left: Vec<Left>,
}

/// What came of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It is gone there by this.
    Done,
    /// It was not there any more: somebody removed it, or works on it.
    Absent,
}

/// A job of beanstalkd that is still there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub number: u64,
    pub pri: u64,
    /// By this connection: it was ready.
    pub is_reserved: bool,
}
