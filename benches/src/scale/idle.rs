//! What a node and its Redis do while nothing is due.

use std::time::Duration;

use duetime_testkit::servers::RedisServer;
use tokio::time::{Instant, sleep};

use super::fleet::{ClusterNodes, each_us};
use crate::brokers::cost;
use crate::brokers::node::now_ms;

/// Once everything is delivered, the node's last looks are let pass.
const CALM: Duration = Duration::from_secs(2);
const WATCHED: Duration = Duration::from_secs(10);
const AN_HOUR_MS: i64 = 3_600_000;

/// What a second without a due message costs.
#[derive(Debug)]
pub struct Idle {
    /// Percent of one core, of the node and of Redis.
    pub cpu_percent: [f64; 2],
    /// Scripts that Redis ran in a second.
    pub scripts_per_s: f64,
    /// Commands that came over a connection and were no scripts.
    pub others_per_s: f64,
    /// Memory of the node, in MiB.
    pub node_mib: f64,
}

/// Calls of scripts, and of what the node sends besides.
fn calls(server: &RedisServer) -> (f64, f64) {
    let told = server.cli(&["INFO", "commandstats"]);
    let count = |names: &[&str]| -> f64 {
        let of = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            names.contains(&name).then(|| rest.split(',').next()?.parse::<f64>().ok())?
        };
        told.lines().filter_map(|line| of(line.trim_end())).sum()
    };
    (count(&["evalsha", "evalsha_ro", "eval", "fcall"]), count(&["ping", "time", "publish", "subscribe", "smembers"]))
}

/// Watches a fleet of one node for a while in which nothing is due, with `waiting` messages an hour ahead.
pub async fn watch(fleet: &ClusterNodes, server: &RedisServer, waiting: u64) -> Idle {
    fleet.enqueue(waiting, now_ms() + AN_HOUR_MS).await;
    sleep(CALM).await;
    server.cli(&["CONFIG", "RESETSTAT"]);
    let (before, began) = (cost::of_each(), Instant::now());
    sleep(WATCHED).await;
    let (after, took) = (cost::of_each(), began.elapsed().as_secs_f64());
    let (scripts, others) = calls(server);
    let spent = cost::between(&before, &after);
    // Seconds of CPU in µs for each of a million "messages" a second are seconds.
    let percent = |program: &str| each_us(&spent, program, 1_000_000).iter().sum::<f64>() / took * 100.0;
    Idle {
        cpu_percent: [percent("duetime"), percent("redis-server")],
        scripts_per_s: scripts / took,
        others_per_s: others / took,
        node_mib: cost::memory_mib("duetime"),
    }
}
