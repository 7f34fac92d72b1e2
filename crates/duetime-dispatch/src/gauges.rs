//! Sets the gauges of scheduled, due, in flight and dead messages from surveys of the owned shards.
//!
//! Each node reports its own shards: the sum over the nodes is the whole.

use std::collections::HashMap;
use std::time::Duration;

use duetime_core::store::ShardCounts;
use duetime_core::{Shard, Timestamp, TopicName};
use duetime_metrics::{Meters, ShardBacklog};
use tokio::time::Instant;

/// This node has no shard of the topic, so it has nothing to report.
pub(crate) fn clear(all: &Meters, topic: &TopicName) {
    all.shard_backlogs(topic, Vec::new());
    let meters = all.topic(topic);
    for gauge in [&meters.scheduled, &meters.due, &meters.in_flight, &meters.dead] {
        gauge.set(0);
    }
    meters.oldest_due_age.set(0.0);
}

/// When the next survey is due.
#[derive(Debug)]
pub(crate) struct Gauges {
    every: Duration,
    next: Instant,
}

impl Gauges {
    pub(crate) fn new(every: Duration) -> Self {
        Self { every, next: Instant::now() }
    }

    /// When it is time for a survey.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// A survey was taken.
    pub(crate) fn taken(&mut self) {
        self.next = Instant::now() + self.every;
    }

    /// Sets the gauges of every topic that was surveyed.
    pub(crate) fn set(&self, meters: &Meters, shards: &[Shard], surveys: &[ShardCounts], now: Timestamp) {
        let mut sums: HashMap<&TopicName, ShardCounts> = HashMap::new();
        let mut backlogs: HashMap<&TopicName, Vec<ShardBacklog>> = HashMap::new();
        for (shard, survey) in shards.iter().zip(surveys) {
            let oldest_age_s = survey.head.map_or(0.0, |head| now.since(head).as_secs_f64());
            let backlog = ShardBacklog { index: shard.index, due: survey.due, oldest_age_s };
            backlogs.entry(&shard.topic).or_default().push(backlog);
            let sum = sums.entry(&shard.topic).or_default();
            sum.scheduled += survey.scheduled;
            sum.due += survey.due;
            sum.in_flight += survey.in_flight;
            sum.dead += survey.dead;
            sum.head = [sum.head, survey.head].into_iter().flatten().min();
        }
        let gauge = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        for (topic, backlog) in backlogs {
            meters.shard_backlogs(topic, backlog);
        }
        for (topic, sum) in sums {
            let meters = meters.topic(topic);
            meters.scheduled.set(gauge(sum.scheduled));
            meters.due.set(gauge(sum.due));
            meters.in_flight.set(gauge(sum.in_flight));
            meters.dead.set(gauge(sum.dead));
            meters.oldest_due_age.set(sum.head.map_or(0.0, |head| now.since(head).as_secs_f64()));
        }
    }
}
