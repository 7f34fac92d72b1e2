//! The sink `kafka`: an idempotent producer, and messages count as handed over when all in-sync
//! replicas have them.
//!
//! `config` is the manual of its settings, `producer` the connection, `verdict` what an error means,
//! `call` hands messages over, `target` brings them together. Built only with the feature `kafka`; TLS and SCRAM only with
//! `kafka-tls`.

mod call;
mod config;
mod producer;
mod target;
#[cfg(test)]
mod tests;
mod verdict;

pub use config::{Compression, KIND, KafkaConfig, Sasl};
pub(crate) use target::KafkaTarget;
