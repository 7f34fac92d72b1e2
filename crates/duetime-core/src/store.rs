//! What one shard of a store can be asked, in batches, and what it answers; [`crate::contract`] asks.
//!
//! Every implementation runs the one conformance suite of the test kit. Every call on messages is
//! one atomic step on one shard; batches hold at most [`crate::limits::BATCH_ITEMS_MAX`] items and
//! answer item by item, in order. `now` is the caller's clock, and a store combines it with its own so
//! that nothing is early by either: what is due is decided by the earlier of the two alone, and a delay, and what
//! a claim hides, count from the later. When the two are more than [`crate::limits::CLOCK_SKEW_MAX`] apart, a claim
//! and a call with a relative time in it (`is_relative`) are refused whole with [`StoreError::ClockSkew`],
//! before anything is done; a call without one is served.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;

pub use crate::dead_edit::{DeadChange, DeadEdit, DeadEdited};
pub use crate::edit::{Edit, Edited, Notes, TakenState};
use crate::end::End;
use crate::lookup::{Lookup, OfHome};
use crate::memory::Outcome;
use crate::message::{Due, Headers, Nonce, StoredMessage};
use crate::names::{MessageId, TopicName};
use crate::on_conflict::OnConflict;
use crate::repeat::Successor;
use crate::retry::RetryPolicy;
use crate::score::{LeaseClass, Score};
pub use crate::store_error::StoreError;
use crate::time::Timestamp;
use crate::topic::TopicRecord;
use crate::topic_config::{DeliveryMode, TopicConfig};

/// One message to be scheduled. Names and sizes were checked where it entered.
#[derive(Clone, Debug)]
pub struct Enqueue {
    /// Its id.
    pub id: MessageId,
    /// When.
    pub due: Due,
    /// Names and values that are delivered with the message, unchanged.
    pub headers: Headers,
    /// Delivered byte for byte.
    pub payload: Bytes,
    /// What to do when the id lives already (scheduled, in flight or dead).
    pub on_conflict: OnConflict,
    /// Same nonce = same enqueue.
    pub nonce: Nonce,
}

impl Enqueue {
    /// Whether its due time is relative.
    #[must_use]
    pub fn is_relative(&self) -> bool {
        matches!(self.due, Due::In(_))
    }
}

/// What became of one enqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// Scheduled, replaced, kept or duplicate.
    pub outcome: EnqueueOutcome,
    /// The due time the message has; of one that is kept and of a duplicate, the one that is there keeps
    /// (zero where the store does not know it without cost).
    pub due_at: Timestamp,
    /// Replicas that have it, up to as many as the store waits for; `None`: it waits for none.
    pub replicas: Option<u32>,
    /// What became of the message that had this id, where it is gone and that is remembered.
    pub became: Option<Outcome>,
}

impl Enqueued {
    /// The answer to an enqueue, by the rule [`OnConflict::Reject`], of an id under which `there` lives.
    #[must_use]
    pub fn refused_by(there: &StoredMessage, nonce: Nonce) -> Self {
        let outcome = if there.nonce == nonce { EnqueueOutcome::Scheduled } else { EnqueueOutcome::Duplicate };
        Self { outcome, due_at: there.due_at, replicas: None, became: None }
    }

    /// The answer to an enqueue, by the rule [`OnConflict::Reject`], of an id that does not live and of which this is
    /// remembered.
    #[must_use]
    pub fn remembered(outcome: Outcome, nonce: Nonce) -> Self {
        // The very enqueue that made the message is answered as the first time.
        let is_repeated = outcome.was_there() && outcome.nonce == nonce;
        let answer = match outcome.end {
            _ if is_repeated => EnqueueOutcome::Scheduled,
            End::CancelledBefore => EnqueueOutcome::CancelledBefore,
            _ => EnqueueOutcome::Duplicate,
        };
        let became = (!is_repeated).then_some(outcome);
        Self { outcome: answer, due_at: outcome.due_at, replicas: None, became }
    }
}

