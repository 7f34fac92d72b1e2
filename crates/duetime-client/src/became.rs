//! What became of a message that is gone.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// What became of a message that is gone, as a topic with `remember` knows.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Became {
    /// `delivered`, `cancelled`, `cancelled_in_flight`, `dead`, `expired`, `cancelled_before` or `moved`.
    pub outcome: String,
    /// When it ended, milliseconds since the Unix epoch.
    #[serde(default)]
    pub at: i64,
    /// How often it was tried; absent where there was no message.
    pub attempts: Option<u8>,
    /// The due time it had, milliseconds since the Unix epoch, where that is known.
    pub due_at: Option<i64>,
    /// How many milliseconds after its due time it was delivered.
    pub late_by_ms: Option<u64>,
    /// The version that moved. Of `moved` only.
    pub version: Option<String>,
}
