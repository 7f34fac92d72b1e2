//! Goes from one connection to etcd to the next, and looks after shards while there is none.
//!
//! While etcd is away: what is held is scanned on, and shards that nobody serves are taken in turn. When
//! it is back those are scanned on too, until the node that has their keys shows that it lives, or
//! another has taken them: a node that died meanwhile is missed by etcd only when its lease ends.
//! Downstream: `session`, one connection.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::ownership::Demand;
use duetime_core::{ClusterNodes, Drain, Member, MemberState, Namespace, OwnedShards};
use duetime_metrics::Meters;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::config::EtcdConfig;
use super::link::{EtcdError, EtcdLink};
use super::view::View;
use crate::overdue::OverdueShards;
use crate::tickets::Tickets;
use crate::unresponsive::UnresponsiveServers;
use crate::{Changes, ShardName};

/// Pause between two attempts to come back to etcd, and between two looks for late shards.
const BACK_EVERY: Duration = Duration::from_millis(500);
/// Late shards taken at a time.
pub(super) const LATE_MAX: usize = 16;

/// The lease this node holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub id: i64,
    pub ttl: Duration,
    pub granted: Instant,
}

/// Goes from one connection to etcd to the next, and looks after shards while there is none.
#[derive(Debug)]
pub(super) struct Keeper {
    pub config: EtcdConfig,
    pub namespace: Namespace,
    pub name: Arc<str>,
    pub me: Member,
    pub late: OverdueShards,
    pub tickets: Option<Arc<dyn Tickets>>,
    pub meters: Arc<Meters>,
    pub demand: watch::Receiver<Demand>,
    pub unhealthy: watch::Receiver<Option<String>>,
    pub settled: mpsc::Receiver<ShardName>,
    pub owned: watch::Sender<Arc<OwnedShards>>,
    pub cluster: watch::Sender<Arc<ClusterNodes>>,
    pub lease: Option<Lease>,
    pub silent: UnresponsiveServers,
    /// As etcd said last.
    pub drain: Option<Drain>,
    /// Shards that were late and that nobody served, and that this node scans since.
    pub adopted: BTreeSet<ShardName>,
    /// What etcd held when it was followed last.
    pub seen: Option<View>,
    /// When that was; nobody knows who serves what once a lease has gone by since.
    pub followed: Instant,
    /// What keeps this node from sharing shards out by etcd, for `/readyz`.
    pub issue: Arc<Mutex<Option<String>>>,
}

impl Keeper {
    pub async fn run(mut self, stop: CancellationToken) {
        let mut is_away = false;
        self.show_alone();
        loop {
            let ended = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                ended = self.session(&mut is_away) => ended,
            };
            if matches!(ended, EtcdError::LeaseLost) {
                let lost = self.owned.borrow().0.len() as u64;
                self.meters.lease_changes("lost", lost);
                warn!(lost, "lease was lost, taking a new one; what was held is scanned on");
                self.lease = None;
                continue;
            }
            *self.issue.lock() = Some(format!(
                "etcd is out of reach ({ended}): this node scans what it has, and late shards that nobody serves"
            ));
            if !std::mem::replace(&mut is_away, true) {
                warn!(error = %ended, "etcd unreachable; polling owned shards and late ones");
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.away() => {}
            }
        }
        crate::publish(&self.owned, &self.meters, BTreeSet::new(), Changes::Seldom);
        self.meters.nodes_serving("etcd", 0);
        if let Some(lease) = self.lease
            && let Ok(link) = EtcdLink::connect(&self.config, &self.namespace).await
            && let Err(error) = link.revoke(lease.id).await
        {
            warn!(%error, "lease was not given back, it ends by itself");
        }
    }

    /// Connects and follows etcd until something fails.
    async fn session(&mut self, is_away: &mut bool) -> EtcdError {
        let mut session = match self.open().await {
            Ok(session) => session,
            Err(error) => return error,
        };
        *self.issue.lock() = None;
        if std::mem::take(is_away) {
            info!("etcd is back");
        }
        let error = match self.follow(&mut session).await {
            Ok(never) => match never {},
            Err(error) => error,
        };
        self.seen = Some(session.into_view());
        error
    }

    /// One round while etcd is away. As long as what was seen of it may hold, only shards are taken that nobody
    /// served by that; later, whatever is late.
    async fn away(&mut self) {
        tokio::time::sleep(BACK_EVERY).await;
        self.take_in_fitness();
        while self.settled.try_recv().is_ok() {}
        let all = crate::flat(&self.demand.borrow_and_update());
        let scanned = self.owned.borrow().0.clone();
        // Topics may have gone. An unhealthy node keeps what it has, since others find what is late.
        let there: BTreeSet<&ShardName> = all.iter().collect();
        let mut kept: BTreeSet<ShardName> = scanned.iter().filter(|shard| there.contains(shard)).cloned().collect();
        if self.me.state == MemberState::Serving {
            let is_outdated = self.lease.is_none_or(|lease| self.followed.elapsed() >= lease.ttl);
            let unserved = match &self.seen {
                Some(seen) if !is_outdated => seen.unserved(&all),
                _ => all,
            };
            let late = take_late(self.late.clone(), self.tickets.clone(), unserved, kept.clone()).await;
            self.meters.lease_changes("late", late.len() as u64);
            self.adopted.extend(late.iter().cloned());
            kept.extend(late);
        }
        crate::publish(&self.owned, &self.meters, kept, Changes::Seldom);
    }

    pub(super) fn take_in_fitness(&mut self) {
        let unhealthy = self.unhealthy.borrow_and_update().clone();
        self.me.set_state(unhealthy, self.drain.clone());
    }

    /// Before etcd was heard of, this node is all it knows.
    fn show_alone(&self) {
        self.show(ClusterNodes { members: [(self.name.clone(), self.me.clone())].into(), ..ClusterNodes::default() });
    }

    pub(super) fn show(&self, cluster: ClusterNodes) {
        self.cluster.send_if_modified(|old| {
            let changed = **old != cluster;
            if changed {
                *old = Arc::new(cluster);
            }
            changed
        });
    }
}

/// Late shards of `unserved` that are not `held`, no more than are taken at a time.
pub(super) async fn take_late(
    late: OverdueShards,
    tickets: Option<Arc<dyn Tickets>>,
    unserved: Vec<ShardName>,
    held: BTreeSet<ShardName>,
) -> Vec<ShardName> {
    if unserved.is_empty() {
        return Vec::new();
    }
    let mut found = late.find(&unserved, &held).await;
    // Nodes that see the same list begin at different places of it.
    if let Some(tickets) = tickets
        && found.len() > LATE_MAX
        && let Ok(ticket) = tickets.take(LATE_MAX as u64).await
    {
        let first = ticket.end % found.len() as u64;
        found.rotate_left(usize::try_from(first).expect("below the length"));
    }
    found.truncate(LATE_MAX);
    found
}
