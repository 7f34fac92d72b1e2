//! What etcd holds, as this node sees it, and what follows from it: take, give up, drop.
//!
//! Pure: events and moments are arguments.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use duetime_core::{ClusterNodes, Member, MemberState, ServerId, Vitals, assign};
use tokio::time::Instant;

use crate::ShardName;

/// After a change of the members nothing is shared anew for this long: several come and go together
/// (a deployment, all leases lost at once), and each should move its shards once.
pub(super) const CALM: Duration = Duration::from_millis(300);
/// After a change of who does not reach which server of the store, for this long: where all lose it at once,
/// nobody is better off, and nothing needs to move.
pub(super) const STANDS: Duration = Duration::from_secs(2);
/// What is in flight of a shard that goes to another node is waited for no longer than this. Its
/// claims stay this node's until their deadlines, so nothing is delivered twice.
pub(super) const SETTLE_MAX: Duration = Duration::from_secs(2);

/// One key as etcd holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    owner: Arc<str>,
    revision: i64,
}

/// A member among which shards are shared, and the servers that are silent to it.
type Sharer = (Arc<str>, BTreeSet<ServerId>);

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Free shards that are this node's to take.
    pub take: Vec<ShardName>,
    /// Keys that this node holds no longer.
    pub drop: Vec<ShardName>,
    /// What this node scans, without what it has yet to take.
    pub owned: BTreeSet<ShardName>,
}

/// What etcd holds, as this node sees it, and what follows from it: take, give up, drop.
#[derive(Debug)]
pub(super) struct View {
    me: Arc<str>,
    pub members: BTreeMap<Arc<str>, Member>,
    /// How they do, as they said last.
    vitals: BTreeMap<Arc<str>, Vitals>,
    keys: BTreeMap<ShardName, Key>,
    /// Who held a key that went away, and when it went, for as long as nobody took it.
    orphans: HashMap<ShardName, Key>,
    /// Keys this node gives up, and until when it waits for what is in flight.
    giving: BTreeMap<ShardName, Instant>,
    /// This node's share, and of which shards and members it was made.
    share: BTreeSet<ShardName>,
    shared: Option<(Vec<ShardName>, Vec<Sharer>)>,
    /// Shards that were late and not served: scanned on until they are known to be served. Those whose key some
    /// member has, no longer than until then.
    adopted: BTreeSet<ShardName>,
    adopted_until: Instant,
    /// When shards are to be shared anew; it stays until that was done, however late.
    calm_until: Option<Instant>,
}

impl View {
    pub fn new(me: Arc<str>, now: Instant) -> Self {
        Self {
            me,
            members: BTreeMap::new(),
            vitals: BTreeMap::new(),
            keys: BTreeMap::new(),
            orphans: HashMap::new(),
            giving: BTreeMap::new(),
            share: BTreeSet::new(),
            shared: None,
            adopted: BTreeSet::new(),
            adopted_until: now,
            calm_until: Some(now + CALM),
        }
    }

    pub fn member(&mut self, name: Arc<str>, member: Option<Member>, now: Instant) {
        let before = self.members.get(&name);
        if before.map(|member| member.state) != member.as_ref().map(|member| member.state) {
            self.calm_until = Some(now + CALM);
        } else if before.map(|member| &member.unreachable) != member.as_ref().map(|member| &member.unreachable) {
            self.calm_until = Some(now + STANDS);
        }
        if member.is_some() {
            // It lives, and scans what it has keys for.
            let keys = &self.keys;
            self.adopted.retain(|shard| keys.get(shard).is_none_or(|key| key.owner != name));
        }
        match member {
            Some(member) => drop(self.members.insert(name, member)),
            None => drop(self.members.remove(&name)),
        }
    }

    /// The node `name` said how it does; `None`: its lease ended.
    pub fn vitals(&mut self, name: Arc<str>, vitals: Option<Vitals>) {
        match vitals {
            Some(vitals) => drop(self.vitals.insert(name, vitals)),
            None => drop(self.vitals.remove(&name)),
        }
    }

    /// The key of `shard` was written (or deleted: `None`) at `revision`.
    pub fn key(&mut self, shard: ShardName, owner: Option<Arc<str>>, revision: i64) {
        // What this node wrote itself is known before the watch reports what came earlier.
        let known = self.keys.get(&shard).or_else(|| self.orphans.get(&shard));
        if known.is_some_and(|key| key.revision > revision) {
            return;
        }
        match owner {
            Some(owner) => {
                self.orphans.remove(&shard);
                self.adopted.remove(&shard);
                self.keys.insert(shard, Key { owner, revision });
            }
            None => {
                if let Some(key) = self.keys.remove(&shard) {
                    self.orphans.insert(shard, Key { revision, ..key });
                }
            }
        }
    }

    /// Everything in flight of `shard` is settled: there is nothing to wait for.
    pub fn settled(&mut self, shard: &ShardName, now: Instant) {
        if let Some(until) = self.giving.get_mut(shard) {
            *until = now;
        }
    }

    /// Whether the node that held `shard` before is gone.
    pub fn is_orphan(&self, shard: &ShardName) -> bool {
        self.orphans.get(shard).is_some_and(|key| !self.members.contains_key(&key.owner))
    }

    /// Those of `all` that nobody serves: they have no key, or the node that has it is gone.
    pub fn unserved(&self, all: &[ShardName]) -> Vec<ShardName> {
        let serves = |key: &Key| self.members.contains_key(&key.owner);
        all.iter().filter(|shard| !self.keys.get(*shard).is_some_and(serves)).cloned().collect()
    }

