//! The most messages of a topic, over HTTP: on both stores, and by two nodes at once.

use std::time::Duration;

use duetime_testkit::in_time;
use duetime_testkit::servers::{Node, RedisServer};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::time::Instant;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const PATIENCE: Duration = Duration::from_secs(20);

struct Shop {
    http: reqwest::Client,
    url: String,
}

impl Shop {
    fn of(node: &Node) -> Self {
        Self { http: crate::http_api::client(), url: node.url() }
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> (StatusCode, Value) {
        let method = method.parse().unwrap();
        let mut request = self.http.request(method, format!("{}/v1/topics/{path}", self.url));
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        (answer.status(), answer.json().await.unwrap())
    }

    async fn enqueue(&self, topic: &str, ids: std::ops::Range<usize>) -> Vec<Value> {
        let items: Vec<Value> = ids.map(|n| json!({"id": format!("order-{n}"), "delay": 0, "payload": "x"})).collect();
        let (status, answer) = self.send("POST", &format!("{topic}/messages"), json!(items)).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer["results"].as_array().unwrap().clone()
    }
}

fn full(answer: &Value) -> bool {
    answer["error"]["code"] == "topic_full"
}

async fn fills_up(node: &Node) {
    let shop = Shop::of(node);
    for topic in ["small", "other"] {
        assert_eq!(shop.send("PUT", topic, json!({"shards": 4})).await.0, StatusCode::CREATED);
    }
    let (status, view) = shop.send("PUT", "small", json!({"max_messages": 10, "max_bytes": "1MiB"})).await;
    assert_eq!((status, &view["max_messages"], &view["max_bytes"]), (StatusCode::OK, &json!(10), &json!(1 << 20)));

    let answers = shop.enqueue("small", 0..15).await;
    assert!(answers[..10].iter().all(|answer| answer["outcome"] == "scheduled"), "{answers:?}");
    assert!(answers[10..].iter().all(full), "{answers:?}");
    let (status, problem) = shop.send("POST", "small/messages", json!({"id": "one", "delay": 0})).await;
    assert_eq!((status, &problem["code"]), (StatusCode::INSUFFICIENT_STORAGE, &json!("topic_full")));
    assert!(problem["detail"].as_str().unwrap().contains("raise max_messages"), "{problem}");
    assert!(!shop.enqueue("other", 0..50).await.iter().any(full), "a full topic harms no other");

    let (status, _) = shop.send("DELETE", "small/messages/order-3", Value::Null).await;
    assert_eq!(status, StatusCode::OK, "a cancel goes on");
    let (_, claimed) = shop.send("POST", "small/claim", json!({"max": 2, "wait": "5s"})).await;
    let receipts: Vec<&Value> = claimed["messages"].as_array().unwrap().iter().map(|m| &m["receipt"]).collect();
    let (status, _) = shop.send("POST", "small/ack", json!({"receipts": receipts})).await;
    assert_eq!((status, receipts.len()), (StatusCode::OK, 2), "claims and acks go on");
    let mut taken = 0;
    let since = Instant::now();
    while taken < 3 {
        in_time!(since.elapsed() < PATIENCE, "{taken} of 3 are taken again");
        let answers = shop.enqueue("small", 100..110).await;
        taken += answers.iter().filter(|answer| answer["outcome"] == "scheduled").count();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (_, view) = shop.send("GET", "small", Value::Null).await;
    assert_eq!((taken, &view["scheduled"]), (3, &json!(10)), "{view}");
    let metrics = shop.http.get(format!("{}/metrics", shop.url)).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("duetime_messages_total{event=\"refused\",topic=\"small\"}"), "it is counted");
}

#[tokio::test]
async fn a_full_topic_refuses_what_is_new_and_harms_no_other_on_the_embedded_store() {
    fills_up(&Node::start_embedded(PROGRAM, "").await).await;
}

#[tokio::test]
async fn a_full_topic_refuses_what_is_new_and_harms_no_other_on_redis() {
    let redis = RedisServer::start().await;
    fills_up(&Node::start(PROGRAM, &redis.url(), "").await).await;
}
