//! Which master has which slot of a Redis Cluster: asked, remembered, corrected by what masters say.
//!
//! A master that says MOVED is believed for that slot at once, and the whole map is asked for again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use redis::{Cmd, ConnectionInfo, Value};
use tokio::time::Instant;
use tracing::{debug, info};

use crate::config::{LinkConfig, endpoint};
use crate::error::{Failure, LinkError};
use crate::node::Node;
use crate::reply::word;
use crate::slots::SLOTS;
use crate::url::elsewhere;

/// The map is not asked for more often than this.
const REFRESH_EVERY: Duration = Duration::from_millis(200);
/// Longest wait for one node to send the map.
const TELL_WITHIN: Duration = Duration::from_secs(1);
/// A node that has not sent the map by then is not waited for alone: the next is asked beside it.
const ASK_NEXT_AFTER: Duration = Duration::from_millis(150);

#[derive(Default)]
struct Map {
    /// Every node that was ever named, by `host:port`.
    nodes: HashMap<String, Arc<Node>>,
    /// `host:port` of the master of each slot; empty before the first answer.
    owners: Vec<Option<Arc<Node>>>,
    /// In the order of the map, each once.
    masters: Vec<Arc<Node>>,
}

/// Which master has which slot of a Redis Cluster: asked, remembered, corrected by what masters say.
pub(crate) struct Cluster {
    base: ConnectionInfo,
    seeds: Vec<String>,
    config: LinkConfig,
    map: RwLock<Map>,
    /// Last error while reading the slot map.
    last_error: RwLock<Option<String>>,
    /// When the map was asked for last; held while it is.
    refreshed: tokio::sync::Mutex<Option<Instant>>,
}

/// A range of slots, and where its master is.
type SlotRange = (u16, u16, String);

impl Cluster {
    pub(crate) fn new(base: ConnectionInfo, seeds: Vec<String>, config: LinkConfig) -> Result<Self, LinkError> {
        let (map, last_error, refreshed) = Default::default();
        let cluster = Self { base, seeds, config, map, last_error, refreshed };
        for seed in &cluster.seeds {
            cluster.node_at(seed).map_err(|failure| match failure {
                Failure::Final(error) => error,
                _ => LinkError::Setup(format!("store URL: {seed:?} is not host:port")),
            })?;
        }
        Ok(cluster)
    }

