//! How far a change has come: counted from the shards, so that it survives whoever moves.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use duetime_core::store::ShardCounts;
use duetime_core::{ResizeProgress, Routing, RoutingId, RoutingRecord, TopicName, Topics};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The rate is taken over so many measurements, one a second.
const SAMPLES: usize = 10;

/// What this node knows of one change.
#[derive(Debug, Default)]
struct Track {
    record: RoutingId,
    blocked: Option<String>,
    samples: VecDeque<(Instant, u64)>,
}

impl Track {
    fn rate(&self) -> Option<f64> {
        let ((first_at, first), (last_at, last)) = (self.samples.front()?, self.samples.back()?);
        let seconds = last_at.saturating_duration_since(*first_at).as_secs_f64();
        (seconds > 0.0 && first > last).then(|| (first - last) as f64 / seconds)
    }
}

/// What this node knows of all changes under way.
#[derive(Debug, Default)]
pub(crate) struct Tracks(Mutex<HashMap<TopicName, Track>>);

impl Tracks {
    /// The progress of the change of `record`, which is under way, from the counts of its shards.
    pub(crate) fn progress(
        &self,
        topic: &TopicName,
        record: &RoutingRecord,
        surveys: &[ShardCounts],
    ) -> ResizeProgress {
        let routing = &record.routing;
        let (moved, remaining) = counts(routing, surveys);
        let tracks = self.0.lock();
        let track = tracks.get(topic).filter(|track| track.record == routing.id());
        let per_second = track.and_then(Track::rate);
        ResizeProgress {
            from: routing.previous,
            to: routing.shards,
            desired: record.desired,
            moved,
            remaining,
            per_second,
            left: per_second.map(|rate| Duration::try_from_secs_f64(remaining as f64 / rate).unwrap_or(Duration::MAX)),
            blocked: track.and_then(|track| track.blocked.clone()),
        }
    }

    /// Notes how many messages the change of `routing` has still to move.
    pub(crate) fn sample(&self, topic: &TopicName, routing: &Routing, remaining: u64) {
        self.of_change(topic, routing, |track| {
            track.samples.push_back((Instant::now(), remaining));
            if track.samples.len() > SAMPLES {
                track.samples.pop_front();
            }
        });
    }

    pub(crate) fn began(&self, topic: &TopicName, routing: &Routing) {
        self.of_change(topic, routing, |_| {});
    }

    /// What was known of an earlier change of the topic says nothing about this one.
    fn of_change(&self, topic: &TopicName, routing: &Routing, note: impl FnOnce(&mut Track)) {
        let mut tracks = self.0.lock();
        let track = tracks.entry(topic.clone()).or_default();
        if track.record != routing.id() {
            *track = Track { record: routing.id(), ..Track::default() };
        }
        note(track);
    }

    pub(crate) fn blocked(&self, topic: &TopicName, reason: String) {
        if let Some(track) = self.0.lock().get_mut(topic) {
            track.blocked = Some(reason);
        }
    }

    pub(crate) fn unblocked(&self, topic: &TopicName) {
        if let Some(track) = self.0.lock().get_mut(topic) {
            track.blocked = None;
        }
    }

    pub(crate) fn ended(&self, topic: &TopicName) {
        self.0.lock().remove(topic);
    }

    pub(crate) fn forget_gone(&self, topics: &Topics) {
        self.0.lock().retain(|topic, _| topics.contains_key(topic));
    }
}

/// Moved and remaining, from the counts of shards 0 to the larger of the two numbers.
fn counts(routing: &Routing, surveys: &[ShardCounts]) -> (u64, u64) {
    let all = ShardCounts::messages;
    let total: u64 = surveys.iter().map(all).sum();
    let (from, to) = (u64::from(routing.previous), u64::from(routing.shards));
    if to >= from {
        // The new shards have their share in the end.
        let share = u64::try_from(u128::from(total) * u128::from(to - from) / u128::from(to)).unwrap_or(u64::MAX);
        let arrived: u64 = surveys.iter().skip(routing.previous as usize).map(all).sum();
        (arrived, share.saturating_sub(arrived))
    } else {
        let remaining: u64 = surveys.iter().skip(routing.shards as usize).map(all).sum();
        let share = u64::try_from(u128::from(total) * u128::from(from - to) / u128::from(from)).unwrap_or(u64::MAX);
        (share.saturating_sub(remaining), remaining)
    }
}

#[cfg(test)]
mod tests {
    use duetime_core::ChangeId;
    use duetime_core::routing::RoutingState;

    use super::*;

    fn surveys(counts: &[u64]) -> Vec<ShardCounts> {
        counts.iter().map(|n| ShardCounts { scheduled: *n, ..ShardCounts::default() }).collect()
    }

    #[test]
    fn moved_and_remaining_are_counted_by_the_shards_themselves() {
        let routing = |previous, shards| Routing {
            epoch: 2,
            change_id: ChangeId::default(),
            shards,
            previous,
            state: RoutingState::Moving,
            seed: None,
            watermark: false,
            max_in_flight: None,
        };
        assert_eq!(counts(&routing(2, 4), &surveys(&[100, 100, 0, 0])), (0, 100));
        assert_eq!(counts(&routing(2, 4), &surveys(&[70, 60, 40, 30])), (70, 30));
        assert_eq!(counts(&routing(4, 1), &surveys(&[100, 100, 100, 100])), (0, 300));
        assert_eq!(counts(&routing(4, 1), &surveys(&[390, 5, 5, 0])), (290, 10));
        assert_eq!(counts(&routing(4, 1), &surveys(&[0, 0, 0, 0])), (0, 0));
    }
}
