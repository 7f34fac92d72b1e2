//! The contract of a live resize: what a store is asked while a topic's shard count changes.
//!
//! Upstream: the controller, the mover, the scrubber and the router. Downstream: every store. The
//! steps are described in `docs/PROTOCOL.md` and explored in `docs/MODEL.md`; this is what each asks of
//! one shard. Rules that hold for every call of [`ResizeStore`]:
//!
//! - **One atomic step on one shard**, at most [`crate::limits::BATCH_ITEMS_MAX`] ids, and safe to
//!   repeat after a lost answer.
//! - **An answer is replicated.** What a call did *and what it saw* (an id that is absent, a page
//!   without misplaced ids, a batch that is remembered) is on as many replicas as the store waits for
//!   when it answers, all of it on one and the same primary; else the answer is
//!   [`StoreError::Unavailable`] and the call is made again. So a caller never waits for replicas
//!   itself. [`Replication`] says when there was no replica to wait for.
//! - **The caller's record is checked** as in [`crate::store`]: an epoch lower than the shard's, or the same of another
//!   change, is [`StoreError::Stale`] with the shard's record, a higher one is [`StoreError::NotReady`]: fence the shard
//!   ([`ResizeStore::fence`]) and repeat.
//!
//! A frozen message is in its shard's outbox, under a batch. Counts and pages show it, see
//! [`crate::store::ShardCounts::moving`]; claims do not see it.

use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;

use crate::MessageState;
use crate::envelope::{self, Envelope};
use crate::listing::ListEntry;
pub use crate::lookup::Lookup;
use crate::message::{Death, StoredMessage};
use crate::names::{MessageId, TopicName};
use crate::routing::{Routing, RoutingRecord, Shard};
use crate::score::{LeaseClass, Score};
use crate::store::{Edit, StoreError, TakenState};
use crate::time::Timestamp;

/// Source of truth for a topic's routing. Every store is one: it stores the routing in the topic's record.
#[async_trait]
pub trait RoutingAuthority: Send + Sync + std::fmt::Debug + 'static {
    /// The present record; `None`: there is no such topic.
    async fn routing(&self, topic: &TopicName) -> Result<Option<RoutingRecord>, StoreError>;

    /// Puts `new` in place of `seen`. Answered only when replicated. The topic's version stays:
    /// it counts what users change.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`]: the record is another one by now (which may be `new` itself, when
    /// the answer to an earlier sending was lost), or the topic is gone or being deleted.
    async fn swap_routing(
        &self,
        topic: &TopicName,
        seen: &RoutingRecord,
        new: &RoutingRecord,
    ) -> Result<(), StoreError>;
}

/// The last deadline a shard gave in each class that means "in flight".
///
/// Deadlines are receipts: a shard that takes over ids goes on above those that were given for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadlineFloor([Timestamp; 8]);

impl DeadlineFloor {
    /// The last deadline of `class`; zero for a class that is not held.
    #[must_use]
    pub fn of(&self, class: LeaseClass) -> Timestamp {
        self.0.get(usize::from(class.digit()).wrapping_sub(1)).copied().unwrap_or_default()
    }

    /// Raises the deadline of `class` to `deadline`, if it is held and lower.
    pub fn raise(&mut self, class: LeaseClass, deadline: Timestamp) {
        if let Some(last) = self.0.get_mut(usize::from(class.digit()).wrapping_sub(1)) {
            *last = deadline.max(*last);
        }
    }

    /// Raises every class to what `other` has.
    pub fn raise_all(&mut self, other: &Self) {
        for (class, deadline) in other.iter() {
            self.raise(class, deadline);
        }
    }

    /// Class and last deadline, for all eight classes in order.
    pub fn iter(&self) -> impl Iterator<Item = (LeaseClass, Timestamp)> + '_ {
        LeaseClass::held().zip(self.0)
    }
}

/// Whether what was answered outlives the server that answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replication {
    /// On the disk of an embedded store, or on as many replicas as a move waits for.
    Replicated,
    /// In one server only, which has no replica: its restart may undo the last moments. Keep a batch
    /// that was put for a grace period, and look again ([`ResizeStore::last_applied_batch`]) before it is dropped.
    Unreplicated,
}

/// What [`ResizeStore::fence`] found and left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// The record the shard had; `None`: the fence created it.
    pub before: Option<Routing>,
    /// Its last deadlines. Those of the old shards, raised together, are the floor of the new ones.
    pub floor: DeadlineFloor,
}

/// What is known of a shard beside its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// Its copy of the routing record.
    pub routing: Routing,
    /// Its last deadlines.
    pub floor: DeadlineFloor,
    /// The batch in its outbox: name, destination, number of messages.
    pub outbox: Option<(BatchId, u32, u64)>,
    /// Messages, dead letters and frozen messages in it.
    pub held: u64,
}

/// Where a scan goes on. Opaque: only the store that made it can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub String);

/// One id a scan met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// The id.
    pub id: MessageId,
    /// Scheduled, in flight or dead.
    pub state: MessageState,
    /// When it is visible; of a dead letter, when it died.
    pub visible_at: Timestamp,
}

