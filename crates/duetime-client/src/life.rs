//! What a node remembers of a message's past. Fields that a newer node adds are ignored.

use serde::{Deserialize, Serialize};

use crate::call::{Client, part};
use crate::error::ClientError;
use crate::recent::AuditLine;

/// A hand-over that has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PastHandOver {
    /// When, milliseconds since the Unix epoch.
    pub at: i64,
    /// From 1.
    pub attempt: u8,
    /// `accepted`, `claimed` or `failed`.
    pub outcome: String,
    /// What the sink said, of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// It costs no attempt.
    #[serde(default)]
    pub free: bool,
    /// How late the message was.
    pub late_ms: u64,
    /// How long the sink took.
    pub took_ms: u64,
    /// As its target was given it.
    pub delivery_id: String,
    /// The trace of this attempt, if it was recorded.
    pub trace_id: String,
    /// The token that claimed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// An ack, nack or extension by a consumer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PastSettlement {
    /// When, milliseconds since the Unix epoch.
    pub at: i64,
    /// From 1; absent: the message was removed as it was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u8>,
    /// `ack`, `nack`, `dead` or `extend`.
    pub action: String,
    /// `ok`, `expired` or `gone`.
    pub outcome: String,
    /// What the consumer said, of a nack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Until the next attempt, of a nack that named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// When others may have it, of an extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<i64>,
    /// The token that asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// What is known of a message's past.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Life {
    /// The message.
    pub id: String,
    /// The node that remembers.
    pub node: String,
    /// Where the message is; absent: it is not there any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The node that scans its shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The oldest first.
    pub hand_overs: Vec<PastHandOver>,
    /// What consumers did with receipts of it, the oldest first.
    #[serde(default)]
    pub settlements: Vec<PastSettlement>,
    /// Who changed it, the newest first.
    #[serde(default)]
    pub changes: Vec<AuditLine>,
    /// Hand-overs up to then may be missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgotten_until: Option<i64>,
    /// The trace that the message came with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// What nobody knows, in words.
    #[serde(default)]
    pub not_known: Vec<String>,
}

impl Client {
    /// What the node remembers of a message's past, also when it is not there any more.
    ///
    /// # Errors
    ///
    /// The node refuses with the code `unknown_message` when it knows nothing of it.
    pub async fn life(&self, topic: &str, id: &str) -> Result<Life, ClientError> {
        self.get(&format!("/v1/topics/{}/messages/{}/life", part(topic), part(id))).await
    }
}
