//! What this node knows of its topics' sinks: for answers, for the log and for a try at once.
//!
//! Upstream: `engine` says which topics run on which sink. Downstream: the breakers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::{SinkOutage, SinkState, SinkStates, TopicName, Tried};
use parking_lot::RwLock;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::breaker::Breaker;
use crate::outages::Outages;

/// So often the time that breakers are open is counted.
const TICK: Duration = Duration::from_secs(1);

/// The sink of one topic as this node runs it.
#[derive(Clone, Debug)]
pub(crate) struct BoundSink {
    /// As the topic names it.
    pub(crate) name: String,
    /// Its type and its breaker, or why it could not be made ready. Without a breaker it hands over in the store.
    pub(crate) bound: Result<(&'static str, Option<Arc<Breaker>>), String>,
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
        if let Some(BoundSink { bound: Ok((_, Some(breaker))), .. }) = self.bound.read().get(topic) {
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
                if let Ok((_, Some(breaker))) = &sink.bound {
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
            Ok((kind, breaker)) => {
                let down = breaker.and_then(|breaker| breaker.down());
                SinkState { name, kind: Some(kind), refused: None, down }
            }
            Err(reason) => SinkState { name, kind: None, refused: Some(reason), down: None },
        })
    }

    fn outages(&self) -> Vec<SinkOutage> {
        self.outages.latest()
    }

    async fn try_now(&self, topic: &TopicName, within: Duration) -> Option<Tried> {
        Some(match self.of(topic)?.bound {
            Ok((_, Some(breaker))) => breaker.try_now(within).await,
            // Nothing stands between the topic and the store.
            Ok((_, None)) => Tried::WasUp,
            Err(_) => Tried::NothingDue,
        })
    }
}
