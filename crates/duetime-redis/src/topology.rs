//! Where calls go: to the one server, to the one the sentinels name, or to the master of a slot.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::ServerId;

use crate::cluster::Cluster;
use crate::config::{LinkConfig, endpoint};
use crate::error::{Failure, LinkError};
use crate::node::Node;
use crate::sentinel::Sentinels;
use crate::slots::slot_of_key;
use crate::url::RedisUrl;

/// How often others are asked about a master that has no replicas.
const VOUCH_EVERY: Duration = Duration::from_millis(200);

/// Where calls go: to the one server, to the one the sentinels name, or to the master of a slot.
pub(crate) enum Topology {
    /// One server.
    Standalone(Arc<Node>),
    /// One server at a time; sentinels say which.
    Sentinel(Arc<Sentinels>),
    /// Many masters.
    Cluster(Arc<Cluster>),
}

impl Topology {
    pub(crate) fn new(config: &LinkConfig) -> Result<Self, LinkError> {
        match &config.url {
            RedisUrl::Standalone(info) => {
                let made = endpoint(info.as_ref().clone(), config)?;
                Ok(Self::Standalone(Arc::new(Node::alone(info.addr().to_string(), made, config))))
            }
            RedisUrl::Cluster { nodes, base } => {
                Ok(Self::Cluster(Arc::new(Cluster::new(base.as_ref().clone(), nodes.clone(), config.clone())?)))
            }
            RedisUrl::Sentinel { sentinels, master, base } => {
                let made = Sentinels::new(base.as_ref().clone(), sentinels, master.clone(), config.clone())?;
                Ok(Self::Sentinel(Arc::new(made)))
            }
        }
    }

    /// The server of a key; any for a command without one.
    pub(crate) async fn node(&self, key: Option<&[u8]>) -> Result<Arc<Node>, Failure> {
        match self {
            Self::Standalone(node) => Ok(node.clone()),
            Self::Sentinel(sentinels) => sentinels.node().await,
            Self::Cluster(cluster) => cluster.node(key.map(slot_of_key)).await,
        }
    }

    /// The server of an address.
    pub(crate) fn node_at(&self, name: &str) -> Result<Arc<Node>, Failure> {
        match self {
            Self::Cluster(cluster) => cluster.node_at(name),
            Self::Standalone(_) | Self::Sentinel(_) => Err(not_of_a_cluster()),
        }
    }

    /// The server of `key` as far as known without asking.
    pub(crate) fn server_of(&self, key: &[u8]) -> ServerId {
        match self {
            Self::Standalone(_) | Self::Sentinel(_) => ServerId::default(),
            Self::Cluster(cluster) => {
                let master = cluster.known_node(Some(slot_of_key(key)));
                master.map_or_else(ServerId::default, |node| ServerId::of_address(&node.name))
            }
        }
    }

    /// Every server that takes writes.
    pub(crate) async fn masters(&self) -> Result<Vec<Arc<Node>>, Failure> {
        match self {
            Self::Standalone(node) => Ok(vec![node.clone()]),
            Self::Sentinel(sentinels) => Ok(vec![sentinels.node().await?]),
            Self::Cluster(cluster) => cluster.masters().await,
        }
    }

    /// Believes a master about a slot.
    pub(crate) fn moved(&self, slot: u16, to: &str) -> Result<(), Failure> {
        match self {
            Self::Cluster(cluster) => cluster.moved(slot, to),
            Self::Standalone(_) | Self::Sentinel(_) => Err(not_of_a_cluster()),
        }
    }

    /// Looks again who is where, as something did not answer as it should.
    pub(crate) async fn doubt(&self) {
        match self {
            Self::Standalone(_) => {}
            // What is wrong with the sentinels is said when the next call needs them.
            Self::Sentinel(sentinels) => drop(sentinels.refresh(false).await),
            Self::Cluster(cluster) => cluster.refresh(false).await,
        }
    }

    /// The masters as they are known, without asking anybody.
    pub(crate) fn known_masters(&self) -> Vec<Arc<Node>> {
        match self {
            Self::Standalone(node) => vec![node.clone()],
            Self::Sentinel(sentinels) => sentinels.known().into_iter().collect(),
            Self::Cluster(cluster) => cluster.known_masters(),
        }
    }

    /// Asks others about masters that are silent; one whose place another has taken is left at once.
    pub(crate) async fn ask_about(&self, silent: &[Arc<Node>]) {
        match self {
            Self::Standalone(_) => {}
            Self::Sentinel(sentinels) => drop(sentinels.refresh(true).await),
            Self::Cluster(cluster) => cluster.ask_about(silent).await,
        }
    }

    /// Whether a server takes writes as far as others know; asked of them at most every [`VOUCH_EVERY`].
    pub(crate) async fn still_master(&self, node: &Arc<Node>) -> bool {
        if node.asked_about(VOUCH_EVERY) {
            self.ask_about(std::slice::from_ref(node)).await;
        }
        !node.is_deposed()
    }
}

fn not_of_a_cluster() -> Failure {
    Failure::Final(LinkError::Setup(
        "redis is a node of a cluster; write redis-cluster:// in the store's URL".to_owned(),
    ))
}
