//! The front door: the HTTP API, its OpenAPI document and the status page.
//!
//! Upstream: producers, consumers, operators. Downstream: `duetime-router` for messages and topics,
//! the `Consumers` contract for claims. The only room that knows the JSON of the API; knows no
//! concrete store, sink or ownership.

mod activity;
mod adopt;
mod app;
mod at_most;
mod audit;
mod auth;
mod body;
mod claims;
mod connections;
mod dead;
mod doc;
mod enqueue;
mod fields;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod guard;
mod memory;
mod message_in;
mod messages;
mod ndjson;
mod observe;
mod options;
mod origin;
mod path;
mod problem;
mod rates;
mod results;
mod scopes;
mod secret;
mod server;
mod shards;
mod sinks;
mod tls;
mod topics;
mod unread;
mod view;

#[cfg(test)]
mod tests;

pub use app::{HttpParts, NodeInfo, router};
pub use audit::{Audit, AuditFile, AuditTarget, LogWord};
pub use auth::{Auth, AuthConfig, Scope, TokenConfig, new_token};
pub use connections::ConnectionBounds;
pub use doc::openapi;
pub use memory::RequestMemory;
pub use options::HttpOptions;
pub use origin::Hosts;
pub use secret::SecretSource;
pub use server::serve;
pub use tls::{Tls, TlsFiles};