/// See [`Enqueued`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EnqueueOutcome {
    /// New. Also the answer to a repetition of the enqueue (same nonce) while the message lives
    /// and was not rescheduled in between.
    Scheduled,
    /// Replaced a message of the same id; a claim of the old one can no longer be settled.
    Replaced,
    /// Like `Replaced`; the old message is claimed, or its last delivery had no answer, so it may be delivered.
    ReplacedInFlight,
    /// By [`OnConflict::Earliest`] or [`OnConflict::Latest`]: the message that is there stays; nothing was changed.
    Kept,
    /// The id lives already, or what became of it is remembered; nothing was changed.
    Duplicate,
    /// A cancel of it came before it; nothing was scheduled.
    CancelledBefore,
}

impl EnqueueOutcome {
    /// Of an enqueue by this rule, where the message that is there stays.
    #[must_use]
    pub fn of_one_that_stays(rule: OnConflict) -> Self {
        match rule {
            OnConflict::Earliest | OnConflict::Latest => Self::Kept,
            _ => Self::Duplicate,
        }
    }

    /// Whether nothing was stored for the enqueue.
    #[must_use]
    pub fn is_unchanged(self) -> bool {
        matches!(self, Self::Kept | Self::Duplicate | Self::CancelledBefore)
    }
}

/// The store's reply to a batch of changes: an answer for each, and how many replicas have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchReply<A> {
    /// Item by item, in order.
    pub answers: Vec<A>,
    /// Replicas that have all of it, up to as many as the store waits for; `None`: it waits for none.
    pub replicas: Option<u32>,
}

impl<A> BatchReply<A> {
    /// Answers of a store that waits for no replicas.
    #[must_use]
    pub fn here(answers: Vec<A>) -> Self {
        Self { answers, replicas: None }
    }

    /// The answers of a home, each of them found.
    #[must_use]
    pub fn found(self) -> BatchReply<Lookup<A>> {
        BatchReply { answers: Lookup::all(self.answers), replicas: self.replicas }
    }
}

impl<A> From<Vec<A>> for BatchReply<A> {
    fn from(answers: Vec<A>) -> Self {
        Self::here(answers)
    }
}

impl<A> OfHome<BatchReply<A>> for BatchReply<Lookup<A>> {
    fn of_home(answers: BatchReply<A>) -> Self {
        answers.found()
    }
}

impl<A> OfHome<Vec<A>> for BatchReply<Lookup<A>> {
    fn of_home(answers: Vec<A>) -> Self {
        BatchReply::here(answers).found()
    }
}

impl<A> BatchReply<Lookup<A>> {
    /// The answers of a home, which are final.
    ///
    /// # Errors
    ///
    /// As [`Lookup::finals`].
    pub fn finals(self) -> Result<BatchReply<A>, StoreError> {
        Ok(BatchReply { answers: Lookup::finals(self.answers)?, replicas: self.replicas })
    }
}

/// Whether settlements are answered once replicas have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AckWait {
    /// A settlement that a failover loses comes again as a duplicate.
    No,
    /// The topic asks for it.
    ForReplicas,
}

/// What a claim asks for.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// Random name of this claim. The same request again, within the last 16 claims of the shard,
    /// answers the same messages (those of them still held), so a lost answer costs no attempt.
    pub request: u64,
    /// Most messages, at most [`crate::limits::BATCH_ITEMS_MAX`].
    pub limit: usize,
    /// How long they stay hidden, at least.
    pub visibility: Duration,
    /// The class of claims of this length, where a deadline is looked for first.
    pub class: LeaseClass,
    /// Bounds the attempts and sets the wait of messages whose claim ended without a verdict.
    pub retry: RetryPolicy,
    /// At most once: removed as they are claimed, receipts have the score
    /// [`crate::Receipt::SETTLED`].
    pub delivery: DeliveryMode,
}

/// One claimed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedMessage {
    /// Its id.
    pub id: MessageId,
    /// The claimed score: the receipt's proof, with the deadline and the attempts in it.
    pub score: Score,
    /// Which attempt this is, from 1.
    pub attempt: u8,
    /// The due time it was given.
    pub due_at: Timestamp,
    /// Of the enqueue.
    pub nonce: Nonce,
    /// Names and values that are delivered with the message, unchanged.
    pub headers: Headers,
    /// The payload of the enqueue, bit for bit.
    pub payload: Bytes,
    /// A claim of it ended without a verdict, or a delivery without an answer; such a message never
    /// comes with ordinary ones, and alone from its second attempt in vain on (`RetryPolicy::suspect_is_alone`).
    pub suspect: bool,
}

