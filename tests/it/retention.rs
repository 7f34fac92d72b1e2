//! Dead letters that their topic keeps no longer, through the API, while the shard count changes.

use std::time::Duration;

use duetime_testkit::in_time;
use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::wait::{Because, let_pass, until};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::test_node::{TestNode, ask, done};

const PATIENCE: Duration = Duration::from_secs(60);

async fn die(node: &Node, ids: &[&str]) {
    let items: Vec<Value> = ids.iter().map(|id| json!({"id": id, "delay": 0, "payload": id})).collect();
    done(node, Method::POST, "gone/messages", &json!(items)).await;
    let mut left = ids.len();
    while left > 0 {
        let claim = done(node, Method::POST, "gone/claim", &json!({"max": 100, "wait": "20s"})).await;
        let receipts: Vec<&Value> = claim["messages"].as_array().unwrap().iter().map(|one| &one["receipt"]).collect();
        left -= receipts.len();
        let refused = json!({"receipts": receipts, "dead": true, "reason": "refused"});
        done(node, Method::POST, "gone/nack", &refused).await;
    }
}

/// Waits until so many are dead, and so many scheduled: what moves between shards counts as that.
async fn has(nodes: &[TestNode], dead: usize, scheduled: usize) {
    let begun = Instant::now();
    loop {
        let view = done(&nodes[0], Method::GET, "gone", &Value::Null).await;
        if view["dead"] == json!(dead) && view["scheduled"] == json!(scheduled) {
            return;
        }
        in_time!(begun.elapsed() < PATIENCE, "there are not {dead} dead letters: {view}");
        let_pass(Duration::from_millis(100), Because::AskedAgain).await;
    }
}

#[tokio::test]
async fn dead_letters_end_whichever_of_two_nodes_looks() {
    let redis = RedisServer::start().await;
    let nodes = &TestNode::sharing(2, &redis, "").await;
    let node = &nodes[0];
    done(node, Method::PUT, "gone", &json!({"shards": 3, "remember": "1h", "paused": false})).await;
    die(node, &["a", "b", "c", "d", "e"]).await;
    let view = done(node, Method::PUT, "gone", &json!({"dead_max": 2, "dead_retention": "1h", "shards": 8})).await;
    assert_eq!((&view["dead_max"], &view["dead_retention"]), (&json!(2), &json!("1h")), "{view}");
    has(nodes, 2, 0).await;
    // Its death is another one now, and what is redriven is not touched.
    let kept = done(node, Method::GET, "gone/dead", &Value::Null).await["messages"][0]["id"].clone();
    done(node, Method::POST, "gone/dead/redrive", &json!({"ids": [kept]})).await;
    done(node, Method::PUT, "gone", &json!({"dead_max": null, "dead_retention": "1s", "paused": true})).await;
    has(nodes, 0, 1).await;
    let path = format!("/v1/topics/gone/messages/{}", kept.as_str().unwrap());
    let (status, there) = ask(node, Method::GET, &path, &Value::Null).await;
    assert_eq!((status, &there["state"], &there["payload"]), (200, &json!("scheduled"), &kept), "{there}");
    for id in ["a", "b", "c", "d", "e"].into_iter().filter(|id| *id != kept.as_str().unwrap()) {
        let (status, gone) = ask(node, Method::GET, &format!("/v1/topics/gone/messages/{id}"), &Value::Null).await;
        assert_eq!((status, &gone["became"]["outcome"]), (404, &json!("dead")), "{gone}");
    }
    let counted = async || {
        let mut counted = 0.0;
        for node in nodes {
            let line = "duetime_messages_total{event=\"dead_expired\",topic=\"gone\"}";
            counted += node.line(line).await.unwrap_or_default();
        }
        (counted > 3.5).then_some(counted)
    };
    let counted = until(PATIENCE, "all that ended are counted", counted).await;
    assert!((counted - 4.0).abs() < 0.5, "each is counted once: {counted}");
}
