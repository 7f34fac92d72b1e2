//! An operator drains one of two nodes through the other, while messages fall due.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use duetime_testkit::servers::{EtcdServers, Node, Proxy, RedisServer};
use duetime_testkit::wait::{self, Because, let_pass};
use duetime_testkit::{Webhook, in_time};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::test_node::{ask, done};

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const SHARDS: u64 = 8;
const RATE: f64 = 10.0;

/// The node `id` as `node` sees it.
async fn seen(node: &Node, id: &str) -> Value {
    let (_, all) = ask(node, Method::GET, "/v1/nodes", &Value::Null).await;
    all["nodes"].as_array().unwrap().iter().find(|one| one["id"] == id).cloned().unwrap_or_default()
}

async fn until(node: &Node, id: &str, what: &str, done: impl Fn(&Value) -> bool) {
    let begun = Instant::now();
    loop {
        let now = seen(node, id).await;
        if done(&now) {
            return;
        }
        in_time!(begun.elapsed() < PATIENCE, "{what}: {now}");
        let_pass(LOOK_EVERY, Because::AskedAgain).await;
    }
}

async fn enqueue(node: &Node, sent: &mut BTreeSet<String>, count: usize) {
    let ids: Vec<String> = (0..count).map(|n| format!("order-{}", sent.len() + n)).collect();
    let items: Vec<Value> = ids.iter().map(|id| json!({"id": id, "delay": "300ms", "payload": id})).collect();
    done(node, Method::POST, "orders/messages", &json!(items)).await;
    sent.extend(ids);
}

async fn all_are_handed_over(hook: &Webhook, sent: &BTreeSet<String>) {
    let begun = Instant::now();
    loop {
        let handed: BTreeSet<String> =
            hook.hits().into_iter().map(|hit| String::from_utf8(hit.body.to_vec()).unwrap()).collect();
        if handed == *sent {
            return;
        }
        in_time!(begun.elapsed() < PATIENCE, "{} of {} were handed over", handed.len(), sent.len());
        let_pass(LOOK_EVERY, Because::AskedAgain).await;
    }
}

/// Waits until `node` counts `nodes` that work: for "auto" shard counts, four each, and for the capacity of forecasts.
async fn counts_for(node: &Node, nodes: u64) {
    let begun = Instant::now();
    loop {
        let (_, topic) = ask(node, Method::GET, "/v1/topics/follows", &Value::Null).await;
        let (_, forecast) = ask(node, Method::GET, "/v1/topics/follows/forecast?buckets=2", &Value::Null).await;
        let (shards, capacity) = (&topic["shard_count"], &forecast["capacity"]);
        if shards.as_u64() == Some(4 * nodes) && capacity.as_f64() == Some(RATE * nodes as f64) {
            return;
        }
        in_time!(begun.elapsed() < PATIENCE, "{nodes} nodes are counted: {shards} shards, capacity {capacity}");
        let_pass(LOOK_EVERY, Because::AskedAgain).await;
    }
}

