//! Dead letters that are forwarded to another topic, through the API, on both stores, while shard counts change and nodes end.

use std::collections::BTreeMap;
use std::time::Duration;

use duetime_testkit::in_time;
use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::test_node::{TestNode, ask, done};

const PATIENCE: Duration = Duration::from_secs(90);
const LETTERS: usize = 300;

/// Has messages of `paid` die: some are refused, the others expire.
async fn die(node: &Node, begin: usize, count: usize) {
    let ids = begin..begin + count;
    let items: Vec<Value> = ids.map(|n| json!({"id": format!("m{n}"), "delay": 0, "payload": {"n": n}})).collect();
    done(node, Method::POST, "paid/messages", &json!(items)).await;
    let mut left = count;
    while left > 0 {
        let claim = done(node, Method::POST, "paid/claim", &json!({"max": 100, "wait": "20s"})).await;
        let receipts: Vec<&Value> = claim["messages"].as_array().unwrap().iter().map(|one| &one["receipt"]).collect();
        left -= receipts.len();
        done(node, Method::POST, "paid/nack", &json!({"receipts": receipts, "dead": true, "reason": "no card"})).await;
    }
}

/// Takes from `unpaid` until nothing is left in `paid`; how often each came, and the last of them.
async fn consumed(nodes: &[TestNode], wanted: usize) -> (BTreeMap<String, usize>, Value) {
    let (begun, mut seen, mut last) = (Instant::now(), BTreeMap::new(), Value::Null);
    loop {
        let claim = done(&nodes[0], Method::POST, "unpaid/claim", &json!({"max": 100, "wait": "1s"})).await;
        let messages = claim["messages"].as_array().unwrap();
        for message in messages {
            *seen.entry(message["id"].as_str().unwrap().to_owned()).or_default() += 1;
            last = message.clone();
        }
        let receipts: Vec<&Value> = messages.iter().map(|one| &one["receipt"]).collect();
        if !receipts.is_empty() {
            done(&nodes[0], Method::POST, "unpaid/ack", &json!({"receipts": receipts})).await;
        }
        let view = done(&nodes[0], Method::GET, "paid", &Value::Null).await;
        if view["dead"] == json!(0) && seen.len() == wanted && receipts.is_empty() {
            return (seen, last);
        }
        in_time!(begun.elapsed() < PATIENCE, "{} of {wanted} came, and {view}", seen.len());
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
}

async fn with_topics(node: &Node) {
    done(node, Method::PUT, "unpaid", &json!({"shards": 2, "remember": "1h"})).await;
    let paid = json!({"shards": 2, "remember": "1h", "dead_to": "unpaid", "on_expiry": "dead"});
    let view = done(node, Method::PUT, "paid", &paid).await;
    assert_eq!(view["dead_to"], "unpaid");
}

async fn forwards(nodes: &[TestNode]) {
    let node = &nodes[0];
    with_topics(node).await;
    die(node, 0, LETTERS).await;
    let expires = json!({"id": "late", "delay": 0, "expires": "1ms", "payload": "late"});
    done(node, Method::PUT, "paid", &json!({"paused": true, "shards": 5})).await;
    done(node, Method::POST, "paid/messages", &expires).await;
    let_pass(Duration::from_millis(20), Because::Time).await;
    done(node, Method::PUT, "paid", &json!({"paused": false})).await;
    done(node, Method::PUT, "unpaid", &json!({"shards": 3})).await;
    // The claim finds that it has expired.
    done(node, Method::POST, "paid/claim", &json!({"max": 1, "wait": "1s"})).await;
    let (seen, last) = consumed(nodes, LETTERS + 1).await;
    assert!(seen.values().all(|times| *times == 1), "{seen:?}");
    assert!(seen.contains_key("late"), "what expired comes too");
    assert_eq!((&last["headers"]["duetime-dead-from"], &last["attempt"]), (&json!("paid"), &json!(1)), "{last}");
    let (status, gone) = ask(node, Method::GET, "/v1/topics/paid/messages/m7", &Value::Null).await;
    assert_eq!((status, &gone["became"]["outcome"]), (404, &json!("moved")), "{gone}");
    let (status, refused) = ask(node, Method::PUT, "/v1/topics/unpaid", &json!({"dead_to": "paid"})).await;
    assert_eq!((status, &refused["field"]), (400, &json!("dead_to")), "{refused}");
}

#[tokio::test]
async fn dead_letters_of_the_embedded_store_are_forwarded_once() {
    forwards(&[TestNode::new("").await]).await;
}

#[tokio::test]
async fn dead_letters_on_redis_are_forwarded_once_by_two_nodes() {
    let redis = RedisServer::start().await;
    forwards(&TestNode::sharing(2, &redis, "").await).await;
}

#[tokio::test]
async fn a_node_that_is_killed_as_it_forwards_loses_and_doubles_none() {
    let redis = RedisServer::start().await;
    let mut nodes = TestNode::sharing(2, &redis, "").await;
    with_topics(&nodes[0]).await;
    die(&nodes[0], 0, LETTERS).await;
    let begun = Instant::now();
    while done(&nodes[0], Method::GET, "paid", &Value::Null).await["dead"] == json!(LETTERS) {
        in_time!(begun.elapsed() < PATIENCE, "none is forwarded");
        let_pass(Duration::from_millis(1), Because::AskedAgain).await;
    }
    nodes.pop().unwrap().process.kill();
    let (seen, _) = consumed(&nodes, LETTERS).await;
    assert!(seen.values().all(|times| *times == 1), "{seen:?}");
}
