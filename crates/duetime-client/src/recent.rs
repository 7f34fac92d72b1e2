//! What a node reports of the last minutes and of its callers. Fields that a newer node adds are ignored.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::sink_issue::NodeSinkIssue;

/// The caller's token.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Me {
    /// Its name; absent: the node asks for no token.
    pub name: Option<String>,
    /// `view`, `produce`, `consume`, `admin`.
    pub scopes: Vec<String>,
    /// On which topics; absent: on all.
    pub topics: Option<Vec<String>>,
    /// Which sinks it may give to topics, pause and look at; absent: all.
    pub sinks: Option<Vec<String>>,
    /// Most requests a second.
    pub requests_per_second: Option<f64>,
    /// Most messages enqueued a second.
    pub messages_per_second: Option<f64>,
    /// Most topics among those it is for.
    pub max_topics: Option<usize>,
    /// Most `max_messages` of a topic that it makes or changes.
    pub max_topic_messages: Option<u64>,
    /// Most `max_bytes` of such a topic.
    pub max_topic_bytes: Option<u64>,
    /// Most shards of such a topic.
    pub max_topic_shards: Option<u32>,
    /// The node that answers.
    #[serde(default)]
    pub node: String,
}

/// One step of the past.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RateStep {
    /// When it ended, milliseconds since the Unix epoch.
    pub at: i64,
    /// New messages, a second.
    pub scheduled: f64,
    /// Cancelled a second.
    pub cancelled: f64,
    /// Delivered a second.
    pub delivered: f64,
    /// Deliveries in it.
    #[serde(default)]
    pub deliveries: u64,
    /// Of these, later than a second.
    #[serde(default)]
    pub late: u64,
}

/// One topic at one node.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TopicRates {
    /// The topic.
    pub topic: String,
    /// Milliseconds that the rates and percentiles are of.
    pub over_ms: u64,
    /// New messages, a second.
    pub scheduled: f64,
    /// Cancelled a second.
    pub cancelled: f64,
    /// Delivered a second.
    pub delivered: f64,
    /// To be tried again, a second.
    pub retried: f64,
    /// Became dead letters, a second.
    pub dead: f64,
    /// The topic is beyond the 256 of which the node keeps lateness by topic: lateness and deliveries are those of all
    /// such topics together.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_rest: bool,
    /// Half of the deliveries were later.
    pub late_p50_ms: Option<f64>,
    /// One of a hundred was later.
    pub late_p99_ms: Option<f64>,
    /// Deliveries in the time that the percentiles are of.
    #[serde(default)]
    pub deliveries: u64,
    /// Of these, later than a second.
    #[serde(default)]
    pub late: u64,
    /// Deliveries since the node started.
    #[serde(default)]
    pub deliveries_total: u64,
    /// Of these, later than a second.
    #[serde(default)]
    pub late_total: u64,
    /// Messages a second that the node was able to deliver.
    pub capacity: Option<f64>,
    /// How late the last message of a herd of the coming hour will be; `None`: all will be in time, as far as that is known.
    pub herd_late_ms: Option<f64>,
    /// Step by step, the oldest first.
    #[serde(default)]
    pub steps: Vec<RateStep>,
    /// Why nothing is delivered to its sink, by the nodes that say so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sink_issues: Vec<NodeSinkIssue>,
}

/// Messages that a sink did not accept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NotAccepted {
    /// What was the matter.
    pub kind: String,
    /// Since the node started.
    pub count: u64,
    /// In the last minute.
    #[serde(default)]
    pub last_minute: u64,
}

/// One sink at one node.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SinkRates {
    /// Its name.
    pub sink: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Deliveries of a batch a second.
    pub calls: f64,
    /// Half of them took longer.
    pub call_p50_ms: Option<f64>,
    /// One of a hundred took longer.
    pub call_p99_ms: Option<f64>,
    /// By kind.
    #[serde(default)]
    pub refused: Vec<NotAccepted>,
}

/// A node, and whether its figures are in an answer about several.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAnswer {
    /// Its name.
    pub name: String,
    /// False: it has not answered, and its figures are missing.
    pub answered: bool,
    /// Why not, as the end of a sentence that begins with its name.
    pub reason: Option<String>,
}

/// Rates of the last minute.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rates {
    /// The node that answers.
    pub node: String,
    /// Of all nodes together: which there are, and whether they have answered. Absent: it is one node's.
    pub nodes: Option<Vec<NodeAnswer>>,
    /// By name.
    pub topics: Vec<TopicRates>,
    /// By name.
    #[serde(default)]
    pub sinks: Vec<SinkRates>,
}

/// One request that changed something, or tried to.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AuditLine {
    /// The node that has it, in a log of all nodes.
    pub node: Option<String>,
    /// When it came, RFC 3339.
    pub time: String,
    /// The token's name.
    #[serialize_always]
    pub who: Option<String>,
    /// Address and port of the connection.
    #[serialize_always]
    pub from: Option<String>,
    /// What was asked for, in a word of the reference; empty from a node of before.
    #[serde(default)]
    pub operation: String,
    /// `administration`, `messages` or `claims`; empty from a node of before.
    #[serde(default)]
    pub kind: String,
    /// Method and route.
    pub action: String,
    /// The topic it was about.
    pub topic: Option<String>,
    /// The message it was about.
    pub id: Option<String>,
    /// The sink, where it was about all topics of one.
    pub sink: Option<String>,
    /// Why, as whoever asked said.
    pub reason: Option<String>,
    /// Items it was about.
    pub count: u64,
    /// Items of them that were refused or failed.
    pub refused: u64,
    /// `done`, `refused`, `failed` or `unknown`.
    pub outcome: String,
    /// Of HTTP; 0: the client went away.
    pub status: u64,
    /// The trace that the client named in `traceparent`.
    pub trace_id: Option<String>,
}

impl AuditLine {
    /// What was asked for, in a word where the node has one.
    #[must_use]
    pub fn what(&self) -> &str {
        if self.operation.is_empty() { &self.action } else { &self.operation }
    }
}

/// Which entries of an audit log.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Of these kinds; empty: of all.
    pub kinds: Vec<String>,
    /// These operations; empty: all.
    pub operations: Vec<String>,
    /// About this topic.
    pub topic: Option<String>,
    /// Of all nodes, and not of the one that answers alone.
    pub all_nodes: bool,
}

/// The last entries of a node's audit log, the newest first.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AuditLog {
    /// The node that answers.
    pub node: String,
    /// As that of [`Rates`].
    pub nodes: Option<Vec<NodeAnswer>>,
    /// The newest first.
    pub entries: Vec<AuditLine>,
}
