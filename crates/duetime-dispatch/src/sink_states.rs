//! What this node knows of its topics' sinks: for answers, for the log and for a try at once.
//!
//! Upstream: `engine` says which topics run on which sink. Downstream: the breakers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::{ProbeOutcome, SinkIssue, SinkOutage, SinkState, SinkStates, TopicName};
use parking_lot::RwLock;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::breaker::Breaker;
use crate::outages::Outages;
use crate::refused_streams::RefusedStreams;

/// So often the time that breakers are open is counted.
const TICK: Duration = Duration::from_secs(1);

/// The sink of one topic as this node runs it.
#[derive(Clone, Debug)]
pub(crate) struct BoundSink {
    /// As the topic names it.
    pub(crate) name: String,
    /// Its type and what it delivers to, or why it could not be made ready.
    pub(crate) bound: Result<(&'static str, BoundTo), String>,
}

/// What a sink delivers to, and what is known of it.
#[derive(Clone, Debug)]
pub(crate) enum BoundTo {
    /// A target, with its breaker.
    Target(Arc<Breaker>),
    /// Streams in the store.
    Streams(Arc<RefusedStreams>),
}

/// What this node knows of its topics' sinks: for answers, for the log and for a try at once.
#[derive(Debug, Default)]
pub(crate) struct EngineSinks {
    bound: RwLock<HashMap<TopicName, BoundSink>>,
    /// Outages, which the breakers report.
    pub(crate) outages: Arc<Outages>,
}

impl EngineSinks {
    /// `topic` runs on `sink` from now on; `None`: it has none, or is gone.
    pub(crate) fn set(&self, topic: &TopicName, sink: Option<BoundSink>) {
        let mut sinks = self.bound.write();
        match sink {
            Some(sink) => drop(sinks.insert(topic.clone(), sink)),
            None => drop(sinks.remove(topic)),
        }
    }

    /// A survey that began at `surveyed` found nothing of `topic` on this node that waits for its sink.
    pub(crate) fn nothing_waits(&self, topic: &TopicName, surveyed: Instant) {
        if let Some(BoundSink { bound: Ok((_, BoundTo::Target(breaker))), .. }) = self.bound.read().get(topic) {
            breaker.nothing_waits(surveyed);
        }
    }

    fn of(&self, topic: &TopicName) -> Option<BoundSink> {
        self.bound.read().get(topic).cloned()
    }

    /// Keeps the counters and the log up to date until the stop.
    pub(crate) async fn watch(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            for sink in self.bound.read().values() {
                if let Ok((_, BoundTo::Target(breaker))) = &sink.bound {
                    breaker.tick();
                }
            }
        }
    }
}

#[async_trait]
impl SinkStates for EngineSinks {
    fn state(&self, topic: &TopicName) -> Option<SinkState> {
        let BoundSink { name, bound } = self.of(topic)?;
        Some(match bound {
            Ok((kind, BoundTo::Target(breaker))) => {
                SinkState { name, kind: Some(kind), refused: None, down: breaker.down() }
            }
            Ok((kind, BoundTo::Streams(streams))) => {
                SinkState { name, kind: Some(kind), refused: streams.reason(), down: None }
            }
            Err(reason) => SinkState { name, kind: None, refused: Some(reason), down: None },
        })
    }

    fn issues(&self) -> Vec<SinkIssue> {
        let bound = self.bound.read();
        let mut issues = Vec::new();
        // One sentence for each sink, however many topics wait for it.
        let mut waiting: BTreeMap<&str, (usize, String)> = BTreeMap::new();
        for (topic, sink) in &*bound {
            let why = match &sink.bound {
                Ok((_, BoundTo::Streams(streams))) => {
                    let detail = streams.reason().map(|reason| format!("topic {:?}: {reason}", topic.as_str()));
                    issues.extend(detail.map(|detail| SinkIssue { sink: sink.name.clone(), detail }));
                    continue;
                }
                Ok((_, BoundTo::Target(breaker))) => breaker.down().map(|down| down.reason),
                Err(reason) => Some(reason.clone()),
            };
            if let Some(why) = why {
                waiting.entry(&sink.name).or_insert((0, why)).0 += 1;
            }
        }
        let said = |(name, (topics, why)): (&str, (usize, String))| {
            let detail = format!("sink {name:?} takes nothing, {topics} of its topics wait: {why}");
            SinkIssue { sink: name.to_owned(), detail }
        };
        issues.extend(waiting.into_iter().map(said));
        issues.sort_unstable_by(|a, b| a.detail.cmp(&b.detail));
        issues
    }

    fn outages(&self) -> Vec<SinkOutage> {
        self.outages.latest()
    }

    async fn probe_now(&self, topic: &TopicName, within: Duration) -> Option<ProbeOutcome> {
        Some(match self.of(topic)?.bound {
            Ok((_, BoundTo::Target(breaker))) => breaker.probe_now(within).await,
            // Nothing stands between the topic and the store, which is tried all the time.
            Ok((_, BoundTo::Streams(streams))) if streams.reason().is_some() => ProbeOutcome::Down,
            Ok((_, BoundTo::Streams(_))) => ProbeOutcome::WasUp,
            Err(_) => ProbeOutcome::NothingDue,
        })
    }
}
