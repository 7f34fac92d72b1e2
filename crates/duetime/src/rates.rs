//! Counts what was delivered, second by second, so that rates and the capacity of each topic are known.

use std::sync::Arc;

use duetime_metrics::{Meters, SAMPLE_EVERY};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

/// Counts until `stop`; `begun`: the start of the program.
pub async fn sample(meters: Arc<Meters>, begun: Instant, stop: CancellationToken) {
    let mut tick = tokio::time::interval(SAMPLE_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            now = tick.tick() => meters.sample(now.duration_since(begun)),
        }
    }
}