    /// The node of an address; made if it is new.
    pub(crate) fn node_at(&self, name: &str) -> Result<Arc<Node>, Failure> {
        if let Some(node) = self.map.read().nodes.get(name).filter(|node| !node.is_deposed()) {
            return Ok(node.clone());
        }
        let (host, port) =
            name.rsplit_once(':').ok_or_else(|| Failure::unexpected_reply("an address without a port"))?;
        let port = port.parse().map_err(|_| Failure::unexpected_reply("a port that is no number"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let info = elsewhere(&self.base, host.to_owned(), port);
        let made = endpoint(info, &self.config).map_err(Failure::Final)?;
        let node = Arc::new(Node::new(name.to_owned(), made, &self.config));
        let mut map = self.map.write();
        let known = map.nodes.entry(name.to_owned()).or_insert_with(|| node.clone());
        if known.is_deposed() {
            *known = node;
        }
        Ok(known.clone())
    }

    /// The master of a slot; any master for a command without a key.
    pub(crate) async fn node(self: &Arc<Self>, slot: Option<u16>) -> Result<Arc<Node>, Failure> {
        if let Some(node) = self.known_node(slot) {
            return Ok(node);
        }
        self.refresh(true).await;
        self.known_node(slot).ok_or_else(|| Failure::Transient {
            reconnect: false,
            text: match slot {
                Some(slot) => format!("no master is known for slot {slot} of {}", self.config.url),
                None => {
                    let why = self.last_error.read().clone().unwrap_or_else(|| "none was asked yet".to_owned());
                    format!("no node of {} says who its masters are: {why}", self.config.url)
                }
            },
        })
    }

    /// The same without asking anybody.
    pub(crate) fn known_node(&self, slot: Option<u16>) -> Option<Arc<Node>> {
        let map = self.map.read();
        match slot {
            Some(slot) => map.owners.get(usize::from(slot)).cloned().flatten(),
            None if map.masters.is_empty() => None,
            None => Some(map.masters[self.drawn(map.masters.len())].clone()),
        }
    }

    /// Every master at present.
    pub(crate) async fn masters(self: &Arc<Self>) -> Result<Vec<Arc<Node>>, Failure> {
        self.node(None).await?;
        Ok(self.map.read().masters.clone())
    }

    /// What a master said about a slot that is no longer its own.
    pub(crate) fn moved(&self, slot: u16, name: &str) -> Result<(), Failure> {
        let node = self.node_at(name)?;
        if let Some(owner) = self.map.write().owners.get_mut(usize::from(slot)) {
            *owner = Some(node);
        }
        Ok(())
    }

    fn drawn(&self, count: usize) -> usize {
        usize::try_from(self.config.draw.below(count as u64)).expect("below a usize")
    }

    /// Asks for the map again, unless that was done a moment ago or, without `wait`, is being done.
    pub(crate) async fn refresh(self: &Arc<Self>, wait: bool) {
        if !wait && self.refreshed.try_lock().is_err() {
            return;
        }
        // In a task of its own: others wait for it, and the caller may be polled no more for long.
        let cluster = self.clone();
        let _ = tokio::spawn(async move { cluster.ask_again().await }).await;
    }

    async fn ask_again(&self) {
        let mut refreshed = self.refreshed.lock().await;
        if refreshed.is_some_and(|at| at.elapsed() < REFRESH_EVERY) {
            return;
        }
        let candidates = self.candidates(&[]);
        if let Some(ranges) = self.told_by_any(candidates).await {
            self.take(ranges);
        }
        *refreshed = Some(Instant::now());
    }

    /// The masters as they are known; none before the first answer.
    pub(crate) fn known_masters(&self) -> Vec<Arc<Node>> {
        self.map.read().masters.clone()
    }

    /// Asks nodes other than `doubted` who the masters are; those of `doubted` that are none any more are
    /// left: what waits for them is sent to the present ones.
    pub(crate) async fn ask_about(&self, doubted: &[Arc<Node>]) {
        let Some(ranges) = Box::pin(self.told_by_any(self.candidates(doubted))).await else { return };
        for node in doubted {
            if !ranges.iter().any(|(.., name)| *name == node.name) {
                info!(node = node.name, "redis cluster: another node has taken the place of this master");
                node.depose();
            }
        }
        self.take(ranges);
    }

    /// Whom to ask for the map: masters first, then the seeds, but not those in doubt.
    fn candidates(&self, doubted: &[Arc<Node>]) -> Vec<Arc<Node>> {
        let mut candidates = self.known_masters();
        if !candidates.is_empty() {
            // Not always the same first: it may be one that is cut off and has an old map.
            let first = self.drawn(candidates.len());
            candidates.rotate_left(first);
        }
        for seed in self.seeds.iter().filter_map(|seed| self.node_at(seed).ok()) {
            if !candidates.iter().any(|known| known.name == seed.name) {
                candidates.push(seed);
            }
        }
        candidates.retain(|node| !node.is_deposed() && !doubted.iter().any(|one| one.name == node.name));
        candidates
    }

    /// The map, as the first of these to answer has it; each is asked a moment after the one before.
    async fn told_by_any(&self, candidates: Vec<Arc<Node>>) -> Option<Vec<SlotRange>> {
        let asked = candidates.into_iter().zip(0u32..).map(|(node, at)| {
            Box::pin(async move {
                tokio::time::sleep(ASK_NEXT_AFTER * at).await;
                let text = match tokio::time::timeout(TELL_WITHIN, self.told_by(&node)).await {
                    Ok(Ok(ranges)) => return Ok(ranges),
                    Ok(Err(failure)) => LinkError::from(failure).to_string(),
                    Err(_) => format!("{} does not answer in time", node.name),
                };
                debug!(node = node.name, reason = %text, "does not answer with the cluster's slots");
                *self.last_error.write() = Some(text);
                Err(())
            })
        });
        let asked: Vec<_> = asked.collect();
        if asked.is_empty() {
            return None;
        }
        futures::future::select_ok(asked).await.ok().map(|(ranges, _)| ranges)
    }

    async fn told_by(&self, node: &Node) -> Result<Vec<SlotRange>, Failure> {
        let mut cmd = Cmd::new();
        cmd.arg("CLUSTER").arg("SLOTS");
        let ranges = read_slots(&node.send(&cmd, false).await?, &node.name)
            .ok_or_else(|| Failure::unexpected_reply("CLUSTER SLOTS answered oddly"))?;
        if ranges.is_empty() { Err(Failure::unexpected_reply("a node that knows of no slots")) } else { Ok(ranges) }
    }

    fn take(&self, ranges: Vec<SlotRange>) {
        let mut owners = vec![None; usize::from(SLOTS)];
        let mut masters: Vec<Arc<Node>> = Vec::new();
        for (first, last, name) in ranges {
            let Ok(node) = self.node_at(&name) else { continue };
            owners[usize::from(first)..=usize::from(last)].fill(Some(node.clone()));
            if !masters.iter().any(|master| master.name == name) {
                masters.push(node);
            }
        }
        let mut map = self.map.write();
        if map.masters.len() != masters.len() {
            info!(masters = masters.len(), "redis cluster: slots known");
        }
        // A node that left is forgotten with its connections; the seeds stay.
        let stays = |name: &String| masters.iter().any(|master| master.name == *name) || self.seeds.contains(name);
        map.nodes.retain(|name, node| stays(name) && !node.is_deposed());
        map.owners = owners;
        map.masters = masters;
    }
}

/// Reads CLUSTER SLOTS as `teller` answered it; a node that does not know its own host leaves it out.
pub(crate) fn read_slots(value: &Value, teller: &str) -> Option<Vec<SlotRange>> {
    let Value::Array(rows) = value else { return None };
    rows.iter()
        .map(|row| {
            let Value::Array(row) = row else { return None };
            let (Value::Int(first), Value::Int(last), Value::Array(master)) = (row.first()?, row.get(1)?, row.get(2)?)
            else {
                return None;
            };
            let host = word(master.first()?).filter(|host| !host.is_empty() && host != "?");
            let host = host.or_else(|| Some(teller.rsplit_once(':')?.0.to_owned()))?;
            let Value::Int(port) = master.get(1)? else { return None };
            let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
            (first <= last && last < SLOTS).then(|| (first, last, format!("{host}:{port}")))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_read_and_a_node_without_a_name_is_the_one_that_was_asked() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let row = |first, last, host, port| {
            Value::Array(vec![Value::Int(first), Value::Int(last), Value::Array(vec![host, Value::Int(port)])])
        };
        let map = Value::Array(vec![row(0, 8000, bulk("a"), 1), row(8001, 16_383, Value::Nil, 2)]);
        assert_eq!(read_slots(&map, "b:9").unwrap(), [(0, 8000, "a:1".to_owned()), (8001, 16_383, "b:2".to_owned())]);
        assert_eq!(read_slots(&Value::Array(vec![row(0, 16_384, bulk("a"), 1)]), "b:9"), None);
        assert_eq!(read_slots(&Value::Nil, "b:9"), None);
    }
}
