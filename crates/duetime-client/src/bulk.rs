//! Bulk actions: planned, started, watched and stopped.

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_with::skip_serializing_none;

use crate::call::{Client, part};
use crate::error::ClientError;

/// What is to be done to which messages. Absent fields are left out.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize)]
pub struct BulkAsk {
    /// `redrive`, `purge`, `cancel`, `due_now` or `reschedule`.
    pub action: String,
    /// Live messages: `scheduled`, `due`, `in_flight` or `retrying`.
    pub state: Option<String>,
    /// Live messages: visible from this moment on, milliseconds since the Unix epoch.
    pub due_from: Option<i64>,
    /// Live messages: visible before this moment.
    pub due_to: Option<i64>,
    /// How their ids begin.
    pub prefix: Option<String>,
    /// Dead letters: their reason, as the groups have it.
    pub reason: Option<String>,
    /// The new due time of a `reschedule`.
    pub due_at: Option<i64>,
    /// Most messages a second.
    pub per_second: Option<u32>,
    /// Of a `cancel` or a `purge`: what it removes is kept, so that [`Client::undo_bulk`] can put it back, where the topic
    /// remembers for ten minutes or more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub undoable: bool,
}

/// What can be put back of what a plan removed, or what was.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BulkUndo {
    /// `impossible`, `keeping`, `possible`, `asked`, `running`, `done`, `over` or `lost`.
    pub state: String,
    /// Why it would be refused at present.
    pub why_not: Option<String>,
    /// The node that keeps the messages, once one has begun.
    pub node: Option<String>,
    /// Messages that it keeps, or kept until they were put back.
    pub kept: u64,
    /// Of these at most so many are due by now, or within the minute.
    pub due_at_once: u64,
    /// Until when it can be asked for, milliseconds since the Unix epoch.
    pub until: Option<i64>,
    /// There again, as they were.
    pub restored: u64,
    /// Left alone: something else happened to the id since, or the shard count was changed.
    pub left: u64,
    /// The store did not answer: there again or not.
    pub unknown: u64,
    /// The token that asked for it.
    pub by: Option<String>,
}

impl BulkUndo {
    /// Whether messages are put back, or will be in a moment.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        matches!(self.state.as_str(), "asked" | "running")
    }
}

/// What became of the messages of a plan.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct BulkCounts {
    /// The action took effect.
    pub done: u64,
    /// Somebody held a claim.
    pub in_flight: u64,
    /// Not there any more, or in another state by then.
    pub unchanged: u64,
    /// The store answered with an error.
    pub failed: u64,
    /// Of a page whose outcome was not written, as its node ended: those that were not met again.
    pub unrecorded: u64,
    /// In the page that is carried out at present.
    #[serde(default)]
    pub open: u64,
    /// All of these together; 0 from a node of before.
    #[serde(default)]
    pub total: u64,
}

impl BulkCounts {
    /// Messages that were not done and did not fail, or of which that is not known.
    #[must_use]
    pub fn others(&self) -> u64 {
        self.in_flight + self.unchanged + self.unrecorded + self.open
    }
}

/// A message that the action failed on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BulkFailure {
    /// Its id.
    pub id: String,
    /// Why.
    pub reason: String,
}

/// A bulk action.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BulkPlan {
    /// Its name.
    pub id: String,
    /// The topic.
    pub topic: String,
    /// What is done.
    pub action: String,
    /// `planned`, `running`, `stopping`, `stopped`, `done` or `failed`.
    pub state: String,
    /// At most so many a second.
    pub per_second: u32,
    /// Messages that matched when it was planned.
    pub expected: u64,
    /// Of dead letters: how many of these were redriven before.
    pub redriven_before: Option<u64>,
    /// True if `expected` counts all that matched: a count ends after two seconds, or 20,000 messages.
    pub count_complete: bool,
    /// The most messages that it may act on, as who started it agreed to.
    pub at_most: Option<u64>,
    /// Some of their ids.
    pub samples: Vec<String>,
    /// What became of them.
    pub counts: BulkCounts,
    /// The first that it failed on.
    pub failures: Vec<BulkFailure>,
    /// Why it does not get on, or failed.
    pub issue: Option<String>,
    /// The node that carries it out.
    pub node: Option<String>,
    /// The token that planned it.
    pub by: Option<String>,
    /// When it was planned, milliseconds since the Unix epoch.
    pub created_at: i64,
    /// Of a plan that is undoable.
    pub undo: Option<BulkUndo>,
}

impl BulkPlan {
    /// Whether nothing happens any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state.as_str(), "stopped" | "done" | "failed")
    }
}

/// What who starts a plan agrees to.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct BulkStart {
    /// The most messages that it may act on; a plan that was never started wants it.
    pub at_most: Option<u64>,
    /// At most so many a second; as planned if absent.
    pub per_second: Option<u32>,
}

#[derive(Deserialize)]
struct Plans {
    plans: Vec<BulkPlan>,
}

fn path(topic: &str, rest: &str) -> String {
    format!("/v1/topics/{}/plans{rest}", part(topic))
}

impl Client {
    /// Counts what matches, and keeps the plan.
    pub async fn plan_bulk(&self, topic: &str, ask: &BulkAsk) -> Result<BulkPlan, ClientError> {
        self.call(self.request(Method::POST, &path(topic, ""))?.timeout(self.answer_max).json(ask)).await
    }

    /// The plans of a topic, the newest first.
    pub async fn bulk_plans(&self, topic: &str) -> Result<Vec<BulkPlan>, ClientError> {
        Ok(self.get::<Plans>(&path(topic, "")).await?.plans)
    }

    /// One plan.
    pub async fn bulk_plan(&self, topic: &str, id: &str) -> Result<BulkPlan, ClientError> {
        self.get(&path(topic, &format!("/{}", part(id)))).await
    }

    /// Starts a plan, or goes on with one that was stopped.
    pub async fn start_bulk(&self, topic: &str, id: &str, how: BulkStart) -> Result<BulkPlan, ClientError> {
        self.send_json(Method::POST, &path(topic, &format!("/{}/start", part(id))), &how).await
    }

    /// Stops a plan.
    pub async fn stop_bulk(&self, topic: &str, id: &str) -> Result<BulkPlan, ClientError> {
        self.send_json(Method::POST, &path(topic, &format!("/{}/stop", part(id))), &json!({})).await
    }

    /// Puts back what a plan removed that was undoable, where nothing else happened to it. The node that keeps it does it, so
    /// look at the plan for how far it is.
    pub async fn undo_bulk(&self, topic: &str, id: &str) -> Result<BulkPlan, ClientError> {
        self.send_json(Method::POST, &path(topic, &format!("/{}/undo", part(id))), &json!({})).await
    }

    /// Forgets a plan that does not run.
    pub async fn forget_bulk(&self, topic: &str, id: &str) -> Result<BulkPlan, ClientError> {
        let path = path(topic, &format!("/{}", part(id)));
        self.call(self.request(Method::DELETE, &path)?.timeout(self.answer_max)).await
    }
}
