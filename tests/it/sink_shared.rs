//! Topics that share a sink: those whose destinations are slow or silent leave the others their share.

use std::time::Duration;

use duetime_testkit::Webhook;
use duetime_testkit::servers::NatsServer;
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::Answer;
use futures::StreamExt as _;
use serde_json::json;
use tokio::time::Instant;

use crate::test_node::{TestNode, ids};

/// Slow topics of a webhook: more than a quarter of the 64 requests that it takes at once.
const SLOW_TOPICS: usize = 100;
const SLOW: Duration = Duration::from_secs(5);
/// Silent topics of a broker, which each have 1,024 messages on their way.
const SILENT_TOPICS: usize = 20;
const ON_THEIR_WAY: usize = 1_024;
/// Messages of the topic `orders`, one after the other.
const ORDERS: usize = 100;
const APART: Duration = Duration::from_millis(100);
/// Almost all orders are delivered within this, on a machine with other work to do.
const LATE_MAX: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);

/// Orders among other topics of their sink are on time.
async fn on_time(node: &TestNode) {
    let before = node.metric("duetime_lateness_seconds_count").await;
    let in_time = node.bucket("duetime_lateness_seconds", LATE_MAX).await;
    for id in ids("order", ORDERS) {
        node.enqueue("orders", [id]).await;
        let_pass(APART, Because::Rate).await;
    }
    let end = Instant::now() + PATIENCE;
    while node.metric("duetime_lateness_seconds_count").await < before + ORDERS as f64 {
        duetime_testkit::in_time!(Instant::now() < end, "not all orders are handed over:\n{}", node.process.output());
        let_pass(APART, Because::AskedAgain).await;
    }
    let in_time = node.bucket("duetime_lateness_seconds", LATE_MAX).await - in_time;
    duetime_testkit::in_time!(in_time >= 0.98 * ORDERS as f64, "{in_time} of {ORDERS} within {LATE_MAX:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quick_topic_is_on_time_beside_a_hundred_slow_ones_of_its_webhook() {
    let hook = Webhook::start();
    hook.answer(|hit| Answer::status(200).after(if hit.path.ends_with("slow") { SLOW } else { Duration::ZERO }));
    let sink = format!("[sinks.s]\ntype = \"http\"\nurl = {:?}\nallow = [\"127.0.0.1\"]\n", hook.url("/due"));
    let node = TestNode::new(&sink).await;
    node.orders(&json!({"path": "/quick"}), json!("1m")).await;
    node.enqueue("orders", ids("first", 10)).await;
    node.drained("orders", PATIENCE).await;
    for topic in ids("slow", SLOW_TOPICS) {
        let (status, body) = node.topic(&topic, json!({"shards": 1, "sink": {"name": "s", "path": "/slow"}})).await;
        assert_eq!(status, 201, "{body}");
        node.enqueue(&topic, ids("m", 20)).await;
    }
    on_time(&node).await;
    let slow = hook.hits().iter().filter(|hit| hit.path.ends_with("slow")).count();
    assert!(slow >= SLOW_TOPICS / 2, "{slow} requests of slow topics: they have their share too");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_on_time_beside_any_number_of_silent_ones_of_its_broker() {
    let server = NatsServer::start_with("").await;
    let client = async_nats::connect(server.url()).await.unwrap();
    let orders = async_nats::jetstream::stream::Config {
        name: "ORDERS".to_owned(),
        subjects: vec!["orders".to_owned()],
        ..Default::default()
    };
    async_nats::jetstream::new(client.clone()).create_stream(orders).await.unwrap();
    // Somebody listens, so that the server refuses nothing, and says nothing.
    let mut listener = client.subscribe("silent.>").await.unwrap();
    client.flush().await.unwrap();
    let listening = tokio::spawn(async move { while listener.next().await.is_some() {} });
    let node =
        TestNode::new(&format!("[sinks.s]\ntype = \"nats\"\nurl = {:?}\ntimeout = \"20s\"\n", server.url())).await;
    node.orders(&json!({"subject": "orders"}), json!("1m")).await;
    node.enqueue("orders", ids("first", 10)).await;
    node.drained("orders", PATIENCE).await;
    for topic in ids("silent", SILENT_TOPICS) {
        let sink = json!({"name": "s", "subject": "silent.{topic}"});
        let (status, body) = node.topic(&topic, json!({"shards": 1, "sink": sink})).await;
        assert_eq!(status, 201, "{body}");
        let all: Vec<String> = ids("m", ON_THEIR_WAY).collect();
        for part in all.chunks(ON_THEIR_WAY / 2) {
            node.enqueue(&topic, part.iter().cloned()).await;
        }
    }
    on_time(&node).await;
    listening.abort();
}
