//! What a node answers of a topic's sink. Fields that a newer node adds are ignored.

use serde::{Deserialize, Serialize};

use crate::pause::TopicPause;
use crate::recent::NodeAnswer;

/// Why messages of a topic are not delivered to its sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkIssue {
    /// `down`, or `refused`: the node cannot use it as it is configured.
    pub state: String,
    /// What was said last; absent where the token may not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when it is down, milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
    /// When it is tried next; absent while it is being tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<i64>,
}

/// The same, of the node that says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSinkIssue {
    /// The node: each finds out for itself.
    pub node: String,
    /// What it says.
    #[serde(flatten)]
    pub issue: SinkIssue,
}

/// A node that scans shards of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scanner {
    /// Its name.
    pub id: String,
    /// Where it listens.
    pub address: String,
    /// How many shards of the topic it scans; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<u32>,
}

/// A topic's sink as the answering node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkView {
    /// As the topic names it.
    pub sink: String,
    /// Its type.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Absent: nothing is wrong as far as this node knows; of all nodes the worst of their issues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue: Option<SinkIssue>,
    /// The same by node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issues: Vec<NodeSinkIssue>,
    /// Nothing is claimed for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Why, as far as that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<TopicPause>,
    /// Messages of the topic whose time has come.
    pub due: u64,
    /// How long all that takes once the sink accepts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_ms: Option<u64>,
    /// The node that answers.
    pub node: String,
    /// Of all nodes: which there are, and whether they have answered. Absent: it is one node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<NodeAnswer>>,
    /// Shards of the topic that it scans, or all nodes together.
    pub shards_scanned: u32,
    /// The others that scan shards of the topic, each with a view of its own.
    #[serde(default)]
    pub other_nodes: Vec<Scanner>,
}

/// What a try at once brought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// `up`, `was_up`, `down`, `nothing_due` or `in_progress`.
    pub outcome: String,
    /// How it is seen since.
    #[serde(flatten)]
    pub view: SinkView,
}

/// A time in which a node took the sink of a topic to be down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// The topic.
    pub topic: String,
    /// Its sink then.
    pub sink: String,
    /// Milliseconds since the Unix epoch.
    pub since: i64,
    /// Absent: it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
    /// How it ended: `accepted`, `nothing_due` or `dropped`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// What was said first.
    pub reason: String,
    /// What was said last, where that is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reason: Option<String>,
    /// How often it was tried meanwhile and was down still.
    #[serde(default)]
    pub probes: u64,
    /// The node that took it to be down, in an answer about several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// When a node took sinks to be down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outages {
    /// The node that answers.
    pub node: String,
    /// As that of [`Rates`](crate::Rates).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<NodeAnswer>>,
    /// The latest first.
    pub outages: Vec<Outage>,
}

/// Why a topic of a sink could not be paused or resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkTopicError {
    /// Stable word for programs.
    pub code: String,
    /// What is wrong and what to do, for people.
    pub detail: String,
}

/// What became of one topic of a sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkTopic {
    /// Its name.
    pub topic: String,
    /// `paused`, `resumed` or `left`; absent: it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Why it was left as it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<SinkTopicError>,
}

/// What became of the topics of a sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkTopics {
    /// The sink.
    pub sink: String,
    /// By name.
    pub topics: Vec<SinkTopic>,
    /// Topics of this sink that the token is not for.
    #[serde(default)]
    pub other_topics: usize,
    /// There are more to be changed: send the same request again.
    #[serde(default)]
    pub more: bool,
}
