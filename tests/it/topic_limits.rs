//! The most messages of a topic, over HTTP, and by two nodes at once.

use std::time::Duration;

use duetime_testkit::in_time;
use duetime_testkit::servers::RedisServer;
use duetime_testkit::wait::{Because, let_pass};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::test_node::TestNode;

const PATIENCE: Duration = Duration::from_secs(20);

async fn enqueue(node: &TestNode, topic: &str, ids: std::ops::Range<usize>) -> Vec<Value> {
    let items = ids.map(|n| json!({"id": format!("order-{n}"), "delay": 0, "payload": "x"})).collect();
    node.results(topic, items).await
}

fn full(answer: &Value) -> bool {
    answer["error"]["code"] == "topic_full"
}

#[tokio::test]
async fn a_full_topic_refuses_what_is_new_and_harms_no_other() {
    let node = &TestNode::new("").await;
    for topic in ["small", "other"] {
        assert_eq!(node.topic(topic, json!({"shards": 4})).await.0, StatusCode::CREATED);
    }
    let (status, view) = node.topic("small", json!({"max_messages": 10, "max_bytes": "1MiB"})).await;
    assert_eq!((status, &view["max_messages"], &view["max_bytes"]), (StatusCode::OK, &json!(10), &json!(1 << 20)));

    let answers = enqueue(node, "small", 0..15).await;
    assert!(answers[..10].iter().all(|answer| answer["outcome"] == "scheduled"), "{answers:?}");
    assert!(answers[10..].iter().all(full), "{answers:?}");
    let (status, problem) = node.post("/v1/topics/small/messages", json!({"id": "one", "delay": 0})).await;
    assert_eq!((status, &problem["code"]), (StatusCode::INSUFFICIENT_STORAGE, &json!("topic_full")));
    assert!(problem["detail"].as_str().unwrap().contains("raise max_messages"), "{problem}");
    assert!(!enqueue(node, "other", 0..50).await.iter().any(full), "a full topic harms no other");

    let (status, _) = node.call(Method::DELETE, "/v1/topics/small/messages/order-3", json!({})).await;
    assert_eq!(status, StatusCode::OK, "a cancel goes on");
    let (_, claimed) = node.post("/v1/topics/small/claim", json!({"max": 2, "wait": "5s"})).await;
    let receipts: Vec<&Value> = claimed["messages"].as_array().unwrap().iter().map(|m| &m["receipt"]).collect();
    let (status, _) = node.post("/v1/topics/small/ack", json!({"receipts": receipts})).await;
    assert_eq!((status, receipts.len()), (StatusCode::OK, 2), "claims and acks go on");
    let mut taken = 0;
    let since = Instant::now();
    while taken < 3 {
        in_time!(since.elapsed() < PATIENCE, "{taken} of 3 are taken again");
        let answers = enqueue(node, "small", 100..110).await;
        taken += answers.iter().filter(|answer| answer["outcome"] == "scheduled").count();
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
    let (_, view) = node.get("/v1/topics/small").await;
    assert_eq!((taken, &view["scheduled"]), (3, &json!(10)), "{view}");
    let metrics = node.metrics().await;
    assert!(metrics.contains("duetime_messages_total{event=\"refused\",topic=\"small\"}"), "it is counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_at_once_fill_a_topic_and_pass_its_limit_by_nearly_nothing() {
    const MOST: u64 = 200;
    // What is left when both count is rounded up for each, and one may count a moment before the other has taken.
    const NEARLY_NOTHING: u64 = 20;
    let redis = RedisServer::start().await;
    let nodes = TestNode::sharing(2, &redis, "").await;
    let limit = json!({"shards": 4, "max_messages": MOST});
    assert_eq!(nodes[0].topic("small", limit).await.0, StatusCode::CREATED);
    let since = Instant::now();
    for node in &nodes {
        loop {
            // A node that does not know of the other yet would take its part as well.
            let (_, listed) = node.get("/v1/nodes").await;
            if listed["nodes"].as_array().is_some_and(|nodes| nodes.len() == 2) {
                break;
            }
            in_time!(since.elapsed() < PATIENCE, "the nodes see each other: {listed}");
            let_pass(Duration::from_millis(50), Because::AskedAgain).await;
        }
    }
    let offers = |node: usize| {
        let (node, mut next) = (&nodes[node], node * 1_000_000);
        async move {
            let mut taken = 0;
            let since = Instant::now();
            // Until nothing was taken for two counts.
            let mut last = Instant::now();
            while last.elapsed() < Duration::from_secs(3) {
                in_time!(since.elapsed() < PATIENCE, "{taken} were taken and it goes on");
                let answers = enqueue(node, "small", next..next + 20).await;
                next += 20;
                let some = answers.iter().filter(|answer| answer["outcome"] == "scheduled").count();
                assert!(answers.iter().all(|answer| answer["outcome"] == "scheduled" || full(answer)), "{answers:?}");
                if some > 0 {
                    last = Instant::now();
                }
                taken += some as u64;
                let_pass(Duration::from_millis(20), Because::AskedAgain).await;
            }
            taken
        }
    };
    let (first, second) = tokio::join!(offers(0), offers(1));
    let (_, view) = nodes[1].get("/v1/topics/small").await;
    let taken = first + second;
    // By no more than what was left a second before, which is all at most.
    assert!(taken <= 2 * MOST && view["scheduled"] == taken, "{taken}, by the first {first}, {view}");
    in_time!(
        (MOST..=MOST + NEARLY_NOTHING).contains(&taken),
        "all that fits, and nearly no more: {taken}, by the first {first}, {view}"
    );
}
