//! Where due messages go: one file per type of target, each with its config struct, its connection
//! and its verdicts.
//!
//! Upstream: the program binds topics through [`NodeSinks`], which has the sinks of the file ([`SinkRegistry`]) and those
//! that were put by the API. Downstream: the targets themselves.
//! Knows nothing of stores and shards; never logs a credential.

mod allowed_target;
pub mod by_api;
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
pub mod node_sinks;
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

pub use by_api::SinksByApiConfig;
pub use fault::SinkFault;
pub use node_sinks::NodeSinks;
pub use registry::{SinkConfig, SinkRegistry};
