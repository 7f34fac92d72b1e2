//! What every handler is given.

use std::sync::Arc;

use duetime_core::{
    BackupStore, Clock, ClusterNodes, Consumers, GoneNode, Ownership, Resizing, SinkStates, StoreHealth, TestClock,
    Timestamp,
};
use duetime_metrics::Meters;
use duetime_router::{Catalog, Plans, PutSinks, Router};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::auth::Auth;
use crate::server::feed::Feed;
use crate::server::options::HttpOptions;

/// What the API says of this node.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// Its name.
    pub id: String,
    /// Where it listens, as it announces to the others.
    pub address: String,
}

/// A clock that users move in their tests.
#[derive(Clone, Debug)]
pub struct MovedClock {
    /// The same as [`HttpParts::clock`].
    pub clock: Arc<TestClock>,
    /// Notified when it was moved: what waits for a moment looks again.
    pub moved: Arc<Notify>,
}

/// What the API needs from the program.
#[derive(Clone, Debug)]
pub struct HttpParts {
    /// Acts on messages.
    pub router: Arc<Router>,
    /// Knows the topics.
    pub catalog: Arc<Catalog>,
    /// The store, which is asked only whether it is ready.
    pub store: Arc<dyn StoreHealth>,
    /// The store, which is asked for a copy of itself.
    pub backups: Arc<dyn BackupStore>,
    /// Hands due messages to consumers.
    pub consumers: Arc<dyn Consumers>,
    /// Knows which sinks are down.
    pub sinks: Arc<dyn SinkStates>,
    /// The counts of all topics as they change; [`Feed::run`] is the caller's to start.
    pub feed: Arc<Feed>,
    /// Bulk actions.
    pub plans: Arc<Plans>,
    /// The sinks by their names, and those that are put.
    pub put_sinks: Arc<PutSinks>,
    /// Changes shard counts.
    pub resizing: Arc<dyn Resizing>,
    /// The source of the time.
    pub clock: Arc<dyn Clock>,
    /// The same where users move it in their tests; never in production.
    pub test_clock: Option<MovedClock>,
    /// Served on `/metrics`.
    pub meters: Arc<Meters>,
    /// Who may do what.
    pub auth: Auth,
    /// What else the section `[node]` says of the listener.
    pub options: HttpOptions,
    /// This node.
    pub node: NodeInfo,
    /// Drains a node, and knows who had a shard before.
    pub ownership: Arc<dyn Ownership>,
    /// All nodes and who scans what.
    pub cluster: watch::Receiver<Arc<ClusterNodes>>,
    /// Nodes that went, the latest first.
    pub gone: watch::Receiver<Arc<Vec<GoneNode>>>,
    /// Cancelled when the node begins to drain: it is not ready any more, and waiting claims end.
    pub draining: CancellationToken,
}

impl HttpParts {
    /// The time that clients and proxies go by.
    pub(crate) fn machine_now(&self) -> Timestamp {
        self.test_clock.as_ref().map_or_else(|| self.clock.now(), |moved| moved.clock.machine())
    }
}

/// Returns the API's document as it is served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Document(pub fn() -> &'static str);
