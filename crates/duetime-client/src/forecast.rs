//! What falls due when, as a node answers it. Fields that a newer node adds are ignored.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::answers::is_none;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// One bucket of a forecast.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bucket {
    /// Where it begins, milliseconds since the Unix epoch.
    pub from: i64,
    /// Where it ends.
    pub to: i64,
    /// Messages that fall due in it.
    pub count: u64,
    /// What waits and falls due in it is more than can be delivered in it; absent: that is not known.
    pub above_capacity: Option<bool>,
    /// How late its last message will be; absent: in time, as far as that is known.
    pub last_late_ms: Option<u64>,
}

/// The moment at which messages will be latest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Herd {
    /// Where it begins, milliseconds since the Unix epoch.
    pub from: i64,
    /// Where it ends.
    pub to: i64,
    /// Messages that fall due in it.
    pub count: u64,
    /// How late the last of them will be.
    pub last_late_ms: u64,
    /// The same as a sentence.
    pub summary: String,
}

/// How many messages fall due when.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Forecast {
    /// When it was counted, milliseconds since the Unix epoch.
    #[serde(default)]
    pub at: i64,
    /// Due already.
    #[serde(default)]
    pub due: u64,
    /// Up to this many messages of the buckets are overdue too: they were deferred because their sink is down.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deferred_max: u64,
    /// In order.
    pub buckets: Vec<Bucket>,
    /// Messages a second that can be delivered; absent: that is not known.
    pub capacity: Option<f64>,
    /// Absent: all will be in time, or the capacity is not known.
    pub herd: Option<Herd>,
    /// Shards that are not in the counts, because their server does not answer.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unreachable_shards: usize,
}
