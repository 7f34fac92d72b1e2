//! The sink `nats`: messages are published to JetStream, and count as delivered when a stream has
//! acknowledged them.
//!
//! `config` is the manual of its settings, `target` the connection and the verdicts.

mod config;
mod target;

pub use config::{KIND, NatsConfig};
pub(crate) use target::NatsTarget;
