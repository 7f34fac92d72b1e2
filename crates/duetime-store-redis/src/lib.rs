//! `Store` on Redis: keys, scripts, replies.
//!
//! Upstream: `duetime-core`'s contract. Downstream: `duetime-redis`'s link. The protocol is described in
//! `docs/PROTOCOL.md`; the scripts lie under `lua/`. Knows nothing of HTTP, sinks or ownership.

// The layers of one call (typed operation, script, connection, fence) make one deep type.
#![recursion_limit = "256"]

mod abandoned;
mod adopt;
mod caller_time;
mod calls;
mod catalog;
mod claim;
mod config;
mod edit;
mod edit_dead;
mod enqueue;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod health;
mod held;
mod in_place;
mod keys;
mod look;
mod moves;
mod read;
mod record;
mod records;
mod replicas;
mod reply;
mod reply_cache;
mod resize;
mod restore;
mod retry;
mod scripts;
mod seal;
mod settings;
mod settle;
mod shard_creation;
mod sizes;
mod source;
mod store;
mod topic_lifecycle;
mod topics;
mod watermark;

pub use config::{Durability, RedisStoreConfig, Surroundings};
pub use store::RedisStore;
