//! One connection to etcd: keeps the lease alive, registers, follows the watch, and carries out what the view decides.
//!
//! A write that etcd refuses, because it is out of space or the user has not the right, ends nothing: the watch is
//! followed on and the write tried again. Whatever the reason, a shard that nobody serves, because it has no key or
//! the node that has it is gone, is taken when it is late. A node whose own entry goes while its lease lives registers
//! again. Upstream: `keeper`. Downstream: `link` and `view`.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::{MemberState, Vitals};
use duetime_settings::ClientPem;
use etcd_client::{LeaseKeepAliveResponse, LeaseKeepAliveStream, LeaseKeeper, WatchResponse, WatchStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{info, warn};

use super::keeper::{Keeper, Lease, take_late};
use super::link::{Change, EtcdError, EtcdLink};
use super::view::View;
use crate::{Changes, ShardName};

/// Plans are at least this far apart: events come in crowds.
const PLAN_GAP: Duration = Duration::from_millis(20);
/// A write that was refused is tried again after this.
const WRITE_AGAIN: Duration = Duration::from_secs(1);
/// A shard that no node has served for this long is checked: its messages may be late.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Shards of others that were late are scanned on for a lease and this. By then the keys of a node that is dead are
/// gone.
const ADOPTED_SLACK: Duration = Duration::from_secs(3);
/// How often a session looks whether the certificates were read anew.
const CERTIFICATES_EVERY: Duration = Duration::from_secs(1);
/// Longest wait for a connection with new certificates; at most a sixth of the lease, which is not renewed meanwhile.
const CERTIFICATES_WITHIN: Duration = Duration::from_secs(2);
/// New certificates with which etcd was not reached are tried again after this.
const CERTIFICATES_AGAIN: Duration = Duration::from_secs(10);
/// Interval between published vitals.
const VITALS_EVERY: Duration = Duration::from_secs(10);
/// No plan is due until something happens.
const FAR: Duration = Duration::from_secs(3600);

/// What one connection to etcd has.
pub(super) struct Session {
    link: EtcdLink,
    view: View,
    lease: Lease,
    watch: WatchStream,
    renew: LeaseKeeper,
    renewed: LeaseKeepAliveStream,
    /// When the lease was last known to live.
    heard: Instant,
    /// When a plan is due.
    plan_at: Instant,
    /// Etcd has this node as it is.
    is_registered: bool,
    /// The drain of this node went with its entry, and not because somebody took it back.
    lost_drain: bool,
    /// New certificates with which etcd was not reached, and when they are tried again.
    untaken: Option<(Arc<ClientPem>, Instant)>,
    /// Why a write of the last plan was refused.
    refused: Option<String>,
    /// Why the last word of how this node does was refused.
    refused_vitals: Option<String>,
    /// Shards that nobody served at the last look.
    unserved: BTreeSet<ShardName>,
    /// Who serves what may have changed since.
    has_changed: bool,
    looks: JoinSet<Vec<ShardName>>,
    vitals: JoinSet<Result<(), EtcdError>>,
}

impl Session {
    /// What etcd holds, as far as it was followed.
    pub fn into_view(self) -> View {
        self.view
    }

    fn plan_soon(&mut self) {
        self.plan_at = self.plan_at.min(Instant::now() + PLAN_GAP);
    }

    fn wakes_at(&self) -> Instant {
        self.view.wakes_at().map_or(self.plan_at, |at| at.min(self.plan_at))
    }

    /// What etcd took; nothing where it refuses, which is tried again with the next plan.
    fn took<T>(&mut self, written: Result<T, EtcdError>) -> Result<Option<T>, EtcdError> {
        match written {
            Ok(done) => Ok(Some(done)),
            Err(EtcdError::Refused(why)) => {
                self.refused = Some(why);
                self.plan_at = self.plan_at.min(Instant::now() + WRITE_AGAIN);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn lease_was_renewed(&mut self, answer: Option<&LeaseKeepAliveResponse>) -> Result<(), EtcdError> {
        match answer {
            None => Err(EtcdError::Away("etcd closed the stream of the lease".to_owned())),
            Some(answer) if answer.ttl() <= 0 => Err(EtcdError::LeaseLost),
            Some(_) => {
                self.heard = Instant::now();
                Ok(())
            }
        }
    }
}

impl Keeper {
    pub(super) async fn open(&mut self) -> Result<Session, EtcdError> {
        let link = EtcdLink::connect(&self.config, &self.namespace).await?;
        self.take_in_fitness();
        let lives = match self.lease {
            Some(lease) => link.renew(lease.id).await?,
            None => false,
        };
        let lease = match self.lease {
            Some(lease) if lives => lease,
            old => {
                if old.is_some() {
                    self.meters.lease_changes("lost", self.owned.borrow().0.len() as u64);
                }
                let (id, ttl) = link.grant(self.config.lease_ttl).await?;
                Lease { id, ttl, granted: Instant::now() }
            }
        };
        self.lease = Some(lease);
        let (changes, watch) = link.read().await?;
        let now = Instant::now();
        self.followed = now;
        let drain = changes.iter().find_map(|change| match change {
            Change::Drain(name, drain) if *name == self.name => drain.clone(),
            _ => None,
        });
        let lost_drain = !lives && self.drain.is_some();
        if !lost_drain {
            self.drain = drain;
            self.take_in_fitness();
        }
        let mut view = View::new(self.name.clone(), now);
        for change in changes {
            apply(&mut view, change);
        }
        view.adopt(self.adopted.clone(), now + lease.ttl + ADOPTED_SLACK);
        let (renew, renewed) = link.keeper().keep_alive(lease.id).await?;
        let (unserved, refused, refused_vitals) = Default::default();
        let (heard, plan_at, is_registered, has_changed) = (now, now, false, true);
        Ok(Session {
            link,
            view,
            lease,
            watch,
            renew,
            renewed,
            heard,
            plan_at,
            is_registered,
            lost_drain,
            untaken: None,
            refused,
            refused_vitals,
            unserved,
            has_changed,
            looks: JoinSet::new(),
            vitals: JoinSet::new(),
        })
    }

    pub(super) async fn follow(&mut self, session: &mut Session) -> Result<Infallible, EtcdError> {
        let ttl = session.lease.ttl;
        let mut renew = tokio::time::interval(ttl / 3);
        // Apart from all that shards depend on: what comes of these holds up nothing.
        let (mut says, mut looks) = (tokio::time::interval(VITALS_EVERY), tokio::time::interval(LOOK_EVERY));
        let mut certificates = tokio::time::interval(CERTIFICATES_EVERY);
        for beside in [&mut says, &mut looks, &mut certificates] {
            beside.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        loop {
            let wake = session.wakes_at();
            tokio::select! {
                biased;
                _ = renew.tick() => {
                    if session.heard.elapsed() > ttl / 3 * 2 {
                        return Err(EtcdError::Away("etcd does not renew the lease".to_owned()));
                    }
                    session.renew.keep_alive().await?;
                }
                _ = says.tick() => self.say_vitals(session),
                _ = certificates.tick() => self.take_certificates(session).await,
                Some(said) = session.vitals.join_next(), if !session.vitals.is_empty() => self.vitals_said(session, said.ok()),
                _ = looks.tick() => self.look_for_late(session),
                Some(late) = session.looks.join_next(), if !session.looks.is_empty() => {
                    self.adopt(session, late.unwrap_or_default());
                }
                renewed = session.renewed.message() => {
                    session.lease_was_renewed(renewed?.as_ref())?;
                    self.followed = Instant::now();
                }
                answer = session.watch.message() => self.watched(session, answer?)?,
                Some(shard) = self.settled.recv() => {
                    session.view.settled(&shard, Instant::now());
                    while let Ok(shard) = self.settled.try_recv() {
                        session.view.settled(&shard, Instant::now());
                    }
                    session.plan_soon();
                }
                Ok(()) = self.demand.changed() => {
                    session.has_changed = true;
                    session.plan_soon();
                }
                Ok(()) = self.unhealthy.changed() => {
                    self.take_in_fitness();
                    session.is_registered = false;
                    session.plan_soon();
                }
                silent = self.silent.changed() => {
                    self.me.unreachable = silent;
                    session.is_registered = false;
                    session.plan_soon();
                }
                () = tokio::time::sleep_until(wake) => self.carry_out(session).await?,
            }
        }
    }

    /// Replaces `session` by one on a new connection, if its connection was made with other certificates than were read
    /// last. If etcd cannot be reached with these, `session` goes on.
    async fn take_certificates(&mut self, session: &mut Session) {
        let Ok(Some(latest)) = self.config.certificates() else { return };
        if session.link.certificates().is_some_and(|used| Arc::ptr_eq(used, &latest)) {
            return;
        }
        let again = session.untaken.as_ref().filter(|(tried, _)| Arc::ptr_eq(tried, &latest)).map(|(_, at)| *at);
        if again.is_some_and(|at| Instant::now() < at) {
            return;
        }
        let within = CERTIFICATES_WITHIN.min(session.lease.ttl / 6);
        let why = match tokio::time::timeout(within, self.open()).await {
            Ok(Ok(opened)) => {
                *session = opened;
                info!("connected to etcd with the new certificates");
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no connection within {within:?}"),
        };
        if again.is_none() {
            warn!(why, "etcd cannot be reached with the new certificates, the open connection goes on");
        }
        session.untaken = Some((latest, Instant::now() + CERTIFICATES_AGAIN));
        // It may have read another word on this node's drain before it failed.
        session.is_registered = false;
        session.plan_soon();
    }

    /// Takes in what changed in etcd.
    fn watched(&mut self, session: &mut Session, answer: Option<WatchResponse>) -> Result<(), EtcdError> {
        let Some(answer) = answer else {
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
            return Ok(());
        }
        // What goes together with this node itself goes with its lease, or because somebody deletes what is not
        // theirs: then it registers again, or is answered that its lease has ended.
        let is_gone = |change: &Change| matches!(change, Change::Member(name, None) if *name == self.name);
        let lost = changes.iter().any(is_gone);
        if lost {
            session.is_registered = false;
            session.lost_drain = self.drain.is_some();
        }
        for change in changes {
            match change {
                Change::Drain(name, drain) if name == self.name => {
                    if !lost && self.drain != drain {
                        self.drain = drain;
                        self.take_in_fitness();
                        session.is_registered = false;
                    }
                }
                change => apply(&mut session.view, change),
            }
        }
        session.has_changed = true;
        session.plan_soon();
        Ok(())
    }

    /// Says to the others how this node is.
    async fn register(&self, session: &mut Session) -> Result<(), EtcdError> {
        let written = session.link.register(&self.name, &self.me, session.lease.id).await;
        let Some(()) = session.took(written)? else { return Ok(()) };
        if let Some(drain) = self.drain.as_ref().filter(|_| session.lost_drain) {
            let written = session.link.put_drain(&self.name, drain, session.lease.id).await;
            let Some(()) = session.took(written)? else { return Ok(()) };
        }
        session.lost_drain = false;
        session.is_registered = true;
        Ok(())
    }

    async fn carry_out(&mut self, session: &mut Session) -> Result<(), EtcdError> {
        session.plan_at = Instant::now() + FAR;
        session.refused = None;
        if !session.is_registered {
            self.register(session).await?;
        }
        let all = crate::flat(&self.demand.borrow_and_update());
        let scanned = self.owned.borrow().0.clone();
        let serving = self.me.state == MemberState::Serving;
        let late = self.late.clone();
        let server_of = |shard: &ShardName| late.server_of(shard);
        let mut plan = session.view.plan(&all, serving, &scanned, &server_of, Instant::now());
        self.adopted = session.view.adopted();
        crate::publish(&self.owned, &self.meters, plan.owned.clone(), Changes::Seldom);
        if !plan.drop.is_empty() {
            let written = session.link.drop_keys(&plan.drop, &self.name).await;
            for (shard, revision) in session.took(written)?.unwrap_or_default() {
                session.view.key(shard, None, revision);
            }
        }
        if !plan.take.is_empty() {
            let written = session.link.take(&plan.take, &self.name, session.lease.id).await;
            let taken = session.took(written)?.unwrap_or_default();
            let over = taken.iter().filter(|(shard, _)| session.view.is_orphan(shard)).count() as u64;
            self.meters.lease_changes("taken_over", over);
            if over > 0 {
                info!(shards = over, "shards of a node that is gone are taken over");
            }
            for (shard, revision) in taken {
                session.view.key(shard.clone(), Some(self.name.clone()), revision);
                plan.owned.insert(shard);
            }
            crate::publish(&self.owned, &self.meters, plan.owned, Changes::Seldom);
        }
        session.has_changed = true;
        self.report(session);
        let cluster = session.view.cluster();
        self.meters.nodes_serving("etcd", i64::from(cluster.nodes()));
        self.show(cluster);
        Ok(())
    }

    /// Reports whether etcd takes the writes of this node.
    fn report(&self, session: &Session) {
        let why = session.refused.as_ref().or(session.refused_vitals.as_ref());
        let issue = why.map(|why| {
            let namespace = &self.namespace;
            format!(
                "etcd takes no writes of this node ({why}): shards change hands only when they are late; make room by \
                 etcdctl compact, defrag and alarm disarm, or give the user of ownership.etcd_user the right to read \
                 and write /duetime/{namespace}/"
            )
        });
        let before = std::mem::replace(&mut *self.issue.lock(), issue);
        match (before, why) {
            (None, Some(why)) => warn!(why, "etcd takes no writes, shards that nobody serves are taken when late"),
            (Some(_), None) => info!("etcd takes writes again"),
            _ => {}
        }
    }

    /// Leaves word of how this node does, beside all else. It is also how a node that has nothing else to write
    /// notices that etcd takes no writes.
    fn say_vitals(&self, session: &mut Session) {
        if !session.vitals.is_empty() {
            return;
        }
        let (link, name, lease) = (session.link.clone(), self.name.clone(), session.lease);
        let lease_ms = u64::try_from(lease.granted.elapsed().as_millis()).ok();
        let now = Vitals { lease_ms, ..self.meters.vitals() };
        session.vitals.spawn(async move {
            let put = link.put_vitals(&name, &now, lease.id);
            tokio::time::timeout(VITALS_EVERY, put).await.unwrap_or(Ok(()))
        });
    }

    fn vitals_said(&self, session: &mut Session, said: Option<Result<(), EtcdError>>) {
        session.refused_vitals = match said {
            Some(Err(EtcdError::Refused(why))) => Some(why),
            _ => None,
        };
        self.report(session);
    }

    /// Looks, beside all else, which shards are late among those that nobody has served since the last time.
    fn look_for_late(&self, session: &mut Session) {
        let is_calm = !std::mem::take(&mut session.has_changed) && session.unserved.is_empty();
        if is_calm || !session.looks.is_empty() {
            return;
        }
        let all = crate::flat(&self.demand.borrow());
        let scanned = self.owned.borrow().0.clone();
        let unserved: BTreeSet<ShardName> = session.view.unserved(&all).into_iter().collect();
        let still = session.unserved.intersection(&unserved).filter(|shard| !scanned.contains(*shard));
        let still: Vec<ShardName> = still.cloned().collect();
        session.unserved = unserved;
        if !still.is_empty() && self.me.state == MemberState::Serving {
            session.looks.spawn(take_late(self.late.clone(), self.tickets.clone(), still, scanned));
        }
    }

    /// From now on this node scans these late shards, until somebody serves them.
    fn adopt(&mut self, session: &mut Session, late: Vec<ShardName>) {
        // Somebody may have taken them meanwhile.
        let late = session.view.unserved(&late);
        if late.is_empty() {
            return;
        }
        self.meters.lease_changes("late", late.len() as u64);
        let mut scanned = self.owned.borrow().0.clone();
        scanned.extend(late.iter().cloned());
        crate::publish(&self.owned, &self.meters, scanned, Changes::Seldom);
        session.view.adopt(late.into_iter().collect(), Instant::now() + session.lease.ttl + ADOPTED_SLACK);
        self.adopted = session.view.adopted();
        session.plan_soon();
    }
}

/// Takes a change in.
fn apply(view: &mut View, change: Change) {
    match change {
        Change::Member(name, member) => view.member(name, member, Instant::now()),
        Change::Key(shard, owner, revision) => view.key(shard, owner, revision),
        // The node it is about says so itself.
        Change::Drain(..) => {}
        Change::Vitals(name, vitals) => view.vitals(name, vitals),
    }
}
