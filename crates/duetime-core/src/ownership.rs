//! The contract of ownership: which shards this node scans.
//!
//! Safety never depends on it: two scanners on one shard waste looks, neither takes what the other
//! claimed.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::names::TopicName;

/// What is to be shared: each topic with its number of shards.
pub type Demand = Vec<(TopicName, u32)>;

/// The shards this node may scan at present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedShards(pub BTreeSet<(TopicName, u32)>);

impl OwnedShards {
    /// Whether shard `index` of `topic` is among them.
    #[must_use]
    pub fn has(&self, topic: &TopicName, index: u32) -> bool {
        self.0.contains(&(topic.clone(), index))
    }
}

/// Ownership of shards. See the module.
#[async_trait]
pub trait Ownership: Send + Sync + std::fmt::Debug + 'static {
    /// The mode as in the configuration: `solo`, `round-robin`, `etcd`.
    fn mode(&self) -> &'static str;

    /// Tells what there is to share; called whenever topics come, go or change their shard count.
    async fn demand(&self, demand: Demand);

    /// The shards this node scans, now and as they change.
    fn owned(&self) -> watch::Receiver<Arc<OwnedShards>>;

    /// Says that everything in flight of a shard that is no longer owned is settled.
    async fn settled(&self, topic: &TopicName, index: u32);

    /// Gives everything up and leaves; called once, at the end.
    async fn leave(&self);
}
