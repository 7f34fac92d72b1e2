//! What Prometheus sees.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::test_node::{client, done};
use duetime_metrics::table::{Kind, TABLE};
use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use reqwest::Method;
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");

/// Between two surveys of all shards, and a little more.
const SURVEYED_WITHIN: Duration = Duration::from_secs(60);
const CONFIG: &str = "[sinks.out]\ntype = \"log\"\n\
    [sinks.away]\ntype = \"http\"\nurl = \"http://127.0.0.1:1/\"\nallow = [\"127.0.0.1\"]\n";

async fn scrape(node: &Node) -> String {
    let answer = client().get(format!("{}/metrics", node.url())).send().await.unwrap();
    assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/plain; version=0.0.4"));
    answer.text().await.unwrap()
}

/// A node whose messages were scheduled, cancelled, delivered to a sink and to a consumer, and buried.
async fn busy_node() -> Node {
    let node = Node::start_embedded(PROGRAM, CONFIG).await;
    for (topic, settings) in
        [("orders", json!({"shards": 2, "retry": {"max_attempts": 1}})), ("logged", json!({"sink": {"name": "out"}}))]
    {
        let request = client().put(format!("{}/v1/topics/{topic}", node.url())).json(&settings);
        assert_eq!(request.send().await.unwrap().status(), 201);
    }
    let many: Vec<Value> = (0..20).map(|n| json!({"id": n.to_string()})).collect();
    done(&node, Method::POST, "logged/messages", &json!(many)).await;
    done(&node, Method::POST, "orders/messages", &json!(many)).await;
    done(&node, Method::POST, "orders/messages", &json!([{"id": "later", "delay": "1h"}, {"id": "0", "delay": "1h"}]))
        .await;
    done(&node, Method::POST, "orders/cancel", &json!({"ids": ["later"]})).await;
    let mut receipts: Vec<Value> = Vec::new();
    while receipts.len() < 20 {
        let claim = done(&node, Method::POST, "orders/claim", &json!({"max": 20, "wait": "10s"})).await;
        receipts.extend(claim["messages"].as_array().unwrap().iter().map(|m| m["receipt"].clone()));
    }
    done(&node, Method::POST, "orders/ack", &json!({"receipts": receipts[..15]})).await;
    done(&node, Method::POST, "orders/nack", &json!({"receipts": receipts[15..]})).await;
    let begun = tokio::time::Instant::now();
    while !scrape(&node).await.contains("duetime_messages_total{event=\"delivered\",topic=\"logged\"} 20") {
        duetime_testkit::in_time!(
            begun.elapsed() < Duration::from_secs(20),
            "the log took nothing:\n{}",
            node.output()
        );
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
    node
}

type Labels = BTreeMap<String, String>;

/// Samples by metric: labels and value.
fn samples(text: &str) -> BTreeMap<String, Vec<(Labels, f64)>> {
    let mut found: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let pairs = labels.trim_end_matches('}').split("\",").filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let (label, value) = pair.split_once("=\"").unwrap();
            (label.to_owned(), value.trim_end_matches('"').to_owned())
        });
        found.entry(name.to_owned()).or_default().push((pairs.collect(), value.parse().unwrap()));
    }
    found
}

#[tokio::test]
async fn prometheus_reads_what_a_busy_node_serves() {
    let node = busy_node().await;
    let text = scrape(&node).await;
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("promtool does not start ({error}); `./test --tools` installs what the tests need")
        });
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.trim().is_empty(), "{told}");
}

