//! At most so many messages a second, over all shards that move at once.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Deals out the time: each taker learns when its turn is.
#[derive(Debug)]
pub(crate) struct Throttle {
    per_second: f64,
    free_at: Mutex<Instant>,
}

impl Throttle {
    pub fn new(per_second: u32) -> Self {
        Self { per_second: f64::from(per_second.max(1)), free_at: Mutex::new(Instant::now()) }
    }

    /// Waits until `messages` more may move.
    pub async fn take(&self, messages: usize) {
        let turn = {
            let mut free_at = self.free_at.lock();
            let turn = (*free_at).max(Instant::now());
            *free_at = turn + Duration::from_secs_f64(messages as f64 / self.per_second);
            turn
        };
        tokio::time::sleep_until(turn).await;
    }
}
