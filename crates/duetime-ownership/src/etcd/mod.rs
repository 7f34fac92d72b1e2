//! Leases in etcd: each node registers under its lease and holds a key per shard that it scans.
//!
//! ```text
//! members ──pure function──▶ share ──free key──▶ take ──▶ scan
//!                              │ no longer in it
//!                              └──▶ stop claiming ──▶ settled ──▶ delete the key ──▶ others take it
//! ```
//! A dead node's lease ends and its keys with it. `view` decides, `link` calls, `session` follows one
//! connection, `keeper` goes from one to the next.

mod config;
mod keeper;
mod link;
mod session;
mod view;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::ownership::Demand;
use duetime_core::{ClusterNodes, Drain, Member, Namespace, OwnedShards, Ownership, TopicName};
use duetime_metrics::Meters;
use duetime_supervisor::Supervisor;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use config::EtcdConfig;

use self::link::{DrainSet, EtcdLink};
use crate::ShardName;
use crate::overdue::OverdueShards;
use crate::tickets::Tickets;

/// Words about settled shards that may wait; one more is not needed, its shard is dropped a moment
/// later.
const SETTLED_MAX: usize = 4096;
/// Longest wait for the goodbye; then the lease ends by itself.
const LEAVE_WITHIN: Duration = Duration::from_secs(3);

/// Leases in etcd: each node registers under its lease and holds a key per shard that it scans.
#[derive(Debug)]
pub struct Etcd {
    config: EtcdConfig,
    namespace: Namespace,
    demand: watch::Sender<Demand>,
    unhealthy: watch::Sender<Option<String>>,
    settled: mpsc::Sender<ShardName>,
    owned: watch::Sender<Arc<OwnedShards>>,
    cluster: watch::Sender<Arc<ClusterNodes>>,
    issue: Arc<Mutex<Option<String>>>,
    stop: CancellationToken,
    keeping: Mutex<Option<JoinHandle<()>>>,
}

impl Etcd {
    /// Asks etcd once whether it lets this node in.
    ///
    /// # Errors
    ///
    /// What it said; never shows a password.
    pub async fn check(config: &EtcdConfig, namespace: &Namespace) -> Result<(), String> {
        let asked = async { EtcdLink::connect(config, namespace).await?.read().await };
        asked.await.map(drop).map_err(|error: link::EtcdError| error.to_string())
    }

    /// Registers in the background, also when etcd is away at present. `tickets` share the late
    /// shards out while etcd is away. Must be called on a tokio runtime.
    #[must_use]
    pub fn start(
        config: EtcdConfig,
        namespace: Namespace,
        me: Member,
        late: OverdueShards,
        tickets: Option<Arc<dyn Tickets>>,
        meters: Arc<Meters>,
        supervisor: &Supervisor,
    ) -> Arc<Self> {
        let (settled, settled_words) = mpsc::channel(SETTLED_MAX);
        let etcd = Self {
            config: config.clone(),
            namespace: namespace.clone(),
            demand: watch::Sender::default(),
            unhealthy: watch::Sender::default(),
            settled,
            owned: watch::Sender::default(),
            cluster: watch::Sender::default(),
            issue: Arc::default(),
            stop: CancellationToken::new(),
            keeping: Mutex::default(),
        };
        let keeper = keeper::Keeper {
            config,
            namespace,
            name: crate::unique(&me.id).into(),
            me,
            silent: late.silent(etcd.demand.subscribe(), supervisor),
            adopted: BTreeSet::new(),
            late,
            tickets,
            meters,
            demand: etcd.demand.subscribe(),
            unhealthy: etcd.unhealthy.subscribe(),
            drain: None,
            settled: settled_words,
            owned: etcd.owned.clone(),
            cluster: etcd.cluster.clone(),
            lease: None,
            seen: None,
            followed: Instant::now(),
            issue: etcd.issue.clone(),
        };
        // It holds the lease, which ends with it: another keeper would be another member.
        *etcd.keeping.lock() = Some(supervisor.start_once("leases", &etcd.stop, keeper.run(etcd.stop.clone())));
        Arc::new(etcd)
    }
}

#[async_trait]
impl Ownership for Etcd {
    fn mode(&self) -> &'static str {
        "etcd"
    }

    async fn demand(&self, demand: Demand) {
        self.demand.send_replace(demand);
    }

    fn owned(&self) -> watch::Receiver<Arc<OwnedShards>> {
        self.owned.subscribe()
    }

    fn cluster(&self) -> watch::Receiver<Arc<ClusterNodes>> {
        self.cluster.subscribe()
    }

    fn issue(&self) -> Option<String> {
        self.issue.lock().clone()
    }

    async fn settled(&self, topic: &TopicName, index: u32) {
        // When the keeper is that far behind, the shard is dropped when its time is over.
        let _ = self.settled.try_send((topic.clone(), index));
    }

    async fn set_unhealthy(&self, why: Option<String>) {
        self.unhealthy.send_if_modified(|old| std::mem::replace(old, why.clone()) != why);
    }

    async fn drain(&self, member: &str, drain: Option<Drain>) -> Result<(), String> {
        let asked = async {
            let link = EtcdLink::connect(&self.config, &self.namespace).await?;
            link.drain(member, drain.as_ref()).await
        };
        match asked.await {
            Ok(DrainSet::Done) => Ok(()),
            // A node that is gone is not drained any more.
            Ok(DrainSet::Gone) if drain.is_none() => Ok(()),
            Ok(DrainSet::Gone) => Err("the node has just gone".to_owned()),
            Ok(DrainSet::Changed) => Err("somebody else changed it at the same time".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn leave(&self) {
        self.stop.cancel();
        let keeping = self.keeping.lock().take();
        let Some(keeping) = keeping else { return };
        match tokio::time::timeout(LEAVE_WITHIN, keeping).await {
            Ok(_) => info!("leases are given up"),
            Err(_) => warn!("etcd did not take the leases back, they end by themselves"),
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
