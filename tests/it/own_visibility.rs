//! Messages that say how long a claim hides them, through the API, on both stores, also while the shard count changes.

use std::time::Duration;

use duetime_core::Clock as _;
use duetime_testkit::WallClock;
use duetime_testkit::servers::{Node, RedisServer};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::test_node::{TestNode, done};

/// What a topic says, and two messages instead.
const TOPICS_MS: i64 = 120_000;
const LONGER_MS: i64 = 3_600_000;
const SHORTER: Duration = Duration::from_secs(2);
/// Between an answer and a look at the clock, of a machine that does other things.
const SLACK_MS: i64 = 60_000;
const WITHIN: Duration = Duration::from_secs(60);

/// Claims until these have come, each once.
async fn claimed(node: &Node, ask: &Value, wanted: &[&str]) -> Vec<Value> {
    let (mut all, until) = (Vec::<Value>::new(), Instant::now() + WITHIN);
    while all.len() < wanted.len() {
        duetime_testkit::in_time!(Instant::now() < until, "of {wanted:?} came {all:?}");
        let claim = done(node, Method::POST, "jobs/claim", ask).await;
        all.extend(claim["messages"].as_array().unwrap().iter().cloned());
    }
    let mut ids: Vec<&str> = all.iter().map(|one| one["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, wanted);
    all
}

/// How long others are kept from a message, about.
fn left_ms(deadline: &Value) -> i64 {
    deadline.as_i64().unwrap() - WallClock.now().as_millis()
}

fn is_about(left_ms: i64, wanted_ms: i64) -> bool {
    (wanted_ms - SLACK_MS..=wanted_ms + 2_000).contains(&left_ms)
}

async fn each_is_hidden_for_its_own_time(node: &Node) {
    done(node, Method::PUT, "jobs", &json!({"shards": 2, "visibility_timeout": format!("{TOPICS_MS}ms")})).await;
    let jobs = json!([
        {"id": "longer", "visibility_timeout": format!("{LONGER_MS}ms")},
        {"id": "plain"},
        {"id": "shorter", "visibility_timeout": format!("{}ms", SHORTER.as_millis())},
        {"id": "wrong", "visibility_timeout": "25h"},
    ]);
    let answer = done(node, Method::POST, "jobs/messages", &jobs).await;
    assert_eq!(answer["results"][3]["error"]["field"], "visibility_timeout", "{answer}");
    let ask = json!({"max": 10, "wait": "10s"});
    let first = claimed(node, &ask, &["longer", "plain", "shorter"]).await;
    let of = |id: &str| first.iter().find(|one| one["id"] == id).unwrap().clone();
    assert!(is_about(left_ms(&of("longer")["deadline"]), LONGER_MS), "{first:?}");
    assert!(is_about(left_ms(&of("plain")["deadline"]), TOPICS_MS), "{first:?}");
    let moved = done(node, Method::PUT, "jobs", &json!({"shards": 3})).await;
    assert_eq!(moved["shards"], 3, "{moved}");
    // The short one comes again by itself, the others do not.
    let again = claimed(node, &ask, &["shorter"]).await;
    assert_eq!(again[0]["attempt"], 2, "{again:?}");
    // What was answered is a receipt of the claim as it is, whose extension is its own again, wherever it lies by now.
    let receipts: Vec<Value> = ["longer", "plain"].map(|id| of(id)["receipt"].clone()).to_vec();
    let brief = json!({"receipts": receipts, "visibility_timeout": "90s"});
    let extended = done(node, Method::POST, "jobs/extend", &brief).await;
    let receipts: Vec<&Value> = (0..2).map(|at| &extended["results"][at]["receipt"]).collect();
    let extended = done(node, Method::POST, "jobs/extend", &json!({"receipts": receipts})).await;
    for (at, (id, wanted_ms)) in [("longer", LONGER_MS), ("plain", TOPICS_MS)].into_iter().enumerate() {
        assert_eq!(extended["results"][at]["outcome"], "ok", "{extended}");
        let found = done(node, Method::GET, &format!("jobs/messages/{id}"), &Value::Null).await;
        assert!(is_about(left_ms(&found["visible_at"]), wanted_ms), "{found}");
    }
    let receipts: Vec<&Value> = (0..2).map(|at| &extended["results"][at]["receipt"]).collect();
    let acked = done(node, Method::POST, "jobs/ack", &json!({"receipts": receipts})).await;
    assert!((0..2).all(|at| acked["results"][at]["outcome"] == "ok"), "{acked}");
    // A claim that asks for a time has that.
    done(node, Method::POST, "jobs/messages", &jobs[0]).await;
    let mine = json!({"max": 10, "wait": "10s", "visibility_timeout": format!("{TOPICS_MS}ms")});
    let asked = claimed(node, &mine, &["longer"]).await;
    assert!(is_about(left_ms(&asked[0]["deadline"]), TOPICS_MS), "{asked:?}");
}

#[tokio::test]
async fn each_message_is_hidden_for_its_own_time_in_the_embedded_store() {
    let node = TestNode::new("").await;
    each_is_hidden_for_its_own_time(&node).await;
}

#[tokio::test]
async fn each_message_is_hidden_for_its_own_time_on_redis() {
    let redis = RedisServer::start().await;
    each_is_hidden_for_its_own_time(&TestNode::sharing(1, &redis, "").await[0]).await;
}
