//! The contracts of a store, cut by who asks: each reader takes the traits whose methods it calls.
//!
//! | trait | who asks |
//! |---|---|
//! | [`TopicStore`] | the catalog |
//! | [`MessageStore`] | the router |
//! | [`ClaimStore`] | the engine, the router |
//! | [`ScheduleStore`] | the engine, ownership, the router |
//! | [`StoreHealth`] | the program, the API |
//! | [`RecordStore`] | the router, for bulk actions and for sinks that are put by the API |
//! | [`crate::BackupStore`] | the API |
//! | [`crate::ResizeStore`] | the live resize, the router |
//! | [`crate::RoutingAuthority`] | the live resize |
//!
//! [`Store`] is all that a store is: for the program, which opens one and gives each its part. What holds for
//! every call is written in [`crate::store`] and [`crate::resize_store`]. No method has a body: one that is left out where
//! the contract is forwarded ([`crate::layer`]) does not compile.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use tokio::sync::broadcast;

use crate::in_place::{StreamTransfer, Streamed};
use crate::listing::{ListPage, ListRange};
use crate::lookup::{Lookup, Role};
use crate::message::StoredMessage;
use crate::names::{MessageId, TopicName};
use crate::records::RecordStore;
use crate::resize_store::{Frozen, ResizeStore, RoutingAuthority};
use crate::routing::Shard;
use crate::score::Score;
use crate::server::{ServerId, ShardLocation};
use crate::store::{
    AckWait, Adopt, Adopted, BatchReply, Claim, ClaimRequest, DeadAction, DeadEdit, DeadEdited, DeadKept, DeadPage,
    Deletion, Edit, Edited, Enqueue, Enqueued, Settle, Settled, ShardCounts, Wakeup,
};
use crate::store_error::StoreError;
use crate::time::{Clock, Timestamp};
use crate::topic::TopicRecord;
use crate::watermark::Undone;

/// The records of the topics. Who keeps a picture of them asks: the catalog.
#[async_trait]
pub trait TopicStore: Send + Sync + fmt::Debug + 'static {
    /// All topics, in no order. O(topics).
    async fn topics(&self) -> Result<Vec<TopicRecord>, StoreError>;

    /// Answers once the routing of `record`, as [`TopicStore::topics`] answered it, is where no failover undoes it.
    ///
    /// A look may meet a change that is not on the replicas yet. Who acts on one that a failover
    /// undoes takes shards to a place nobody else knows of.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`]: it is another one by now.
    async fn confirm(&self, record: &TopicRecord) -> Result<(), StoreError>;

    /// Creates the topic (`seen` is `None`) with all its shards, or changes it from version `seen`;
    /// `record.version` must be one above `seen`, or 1.
    ///
    /// A change never touches the routing: that is the resize's business. A creation begins a life of the
    /// topic: the store gives it its number ([`crate::routing::LIFE`]), above that of every life of the name
    /// before. The answer is the record as it is stored.
    ///
    /// # Errors
    ///
    /// [`StoreError::Conflict`]: it exists already, is gone, or has another version.
    /// [`StoreError::Vanished`]: nobody deleted the topic that had this name, and its shards hold messages.
    async fn put_topic(&self, record: &TopicRecord, seen: Option<u64>) -> Result<TopicRecord, StoreError>;

    /// Removes the topic with everything in it; false: it was not there. Works in bounded steps,
    /// so it may be repeated after an error. A topic whose record vanished is removed too, by [`Deletion::Force`].
    ///
    /// [`Deletion::IfEmpty`] decides together with the shards: whatever an enqueue, a move or a delivery in place
    /// acknowledged is there afterwards, or was there before and refused the deletion. Entries of a shard's own
    /// stream count like messages.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotEmpty`]: it holds something, or its shard count is changing. Nothing was deleted.
    /// [`StoreError::Conflict`]: others kept changing it meanwhile.
    async fn delete_topic(&self, topic: &TopicName, how: Deletion) -> Result<bool, StoreError>;

    /// Messages in the shards of a topic that is not in the catalog and that nobody deletes or creates at
    /// present; 0: there are none, or it is in the catalog. A store whose topics and messages are one file
    /// loses neither without the other.
    async fn remains(&self, topic: &TopicName) -> Result<u64, StoreError>;

    /// Whether somebody deleted the topic in this life or a later one: a deletion leaves its number. A store whose
    /// topics and messages are one file loses no topic in another way.
    async fn was_deleted(&self, topic: &TopicName, life: u64) -> Result<bool, StoreError>;

    /// Puts the record of a topic back that vanished while its shards hold messages, as its shards have it;
    /// a resize under way goes on. With [`Adopt::accept_loss`], its lost shards are recreated empty.
    ///
    /// # Errors
    ///
    /// [`StoreError::UnknownShard`]: nothing is left of it. [`StoreError::Conflict`]: it is being deleted, or
    /// was. [`StoreError::SettingsUnknown`].
    async fn adopt_topic(&self, topic: &TopicName, ask: &Adopt) -> Result<Adopted, StoreError>;

    /// Finishes deletions whose node ended before their shards were removed. A store of one node has none: it
    /// goes on with them when it is opened.
    async fn finish_deletions(&self) -> Result<(), StoreError>;

    /// Names whose record the last [`TopicStore::topics`] could not read and left out.
    fn unreadable(&self) -> Vec<String>;
}

