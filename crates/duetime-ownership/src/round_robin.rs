//! Nodes take shards in turn, by one counter in Redis; nobody needs to know who else there is.
//!
//! Once a turn a node advances the counter by its share and scans the shards at the places it got,
//! modulo their number, until its next turn. Turns get consecutive positions, so the turns of all nodes
//! together cover every shard, as long as they take equally long: nothing but the counter is waited for in a turn, and
//! looks for late shards and word of this node are tasks beside it. A second counter counts turns: by how much it moved between two of its
//! own, a node sees how many nodes there are. A node that is slow or gone takes fewer places, and the
//! others see it at their next turn.
//!
//! A server of the store that answers others and not this node is left to them: each says which are
//! silent to it, and the others scan the shards of those beside their own.
//!
//! Cost of a node: two INCRBY a turn and, every few turns, one look at all shards; where the store has
//! several servers, one look at a shard of each a second.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::ownership::Demand;
use duetime_core::{ClusterNodes, Drain, Member, MemberState, OwnedShards, Ownership, ServerId, TopicName};
use duetime_metrics::Meters;
use duetime_supervisor::Supervisor;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::overdue::OverdueShards;
use crate::presence::{NodesSeen, Presence};
use crate::tickets::Tickets;
use crate::unresponsive::UnresponsiveServers;
use crate::{Changes, ShardName};

/// How long a node scans the shards of one turn. A killed node's shards are served again within two.
const TURN: Duration = Duration::from_millis(1_000);
/// Every so many turns a node also looks for shards that nobody serves.
const LATE_EVERY: u64 = 3;
/// Late shards taken at a time.
const LATE_MAX: usize = 8;
/// Every so many turns a node says that it is there.
const PRESENCE_EVERY: u64 = 2;
/// Nodes are counted over so many turns: two that take theirs at the same moment change places now
/// and then, which is not to be taken for a node that comes and goes.
const COUNT_OVER: usize = 4;
/// Longest wait for the last word at the end.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// Nodes take shards in turn, by one counter in Redis; nobody needs to know who else there is.
#[derive(Debug)]
pub struct RoundRobin {
    demand: watch::Sender<Demand>,
    unhealthy: watch::Sender<Option<String>>,
    drain: watch::Sender<Option<Drain>>,
    owned: watch::Sender<Arc<OwnedShards>>,
    reported: watch::Sender<Arc<OwnedShards>>,
    cluster: watch::Sender<Arc<ClusterNodes>>,
    issue: Arc<Mutex<Option<String>>>,
    stop: CancellationToken,
    presence: Arc<dyn Presence>,
    name: Arc<str>,
    turning: Mutex<Option<JoinHandle<()>>>,
}

impl RoundRobin {
    /// Takes its first turn as soon as it learns what there is. Must be called on a tokio runtime.
    #[must_use]
    pub fn start(
        me: Member,
        tickets: Arc<dyn Tickets>,
        late: OverdueShards,
        presence: Arc<dyn Presence>,
        meters: Arc<Meters>,
        supervisor: &Supervisor,
    ) -> Arc<Self> {
        let name: Arc<str> = crate::unique(&me.id).into();
        let round_robin = Self {
            demand: watch::Sender::default(),
            unhealthy: watch::Sender::default(),
            drain: watch::Sender::default(),
            owned: watch::Sender::default(),
            reported: watch::Sender::default(),
            cluster: watch::Sender::default(),
            issue: Arc::default(),
            stop: CancellationToken::new(),
            presence: presence.clone(),
            name: name.clone(),
            turning: Mutex::default(),
        };
        let turner = Turner {
            name,
            me,
            tickets,
            silent: late.silent(round_robin.demand.subscribe(), supervisor),
            late,
            presence,
            meters,
            demand: round_robin.demand.subscribe(),
            unhealthy: round_robin.unhealthy.subscribe(),
            drained: round_robin.drain.subscribe(),
            drain: round_robin.drain.clone(),
            owned: round_robin.owned.clone(),
            reported: round_robin.reported.clone(),
            cluster: round_robin.cluster.clone(),
            nodes: Nodes::default(),
            overdue: BTreeSet::new(),
            looks: JoinSet::new(),
            heartbeats: JoinSet::new(),
            number: 0,
            issue: round_robin.issue.clone(),
        };
        let turning = supervisor.start_once("turns", &round_robin.stop, turner.run(round_robin.stop.clone()));
        *round_robin.turning.lock() = Some(turning);
        Arc::new(round_robin)
    }
}

