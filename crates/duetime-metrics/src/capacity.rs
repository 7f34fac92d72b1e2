//! How many messages of a topic this node was able to deliver a second: measured while it had much to do.

use std::collections::VecDeque;
use std::time::Duration;

/// How often deliveries are counted.
pub const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// The stretch of time a rate is taken over. Over a minute, a herd that took three seconds would show a twentieth of
/// what was possible.
pub const CAPACITY_STRETCH: Duration = Duration::from_secs(5);
/// A stretch says something of what is possible if so many were delivered in it, or if messages have waited for long.
pub const CAPACITY_MESSAGES_MIN: u64 = 500;
/// Where fewer were delivered, messages have to have waited for so long. A shorter backlog, as after an outage, is gone
/// within seconds while the last survey still shows it: what was delivered meanwhile is all that there was.
pub const CAPACITY_BACKLOG_LASTS: Duration = Duration::from_secs(15);
/// The best of so many hours counts.
const HOURS: usize = 24;
const HOUR: Duration = Duration::from_secs(3600);

/// The best stretch of the last day.
#[derive(Debug, Default)]
pub(crate) struct Capacity {
    /// When, and how many were delivered until then.
    counts: VecDeque<(Duration, u64)>,
    /// Since then messages have waited for [`CAPACITY_STRETCH`] and longer.
    waiting_since: Option<Duration>,
    /// The best rate of an hour, by the number of the hour.
    hours: VecDeque<(u64, f64)>,
}

impl Capacity {
    /// At `at` after the start of the program so many were delivered in all. `backlog`: for how long the oldest
    /// due message has waited for this node or its sink to be able to deliver it; `None`: it waits for something else.
    pub fn sample(&mut self, at: Duration, delivered: u64, backlog: Option<Duration>) {
        let waits = backlog.is_some_and(|backlog| backlog >= CAPACITY_STRETCH);
        self.waiting_since = waits.then(|| self.waiting_since.unwrap_or(at));
        // After a stall of the loop the rate would be one that never was.
        if self.counts.back().is_some_and(|(last, _)| at.saturating_sub(*last) > CAPACITY_STRETCH) {
            self.counts.clear();
        }
        self.counts.push_back((at, delivered));
        while self.counts.get(1).is_some_and(|(next, _)| at.saturating_sub(*next) >= CAPACITY_STRETCH) {
            self.counts.pop_front();
        }
        let hour = at.as_secs() / HOUR.as_secs();
        while self.hours.front().is_some_and(|(of, _)| of + HOURS as u64 <= hour) {
            self.hours.pop_front();
        }
        let (from, before) = self.counts[0];
        let took = at.saturating_sub(from);
        if took < CAPACITY_STRETCH {
            return;
        }
        let count = delivered.saturating_sub(before);
        let lasts = self.waiting_since.is_some_and(|since| at.saturating_sub(since) >= CAPACITY_BACKLOG_LASTS);
        if count < CAPACITY_MESSAGES_MIN && (count == 0 || !lasts) {
            return;
        }
        let rate = count as f64 / took.as_secs_f64();
        match self.hours.back_mut() {
            Some((of, best)) if *of == hour => *best = best.max(rate),
            _ => self.hours.push_back((hour, rate)),
        }
    }

    /// Messages a second; `None`: there was never enough to do.
    pub fn per_second(&self) -> Option<f64> {
        self.hours.iter().map(|(_, rate)| *rate).reduce(f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delivers so many in each of the seconds, one after the other.
    fn after(seconds: impl IntoIterator<Item = u64>, backlog: Duration) -> Option<f64> {
        let backlog = Some(backlog);
        let mut capacity = Capacity::default();
        let mut all = 0;
        capacity.sample(Duration::ZERO, 0, backlog);
        for (at, count) in seconds.into_iter().enumerate() {
            all += count;
            capacity.sample(Duration::from_secs(at as u64 + 1), all, backlog);
        }
        capacity.per_second()
    }

    #[test]
    fn the_best_five_seconds_count_and_a_quiet_topic_has_no_capacity() {
        let none = Duration::ZERO;
        assert_eq!(after([5; 60], none), None, "nothing waited: more might have gone");
        assert_eq!(after([5; 60], Duration::from_secs(9)), Some(5.0), "this is all that goes");
        assert_eq!(after([0; 60], Duration::from_secs(9)), None, "nothing goes: that is no capacity");
        let herd = [0, 0, 4_000, 4_000, 4_000, 4_000, 4_000, 0, 0, 10];
        assert_eq!(after(herd, none), Some(4_000.0));
    }

    #[test]
    fn what_is_delivered_after_an_outage_is_no_capacity_until_messages_still_wait() {
        let mut capacity = Capacity::default();
        let (mut second, mut delivered) = (0, 0);
        let mut run = |seconds: u64, each: u64, backlog: Option<u64>| {
            for _ in 0..seconds {
                second += 1;
                delivered += each;
                capacity.sample(Duration::from_secs(second), delivered, backlog.map(Duration::from_secs));
            }
            capacity.per_second()
        };
        assert_eq!(run(60, 3, None), None, "a part of the store is away: the rest goes on");
        // It is back, and all is caught up with at once; the survey of some seconds ago still shows a backlog.
        assert_eq!(run(1, 200, Some(60)), None);
        assert_eq!(run(6, 10, Some(60)), None);
        assert_eq!(run(30, 10, Some(0)), None);
        assert_eq!(run(14, 20, Some(9)), None);
        assert_eq!(run(6, 20, Some(9)), Some(20.0), "messages wait all the time: no more goes");
    }

    #[test]
    fn a_capacity_is_forgotten_after_a_day_and_a_pause_of_the_loop_is_no_rate() {
        let mut capacity = Capacity::default();
        for second in 0..=5 {
            capacity.sample(Duration::from_secs(second), second * 1000, Some(Duration::ZERO));
        }
        assert_eq!(capacity.per_second(), Some(1000.0));
        capacity.sample(Duration::from_secs(60), 1_000_000, Some(Duration::ZERO));
        assert_eq!(capacity.per_second(), Some(1000.0));
        capacity.sample(Duration::from_secs(25 * 3600), 1_000_000, Some(Duration::ZERO));
        assert_eq!(capacity.per_second(), None);
    }
}
