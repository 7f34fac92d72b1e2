//! A real Redis Cluster: masters and replicas, to be failed over, killed and resharded.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::process::{free_port, until};
use super::redis::{RedisOptions, RedisServer};

/// Longest wait for the cluster to agree.
const PATIENCE: Duration = Duration::from_secs(60);
/// After this silence a node counts as dead.
const NODE_TIMEOUT_MS: u32 = 2000;

/// See the module. Ends when dropped.
#[derive(Debug)]
pub struct RedisCluster {
    /// Masters first, as they were started; a failover changes who is one.
    pub nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts `masters` masters with `replicas` replicas each, and waits until every node agrees.
    ///
    /// # Panics
    ///
    /// When a node does not serve or the cluster does not come up.
    pub async fn start(masters: usize, replicas: usize) -> Self {
        let count = masters * (1 + replicas);
        let options = || RedisOptions {
            append_only: true,
            lines: vec![
                "cluster-enabled yes".to_owned(),
                // Not 10000 above the other, where another test may have its own.
                format!("cluster-port {}", free_port()),
                format!("cluster-node-timeout {NODE_TIMEOUT_MS}"),
                "cluster-replica-validity-factor 0".to_owned(),
                "repl-diskless-sync-delay 0".to_owned(),
            ],
            ..RedisOptions::default()
        };
        let mut nodes = Vec::with_capacity(count);
        for _ in 0..count {
            nodes.push(RedisServer::start_with(options()).await);
        }
        let cluster = Self { nodes };
        let addresses: Vec<String> = cluster.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        let mut args = vec!["--cluster", "create"];
        args.extend(addresses.iter().map(String::as_str));
        let replicas = replicas.to_string();
        args.extend(["--cluster-replicas", replicas.as_str(), "--cluster-yes"]);
        cluster.manage(&args);
        cluster.settled().await;
        cluster
    }

    /// As a store's URL, with every node.
    #[must_use]
    pub fn url(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis-cluster://{}", nodes.join(","))
    }

    /// Runs `redis-cli` with these arguments alone; answers what it printed.
    ///
    /// # Panics
    ///
    /// When it fails.
    pub fn manage(&self, args: &[&str]) -> String {
        let output = Command::new("redis-cli").args(args).stdin(Stdio::null()).output().expect("redis-cli starts");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "redis-cli {args:?}: {told}{}", String::from_utf8_lossy(&output.stderr));
        told
    }

    /// Waits until every running node says that all slots are served and every replica follows.
    ///
    /// # Panics
    ///
    /// When that takes too long.
    pub async fn settled(&self) {
        let healthy = |node: &RedisServer| {
            node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
                && !node.cli(&["CLUSTER", "NODES"]).contains("handshake")
                && match node.cli(&["ROLE"]) {
                    role if role.starts_with("slave") => role.contains("connected") && !role.contains("connecting"),
                    role => role.starts_with("master"),
                }
        };
        let state = || "the cluster does not come up".to_owned();
        until(PATIENCE, state, || self.nodes.iter().filter(|node| node.runs()).all(healthy)).await;
    }

    /// Whether the node takes writes, as it says.
    #[must_use]
    pub fn is_master(&self, node: usize) -> bool {
        self.nodes[node].runs() && self.nodes[node].cli(&["ROLE"]).starts_with("master")
    }

    /// Indices of the masters that run.
    #[must_use]
    pub fn masters(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.is_master(*node)).collect()
    }

    /// The identity of a node in the cluster.
    #[must_use]
    pub fn id(&self, node: usize) -> String {
        self.nodes[node].cli(&["CLUSTER", "MYID"])
    }
}
