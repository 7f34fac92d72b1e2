//! The HTTP API, its OpenAPI document and the status page.
//!
//! Upstream: producers, consumers, operators. Downstream: `duetime-router` for messages and topics,
//! the `Consumers` contract for claims. The only crate that knows the JSON of the API; knows no
//! concrete store, sink or ownership.
//!
//! Files import one way: `state` and what it is made of, the handlers, `routes`, `openapi`, `app`; `server` serves any router.

mod activity;
mod adopt;
mod app;
mod audit;
mod audit_line;
mod audit_target;
mod audited;
mod auth;
mod backup;
mod body;
mod bounded_vec;
mod claims;
mod codes;
mod command;
mod connections;
mod dead;
mod dead_groups;
mod drain;
mod drain_body;
mod enqueue;
mod events;
mod feed;
mod fields;
mod find;
mod forecast;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod guard;
mod list;
mod listeners;
mod me;
mod memory;
mod message_in;
mod message_lines;
mod messages;
mod name_patterns;
mod ndjson;
mod observe;
mod openapi;
mod operation;
mod options;
mod origin;
mod outages;
mod path;
mod pause;
mod pause_view;
mod peer;
mod plans;
mod problem;
mod query_routes;
mod rate_limit;
mod rates;
mod results;
mod routes;
mod schema;
mod scopes;
mod scrape;
mod server;
mod setting_schema;
mod shards;
mod shares;
mod sink_pause;
mod sinks;
mod spool;
mod standing;
mod state;
mod tls;
mod token_changes;
mod token_hash;
mod token_limits;
mod topic_ceilings;
mod topics;
mod trace;
mod unsent;
mod view;

#[cfg(test)]
mod tests;

pub use app::router;
pub use audit::{Audit, KEPT as AUDIT_KEPT, PlanAudit, TARGET as AUDIT_TARGET};
pub use audit_target::{AuditFile, AuditTarget, LogWord};
pub use auth::{Auth, AuthConfig, Scope, TokenConfig, new_token};
pub use connections::ConnectionBounds;
pub use feed::Feed;
pub use openapi::openapi;
pub use options::HttpOptions;
pub use origin::Hosts;
pub use server::{Listening, serve};
pub use shares::Shares;
pub use state::{HttpParts, NodeInfo};
pub use tls::{Tls, TlsFault, TlsFiles};
