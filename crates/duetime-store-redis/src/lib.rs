//! `Store` on Redis: keys, scripts, replies.
//!
//! Upstream: `duetime-core`'s contract. Downstream: `duetime-redis`'s link. The protocol is described in
//! `docs/PROTOCOL.md`; the scripts lie under `lua/`. Knows nothing of HTTP, sinks or ownership.

// The layers of one call (typed operation, script, connection, fence) make one deep type.
#![recursion_limit = "256"]

mod abandoned;
mod adopt;
mod calls;
mod carry;
mod catalogue;
mod claim;
mod config;
mod edit;
mod enqueue;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod hand_over;
mod health;
mod held;
mod keys;
mod lives;
mod look;
mod made;
mod moves;
mod plans;
mod present;
mod read;
mod record;
mod replicas;
mod reply;
mod reply_cache;
mod resize;
mod scripts;
mod seal;
mod settings;
mod settle;
mod sizes;
mod source;
mod store;
mod topics;

pub use config::{Durability, RedisStoreConfig, Surroundings};
pub use store::RedisStore;
