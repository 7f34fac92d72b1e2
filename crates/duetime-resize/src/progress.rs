//! How far a change has come: counted from the shards, so that it survives whoever moves.

use std::collections::VecDeque;
use std::time::Duration;

use duetime_core::store::Survey;
use duetime_core::{ResizeProgress, Routing, RoutingRecord, Shard, StoreError, TopicName, Topics};
use tokio::time::Instant;

use crate::controller::Inner;

/// The rate is taken over so many measurements, one a second.
const SAMPLES: usize = 10;

/// What this node knows of one change.
#[derive(Debug, Default)]
pub(crate) struct Track {
    epoch: u64,
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

/// Moved and remaining, from the counts of shards 0 to the larger of the two numbers.
pub(crate) fn counts(routing: &Routing, surveys: &[Survey]) -> (u64, u64) {
    let all = |survey: &Survey| survey.scheduled + survey.in_flight + survey.dead;
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

impl Inner {
    pub(crate) async fn progress_of(
        &self,
        topic: &TopicName,
        record: &RoutingRecord,
    ) -> Result<Option<ResizeProgress>, StoreError> {
        let routing = &record.routing;
        if !routing.is_moving() {
            return Ok(None);
        }
        let shards: Vec<Shard> = routing.all(topic).collect();
        let surveys = self.tools.store.survey(&shards, self.clock.now()).await?;
        let (moved, remaining) = counts(routing, &surveys);
        let tracks = self.tracks.lock();
        let track = tracks.get(topic).filter(|track| track.epoch == routing.epoch);
        let per_second = track.and_then(Track::rate);
        Ok(Some(ResizeProgress {
            from: routing.previous,
            to: routing.shards,
            desired: record.desired,
            moved,
            remaining,
            per_second,
            left: per_second.map(|rate| Duration::try_from_secs_f64(remaining as f64 / rate).unwrap_or(Duration::MAX)),
            blocked: track.and_then(|track| track.blocked.clone()),
        }))
    }

    /// Measures every change under way, for rate and metrics.
    pub(crate) async fn measure(&self, topics: &Topics) {
        for record in topics.values() {
            let gauge = || self.meters.topic(&record.name).resize_remaining.clone();
            let progress = match self.progress_of(&record.name, &record.routing_record()).await {
                Ok(Some(progress)) => progress,
                Ok(None) => {
                    gauge().set(0);
                    continue;
                }
                // The next second tells.
                Err(_) => continue,
            };
            gauge().set(i64::try_from(progress.remaining).unwrap_or(i64::MAX));
            let mut tracks = self.tracks.lock();
            let track = tracks.entry(record.name.clone()).or_default();
            if track.epoch != record.routing.epoch {
                *track = Track { epoch: record.routing.epoch, ..Track::default() };
            }
            track.samples.push_back((Instant::now(), progress.remaining));
            if track.samples.len() > SAMPLES {
                track.samples.pop_front();
            }
        }
    }

    pub(crate) fn began(&self, topic: &TopicName, routing: &Routing) {
        let mut tracks = self.tracks.lock();
        let track = tracks.entry(topic.clone()).or_default();
        if track.epoch != routing.epoch {
            *track = Track { epoch: routing.epoch, ..Track::default() };
        }
    }

    pub(crate) fn blocked(&self, topic: &TopicName, reason: String) {
        if let Some(track) = self.tracks.lock().get_mut(topic) {
            track.blocked = Some(reason);
        }
    }

    pub(crate) fn unblocked(&self, topic: &TopicName) {
        if let Some(track) = self.tracks.lock().get_mut(topic) {
            track.blocked = None;
        }
    }

    pub(crate) fn ended(&self, topic: &TopicName) {
        self.tracks.lock().remove(topic);
        self.meters.topic(topic).resize_remaining.set(0);
    }

    pub(crate) fn forget_gone(&self, topics: &Topics) {
        self.tracks.lock().retain(|topic, _| topics.contains_key(topic));
    }
}

#[cfg(test)]
mod tests {
    use duetime_core::routing::RoutingState;

    use super::*;

    fn surveys(counts: &[u64]) -> Vec<Survey> {
        counts.iter().map(|n| Survey { scheduled: *n, ..Survey::default() }).collect()
    }

    #[test]
    fn moved_and_remaining_are_told_by_the_shards_themselves() {
        let routing = |previous, shards| Routing {
            epoch: 2,
            rid: String::new(),
            shards,
            previous,
            state: RoutingState::Moving,
            seed: None,
        };
        assert_eq!(counts(&routing(2, 4), &surveys(&[100, 100, 0, 0])), (0, 100));
        assert_eq!(counts(&routing(2, 4), &surveys(&[70, 60, 40, 30])), (70, 30));
        assert_eq!(counts(&routing(4, 1), &surveys(&[100, 100, 100, 100])), (0, 300));
        assert_eq!(counts(&routing(4, 1), &surveys(&[390, 5, 5, 0])), (290, 10));
        assert_eq!(counts(&routing(4, 1), &surveys(&[0, 0, 0, 0])), (0, 0));
    }
}