#[async_trait]
impl Ownership for RoundRobin {
    fn mode(&self) -> &'static str {
        "round-robin"
    }

    fn takes_turns(&self) -> bool {
        true
    }

    async fn demand(&self, demand: Demand) {
        self.demand.send_replace(demand);
    }

    fn owned(&self) -> watch::Receiver<Arc<OwnedShards>> {
        self.owned.subscribe()
    }

    fn reported(&self) -> watch::Receiver<Arc<OwnedShards>> {
        self.reported.subscribe()
    }

    fn cluster(&self) -> watch::Receiver<Arc<ClusterNodes>> {
        self.cluster.subscribe()
    }

    fn issue(&self) -> Option<String> {
        self.issue.lock().clone()
    }

    /// Nobody waits for it: another node may have had its turn already.
    async fn settled(&self, _topic: &TopicName, _index: u32) {}

    async fn set_unhealthy(&self, why: Option<String>) {
        self.unhealthy.send_if_modified(|old| std::mem::replace(old, why.clone()) != why);
    }

    async fn drain(&self, member: &str, drain: Option<Drain>) -> Result<(), String> {
        if !self.presence.drain(member, drain.as_ref()).await {
            return Err("Redis did not answer in time".to_owned());
        }
        if *member == *self.name {
            self.drain.send_if_modified(|old| std::mem::replace(old, drain.clone()) != drain);
        }
        Ok(())
    }

    async fn leave(&self) {
        self.stop.cancel();
        let turning = self.turning.lock().take();
        if let Some(turning) = turning {
            let _ = tokio::time::timeout(LEAVE_WITHIN, turning).await;
        }
        let _ = tokio::time::timeout(LEAVE_WITHIN, self.presence.forget(&self.name)).await;
        info!("no turns are taken any more");
    }
}

impl Drop for RoundRobin {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// How many nodes take turns, from the counter of turns.
#[derive(Debug, Default)]
struct Nodes {
    seen: VecDeque<u64>,
}

impl Nodes {
    /// The counter stood at `turns` after this node's turn.
    fn saw(&mut self, turns: u64) {
        // Redis came back without the counter, or with an older one.
        if self.seen.back().is_some_and(|last| *last >= turns) {
            self.seen.clear();
        }
        self.seen.push_back(turns);
        if self.seen.len() > COUNT_OVER + 1 {
            self.seen.pop_front();
        }
    }

