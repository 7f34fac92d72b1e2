//! What is shown of each owned shard, with a bound on the number of labels.
//!
//! The shards of a topic whose oldest due message has waited longest have a series each; the others
//! are summed up as `rest`.

use std::collections::{BTreeSet, HashMap};

use duetime_core::TopicName;
use parking_lot::Mutex;
use prometheus::{GaugeVec, IntGaugeVec};

/// Shards of a topic with series of their own, at each node.
pub const SHARD_SERIES_MAX: usize = 32;
const REST: &str = "rest";

/// One owned shard at the last survey.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShardBacklog {
    /// Its index.
    pub index: u32,
    /// Messages whose time has come.
    pub due: u64,
    /// How long the oldest of them has waited, in seconds; 0 when none is due.
    pub oldest_age_s: f64,
}

/// What is due in all of them, and how late the latest is; `None`: there is none.
pub(crate) fn sum(shards: impl IntoIterator<Item = ShardBacklog>) -> Option<ShardBacklog> {
    let add = |a: ShardBacklog, b: ShardBacklog| ShardBacklog {
        index: 0,
        due: a.due.saturating_add(b.due),
        oldest_age_s: a.oldest_age_s.max(b.oldest_age_s),
    };
    shards.into_iter().reduce(add)
}

/// The series of all topics.
#[derive(Debug)]
pub(crate) struct ShardMeters {
    due: IntGaugeVec,
    oldest: GaugeVec,
    shown: Mutex<HashMap<TopicName, BTreeSet<String>>>,
}

impl ShardMeters {
    pub(crate) fn new(due: IntGaugeVec, oldest: GaugeVec) -> Self {
        Self { due, oldest, shown: Mutex::default() }
    }

    /// Sets the series of `topic` and removes those that are not among them any more.
    pub(crate) fn set(&self, topic: &TopicName, mut shards: Vec<ShardBacklog>) {
        let mut rest: Option<ShardBacklog> = None;
        if shards.len() > SHARD_SERIES_MAX {
            let weight = |shard: &ShardBacklog| (shard.oldest_age_s, shard.due);
            shards.sort_by(|a, b| weight(b).partial_cmp(&weight(a)).expect("ages are numbers"));
            rest = sum(shards.split_off(SHARD_SERIES_MAX));
        }
        let named = shards.into_iter().map(|shard| (shard.index.to_string(), shard));
        let all: Vec<(String, ShardBacklog)> = named.chain(rest.map(|sum| (REST.to_owned(), sum))).collect();
        let mut shown = self.shown.lock();
        let labels: BTreeSet<String> = all.iter().map(|(label, _)| label.clone()).collect();
        let old = if labels.is_empty() {
            shown.remove(topic).unwrap_or_default()
        } else {
            shown.insert(topic.clone(), labels.clone()).unwrap_or_default()
        };
        for (label, shard) in all {
            let labels = &[topic.as_str(), label.as_str()];
            self.due.with_label_values(labels).set(i64::try_from(shard.due).unwrap_or(i64::MAX));
            self.oldest.with_label_values(labels).set(shard.oldest_age_s);
        }
        for gone in old.difference(&labels) {
            let _ = self.due.remove_label_values(&[topic.as_str(), gone]);
            let _ = self.oldest.remove_label_values(&[topic.as_str(), gone]);
        }
    }

    /// Sets the one series of the topics that have none of their own, called `topic`, or removes it.
    pub(crate) fn set_rest(&self, topic: &str, shards: impl Iterator<Item = ShardBacklog>) {
        let labels = &[topic, REST];
        match sum(shards) {
            Some(shard) => {
                self.due.with_label_values(labels).set(i64::try_from(shard.due).unwrap_or(i64::MAX));
                self.oldest.with_label_values(labels).set(shard.oldest_age_s);
            }
            None => {
                let _ = self.due.remove_label_values(labels);
                let _ = self.oldest.remove_label_values(labels);
            }
        }
    }
}
