//! What a change of the shard count does to a load that goes on: the same load with and without it.
//!
//! `cargo build --release -p duetime && cargo run --release -p duetime-benches --bin resize [-- MESSAGES [OUT [SETTING=VALUE,…]]]`
//!
//! OUT: a file name without its ending, for the tables. SETTING: of the section `[resize]`. MESSAGES stay pending and move: 8 → 16 → 8 → 16
//! shards, with stretches of the load alone before, between and after.

use std::fmt::Write as _;
use std::path::PathBuf;

use duetime_benches::resize::load::{Load, Seen, fill};
use duetime_benches::resize::phase::{NODE, Phase, REDIS, Stage, within_ms};
use duetime_benches::resize::{FROM, PER_S, TO, TOPIC, moved, slow};
use duetime_client::Client;
use duetime_testkit::servers::{Node, RedisServer};

const MESSAGES: u64 = 1_000_000;
/// Ids whose homes are counted.
const IDS_MAX: u64 = 1_000_000;
/// Each stretch without a change.
const ALONE_S: u64 = 30;
const WARM_UP: std::time::Duration = std::time::Duration::from_secs(15);
/// What lateness may grow to while shards change, as documented.
const PROMISE: f64 = 2.0;

fn program() -> PathBuf {
    let here = std::env::current_exe().expect("this program has a path");
    let path = here.with_file_name(NODE);
    assert!(path.exists(), "{} is missing: cargo build --release -p duetime", path.display());
    path
}

async fn run(count: u64, settings: &str) -> Vec<Phase> {
    let redis = RedisServer::start().await;
    let config = format!("[resize]\n{}\n[topics.{TOPIC}]\nshards = {FROM}\n", settings.replace(',', "\n"));
    let node = Node::start(program(), &redis.url(), &config).await;
    let client = Client::new(&node.url(), None).expect("a good URL");
    let server = redis::Client::open(redis.url()).expect("a good URL");
    let mut server = server.get_multiplexed_async_connection().await.expect("the server answers");
    fill(&client, count).await;
    let load = Load::start(&client);
    tokio::time::sleep(WARM_UP).await;
    slow::watch(&mut server).await;
    let mut stage = Stage { client: &client, server, load: &load };
    let mut phases = Vec::new();
    for (from, to) in [(FROM, TO), (TO, FROM), (FROM, TO)] {
        phases.push(stage.without(from, ALONE_S).await);
        println!("{}", row(&phases[phases.len() - 1]));
        phases.push(stage.change(from, to).await);
        println!("{}", row(&phases[phases.len() - 1]));
    }
    phases.push(stage.without(TO, ALONE_S).await);
    drop(stage);
    let Seen { deliveries, refused, late, .. } = load.end().await;
    assert_eq!(late.iter().filter(|(_, late)| *late < 0).count(), 0, "messages delivered early");
    let told = client.topic(TOPIC).await.expect("the node answers");
    assert_eq!((told.scheduled, told.in_flight, told.dead, refused), (count, 0, 0, 0), "what is left");
    let (lost, twice) = deliveries.iter().fold((0, 0), |(lost, twice), times| match times {
        0 => (lost + 1, twice),
        1 => (lost, twice),
        _ => (lost, twice + 1),
    });
    assert_eq!((lost, twice), (0, 0), "messages lost, and delivered twice, of {}", deliveries.len());
    println!("{} messages of the load were delivered once each, none early", deliveries.len());
    phases
}

fn row(phase: &Phase) -> String {
    let (from, to) = phase.shards;
    let name = if from == to { format!("{from} shards") } else { format!("{from} → {to}") };
    let three = |all: &[i64]| [0.5, 0.99, 1.0].map(|share| format!("{:.1}", within_ms(all, share))).join(" / ");
    let moved = if from == to {
        "–".to_owned()
    } else {
        format!("{} ({:.0})", phase.moved, phase.moved as f64 / phase.seconds)
    };
    let cpu = [REDIS, NODE].map(|name| format!("{:.0}", 100.0 * phase.cpu.get(name).unwrap_or(&0.0) / phase.seconds));
    format!(
        "| {name} | {:.0} s | {moved} | {} | {} | {} | {} |",
        phase.seconds,
        three(&phase.late),
        three(&phase.enqueued),
        cpu.join(" / "),
        phase.load
    )
}

