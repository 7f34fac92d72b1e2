//! A real Redis Cluster: masters and replicas, to be failed over, killed and resharded.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::certificates::write_certificates;
use super::process::{free_port, until};
use super::redis::{RedisOptions, RedisServer};
use crate::wait::{Because, let_pass, let_pass_blocking};

/// Slots of a Redis Cluster.
const SLOTS: u16 = 16_384;
/// Longest wait for the cluster to agree.
const PATIENCE: Duration = Duration::from_secs(60);
/// Fewest that `redis-cli --cluster create` takes.
const MASTERS_MIN: usize = 3;
/// How often a master's replica is looked for.
const REPLICA_LOOKS: u32 = 600;
const REPLICA_LOOK_EVERY: Duration = Duration::from_millis(50);
/// A failover that was not done by then was given up: it is asked for again.
const FAILOVER_AGAIN_AFTER: Duration = Duration::from_secs(6);
/// After this silence a node counts as dead.
const NODE_TIMEOUT_MS: u32 = 2000;

/// A real Redis Cluster: masters and replicas, to be failed over, killed and resharded. Ends when dropped.
#[derive(Debug)]
pub struct RedisCluster {
    /// Masters first, as they were started; a failover changes who is one.
    pub nodes: Vec<RedisServer>,
    /// The certificates of all, where they speak TLS.
    certificates: Option<TempDir>,
}

/// Whether the master counts every replica that it knows among those it waits for.
pub(super) fn all_online(master: &RedisServer) -> bool {
    let told = master.cli(&["INFO", "replication"]);
    told.lines()
        .filter(|line| line.starts_with("slave") && line.contains("state="))
        .all(|line| line.contains("state=online"))
}

impl RedisCluster {
    /// Starts `masters` masters with `replicas` replicas each, and waits until every node agrees.
    pub async fn start(masters: usize, replicas: usize) -> Self {
        Self::start_on(None, masters, replicas).await
    }

    /// The same over TLS, with certificates of one authority for `127.0.0.1`.
    pub async fn start_tls(masters: usize, replicas: usize) -> Self {
        let certificates = tempfile::tempdir().expect("a private folder");
        write_certificates(certificates.path());
        Self::make(None, Some(certificates), None, masters, replicas).await
    }

    /// The same, reached at this address of the machine too and named by it, so that a node in a
    /// [`NetworkSpace`](super::NetworkSpace) finds every master.
    pub async fn start_at(address: Ipv4Addr, masters: usize, replicas: usize) -> Self {
        Self::make(None, None, Some(address), masters, replicas).await
    }

    /// The same with another program than `redis-server`.
    pub async fn start_on(program: Option<PathBuf>, masters: usize, replicas: usize) -> Self {
        Self::make(program, None, None, masters, replicas).await
    }

    async fn make(
        program: Option<PathBuf>,
        certificates: Option<TempDir>,
        address: Option<Ipv4Addr>,
        masters: usize,
        replicas: usize,
    ) -> Self {
        let count = masters * (1 + replicas);
        let announced = |address| {
            [
                format!("bind 127.0.0.1 {address}"),
                format!("cluster-announce-ip {address}"),
                "protected-mode no".to_owned(),
            ]
        };
        let options = || RedisOptions {
            append_only: true,
            tls: certificates.is_some(),
            certificates: certificates.as_ref().map(|folder| folder.path().to_owned()),
            lines: vec![
                "cluster-enabled yes".to_owned(),
                format!("tls-cluster {}", if certificates.is_some() { "yes" } else { "no" }),
                // Not 10000 above the other, where another test may have its own.
                format!("cluster-port {}", free_port()),
                format!("cluster-node-timeout {NODE_TIMEOUT_MS}"),
                "cluster-replica-validity-factor 0".to_owned(),
                "repl-diskless-sync-delay 0".to_owned(),
            ]
            .into_iter()
            .chain(address.map(announced).into_iter().flatten())
            .collect(),
            program: program.clone(),
            ..RedisOptions::default()
        };
        let mut nodes = Vec::with_capacity(count);
        for _ in 0..count {
            nodes.push(RedisServer::start_with(options()).await);
        }
        let cluster = Self { nodes, certificates };
        if masters < MASTERS_MIN && replicas == 0 {
            cluster.join_by_hand();
        } else {
            cluster.join(replicas);
        }
        cluster.settled().await;
        cluster
    }

    fn join(&self, replicas: usize) {
        let addresses: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        let mut args = vec!["--cluster", "create"];
        args.extend(addresses.iter().map(String::as_str));
        let replicas = replicas.to_string();
        args.extend(["--cluster-replicas", replicas.as_str(), "--cluster-yes"]);
        self.manage(&args);
    }