#[tokio::test]
async fn names_kinds_and_labels_are_those_of_the_table() {
    let node = busy_node().await;
    // A target that is away, and the first survey of the shards.
    let away = client().put(format!("{}/v1/topics/away", node.url())).json(&json!({"sink": {"name": "away"}}));
    assert_eq!(away.send().await.unwrap().status(), 201);
    done(&node, Method::POST, "away/messages", &json!([{"id": "a"}])).await;
    let begun = tokio::time::Instant::now();
    let wanted = ["duetime_sink_errors_total{", "duetime_shard_due{", "duetime_shard_oldest_due_age_seconds{"];
    let text = loop {
        let text = scrape(&node).await;
        if wanted.iter().all(|name| text.contains(name)) {
            break text;
        }
        duetime_testkit::in_time!(begun.elapsed() < SURVEYED_WITHIN, "not all of {wanted:?} are served:\n{text}");
        let_pass(Duration::from_millis(100), Because::AskedAgain).await;
    };
    let mut served = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(served.insert(name, kind).is_none(), "{name} is there twice");
        }
    }
    let all = samples(&text);
    for row in TABLE {
        let kind = match row.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        // A metric without any series yet is not served: the embedded store did not fail and lost nothing, and
        // there is no certificate.
        let Some(given) = served.get(row.name) else {
            let may_lack = ["duetime_shards_lost", "duetime_certificate_ends_timestamp_seconds"];
            assert!(may_lack.contains(&row.name), "{} is not served", row.name);
            continue;
        };
        assert_eq!(*given, kind, "{}", row.name);
        assert!(text.contains(&format!("# HELP {} {}", row.name, row.help)));
        let series = if kind == "histogram" { format!("{}_count", row.name) } else { row.name.to_owned() };
        let wanted: BTreeSet<&str> = row.labels.iter().copied().collect();
        for (labels, value) in &all[&series] {
            assert_eq!(labels.keys().map(String::as_str).collect::<BTreeSet<_>>(), wanted, "{series}");
            let is_signed = series.ends_with("_skew_seconds");
            assert!(*value >= 0.0 || is_signed, "{series} {labels:?}");
        }
    }
    let known: BTreeSet<&str> = TABLE.iter().map(|row| row.name).collect();
    for name in served.keys() {
        assert!(known.contains(name) || name.starts_with("process_"), "{name} is not in the table");
    }
    assert!(served.contains_key("process_resident_memory_bytes"));
}

#[tokio::test]
async fn the_numbers_are_what_happened() {
    let node = busy_node().await;
    let all = samples(&scrape(&node).await);
    let value = |name: &str, labels: &[(&str, &str)]| {
        let labels: Labels = labels.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        all[name].iter().find(|(given, _)| *given == labels).map(|(_, value)| *value)
    };
    for (event, count) in [
        ("scheduled", 21.0),
        ("duplicate", 1.0),
        ("cancelled", 1.0),
        ("claimed", 20.0),
        ("delivered", 15.0),
        ("dead", 5.0),
        ("redriven", 0.0),
    ] {
        let labels = [("topic", "orders"), ("event", event)];
        assert_eq!(value("duetime_messages_total", &labels), Some(count), "{event}");
    }
    assert_eq!(value("duetime_lateness_seconds_count", &[("topic", "logged")]), Some(20.0));
    assert_eq!(value("duetime_lateness_seconds_count", &[("topic", "orders")]), Some(20.0));
    assert_eq!(value("duetime_shards", &[("topic", "orders")]), Some(2.0));
    assert_eq!(value("duetime_nodes_serving", &[("mode", "solo")]), Some(1.0));
    let claims = [("route", "/v1/topics/{topic}/ack"), ("method", "POST"), ("status", "200")];
    assert_eq!(value("duetime_http_requests_total", &claims), Some(1.0));
    assert_eq!(value("duetime_http_request_seconds_count", &claims[..2]), Some(1.0));
    let (build, _) = &all["duetime_build_info"][0];
    let (store, mode) = (build["store"].as_str(), build["mode"].as_str());
    assert_eq!((build["version"].as_str(), store, mode), (env!("CARGO_PKG_VERSION"), "embedded", "solo"));
    let printed = Command::new(PROGRAM).arg("--version").output().unwrap().stdout;
    let printed = String::from_utf8(printed).unwrap();
    let named = format!("features: {})", build["features"]);
    assert!(printed.contains(&build["commit"]) && printed.trim_end().ends_with(&named), "{build:?}, {printed}");
    assert_eq!(value("duetime_cancels_total", &[("topic", "orders"), ("verdict", "cancelled")]), Some(1.0));
    assert_eq!(value("duetime_auth_refused_total", &[("reason", "token_missing")]), Some(0.0));
    assert!(value("duetime_store_call_seconds_count", &[("op", "enqueue")]).unwrap() >= 3.0);
}

