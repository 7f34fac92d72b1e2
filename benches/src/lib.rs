//! What the measurements of the workspace share.
//!
//! Upstream: `benches/src/bin`: `raw` holds the store against its bare scripts, with Redis spoken by hand, as
//! dumbly as can be; `brokers` holds the sinks against plain clients,
//! `resize` a load against itself while its shards change. What cannot be measured panics with the reason.

pub mod brokers;
pub mod raw;
pub mod resize;
pub mod resp;
pub mod scale;
pub mod tap;
