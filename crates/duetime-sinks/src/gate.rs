//! How much a target is given at once: requests in flight, and requests a second.
//!
//! Upstream: sinks whose target has no window of its own. One gate per named sink, so that all
//! topics that share it share its limits.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// See the module.
#[derive(Debug)]
pub struct Gate {
    slots: Semaphore,
    pace: Option<Pace>,
    wait_max: Duration,
}

#[derive(Debug)]
struct Pace {
    interval: Duration,
    next: Mutex<Option<Instant>>,
}

/// The turn would come only after this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// When to ask again.
    pub after: Duration,
}

impl Gate {
    /// At most `concurrency` at once and `per_second` a second; whoever would wait longer than
    /// `wait_max` is sent away.
    #[must_use]
    pub fn new(concurrency: usize, per_second: Option<f64>, wait_max: Duration) -> Self {
        let pace =
            per_second.map(|rate| Pace { interval: Duration::from_secs_f64(1.0 / rate), next: Mutex::new(None) });
        Self { slots: Semaphore::new(concurrency), pace, wait_max }
    }

    /// Waits for the turn. The turn ends when the answer is dropped.
    ///
    /// # Errors
    ///
    /// [`Full`]: the wait would be too long.
    pub async fn enter(&self) -> Result<SemaphorePermit<'_>, Full> {
        let slot = tokio::time::timeout(self.wait_max, self.slots.acquire())
            .await
            .map_err(|_| Full { after: self.wait_max })?
            .expect("the semaphore is never closed");
        if let Some(pace) = &self.pace {
            let at = pace.turn(Instant::now(), self.wait_max)?;
            tokio::time::sleep_until(at).await;
        }
        Ok(slot)
    }
}

impl Pace {
    /// The next free moment, which is then taken.
    fn turn(&self, now: Instant, wait_max: Duration) -> Result<Instant, Full> {
        let mut next = self.next.lock();
        let at = next.map_or(now, |next| next.max(now));
        let wait = at - now;
        if wait > wait_max {
            return Err(Full { after: wait });
        }
        *next = Some(at + self.interval);
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_keep_their_pace_and_whoever_would_wait_too_long_is_sent_away() {
        let gate = Gate::new(100, Some(10.0), Duration::from_secs(1));
        let start = Instant::now();
        for _ in 0..11 {
            drop(gate.enter().await.unwrap());
        }
        assert_eq!(start.elapsed().as_millis() / 10, 100);
        let crowd = futures::future::join_all((0..20).map(|_| gate.enter())).await;
        assert_eq!(crowd.iter().filter(|turn| turn.is_ok()).count(), 10);
        assert!(crowd.into_iter().filter_map(Result::err).all(|full| full.after > Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_the_slots_are_given_at_once() {
        let gate = Gate::new(1, None, Duration::from_secs(1));
        let held = gate.enter().await.unwrap();
        assert_eq!(gate.enter().await.err(), Some(Full { after: Duration::from_secs(1) }));
        drop(held);
        assert!(gate.enter().await.is_ok());
    }
}