    /// Of masters alone, fewer than `redis-cli` allows.
    fn join_by_hand(&self) {
        let count = self.nodes.len();
        for (at, node) in self.nodes.iter().enumerate() {
            let slots = usize::from(SLOTS);
            let (first, last) = (at * slots / count, (at + 1) * slots / count - 1);
            node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]);
            node.cli(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        }
        let bus = self.nodes[0].cli(&["CONFIG", "GET", "cluster-port"]);
        let bus = bus.lines().last().expect("it is set").to_owned();
        for node in &self.nodes[1..] {
            node.cli(&["CLUSTER", "MEET", "127.0.0.1", &self.nodes[0].port().to_string(), &bus]);
        }
    }

    /// As a store's URL, with every node.
    #[must_use]
    pub fn url(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        let scheme = if self.certificates.is_some() { "rediss-cluster" } else { "redis-cluster" };
        format!("{scheme}://{}", nodes.join(","))
    }

    /// Runs `redis-cli` with these arguments alone; answers what it printed.
    pub fn manage(&self, args: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        if let Some(folder) = &self.certificates {
            command.arg("--tls").arg("--cacert").arg(folder.path().join("ca.pem"));
        }
        let output = command.args(args).stdin(Stdio::null()).output().expect("redis-cli starts");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "redis-cli {args:?}: {told}{}", String::from_utf8_lossy(&output.stderr));
        told
    }

    /// Waits until every running node says that all slots are served and every replica follows.
    pub async fn settled(&self) {
        until(PATIENCE, || "the cluster does not come up".to_owned(), || self.is_settled()).await;
    }

    /// Whether every running node says that all slots are served and every replica follows.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let healthy = |node: &RedisServer| {
            node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
                && !node.cli(&["CLUSTER", "NODES"]).contains("handshake")
                && match node.cli(&["ROLE"]) {
                    role if role.starts_with("slave") => role.contains("connected") && !role.contains("connecting"),
                    role => role.starts_with("master") && all_online(node),
                }
        };
        self.nodes.iter().filter(|node| node.runs()).all(healthy)
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

    /// The lines of CLUSTER NODES, as a node that runs answers them.
    fn lines(&self) -> Vec<String> {
        let teller = self.nodes.iter().find(|node| node.runs()).expect("a node runs");
        teller.cli(&["CLUSTER", "NODES"]).lines().map(str::to_owned).collect()
    }

    /// Index of the node of a line of CLUSTER NODES.
    fn of_line(&self, line: &str) -> Option<usize> {
        let port: u16 = line.split(' ').nth(1)?.split('@').next()?.rsplit(':').next()?.parse().ok()?;
        self.nodes.iter().position(|node| node.port() == port)
    }

    /// The master of a slot.
    #[must_use]
    pub fn owner(&self, slot: u16) -> usize {
        let has = |range: &str| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            matches!((first.parse(), last.parse()), (Ok(first), Ok(last)) if (first..=last).contains(&slot))
        };
        let lines = self.lines();
        let line = lines.iter().find(|line| !line.contains("fail") && line.split(' ').skip(8).any(has));
        line.and_then(|line| self.of_line(line)).expect("a master has the slot")
    }

    /// A replica of a master.
    #[must_use]
    pub fn replica_of(&self, master: usize) -> usize {
        let id = self.id(master);
        // After a failover it takes a moment for the old master to be one.
        for _ in 0..REPLICA_LOOKS {
            let lines = self.lines();
            let line = lines.iter().find(|line| line.split(' ').nth(3) == Some(id.as_str()));
            if let Some(replica) = line.and_then(|line| self.of_line(line)) {
                return replica;
            }
            let_pass_blocking(REPLICA_LOOK_EVERY, Because::AskedAgain);
        }
        panic!("a replica of the master")
    }

    /// Has a replica of this master take over in good order.
    pub async fn fail_over(&self, master: usize) {
        let replica = self.replica_of(master);
        let end = tokio::time::Instant::now() + PATIENCE;
        // A failover that the master does not agree to within 5 s is given up by the replica.
        while !self.is_master(replica) {
            assert!(tokio::time::Instant::now() < end, "the replica is not promoted");
            self.nodes[replica].cli(&["CLUSTER", "FAILOVER"]);
            let asked = tokio::time::Instant::now();
            while !self.is_master(replica) && asked.elapsed() < FAILOVER_AGAIN_AFTER {
                let_pass(REPLICA_LOOK_EVERY, Because::AskedAgain).await;
            }
        }
        self.promoted(replica).await;
    }

    /// Waits until this replica is a master and every running node says that all slots are served.
    pub async fn promoted(&self, replica: usize) {
        until(PATIENCE, || "the replica is not promoted".to_owned(), || self.is_master(replica)).await;
        self.settled().await;
    }

    /// Begins to move a slot from one master to another.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let (slot, from_id, to_id) = (slot.to_string(), self.id(from), self.id(to));
        self.nodes[to].cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
        self.nodes[from].cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
    }

    /// Moves at most so many keys of a slot that is being moved.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize, most: usize) {
        let keys = self.nodes[from].cli(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), &most.to_string()]);
        let port = self.nodes[to].port().to_string();
        for key in keys.lines().filter(|key| !key.is_empty()) {
            let done = self.nodes[from].cli(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
            assert!(done == "OK" || done == "NOKEY", "MIGRATE: {done}");
        }
    }

    /// Gives a slot whose keys were moved to its new master for good.
    pub fn end_move(&self, slot: u16, to: usize) {
        let (slot, id) = (slot.to_string(), self.id(to));
        // The new one first, so that no moment is without a master.
        let others = self.masters().into_iter().filter(|master| *master != to);
        for master in [to].into_iter().chain(others) {
            self.nodes[master].cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        }
    }

    /// Moves a slot with all its keys.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_move(slot, from, to);
        self.move_keys(slot, from, to, 1000);
        self.end_move(slot, to);
    }
}
