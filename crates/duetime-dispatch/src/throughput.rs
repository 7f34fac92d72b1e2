//! Measures how fast a sink takes messages, to hold no more than it takes in half the visibility
//! timeout.

use std::time::Duration;

/// Share of the newest measurement in the running mean.
const NEWEST: f64 = 0.2;

/// Running mean of the time one call needs for one message.
#[derive(Debug)]
pub(crate) struct Throughput {
    calls_max: usize,
    horizon: Duration,
    per_message_s: Option<f64>,
    longest: Duration,
}

impl Throughput {
    /// For a sink that takes `calls_max` calls at once; what is held must be gone within `horizon`.
    pub(crate) fn new(calls_max: usize, horizon: Duration) -> Self {
        Self { calls_max, horizon, per_message_s: None, longest: Duration::ZERO }
    }

    /// One call with so many messages took this long. Answers how many messages may be held.
    pub(crate) fn measured(&mut self, took: Duration, messages: usize) -> usize {
        // Below a microsecond the clock measures itself rather than the sink.
        let one = (took.as_secs_f64() / messages.max(1) as f64).max(1e-6);
        let mean = self.per_message_s.map_or(one, |mean| mean + NEWEST * (one - mean));
        self.per_message_s = Some(mean);
        self.longest = took.max(self.longest.mul_f64(1.0 - NEWEST) + took.mul_f64(NEWEST));
        let held = self.horizon.as_secs_f64() / mean * self.calls_max as f64;
        // Never less than a message for each call: they all start at once.
        (held as usize).max(self.calls_max)
    }

    /// How long a call may take, going by the slow ones lately.
    pub(crate) fn call_time(&self) -> Duration {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_sink_is_given_no_more_than_it_takes_in_half_the_visibility_timeout() {
        let mut slow = Throughput::new(4, Duration::from_secs(15));
        assert_eq!(slow.measured(Duration::from_secs(1), 1), 60);
        for _ in 0..50 {
            slow.measured(Duration::from_secs(10), 1);
        }
        assert_eq!(slow.measured(Duration::from_secs(10), 1), 6);
        assert_eq!(slow.call_time(), Duration::from_secs(10));
        assert_eq!(Throughput::new(4, Duration::from_secs(1)).measured(Duration::from_secs(30), 1), 4);
    }
}
