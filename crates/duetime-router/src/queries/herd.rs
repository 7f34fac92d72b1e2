//! How late the last of what falls due will be, where so many are delivered a second.
//!
//! A queue that fills as the forecast says and empties at the capacity; pure arithmetic.

use std::time::Duration;

use duetime_core::Timestamp;

/// What falls due within so short a time is taken to fall due at once.
pub(crate) const MOMENT: Duration = Duration::from_secs(1);

/// A part of a forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeBucket {
    /// Its begin.
    pub from: Timestamp,
    /// The begin of the next.
    pub to: Timestamp,
    /// Messages that fall due in it.
    pub count: u64,
}

impl TimeBucket {
    pub(crate) fn length(&self) -> Duration {
        self.to.since(self.from)
    }
}

/// What a time bucket does to the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// What waits and falls due in it is more than can be delivered in it.
    pub above: bool,
    /// How late its last message will be.
    pub late: Duration,
}

/// What each of the time buckets, which follow each other, does to a queue that begins with `waiting` messages.
pub(crate) fn loads(time_buckets: &[TimeBucket], waiting: u64, per_second: f64) -> Vec<Load> {
    let mut queue = waiting as f64;
    let load = |time_bucket: &TimeBucket| {
        let length = time_bucket.length();
        let all = queue + time_bucket.count as f64;
        queue = (all - per_second * length.as_secs_f64()).max(0.0);
        if queue == 0.0 || per_second <= 0.0 {
            return Load::default();
        }
        // Of a longer time bucket it is not known when in it they fall due: spread evenly, the last at its end.
        let before_the_last = if length <= MOMENT { all } else { queue };
        let late = Duration::try_from_secs_f64(before_the_last / per_second).unwrap_or(Duration::MAX);
        Load { above: true, late }
    };
    time_buckets.iter().map(load).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_buckets(of: &[(i64, i64, u64)]) -> Vec<TimeBucket> {
        let at = |second: i64| Timestamp::from_millis(second * 1000);
        of.iter().map(|(from, to, count)| TimeBucket { from: at(*from), to: at(*to), count: *count }).collect()
    }

    fn late(of: &[(i64, i64, u64)], waiting: u64, per_second: f64) -> Vec<f64> {
        loads(&time_buckets(of), waiting, per_second).iter().map(|load| load.late.as_secs_f64()).collect()
    }

    #[test]
    fn a_herd_at_one_moment_is_late_by_what_its_delivery_takes() {
        let herd = [(0, 1, 1_200_000), (1, 2, 0), (2, 3, 0), (3, 4, 5)];
        assert_eq!(late(&herd, 0, 400_000.0), [3.0, 2.0, 0.0, 0.0]);
    }

    #[test]
    fn what_is_spread_below_the_capacity_is_in_time_and_a_backlog_is_carried_on() {
        assert_eq!(late(&[(0, 60, 59_000)], 0, 1000.0), [0.0]);
        assert_eq!(late(&[(0, 1, 999)], 0, 1000.0), [0.0]);
        assert_eq!(late(&[(0, 60, 90_000), (60, 120, 20_000)], 0, 1000.0), [30.0, 0.0]);
        assert_eq!(late(&[(0, 60, 0)], 90_000, 1000.0), [30.0]);
        assert!(loads(&time_buckets(&[(0, 1, 1)]), 0, 0.5)[0].above);
        assert_eq!(late(&[(0, 60, 10)], 0, 0.0), [0.0], "without a capacity nothing is claimed");
    }
}
