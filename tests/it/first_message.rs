//! Topics that are made by their first message.

use duetime_testkit::servers::{Node, RedisServer};
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::test_node::{TestNode, ask, done};

const RULES: &str = "[topics_default]\ncreate = true\n[topics.\"orders-*\"]\ncreate = true\nmax_messages = 100\n\
                     [topics.\"secret-*\"]\nmax_messages = 1\n";

/// Sends so many messages to each node at once.
async fn send(nodes: &[&Node], topic: &str, each: usize) {
    let path = format!("/v1/topics/{topic}/messages");
    let one = async |node: &Node| ask(node, Method::POST, &path, &json!({"delay": "1h"})).await;
    let answers = join_all(nodes.iter().flat_map(|node| (0..each).map(|_| one(node)))).await;
    for (status, answer) in answers {
        assert_eq!(status, 201, "{answer}");
    }
}

async fn check(node: &Node, wanted: &Value) {
    let made = done(node, Method::GET, "orders-1", &Value::Null).await;
    assert_eq!((&made["scheduled"], &made["version"], &made["max_messages"]), (wanted, &json!(1), &json!(100)));
}

#[tokio::test]
async fn first_messages_at_two_nodes_make_one_topic() {
    let redis = RedisServer::start().await;
    let nodes = TestNode::sharing(2, &redis, RULES).await;
    send(&[&nodes[0], &nodes[1]], "orders-1", 10).await;
    check(&nodes[0], &json!(20)).await;
    check(&nodes[1], &json!(20)).await;
    send(&[&nodes[0]], "bills", 1).await;
    let (status, refused) = ask(&nodes[0], Method::POST, "/v1/topics/secret-1/messages", &json!({})).await;
    assert_eq!((status, &refused["code"]), (404, &json!("unknown_topic")));
}