type Samples = fn(&Phase) -> &Vec<i64>;

/// Of all stretches of a kind together.
fn together(phases: &[Phase], kind: impl Fn(&Phase) -> bool, what: impl Fn(&Phase) -> &Vec<i64>) -> Vec<i64> {
    let mut all: Vec<i64> = phases.iter().filter(|phase| kind(phase)).flat_map(|phase| what(phase).clone()).collect();
    all.sort_unstable();
    all
}

fn report(phases: &[Phase], count: u64) -> String {
    let alone = |phase: &Phase| phase.shards.0 == phase.shards.1;
    let mut out = format!(
        "{count} messages pending, {PER_S} a second enqueued (batches of 20) and as many due, claimed and acked; one node, one Redis.\n\n\
         | stretch | time | moved (a second) | late, ms: 50 / 99 / 100 % | enqueue, ms: 50 / 99 / 100 % | CPU %: Redis / node | load average |\n\
         |---|---|---|---|---|---|---|\n"
    );
    let mut line = |text: String| writeln!(out, "{text}").expect("a string takes all");
    phases.iter().for_each(|phase| line(row(phase)));
    line("\n| | alone | while shards change | ratio |\n|---|---|---|---|".to_owned());
    let kinds: [(&str, Samples); 2] = [("late", |phase| &phase.late), ("enqueue", |phase| &phase.enqueued)];
    for (name, what) in kinds {
        let (without, with) = (together(phases, alone, what), together(phases, |phase| !alone(phase), what));
        for (share, percent) in [(0.5, 50), (0.99, 99)] {
            let (without, with) = (within_ms(&without, share), within_ms(&with, share));
            let kept = if name == "late" && percent == 99 && with > without * PROMISE { ", not kept" } else { "" };
            line(format!(
                "| {name}, {percent} % within, ms | {without:.1} | {with:.1} | {:.2}{kept} |",
                with / without
            ));
        }
    }
    // What the load alone uses is taken off.
    let sum =
        |kind: &dyn Fn(&&Phase) -> bool, of: &dyn Fn(&Phase) -> f64| phases.iter().filter(kind).map(of).sum::<f64>();
    let moved = sum(&|phase| !alone(phase), &|phase| phase.moved as f64);
    for name in [REDIS, NODE] {
        let used = |phase: &Phase| phase.cpu.get(name).copied().unwrap_or(0.0);
        let rate = sum(&|phase| alone(phase), &used) / sum(&|phase| alone(phase), &|phase| phase.seconds);
        let extra = sum(&|phase| !alone(phase), &|phase| used(phase) - rate * phase.seconds);
        line(format!("| CPU of {name}, µs a message moved | | {:.1} | |", extra * 1e6 / moved));
    }
    line(format!(
        "\nScripts and commands over {} ms, by the slow log: how many, the longest in ms\n",
        slow::SLOW_MICROS / 1_000
    ));
    for phase in phases {
        let each =
            phase.slow.iter().map(|(name, (times, most))| format!("{name} {times}, {:.1}", *most as f64 / 1_000.0));
        line(format!("- {} → {}: {}", phase.shards.0, phase.shards.1, each.collect::<Vec<_>>().join("; ")));
    }
    line(format!("\n{}", moved::table(count.min(IDS_MAX))));
    out
}

fn main() {
    let mut args = std::env::args().skip(1);
    let count = args.next().map_or(MESSAGES, |text| text.parse().expect("a number of messages"));
    let out = args.next();
    let settings = args.next().unwrap_or_default();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let phases = runtime.block_on(run(count, &settings));
    let text = report(&phases, count);
    println!("{text}");
    if let Some(out) = out {
        std::fs::write(format!("{out}.md"), text).expect("OUT can be written");
    }
}
