//! `duetime sizing`: how many masters, shards and nodes, and how much memory, for a load.
//!
//! The costs are those of the recorded runs `benches/runs/2026-11-21-scale.md` and `2026-11-21-one-node.md`, on one
//! kind of processor and in batches; `docs/CAPACITY.md` says what they leave out.

use clap::Args;
use duetime_core::limits::PAYLOAD_BYTES_MAX;
use duetime_core::units::{parse_size, show_size};
use serde::Serialize;

use super::output;

/// What Redis spends on a message that is enqueued, in batches: microseconds of its one thread.
const REDIS_ENQUEUE_US: f64 = 3.9;
/// On one that is claimed and acknowledged.
const REDIS_DRAIN_US: f64 = 4.0;
/// On one that is cancelled.
const REDIS_CANCEL_US: f64 = 2.7;
/// What a node spends on a message that is enqueued, and on one that is delivered.
const NODE_ENQUEUE_US: f64 = 2.1;
const NODE_DRAIN_US: f64 = 1.3;
/// Bytes of Redis that a pending message takes besides its payload, with an id of 20 characters.
const BYTES_BESIDES_PAYLOAD: u64 = 227;
/// How much of a core or of a memory is planned with: the rest is for peaks, forks and failovers.
const USED_MAX: f64 = 0.5;
/// The least memory of a master that is planned with: Redis itself takes some.
const MASTER_MEMORY_MIN: u64 = 64 << 20;
/// Part of `maxmemory` that is planned with.
const MEMORY_USED_MAX: f64 = 0.75;
/// Shards for each master and for each node: no master gets more than 1.25 of its part.
const SHARDS_FOR_EACH: u64 = 4;
/// The most servers of one Redis Cluster, which is made for no more.
const SERVERS_MAX: u64 = 1000;
/// The most shards of a topic.
const SHARDS_MAX: u64 = 4096;

/// The load.
#[derive(Clone, Debug, Args)]
pub struct SizingArgs {
    /// Messages enqueued in a second at the peak: 50k, 1.2M, 3000.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub rate: u64,
    /// Messages that wait at once: 200M.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub pending: u64,
    /// Bytes of a payload.
    #[arg(long, value_name = "BYTES", value_parser = parse_payload, default_value = "200")]
    pub payload: u64,
    /// How many of a hundred messages are cancelled before they are due.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = parse_percent)]
    pub cancelled: f64,
    /// Messages that fall due in the worst second, where that is more than the rate: a herd.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub due_at_once: Option<u64>,
    /// Memory that a master may use.
    #[arg(long, value_name = "BYTES", value_parser = parse_memory, default_value = "16GiB")]
    pub master_memory: u64,
    /// Replicas of each master.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=16))]
    pub replicas: u64,
    /// Cores of a node's machine.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub node_cores: u64,
    /// Print JSON for programs.
    #[arg(long)]
    pub json: bool,
}

/// What the load needs.
#[derive(Debug, PartialEq, Serialize)]
pub struct Sizing {
    /// Masters of Redis.
    pub masters: u64,
    /// Servers of Redis, with replicas.
    pub servers: u64,
    /// What the number of masters follows from: `processor`, `memory` or `failover`.
    pub masters_because_of: &'static str,
    /// `maxmemory` of each server, in bytes.
    pub maxmemory: u64,
    /// Memory of all pending messages, in bytes.
    pub pending_bytes: u64,
    /// Shards of the topic.
    pub shards: u64,
    /// Nodes.
    pub nodes: u64,
    /// Seconds until the last message of the herd is delivered; none without one.
    pub herd_seconds: Option<f64>,
}

fn parse_count(text: &str) -> Result<u64, String> {
    let help = || format!("{text:?} is not a number; write 3000, 50k or 1.2M");
    let (number, factor) = match text.trim().char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1e3),
        Some((at, 'M')) => (&text[..at], 1e6),
        Some((at, 'G')) => (&text[..at], 1e9),
        _ => (text, 1.0),
    };
    let value = number.trim().parse::<f64>().map_err(|_| help())? * factor;
    // Above 2^53 a float is no whole number any more.
    if !(0.0..9e15).contains(&value) {
        return Err(help());
    }
    Ok(value.round() as u64)
}

