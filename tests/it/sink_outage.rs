//! A broker that is away for many times the visibility timeout: ten minutes, shortened by
//! configuration.

use std::collections::BTreeSet;
use std::time::Duration;

use duetime_testkit::servers::{Proxy, RedisOptions, RedisServer};
use serde_json::json;
use tokio::time::Instant;

use crate::hand_over::{House, ids};
use crate::http_api::client;

/// The outage lasts so many visibility timeouts; ten minutes are 20 of the default.
const TIMEOUTS: u32 = 20;
const VISIBILITY: Duration = Duration::from_millis(500);
const BACKLOG: usize = 10_000;

/// The value of a metric of the topic `orders`, summed over its other labels.
fn value(metrics: &str, name: &str) -> f64 {
    let lines = metrics.lines().filter(|line| line.starts_with(name) && line.contains("topic=\"orders\""));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

async fn metrics(house: &House) -> String {
    client().get(format!("{}/metrics", house.node.url())).send().await.unwrap().text().await.unwrap()
}

/// Enqueues the backlog; after the first part of it `then` is done.
async fn enqueue(house: &House, prefix: &str, mut then: impl FnMut()) {
    let all: Vec<String> = ids(prefix, BACKLOG).collect();
    for (n, part) in all.chunks(1_000).enumerate() {
        house.enqueue("orders", part.iter().cloned()).await;
        if n == 0 {
            then();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_outage_burns_no_attempt_and_ends_without_a_storm_of_expired_claims() {
    let server = RedisServer::start_with(RedisOptions::default()).await;
    let proxy = Proxy::before(server.port()).await;
    let sink = format!(
        "[sinks.r]\ntype = \"redis-stream\"\nurl = {:?}\ntimeout = \"200ms\"\nconnect_timeout = \"200ms\"\n",
        server.url_at(proxy.port())
    );
    let house = House::new(&sink).await;
    let topic = json!({
        "shards": 4, "sink": {"name": "r", "stream": "due"}, "visibility_timeout": VISIBILITY.as_millis() as u64,
        "retry": {"max_attempts": 1},
    });
    let (status, body) = house.topic("orders", topic).await;
    assert_eq!(status, 201, "{body}");
    let began = Instant::now();
    enqueue(&house, "before", || {}).await;
    house.drained("orders", Duration::from_secs(60)).await;
    let usual = began.elapsed();

    // It goes away in the middle of its work: connections end, and new ones end too.
    enqueue(&house, "during", || proxy.cut()).await;
    tokio::time::sleep(VISIBILITY * TIMEOUTS).await;
    let told = metrics(&house).await;
    assert_eq!(value(&told, "duetime_breaker_open"), 1.0);
    let waiting = house.counts("orders").await;
    proxy.heal();
    let began = Instant::now();
    house.drained("orders", Duration::from_secs(60)).await;
    let drained = began.elapsed();

    let told = metrics(&house).await;
    assert_eq!(value(&told, "duetime_claims_expired_total"), 0.0, "{}", house.node.output());
    assert_eq!(house.counts("orders").await["dead"], 0, "one attempt was enough for all");
    // The wait of the breaker may have grown to this before the last probe.
    let noticed = VISIBILITY * TIMEOUTS;
    assert!(drained < usual * 3 + noticed, "{drained:?} for {waiting}, in good times {usual:?}");
    let entries = server.cli(&["--raw", "XRANGE", "due", "-", "+"]);
    let mut lines = entries.lines();
    let mut seen = BTreeSet::new();
    while let Some(line) = lines.next() {
        match line {
            "id" => drop(seen.insert(lines.next().unwrap().to_owned())),
            "attempt" => assert_eq!(lines.next(), Some("1")),
            _ => {}
        }
    }
    assert_eq!(seen.len(), 2 * BACKLOG);
}
