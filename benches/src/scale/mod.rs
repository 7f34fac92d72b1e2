//! What more Redis masters, nodes and shards do to throughput and to the cost of a message.
//!
//! Upstream: `benches/src/bin/scale.rs`. Servers are the test kit's, on free ports with empty folders.

pub mod fleet;
pub mod idle;

/// Bytes of each payload.
pub const PAYLOAD: usize = 100;
/// The topic of all runs; each has a namespace of its own.
pub const TOPIC: &str = "orders";
/// Delivers at once and writes nothing, so that what is measured is Duetime and Redis.
pub const SINK: &str = "[sinks.target]\ntype = \"log\"\ncount_only = true\n\n";