/// Reads `95`, `99.9` or `95%`.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let help = |_| format!("{text:?} is not a number; write for example 99.9");
    let value: f64 = text.trim_end_matches('%').trim().parse().map_err(help)?;
    if (0.0..=100.0).contains(&value) { Ok(value) } else { Err(format!("{text} is not between 0 and 100")) }
}

fn parse_payload(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    let most = show_size(PAYLOAD_BYTES_MAX);
    if bytes <= PAYLOAD_BYTES_MAX { Ok(bytes) } else { Err(format!("a payload has {most} at most")) }
}

fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes >= MASTER_MEMORY_MIN {
        Ok(bytes)
    } else {
        Err(format!("give a master {} at least", show_size(MASTER_MEMORY_MIN)))
    }
}

/// How many of what gives `each` make up `wanted`.
fn parts(wanted: f64, each: f64) -> u64 {
    ((wanted / each).ceil() as u64).max(1)
}

/// Computes it.
#[must_use]
pub fn plan(load: &SizingArgs) -> Sizing {
    let rate = load.rate as f64;
    let cancelled = load.cancelled / 100.0;
    let delivered = rate * (1.0 - cancelled);
    let redis_us = rate * REDIS_ENQUEUE_US + rate * cancelled * REDIS_CANCEL_US + delivered * REDIS_DRAIN_US;
    let by_processor = parts(redis_us, 1e6 * USED_MAX);
    let pending_bytes = load.pending.saturating_mul(BYTES_BESIDES_PAYLOAD.saturating_add(load.payload));
    let by_memory = parts(pending_bytes as f64, load.master_memory as f64 * MEMORY_USED_MAX);
    // A cluster elects by majority: two masters are no cluster.
    let (masters, masters_because_of) = match by_processor.max(by_memory) {
        1 => (1, "failover"),
        2 => (3, "failover"),
        many if by_memory >= by_processor => (many, "memory"),
        many => (many, "processor"),
    };
    let nodes_us = rate * NODE_ENQUEUE_US + delivered * NODE_DRAIN_US;
    // One more, so that the rest carries the load when one is gone.
    let nodes = parts(nodes_us, 1e6 * USED_MAX * load.node_cores as f64) + 1;
    let shards = (SHARDS_FOR_EACH * masters.max(nodes)).next_power_of_two().min(SHARDS_MAX);
    let drain = masters as f64 * 1e6 / REDIS_DRAIN_US;
    Sizing {
        masters,
        servers: masters.saturating_mul(1 + load.replicas),
        masters_because_of,
        // Redis itself takes some, however few wait.
        maxmemory: ((pending_bytes as f64 / masters as f64 / MEMORY_USED_MAX) as u64).max(MASTER_MEMORY_MIN),
        pending_bytes,
        shards,
        nodes,
        herd_seconds: load.due_at_once.map(|herd| herd as f64 / drain),
    }
}

fn memory(bytes: u64) -> String {
    let gib = bytes as f64 / f64::from(1 << 30);
    if gib >= 1.0 { format!("{gib:.1} GiB") } else { format!("{:.0} MiB", gib * 1024.0) }
}

/// Why no cluster is large enough, if that is so.
fn too_large(plan: &Sizing) -> Option<String> {
    let why = if plan.masters_because_of == "memory" { "plan with more --master-memory, or " } else { "" };
    (plan.servers > SERVERS_MAX).then(|| {
        format!(
            "this load needs {} masters and {} servers of Redis with their replicas, and one cluster has {SERVERS_MAX} \
             at most; {why}split the load over several clusters",
            plan.masters, plan.servers
        )
    })
}

