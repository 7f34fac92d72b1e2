//! What a node says of the nodes. Fields that a newer node adds are ignored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::recent::NodeAnswer;

/// Who has a node leave its shards to others.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeDrain {
    /// The name of the token.
    pub by: Option<String>,
    /// Since when, milliseconds since the Unix epoch.
    pub at: i64,
}

/// What was asked of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DrainAnswer {
    /// Its name.
    pub id: String,
    /// Whether it is to leave its shards to others.
    pub draining: bool,
}

/// The clock of a node for tests.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TestClock {
    /// What it shows, milliseconds since the Unix epoch.
    pub now: i64,
    /// By how much that is ahead of the machine's clock, in milliseconds.
    pub ahead_ms: i64,
}

/// A node that went.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GoneNode {
    /// Its name.
    pub id: String,
    /// Where it listened.
    #[serde(default)]
    pub address: String,
    /// Of the program.
    #[serde(default)]
    pub version: String,
    /// When it had started, milliseconds since the Unix epoch.
    pub since: i64,
    /// When it was missed first, or said that it stops, milliseconds since the Unix epoch.
    pub gone_at: i64,
    /// It said itself that it stops; false: it died, or was cut off.
    #[serde(default)]
    pub stopped: bool,
}

/// The nodes, and those that went.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Nodes {
    /// Those that were heard of lately.
    pub nodes: Vec<NodeView>,
    /// Those that went in the last day, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<GoneNode>,
}

/// What a node knows to be wrong.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeIssue {
    /// The node that says so.
    pub node: String,
    /// A sentence, as its `/readyz` has it.
    pub issue: String,
}

/// What nodes know to be wrong.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Issues {
    /// The node that answers.
    pub node: String,
    /// Of all nodes: which there are, and whether they have answered. Absent: it is one node's.
    pub nodes: Option<Vec<NodeAnswer>>,
    /// By node.
    pub issues: Vec<NodeIssue>,
}

/// One node.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeView {
    /// Its name.
    pub id: String,
    /// `serving`, `draining` or `unhealthy`.
    pub state: String,
    /// Why it is unhealthy.
    pub unhealthy: Option<String>,
    /// An operator drains it.
    pub drain: Option<NodeDrain>,
    /// Where it listens.
    #[serde(default)]
    pub address: String,
    /// When it started, milliseconds since the Unix epoch.
    pub since: i64,
    /// How shards are shared.
    pub mode: String,
    /// Of the program.
    #[serde(default)]
    pub version: String,
    /// How many shards it scans.
    #[serde(default)]
    pub shards_owned: u64,
    /// How many of each topic.
    #[serde(default)]
    pub topics: BTreeMap<String, u64>,
    /// How it does.
    pub vitals: Option<NodeVitals>,
}

/// How a node does, as it measured it itself.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeVitals {
    /// When, milliseconds since the Unix epoch.
    pub at: i64,
    /// Messages it claimed a minute; absent where the token may not see it.
    pub claims_per_minute: Option<u64>,
    /// Memory that it holds, in bytes.
    pub memory_bytes: Option<u64>,
    /// So far the store's clock is ahead of its own, in milliseconds.
    #[serde(default)]
    pub clock_skew_ms: i64,
    /// Since when it has had its lease.
    pub lease_since: Option<i64>,
}
