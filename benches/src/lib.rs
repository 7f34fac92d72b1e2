//! What the measurements of the workspace share: Redis spoken by hand, as dumbly as can be.
//!
//! Upstream: `benches/src/bin/raw.rs`, which holds the product's store against the bare scripts.

pub mod raw;
pub mod resp;
pub mod tap;
