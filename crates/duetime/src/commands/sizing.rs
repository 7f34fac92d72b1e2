//! `duetime sizing`: how many masters, shards and nodes, and how much memory, for a load.
//!
//! `costs` says what a message costs, on one kind of processor; `docs/CAPACITY.md` says what that leaves out.

mod costs;

use clap::Args;
use duetime_core::limits::{BATCH_ITEMS_MAX, PAYLOAD_BYTES_MAX};
use duetime_core::units::{parse_size, show_size};
use serde::Serialize;

use self::costs::{SinkKind, StoreKind};
use super::output;

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
/// Messages of a herd that are claimed at once.
const HERD_BATCH: u64 = 64;
/// Cores that a node on the embedded store uses at most: one transaction is written at a time.
const EMBEDDED_CORES_MAX: u64 = 4;
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
    /// Messages in a request of producers and of consumers: 1 where each is sent, cancelled and claimed by itself.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=BATCH_ITEMS_MAX as u64))]
    pub batch: u64,
    /// Where messages go.
    #[arg(long, value_enum, value_name = "KIND", default_value_t = SinkKind::Consumers)]
    pub sink: SinkKind,
    /// Where messages are kept. On the embedded store there is one node and no Redis.
    #[arg(long, value_enum, value_name = "KIND", default_value_t = StoreKind::Redis)]
    pub store: StoreKind,
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
    /// Masters of Redis; none for the embedded store.
    pub masters: u64,
    /// Servers of Redis, with replicas.
    pub servers: u64,
    /// What the number of masters follows from: `processor`, `memory`, `failover`, or `none` where there are none.
    pub masters_because_of: &'static str,
    /// `maxmemory` of each server, in bytes.
    pub maxmemory: u64,
    /// Memory of all pending messages, for the embedded store their part of its disk, in bytes.
    pub pending_bytes: u64,
    /// Shards of the topic.
    pub shards: u64,
    /// Nodes.
    pub nodes: u64,
    /// Cores of each node.
    pub cores: u64,
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
    let cancelled = rate * load.cancelled / 100.0;
    let delivered = costs::delivered(load.store, load.sink);
    let all =
        [(rate, costs::enqueued(load.store)), (cancelled, costs::cancelled(load.store)), (rate - cancelled, delivered)];
    let redis_us: f64 = all.iter().map(|(count, costs)| count * costs.redis.of(load.batch, USED_MAX)).sum();
    let node_us: f64 = all.iter().map(|(count, costs)| count * costs.node.of(load.batch, USED_MAX)).sum();
    let each = costs::bytes_besides_payload(load.store).saturating_add(load.payload);
    let pending_bytes = load.pending.saturating_mul(each);
    // A herd is claimed in batches, however it came.
    let herd_seconds = |us: f64| load.due_at_once.map(|herd| herd as f64 * us / 1e6);
    if load.store == StoreKind::Embedded {
        return Sizing {
            masters: 0,
            servers: 0,
            masters_because_of: "none",
            maxmemory: 0,
            pending_bytes,
            shards: SHARDS_FOR_EACH,
            nodes: 1,
            cores: parts(node_us, 1e6 * USED_MAX),
            herd_seconds: herd_seconds(delivered.node.of(HERD_BATCH, 1.0)),
        };
    }
    let by_processor = parts(redis_us, 1e6 * USED_MAX);
    let by_memory = parts(pending_bytes as f64, load.master_memory as f64 * MEMORY_USED_MAX);
    // A cluster elects by majority: two masters are no cluster.
    let (masters, masters_because_of) = match by_processor.max(by_memory) {
        1 => (1, "failover"),
        2 => (3, "failover"),
        many if by_memory >= by_processor => (many, "memory"),
        many => (many, "processor"),
    };
    // One more, so that the rest carries the load when one is gone.
    let nodes = parts(node_us, 1e6 * USED_MAX * load.node_cores as f64) + 1;
    let shards = (SHARDS_FOR_EACH * masters.max(nodes)).next_power_of_two().min(SHARDS_MAX);
    Sizing {
        masters,
        servers: masters.saturating_mul(1 + load.replicas),
        masters_because_of,
        // Redis itself takes some, however few wait.
        maxmemory: ((pending_bytes as f64 / masters as f64 / MEMORY_USED_MAX) as u64).max(MASTER_MEMORY_MIN),
        pending_bytes,
        shards,
        nodes,
        cores: load.node_cores,
        herd_seconds: herd_seconds(delivered.redis.of(HERD_BATCH, 1.0) / masters as f64),
    }
}

