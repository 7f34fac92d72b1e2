//! How much a token's holder may ask for: requests and messages a second.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A second's worth may come at once after a pause.
const BURST: Duration = Duration::from_secs(1);

struct RateState {
    /// What may still be taken; below zero, what was taken ahead.
    left: f64,
    at: Instant,
}

/// A token bucket. What is larger than its burst passes when something is left, and the next waits longer.
pub(crate) struct RequestRate {
    per_second: f64,
    state: Mutex<RateState>,
}

impl RequestRate {
    pub fn new(per_second: f64) -> Self {
        Self { per_second, state: Mutex::new(RateState { left: Self::most(per_second), at: Instant::now() }) }
    }

    pub fn per_second(&self) -> f64 {
        self.per_second
    }

    /// Another speed, with what is left of this one, debts too.
    pub fn at_speed(&self, per_second: f64) -> Self {
        // What was earned until now is counted.
        let _ = self.take(0);
        let left = self.state.lock().left.min(Self::most(per_second));
        Self { per_second, state: Mutex::new(RateState { left, at: Instant::now() }) }
    }

    fn most(per_second: f64) -> f64 {
        (per_second * BURST.as_secs_f64()).max(1.0)
    }

    /// Takes `count`, or answers after how long it is worth asking again.
    pub fn take(&self, count: usize) -> Result<(), Duration> {
        let mut state = self.state.lock();
        let now = Instant::now();
        let earned = now.duration_since(state.at).as_secs_f64() * self.per_second;
        state.left = (state.left + earned).min(Self::most(self.per_second));
        state.at = now;
        if count > 0 && state.left < 1.0 {
            return Err(Duration::from_secs_f64(((1.0 - state.left) / self.per_second).min(86_400.0)));
        }
        state.left -= count as f64;
        Ok(())
    }

    /// Takes `count` ahead: what comes next waits longer.
    pub fn charge(&self, count: usize) {
        self.state.lock().left -= count as f64;
    }

    /// Most that is worth taking together: a second's worth.
    pub fn portion(&self) -> usize {
        Self::most(self.per_second) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_more_passes_than_a_second_is_worth_and_debts_are_paid_by_waiting() {
        let rate = RequestRate::new(10.0);
        assert!((0..10).all(|_| rate.take(1).is_ok()));
        let wait = rate.take(1).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
        tokio::time::advance(wait).await;
        assert!(rate.take(1).is_ok() && rate.take(1).is_err());
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(rate.take(1000).is_ok(), "larger than the burst");
        assert_eq!(rate.take(1).unwrap_err(), Duration::from_millis(99_100));
        let slow = RequestRate::new(0.1);
        assert!(slow.take(1).is_ok());
        assert_eq!(slow.take(1).unwrap_err().as_secs(), 10);
        slow.charge(1);
        assert_eq!(slow.take(1).unwrap_err().as_secs(), 20);
    }
}
