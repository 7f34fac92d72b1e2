//! Forecasts that are kept for all who ask for the same, and whose turn it is to count.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::{Timestamp, TopicName};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::error::RouteError;
use crate::queries::herd::{Load, TimeBucket};

/// A topic is counted again for the same buckets once in this time at most.
pub const FORECAST_KEPT: Duration = Duration::from_secs(5);
/// An error is answered for this long without asking the store again.
pub(crate) const ERROR_KEPT: Duration = Duration::from_secs(1);
/// Topics that are counted at the same time.
const COUNTS_MAX: usize = 4;
/// Kinds of buckets that are kept of one topic.
const SHAPES_MAX: usize = 16;
/// Topics of which anything is kept before those that are gone are looked for.
const TOPICS_KEPT: usize = 256;
/// Buckets from this length on begin at whole multiples of it.
pub(crate) const ALIGNED_FROM: Duration = Duration::from_secs(1);

/// The buckets that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buckets {
    /// Length of one.
    pub length: Duration,
    /// How many.
    pub count: usize,
}

impl Buckets {
    /// From `now` on; full minutes, hours and so on begin a bucket, so that the first one is shorter.
    pub(crate) fn edges(self, now: Timestamp) -> Vec<Timestamp> {
        let length = i64::try_from(self.length.as_millis()).unwrap_or(i64::MAX).max(1);
        let from = now.as_millis();
        let first = if self.length < ALIGNED_FROM {
            from.saturating_add(length)
        } else {
            from.saturating_sub(from.rem_euclid(length)).saturating_add(length)
        };
        let later = (0..self.count as i64).map(|at| first.saturating_add(at.saturating_mul(length)));
        std::iter::once(now).chain(later.map(Timestamp::from_millis)).collect()
    }
}

/// The moment within a forecast at which the last message will be latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Herd {
    /// The messages that fall due then.
    pub time_bucket: TimeBucket,
    /// How late the last of them will be.
    pub late: Duration,
}

/// A forecast as it was counted.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// When.
    pub at: Timestamp,
    /// Messages that were due before.
    pub due: u64,
    /// What falls due when.
    pub buckets: Vec<TimeBucket>,
    /// What this does to a queue with [`Forecast::per_second`]; empty: that is not known.
    pub loads: Vec<Load>,
    /// The moment at which messages will be latest, if any will be late.
    pub herd: Option<Herd>,
    /// What all nodes can deliver a second, going by what this one was able to.
    pub per_second: Option<f64>,
    /// Shards that are not in it, because their server does not answer.
    pub silent: usize,
}

#[derive(Debug)]
struct KeptForecast {
    shape: Buckets,
    life: u64,
    until: Instant,
    answer: Result<Arc<Forecast>, RouteError>,
}

/// One topic's.
#[derive(Debug)]
pub(crate) struct OfTopic {
    kept: Mutex<Vec<KeptForecast>>,
    /// The lock of whoever counts: the store is left alone until the moment in it.
    pub turn: tokio::sync::Mutex<Instant>,
}

impl OfTopic {
    pub fn fresh(&self, shape: Buckets, life: u64) -> Option<Result<Arc<Forecast>, RouteError>> {
        let mut kept = self.kept.lock();
        let now = Instant::now();
        kept.retain(|one| one.until > now && one.life == life);
        kept.iter().find(|one| one.shape == shape).map(|one| one.answer.clone())
    }

    pub fn keep(&self, shape: Buckets, life: u64, answer: Result<Arc<Forecast>, RouteError>) {
        let until = Instant::now() + if answer.is_ok() { FORECAST_KEPT } else { ERROR_KEPT };
        let mut kept = self.kept.lock();
        kept.retain(|one| one.shape != shape);
        if kept.len() >= SHAPES_MAX {
            kept.remove(0);
        }
        kept.push(KeptForecast { shape, life, until, answer });
    }
}

/// All that is kept.
#[derive(Debug)]
pub(crate) struct Forecasts {
    topics: Mutex<HashMap<TopicName, Arc<OfTopic>>>,
    pub counts: Semaphore,
}

impl Default for Forecasts {
    fn default() -> Self {
        Self { topics: Mutex::default(), counts: Semaphore::new(COUNTS_MAX) }
    }
}

impl Forecasts {
    pub fn of(&self, topic: &TopicName, is_there: impl Fn(&TopicName) -> bool) -> Arc<OfTopic> {
        let mut topics = self.topics.lock();
        if topics.len() >= TOPICS_KEPT && !topics.contains_key(topic) {
            topics.retain(|name, _| is_there(name));
        }
        let make = || Arc::new(OfTopic { kept: Mutex::default(), turn: tokio::sync::Mutex::new(Instant::now()) });
        topics.entry(topic.clone()).or_insert_with(make).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_begin_on_full_minutes() {
        let at = |text: &str| duetime_core::units::parse_time(text).unwrap();
        let shape = |length, count| Buckets { length: Duration::from_secs(length), count };
        let now = at("2026-01-01T11:58:30.250Z");
        let minute = [now, at("2026-01-01T11:59:00Z"), at("2026-01-01T12:00:00Z"), at("2026-01-01T12:01:00Z")];
        assert_eq!(shape(60, 3).edges(now), minute);
        assert_eq!(shape(3600, 1).edges(now), [now, at("2026-01-01T12:00:00Z")]);
        assert_eq!(shape(60, 1).edges(at("2026-01-01T12:00:00Z"))[1], at("2026-01-01T12:01:00Z"));
        let short = Buckets { length: Duration::from_millis(250), count: 1 };
        assert_eq!(short.edges(now)[1], now.plus(Duration::from_millis(250)));
    }
}