    /// Rather too few than too many: shares that are too large overlap, too small ones leave holes.
    fn count(&self) -> u64 {
        match (self.seen.front(), self.seen.back()) {
            (Some(first), Some(last)) if self.seen.len() > 1 => {
                ((last - first + 1) / (self.seen.len() as u64 - 1)).max(1)
            }
            _ => 1,
        }
    }
}

#[derive(Debug)]
struct Turner {
    name: Arc<str>,
    me: Member,
    tickets: Arc<dyn Tickets>,
    late: OverdueShards,
    silent: UnresponsiveServers,
    presence: Arc<dyn Presence>,
    meters: Arc<Meters>,
    demand: watch::Receiver<Demand>,
    unhealthy: watch::Receiver<Option<String>>,
    drained: watch::Receiver<Option<Drain>>,
    drain: watch::Sender<Option<Drain>>,
    owned: watch::Sender<Arc<OwnedShards>>,
    reported: watch::Sender<Arc<OwnedShards>>,
    cluster: watch::Sender<Arc<ClusterNodes>>,
    nodes: Nodes,
    /// Shards that were late and that nobody served: scanned until the end of the next turn.
    overdue: BTreeSet<ShardName>,
    looks: JoinSet<Vec<ShardName>>,
    heartbeats: JoinSet<Option<NodesSeen>>,
    number: u64,
    /// Why Redis gave no turn, for `/readyz`.
    issue: Arc<Mutex<Option<String>>>,
}

impl Turner {
    async fn run(mut self, stop: CancellationToken) {
        // Nodes that were started at the same moment take their turns at different ones.
        let phase = TURN.mul_f64(rand::random_range(0.0..1.0));
        let mut tick = tokio::time::interval_at(Instant::now() + phase, TURN);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // A change of the demand, of this node's fitness or of its drain is a turn before its time.
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Ok(()) = self.demand.changed() => {}
                Ok(()) = self.unhealthy.changed() => {}
                Ok(()) = self.drained.changed() => {}
                _ = tick.tick() => {}
                Some(late) = self.looks.join_next(), if !self.looks.is_empty() => {
                    self.take_late(late.unwrap_or_default());
                    continue;
                }
                Some(seen) = self.heartbeats.join_next(), if !self.heartbeats.is_empty() => {
                    self.heard(seen.ok().flatten());
                    continue;
                }
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.turn() => {}
            }
        }
        crate::publish(&self.owned, &self.meters, BTreeSet::new(), Changes::EachTurn);
        self.meters.nodes_serving("round-robin", 0);
    }

    async fn turn(&mut self) {
        let began = Instant::now();
        let all = crate::flat(&self.demand.borrow_and_update());
        let unhealthy = self.unhealthy.borrow_and_update().clone();
        self.me.set_state(unhealthy, self.drained.borrow_and_update().clone());
        self.me.unreachable = self.silent.now();
        let wanted = if self.takes() && !all.is_empty() { self.places(&all).await } else { Some(BTreeSet::new()) };
        if let Some(wanted) = wanted {
            crate::publish(&self.owned, &self.meters, wanted, Changes::EachTurn);
        }
        self.share_reports(&all);
        self.look_for_late(all);
        self.say_heartbeat();
        self.show();
        self.number += 1;
        debug_assert!(began.elapsed() < TURN * 60, "every step of a turn is bounded");
    }

    /// Counts every nth shard of all, by this node's place among the nodes that take turns: turns change too often.
    fn share_reports(&self, all: &[ShardName]) {
        let cluster = self.cluster.borrow().clone();
        let serving = |member: &Member| member.state == MemberState::Serving;
        let is_served = cluster.members.values().any(serving);
        let sharing = cluster.members.iter().filter(|(_, member)| !is_served || serving(member));
        let names: Vec<&Arc<str>> = sharing.map(|(name, _)| name).collect();
        let place = names.iter().position(|name| **name == self.name);
        let own = place.into_iter().flat_map(|place| all.iter().skip(place).step_by(names.len()));
        let own = OwnedShards(own.cloned().collect());
        self.reported.send_if_modified(|old| {
            let changed = **old != own;
            if changed {
                *old = Arc::new(own);
            }
            changed
        });
    }

    fn takes(&self) -> bool {
        match self.me.state {
            MemberState::Serving => true,
            MemberState::Draining => !self.others_serve(),
            MemberState::Unhealthy => false,
        }
    }

    /// Whether there is a node to leave shards to.
    fn others_serve(&self) -> bool {
        let cluster = self.cluster.borrow();
        cluster.members.iter().any(|(name, member)| **name != *self.name && member.state == MemberState::Serving)
    }

    /// The shards of the next turn; `None`: nobody answered, so this one goes on.
    async fn places(&mut self, all: &[ShardName]) -> Option<BTreeSet<ShardName>> {
        let count = all.len() as u64;
        let share = count.div_ceil(self.nodes.count()).clamp(1, count);
        let turn = match self.tickets.take(share).await {
            Ok(turn) => turn,
            Err(error) => {
                let issue = format!(
                    "the counter of turns in Redis is out of reach ({error}): this node scans what it has, and late \
                     shards that nobody serves"
                );
                if self.issue.lock().replace(issue).is_none() {
                    warn!(error, "no turn from Redis; still polling the last shards");
                }
                return None;
            }
        };
        if self.issue.lock().take().is_some() {
            info!("turns are taken again");
        }
        self.nodes.saw(turn.turns);
        let place = |n: u64| all[usize::try_from(n % count).expect("below the length")].clone();
        let mut wanted: BTreeSet<ShardName> = (turn.end.saturating_sub(share)..turn.end).map(place).collect();
        self.for_each_other(all, &mut wanted);
        wanted.extend(std::mem::take(&mut self.overdue));
        Some(wanted)
    }

    /// Looks, beside the turns and every few of them, for shards that nobody serves, also where no turn can be had.
    fn look_for_late(&mut self, all: Vec<ShardName>) {
        let held = self.owned.borrow().0.clone();
        let is_time = self.number % LATE_EVERY == LATE_EVERY - 1;
        if is_time && self.takes() && held.len() < all.len() && self.looks.is_empty() {
            let late = self.late.clone();
            self.looks.spawn(async move { late.find(&all, &held).await });
        }
    }

    /// Takes shards that nobody serves, until the end of the next turn.
    fn take_late(&mut self, mut late: Vec<ShardName>) {
        let mut wanted = self.owned.borrow().0.clone();
        late.retain(|shard| !wanted.contains(shard));
        late.truncate(LATE_MAX);
        if late.is_empty() || !self.takes() {
            return;
        }
        self.meters.lease_changes("late", late.len() as u64);
        self.overdue.extend(late.iter().cloned());
        wanted.extend(late);
        crate::publish(&self.owned, &self.meters, wanted, Changes::EachTurn);
    }

    /// Leaves shards of servers that are silent to this node to nodes that they answer, and takes theirs.
    fn for_each_other(&self, all: &[ShardName], wanted: &mut BTreeSet<ShardName>) {
        let cluster = self.cluster.borrow().clone();
        let others = || cluster.members.iter().filter(|(name, _)| **name != self.name).map(|(_, member)| member);
        let is_silent = |member: &Member, server: ServerId| member.unreachable.contains(&server);
        if self.me.unreachable.is_empty() && others().all(|member| member.unreachable.is_empty()) {
            return;
        }
        for shard in all {
            let server = self.late.server_of(shard);
            if !is_silent(&self.me, server) {
                if others().any(|member| is_silent(member, server)) {
                    wanted.insert(shard.clone());
                }
            } else if others().any(|member| member.state == MemberState::Serving && !is_silent(member, server)) {
                wanted.remove(shard);
            }
        }
    }

    /// Leaves word of this node, beside its turns.
    fn say_heartbeat(&mut self) {
        self.me.shards = Some(u32::try_from(self.owned.borrow().0.len()).unwrap_or(u32::MAX));
        if !self.number.is_multiple_of(PRESENCE_EVERY) || !self.heartbeats.is_empty() {
            return;
        }
        self.me.vitals = Some(self.meters.vitals());
        let (presence, name, me) = (self.presence.clone(), self.name.clone(), self.me.clone());
        self.heartbeats.spawn(async move { presence.say(&name, &me).await });
    }

    /// Takes in what others left word of.
    fn heard(&mut self, seen: Option<NodesSeen>) {
        let Some(seen) = seen else { return };
        let drain = seen.drains.get(&self.name).cloned();
        self.drain.send_if_modified(|old| std::mem::replace(old, drain.clone()) != drain);
        self.show_with(seen.members);
    }

    fn show(&mut self) {
        let members = self.cluster.borrow().members.clone();
        self.show_with(members);
    }

    fn show_with(&mut self, mut members: BTreeMap<Arc<str>, Member>) {
        members.insert(self.name.clone(), self.me.clone());
        let owned = self.owned.borrow().clone();
        let owners = owned.0.iter().cloned().map(|shard| (shard, self.name.clone())).collect();
        let cluster = ClusterNodes { members, owners };
        self.meters.nodes_serving("round-robin", i64::from(cluster.nodes()));
        self.cluster.send_if_modified(|old| {
            let changed = **old != cluster;
            if changed {
                *old = Arc::new(cluster);
            }
            changed
        });
    }
}

#[cfg(test)]
mod tests;
