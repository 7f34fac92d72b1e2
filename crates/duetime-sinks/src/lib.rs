//! Where due messages go: one file per type of target, each with its config struct, its connection
//! and its verdicts.
//!
//! Upstream: the program binds topics through [`SinkRegistry`]. Downstream: the targets themselves.
//! Knows nothing of stores and shards; never logs a credential.

#[cfg(any(feature = "nats", feature = "rabbitmq"))]
mod confirm_wait;
mod content_type;
pub mod fault;
#[cfg(all(any(test, fuzzing), feature = "http"))]
pub mod fuzz;
pub mod gate;
#[cfg(feature = "http")]
pub mod http;
pub mod in_flight_limit;
#[cfg(feature = "redis-stream")]
mod in_place;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod log;
#[cfg(feature = "nats")]
pub mod nats;
pub mod own_headers;
pub mod probe_wait;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "redis-stream")]
pub mod redis_stream;
pub mod registry;
pub mod remedy;
pub mod settings;
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq"))]
pub mod shared_connection;
mod target;
pub mod template;

pub use fault::SinkFault;
pub use registry::{SinkConfig, SinkRegistry};
