//! What a node answers of a pause. Fields that a newer node adds are ignored.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Why a topic is paused. What is absent was not said, or is not for the token.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicPause {
    /// As it was given.
    pub reason: Option<String>,
    /// When the pause began, milliseconds since the Unix epoch.
    pub since: Option<i64>,
    /// The token of whoever paused it, or gave the reason.
    pub by: Option<String>,
    /// The sink through which it was paused; absent: by itself.
    pub sink: Option<String>,
}
