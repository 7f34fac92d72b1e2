//! One link to Redis: connect, route, retry, load scripts.
//!
//! Upstream: the `redis` crate, which is seen nowhere else but where replies are read.
//! Downstream: store-redis and ownership. Knows nothing of messages.

mod cluster;
mod confirmed;
mod connection;
mod error;
mod fence;
mod link;
mod node;
mod patience;
mod pipeline;
mod place;
mod pubsub;
mod replicated;
mod reply;
mod script;
mod sentinel;
mod server_clock;
mod setup;
#[cfg(test)]
mod tests;
mod topology;
mod url;

pub use error::LinkError;
pub use link::{Link, LinkConfig, SentinelLogin, TlsConfig};
pub use pubsub::Subscription;
pub use replicated::Backing;
pub use script::{Script, Sending};
pub use setup::{Checks, ServerFacts};
pub use url::RedisUrl;
