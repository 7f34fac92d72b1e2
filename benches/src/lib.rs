//! What the measurements of the workspace share.
//!
//! Upstream: `benches/src/bin`: `raw` holds the store against its bare scripts, with Redis spoken by hand, as
//! dumbly as can be; `brokers` holds the sinks against plain clients.

pub mod brokers;
pub mod raw;
pub mod resp;
pub mod tap;
