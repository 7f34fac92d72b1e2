//! What a node says of the nodes. Fields that a newer node adds are ignored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Who has a node leave its shards to others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeDrain {
    /// The name of the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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

/// One node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeView {
    /// Its name.
    pub id: String,
    /// `serving`, `draining` or `unhealthy`.
    pub state: String,
    /// Why it is unhealthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy: Option<String>,
    /// An operator drains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
}
