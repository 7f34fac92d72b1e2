//! A topic that nobody deleted and that is not in the store any more: its nodes never say that there is none.

use std::time::Duration;

use duetime_testkit::in_time;
use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::wait::{Because, let_pass, until};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::test_node::ask;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const PATIENCE: Duration = Duration::from_secs(30);
/// Nodes read the catalog again within this.
const READ_WITHIN: Duration = Duration::from_secs(3);
const ORDERS: &str = "/v1/topics/orders";

/// Enqueues at each node, again and again, until all say `code`. None ever says that there is no such topic.
async fn until_all_say(nodes: &[Node], code: &str) {
    let begun = Instant::now();
    let mut saying = 0;
    while saying < nodes.len() {
        saying = 0;
        for node in nodes {
            let message = json!({"delay": "1h", "payload": "x"});
            let (status, said) = ask(node, Method::POST, &format!("{ORDERS}/messages"), &message).await;
            assert!(status == 201 || status == 503, "{status}: {said}");
            saying += usize::from(said["code"] == code);
        }
        in_time!(begun.elapsed() < PATIENCE, "{saying} of {} nodes say {code}", nodes.len());
        let_pass(Duration::from_millis(20), Because::AskedAgain).await;
    }
}

/// What a node says that has no issue.
const READY: &str = r#""status":"ready""#;

/// Waits until each node says this; it serves other topics all the time.
async fn until_readyz(nodes: &[Node], text: &str) {
    let begun = Instant::now();
    for node in nodes {
        loop {
            let (is, said) = ask(node, Method::GET, "/readyz", &Value::Null).await;
            // On a slow machine the store may not answer in time.
            assert!(is == 200 || said["code"] == "store_unavailable", "{is}: {said}");
            if is == 200 && said.to_string().contains(text) {
                break;
            }
            in_time!(begun.elapsed() < PATIENCE, "not {text:?} but {said}");
            let_pass(Duration::from_millis(20), Because::AskedAgain).await;
        }
    }
}

