//! Remembers for a day which nodes went, so that every node knows them, and a page that is opened later.
//!
//! Nodes that share a Redis store have one list there, whatever they share shards by. Nothing depends on it: it is for
//! people. Upstream: the program; `GET /v1/nodes` shows what is known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use duetime_core::{Clock, ClusterNodes, GoneNode, Member, Namespace};
use duetime_redis::Link;
use futures::future::join_all;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Nodes that are remembered; of more, those that went last.
const GONE_MAX: usize = 64;
/// A node that went is remembered for this long.
const KEPT_MS: i64 = 24 * 3600 * 1000;
/// Interval between two reads of what other nodes remember.
const READ_EVERY: Duration = Duration::from_secs(10);
/// Longest wait for one answer.
const ANSWER_WITHIN: Duration = Duration::from_millis(800);

type Members = BTreeMap<Arc<str>, Member>;
/// By the name of that start of the node.
type Gone = BTreeMap<String, GoneNode>;

/// Remembers which nodes went.
#[derive(Debug)]
pub struct GoneNodes {
    link: Arc<Link>,
    /// The hash `NAMESPACE:{nodes}:gone`.
    key: String,
    clock: Arc<dyn Clock>,
    shown: watch::Sender<Arc<Vec<GoneNode>>>,
}

fn gone(member: &Member, now_ms: i64, stopped: bool) -> GoneNode {
    GoneNode {
        id: member.id.clone(),
        address: member.address.clone(),
        version: member.version.clone(),
        since_ms: member.since_ms,
        gone_ms: now_ms,
        stopped,
    }
}

/// Whether it went within the last day.
fn is_shown(node: &GoneNode, now_ms: i64) -> bool {
    now_ms.saturating_sub(node.gone_ms) < KEPT_MS && node.gone_ms.saturating_sub(now_ms) < KEPT_MS
}

/// Takes out of `known` what is to be remembered no longer, and answers their names: what is back, was started again under
/// its name, or is more than are kept. How long ago they went is for whoever shows them: a node whose clock is wrong takes
/// nothing from the others.
fn forget(known: &mut Gone, members: &Members) -> Vec<String> {
    let ids: BTreeSet<&str> = members.values().map(|member| member.id.as_str()).collect();
    let is_kept = |name: &str, node: &GoneNode| match members.contains_key(name) {
        // One that is stopping is there for some seconds more.
        true => node.stopped,
        false => !ids.contains(node.id.as_str()),
    };
    let mut newest: Vec<(i64, String)> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for (name, node) in &*known {
        match is_kept(name, node) {
            true => newest.push((node.gone_ms, name.clone())),
            false => names.push(name.clone()),
        }
    }
    newest.sort_unstable_by(|a, b| b.cmp(a));
    names.extend(newest.into_iter().skip(GONE_MAX).map(|(_, name)| name));
    for name in &names {
        known.remove(name);
    }
    names
}

impl GoneNodes {
    /// Beside the shards of `namespace`.
    #[must_use]
    pub fn new(link: Arc<Link>, namespace: &Namespace, clock: Arc<dyn Clock>) -> Arc<Self> {
        let key = format!("{namespace}:{{nodes}}:gone");
        Arc::new(Self { link, key, clock, shown: watch::Sender::default() })
    }

