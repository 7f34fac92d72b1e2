//! One link to Redis: connect, route, retry, load scripts.
//!
//! Upstream: the `redis` crate, which is seen nowhere else but where replies are read.
//! Downstream: store-redis and ownership. Knows nothing of messages; of shards it knows which slot they are in.

mod cluster;
mod config;
mod confirmed;
mod connection;
mod dial;
mod error;
mod facts;
mod fence;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod link;
mod node;
mod pipeline;
mod pubsub;
mod replicated;
mod reply;
mod retry_budget;
mod script;
mod sentinel;
mod server_clock;
mod servers;
mod setup;
pub mod slots;
#[cfg(test)]
mod tests;
mod topology;
mod url;
mod watch;

pub use config::{LinkConfig, SentinelLogin};
pub use dial::{ByteStream, Dial};
pub use error::LinkError;
pub use facts::MasterFacts;
pub use link::Link;
pub use replicated::Backing;
pub use script::{NOT_AFTER, Script, Sending};
pub use setup::{Checks, ClockSkews, ServerFacts};
pub use url::RedisUrl;
