//! The rate limit of one topic: a token bucket on monotonic time.

use std::time::Duration;

use duetime_core::RateLimit;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Timers tick in milliseconds, so a fast topic's bucket holds at least what falls into this much
/// time; otherwise a limit of 10,000 a second would yield a tenth of it.
const SLICE: Duration = Duration::from_millis(5);

/// The rate limit of one topic: a token bucket on monotonic time. Without a limit every message may go.
#[derive(Debug)]
pub(crate) struct Rate(Option<Mutex<Bucket>>);

#[derive(Debug)]
struct Bucket {
    per_second: f64,
    size: f64,
    tokens: f64,
    filled_at: Instant,
}

impl Bucket {
    fn fill(&mut self, now: Instant) {
        let grown = now.duration_since(self.filled_at).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + grown).min(self.size);
        self.filled_at = now;
    }
}

impl Rate {
    pub(crate) fn new(limit: Option<RateLimit>) -> Self {
        Self(limit.map(|limit| {
            let size = f64::from(limit.burst).max(limit.per_second * SLICE.as_secs_f64()).max(1.0);
            Mutex::new(Bucket { per_second: limit.per_second, size, tokens: size, filled_at: Instant::now() })
        }))
    }

    /// Takes up to `most` tokens: so many messages may go now.
    pub(crate) fn take(&self, most: usize) -> usize {
        let Some(bucket) = &self.0 else { return most };
        let mut bucket = bucket.lock();
        bucket.fill(Instant::now());
        let taken = (bucket.tokens + 1e-9).floor().min(most as f64);
        bucket.tokens -= taken;
        taken as usize
    }

    /// Gives back what was not used.
    pub(crate) fn give_back(&self, tokens: usize) {
        if let Some(bucket) = &self.0 {
            let mut bucket = bucket.lock();
            bucket.tokens = (bucket.tokens + tokens as f64).min(bucket.size);
        }
    }

    /// Waits until there is a token.
    pub(crate) async fn available(&self) {
        let Some(bucket) = &self.0 else { return };
        loop {
            let wait = {
                let mut bucket = bucket.lock();
                bucket.fill(Instant::now());
                if bucket.tokens + 1e-9 >= 1.0 {
                    return;
                }
                Duration::from_secs_f64(((1.0 - bucket.tokens) / bucket.per_second).min(3600.0))
            };
            tokio::time::sleep(wait.max(Duration::from_millis(1))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_then_as_many_as_the_limit_says() {
        let rate = Rate::new(Some(RateLimit { per_second: 10.0, burst: 5 }));
        assert_eq!(rate.take(100), 5);
        assert_eq!(rate.take(1), 0);
        let start = Instant::now();
        for _ in 0..20 {
            rate.available().await;
            assert_eq!(rate.take(1), 1);
        }
        let took = start.elapsed().as_secs_f64();
        assert!((1.99..2.1).contains(&took), "20 tokens took {took} s");
        rate.give_back(50);
        assert_eq!(rate.take(100), 5, "what is given back never makes a larger burst");
    }

    #[tokio::test(start_paused = true)]
    async fn a_fast_limit_is_reached_although_timers_tick_in_milliseconds() {
        let rate = Rate::new(Some(RateLimit { per_second: 10_000.0, burst: 1 }));
        let (start, mut taken) = (Instant::now(), 0);
        while start.elapsed() < Duration::from_secs(1) {
            rate.available().await;
            taken += rate.take(256);
        }
        assert!((9_900..=10_100).contains(&taken), "{taken} in a second");
    }

    #[test]
    fn no_limit_lets_everything_go() {
        assert_eq!(Rate::new(None).take(256), 256);
    }
}
