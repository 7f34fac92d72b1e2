//! The language of the product: nouns, pure rules and contracts.
//!
//! Upstream: nothing of ours. Downstream: every other crate. Does no I/O, spawns nothing,
//! reads no clock: time and randomness are arguments.

pub mod assign;
mod backup;
pub mod consumer;
pub mod contract;
mod dead_edit;
pub mod dead_origin;
pub mod deadlines;
mod draw;
mod edit;
mod end;
pub mod envelope;
mod expiry;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod in_place;
pub mod layer;
pub mod limits;
mod listing;
pub mod lookup;
pub mod max_attempts;
pub mod memory;
pub mod message;
pub mod names;
mod on_conflict;
pub mod own_visibility;
pub mod ownership;
mod pause;
pub mod plans;
mod previous;
pub mod receipt;
pub mod repeat;
pub mod resize_store;
pub mod resizing;
pub mod retry;
pub mod routing;
pub mod score;
mod series;
pub mod server;
pub mod setting;
pub mod shard_count;
pub mod shares;
pub mod sink;
pub mod sink_state;
pub mod smear;
pub mod store;
mod store_error;
pub mod stored;
pub mod suggest;
mod test_clock;
pub mod time;
pub mod topic;
pub mod topic_config;
pub mod trace;
pub mod tracer;
pub mod units;
pub mod watermark;

pub use backup::{Backup, BackupError, BackupStore};
pub use consumer::{ClaimAsk, ClaimedBatch, Consumers, HeldBudget, ReleaseAction, UnlessSent};
pub use contract::{ClaimStore, MessageStore, ScheduleStore, Store, StoreHealth, TopicStore};
pub use draw::Draw;
pub use end::End;
pub use expiry::Expiry;
pub use in_place::{InPlace, StreamTransfer, Streamed};
pub use listing::{ListEntry, ListPage, ListPlace, ListRange};
pub use lookup::{Lookup, Role};
pub use memory::{Memory, Outcome};
pub use message::{
    Due, EXPIRES, Headers, MAX_ATTEMPTS, MessageState, Nonce, PREVIOUS, REPEAT, StoredMessage, VISIBILITY, Version,
};
pub use names::{MessageId, NameError, Namespace, TopicName};
pub use on_conflict::OnConflict;
pub use ownership::{ClusterNodes, Drain, GoneNode, Member, MemberState, OwnedShards, Ownership, Vitals};
pub use pause::{PauseNote, check_pause_reason};
pub use plans::PlanStore;
pub use previous::Previous;
pub use receipt::Receipt;
pub use repeat::{Missed, Repeat, RepeatAsk, RepeatError, Rule, Successor};
pub use resize_store::{ResizeStore, RoutingAuthority};
pub use resizing::{Mover, ResizeError, ResizeProgress, Resizing};
pub use retry::RetryPolicy;
pub use routing::{ChangeId, Parity, Routing, RoutingId, RoutingRecord, RoutingState, Shard};
pub use score::{LeaseClass, Score};
pub use server::{ServerId, ShardLocation};
pub use shard_count::{AutoShards, ShardCount};
pub use sink::{BindError, Delivery, Sink, SinkBinder, Verdict};
pub use sink_state::{OutageEnd, ProbeOutcome, SinkDown, SinkOutage, SinkState, SinkStates};
pub use store::{Deletion, StoreError};
pub use test_clock::TestClock;
pub use time::{Clock, Timestamp};
pub use topic::{TopicRecord, Topics};
pub use topic_config::{DeliveryMode, OnExpiry, RateLimit, SinkRef, TopicConfig};
pub use watermark::{Undone, UndoneMessage, UndoneState};