/// One page of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPage {
    /// This is the first page of a whole scan: asked for, or because another server answers for the
    /// shard by now, where the cursor means nothing. What earlier pages said is void.
    pub first: bool,
    /// Live messages and dead letters, in no order; an id may come twice.
    pub found: Vec<Scanned>,
    /// Where the next page starts; `None`: the scan is whole. It missed no id that was there all the time, unless
    /// `revived` rose.
    pub next: Option<Cursor>,
    /// A count that rises with each step by which an id that belongs elsewhere may have come to a part of this shard that
    /// the scan had left: a dead letter that lives again, a batch that was put back. A scan missed nothing that belongs
    /// elsewhere only if its last page has the count of its first.
    pub revived: u64,
}

/// What names a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchId {
    /// Counts the batches of its source.
    pub number: u64,
    /// Random: two movers, or one server before and after a failover, never mean the same by chance.
    pub nonce: u64,
}

/// A frozen message, with everything it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frozen {
    /// Its id.
    pub id: MessageId,
    /// Where it is in its life.
    pub state: FrozenState,
    /// Its stored body ([`crate::envelope`]); `None`: the store has lost it, which a claim will find.
    pub body: Option<Bytes>,
}

/// See [`Frozen`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrozenState {
    /// Scheduled, suspect or in flight: the score moves as it is, so receipts stay good.
    Live(Score),
    /// A dead letter.
    Dead {
        /// Its place among the dead letters: time of death in ms · 1000, made unique in its shard.
        at: i64,
        /// How many times it was claimed.
        attempts: u8,
        /// Why it died.
        reason: String,
    },
}

impl Frozen {
    /// How `by` removes a message, and with what it puts it back ([`crate::MessageStore::restore`]); `None`: the message
    /// is claimed, or its body is lost.
    #[must_use]
    pub fn taken_out(message: StoredMessage, by: u64) -> Option<(Edit, Self)> {
        let (id, nonce, attempts) = (message.id.clone(), message.nonce, message.attempts);
        let (was, state) = match (message.version(), message.death) {
            (Some(version), _) => (TakenState::Scheduled(version.score), FrozenState::Live(version.score)),
            (None, Some(Death { at: died_at, reason })) => {
                let at = Score::new(died_at, LeaseClass::FREE, 0).raw();
                (TakenState::Dead(died_at), FrozenState::Dead { at, attempts, reason })
            }
            (None, None) => return None,
        };
        let StoredMessage { due_at, redrives, headers, payload, .. } = message;
        let body = Envelope { due_at, nonce, redrives, headers, payload }.encode();
        Some((Edit::TakeOut { id: id.clone(), nonce, was, by }, Self { id, state, body: Some(body) }))
    }

    /// As a page of live messages has it.
    #[must_use]
    pub fn listed(&self) -> Option<ListEntry> {
        let FrozenState::Live(score) = self.state else { return None };
        Some(ListEntry { id: self.id.clone(), score, tie: self.id.to_string() })
    }

    /// As a page of dead letters has it, with its cursor.
    #[must_use]
    pub fn dead_letter(&self) -> Option<(i64, StoredMessage)> {
        let FrozenState::Dead { at, attempts, reason } = &self.state else { return None };
        let body = self.body.as_ref().and_then(|body| envelope::decode(body).ok()).unwrap_or_else(Envelope::lost);
        let died = Timestamp::from_millis(at / 1000);
        let message = StoredMessage {
            id: self.id.clone(),
            state: MessageState::Dead,
            due_at: body.due_at,
            visible_at: died,
            attempts: *attempts,
            redrives: body.redrives,
            nonce: body.nonce,
            headers: body.headers,
            payload: body.payload,
            death: Some(Death { at: died, reason: reason.clone() }),
        };
        Some((*at, message))
    }
}

/// Messages frozen for one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its id.
    pub name: BatchId,
    /// The shard it is in.
    pub from: u32,
    /// The shard it goes to.
    pub to: u32,
    /// What is in it, by id.
    pub messages: Vec<Frozen>,
}

/// Outcome of applying a batch at its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// The batch is applied, by this call or by an earlier one.
    Done {
        /// Messages that this call inserted; the ids of the others were there already.
        fresh: u64,
        /// Whether the batch survives the loss of its server.
        kept: Replication,
    },
    /// Another batch of this source with this number or a higher one was applied before; nothing was written. Give the
    /// batch a higher number by [`ResizeStore::rename_batch`] and apply it again.
    Conflict {
        /// The last batch of the source that the destination remembers.
        last: BatchId,
    },
}

