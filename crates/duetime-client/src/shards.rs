//! What a node answers of the shards of a topic. Fields that a newer node adds are ignored.

use duetime_core::ShardCount;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// One shard.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShardView {
    /// Its number.
    pub index: u32,
    /// Its cluster slot, where the store is Redis.
    pub slot: Option<u16>,
    /// The key of its stream, where the store is Redis and the topic's sink delivers in place.
    pub stream: Option<String>,
    /// The node that scans it.
    pub owner: Option<String>,
    /// As of the topic.
    pub scheduled: u64,
    /// As of the topic.
    pub due: u64,
    /// As of the topic.
    #[serde(default)]
    pub in_flight: u64,
    /// Dead letters.
    #[serde(default)]
    pub dead: u64,
    /// When the first message that is due fell due.
    pub oldest_due_at: Option<i64>,
    /// Its server does not answer, and its counts are not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreachable: bool,
    /// It should be there and is not: its server came back without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// Messages of an earlier incarnation of the topic that occupy the shard's keys.
    #[serde(default, skip_serializing_if = "none_there")]
    pub occupied_by: u64,
    /// True if the shard is of a newer incarnation than the topic's record, because the catalog was restored from an old
    /// copy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub newer_incarnation: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn none_there(messages: &u64) -> bool {
    *messages == 0
}

/// A resize under way.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resize {
    /// Shards before.
    pub from: u32,
    /// Shards after.
    pub to: u32,
    /// Messages moved.
    pub moved: u64,
    /// Messages still to be moved.
    pub remaining: u64,
    /// The next request, which starts after this one.
    pub desired: Option<u32>,
    /// Messages moved a second lately.
    pub per_second: Option<f64>,
    /// Seconds until nothing remains, at that rate.
    pub seconds_left: Option<f64>,
    /// Why it does not go on at present.
    pub blocked: Option<String>,
}

/// The shards of a topic.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shards {
    /// As configured.
    #[serde(default)]
    pub configured: ShardCount,
    /// How many there are.
    #[serde(default)]
    pub shard_count: u32,
    /// Number of the topic's incarnation; a topic that is deleted and created again has a higher one.
    #[serde(default)]
    pub incarnation: u64,
    /// Grows with every resize, from 1 in each incarnation.
    #[serde(default)]
    pub epoch: u64,
    /// The seed of the hash that names the shard of an id; absent: the token may not change the topic.
    pub seed: Option<u32>,
    /// How nodes share the shards: `solo`, `round-robin` or `etcd`.
    #[serde(default)]
    pub mode: String,
    /// Each.
    pub shards: Vec<ShardView>,
    /// Keys of the streams of shards that it had and has no more: nothing is appended to them, and what was may still
    /// be unread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retired_streams: Vec<String>,
    /// Absent: none is under way.
    pub resize: Option<Resize>,
    /// What another number would move, where that was asked.
    pub preview: Option<ResizePreview>,
}

/// What another number of shards would move.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResizePreview {
    /// Shards now.
    pub from: u32,
    /// Shards then.
    pub to: u32,
    /// Messages whose shard would be another, about.
    pub moves: u64,
    /// Messages a second that move at most.
    pub per_second_max: u64,
    /// So it takes at least so many seconds.
    pub seconds_min: f64,
}

/// What was put right of a topic.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Adopted {
    /// The topic.
    pub name: String,
    /// Whether its record was put back.
    pub restored: bool,
    /// How many shards it has.
    pub shard_count: u32,
    /// Shards that are lost and stay so.
    pub lost: Vec<u32>,
    /// Shards that were lost and are there again, empty.
    pub recreated: Vec<u32>,
}
