//! Why nothing is delivered to the sink of a topic, as nodes say it.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Why messages of a topic are not delivered to its sink.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkIssue {
    /// `down`, or `refused`: the node cannot use it as it is configured.
    pub state: String,
    /// What was said last; absent where the token may not see it.
    pub reason: Option<String>,
    /// Since when it is down, milliseconds since the Unix epoch.
    pub since: Option<i64>,
    /// When it is tried next; absent while it is being tried.
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
