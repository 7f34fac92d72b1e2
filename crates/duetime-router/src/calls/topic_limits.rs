//! The most messages and bytes of a topic: counted once a second where something is enqueued, and shared by
//! the nodes.
//!
//! Upstream: [`crate::Router`]. Downstream: the counts of the store. A node takes in, between two counts, at
//! most its share of what was left at the first of them; so what it knows is never less than what it may still
//! take, and one node alone never passes the limit. No script counts, and no call is made for a topic without
//! a limit.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::{Enqueue, ShardCounts};
use duetime_core::{Shard, StoreError, TopicName, TopicRecord};
use duetime_metrics::Event;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::calls::batch_queue::{Op as _, OpContext};
use crate::calls::ops::EnqueueOp;
use crate::error::RouteError;

/// How long a count is good for.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// A topic that seems full is counted again, if the last count is older than this.
const RECOUNT_AFTER: Duration = Duration::from_millis(100);
/// Topics that are kept in mind before those that nothing is enqueued to are forgotten.
const KEPT_MAX: usize = 1024;
/// Shards one call to the store counts.
const SHARDS_PER_CALL: usize = 1024;

/// What is left of a topic for this node.
#[derive(Debug, Default)]
struct Left {
    /// Of which life of the topic, and of which limits.
    of: Option<(u64, Option<u64>, Option<u64>)>,
    counted: Option<Instant>,
    messages: u64,
    bytes: u64,
    /// Let in and not answered yet: a count may have them or not.
    pending: (u64, u64),
}

#[derive(Debug, Default)]
struct Usage {
    left: Mutex<Left>,
    /// The lock of whoever counts it, so that all who wait share one count.
    counting: tokio::sync::Mutex<()>,
}

impl Left {
    fn is_of(&self, record: &TopicRecord) -> bool {
        self.of == Some(limits(record))
    }

    fn age(&self) -> Option<Duration> {
        self.counted.map(|at| at.elapsed())
    }

    /// Takes one message of so many bytes; why not.
    fn take(&mut self, record: &TopicRecord, weight: u64) -> Result<(), RouteError> {
        let full = if self.messages == 0 {
            record.config.max_messages.map(|most| ("max_messages", most))
        } else if self.bytes < weight {
            record.config.max_bytes.map(|most| ("max_bytes", most))
        } else {
            None
        };
        if let Some((limit, most)) = full {
            return Err(RouteError::TopicFull { topic: record.name.clone(), limit, most });
        }
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(weight);
        self.pending = (self.pending.0 + 1, self.pending.1 + weight);
        Ok(())
    }
}

fn limits(record: &TopicRecord) -> (u64, Option<u64>, Option<u64>) {
    (record.routing.life(), record.config.max_messages, record.config.max_bytes)
}

/// What of a request may go on.
#[derive(Debug, Default)]
pub(crate) struct TopicAdmission {
    /// Item by item, why it may not; empty: all may.
    pub refused: Vec<Option<RouteError>>,
    _pending: Option<PendingCount>,
}

/// Items that were let in, until they are answered.
#[derive(Debug)]
struct PendingCount {
    usage: Arc<Usage>,
    size: (u64, u64),
}

impl Drop for PendingCount {
    fn drop(&mut self) {
        let mut left = self.usage.left.lock();
        left.pending.0 -= self.size.0;
        left.pending.1 -= self.size.1;
    }
}

/// The most messages and bytes of a topic: counted once a second where something is enqueued, and shared by the
/// nodes.
#[derive(Debug, Default)]
pub(crate) struct TopicLimits(Mutex<HashMap<TopicName, Arc<Usage>>>);

impl TopicLimits {
    /// Lets in what the topic has space for. To be kept until that is answered.
    pub(crate) async fn admit(
        &self,
        context: &OpContext,
        nodes: u32,
        record: &TopicRecord,
        items: &[Enqueue],
    ) -> Result<TopicAdmission, StoreError> {
        if record.config.max_messages.is_none() && record.config.max_bytes.is_none() {
            return Ok(TopicAdmission::default());
        }
        let usage = self.usage_of(&record.name);
        let weights: Vec<u64> = items.iter().map(|item| EnqueueOp::weight(item) as u64).collect();
        let mut refused: Vec<Option<RouteError>> = items.iter().map(|_| None).collect();
        let mut pending = PendingCount { usage: usage.clone(), size: (0, 0) };
        let mut open: Vec<usize> = (0..items.len()).collect();
        for age in [COUNT_EVERY, RECOUNT_AFTER] {
            usage.count(context, nodes, record, age).await?;
            let mut left = usage.left.lock();
            open.retain(|at| {
                refused[*at] = left.take(record, weights[*at]).err();
                if refused[*at].is_none() {
                    pending.size = (pending.size.0 + 1, pending.size.1 + weights[*at]);
                }
                refused[*at].is_some()
            });
            if open.is_empty() {
                break;
            }
        }
        context.meters.topic(&record.name).count(Event::Refused, open.len() as u64);
        Ok(TopicAdmission { refused, _pending: Some(pending) })
    }

    fn usage_of(&self, topic: &TopicName) -> Arc<Usage> {
        let mut topics = self.0.lock();
        if topics.len() >= KEPT_MAX && !topics.contains_key(topic) {
            topics.retain(|_, usage| usage.left.lock().age().is_none_or(|age| age < COUNT_EVERY));
        }
        topics.entry(topic.clone()).or_default().clone()
    }
}

impl Usage {
    /// Counts what is left for this node, unless that was done less than `age` ago.
    async fn count(
        &self,
        context: &OpContext,
        nodes: u32,
        record: &TopicRecord,
        age: Duration,
    ) -> Result<(), StoreError> {
        let is_fresh = |left: &Left| left.is_of(record) && left.age().is_some_and(|old| old < age);
        if is_fresh(&self.left.lock()) {
            return Ok(());
        }
        let _alone = self.counting.lock().await;
        if is_fresh(&self.left.lock()) {
            return Ok(());
        }
        // What is on its way may not be in the count, nor what is let in meanwhile.
        let (before, waiting) = {
            let left = self.left.lock();
            ((left.messages, left.bytes), left.pending)
        };
        let began = Instant::now();
        let (messages, bytes) = held(context, record).await?;
        let share = |most: Option<u64>, held: u64| {
            most.map_or(u64::MAX / 2, |most| most.saturating_sub(held).div_ceil(u64::from(nodes.max(1))))
        };
        let mut left = self.left.lock();
        let taken = (before.0.saturating_sub(left.messages), before.1.saturating_sub(left.bytes));
        *left = Left {
            of: Some(limits(record)),
            counted: Some(began),
            messages: share(record.config.max_messages, messages).saturating_sub(taken.0 + waiting.0),
            bytes: share(record.config.max_bytes, bytes).saturating_sub(taken.1 + waiting.1),
            pending: left.pending,
        };
        Ok(())
    }
}

/// Messages in the topic, dead letters too, and the bytes of their bodies if there is a limit for these. Shards
/// whose server does not answer while others do are not in it.
async fn held(context: &OpContext, record: &TopicRecord) -> Result<(u64, u64), StoreError> {
    let shards: Vec<Shard> = record.routing.all(&record.name).collect();
    let (mut messages, mut bytes) = (0, 0);
    for some in shards.chunks(SHARDS_PER_CALL) {
        let counts = context.schedule.counts(some, context.clock.now()).await?;
        messages += counts.iter().flatten().map(ShardCounts::messages).sum::<u64>();
        if record.config.max_bytes.is_some() {
            bytes += context.messages.bytes(some).await?;
        }
    }
    Ok((messages, bytes))
}
