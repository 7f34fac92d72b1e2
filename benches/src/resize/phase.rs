//! One stretch of the run, with or without a change of the shard count in it.

use std::time::Duration;

use duetime_client::Client;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, sleep};

use super::load::Load;
use super::slow::{self, Slow};
use super::{TOPIC, now_micros};
use crate::brokers::cost::{self, Cost};

/// How often the node is asked whether a change is done.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Longest change.
const CHANGE_MAX: Duration = Duration::from_secs(900);
/// Names of the programs in `/proc`.
pub const NODE: &str = "duetime";
/// See [`NODE`].
pub const REDIS: &str = "redis-server";

/// What one stretch showed.
#[derive(Debug)]
pub struct Phase {
    /// Shards before and after; the same: no change.
    pub shards: (u32, u32),
    /// How long it took.
    pub seconds: f64,
    /// Messages moved meanwhile.
    pub moved: u64,
    /// Lateness in microseconds, sorted.
    pub late: Vec<i64>,
    /// From when an enqueue was to be sent to its answer, in microseconds, sorted.
    pub enqueued: Vec<i64>,
    /// CPU seconds by program.
    pub cpu: Cost,
    /// Scripts that were slow.
    pub slow: Slow,
    /// The machine's load average at the end.
    pub load: String,
}

/// What is measured, and by whom.
#[derive(Debug)]
pub struct Stage<'a> {
    /// The node.
    pub client: &'a Client,
    /// Its Redis.
    pub server: MultiplexedConnection,
    /// The load that goes on all the time.
    pub load: &'a Load,
}

impl Stage<'_> {
    async fn moved(&self) -> u64 {
        let metrics = self.client.metrics().await.expect("the node answers");
        let is_it = |line: &&str| line.starts_with("duetime_messages_total{") && line.contains("event=\"moved\"");
        let lines = metrics.lines().filter(is_it).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        lines.map(|count| count as u64).sum()
    }

    /// Lets the load go on for this long.
    pub async fn without(&mut self, shards: u32, seconds: u64) -> Phase {
        self.phase((shards, shards), sleep(Duration::from_secs(seconds))).await
    }

    /// Changes the shard count, and waits for the end of it.
    pub async fn change(&mut self, from: u32, to: u32) -> Phase {
        let client = self.client;
        self.phase((from, to), async move {
            client.set_shards(TOPIC, &to.into()).await.expect("the node begins");
            let began = Instant::now();
            loop {
                sleep(LOOK_EVERY).await;
                let told = client.shards(TOPIC).await.expect("the node answers");
                if told.shard_count == to && told.resize.is_none() {
                    return;
                }
                assert!(began.elapsed() < CHANGE_MAX, "the change does not end: {:?}", told.resize);
            }
        })
        .await
    }

    async fn phase(&mut self, shards: (u32, u32), act: impl Future<Output = ()>) -> Phase {
        slow::take(&mut self.server).await;
        let (moved, before) = (self.moved().await, cost::of_children());
        let (from, began) = (now_micros(), Instant::now());
        act.await;
        let (to, seconds) = (now_micros(), began.elapsed().as_secs_f64());
        let after = cost::of_children();
        let cpu =
            after.into_iter().map(|(name, used)| (name.clone(), used - before.get(&name).unwrap_or(&0.0))).collect();
        let (slow, moved) = (slow::take(&mut self.server).await, self.moved().await - moved);
        // What fell due at the end has been delivered by then, or is late by as much.
        sleep(Duration::from_secs(1)).await;
        let (late, enqueued) = self.load.between(from, to);
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or("?").to_owned();
        Phase { shards, seconds, moved, late, enqueued, cpu, slow, load }
    }
}

/// The value that this share of all keeps below, in milliseconds.
#[must_use]
pub fn within_ms(sorted: &[i64], share: f64) -> f64 {
    let nth = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(nth.saturating_sub(1)).map_or(f64::NAN, |micros| *micros as f64 / 1_000.0)
}
