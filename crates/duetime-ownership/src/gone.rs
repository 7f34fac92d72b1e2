//! Remembers for a day which nodes went, so that every node knows them, and a page that is opened later.
//!
//! Nodes that share a Redis store have one list there, whatever they share shards by. Nothing depends on it: it is for
//! people. Upstream: the program; `GET /v1/nodes` shows what is known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use duetime_core::{Clock, ClusterNodes, GoneNode, Member, Namespace};
use duetime_redis::Link;
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

/// Takes out of `known` what is to be remembered no longer, and answers their names: what is back, was started again under
/// its name, went more than a day ago, or is more than are kept.
fn forget(known: &mut Gone, members: &Members, now_ms: i64) -> Vec<String> {
    let ids: BTreeSet<&str> = members.values().map(|member| member.id.as_str()).collect();
    let is_kept = |name: &str, node: &GoneNode| match members.contains_key(name) {
        // One that is stopping is there for some seconds more.
        true => node.stopped,
        false => !ids.contains(node.id.as_str()) && now_ms - node.gone_ms < KEPT_MS,
    };
    let mut names: Vec<String> = Vec::new();
    known.retain(|name, node| {
        let kept = is_kept(name, node);
        if !kept {
            names.push(name.clone());
        }
        kept
    });
    while known.len() > GONE_MAX {
        let oldest = known.iter().min_by_key(|(_, node)| node.gone_ms).map(|(name, _)| name.clone());
        let oldest = oldest.expect("there are some");
        known.remove(&oldest);
        names.push(oldest);
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
        let all: BTreeMap<String, String> = redis::from_redis_value(self.ask("HGETALL", &[]).await?).ok()?;
        Some(all.into_iter().filter_map(|(name, text)| Some((name, serde_json::from_str(&text).ok()?))).collect())
    }

    /// `HSETNX` leaves what is there: a node that said itself that it stops was not lost.
    async fn write(&self, verb: &'static str, name: &str, node: &GoneNode) {
        let text = serde_json::to_string(node).expect("words are plain");
        self.ask(verb, &[name.to_owned(), text]).await;
    }

    fn show(&self, known: &Gone, members: &Members) {
        let mut nodes: Vec<GoneNode> = known
            .iter()
            .filter(|(name, _)| !members.contains_key(name.as_str()))
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

    /// Follows `cluster` until `stop`; `me` is this node's address there. Once told to stop, it says that this node does.
    ///
    /// Cost: one command every ten seconds, which reads 64 entries at most, and one for each node that comes or goes.
    pub async fn run(
        self: Arc<Self>,
        me: (String, String),
        mut cluster: watch::Receiver<Arc<ClusterNodes>>,
        stop: CancellationToken,
    ) {
        let mut members: Members = cluster.borrow_and_update().members.clone();
        let mut known = Gone::new();
        let mut reads = tokio::time::interval(READ_EVERY);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Ok(()) = cluster.changed() => {
                    let present = cluster.borrow_and_update().members.clone();
                    let before = std::mem::replace(&mut members, present);
                    let went: Members = before.into_iter().filter(|(name, _)| !members.contains_key(name)).collect();
                    if went.is_empty() {
                        self.show(&known, &members);
                        continue;
                    }
                    for (name, member) in went {
                        let node = gone(&member, self.clock.now().as_millis(), false);
                        self.write("HSETNX", &name, &node).await;
                        known.entry(name.to_string()).or_insert(node);
                    }
                }
                _ = reads.tick() => {}
            }
            // What this node alone has seen stays, also where the store does not answer.
            known.extend(self.read().await.unwrap_or_default());
            let names = forget(&mut known, &members, self.clock.now().as_millis());
            if !names.is_empty() {
                self.ask("HDEL", &names).await;
            }
            self.show(&known, &members);
        }
        let now_ms = self.clock.now().as_millis();
        if let Some((name, member)) = members.iter().find(|(_, member)| (&member.id, &member.address) == (&me.0, &me.1))
        {
            self.write("HSET", name, &gone(member, now_ms, true)).await;
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
        assert_eq!(forget(&mut known, &members, KEPT_MS + 4), ["again~1", "back~1"]);
        assert_eq!(names(&known), ["lost~1", "stops~1"]);
        assert_eq!(forget(&mut known, &Members::new(), KEPT_MS + 5), ["lost~1", "stops~1"], "a day is over");
    }

    #[test]
    fn those_that_went_last_are_kept() {
        let count = i64::try_from(GONE_MAX).unwrap() + 2;
        let mut known: Gone =
            (0..count).map(|at| (format!("{at:03}"), gone(&member(&format!("n{at}")), at, false))).collect();
        assert_eq!(forget(&mut known, &Members::new(), count), ["000", "001"]);
        assert_eq!(known.len(), GONE_MAX);
    }
}
