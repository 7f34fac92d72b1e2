//! Keeps the lease alive, follows the watch, and carries out what the view decides.
//!
//! While etcd is away: what is held is scanned on, and shards that nobody serves are taken in turn. When
//! it is back those are scanned on too, until the node that has their keys shows that it lives, or
//! another has taken them: a node that died meanwhile is missed by etcd only when its lease ends.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::ownership::Demand;
use duetime_core::{ClusterNodes, Drain, Member, MemberState, Namespace, OwnedShards, Vitals};
use duetime_metrics::Meters;
use etcd_client::{LeaseKeepAliveStream, LeaseKeeper, WatchStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::config::EtcdConfig;
use super::link::{Change, EtcdError, EtcdLink};
use super::view::{View, why_given_up};
use crate::ShardName;
use crate::history::{OwnerHistory, SeenChange};
use crate::overdue::OverdueShards;
use crate::silent::Silent;
use crate::tickets::Tickets;

/// Pause between two attempts to come back to etcd, and between two looks for late shards.
const BACK_EVERY: Duration = Duration::from_millis(500);
/// Plans are at least this far apart: events come in crowds.
const PLAN_GAP: Duration = Duration::from_millis(20);
/// Shards of others that were taken while etcd was away are scanned on for a lease and this. By then the
/// keys of a node that is dead are gone.
const ADOPTED_SLACK: Duration = Duration::from_secs(3);
/// Late shards taken at a time while etcd is away.
const LATE_MAX: usize = 16;

/// The lease this node holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    id: i64,
    ttl: Duration,
    /// Later than this, others may have its shards.
    ends: Instant,
    granted: Instant,
}

/// Keeps the lease alive, follows the watch, and carries out what the view decides.
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
    pub history: Arc<OwnerHistory>,
    pub lease: Option<Lease>,
    pub silent: Silent,
    /// As etcd said last.
    pub drain: Option<Drain>,
    /// Shards of others that were late while etcd was away, and that this node scans since.
    pub adopted: BTreeSet<ShardName>,
}

