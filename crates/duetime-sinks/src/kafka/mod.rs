//! The sink `kafka`: an idempotent producer, and messages count as delivered when all in-sync
//! replicas have them.
//!
//! `config` is the manual of its settings, `producer` the connection, `verdict` what an error means,
//! `client` is one cluster with its producers, `call` hands messages over, `target` makes sinks for topics. Built only with the feature `kafka`; TLS and SCRAM only with
//! `kafka-tls`.

mod call;
mod client;
mod config;
mod producer;
mod target;
#[cfg(test)]
mod tests;
mod verdict;

pub(crate) use client::KafkaTarget;
pub use config::{Compression, KIND, KafkaConfig, Sasl};