    /// Scans these shards on too; later than `until` only those that nobody serves.
    pub fn adopt(&mut self, shards: BTreeSet<ShardName>, until: Instant) {
        self.adopted.extend(shards);
        self.adopted_until = until;
    }

    /// Those that are still scanned on.
    pub fn adopted(&self) -> BTreeSet<ShardName> {
        self.adopted.clone()
    }

    /// What follows. `scanned`: what this node scans at present, perhaps without a key since its
    /// lease was lost. `server_of`: the server that holds a shard.
    pub fn plan(
        &mut self,
        all: &[ShardName],
        serving: bool,
        scanned: &BTreeSet<ShardName>,
        server_of: &dyn Fn(&ShardName) -> ServerId,
        now: Instant,
    ) -> Plan {
        if self.calm_until.is_none_or(|until| until <= now) {
            self.calm_until = None;
            self.share_out(all, server_of);
        }
        if self.adopted_until <= now {
            let adopted: Vec<ShardName> = std::mem::take(&mut self.adopted).into_iter().collect();
            self.adopted.extend(self.unserved(&adopted));
            self.adopted_until = now + SETTLE_MAX;
        }
        if self.shared.is_none() {
            return Plan { owned: scanned.clone(), ..Plan::default() };
        }
        let nothing = BTreeSet::new();
        let share = if serving || self.none_serves() { &self.share } else { &nothing };
        let mut plan = Plan::default();
        for (shard, key) in &self.keys {
            if key.owner != self.me {
                continue;
            }
            if share.contains(shard) {
                self.giving.remove(shard);
                plan.owned.insert(shard.clone());
            } else if *self.giving.entry(shard.clone()).or_insert(now + SETTLE_MAX) <= now {
                plan.drop.push(shard.clone());
            }
        }
        let keys = &self.keys;
        self.giving.retain(|shard, _| keys.get(shard).is_some_and(|key| key.owner == self.me));
        for shard in share.iter().filter(|shard| !keys.contains_key(*shard)) {
            plan.take.push(shard.clone());
            if scanned.contains(shard) {
                plan.owned.insert(shard.clone());
            }
        }
        if serving {
            plan.owned.extend(self.adopted.intersection(scanned).cloned());
        }
        plan
    }

    /// When a plan is due without any event; in the past when other work came first.
    pub fn wakes_at(&self) -> Option<Instant> {
        let adopted_until = (!self.adopted.is_empty()).then_some(self.adopted_until);
        self.giving.values().copied().chain(self.calm_until).chain(adopted_until).min()
    }

    /// Nobody is better off than another (the store is away, its clock is wrong): giving shards away
    /// would only leave them without a scanner when it is over.
    fn none_serves(&self) -> bool {
        !self.members.values().any(|member| member.state == MemberState::Serving)
    }

    fn share_out(&mut self, all: &[ShardName], server_of: &dyn Fn(&ShardName) -> ServerId) {
        let is_there = |state: &MemberState| self.members.values().any(|member| member.state == *state);
        let by_worth = [MemberState::Serving, MemberState::Draining, MemberState::Unhealthy];
        let wanted = by_worth.into_iter().find(is_there).unwrap_or_default();
        let members = self.members.iter().filter(|(_, member)| member.state == wanted);
        let members: Vec<_> = members.map(|(name, member)| (name.clone(), member.unreachable.clone())).collect();
        // Nobody is registered, this node neither: it was deleted or could not be written. What was shared holds on.
        if members.is_empty() {
            return;
        }
        if self.shared.as_ref().is_some_and(|(shards, of)| shards == all && *of == members) {
            return;
        }
        let names: Vec<&str> = members.iter().map(|(name, _)| &**name).collect();
        let keys: Vec<u64> = all.iter().map(|(topic, index)| assign::shard_key(topic.as_str(), *index)).collect();
        let mut owners = assign::assign(&names, &keys);
        reassign(&members, all, &keys, server_of, &mut owners);
        let mine = names.iter().position(|name| *name == &*self.me).and_then(|place| u32::try_from(place).ok());
        let own = all.iter().zip(owners).filter(|(_, owner)| Some(*owner) == mine);
        self.share = own.map(|(shard, _)| shard.clone()).collect();
        self.shared = Some((all.to_vec(), members));
    }

    pub fn cluster(&self) -> ClusterNodes {
        let owners = self.keys.iter().map(|(shard, key)| (shard.clone(), key.owner.clone())).collect();
        let mut members = self.members.clone();
        for (name, member) in &mut members {
            member.vitals = self.vitals.get(name).cloned();
        }
        ClusterNodes { members, owners }
    }
}

/// Gives shards whose server is silent to their owner to members that it answers, if there are any.
fn reassign(
    members: &[Sharer],
    all: &[ShardName],
    keys: &[u64],
    server_of: &dyn Fn(&ShardName) -> ServerId,
    owners: &mut [u32],
) {
    if members.iter().all(|(_, silent)| silent.is_empty()) {
        return;
    }
    let mut cut_off = BTreeMap::<ServerId, Vec<usize>>::new();
    for (at, shard) in all.iter().enumerate().take(owners.len()) {
        let server = server_of(shard);
        if members[owners[at] as usize].1.contains(&server) {
            cut_off.entry(server).or_default().push(at);
        }
    }
    for (server, shards) in cut_off {
        let able: Vec<u32> = (0..).zip(members).filter(|(_, (_, s))| !s.contains(&server)).map(|(n, _)| n).collect();
        let names: Vec<&str> = able.iter().map(|n| &*members[*n as usize].0).collect();
        let of_these: Vec<u64> = shards.iter().map(|at| keys[*at]).collect();
        for (at, owner) in shards.iter().zip(assign::assign(&names, &of_these)) {
            owners[*at] = able[owner as usize];
        }
    }
}
