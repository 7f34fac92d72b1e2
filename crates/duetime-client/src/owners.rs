//! Who had a shard before, as a node saw it.

use serde::{Deserialize, Serialize};

/// One change of a shard's owner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShardOwnerChange {
    /// When the node saw it, milliseconds since the Unix epoch.
    pub at: i64,
    /// The node that scans it from then on; `None`: nobody, or, in round-robin, none that the node knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Why, in a word.
    pub reason: String,
}

/// What a node knows of the owners of a shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShardOwners {
    /// The shard.
    pub index: u32,
    /// The node that answers.
    pub node: String,
    /// How nodes share the shards: `solo`, `round-robin` or `etcd`.
    pub mode: String,
    /// Since when it looks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
    /// The newest first.
    pub changes: Vec<ShardOwnerChange>,
    /// Earlier ones were forgotten, or may have been.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forgotten: bool,
}