/// What one connection to etcd has.
struct Session {
    link: EtcdLink,
    view: View,
    watch: WatchStream,
    renew: LeaseKeeper,
    renewed: LeaseKeepAliveStream,
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
            if !std::mem::replace(&mut is_away, true) {
                warn!(error = %ended, "etcd is away; what is held is scanned on, late shards are taken in turn");
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.away() => {}
            }
        }
        crate::publish(&self.owned, &self.meters, BTreeSet::new());
        self.meters.owners("etcd", 0);
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
        if std::mem::take(is_away) {
            info!("etcd is back");
        }
        match self.follow(&mut session).await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    async fn open(&mut self) -> Result<Session, EtcdError> {
        let link = EtcdLink::connect(&self.config, &self.namespace).await?;
        self.take_in_fitness();
        let lives = match self.lease {
            Some(lease) => link.renew(lease.id).await?,
            None => false,
        };
        let now = Instant::now();
        let is_new = !lives;
        // Its keys went with the lease it had, if it had one.
        let lost = is_new.then(|| self.name.clone());
        let lease = match self.lease {
            Some(lease) if lives => Lease { ends: now + lease.ttl, ..lease },
            old => {
                if old.is_some() {
                    self.meters.lease_changes("lost", self.owned.borrow().0.len() as u64);
                }
                let (id, ttl) = link.grant(self.config.lease_ttl).await?;
                Lease { id, ttl, ends: now + ttl, granted: now }
            }
        };
        self.lease = Some(lease);
        link.register(&self.name, &self.me, lease.id).await?;
        let (changes, watch) = link.read().await?;
        let drain = changes.iter().find_map(|change| match change {
            Change::Drain(name, drain) if *name == self.name => drain.clone(),
            _ => None,
        });
        match &self.drain {
            // It went with the lease that was lost, and not because somebody took it back.
            Some(drain) if is_new => link.put_drain(&self.name, drain, lease.id).await?,
            _ => self.drained(drain, &link, lease.id).await?,
        }
        let mut view = View::new(self.name.clone(), Instant::now());
        for change in changes {
            apply(&mut view, change);
        }
        self.history.compare(&view.cluster().owners, lost.as_deref());
        view.adopt(self.adopted.clone(), Instant::now() + lease.ttl + ADOPTED_SLACK);
        let (renew, renewed) = link.keeper().keep_alive(lease.id).await?;
        Ok(Session { link, view, watch, renew, renewed })
    }

    async fn follow(&mut self, session: &mut Session) -> Result<std::convert::Infallible, EtcdError> {
        let lease = self.lease.expect("an open session has a lease");
        let mut renew = tokio::time::interval(lease.ttl / 3);
        let mut plan_at = Instant::now();
        let silence_max = lease.ttl / 3 * 2;
        let mut heard = Instant::now();
        // Apart from all that shards depend on: it holds up nothing, and what comes of it is looked at by nobody.
        let mut vitals = JoinSet::new();
        let mut says = tokio::time::interval(VITALS_EVERY);
        says.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let wake = session.view.wakes_at().map_or(plan_at, |at| at.min(plan_at));
            tokio::select! {
                biased;
                _ = renew.tick() => {
                    if heard.elapsed() > silence_max {
                        return Err(EtcdError::Away("etcd does not renew the lease".to_owned()));
                    }
                    session.renew.keep_alive().await?;
                    continue;
                }
                _ = says.tick() => {
                    while vitals.try_join_next().is_some() {}
                    if vitals.is_empty() {
                        let (link, name) = (session.link.clone(), self.name.clone());
                        let lease_ms = u64::try_from(lease.granted.elapsed().as_millis()).ok();
                        let now = Vitals { lease_ms, ..self.meters.vitals() };
                        vitals.spawn(async move {
                            let put = link.put_vitals(&name, &now, lease.id);
                            drop(tokio::time::timeout(VITALS_EVERY, put).await);
                        });
                    }
                    continue;
                }
                renewed = session.renewed.message() => {
                    let Some(renewed) = renewed? else {
                        return Err(EtcdError::Away("etcd closed the stream of the lease".to_owned()));
                    };
                    if renewed.ttl() <= 0 {
                        return Err(EtcdError::LeaseLost);
                    }
                    heard = Instant::now();
                    self.lease = Some(Lease { ends: heard + lease.ttl, ..lease });
                    continue;
                }
                answer = session.watch.message() => {
                    let Some(answer) = answer? else {
                        return Err(EtcdError::Away("etcd closed the watch".to_owned()));
                    };
                    if answer.canceled() {
                        return Err(EtcdError::Away(format!("etcd ended the watch: {}", answer.cancel_reason())));
                    }
                    let mut changes = session.link.changes(&answer);
                    let all = changes.len();
                    for change in changes.extract_if(.., |change| matches!(change, Change::Vitals(..))) {
                        apply(&mut session.view, change);
                    }
                    if changes.is_empty() && all > 0 {
                        // Nothing that shards depend on has changed.
                        self.show(session.view.cluster());
                        continue;
                    }
                    // What goes together with this node itself goes with its lease.
                    let is_gone = |change: &Change| matches!(change, Change::Member(name, None) if *name == self.name);
                    let lost = changes.iter().any(is_gone);
                    let mut seen = Vec::new();
                    for change in changes {
                        match change {
                            Change::Drain(name, drain) if name == self.name && !lost => {
                                self.drained(drain, &session.link, lease.id).await?;
                            }
                            change => seen.extend(apply(&mut session.view, change)),
                        }
                    }
                    self.history.record(seen);
                }
                Some(shard) = self.settled.recv() => {
                    session.view.settled(&shard, Instant::now());
                    while let Ok(shard) = self.settled.try_recv() {
                        session.view.settled(&shard, Instant::now());
                    }
                }
                Ok(()) = self.demand.changed() => {}
                Ok(()) = self.unhealthy.changed() => {
                    self.take_in_fitness();
                    session.link.register(&self.name, &self.me, lease.id).await?;
                }
                silent = self.silent.changed() => {
                    self.me.unreachable = silent;
                    session.link.register(&self.name, &self.me, lease.id).await?;
                }
                () = tokio::time::sleep_until(wake) => {
                    plan_at = Instant::now() + FAR;
                    self.carry_out(session, lease.id).await?;
                    continue;
                }
            }
            plan_at = plan_at.min(Instant::now() + PLAN_GAP);
        }
    }

    async fn carry_out(&mut self, session: &mut Session, lease: i64) -> Result<(), EtcdError> {
        let all = crate::flat(&self.demand.borrow_and_update());
        let scanned = self.owned.borrow().0.clone();
        let serving = self.me.state == MemberState::Serving;
        let view = &mut session.view;
        let late = self.late.clone();
        let place_of = |shard: &ShardName| late.place_of(shard);
        let mut plan = view.plan(&all, serving, &scanned, &place_of, Instant::now());
        self.adopted = view.adopted();
        crate::publish(&self.owned, &self.meters, plan.owned.clone());
        if !plan.drop.is_empty() {
            let (dropped, reason) = (session.link.drop_keys(&plan.drop, &self.name).await?, why_given_up(&self.me));
            let seen =
                |(shard, _): &(ShardName, i64)| SeenChange { shard: shard.clone(), owner: None, reason: Some(reason) };
            self.history.record(dropped.iter().map(seen).collect());
            for (shard, revision) in dropped {
                view.key(shard, None, revision);
            }
        }
        if !plan.take.is_empty() {
            let taken = session.link.take(&plan.take, &self.name, lease).await?;
            let over = taken.iter().filter(|(shard, _)| view.is_orphan(shard)).count() as u64;
            self.meters.lease_changes("taken_over", over);
            if over > 0 {
                info!(shards = over, "shards of a node that is gone are taken over");
            }
            let owner = Some(self.name.clone());
            let seen =
                |(shard, _): &(ShardName, i64)| SeenChange { shard: shard.clone(), owner: owner.clone(), reason: None };
            self.history.record(taken.iter().map(seen).collect());
            for (shard, revision) in taken {
                view.key(shard.clone(), Some(self.name.clone()), revision);
                plan.owned.insert(shard);
            }
            crate::publish(&self.owned, &self.meters, plan.owned);
        }
        let cluster = view.cluster();
        self.meters.owners("etcd", i64::from(cluster.nodes()));
        self.show(cluster);
        Ok(())
    }

    /// One round while etcd is away. As long as the lease may live, others stay away from what is
    /// this node's, and this node from what is theirs.
    async fn away(&mut self) {
        tokio::time::sleep(BACK_EVERY).await;
        self.take_in_fitness();
        while self.settled.try_recv().is_ok() {}
        let all = crate::flat(&self.demand.borrow_and_update());
        let scanned = self.owned.borrow().0.clone();
        // Topics may have gone. An unhealthy node keeps what it has, since others find what is late.
        let there: BTreeSet<&ShardName> = all.iter().collect();
        let mut kept: BTreeSet<ShardName> = scanned.iter().filter(|shard| there.contains(shard)).cloned().collect();
        let serves = self.me.state == MemberState::Serving;
        if serves && self.lease.is_none_or(|lease| lease.ends <= Instant::now()) {
            let mut late = self.late.find(&all, &kept).await;
            if !late.is_empty() {
                self.turn(&mut late).await;
                late.truncate(LATE_MAX);
                self.meters.lease_changes("late", late.len() as u64);
                self.adopted.extend(late.iter().cloned());
                kept.extend(late);
            }
        }
        crate::publish(&self.owned, &self.meters, kept);
    }

    /// Turns the list so that nodes that see the same one begin at different places.
    async fn turn(&self, late: &mut [ShardName]) {
        if let Some(tickets) = &self.tickets
            && late.len() > LATE_MAX
            && let Ok(ticket) = tickets.take(LATE_MAX as u64).await
        {
            late.rotate_left(usize::try_from(ticket.end % late.len() as u64).expect("below the length"));
        }
    }

    fn take_in_fitness(&mut self) {
        let unhealthy = self.unhealthy.borrow_and_update().clone();
        self.me.set_state(unhealthy, self.drain.clone());
    }

    /// Takes in whether an operator drains this node, and says so to the others.
    async fn drained(&mut self, drain: Option<Drain>, link: &EtcdLink, lease: i64) -> Result<(), EtcdError> {
        if self.drain == drain {
            return Ok(());
        }
        self.drain = drain;
        self.take_in_fitness();
        link.register(&self.name, &self.me, lease).await
    }

    /// Before etcd was heard of, this node is all it knows.
    fn show_alone(&self) {
        self.show(ClusterNodes { members: [(self.name.clone(), self.me.clone())].into(), ..ClusterNodes::default() });
    }

    fn show(&self, cluster: ClusterNodes) {
        self.cluster.send_if_modified(|old| {
            let changed = **old != cluster;
            if changed {
                *old = Arc::new(cluster);
            }
            changed
        });
    }
}

/// So often a node says how it does.
const VITALS_EVERY: Duration = Duration::from_secs(10);

/// No plan is due until something happens.
const FAR: Duration = Duration::from_secs(3600);

/// Takes a change in; returns a shard that has another owner since.
fn apply(view: &mut View, change: Change) -> Option<SeenChange> {
    match change {
        Change::Member(name, member) => view.member(name, member, Instant::now()),
        Change::Key(shard, owner, revision) => {
            let before = view.owner(&shard);
            view.key(shard.clone(), owner, revision);
            let owner = view.owner(&shard);
            let reason = owner.is_none().then(|| view.why_free(&shard));
            return (owner != before).then_some(SeenChange { shard, owner, reason });
        }
        // The node it is about says so itself.
        Change::Drain(..) => {}
        Change::Vitals(name, vitals) => view.vitals(name, vitals),
    }
    None
}
