//! The contract of ownership: which shards this node scans, and who else scans what.
//!
//! Correctness does not depend on ownership: two nodes that poll one shard waste polls, and neither takes what the other
//! claimed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::names::TopicName;
use crate::server::ServerId;

/// What is to be shared: each topic with its number of shards.
pub type Demand = Vec<(TopicName, u32)>;

/// The shards this node may scan at present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedShards(pub BTreeSet<(TopicName, u32)>);

impl OwnedShards {
    /// Whether shard `index` of `topic` is among them.
    #[must_use]
    pub fn has(&self, topic: &TopicName, index: u32) -> bool {
        self.0.contains(&(topic.clone(), index))
    }

    /// Whether some shard of `topic` is among them.
    #[must_use]
    pub fn has_any(&self, topic: &TopicName) -> bool {
        self.0.range((topic.clone(), 0)..=(topic.clone(), u32::MAX)).next().is_some()
    }
}

/// Whether a node takes its share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// It scans shards.
    #[default]
    Serving,
    /// It claims no more: it ends, or an operator drains it.
    Draining,
    /// It cannot claim, and nodes that can have its shards; its log and `unhealthy` say why.
    #[serde(rename = "unfit")]
    Unhealthy,
}

impl MemberState {
    /// As in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Draining => "draining",
            Self::Unhealthy => "unhealthy",
        }
    }
}

/// An operator has a node leave its shards to others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// The name of the token that asked; absent: none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When, milliseconds since the Unix epoch.
    pub at_ms: i64,
}

/// How a node does, as it measured it itself. Whole numbers, so that it can be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vitals {
    /// When that was, in milliseconds since its start.
    pub up_ms: u64,
    /// Messages it claimed a minute lately.
    pub claims_per_minute: u64,
    /// What it holds of memory, in bytes; `None`: its system does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// How far the store's clock leads the node's, in milliseconds.
    pub clock_skew_ms: i64,
    /// How long it has had its lease; `None`: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
}

/// A node that went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneNode {
    /// Its configured name.
    pub id: String,
    /// Where it listened.
    pub address: String,
    /// Its program's version.
    pub version: String,
    /// When it had started, milliseconds since the Unix epoch, as [`Member::since_ms`].
    pub since_ms: i64,
    /// When it was missed first or said that it stops, milliseconds since the Unix epoch by the clock of the node that
    /// noted it.
    pub gone_ms: i64,
    /// It said itself that it stops; false: it died, or was cut off.
    pub stopped: bool,
}

/// One node, as it presents itself to the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its configured name; several nodes may have the same.
    pub id: String,
    /// Where it listens.
    #[serde(default)]
    pub address: String,
    /// Where other nodes ask it over HTTP: `http://HOST:PORT` or `https://HOST:PORT`. `None`: nobody can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<String>,
    /// Its program's version.
    #[serde(default)]
    pub version: String,
    /// When it started, milliseconds since the Unix epoch.
    pub since_ms: i64,
    /// Whether it takes its share.
    #[serde(default)]
    pub state: MemberState,
    /// How many shards it scans, where nobody else knows: in round-robin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<u32>,
    /// Why it does not take its share.
    #[serde(default, rename = "unfit", skip_serializing_if = "Option::is_none")]
    pub unhealthy: Option<String>,
    /// Servers of the store that answer others and not this node.
    #[serde(default, rename = "silent", skip_serializing_if = "BTreeSet::is_empty")]
    pub unreachable: BTreeSet<ServerId>,
    /// An operator drains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
    /// What was heard last of how it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vitals: Option<Vitals>,
}

impl Member {
    /// Whether it takes its share, by why it cannot and whether it is to leave it to others.
    pub fn set_state(&mut self, unhealthy: Option<String>, drain: Option<Drain>) {
        self.state = match (&unhealthy, &drain) {
            (Some(_), _) => MemberState::Unhealthy,
            (None, Some(_)) => MemberState::Draining,
            (None, None) => MemberState::Serving,
        };
        self.unhealthy = unhealthy;
        self.drain = drain;
    }
}

