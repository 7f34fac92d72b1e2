//! Messages found by their id alone.

use serde::{Deserialize, Serialize};

use crate::call::{Client, value};
use crate::error::ClientError;

/// A message of the id in one topic.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Found {
    /// The topic it is in.
    pub topic: String,
    /// The shard it is in.
    pub shard: u32,
    /// `scheduled`, `in_flight` or `dead`.
    pub state: String,
    /// Its due time, milliseconds since the Unix epoch.
    pub due_at: i64,
    /// When it may be claimed (again); of a dead letter, when it died.
    pub visible_at: i64,
    /// How often it was claimed.
    pub attempts: u8,
}

/// A topic that could not be looked at.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NotLookedAt {
    /// Its name.
    pub topic: String,
    /// As that of a problem.
    pub code: String,
    /// Why, for people.
    pub detail: String,
}

/// One page of topics, looked through.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FoundPage {
    /// By topic.
    pub messages: Vec<Found>,
    /// Topics that did not answer.
    pub failed: Vec<NotLookedAt>,
    /// Topics that this page asked.
    pub looked_at: usize,
    /// Topics that the token is for.
    pub topics: usize,
    /// Names the next page, also where this one is empty; absent: this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Client {
    /// Messages with exactly this id in the topics of one page, from `cursor` (the `next` of the page before) on.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn find(&self, id: &str, cursor: Option<&str>) -> Result<FoundPage, ClientError> {
        let cursor = cursor.map(|cursor| format!("&cursor={}", value(cursor))).unwrap_or_default();
        self.get(&format!("/v1/find?id={}{cursor}", value(id))).await
    }
}
