//! The contract of what a node knows of its topics' sinks: whether they are down, and a try at once.
//!
//! Implemented by dispatch, asked by http. Every node that scans shards of a topic has a picture of its own: a
//! target that one node cannot reach may be well for another.

use std::time::Duration;

use async_trait::async_trait;

use crate::names::TopicName;
use crate::time::Timestamp;

/// What this node knows of a topic's sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkState {
    /// As the topic names it.
    pub name: String,
    /// The type as in the configuration; `None`: this node could not make it ready.
    pub kind: Option<&'static str>,
    /// Why this node could not make it ready: the topic's messages wait.
    pub refused: Option<String>,
    /// It is taken to be down, and claims are stopped.
    pub down: Option<SinkDown>,
}

/// That a sink is taken to be down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkDown {
    /// Since when, by this node's clock.
    pub since: Timestamp,
    /// What was said last. Never a credential.
    pub reason: String,
    /// When it is tried next, with the first message that is due then; `None`: it is being tried.
    pub next_try: Option<Timestamp>,
}

/// How a time ended in which a sink was taken to be down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutageEnd {
    /// The sink accepted again.
    Accepted,
    /// The topic was paused, changed or deleted, or the node ended its loops: nobody saw the sink accept.
    Dropped,
}

impl OutageEnd {
    /// As in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Dropped => "dropped",
        }
    }
}

/// A time in which a node took the sink of a topic to be down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkOutage {
    /// The topic.
    pub topic: TopicName,
    /// Its sink, as the topic named it then.
    pub sink: String,
    /// From when on, by this node's clock.
    pub since: Timestamp,
    /// Until when, and how it ended; `None`: it lasts.
    pub ended: Option<(Timestamp, OutageEnd)>,
    /// What was said first. Never a credential.
    pub reason: String,
    /// What was said last, where that is something else.
    pub last_reason: Option<String>,
    /// How often it was tried meanwhile and was down still.
    pub probes: u64,
}

/// What a try at once brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// It was not taken to be down.
    WasUp,
    /// It was down and accepts again.
    Up,
    /// It is still down.
    Down,
    /// No message could be tried: none was due, or the topic's rate limit let none go.
    NothingDue,
    /// The try had not ended when the time was up.
    UnderWay,
}

impl Tried {
    /// As in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WasUp => "was_up",
            Self::Up => "up",
            Self::Down => "down",
            Self::NothingDue => "nothing_due",
            Self::UnderWay => "under_way",
        }
    }
}

/// The contract of what a node knows of its topics' sinks: whether they are down, and a try at once.
#[async_trait]
pub trait SinkStates: Send + Sync + std::fmt::Debug + 'static {
    /// What this node knows of the sink of `topic`; `None`: consumers claim, or the node has no such topic yet.
    fn state(&self, topic: &TopicName) -> Option<SinkState>;

    /// When this node took sinks to be down, the latest first; a bounded number since it started.
    fn outages(&self) -> Vec<SinkOutage>;

    /// Ends the wait before the next try and waits at most `within` for what it brings; `None` as above.
    async fn try_now(&self, topic: &TopicName, within: Duration) -> Option<Tried>;
}
