//! The meters of topics, with a bound on the number of series.
//!
//! The first [`TOPIC_SERIES_MAX`] topics that a node comes to know have series of their own. The others are summed up
//! (or their greatest value is taken, where a sum says nothing) as the topic [`REST`], which no topic can be called.

use std::sync::Arc;

use duetime_core::{Timestamp, TopicName};
use prometheus::{Gauge, GaugeVec, IntGauge, IntGaugeVec};

use crate::labels::FORECAST_WITHIN;
use crate::{Meters, TopicMeters};

/// Topics with series of their own, at each node.
pub const TOPIC_SERIES_MAX: usize = 256;
/// The topic as which the others are shown.
pub const REST: &str = "(rest)";

/// Which gauge of a topic.
type Of = fn(&TopicMeters) -> &IntGauge;

/// The gauge of a topic: served under its name, or kept to be summed up.
pub(crate) fn gauge(all: &IntGaugeVec, shown: Option<&str>) -> IntGauge {
    let kept = || IntGauge::new("kept", "Not served by itself.").expect("a valid name");
    shown.map_or_else(kept, |name| all.with_label_values(&[name]))
}

/// The same of one that is no whole number.
pub(crate) fn float_gauge(all: &GaugeVec, shown: Option<&str>) -> Gauge {
    let kept = || Gauge::new("kept", "Not served by itself.").expect("a valid name");
    shown.map_or_else(kept, |name| all.with_label_values(&[name]))
}

impl Meters {
    /// The meters of all topics, those that are summed up among them.
    pub(crate) fn all_topics(&self) -> Vec<Arc<TopicMeters>> {
        self.topics.read().values().cloned().collect()
    }

    /// The meters of a topic, if it has any yet.
    #[must_use]
    pub fn known_topic(&self, topic: &TopicName) -> Option<Arc<TopicMeters>> {
        self.topics.read().get(topic).cloned()
    }

    /// Takes out of the gauges of retries what has fallen due by now.
    pub fn retries_due(&self, now: Timestamp) {
        self.all_topics().iter().for_each(|topic| topic.retries_due(now));
    }

    /// So many shards of `topic` are lost.
    pub fn shards_lost(&self, topic: &TopicName, shards: usize) {
        let known = self.known_topic(topic);
        let shards = i64::try_from(shards).unwrap_or(i64::MAX);
        if let Some(meters) = known.filter(|meters| !meters.is_named) {
            meters.shards_lost.set(shards);
        } else if shards == 0 {
            // It may have had none before.
            let _ = self.shards_lost.remove_label_values(&[topic.as_str()]);
        } else {
            self.shards_lost.with_label_values(&[topic.as_str()]).set(shards);
        }
    }

    /// Sums up what has no series of its own.
    pub(crate) fn sum_up_rest(&self) {
        let rest: Vec<_> = self.all_topics().into_iter().filter(|topic| !topic.is_named).collect();
        let sums: [(&IntGaugeVec, Of); 9] = [
            (&self.scheduled, |topic| &topic.scheduled),
            (&self.due, |topic| &topic.due),
            (&self.in_flight, |topic| &topic.in_flight),
            (&self.dead, |topic| &topic.dead),
            (&self.shards, |topic| &topic.shards),
            (&self.shards_owned, |topic| &topic.shards_owned),
            (&self.shards_unowned, |topic| &topic.shards_unowned),
            (&self.resize_remaining, |topic| &topic.resize_remaining),
            (&self.retries_waiting, |topic| &topic.retries_waiting),
        ];
        let lost: i64 = rest.iter().map(|topic| topic.shards_lost.get()).sum();
        if lost == 0 {
            let _ = self.shards_lost.remove_label_values(&[REST]);
        } else {
            self.shards_lost.with_label_values(&[REST]).set(lost);
        }
        let shards = rest.iter().filter_map(|topic| *topic.shards_of_rest.lock());
        self.shard_backlogs.set_rest(REST, shards);
        if rest.is_empty() {
            for (all, _) in sums {
                let _ = all.remove_label_values(&[REST]);
            }
            let _ = self.breaker_open.remove_label_values(&[REST]);
            let _ = self.paused.remove_label_values(&[REST]);
            let _ = self.oldest_due_age.remove_label_values(&[REST]);
            let _ = self.capacity.remove_label_values(&[REST]);
            let _ = self.forecast_late.remove_label_values(&[REST]);
            for (within, _) in FORECAST_WITHIN {
                let _ = self.forecast.remove_label_values(&[REST, within]);
            }
            return;
        }
        for (all, of) in sums {
            all.with_label_values(&[REST]).set(rest.iter().map(|topic| of(topic).get()).sum());
        }
        let open = rest.iter().map(|topic| topic.breaker_open.get()).max().unwrap_or_default();
        self.breaker_open.with_label_values(&[REST]).set(open);
        // One that is not paused has to be watched.
        let paused = rest.iter().map(|topic| topic.paused.get()).min().unwrap_or_default();
        self.paused.with_label_values(&[REST]).set(paused);
        let oldest = rest.iter().map(|topic| topic.oldest_due_age.get()).fold(0.0, f64::max);
        self.oldest_due_age.with_label_values(&[REST]).set(oldest);
        let late = rest.iter().map(|topic| topic.forecast_late.get()).fold(0.0, f64::max);
        self.forecast_late.with_label_values(&[REST]).set(late);
        self.capacity.with_label_values(&[REST]).set(rest.iter().map(|topic| topic.capacity_shown.get()).sum());
        for (at, (within, _)) in FORECAST_WITHIN.iter().enumerate() {
            let sum = rest.iter().map(|topic| topic.forecast[at].get()).sum();
            self.forecast.with_label_values(&[REST, within]).set(sum);
        }
    }
}
