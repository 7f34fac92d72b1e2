//! Live messages, listed by state, time and beginning of their id.

use serde::{Deserialize, Serialize};

use crate::call::{Client, part, value};
use crate::error::ClientError;

/// Which messages are listed.
#[derive(Clone, Debug, Default)]
pub struct ListFilter {
    /// `scheduled`, `due`, `in_flight` or `retrying`; `None`: of any state.
    pub state: Option<String>,
    /// Visible from this moment on, milliseconds since the Unix epoch.
    pub due_from: Option<i64>,
    /// Visible before this moment.
    pub due_to: Option<i64>,
    /// How their ids begin.
    pub prefix: Option<String>,
}

/// One message of a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listed {
    /// Its id.
    pub id: String,
    /// The shard it is in.
    pub shard: u32,
    /// `scheduled`, `due`, `in_flight` or `retrying`.
    pub state: String,
    /// When it may be claimed next, milliseconds since the Unix epoch; in flight, when its claim ends.
    pub visible_at: i64,
    /// How often it was claimed.
    pub attempts: u8,
}

/// One page of a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListPage {
    /// Shard by shard, by time in each.
    pub messages: Vec<Listed>,
    /// Messages that were looked at.
    pub looked_at: u64,
    /// Shards that were looked through to their end, by this page and those before it.
    pub shards_done: u32,
    /// Shards there are.
    pub shards: u32,
    /// The shard count changes: some may be missing, or come twice.
    pub changing: bool,
    /// Names the next page, also where this one is empty; absent: this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Client {
    /// One page of live messages without their payloads, from `cursor` (the `next` of the page before) on.
    ///
    /// # Errors
    ///
    /// See [`ClientError`].
    pub async fn list(
        &self,
        topic: &str,
        filter: &ListFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<ListPage, ClientError> {
        let mut path = format!("/v1/topics/{}/messages?limit={limit}", part(topic));
        let time = |at: Option<i64>| at.map(|at| at.to_string());
        let given = [
            ("state", filter.state.clone()),
            ("due_from", time(filter.due_from)),
            ("due_to", time(filter.due_to)),
            ("prefix", filter.prefix.clone()),
            ("cursor", cursor.map(str::to_owned)),
        ];
        for (name, text) in given {
            if let Some(text) = text {
                path += &format!("&{name}={}", value(&text));
            }
        }
        self.get(&path).await
    }
}
