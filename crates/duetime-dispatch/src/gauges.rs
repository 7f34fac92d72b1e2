//! Sets the gauges of scheduled, due, in flight and dead messages from surveys of the owned shards.
//!
//! Each node reports its own shards: the sum over the nodes is the whole. How long what is due has waited depends on
//! the breakers too, for what a sink that is down gave back is visible anew.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::ShardCounts;
use duetime_core::{Shard, SinkDown, SinkStates as _, Timestamp, TopicName};
use duetime_metrics::{Meters, ShardBacklog};
use tokio::time::Instant;

use crate::sink_states::EngineSinks;

/// This node has no shard of the topic, so it has nothing to report.
pub(crate) fn clear(all: &Meters, topic: &TopicName) {
    all.shard_backlogs(topic, Vec::new());
    let meters = all.topic(topic);
    for gauge in [&meters.scheduled, &meters.due, &meters.in_flight, &meters.dead] {
        gauge.set(0);
    }
    meters.oldest_due_age.set(0.0);
}

/// When the next survey is due, and what is known of the sinks.
#[derive(Debug)]
pub(crate) struct Gauges {
    every: Duration,
    next: Instant,
    sinks: Arc<EngineSinks>,
}

impl Gauges {
    pub(crate) fn new(every: Duration, sinks: Arc<EngineSinks>) -> Self {
        Self { every, next: Instant::now(), sinks }
    }

    /// When it is time for a survey.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// A survey was taken.
    pub(crate) fn taken(&mut self) {
        self.next = Instant::now() + self.every;
    }

    /// This node had no shard of the topic when a survey began at `surveyed`, so nothing waits for its sink here.
    pub(crate) fn has_no_shard(&self, topic: &TopicName, surveyed: Instant) {
        self.sinks.nothing_waits(topic, surveyed);
    }

    /// Sets the gauges of every topic that was surveyed, and ends outages for which nothing waits. `surveyed`: when the
    /// survey began; `None`: something was not surveyed, so nobody knows whether anything waits.
    pub(crate) fn set(
        &self,
        meters: &Meters,
        (shards, surveys): (&[Shard], &[ShardCounts]),
        now: Timestamp,
        surveyed: Option<Instant>,
    ) {
        let mut sums: HashMap<&TopicName, ShardCounts> = HashMap::new();
        let mut backlogs: HashMap<&TopicName, Vec<ShardBacklog>> = HashMap::new();
        let age_s = |oldest: Option<Timestamp>| oldest.map_or(0.0, |due| now.since(due).as_secs_f64());
        let mut downs: HashMap<&TopicName, Option<SinkDown>> = HashMap::new();
        for (shard, survey) in shards.iter().zip(surveys) {
            let down = downs
                .entry(&shard.topic)
                .or_insert_with(|| self.sinks.state(&shard.topic).and_then(|state| state.down));
            let oldest_age_s = age_s(SinkDown::oldest_due(down.as_ref(), survey));
            let backlog = ShardBacklog { index: shard.index, due: survey.due, oldest_age_s };
            backlogs.entry(&shard.topic).or_default().push(backlog);
            let sum = sums.entry(&shard.topic).or_default();
            sum.scheduled += survey.scheduled;
            sum.due += survey.due;
            sum.in_flight += survey.in_flight;
            sum.dead += survey.dead;
            sum.moving += survey.moving;
            sum.head = [sum.head, survey.head].into_iter().flatten().min();
        }
        let gauge = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        for (topic, backlog) in backlogs {
            meters.shard_backlogs(topic, backlog);
        }
        for (topic, sum) in sums {
            let down = downs[topic].as_ref();
            let oldest = SinkDown::oldest_due(down, &sum);
            if let (Some(_), None, Some(surveyed)) = (down, oldest, surveyed) {
                self.sinks.nothing_waits(topic, surveyed);
            }
            let meters = meters.topic(topic);
            meters.scheduled.set(gauge(sum.waiting()));
            meters.due.set(gauge(sum.due));
            meters.in_flight.set(gauge(sum.in_flight));
            meters.dead.set(gauge(sum.dead));
            meters.oldest_due_age.set(age_s(oldest));
        }
    }
}