/// A store that can be resized. What holds for every call stands at the top of this file.
#[async_trait]
pub trait ResizeStore: Send + Sync + std::fmt::Debug + 'static {
    /// Raises shard `index` of `topic` to `routing`, creating it, empty, if it is new. Idempotent.
    ///
    /// Its last deadlines are raised to `floor`. With the epoch and change id it has already, only the
    /// floor and the state change, and the state only from moving to stable: what the commit says
    /// may be sent to shards, but never has to be. Messages, claims and receipts are untouched.
    ///
    /// # Errors
    ///
    /// [`StoreError::Stale`]: the shard has a higher epoch. [`StoreError::Damaged`]: it has this
    /// epoch with another change id: two changes were begun at once, the topic must halt until an operator
    /// has looked. [`StoreError::UnknownShard`]: there is no such topic (any more).
    /// [`StoreError::Lost`]: the shard should be there under this record ([`Routing::may_lack`]) and is not; it
    /// is not recreated. [`StoreError::Occupied`]: its keys hold messages of an earlier incarnation of the topic that is
    /// not known to be deleted.
    async fn fence(
        &self,
        topic: &TopicName,
        index: u32,
        routing: &Routing,
        floor: &DeadlineFloor,
    ) -> Result<Fenced, StoreError>;

    /// What is known of shards, whatever their epochs; `None`: it does not exist. A look: not replicated.
    async fn inspect(&self, topic: &TopicName, indexes: Range<u32>) -> Result<Vec<Option<Inspected>>, StoreError>;

    /// One page of the shard's ids, about `limit` of them; `from`: where the page before ended.
    async fn scan(&self, shard: &Shard, from: Option<&Cursor>, limit: usize) -> Result<ScanPage, StoreError>;

    /// Freezes those of `ids` that live in the shard, as many from the first on as a batch may carry
    /// ([`crate::limits::CLAIM_BYTES_MAX`] of bodies, but at least one), under the next number of the
    /// shard and `nonce`, to go to shard `to`. Claims of them can be settled only after the move; where the shard has a
    /// bound of what is in flight, what is claimed and has not run out is left.
    ///
    /// An outbox that is not empty is answered instead: finish that first. `None`: none of them is here.
    async fn freeze_batch(
        &self,
        shard: &Shard,
        to: u32,
        ids: &[MessageId],
        nonce: u64,
    ) -> Result<Option<Batch>, StoreError>;

    /// The batch in the shard's outbox.
    async fn outbox(&self, shard: &Shard) -> Result<Option<Batch>, StoreError>;

    /// Whether the shard's server takes new messages. Asked before a take: what is frozen can be neither claimed nor
    /// cancelled until it has arrived, so nothing is taken for a shard that is full. Not replicated.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`]: it does not.
    async fn check_room(&self, shard: &Shard) -> Result<(), StoreError>;

    /// Inserts a batch at its destination, once: ids that live there already stay as they are. The
    /// shard's last deadlines are raised to those the batch brings. On a full server too, as far as it can.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`]: there was no byte left; nothing was written, the batch stays frozen; try again later.
    async fn apply_batch(&self, shard: &Shard, batch: &Batch) -> Result<ApplyOutcome, StoreError>;

    /// The last batch of source `from` that was put in `shard`.
    async fn last_applied_batch(&self, shard: &Shard, from: u32) -> Result<Option<BatchId>, StoreError>;

    /// Renames the batch in the outbox if it still has the nonce `seen` and no higher number;
    /// whether it has the name `new` now. Later batches are numbered above it.
    async fn rename_batch(&self, shard: &Shard, seen: u64, new: BatchId) -> Result<bool, StoreError>;

    /// Empties the outbox if its batch has this nonce; false: it has not (any more). Only after
    /// [`ResizeStore::last_applied_batch`] of its destination said this very name.
    async fn discard_batch(&self, shard: &Shard, nonce: u64) -> Result<bool, StoreError>;

    /// Puts what is frozen back to its place in the shard and empties the outbox, in one step, if `batch` is what is in
    /// it, by its nonce; false: it is not (any more). What lives there by the same id stays as it is. Only where
    /// [`Batch::to`] is no shard under the caller's record and can take the batch no more: that place has the caller's
    /// record, and its [`ResizeStore::last_applied_batch`] said another name.
    async fn restore_batch(&self, shard: &Shard, batch: &Batch) -> Result<bool, StoreError>;

    /// From now on the shard, if it is new under the caller's record, may have so many messages in flight
    /// ([`crate::InFlightBound::HandedOver`]), unless it may have more already. Under another record it begins with
    /// none. Answers how many it has in flight.
    async fn hand_over_places(&self, shard: &Shard, places: u32) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_is_only_raised_and_only_for_claims() {
        let mut floor = DeadlineFloor::default();
        let at = Timestamp::from_millis;
        floor.raise(LeaseClass::TOPIC, at(5));
        floor.raise(LeaseClass::TOPIC, at(3));
        floor.raise(LeaseClass::FREE, at(9));
        floor.raise(LeaseClass::SUSPECT, at(9));
        let mut other = DeadlineFloor::default();
        other.raise(LeaseClass::TOPIC, at(4));
        other.raise_all(&floor);
        assert_eq!(other, floor);
        assert_eq!(floor.of(LeaseClass::TOPIC), at(5));
        assert_eq!((floor.of(LeaseClass::FREE), floor.of(LeaseClass::SUSPECT)), (Timestamp::ZERO, Timestamp::ZERO));
        assert_eq!(floor.iter().count(), 8);
    }
}