/// Messages by their id. The router asks.
#[async_trait]
pub trait MessageStore: Send + Sync + fmt::Debug + 'static {
    /// Schedules messages. One script, O(items · log N). A source acts on ids that live there and creates none.
    async fn enqueue_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        batch: &[Enqueue],
    ) -> Result<Vec<Lookup<Enqueued>>, StoreError>;

    /// Cancels and reschedules; answers how many replicas have it, where that is counted. What is of one kind and no
    /// longer than [`BATCH_ITEMS_MAX`](crate::limits::BATCH_ITEMS_MAX)
    /// ([`OLD_ITEMS_MAX`](crate::limits::OLD_ITEMS_MAX) at a source) is one step: an error means all of it. Other
    /// batches are several steps, of which an error loses the answers. A source never finds [`Edited::Unknown`] nor
    /// [`Edited::Gone`].
    async fn edit_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        batch: &[Edit],
    ) -> Result<BatchReply<Lookup<Edited>>, StoreError>;

    /// Reads messages. What is not at its home is [`Lookup::Absent`] too, with what is remembered of it.
    async fn get_at(
        &self,
        shard: &Shard,
        role: Role,
        ids: &[MessageId],
    ) -> Result<Vec<Lookup<StoredMessage>>, StoreError>;

    /// Claims of `shard` that a cancel ended, the oldest first: the last
    /// [`CANCELS_KEPT`](crate::limits::CANCELS_KEPT) at least, as far as the shard remembers any. To explain to a
    /// holder why its receipt is void, and for nothing else: what is not among them may have been cancelled too.
    async fn cancelled_claims(&self, shard: &Shard) -> Result<Vec<(MessageId, Score)>, StoreError>;

    /// Dead letters from `from` on (`None`: the oldest), at most `limit`.
    async fn dead_letters(&self, shard: &Shard, from: Option<i64>, limit: usize) -> Result<DeadPage, StoreError>;

    /// Live messages in the order of their scores, at most `limit` and at most
    /// [`BATCH_ITEMS_MAX`](crate::limits::BATCH_ITEMS_MAX), without their bodies. What is there all the time and keeps
    /// its score comes once, however many have the same. O(log² N + limit).
    async fn list(&self, shard: &Shard, range: &ListRange, limit: usize) -> Result<ListPage, StoreError>;

    /// Redrives or purges dead letters by id, with how many replicas have it, where that is counted; false: it is not
    /// a dead letter.
    async fn resolve_dead_letters_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<BatchReply<Lookup<bool>>, StoreError>;

    /// Changes dead letters, each in one step with the look whether it is still the letter that was read. A repetition of a
    /// rewrite is answered [`DeadEdited::Already`] as long as its message is there or is remembered. O(items · log N + bytes).
    ///
    /// # Errors
    ///
    /// [`StoreError::ClockSkew`] and [`StoreError::Full`], of a rewrite: nothing was done.
    async fn edit_dead_letters_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        edits: &[DeadEdit],
    ) -> Result<BatchReply<Lookup<DeadEdited>>, StoreError>;

    /// Puts messages back that [`Edit::TakeOut`] of `by` removed from this shard under this very record: with their payload,
    /// headers, due and visible time and attempts, dead letters with time and reason of their death. False, and the id was left alone:
    /// it lives; or something else is remembered of it than this removal, or nothing any more, or somebody cancelled it since.
    /// So it puts nothing back where the shard does not remember, and nothing twice when it is repeated. At most
    /// [`BATCH_ITEMS_MAX`](crate::limits::BATCH_ITEMS_MAX), one step. O(items · log N).
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`]: nothing was put back. [`StoreError::Stale`]: the shard count was changed since; nothing was.
    async fn restore(
        &self,
        shard: &Shard,
        now: Timestamp,
        by: u64,
        taken: &[Frozen],
    ) -> Result<BatchReply<bool>, StoreError>;

    /// Removes dead letters that are not kept, the oldest first and at most
    /// [`BATCH_ITEMS_MAX`](crate::limits::BATCH_ITEMS_MAX), as a purge does; how many. Which these are is decided in the step
    /// that removes them, by what the shard holds then, and their age by the earlier of the two clocks: so it may come
    /// late, twice, or from any node. What is on its way to another shard is left alone. O(limit · log N).
    async fn expire_dead_letters(&self, shard: &Shard, now: Timestamp, kept: DeadKept) -> Result<u64, StoreError>;

    /// What of `shard` is not done and has the oldest due time, and the present by the earlier clock. Only of a topic
    /// with a watermark; an answer is replicated, as those of [`crate::resize_store`]. O(log N), while messages move
    /// O(bytes of a batch) more.
    async fn undone(&self, shard: &Shard, now: Timestamp) -> Result<Undone, StoreError>;

    /// Keeps `at` as the topic's watermark, where the one that is kept is earlier; answers the one that is kept then.
    /// `shard`: the topic's first. An answer is replicated. O(1).
    async fn keep_watermark(&self, shard: &Shard, at: Timestamp) -> Result<Timestamp, StoreError>;

    /// Bytes of the bodies in these shards, dead letters too. A store that keeps no sum estimates it from some
    /// bodies of each shard, drawn at random: O(shards).
    async fn bytes(&self, shards: &[Shard]) -> Result<u64, StoreError>;

    /// How many messages are visible in each bucket `edges[i] <= t < edges[i + 1]`, over all shards but those whose
    /// server does not answer at present where others do; and how many these are.
    async fn forecast(&self, shards: &[Shard], edges: &[Timestamp]) -> Result<(Vec<u64>, usize), StoreError>;
}

/// What a store without streams answers when it is asked to hand messages over in place.
#[must_use]
pub fn no_streams() -> StoreError {
    StoreError::Setup("this store has no streams to hand messages over to in place".to_owned())
}

/// Messages by their time. The engine asks.
#[async_trait]
pub trait ClaimStore: Send + Sync + fmt::Debug + 'static {
    /// Takes messages that are due. O(limit · log N).
    async fn claim(&self, shard: &Shard, now: Timestamp, request: &ClaimRequest) -> Result<Claim, StoreError>;

    /// Moves messages that are due to the shard's own stream: claim, delivery and ack in one step.
    /// O(limit · log N). Only where [`ClaimStore::has_streams`].
    async fn deliver_in_place(
        &self,
        shard: &Shard,
        now: Timestamp,
        ask: &StreamTransfer,
    ) -> Result<Streamed, StoreError>;

    /// Whether [`ClaimStore::deliver_in_place`] works. A store that has no streams refuses it by [`no_streams`].
    fn has_streams(&self) -> bool;

    /// Settles claims; answers how many replicas have it, where `wait` asks for them. A receipt is good wherever its
    /// message is: a source finds [`Settled::Expired`] where the id lives there and the receipt is not its.
    async fn settle_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        batch: &[Settle],
        wait: AckWait,
    ) -> Result<BatchReply<Lookup<Settled>>, StoreError>;
}

/// When shards are due, how much is in them and who holds them. The engine asks, and who shares out shards.
#[async_trait]
pub trait ScheduleStore: Send + Sync + fmt::Debug + 'static {
    /// Counts of many shards in as few round trips as the backend has masters. `None`: its server does not answer at
    /// present, where others do.
    async fn counts(&self, shards: &[Shard], now: Timestamp) -> Result<Vec<Option<ShardCounts>>, StoreError>;

    /// Returns the server that holds `shard` at present, as far as known without asking any. Calls on shards of another
    /// server do not wait for it.
    fn server_of(&self, shard: &Shard) -> ServerId;

    /// Visible time of the first message of each shard: the cheapest look there is, one round trip
    /// for all shards of a master. Answers within about a second, one way or the other.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`]: one of the servers is unresponsive. A caller with shards of several servers makes one
    /// call for each [`ServerId`].
    async fn next_due(&self, shards: &[Shard]) -> Result<Vec<Option<Timestamp>>, StoreError>;

    /// Hints about new heads, from this process and from others where the backend notices them.
    fn wakeups(&self) -> broadcast::Receiver<Wakeup>;
}

