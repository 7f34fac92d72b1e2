//! The HTTP API, its OpenAPI document and the status page.
//!
//! Upstream: producers, consumers, operators. Downstream: `duetime-router` for messages and topics,
//! the `Consumers` contract for claims. The only crate that knows the JSON of the API; knows no
//! concrete store, sink or ownership.
//!
//! Folders import one way: `json` (how requests are read and answers written), `auth` (who may), `audit`, `server`
//! (connections, bodies, bounds, and what every handler is given), `routes` (the handlers); then `openapi` and `app`.

mod app;
mod audit;
mod auth;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod json;
mod openapi;
mod routes;
mod server;

#[cfg(test)]
mod tests;

pub use app::router;
pub use audit::target::{AuditFile, AuditTarget, LogWord};
pub use audit::{Audit, KEPT as AUDIT_KEPT, PlanAudit, TARGET as AUDIT_TARGET};
pub use auth::origin::Hosts;
pub use auth::shares::Shares;
pub use auth::token_hash::new_token;
pub use auth::{Auth, AuthConfig, Scope, TokenConfig};
pub use openapi::openapi;
pub use server::connections::ConnectionBounds;
pub use server::consumers::NamedConsumers;
pub use server::feed::Feed;
pub use server::first_message::FirstMessages;
pub use server::options::HttpOptions;
pub use server::peers::{Peers, advertise_fault, advertised};
pub use server::state::{HttpParts, MovedClock, NodeInfo};
pub use server::tls::{Tls, TlsFault, TlsFiles, certificate_ends, certificate_fault, check_client};
pub use server::{Listening, serve};
