//! What the measurements of the workspace share.
//!
//! Upstream: `benches/src/bin`: `brokers` holds the sinks against plain clients, `resize` a load against itself while
//! its shards change. What cannot be measured panics with the reason.

pub mod brokers;
pub mod resize;
pub mod scale;