/// What became of one message of a topic with one shard: enqueued, read and cancelled, another one claimed and acked.
#[tokio::test]
async fn a_call_of_the_store_is_counted_once() {
    let node = &Node::start_embedded(PROGRAM, "").await;
    let of_topic = format!("{}/v1/topics/counted", node.url());
    let made = client().put(&of_topic).json(&json!({"shards": 1})).send().await.unwrap();
    assert_eq!(made.status(), 201);
    let calls = async || {
        let all = samples(&scrape(node).await);
        let count = |op: &str| {
            let labels = Labels::from([("op".to_owned(), op.to_owned())]);
            all["duetime_store_call_seconds_count"].iter().find(|(given, _)| *given == labels).map_or(0.0, |(_, n)| *n)
        };
        ["enqueue", "get", "edit", "claim", "settle"].map(count)
    };
    assert_eq!(calls().await, [0.0; 5], "nothing was done");
    done(node, Method::POST, "counted/messages", &json!({"id": "a", "delay": "1h"})).await;
    let read = client().get(format!("{of_topic}/messages/a")).send().await.unwrap();
    assert_eq!(read.status(), 200);
    let cancelled = client().delete(format!("{of_topic}/messages/a")).send().await.unwrap();
    assert_eq!(cancelled.status(), 200);
    assert_eq!(calls().await, [1.0, 1.0, 1.0, 0.0, 0.0]);
    done(node, Method::POST, "counted/messages", &json!({"id": "b"})).await;
    let claimed = done(node, Method::POST, "counted/claim", &json!({"max": 1, "wait": "10s"})).await;
    let receipt = &claimed["messages"][0]["receipt"];
    assert!(receipt.is_string(), "{claimed}");
    done(node, Method::POST, "counted/ack", &json!({"receipts": [receipt]})).await;
    assert_eq!(calls().await, [2.0, 1.0, 1.0, 1.0, 1.0]);
}

async fn until_served(node: &Node, line: &str) {
    let begun = tokio::time::Instant::now();
    loop {
        let text = scrape(node).await;
        if text.lines().any(|served| served == line) {
            return;
        }
        duetime_testkit::in_time!(begun.elapsed() < SURVEYED_WITHIN, "{line} is not served:\n{text}");
        let_pass(Duration::from_millis(100), Because::AskedAgain).await;
    }
}

#[tokio::test]
async fn a_message_that_is_given_back_for_later_is_a_retry_that_waits() {
    let node = Node::start_embedded(PROGRAM, "").await;
    let made = client().put(format!("{}/v1/topics/orders", node.url())).json(&json!({"shards": 1})).send().await;
    assert_eq!(made.unwrap().status(), 201);
    done(&node, Method::POST, "orders/messages", &json!({"id": "a"})).await;
    let claimed = done(&node, Method::POST, "orders/claim", &json!({"max": 1, "wait": "10s"})).await;
    let receipt = &claimed["messages"][0]["receipt"];
    done(&node, Method::POST, "orders/nack", &json!({"receipts": [receipt], "delay": "1h"})).await;
    until_served(&node, "duetime_retries_waiting{topic=\"orders\"} 1").await;
}

#[tokio::test]
async fn an_enqueue_that_fewer_replicas_have_than_were_asked_for_is_counted() {
    let redis = RedisServer::start().await;
    let node = Node::start(PROGRAM, &redis.url(), "[store]\ndurability = \"replicas:1\"\n").await;
    let made = client().put(format!("{}/v1/topics/orders", node.url())).json(&json!({"shards": 1})).send().await;
    assert_eq!(made.unwrap().status(), 201);
    done(&node, Method::POST, "orders/messages", &json!({"id": "a", "delay": "1h"})).await;
    let text = scrape(&node).await;
    let served = samples(&text)["duetime_replica_waits_total"].clone();
    let count = |reached: &str| served.iter().find(|(labels, _)| labels["reached"] == reached).map(|(_, n)| *n);
    assert!(count("no").unwrap() >= 1.0, "{served:?}");
    assert_eq!(count("yes"), Some(0.0));
}