    /// The nodes that went, the latest first; as this node knows it.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Arc<Vec<GoneNode>>> {
        self.shown.subscribe()
    }

    async fn ask(&self, name: &'static str, args: &[String]) -> Option<redis::Value> {
        let mut cmd = redis::cmd(name);
        cmd.arg(&self.key);
        for arg in args {
            cmd.arg(arg);
        }
        tokio::time::timeout(ANSWER_WITHIN, self.link.command(name, &cmd)).await.ok()?.ok()
    }

    async fn read(&self) -> Option<Gone> {
        let all: BTreeMap<Vec<u8>, Vec<u8>> = redis::from_redis_value(self.ask("HGETALL", &[]).await?).ok()?;
        // What is no text or has no sense nobody here wrote.
        let read = |(name, text): (Vec<u8>, Vec<u8>)| {
            Some((String::from_utf8(name).ok()?, serde_json::from_slice(&text).ok()?))
        };
        Some(all.into_iter().filter_map(read).collect())
    }

    /// `HSETNX` leaves what is there: a node that said itself that it stops was not lost.
    async fn write(&self, verb: &'static str, name: &str, node: &GoneNode) {
        let text = serde_json::to_string(node).expect("words are plain");
        self.ask(verb, &[name.to_owned(), text]).await;
    }

    fn show(&self, known: &Gone, members: &Members) {
        let now_ms = self.clock.now().as_millis();
        let mut nodes: Vec<GoneNode> = known
            .iter()
            .filter(|(name, node)| !members.contains_key(name.as_str()) && is_shown(node, now_ms))
            .map(|(_, node)| node.clone())
            .collect();
        nodes.sort_by(|a, b| (b.gone_ms, &a.id).cmp(&(a.gone_ms, &b.id)));
        self.shown.send_if_modified(|old| {
            let changed = **old != nodes;
            if changed {
                *old = Arc::new(nodes);
            }
            changed
        });
    }

    /// Follows `cluster` until `stop`.
    ///
    /// Cost: a read every ten seconds, of 64 entries and those that came since; a write for each node that went, and a
    /// read for all of them.
    pub async fn run(self: Arc<Self>, mut cluster: watch::Receiver<Arc<ClusterNodes>>, stop: CancellationToken) {
        let mut members: Members = cluster.borrow_and_update().members.clone();
        let mut known = Gone::new();
        let mut reads = tokio::time::interval(READ_EVERY);
        loop {
            let (is_time, went): (bool, Members) = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Ok(()) = cluster.changed() => {
                    let present = cluster.borrow_and_update().members.clone();
                    let before = std::mem::replace(&mut members, present);
                    (false, before.into_iter().filter(|(name, _)| !members.contains_key(name)).collect())
                }
                _ = reads.tick() => (true, Members::new()),
            };
            // Nodes tell of themselves all the time: that asks the store nothing.
            let reads_store = is_time || !went.is_empty();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.remember(went, reads_store, &members, &mut known) => {}
            }
        }
    }

    /// Notes what `went`, and shows what is known then of nodes other than `members`.
    async fn remember(&self, went: Members, reads_store: bool, members: &Members, known: &mut Gone) {
        let now_ms = self.clock.now().as_millis();
        let went: Vec<_> = went.iter().map(|(name, member)| (name, gone(member, now_ms, false))).collect();
        join_all(went.iter().map(|(name, node)| self.write("HSETNX", name, node))).await;
        known.extend(went.into_iter().map(|(name, node)| (name.to_string(), node)));
        // What this node alone has seen stays, also where the store does not answer.
        if reads_store {
            for (name, node) in self.read().await.unwrap_or_default() {
                match known.get(&name) {
                    // Whoever noted it first may have a clock that is behind.
                    Some(own) if !node.stopped && own.gone_ms > node.gone_ms => {}
                    _ => drop(known.insert(name, node)),
                }
            }
        }
        let names = forget(known, members);
        if !names.is_empty() {
            self.ask("HDEL", &names).await;
        }
        self.show(known, members);
    }

    /// Says that the node `id` at `address`, one of `nodes`, stops because it was asked to.
    pub async fn say_stopped(&self, id: &str, address: &str, nodes: &ClusterNodes) {
        let is_this = |(_, member): &(&Arc<str>, &Member)| (&*member.id, &*member.address) == (id, address);
        if let Some((name, member)) = nodes.members.iter().find(is_this) {
            self.write("HSET", name, &gone(member, self.clock.now().as_millis(), true)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str) -> Member {
        Member { id: id.to_owned(), ..Member::default() }
    }

    fn names(known: &Gone) -> Vec<&str> {
        known.keys().map(String::as_str).collect()
    }

    #[test]
    fn a_node_is_remembered_for_a_day_until_it_is_back() {
        let went = |id: &str, at: i64, stopped: bool| gone(&member(id), at, stopped);
        let all = [
            ("lost~1", went("lost", 5, false)),
            ("again~1", went("again", 5, false)),
            ("back~1", went("back", 5, false)),
            ("stops~1", went("stops", 5, true)),
        ];
        let mut known: Gone = all.into_iter().map(|(name, node)| (name.to_owned(), node)).collect();
        let living = [("again~2", "again"), ("back~1", "back"), ("stops~1", "stops")];
        let members: Members = living.into_iter().map(|(name, id)| (name.into(), member(id))).collect();
        assert_eq!(forget(&mut known, &members), ["again~1", "back~1"]);
        assert_eq!(names(&known), ["lost~1", "stops~1"]);
        let shown = |now_ms| known.values().filter(|node| is_shown(node, now_ms)).count();
        assert_eq!([KEPT_MS + 4, KEPT_MS + 5, 6 - KEPT_MS, 5 - KEPT_MS].map(shown), [2, 0, 2, 0], "for a day");
        assert_eq!(names(&known), ["lost~1", "stops~1"], "what others have to show stays");
    }

    #[test]
    fn those_that_went_last_are_kept() {
        let count = i64::try_from(GONE_MAX).unwrap() + 2;
        let mut known: Gone =
            (0..count).map(|at| (format!("{at:03}"), gone(&member(&format!("n{at}")), at, false))).collect();
        assert_eq!(forget(&mut known, &Members::new()), ["001", "000"]);
        assert_eq!(known.len(), GONE_MAX);
    }
}
