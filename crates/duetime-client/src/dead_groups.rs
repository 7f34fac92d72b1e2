//! Dead letters by reason, as a node answers them.

use serde::{Deserialize, Serialize};

/// Dead letters of one reason.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeadGroup {
    /// The reason without numbers and names.
    pub reason: String,
    /// One of them as it is.
    pub example: String,
    /// How many were read.
    pub count: u64,
    /// How many of these were redriven before.
    #[serde(default)]
    pub redriven_before: u64,
    /// When the first of them died, milliseconds since the Unix epoch.
    pub first: i64,
    /// When the last of them died.
    pub last: i64,
    /// Some of their ids.
    pub ids: Vec<String>,
}

/// Dead letters by reason.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeadGroups {
    /// The largest first.
    pub groups: Vec<DeadGroup>,
    /// Dead letters that were read.
    pub scanned: u64,
    /// These were all there are.
    pub whole: bool,
}
