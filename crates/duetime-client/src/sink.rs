//! What a node answers of a topic's sink. Fields that a newer node adds are ignored.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::pause::TopicPause;
use crate::recent::NodeAnswer;
use crate::sink_issue::{NodeSinkIssue, SinkIssue};

/// A node that scans shards of a topic.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scanner {
    /// Its name.
    pub id: String,
    /// Where it listens.
    pub address: String,
    /// How many shards of the topic it scans; absent where that is not known.
    pub shards: Option<u32>,
}

/// A topic's sink as the answering node sees it.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkView {
    /// As the topic names it.
    pub sink: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Absent: nothing is wrong as far as this node knows; of all nodes the worst of their issues.
    pub issue: Option<SinkIssue>,
    /// The same by node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issues: Vec<NodeSinkIssue>,
    /// Nothing is claimed for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Why, as far as that is known.
    pub pause: Option<TopicPause>,
    /// Messages of the topic whose time has come.
    pub due: u64,
    /// How long all that takes once the sink accepts.
    pub catch_up_ms: Option<u64>,
    /// The node that answers.
    pub node: String,
    /// Of all nodes: which there are, and whether they have answered. Absent: it is one node's.
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
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// The topic.
    pub topic: String,
    /// Its sink then.
    pub sink: String,
    /// Milliseconds since the Unix epoch.
    pub since: i64,
    /// Absent: it lasts.
    pub until: Option<i64>,
    /// How it ended: `accepted`, `nothing_due` or `dropped`.
    pub end: Option<String>,
    /// What was said first.
    pub reason: String,
    /// What was said last, where that is something else.
    pub last_reason: Option<String>,
    /// How often it was tried meanwhile and was down still.
    #[serde(default)]
    pub probes: u64,
    /// The node that took it to be down, in an answer about several.
    pub node: Option<String>,
}

/// When a node took sinks to be down.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outages {
    /// The node that answers.
    pub node: String,
    /// As that of [`Rates`](crate::Rates).
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
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkTopic {
    /// Its name.
    pub topic: String,
    /// `paused`, `resumed` or `left`; absent: it failed.
    pub outcome: Option<String>,
    /// Why it was left as it was.
    pub detail: Option<String>,
    /// Why it failed.
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
