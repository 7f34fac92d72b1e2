//! The sink `rabbitmq`: messages are published with confirms, and count as delivered when the
//! broker has taken responsibility for them.
//!
//! `config` is the manual of its settings, `connection` is the shared connection with its channels,
//! `publish` publishes one batch on one channel, `target` turns that into verdicts.

mod config;
mod connection;
mod publish;
mod target;

pub use config::{KIND, RabbitMqConfig};
pub(crate) use target::RabbitMqTarget;

#[cfg(test)]
mod tests;