/// Whether the store serves. The program asks, and so do those who report it to the outside.
#[async_trait]
pub trait StoreHealth: Send + Sync + fmt::Debug + 'static {
    /// By how many milliseconds the store's clock is ahead of `clock` (negative: behind), time on the
    /// way left out. A store that has no clock of its own is never apart.
    async fn clock_skew_ms(&self, clock: &dyn Clock) -> Result<i64, StoreError>;

    /// What harms single topics at present and an operator has to see, one sentence each.
    fn issues(&self) -> Vec<String>;

    /// Where the store keeps `shard`, whether it is there or not.
    fn locate(&self, shard: &Shard) -> ShardLocation;

    /// Answers when the store is able to serve.
    async fn ready(&self) -> Result<(), StoreError>;
}

/// All that a store is asked while it serves. For who opens it; others take a part.
pub trait Store:
    TopicStore + MessageStore + ClaimStore + ScheduleStore + StoreHealth + RecordStore + ResizeStore + RoutingAuthority
{
}

impl<S> Store for S where
    S: TopicStore
        + MessageStore
        + ClaimStore
        + ScheduleStore
        + StoreHealth
        + RecordStore
        + ResizeStore
        + RoutingAuthority
{
}

/// Groups shards by server, for one call each. Returns their positions in `shards`.
#[must_use]
pub fn group_by_server(store: &dyn ScheduleStore, shards: &[Shard]) -> BTreeMap<ServerId, Vec<usize>> {
    let mut servers = BTreeMap::<ServerId, Vec<usize>>::new();
    for (at, shard) in shards.iter().enumerate() {
        servers.entry(store.server_of(shard)).or_default().push(at);
    }
    servers
}
