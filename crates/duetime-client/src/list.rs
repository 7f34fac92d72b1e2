//! Live messages, listed by state, time and beginning of their id, and messages found by their id in all topics.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::call::{Client, part, value};
use crate::error::ClientError;
use crate::message_lines::MessageLines;

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
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListPage {
    /// Shard by shard, by time in each.
    pub messages: Vec<Listed>,
    /// Messages that were read, whether or not they match.
    pub scanned: u64,
    /// Shards that were read to their end, by this page and those before it.
    pub shards_done: u32,
    /// Shards there are.
    pub shards: u32,
    /// The shard count changes: some may be missing, or come twice.
    pub changing: bool,
    /// Names the next page, also where this one is empty; absent: this was the last.
    pub next: Option<String>,
}

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

/// A topic whose messages could not be read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindFailure {
    /// Its name.
    pub topic: String,
    /// As that of a problem.
    pub code: String,
    /// Why, for people.
    pub detail: String,
}

/// One page of topics that were searched.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FoundPage {
    /// By topic.
    pub messages: Vec<Found>,
    /// Topics that did not answer.
    pub failed: Vec<FindFailure>,
    /// Topics that this page asked.
    pub scanned: usize,
    /// Topics that the token is for.
    pub topics: usize,
    /// Names the next page, also where this one is empty; absent: this was the last.
    pub next: Option<String>,
}

impl Client {
    /// One page of live messages without their payloads, from `cursor` (the `next` of the page before) on.
    pub async fn list(
        &self,
        topic: &str,
        filter: &ListFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<ListPage, ClientError> {
        self.get(&path(topic, filter, cursor, limit)).await
    }

    /// The same with payloads and headers, as lines of JSON.
    pub async fn list_lines(
        &self,
        topic: &str,
        filter: &ListFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<MessageLines, ClientError> {
        self.lines(&path(topic, filter, cursor, limit)).await
    }

    /// Messages with exactly this id in the topics of one page, from `cursor` (the `next` of the page before) on.
    pub async fn find(&self, id: &str, cursor: Option<&str>) -> Result<FoundPage, ClientError> {
        let cursor = cursor.map(|cursor| format!("&cursor={}", value(cursor))).unwrap_or_default();
        self.get(&format!("/v1/find?id={}{cursor}", value(id))).await
    }
}

fn path(topic: &str, filter: &ListFilter, cursor: Option<&str>, limit: usize) -> String {
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
    path
}
