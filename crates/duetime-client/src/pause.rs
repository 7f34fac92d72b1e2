//! What a node answers of a pause. Fields that a newer node adds are ignored.

use serde::{Deserialize, Serialize};

/// Why a topic is paused. What is absent was not said, or is not for the token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicPause {
    /// As it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the pause began, milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
    /// The token of whoever paused it, or gave the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The sink through which it was paused; absent: by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<String>,
}