async fn two_nodes(redis: &RedisServer) -> Vec<Node> {
    let mut nodes = Vec::new();
    for _ in 0..2 {
        nodes.push(Node::start(PROGRAM, &redis.url(), "[ownership]\nmode = \"round-robin\"\n").await);
    }
    let (status, made) = ask(&nodes[0], Method::PUT, ORDERS, &json!({"shards": 4})).await;
    assert_eq!(status, 201, "{made}");
    // Both know it.
    for node in &nodes {
        assert_eq!(ask(node, Method::GET, ORDERS, &Value::Null).await.0, 200);
    }
    nodes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_emptied_is_no_deletion_and_topics_are_created_anew() {
    let redis = RedisServer::start().await;
    let nodes = two_nodes(&redis).await;
    redis.cli(&["FLUSHALL"]);
    until_all_say(&nodes, "topic_emptied").await;
    until_readyz(&nodes, "topic_emptied").await;
    // An error in the log.
    nodes[0].until_said("the store was emptied", 1).await;
    let (status, made) = ask(&nodes[1], Method::PUT, ORDERS, &json!({"shards": 4})).await;
    assert_eq!(status, 201, "{made}");
    until_readyz(&nodes, READY).await;
    let message = json!({"id": "a", "delay": "1h", "payload": "x"});
    assert_eq!(ask(&nodes[0], Method::POST, &format!("{ORDERS}/messages"), &message).await.0, 201);
    // A deletion at one node is one for the other, at once and later.
    assert_eq!(ask(&nodes[0], Method::DELETE, &format!("{ORDERS}?force=true"), &Value::Null).await.0, 200);
    let begun = Instant::now();
    while begun.elapsed() < READ_WITHIN {
        for node in &nodes {
            let (status, said) = ask(node, Method::GET, ORDERS, &Value::Null).await;
            assert_eq!((status, said["code"].as_str()), (404, Some("unknown_topic")), "{said}");
        }
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
    until_readyz(&nodes, READY).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalog_that_was_lost_is_reported_from_the_first_request_on_and_its_topic_adopted() {
    let redis = RedisServer::start().await;
    let nodes = two_nodes(&redis).await;
    let message = json!({"id": "a", "delay": "1h", "payload": "x"});
    assert_eq!(ask(&nodes[0], Method::POST, &format!("{ORDERS}/messages"), &message).await.0, 201);
    redis.cli(&["DEL", "duetime:topics"]);
    until_all_say(&nodes, "topic_vanished").await;
    until_readyz(&nodes, "topic_vanished").await;
    let (status, adopted) = ask(&nodes[1], Method::POST, &format!("{ORDERS}/adopt"), &json!({})).await;
    assert_eq!(status, 200, "{adopted}");
    until_readyz(&nodes, READY).await;
    assert_eq!(ask(&nodes[0], Method::GET, &format!("{ORDERS}/messages/a"), &Value::Null).await.0, 200);
}

/// What each of `ids` has for a state; none: the node says that there is no such message.
async fn cancelled(node: &Node, ids: &[String]) -> Vec<Value> {
    let (status, said) = ask(node, Method::POST, &format!("{ORDERS}/cancel"), &json!({ "ids": ids })).await;
    assert!(status == 200 || status == 503, "{status}: {said}");
    said["results"].as_array().cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_went_back_to_before_a_change_of_the_shard_count_answers_no_cancel_with_unknown() {
    for changed_to in [2, 8] {
        let mut redis = RedisServer::start().await;
        let nodes = two_nodes(&redis).await;
        let ids: Vec<String> = (0..200).map(|n| format!("m{n}")).collect();
        let messages: Vec<Value> = ids.iter().map(|id| json!({"id": id, "delay": "1h", "payload": "x"})).collect();
        let (status, said) = ask(&nodes[0], Method::POST, &format!("{ORDERS}/messages"), &json!(messages)).await;
        assert_eq!(status, 200, "{said}");
        redis.cli(&["SAVE"]);
        let change = json!({"shards": changed_to});
        assert_eq!(ask(&nodes[0], Method::PUT, &format!("{ORDERS}/shards"), &change).await.0, 202);
        let begun = Instant::now();
        for node in &nodes {
            loop {
                let (_, shards) = ask(node, Method::GET, &format!("{ORDERS}/shards"), &Value::Null).await;
                if shards["shard_count"] == changed_to && shards.get("resize").is_none_or(Value::is_null) {
                    break;
                }
                in_time!(begun.elapsed() < PATIENCE, "not changed: {shards}");
                let_pass(Duration::from_millis(20), Because::AskedAgain).await;
            }
        }
        // It has what it had when it was saved, and nothing else.
        redis.restart().await;
        for (half, node) in ids.chunks(ids.len() / 2).zip(&nodes) {
            let mut left = half.to_vec();
            let begun = Instant::now();
            while !left.is_empty() {
                let said = cancelled(node, &left).await;
                assert!(said.iter().all(|one| one["outcome"] != "unknown"), "of what is there: {said:?}");
                let done = |id: &String| said.iter().any(|one| one["id"] == **id && one["outcome"] == "cancelled");
                left.retain(|id| !done(id));
                in_time!(begun.elapsed() < PATIENCE, "{} are not cancelled: {said:?}", left.len());
                let_pass(Duration::from_millis(20), Because::AskedAgain).await;
            }
        }
        let is_said = || nodes.iter().any(|node| node.output().contains("the store was rolled back"));
        until(PATIENCE, "an error in the log", async || is_said().then_some(())).await;
        until_readyz(&nodes, READY).await;
        let (_, topic) = ask(&nodes[0], Method::GET, ORDERS, &Value::Null).await;
        assert_eq!((&topic["shard_count"], &topic["scheduled"]), (&json!(4), &json!(0)), "{topic}");
    }
}
