//! What it costs to share a large fleet's shards, and how many move when nodes come and go.
//!
//! `cargo run --release -p duetime-benches --bin assign [NODES SHARDS]` (1000 and 100000 by default)

use std::time::Duration;

use duetime_core::assign::{assign, shard_key};
use tokio::time::Instant;

/// Nodes that come or go, one after the other, in each row.
const CHANGES: usize = 5;

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("node-{n:04}~{:08x}", n * 2_654_435_761 % 0xffff_ffff)).collect()
}

fn owners(members: &[String], shards: &[u64]) -> (Vec<String>, Duration) {
    let refs: Vec<&str> = members.iter().map(String::as_str).collect();
    let began = Instant::now();
    let owners = assign(&refs, shards);
    let took = began.elapsed();
    (owners.into_iter().map(|member| members[member as usize].clone()).collect(), took)
}

fn main() {
    let mut args = std::env::args().skip(1).filter_map(|arg| arg.parse::<usize>().ok());
    let (nodes, count) = (args.next().unwrap_or(1_000), args.next().unwrap_or(100_000));
    let topics = 25;
    let shards: Vec<u64> = (0..count)
        .map(|n| shard_key(&format!("topic-{}", n % topics), u32::try_from(n / topics).expect("few")))
        .collect();
    let mut members = names(nodes + CHANGES);
    let newcomers = members.split_off(nodes);
    let (mut before, took) = owners(&members, &shards);
    println!("{nodes} nodes, {count} shards, {topics} topics");
    println!("{:<12} {:>8} {:>10} {:>10} {:>8}", "change", "ms", "moved", "least", "ratio");
    println!("{:<12} {:>8.1}", "at first", took.as_secs_f64() * 1e3);
    let mut row = |change: &str, members: &[String], least: usize| {
        let (after, took) = owners(members, &shards);
        let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        let ratio = moved as f64 / least.max(1) as f64;
        println!("{change:<12} {:>8.1} {moved:>10} {least:>10} {ratio:>8.2}", took.as_secs_f64() * 1e3);
        before = after;
    };
    for newcomer in newcomers {
        members.push(newcomer);
        row("one joins", &members, count / members.len());
    }
    for n in 0..CHANGES {
        let least = count.div_ceil(members.len());
        members.remove(n * members.len() / CHANGES);
        row("one leaves", &members, least);
    }
    let (tenth, least) = (members.len() / 10, count / 10);
    members.drain(..tenth);
    row("a tenth dies", &members, least);
}
