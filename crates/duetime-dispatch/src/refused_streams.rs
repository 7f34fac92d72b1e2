//! Shards of a topic whose stream takes nothing: their messages wait, and somebody has to know why.
//!
//! Upstream: `in_place` says what each step brought. Downstream: `sink_states`, which answers from it.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{error, info};

use duetime_core::TopicName;

use crate::config::STORE_BACKOFF_MAX;

/// A shard that was not refused again for so long is not tried any more: another node has it, or nothing of it is due.
const HOLDS_FOR: Duration = STORE_BACKOFF_MAX.saturating_mul(5);

/// Shards of a topic whose stream takes nothing, with what the store said last and when.
#[derive(Debug)]
pub(crate) struct RefusedStreams {
    topic: TopicName,
    shards: Mutex<BTreeMap<u32, (Instant, String)>>,
}

impl RefusedStreams {
    pub(crate) fn new(topic: TopicName) -> Self {
        Self { topic, shards: Mutex::default() }
    }

    /// The stream of a shard did not take what is due. The first one of a topic is worth a line.
    pub(crate) fn refused(&self, index: u32, why: &str) {
        let mut shards = self.shards.lock();
        let is_first = !shards.values().any(|(at, _)| at.elapsed() < HOLDS_FOR);
        shards.insert(index, (Instant::now(), why.to_owned()));
        if is_first {
            error!(topic = %self.topic, shard = index, reason = why, "a stream takes nothing, messages wait");
        }
    }

    /// The stream of a shard took what is due.
    pub(crate) fn accepted(&self, index: u32) {
        let mut shards = self.shards.lock();
        if !shards.is_empty() && shards.remove(&index).is_some() && shards.is_empty() {
            info!(topic = %self.topic, shard = index, "the streams of the topic take messages again");
        }
    }

    /// What is wrong with the first of them, and how many others there are.
    pub(crate) fn reason(&self) -> Option<String> {
        let shards = self.shards.lock();
        let mut refused = shards.values().filter(|(at, _)| at.elapsed() < HOLDS_FOR).map(|(_, why)| why);
        let first = refused.next()?;
        Some(match refused.count() {
            0 => first.clone(),
            others => format!("{first}; and so {others} more shards of the topic"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_takes_nothing_is_known_until_it_takes_something_or_is_tried_no_more() {
        let streams = RefusedStreams::new("orders".parse().unwrap());
        assert_eq!(streams.reason(), None);
        streams.refused(1, "stream b is a string");
        streams.refused(0, "stream a is a string");
        assert_eq!(streams.reason().unwrap(), "stream a is a string; and so 1 more shards of the topic");
        streams.accepted(0);
        streams.accepted(7);
        assert_eq!(streams.reason().unwrap(), "stream b is a string");
        tokio::time::sleep(HOLDS_FOR).await;
        assert_eq!(streams.reason(), None);
    }
}
