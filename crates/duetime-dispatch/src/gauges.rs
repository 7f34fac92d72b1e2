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
    let Some(meters) = all.known_topic(topic) else { return };
    for gauge in [&meters.scheduled, &meters.due, &meters.in_flight, &meters.dead, &meters.shards_unreachable] {
        gauge.set(0);
    }
    meters.oldest_due_age.set(0.0);
}

/// What is known of a shard is good for so long after this node scanned it: in turns it comes back within seconds.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// When the next survey is due, and what is known of the sinks.
#[derive(Debug)]
pub(crate) struct Gauges {
    every: Duration,
    next: Instant,
    sinks: Arc<EngineSinks>,
    /// What was last known of each shard that this node scans or scanned a moment ago, and when it was surveyed.
    known: HashMap<Shard, (Instant, ShardCounts)>,
}

/// One survey of the shards that this node scans.
pub(crate) struct Survey<'a> {
    pub(crate) shards: &'a [Shard],
    /// What the store answered of each; `None`: its server did not answer.
    pub(crate) counts: &'a [Option<ShardCounts>],
    pub(crate) began: Instant,
}

impl Gauges {
    pub(crate) fn new(every: Duration, sinks: Arc<EngineSinks>) -> Self {
        Self { every, next: Instant::now(), sinks, known: HashMap::new() }
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

    /// This node scans nothing.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }

    /// The shards that were surveyed last.
    pub(crate) fn last(&self) -> Vec<Shard> {
        self.known.keys().cloned().collect()
    }

    /// Sets the gauges of every topic that was surveyed, and ends outages for which nothing waits. Of a shard whose server
    /// did not answer, what was known before is shown: its head falls due all the same, and waits.
    pub(crate) fn set(&mut self, meters: &Meters, survey: &Survey<'_>, now: Timestamp) {
        let of_before = |shard: &Shard| {
            let mut counts = self.known.get(shard).map(|(_, counts)| *counts).unwrap_or_default();
            counts.due = counts.due.max(u64::from(counts.head.is_some_and(|head| head <= now)));
            counts
        };
        let known = survey.shards.iter().zip(survey.counts);
        let known = known.map(|(shard, counts)| (shard.clone(), counts.unwrap_or_else(|| of_before(shard))));
        let known: Vec<_> = known.map(|(shard, counts)| (shard, (survey.began, counts))).collect();
        self.known.retain(|_, (at, _)| survey.began.saturating_duration_since(*at) < KNOWN_FOR);
        self.known.extend(known);
        let mut unreachable: HashMap<&TopicName, i64> = HashMap::new();
        for (shard, counts) in survey.shards.iter().zip(survey.counts) {
            *unreachable.entry(&shard.topic).or_default() += i64::from(counts.is_none());
        }
        // What was not surveyed nobody knows: it may wait for its sink.
        let surveyed = survey.counts.iter().all(Option::is_some).then_some(survey.began);
        let mut sums: HashMap<&TopicName, ShardCounts> = HashMap::new();
        let mut backlogs: HashMap<&TopicName, Vec<ShardBacklog>> = HashMap::new();
        let age_s = |oldest: Option<Timestamp>| oldest.map_or(0.0, |due| now.since(due).as_secs_f64());
        let mut downs: HashMap<&TopicName, Option<SinkDown>> = HashMap::new();
        for shard in survey.shards {
            let survey = &self.known[shard].1;
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
            // One that ended during the survey gets no series again.
            let Some(meters) = meters.known_topic(topic) else { continue };
            meters.scheduled.set(gauge(sum.waiting()));
            meters.due.set(gauge(sum.due));
            meters.in_flight.set(gauge(sum.in_flight));
            meters.dead.set(gauge(sum.dead));
            meters.oldest_due_age.set(age_s(oldest));
            meters.shards_unreachable.set(unreachable[topic]);
        }
    }
}