/// Runs it.
pub fn run(args: &SizingArgs) -> anyhow::Result<bool> {
    let plan = plan(args);
    if let Some(why) = too_large(&plan) {
        anyhow::bail!(why);
    }
    if args.json {
        output::json(&plan)?;
        return Ok(true);
    }
    let because = match plan.masters_because_of {
        "memory" => "memory decides",
        "processor" => "processor time decides",
        _ if plan.masters == 1 => "one is enough; add a replica and Sentinel for failover",
        _ => "two would do, and a cluster needs three",
    };
    let mut rows = vec![
        ("masters of Redis", format!("{} ({because})", plan.masters)),
        ("servers of Redis", format!("{} with {} replicas each", plan.servers, args.replicas)),
        ("maxmemory of each", memory(plan.maxmemory)),
        ("memory of what waits", memory(plan.pending_bytes)),
        ("shards of the topic", plan.shards.to_string()),
        ("nodes", format!("{} with {} cores (one may be gone)", plan.nodes, args.node_cores)),
    ];
    if let Some(seconds) = plan.herd_seconds {
        rows.push(("the last of the herd", format!("{seconds:.1} s late, if the sink takes them as fast")));
    }
    output::pairs(rows)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(rate: u64, pending: u64) -> SizingArgs {
        SizingArgs {
            rate,
            pending,
            payload: 200,
            cancelled: 0.0,
            due_at_once: None,
            master_memory: 16 << 30,
            replicas: 1,
            node_cores: 2,
            json: false,
        }
    }

    #[test]
    fn a_small_load_needs_one_master_and_two_nodes() {
        let plan = plan(&load(1_000, 1_000_000));
        assert_eq!((plan.masters, plan.servers, plan.nodes, plan.shards), (1, 2, 2, 8));
        assert_eq!(super::plan(&load(1, 0)).maxmemory, MASTER_MEMORY_MIN);
    }

    #[test]
    fn what_waits_decides_on_memory_and_what_moves_on_processors() {
        let waits = plan(&load(1_000, 200_000_000));
        assert_eq!((waits.masters, waits.masters_because_of), (7, "memory"));
        assert!(waits.maxmemory <= 16 << 30);
        let moves = plan(&load(500_000, 1_000_000));
        assert_eq!((moves.masters, moves.masters_because_of), (8, "processor"));
        assert!(moves.shards >= 4 * moves.masters);
    }

    #[test]
    fn cancelled_messages_are_cheaper_than_delivered_ones() {
        let delivered = plan(&load(300_000, 1_000_000));
        let cancelled = plan(&SizingArgs { cancelled: 95.0, ..load(300_000, 1_000_000) });
        assert!(cancelled.masters < delivered.masters && cancelled.nodes <= delivered.nodes);
    }

    #[test]
    fn two_masters_are_no_cluster() {
        assert_eq!(plan(&load(90_000, 1_000_000)).masters, 3);
    }

    #[test]
    fn what_no_cluster_can_take_is_refused_and_what_it_can_is_not() {
        let waits = too_large(&plan(&load(1_000, 1_000_000_000_000))).expect("397 TiB");
        assert!(waits.contains("servers of Redis") && waits.contains("--master-memory"), "{waits}");
        let moves = too_large(&plan(&load(1_000_000_000, 1_000))).expect("a billion a second");
        assert!(moves.contains("several clusters") && !moves.contains("--master-memory"), "{moves}");
        assert_eq!(too_large(&plan(&load(1_000_000, 10_000_000_000))), None);
        assert_eq!((parse_payload("16MiB"), parse_payload("16MiB1").is_err()), (Ok(16 << 20), true));
        assert!(parse_payload("17MiB").unwrap_err().contains("at most"));
        assert!(parse_memory("0").unwrap_err().contains("at least"));
        assert_eq!([memory(300 << 20), memory(3 << 29)], ["300 MiB", "1.5 GiB"]);
    }

    #[test]
    fn numbers_are_read_as_people_write_them() {
        assert_eq!(parse_count("50k"), Ok(50_000));
        assert_eq!(parse_count("1.2M"), Ok(1_200_000));
        assert_eq!(parse_count("3000"), Ok(3_000));
        assert!(parse_count("many").unwrap_err().contains("50k"));
        assert!(parse_count("-1").is_err() && parse_percent("101").is_err());
        assert_eq!((parse_percent("99.9%"), parse_percent("5")), (Ok(99.9), Ok(5.0)));
        assert!(parse_percent("most").unwrap_err().contains("99.9"));
    }
}
