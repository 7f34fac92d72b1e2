//! Up to when a topic is done, as a node answers it. Fields that a newer node adds are ignored.

use serde::{Deserialize, Serialize};

/// What keeps a watermark from being later.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeldBy {
    /// `due`, `in_flight`, `retrying`, `moving`, `shard_unreachable` or `resizing`.
    pub reason: String,
    /// The shard; absent for `resizing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<u32>,
    /// The message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its due time, milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<i64>,
    /// When its claim runs out, or its next attempt is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
}

/// Up to when a topic is done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Watermark {
    /// Everything that was due before this moment is done, milliseconds since the Unix epoch. It never goes back.
    pub watermark: i64,
    /// Whether it is the moment that was waited for, or later; absent where none was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<bool>,
    /// Absent: nothing; it is the present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<HeldBy>,
}
