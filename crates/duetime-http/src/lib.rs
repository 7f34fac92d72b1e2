//! The front door: the HTTP API, its OpenAPI document and the status page.
//!
//! Upstream: producers, consumers, operators. Downstream: `duetime-router` for messages and topics,
//! the `Consumers` contract for claims. The only room that knows the JSON of the API; knows no
//! concrete store, sink or ownership.

mod app;
mod auth;
mod body;
mod claims;
mod dead;
mod doc;
mod enqueue;
mod fields;
mod guard;
mod message_in;
mod messages;
mod ndjson;
mod observe;
mod options;
mod origin;
mod path;
mod problem;
mod results;
mod server;
mod shards;
mod topics;
mod view;

#[cfg(test)]
mod tests;

pub use app::{HttpParts, NodeInfo, router};
pub use auth::{Auth, AuthConfig, Scope, TokenConfig};
pub use doc::openapi;
pub use options::HttpOptions;
pub use origin::Hosts;
pub use server::serve;
