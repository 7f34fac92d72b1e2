//! By which rule a message comes again, as a node answers it.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// By which rule a message comes again.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepeatRule {
    /// So long after the one before, as `1h`.
    pub every: Option<String>,
    /// At these times.
    pub cron: Option<String>,
    /// By whose clocks `cron` goes.
    pub time_zone: Option<String>,
    /// None falls due after this, milliseconds since the Unix epoch.
    pub until: Option<i64>,
    /// How many there are still, this one among them.
    pub times: Option<u32>,
    /// `skip` or `once`: what becomes of times that passed.
    pub missed: String,
    /// When the one after this falls due if this one ends now; `None`: this is the last.
    pub next_at: Option<i64>,
}
