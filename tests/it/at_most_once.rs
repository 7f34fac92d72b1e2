//! Topics that deliver at most once lose nothing while nobody crashes, however many shards a consumer asks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duetime_testkit::in_time;
use duetime_testkit::servers::{Node, RedisServer};
use parking_lot::Mutex;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::time::Instant;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const PATIENCE: Duration = Duration::from_secs(60);
const MESSAGES: usize = 800;
const CONSUMERS: usize = 3;

async fn nothing_is_lost(node: &Node) {
    let (client, topic) = (crate::test_node::client(), format!("{}/v1/topics/once", node.url()));
    let settings = json!({"shards": 12, "delivery": "at-most-once"});
    assert_eq!(client.put(&topic).json(&settings).send().await.unwrap().status(), StatusCode::CREATED);
    let items: Vec<Value> = (0..MESSAGES)
        .map(|n| json!({"id": format!("m{n}"), "delay": format!("{}ms", 500 + 2 * n), "payload": "x"}))
        .collect();
    assert!(client.post(format!("{topic}/messages")).json(&items).send().await.unwrap().status().is_success());
    let taken = Arc::new(Mutex::new((BTreeSet::new(), 0)));
    let since = Instant::now();
    let consume = |_| {
        let (client, topic, taken) = (client.clone(), topic.clone(), taken.clone());
        async move {
            while taken.lock().0.len() < MESSAGES {
                in_time!(since.elapsed() < PATIENCE, "{} of {MESSAGES} were delivered", taken.lock().0.len());
                let ask = client.post(format!("{topic}/claim")).json(&json!({"max": 20, "wait": "500ms"}));
                let answer: Value = ask.send().await.unwrap().json().await.unwrap();
                let mut taken = taken.lock();
                for message in answer["messages"].as_array().unwrap() {
                    taken.0.insert(message["id"].as_str().unwrap().to_owned());
                    taken.1 += 1;
                }
            }
        }
    };
    futures::future::join_all((0..CONSUMERS).map(consume)).await;
    let taken = taken.lock();
    assert_eq!((taken.0.len(), taken.1), (MESSAGES, MESSAGES), "each is delivered, and once");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_once_loses_nothing_while_consumers_ask_many_shards_of_the_embedded_store() {
    nothing_is_lost(&Node::start_embedded(PROGRAM, "").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_once_loses_nothing_while_consumers_ask_many_shards_of_redis() {
    let redis = RedisServer::start().await;
    nothing_is_lost(&Node::start(PROGRAM, &redis.url(), "").await).await;
}