/// All nodes and who scans what, as far as this node knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterNodes {
    /// By a name that is unique even where two nodes have the same id.
    pub members: BTreeMap<Arc<str>, Member>,
    /// The member that scans a shard. In round-robin, where shards change hands all the time, only
    /// this node's own.
    pub owners: BTreeMap<(TopicName, u32), Arc<str>>,
}

impl ClusterNodes {
    /// The id of the node that scans shard `index` of `topic`.
    #[must_use]
    pub fn owner(&self, topic: &TopicName, index: u32) -> Option<&str> {
        let member = self.owners.get(&(topic.clone(), index))?;
        Some(self.members.get(member).map_or(member, |member| member.id.as_str()))
    }

    /// How many shards of each topic `member` scans, as far as this node knows.
    #[must_use]
    pub fn scanned_by(&self, member: &str) -> BTreeMap<TopicName, u32> {
        let mut scanned = BTreeMap::new();
        for (topic, _) in self.owners.iter().filter(|(_, owner)| &***owner == member).map(|(shard, _)| shard) {
            *scanned.entry(topic.clone()).or_insert(0) += 1;
        }
        scanned
    }

    /// How many nodes take a share; at least one, this one. The one answer to "how many nodes are there":
    /// `"auto"` shard counts, the capacity of forecasts and the gauge of owners follow it. One that an operator drains
    /// does no work and is not among them, unless no node serves: then those that are drained scan on. Where none can
    /// claim, each keeps its share.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        let serving = self.members.values().filter(|member| member.state == MemberState::Serving).count();
        let drained =
            || self.members.values().filter(|member| member.state == MemberState::Draining && member.drain.is_some());
        let working = [serving, drained().count(), self.members.len(), 1].into_iter().find(|count| *count > 0);
        working.map_or(1, |working| u32::try_from(working).unwrap_or(u32::MAX))
    }
}

/// Ownership of shards.
#[async_trait]
pub trait Ownership: Send + Sync + std::fmt::Debug + 'static {
    /// The mode as in the configuration: `solo`, `round-robin`, `etcd`.
    fn mode(&self) -> &'static str;

    /// Whether nodes take shards in turns: each knows of its own alone, and any may scan a shard the next moment.
    fn takes_turns(&self) -> bool {
        false
    }

    /// Says what there is to share; called whenever topics come, go or change their shard count.
    async fn demand(&self, demand: Demand);

    /// The shards this node scans, now and as they change.
    fn owned(&self) -> watch::Receiver<Arc<OwnedShards>>;

    /// The shards whose messages this node counts in its gauges, now and as they change; each is counted by one node. By
    /// default those that it scans.
    fn reported(&self) -> watch::Receiver<Arc<OwnedShards>> {
        self.owned()
    }

    /// All nodes and who scans what, now and as it changes.
    fn cluster(&self) -> watch::Receiver<Arc<ClusterNodes>>;

    /// What keeps this node from sharing shards out as it should at present: a sentence with what to do.
    fn issue(&self) -> Option<String> {
        None
    }

    /// Says that everything in flight of a shard that is no longer owned is settled.
    async fn settled(&self, topic: &TopicName, index: u32);

    /// Says that this node cannot claim, and why: its shards go to nodes that can, if there are any. `None`: it can
    /// again.
    async fn set_unhealthy(&self, why: Option<String>);

    /// Has the node `member`, a name as in [`ClusterNodes::members`], leave its shards to others (`None`: take its share
    /// again). Nodes keep it where they share shards, for as long as that node lives; while no node serves, those
    /// that are drained scan on. Within a few seconds it shows in [`Member::drain`].
    ///
    /// # Errors
    ///
    /// A sentence: the node is gone, is the only one, or nobody answers.
    async fn drain(&self, member: &str, drain: Option<Drain>) -> Result<(), String>;

    /// Gives everything up and leaves; called once, at the end. Returns within a few seconds, also
    /// when nobody answers.
    async fn leave(&self);
}
