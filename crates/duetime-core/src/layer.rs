//! A store with a layer around every call: meters in the program, faults and clocks in tests.
//!
//! The one place where the contract is forwarded. To observe, count or refuse calls, implement [`StoreLayer`] and wrap a
//! store by [`Layered`]. A method that is added to the contract is forwarded here and nowhere else.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::{fmt, slice};

use async_trait::async_trait;
use tokio::sync::broadcast;

use crate::contract::{ClaimStore, MessageStore, ScheduleStore, Store, StoreHealth, TopicStore};
use crate::in_place::{StreamTransfer, Streamed};
use crate::listing::{ListPage, ListRange};
use crate::lookup::{Lookup, Role};
use crate::message::StoredMessage;
use crate::names::{MessageId, TopicName};
use crate::records::{RecordKind, RecordStore, Records};
use crate::resize_store::{
    ApplyOutcome, Batch, BatchId, Cursor, DeadlineFloor, Fenced, Frozen, Inspected, ResizeStore, RoutingAuthority,
    ScanPage,
};
use crate::routing::{Routing, RoutingRecord, Shard};
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

/// A call that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The operation, as metrics name it.
    pub op: &'static str,
    /// The shards of the call; none if it is about a topic or the store as a whole.
    pub shards: &'a [Shard],
    /// How many messages the call names.
    pub items: usize,
}

/// Runs around every call of a store that can fail.
pub trait StoreLayer: Send + Sync + fmt::Debug + 'static {
    /// Makes the call by awaiting `made`, or refuses it.
    fn around<T: Send>(
        &self,
        call: Call<'_>,
        made: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> impl Future<Output = Result<T, StoreError>> + Send;
}

/// A layer that is shared with its observer.
impl<A: StoreLayer> StoreLayer for Arc<A> {
    fn around<T: Send>(
        &self,
        call: Call<'_>,
        made: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> impl Future<Output = Result<T, StoreError>> + Send {
        A::around(self, call, made)
    }
}

/// A store with layer `A` around every call. Methods that answer at once, without a call, are forwarded as they are.
#[derive(Debug)]
pub struct Layered<A> {
    inner: Arc<dyn Store>,
    around: A,
}

impl<A: StoreLayer> Layered<A> {
    /// Wraps `inner` in the layer `around`.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>, around: A) -> Arc<Self> {
        Arc::new(Self { inner, around })
    }
}

/// Implements a trait for [`Layered`]. A line has a method, its name in metrics, and the shards and items of a call.
macro_rules! layered {
    ($contract:ident { $(
        $method:ident($($arg:ident: $kind:ty),*) -> $answer:ty, $op:expr, $shards:expr, $items:expr;
    )* } $($rest:item)*) => {
        #[async_trait]
        impl<A: StoreLayer> $contract for Layered<A> {
            $(
                async fn $method(&self, $($arg: $kind),*) -> Result<$answer, StoreError> {
                    let call = Call { op: $op, shards: $shards, items: $items };
                    self.around.around(call, self.inner.$method($($arg),*)).await
                }
            )*
            $($rest)*
        }
    };
}

layered! {
    TopicStore {
        topics() -> Vec<TopicRecord>, "topics", &[], 0;
        confirm(record: &TopicRecord) -> (), "confirm", &[], 0;
        put_topic(record: &TopicRecord, seen: Option<u64>) -> TopicRecord, "put_topic", &[], 0;
        delete_topic(topic: &TopicName, how: Deletion) -> bool, "delete_topic", &[], 0;
        remains(topic: &TopicName) -> u64, "remains", &[], 0;
        was_deleted(topic: &TopicName, life: u64) -> bool, "was_deleted", &[], 0;
        finish_deletions() -> (), "finish_deletions", &[], 0;
        adopt_topic(topic: &TopicName, ask: &Adopt) -> Adopted, "adopt_topic", &[], 0;
    }
    fn unreadable(&self) -> Vec<String> {
        self.inner.unreadable()
    }
}

layered! {
    MessageStore {
        enqueue_at(shard: &Shard, role: Role, now: Timestamp, batch: &[Enqueue]) -> Vec<Lookup<Enqueued>>,
            role.op("enqueue", "enqueue_at_source"), slice::from_ref(shard), batch.len();
        edit_at(shard: &Shard, role: Role, now: Timestamp, batch: &[Edit]) -> BatchReply<Lookup<Edited>>,
            role.op("edit", "edit_at_source"), slice::from_ref(shard), batch.len();
        get_at(shard: &Shard, role: Role, ids: &[MessageId]) -> Vec<Lookup<StoredMessage>>,
            role.op("get", "get_at_source"), slice::from_ref(shard), ids.len();
        resolve_dead_letters_at(shard: &Shard, role: Role, now: Timestamp, ids: &[MessageId], action: DeadAction)
            -> BatchReply<Lookup<bool>>,
            role.op("resolve_dead_letters", "resolve_dead_letters_at_source"), slice::from_ref(shard), ids.len();
        edit_dead_letters_at(shard: &Shard, role: Role, now: Timestamp, edits: &[DeadEdit])
            -> BatchReply<Lookup<DeadEdited>>,
            role.op("edit_dead_letters", "edit_dead_letters_at_source"), slice::from_ref(shard), edits.len();
        restore(shard: &Shard, now: Timestamp, by: u64, taken: &[Frozen]) -> BatchReply<bool>,
            "restore", slice::from_ref(shard), taken.len();
        expire_dead_letters(shard: &Shard, now: Timestamp, kept: DeadKept) -> u64,
            "expire_dead_letters", slice::from_ref(shard), 0;
        cancelled_claims(shard: &Shard) -> Vec<(MessageId, Score)>, "cancelled_claims", slice::from_ref(shard), 0;
        dead_letters(shard: &Shard, from: Option<i64>, limit: usize) -> DeadPage,
            "dead_letters", slice::from_ref(shard), 0;
        list(shard: &Shard, range: &ListRange, limit: usize) -> ListPage, "list_messages", slice::from_ref(shard), 0;
        undone(shard: &Shard, now: Timestamp) -> Undone, "watermark", slice::from_ref(shard), 0;
        keep_watermark(shard: &Shard, at: Timestamp) -> Timestamp, "keep_watermark", slice::from_ref(shard), 0;
        bytes(shards: &[Shard]) -> u64, "bytes", shards, 0;
        forecast(shards: &[Shard], edges: &[Timestamp]) -> (Vec<u64>, usize), "forecast", shards, 0;
    }
}