/// The answer to a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Oldest visible time first.
    pub messages: Vec<ClaimedMessage>,
    /// The present moment as the store decided it: by the earlier of the two clocks.
    pub now: Timestamp,
    /// The present moment by the later of the two, from which the claim hides its messages. Others have them no
    /// earlier than their visible time is after this, whatever clocks they go by.
    pub later: Timestamp,
    /// When the earliest message left in the shard is visible; `None`: the shard is empty.
    pub next_due: Option<Timestamp>,
    /// Messages visible at `now` that this claim left behind.
    pub due_left: u64,
    /// Messages this call moved to the dead letters: out of attempts, or without a body.
    pub buried: u64,
    /// Claims this call found ended without a verdict; each waits for its lone retry, or is among
    /// the buried.
    pub expired: u64,
    /// The shard has as many messages in flight as it may, so what is due waits for one of them.
    pub is_full: bool,
}

/// One settlement of one claim.
#[derive(Clone, Debug)]
pub struct Settle {
    /// The message.
    pub id: MessageId,
    /// The score of its receipt.
    pub score: Score,
    /// What to do.
    pub action: Settlement,
}

/// See [`Settle`].
#[derive(Clone, Debug, PartialEq)]
pub enum Settlement {
    /// Done: remove it.
    Ack,
    /// Remove it before it is handed out. [`Settled::Ok`] means that this very call removed it, and never that it is
    /// gone: where the answer was lost and nobody knows what it was, the batch is answered with an error.
    Remove,
    /// Try again after this long.
    Nack(Duration),
    /// Back to where it was; the attempt is given back.
    Release,
    /// Try again after this long; the attempt is given back, for it says nothing of the message.
    Defer(Duration),
    /// Try again after this long, as a suspect: a delivery had no answer and may have arrived. `charged`: it keeps its
    /// attempt. Until it is settled in another way, a cancel or a replacement of it is answered as in flight.
    Unanswered {
        /// The wait before it may be claimed again.
        wait: Duration,
        /// False: the attempt is given back.
        charged: bool,
    },
    /// Hold it for this long from now, in this class; the answer has the new score.
    Extend(Duration, LeaseClass),
    /// To the dead letters, for this reason.
    Bury(String),
    /// It has expired: remove it, and remember that.
    Expire,
    /// It has ended as the successor says, which is written in its place in this very step: under the same id, at its due
    /// time, with all attempts. A repetition finds the successor by its nonce.
    Repeat(Box<Successor>),
}

impl Settle {
    /// True if its time is relative to now: also the next of a series, which is chosen by the present of who settles.
    #[must_use]
    pub fn is_relative(&self) -> bool {
        matches!(
            self.action,
            Settlement::Nack(_)
                | Settlement::Defer(_)
                | Settlement::Unanswered { .. }
                | Settlement::Extend(..)
                | Settlement::Repeat(_)
        )
    }

    /// Bytes of the body that a store is given with it.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        if let Settlement::Repeat(next) = &self.action { next.bytes() } else { 0 }
    }
}

/// What became of one [`Settle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// As asked.
    Ok,
    /// Extended: the new score.
    Extended(Score),
    /// An ack of what this very receipt settled as delivered already, as is remembered.
    Already,
    /// The receipt proves nothing any more; nothing was changed.
    Expired,
}

/// One page of a shard's dead letters, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadPage {
    /// At most as many as asked.
    pub messages: Vec<StoredMessage>,
    /// Where the next page starts; `None`: this was the last.
    pub next: Option<i64>,
}

impl DeadPage {
    /// A page of what is in its place, up to `next`, and of what is on its way to another shard, each with its cursor.
    #[must_use]
    pub fn merged(
        own: Vec<(i64, StoredMessage)>,
        next: Option<i64>,
        frozen: impl IntoIterator<Item = (i64, StoredMessage)>,
        limit: usize,
    ) -> Self {
        let mut cursors: BTreeSet<i64> = own.iter().map(|(at, _)| *at).chain(next).collect();
        let mut all = own;
        for (mut at, message) in frozen {
            // A page that ended between two of one cursor would begin with the first of them again.
            while !cursors.insert(at) {
                at += 1;
            }
            all.extend(next.is_none_or(|next| at < next).then_some((at, message)));
        }
        all.sort_by_key(|(at, _)| *at);
        let next = all.get(limit).map(|(at, _)| *at).or(next);
        all.truncate(limit);
        Self { messages: all.into_iter().map(|(_, message)| message).collect(), next }
    }
}

