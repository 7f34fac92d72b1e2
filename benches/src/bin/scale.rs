//! What more Redis masters, more nodes and more shards do, in one run.
//!
//! `cargo build --release -p duetime && cargo run --release -p duetime-benches --bin scale [-- MESSAGES [OUT [PART,…]]]`
//!
//! OUT: a file name without its ending, for the tables. PART: fleet, shards. Both without it, in some
//! five minutes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use duetime_benches::brokers::cost::Spent;
use duetime_benches::scale::fleet::{ClusterNodes, Measured, each_us};
use duetime_benches::scale::{PAYLOAD, idle};
use duetime_testkit::servers::{RedisCluster, RedisServer};

const MESSAGES: u64 = 60_000;
const MASTERS: [usize; 3] = [1, 2, 3];
const NODES: [usize; 3] = [1, 2, 4];
/// For every count of masters and nodes.
const FLEET_SHARDS: u32 = 32;
const SHARDS: [u32; 4] = [8, 64, 512, 4096];

fn program() -> PathBuf {
    let here = std::env::current_exe().expect("this program has a path");
    let path = here.with_file_name("duetime");
    assert!(path.exists(), "{} is missing: cargo build --release -p duetime", path.display());
    path
}

fn load() -> String {
    let told = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    told.split(' ').next().unwrap_or("?").to_owned()
}

/// "1.2 + 1.3" for the processes of one program.
fn shown(spent: &Spent, name: &str, messages: u64) -> String {
    let each: Vec<String> = each_us(spent, name, messages).iter().map(|us| format!("{us:.1}")).collect();
    each.join(" + ")
}

fn sum(spent: &Spent, name: &str, messages: u64) -> f64 {
    each_us(spent, name, messages).iter().sum()
}

/// One row of the first table.
fn fleet_row(out: &mut String, name: &str, nodes: usize, count: u64, told: &Measured) {
    let (enqueued, drained) = (told.enqueued_per_s, told.drained_per_s);
    write!(out, "| {name} | {nodes} | {enqueued:.0} | {drained:.0} |").expect("a string takes all");
    for spent in &told.spent {
        let (redis, node) = (shown(spent, "redis-server", count), shown(spent, "duetime", count));
        let all = sum(spent, "redis-server", count) + sum(spent, "duetime", count);
        write!(out, " {redis} | {node} | {all:.1} |").expect("a string takes all");
    }
    writeln!(out, " {} |", load()).expect("a string takes all");
    println!("{}", out.lines().last().unwrap_or_default());
}

async fn fleets(program: &Path, count: u64) -> String {
    let mut out = format!(
        "{count} messages of {PAYLOAD} bytes in {FLEET_SHARDS} shards, enqueued through all nodes as NDJSON, then due in one millisecond; \
         masters without replicas and without persistence; nodes share by etcd leases (one member; alone: `solo`); the sink counts. \
         CPU in µs a message, of each process.\n\n\
         | Redis | nodes | enqueued/s | drained/s | enqueue: masters | nodes | sum | drain: masters | nodes | sum | load |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n"
    );
    let server = RedisServer::start().await;
    for nodes in NODES {
        let fleet = ClusterNodes::start(program, &server.url(), &format!("nodes{nodes}"), nodes, FLEET_SHARDS).await;
        fleet_row(&mut out, "standalone", nodes, count, &fleet.measure(count).await);
    }
    drop(server);
    for masters in MASTERS {
        let cluster = RedisCluster::start(masters, 0).await;
        for node in &cluster.nodes {
            node.cli(&["CONFIG", "SET", "appendonly", "no"]);
        }
        for nodes in NODES {
            let fleet =
                ClusterNodes::start(program, &cluster.url(), &format!("nodes{nodes}"), nodes, FLEET_SHARDS).await;
            let name = format!("cluster of {masters}");
            fleet_row(&mut out, &name, nodes, count, &fleet.measure(count).await);
        }
    }
    out
}

async fn shards(program: &Path, count: u64) -> String {
    let mut out = format!(
        "{count} messages of {PAYLOAD} bytes, one node on one Redis, likewise; then ten seconds in which nothing is due, with as many \
         messages as shards (4,096 at least) an hour ahead.\n\n\
         | shards | enqueued/s | drained/s | enqueue: Redis | node | drain: Redis | node | idle: CPU of the node | of Redis | scripts/s | \
         other calls/s | node MiB | load |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
    );
    for shards in SHARDS {
        let server = RedisServer::start().await;
        let fleet = ClusterNodes::start(program, &server.url(), "shards", 1, shards).await;
        let told = fleet.measure(count).await;
        let idle = idle::watch(&fleet, &server, u64::from(shards.max(4096))).await;
        let cpu =
            |spent: &Spent| format!("{:.1} | {:.1}", sum(spent, "redis-server", count), sum(spent, "duetime", count));
        writeln!(
            out,
            "| {shards} | {:.0} | {:.0} | {} | {} | {:.1} % | {:.1} % | {:.1} | {:.1} | {:.0} | {} |",
            told.enqueued_per_s,
            told.drained_per_s,
            cpu(&told.spent[0]),
            cpu(&told.spent[1]),
            idle.cpu_percent[0],
            idle.cpu_percent[1],
            idle.scripts_per_s,
            idle.others_per_s,
            idle.node_mib,
            load()
        )
        .expect("a string takes all");
        println!("{}", out.lines().last().unwrap_or_default());
    }
    out
}

fn main() {
    let mut args = std::env::args().skip(1);
    let count = args.next().map_or(MESSAGES, |text| text.parse().expect("a number of messages"));
    let out = args.next();
    let asked = args.next().unwrap_or_else(|| "fleet,shards".to_owned());
    let (runtime, program) = (tokio::runtime::Runtime::new().expect("a runtime"), program());
    let mut text = String::new();
    for part in asked.split(',') {
        let table = match part {
            "fleet" => runtime.block_on(fleets(&program, count)),
            "shards" => runtime.block_on(shards(&program, count)),
            other => panic!("{other} is not known"),
        };
        println!("{table}");
        text = text + &table + "\n";
    }
    if let Some(out) = out {
        std::fs::write(format!("{out}.md"), text.trim_end().to_owned() + "\n").expect("OUT can be written");
    }
}