fn memory(bytes: u64) -> String {
    let gib = bytes as f64 / f64::from(1 << 30);
    if gib >= 1.0 { format!("{gib:.1} GiB") } else { format!("{:.0} MiB", gib * 1024.0) }
}

/// Why no node or cluster is large enough, if that is so.
fn too_large(plan: &Sizing) -> Option<String> {
    if plan.masters == 0 {
        return (plan.cores > EMBEDDED_CORES_MAX).then(|| {
            format!(
                "this load needs {} cores, and a node on the embedded store uses {EMBEDDED_CORES_MAX} at most: send \
                 more messages in each request (--batch), or plan with --store redis",
                plan.cores
            )
        });
    }
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
    let is_in_redis = args.sink == SinkKind::InPlace;
    anyhow::ensure!(
        args.store == StoreKind::Redis || !is_in_redis,
        "--sink in-place is a stream within Redis, which --store embedded has not: give --sink redis-stream or another"
    );
    let plan = plan(args);
    if let Some(why) = too_large(&plan) {
        anyhow::bail!(why);
    }
    if args.json {
        output::json(&plan)?;
        return Ok(true);
    }
    if args.store == StoreKind::Embedded {
        let mut rows = vec![
            ("nodes", "1, there is no other to take over; Redis is for more".to_owned()),
            ("cores", plan.cores.to_string()),
            ("disk of what waits", memory(plan.pending_bytes)),
            ("shards of the topic", plan.shards.to_string()),
        ];
        rows.extend(herd(&plan));
        output::pairs(rows)?;
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
    rows.extend(herd(&plan));
    output::pairs(rows)?;
    Ok(true)
}

fn herd(plan: &Sizing) -> Option<(&'static str, String)> {
    let late = |seconds| format!("{seconds:.1} s late, if the sink takes them as fast");
    plan.herd_seconds.map(|seconds| ("the last of the herd", late(seconds)))
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
            batch: 64,
            sink: SinkKind::Consumers,
            store: StoreKind::Redis,
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
        assert_eq!((moves.masters, moves.masters_because_of), (9, "processor"));
        assert!(moves.shards >= 4 * moves.masters);
    }

    #[test]
    fn cancelled_messages_are_cheaper_than_delivered_ones() {
        let delivered = plan(&load(300_000, 1_000_000));
        let cancelled = plan(&SizingArgs { cancelled: 95.0, ..load(300_000, 1_000_000) });
        assert!(cancelled.masters < delivered.masters && cancelled.nodes <= delivered.nodes);
    }

    #[test]
    fn single_messages_need_more_than_batches_and_a_webhook_more_than_a_stream() {
        let nodes = |load: SizingArgs| plan(&load).nodes;
        let batches = nodes(load(50_000, 1_000_000));
        assert!(nodes(SizingArgs { batch: 1, ..load(50_000, 1_000_000) }) > 2 * batches);
        let to = |sink| nodes(SizingArgs { sink, ..load(200_000, 1_000_000) });
        assert!(to(SinkKind::Webhook) > to(SinkKind::InPlace));
    }

    #[test]
    fn the_embedded_store_has_one_node_and_says_what_it_cannot_take() {
        let of = |rate, batch| plan(&SizingArgs { store: StoreKind::Embedded, batch, ..load(rate, 1_000_000) });
        let small = of(2_000, 1);
        assert_eq!((small.masters, small.nodes, too_large(&small)), (0, 1, None));
        assert!(too_large(&of(50_000, 1)).unwrap().contains("--batch"));
        assert_eq!(too_large(&of(50_000, 256)), None);
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