/// What to do with dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadAction {
    /// Schedule them at once with all attempts given back.
    Redrive,
    /// Remove them for good.
    Purge,
}

/// Which dead letters of a shard are kept; others are removed for good, the oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadKept {
    /// Those that died less than this long ago. `None`: however long ago.
    pub age: Option<Duration>,
    /// The newest, at least this many; `beyond` says how many of the others go.
    pub newest: u64,
    /// How many of those older than the newest are removed at most, whatever their age.
    pub beyond: u64,
}

impl DeadKept {
    /// Whether the letter with `older` ones before it, of `dead` in its shard, is removed at `now`.
    #[must_use]
    pub fn removes(&self, older: u64, dead: u64, died_at: Timestamp, now: Timestamp) -> bool {
        let is_old = self.age.is_some_and(|age| died_at.plus(age) <= now);
        is_old || older < self.beyond.min(dead.saturating_sub(self.newest))
    }
}

/// Counts of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardCounts {
    /// Messages that nobody holds, due or not.
    pub scheduled: u64,
    /// Visible at the moment asked for: the backlog. Claims that ran out are in it.
    pub due: u64,
    /// Claimed and not settled, claims that ran out and were not noticed yet among them.
    pub in_flight: u64,
    /// Dead letters.
    pub dead: u64,
    /// On their way to another shard, whatever their state: they are in no other of these counts, and in no head.
    /// A batch that has arrived counts here too until its shard has dropped it.
    pub moving: u64,
    /// Visible time of the first message.
    pub head: Option<Timestamp>,
}

impl ShardCounts {
    /// Every message, whatever its state.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.waiting() + self.in_flight + self.dead
    }

    /// What people are shown as scheduled: what is on its way to another shard is, to them, nowhere else.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.scheduled + self.moving
    }
}

/// What a deletion of a topic may take with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// Nothing: a topic that holds anything is refused.
    IfEmpty,
    /// All that it holds.
    Force,
}

/// A hint that a shard has a message visible sooner than it had, or room for another one in flight. Never needed for
/// correctness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wakeup {
    /// The topic.
    pub topic: TopicName,
    /// The shard.
    pub index: u32,
    /// When its first message is visible. `None`: as before, but fewer are in flight, where there is a bound.
    pub visible_at: Option<Timestamp>,
}

/// How a topic whose record or shards vanished is put right.
#[derive(Clone, Debug, Default)]
pub struct Adopt {
    /// The settings it gets. `None`: those of the newest copy, in its shards or in `known`.
    pub config: Option<TopicConfig>,
    /// The record as the caller knew it last.
    pub known: Option<TopicRecord>,
    /// Recreates lost shards, empty, and removes messages of another incarnation that occupy a shard's keys.
    pub accept_loss: bool,
    /// The present.
    pub now: Timestamp,
}

/// What [`crate::TopicStore::adopt_topic`] did.
#[derive(Clone, Debug, PartialEq)]
pub struct Adopted {
    /// The topic.
    pub record: TopicRecord,
    /// Whether its record was put back by this call.
    pub restored: bool,
    /// Shards that are lost and stay so.
    pub lost: Vec<u32>,
    /// Shards that were lost and are there again, empty.
    pub recreated: Vec<u32>,
}

impl Adopted {
    /// In a store whose topics and messages are one file: neither vanishes without the other, so there is nothing
    /// to restore.
    ///
    /// # Errors
    ///
    /// [`StoreError::UnknownShard`]: there is no such topic among `topics`.
    pub fn nothing_lost(topics: Vec<TopicRecord>, topic: &TopicName) -> Result<Self, StoreError> {
        let found = topics.into_iter().find(|record| record.name == *topic);
        let record = found.ok_or_else(|| StoreError::UnknownShard(topic.to_string()))?;
        Ok(Self { record, restored: false, lost: Vec::new(), recreated: Vec::new() })
    }
}
