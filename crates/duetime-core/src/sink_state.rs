//! The contract of what a node knows of its topics' sinks: whether they are down, and a try at once.
//!
//! Implemented by dispatch, asked by http. Every node that scans shards of a topic has a picture of its own: a
//! target that one node cannot reach may be well for another.

use std::time::Duration;

use async_trait::async_trait;

use crate::names::TopicName;
use crate::store::ShardCounts;
use crate::time::Timestamp;

/// What this node knows of a topic's sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkState {
    /// As the topic names it.
    pub name: String,
    /// The type as in the configuration; `None`: this node could not make it ready.
    pub kind: Option<&'static str>,
    /// Why this node could not make it ready, or why streams in the store take nothing: messages of the topic wait.
    pub refused: Option<String>,
    /// It is taken to be down, and claims are stopped.
    pub down: Option<SinkDown>,
}

/// That a sink is taken to be down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkDown {
    /// Since when, by this node's clock.
    pub since: Timestamp,
    /// Latest time to which messages were deferred during the outage.
    pub deferred_until: Timestamp,
    /// What was said last. Never a credential.
    pub reason: String,
    /// When it is tried next, with the first message that is due then; `None`: it is being tried.
    pub next_try: Option<Timestamp>,
}

impl SinkDown {
    /// When the oldest message that waits fell due, as far as the counts of the topic say it, or of what a node scans
    /// of it; `down`: its sink is taken to be down. What such a sink gave back is deferred, visible again for each try, and
    /// in flight while it is tried: so it counts from when that sink was taken to be down, and something of what waits
    /// is due for as long at least.
    #[must_use]
    pub fn oldest_due(down: Option<&Self>, counts: &ShardCounts) -> Option<Timestamp> {
        let head = counts.head?;
        let Some(Self { since, deferred_until, .. }) = down else { return (counts.due > 0).then_some(head) };
        let waits = counts.due > 0 || counts.in_flight > 0 || head <= *deferred_until;
        waits.then(|| head.min(*since))
    }
}

/// How a time ended in which a sink was taken to be down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutageEnd {
    /// The sink accepted again.
    Accepted,
    /// Nothing waited for it any more on this node, because another node delivered it or it was cancelled: nobody here
    /// saw the sink accept, and it is tried with what is due next.
    NothingDue,
    /// The topic was paused, changed or deleted, or the node ended its loops: nobody saw the sink accept.
    Dropped,
}

impl OutageEnd {
    /// As in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::NothingDue => "nothing_due",
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
    /// Failed probes during the outage.
    pub probes: u64,
}

/// That a sink takes nothing at this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkIssue {
    /// Its name.
    pub sink: String,
    /// A sentence with the reason. Never a credential.
    pub detail: String,
}

/// The outcome of an immediate probe of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The sink was not taken to be down.
    WasUp,
    /// The sink was down and accepts again.
    Up,
    /// The sink is still down.
    Down,
    /// No message could be tried: none was due, or the topic's rate limit let none go.
    NothingDue,
    /// The probe had not ended within the time.
    InProgress,
}

impl ProbeOutcome {
    /// As in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WasUp => "was_up",
            Self::Up => "up",
            Self::Down => "down",
            Self::NothingDue => "nothing_due",
            Self::InProgress => "in_progress",
        }
    }
}

/// The contract of what a node knows of its topics' sinks: whether they are down, and a try at once.
#[async_trait]
pub trait SinkStates: Send + Sync + std::fmt::Debug + 'static {
    /// What this node knows of the sink of `topic`; `None`: consumers claim, or the node has no such topic yet.
    fn state(&self, topic: &TopicName) -> Option<SinkState>;

    /// One for each sink that takes nothing, and for each topic whose streams in the store take nothing.
    fn issues(&self) -> Vec<SinkIssue>;

    /// When this node took sinks to be down, the latest first; a bounded number since it started.
    fn outages(&self) -> Vec<SinkOutage>;

    /// Probes the sink at once and waits at most `within` for the outcome; `None` as above.
    async fn probe_now(&self, topic: &TopicName, within: Duration) -> Option<ProbeOutcome>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_a_sink_that_is_down_is_as_old_as_its_outage_whatever_the_last_try_made_of_it() {
        let at = Timestamp::from_millis;
        let counts = |due, in_flight, head| ShardCounts {
            scheduled: 1,
            due,
            in_flight,
            head: Some(at(head)),
            ..ShardCounts::default()
        };
        let down = |deferred: i64| {
            let (since, deferred_until) = (at(1_000), at(deferred));
            Some(SinkDown { since, deferred_until, reason: String::new(), next_try: None })
        };
        let oldest =
            |down: Option<SinkDown>, counts| SinkDown::oldest_due(down.as_ref(), &counts).map(Timestamp::as_millis);
        assert_eq!(oldest(None, counts(1, 0, 9_000)), Some(9_000));
        assert_eq!(oldest(None, counts(0, 1, 9_000)), None, "a claim that lasts");
        assert_eq!(oldest(down(1_000), counts(1, 0, 9_000)), Some(1_000), "visible anew since the last try");
        assert_eq!(oldest(down(1_000), counts(1, 0, 500)), Some(500), "it fell due before");
        assert_eq!(oldest(down(9_500), counts(0, 0, 9_500)), Some(1_000), "it is deferred");
        assert_eq!(oldest(down(1_000), counts(0, 1, 40_000)), Some(1_000), "it is being tried");
        assert_eq!(oldest(down(9_500), counts(0, 0, 60_000)), None, "nothing waits any more");
        assert_eq!(oldest(down(9_500), ShardCounts::default()), None);
    }
}