async fn one_of_two_is_drained(redis: &RedisServer, ownership: &str) {
    let hook = Webhook::start();
    let config = |id: &str| {
        format!(
            "[node]\nid = \"{id}\"\n{ownership}[resize]\nauto_grow_after = \"1s\"\nauto_shrink_after = \"1s\"\n[sinks.shop]\ntype = \"http\"\nurl = \"{}\"\nallow = [\"127.0.0.1\"]\n",
            hook.url("/")
        )
    };
    let asked = Node::start(PROGRAM, &redis.url(), &config("asked")).await;
    let mut drained = Node::start(PROGRAM, &redis.url(), &config("drained")).await;
    let topic = json!({"shards": SHARDS, "sink": {"name": "shop"}});
    assert_eq!(ask(&asked, Method::PUT, "/v1/topics/orders", &topic).await.0, 201);
    until(&asked, "drained", "it has a share", |node| node["shards_owned"].as_u64() > Some(0)).await;
    // Each says to the other how it does.
    let has_lease = ownership.contains("etcd");
    for (node, other) in [(&asked, "drained"), (&drained, "asked")] {
        until(node, other, "the other said how it does", |other| {
            let vitals = &other["vitals"];
            vitals["memory_bytes"].as_u64() > Some(1 << 20)
                && vitals["at"].as_i64() >= other["since"].as_i64()
                && vitals["lease_since"].is_i64() == has_lease
        })
        .await;
    }
    // What follows the number of nodes: shards that are "auto", and the capacity of a forecast.
    let follows = json!({"shards": "auto", "rate_limit": {"per_second": RATE}});
    assert_eq!(ask(&asked, Method::PUT, "/v1/topics/follows", &follows).await.0, 201);
    for node in [&asked, &drained] {
        counts_for(node, 2).await;
    }

    let output = Command::new(PROGRAM).args(["drain", "drained", "--node", &asked.url()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for node in [&asked, &drained] {
        until(node, "drained", "both see that it is drained and scans nothing", |node| {
            node["state"] == "draining" && node["drain"]["at"].is_i64() && node["shards_owned"] == 0
        })
        .await;
    }
    for node in [&asked, &drained] {
        counts_for(node, 1).await;
    }
    // It answers requests, and a balancer sends them elsewhere.
    let mut sent = BTreeSet::new();
    enqueue(&drained, &mut sent, 200).await;
    all_are_handed_over(&hook, &sent).await;
    assert_eq!(seen(&drained, "drained").await["shards_owned"], 0);
    let (status, why) = ask(&drained, Method::GET, "/readyz", &Value::Null).await;
    assert_eq!((status, &why["code"]), (503, &json!("draining")));
    let last = ask(&drained, Method::POST, "/v1/nodes/asked/drain", &json!({})).await;
    assert_eq!((last.0, &last.1["code"]), (409, &json!("last_node")));
    let (_, audit) = ask(&asked, Method::GET, "/v1/audit", &Value::Null).await;
    assert!(audit["entries"].to_string().contains("/v1/nodes/{id}/drain"), "{audit}");

    // It takes its share again when the drain is ended, and when it is started again.
    assert_eq!(ask(&drained, Method::POST, "/v1/nodes/drained/undrain", &json!({})).await.0, 200);
    let serves = |node: &Value| node["state"] == "serving" && node["shards_owned"].as_u64() > Some(0);
    until(&asked, "drained", "it has a share again", serves).await;
    counts_for(&asked, 2).await;
    assert_eq!(ask(&drained, Method::POST, "/v1/nodes/drained/drain", &json!({})).await.0, 200);
    until(&asked, "drained", "it is drained again", |node| node["state"] == "draining").await;
    drained.kill();
    drained.start_again().await;
    until(&drained, "drained", "who is started again serves", serves).await;
    enqueue(&asked, &mut sent, 100).await;
    all_are_handed_over(&hook, &sent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_drained_through_another_leaves_its_shards_to_it_in_round_robin() {
    let redis = RedisServer::start().await;
    one_of_two_is_drained(&redis, "[ownership]\nmode = \"round-robin\"\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_drained_through_another_leaves_its_shards_to_it_with_etcd() {
    let (redis, etcd) = (RedisServer::start().await, EtcdServers::start(1).await);
    let ownership = format!("[ownership]\nmode = \"etcd\"\netcd = [\"{}\"]\nlease_ttl = \"2s\"\n", etcd.urls()[0]);
    one_of_two_is_drained(&redis, &ownership).await;
}

/// What was sent to Redis may be carried out within this.
const REDIS_WAITS: Duration = Duration::from_millis(1_500);

/// A drain goes to a node whose bytes with `pattern` are kept back by `proxy`; the drain is ended at another node; then
/// the bytes arrive.
async fn a_drain_comes_late(proxy: &Proxy, pattern: &[u8], [held, other, drained]: [&Node; 3]) {
    for node in [held, other] {
        until(node, "drained", "all nodes are there", |node| node["state"] == "serving").await;
        until(node, "other", "all nodes are there", |node| node["state"] == "serving").await;
    }
    proxy.keep_back(pattern, false);
    let (status, why) = ask(held, Method::POST, "/v1/nodes/drained/drain", &json!({})).await;
    wait::until(PATIENCE, "it came to the proxy", async || (proxy.kept() > 0).then_some(())).await;
    // Over another connection the same may be done in time; what was kept back comes late all the same.
    if status != 200 {
        assert_eq!((status, &why["code"]), (503, &json!("authority_unavailable")));
        assert!(why["detail"].as_str().unwrap().contains("it is not known"), "{why}");
    }
    let_pass(2 * REDIS_WAITS, Because::Fault).await;
    assert_eq!(ask(other, Method::POST, "/v1/nodes/drained/undrain", &json!({})).await.0, 200);
    for node in [other, drained] {
        until(node, "drained", "the drain has ended", |node| node["state"] == "serving").await;
    }
    proxy.deliver();
    let begun = Instant::now();
    while begun.elapsed() < 2 * REDIS_WAITS {
        for node in [other, drained] {
            assert_ne!(seen(node, "drained").await["state"], "draining", "a late drain undid the end of it");
        }
        let_pass(LOOK_EVERY, Because::Quiet).await;
    }
    // A drain that is asked for from then on holds.
    assert_eq!(ask(other, Method::POST, "/v1/nodes/drained/drain", &json!({})).await.0, 200);
    until(drained, "drained", "it is drained", |node| node["state"] == "draining").await;
}

fn on(store: &str, id: &str, ownership: &str) -> impl Future<Output = Node> {
    let config = format!("[node]\nid = \"{id}\"\n{ownership}[store]\nresponse_timeout = \"{REDIS_WAITS:?}\"\n");
    let store = store.to_owned();
    async move { Node::start(PROGRAM, &store, &config).await }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_comes_late_undoes_nothing_that_was_asked_of_another_node_in_round_robin() {
    let redis = RedisServer::start().await;
    let proxy = Proxy::before(redis.port()).await;
    let ownership = "[ownership]\nmode = \"round-robin\"\n";
    let held = on(&format!("redis://127.0.0.1:{}/0", proxy.port()), "held", ownership).await;
    let (other, drained) = (on(&redis.url(), "other", ownership).await, on(&redis.url(), "drained", ownership).await);
    a_drain_comes_late(&proxy, b"drain:", [&held, &other, &drained]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_comes_late_undoes_nothing_that_was_asked_of_another_node_with_etcd() {
    let (redis, etcd) = (RedisServer::start().await, EtcdServers::start(1).await);
    let port = etcd.urls()[0].rsplit_once(':').unwrap().1.parse().unwrap();
    let proxy = Proxy::before(port).await;
    let with = |url: &str| format!("[ownership]\nmode = \"etcd\"\netcd = [\"{url}\"]\nlease_ttl = \"2s\"\n");
    let held = on(&redis.url(), "held", &with(&format!("http://127.0.0.1:{}", proxy.port()))).await;
    let direct = with(&etcd.urls()[0]);
    let (other, drained) = (on(&redis.url(), "other", &direct).await, on(&redis.url(), "drained", &direct).await);
    a_drain_comes_late(&proxy, b"at_ms", [&held, &other, &drained]).await;
}

#[tokio::test]
async fn a_lone_node_cannot_be_drained() {
    let node = Node::start_embedded(PROGRAM, "[node]\nid = \"alone\"\n").await;
    let (status, why) = ask(&node, Method::POST, "/v1/nodes/alone/drain", &json!({})).await;
    assert_eq!((status, &why["code"]), (409, &json!("last_node")));
}
