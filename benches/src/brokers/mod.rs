//! Delivery to brokers, measured: each broker's own publishing limit, then Duetime in front of it.
//!
//! Upstream: `benches/src/bin/brokers.rs`. Servers are the test kit's, on free ports with empty folders.

pub mod cost;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod node;
pub mod plain;

/// Messages in one call of a sink, and calls under way: the plain clients keep the same window.
pub const BATCH: usize = 128;
/// See [`BATCH`].
pub const CALLS: usize = 8;
/// Bytes of each payload.
pub const PAYLOAD: usize = 100;
/// The topic that is drained; its queue, subject and stream are called the same.
pub const TOPIC: &str = "orders";
/// The topic whose lateness is measured.
pub const LATE: &str = "late";