layered! {
    ClaimStore {
        claim(shard: &Shard, now: Timestamp, request: &ClaimRequest) -> Claim, "claim", slice::from_ref(shard), 0;
        deliver_in_place(shard: &Shard, now: Timestamp, ask: &StreamTransfer) -> Streamed, "deliver_in_place", slice::from_ref(shard), 0;
        settle_at(shard: &Shard, role: Role, now: Timestamp, batch: &[Settle], wait: AckWait) -> BatchReply<Lookup<Settled>>,
            role.op("settle", "settle_at_source"), slice::from_ref(shard), batch.len();
    }
    fn has_streams(&self) -> bool {
        self.inner.has_streams()
    }
}

layered! {
    ScheduleStore {
        counts(shards: &[Shard], now: Timestamp) -> Vec<Option<ShardCounts>>, "counts", shards, 0;
        next_due(shards: &[Shard]) -> Vec<Option<Timestamp>>, "next_due", shards, 0;
    }
    fn server_of(&self, shard: &Shard) -> ServerId {
        self.inner.server_of(shard)
    }
    fn wakeups(&self) -> broadcast::Receiver<Wakeup> {
        self.inner.wakeups()
    }
}

layered! {
    StoreHealth {
        clock_skew_ms(clock: &dyn Clock) -> i64, "clock_skew_ms", &[], 0;
        ready() -> (), "ready", &[], 0;
    }
    fn issues(&self) -> Vec<String> {
        self.inner.issues()
    }
    fn locate(&self, shard: &Shard) -> ShardLocation {
        self.inner.locate(shard)
    }
}

layered! {
    RecordStore {
        records(kind: RecordKind) -> Records, kind.op("list_plans", "list_sinks"), &[], 0;
        swap_record(kind: RecordKind, name: &str, seen: Option<&str>, new: Option<&str>) -> (),
            kind.op("change_plan", "change_sink"), &[], 0;
    }
}

layered! {
    RoutingAuthority {
        routing(topic: &TopicName) -> Option<RoutingRecord>, "routing", &[], 0;
        swap_routing(topic: &TopicName, seen: &RoutingRecord, new: &RoutingRecord) -> (), "swap_routing", &[], 0;
    }
}

layered! {
    ResizeStore {
        fence(topic: &TopicName, index: u32, routing: &Routing, floor: &DeadlineFloor) -> Fenced,
            "resize_fence", &[routing.shard(topic, index)], 0;
        inspect(topic: &TopicName, indexes: Range<u32>) -> Vec<Option<Inspected>>, "resize_inspect", &[], 0;
        scan(shard: &Shard, from: Option<&Cursor>, limit: usize) -> ScanPage, "resize_scan", slice::from_ref(shard), 0;
        freeze_batch(shard: &Shard, to: u32, ids: &[MessageId], nonce: u64) -> Option<Batch>,
            "resize_freeze_batch", slice::from_ref(shard), ids.len();
        outbox(shard: &Shard) -> Option<Batch>, "resize_outbox", slice::from_ref(shard), 0;
        check_room(shard: &Shard) -> (), "resize_check_room", slice::from_ref(shard), 0;
        apply_batch(shard: &Shard, batch: &Batch) -> ApplyOutcome, "resize_apply_batch", slice::from_ref(shard), batch.messages.len();
        last_applied_batch(shard: &Shard, from: u32) -> Option<BatchId>, "resize_last_applied_batch", slice::from_ref(shard), 0;
        rename_batch(shard: &Shard, seen: u64, new: BatchId) -> bool, "resize_rename_batch", slice::from_ref(shard), 0;
        discard_batch(shard: &Shard, nonce: u64) -> bool, "resize_discard_batch", slice::from_ref(shard), 0;
        restore_batch(shard: &Shard, batch: &Batch) -> bool, "resize_restore_batch", slice::from_ref(shard), batch.messages.len();
        hand_over_places(shard: &Shard, places: u32) -> u64, "resize_hand_over_places", slice::from_ref(shard), 0;
    }
}
