//! SIGTERM: nothing in flight is lost, nothing is delivered twice.

use std::collections::BTreeMap;
use std::time::Duration;

use duetime_testkit::Webhook;
use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::Answer;
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};

use crate::test_node::done;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const MESSAGES: usize = 3_000;
/// How long a delivery takes: long enough for many to be under way when the signal comes.
const CALL: Duration = Duration::from_millis(60);
const GRACE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(60);

fn config(hook: &Webhook) -> String {
    format!(
        "[node]\nshutdown_grace = \"{}s\"\n\n[sinks.hook]\ntype = \"http\"\nurl = \"{}\"\nallow = [\"127.0.0.1\"]\n\n\
         [topics.orders]\nshards = 4\nsink = {{ name = \"hook\" }}\n",
        GRACE.as_secs(),
        hook.url("/in")
    )
}

/// Messages that fall due one after the other in the coming three seconds.
async fn enqueue(node: &Node) {
    let lines: Vec<String> = (0..MESSAGES)
        .map(|n| json!({ "id": format!("o-{n}"), "delay": format!("{n}ms"), "payload": "close the order" }).to_string())
        .collect();
    let answer = crate::test_node::client()
        .post(format!("{}/v1/topics/orders/messages", node.url()))
        .header(CONTENT_TYPE, "application/x-ndjson")
        .body(lines.join("\n"))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    let body = answer.text().await.unwrap();
    assert_eq!(body.matches("\"scheduled\"").count(), MESSAGES);
}

/// Waits until that many arrived. What is neither there nor waits at the node is lost.
async fn wait_for(node: &Node, hook: &Webhook, count: usize) {
    let arrived = async {
        while hook.hits().len() < count {
            let_pass(Duration::from_millis(20), Because::AskedAgain).await;
        }
    };
    if tokio::time::timeout(PATIENCE, arrived).await.is_err() {
        let topic = done(node, Method::GET, "orders", &Value::Null).await;
        let waits = topic["scheduled"].as_u64().unwrap() + topic["in_flight"].as_u64().unwrap();
        let arrived = hook.hits().len();
        assert!(arrived >= count || waits > 0, "lost: {arrived} of {count} arrived, and the node has {topic}");
        duetime_testkit::in_time!(arrived >= count, "{arrived} of {count} arrived, and the node has {topic}");
    }
}

fn arrivals(hook: &Webhook) -> BTreeMap<String, usize> {
    let mut arrivals = BTreeMap::new();
    for hit in hook.hits() {
        *arrivals.entry(hit.header("duetime-id").to_owned()).or_default() += 1;
    }
    arrivals
}

async fn ends_under_load_and_loses_nothing(mut node: Node, hook: Webhook) {
    hook.answer(|_| Answer::status(200).after(CALL));
    enqueue(&node).await;
    wait_for(&node, &hook, MESSAGES / 4).await;

    let status = node.sigterm(GRACE).await;
    assert!(status.success(), "{status}: {}", node.output());
    let before = hook.hits().len();
    duetime_testkit::in_time!(before < MESSAGES, "the signal came under load");
    let_pass(CALL * 3, Because::Quiet).await;
    assert_eq!(hook.hits().len(), before, "a node that has ended delivers nothing");

    node.start_again().await;
    wait_for(&node, &hook, MESSAGES).await;
    let_pass(CALL * 10, Because::Quiet).await;
    let arrivals = arrivals(&hook);
    assert_eq!(arrivals.len(), MESSAGES, "nothing is lost");
    let twice: Vec<&String> = arrivals.iter().filter(|(_, times)| **times > 1).map(|(id, _)| id).collect();
    assert!(twice.is_empty(), "delivered twice: {twice:?}");
    let attempts = hook.hits().iter().filter(|hit| hit.header("duetime-attempt") != "1").count();
    assert_eq!(attempts, 0, "what was given back cost no attempt");
    assert!(node.sigterm(GRACE).await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_on_the_embedded_store_ends_under_load_and_nothing_is_lost_or_delivered_twice() {
    let hook = Webhook::start();
    let node = Node::start_embedded(PROGRAM, &config(&hook)).await;
    ends_under_load_and_loses_nothing(node, hook).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_on_redis_ends_under_load_and_nothing_is_lost_or_delivered_twice() {
    let redis = RedisServer::start().await;
    let hook = Webhook::start();
    let node = Node::start(PROGRAM, &redis.url(), &config(&hook)).await;
    ends_under_load_and_loses_nothing(node, hook).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_nothing_to_do_ends_at_once() {
    let hook = Webhook::start();
    let mut node = Node::start_embedded(PROGRAM, &config(&hook)).await;
    let status = node.sigterm(Duration::from_secs(2)).await;
    assert!(status.success(), "{status}: {}", node.output());
}
