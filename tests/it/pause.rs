//! A topic is paused at one of two nodes while messages fall due, and resumed at the other.

use std::collections::BTreeSet;
use std::time::Duration;

use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::{Webhook, in_time};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::test_node::done;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const PATIENCE: Duration = Duration::from_secs(30);
/// Within this all nodes have stopped.
const STOPS_WITHIN: Duration = Duration::from_secs(1);
/// What is sent in a step, and how long that is.
const STEP: usize = 4;
const STEP_TIME: Duration = Duration::from_millis(100);

/// Enqueues messages that fall due one after the other, for this long.
async fn load(node: &Node, sent: &mut Vec<String>, lasts: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < lasts {
        let ids: Vec<String> = (0..STEP).map(|n| format!("order-{}", sent.len() + n)).collect();
        let items: Vec<Value> = ids
            .iter()
            .enumerate()
            .map(|(n, id)| json!({"id": id, "delay": format!("{}ms", n * 200), "payload": id}))
            .collect();
        done(node, Method::POST, "orders/messages", &json!(items)).await;
        sent.extend(ids);
        let_pass(STEP_TIME, Because::Rate).await;
    }
}

fn handed(hook: &Webhook) -> Vec<String> {
    hook.hits().into_iter().map(|hit| String::from_utf8(hit.body.to_vec()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_topic_stops_at_all_nodes_survives_their_end_and_loses_nothing() {
    let (redis, hook) = (RedisServer::start().await, Webhook::start());
    let config = format!(
        "[ownership]\nmode = \"round-robin\"\n[sinks.shop]\ntype = \"http\"\nurl = \"{}\"\nallow = [\"127.0.0.1\"]\n",
        hook.url("/")
    );
    let mut first = Node::start(PROGRAM, &redis.url(), &config).await;
    let second = Node::start(PROGRAM, &redis.url(), &config).await;
    done(&first, Method::PUT, "orders", &json!({"shards": 8, "sink": {"name": "shop"}})).await;
    let mut sent = Vec::new();
    load(&second, &mut sent, Duration::from_secs(3)).await;
    let begun = Instant::now();
    while handed(&hook).len() < sent.len() / 2 {
        in_time!(begun.elapsed() < PATIENCE, "{} of {} were handed over", handed(&hook).len(), sent.len());
        let_pass(STEP_TIME, Because::AskedAgain).await;
    }

    assert_eq!(done(&first, Method::POST, "orders/pause", &json!({})).await["paused"], true);
    load(&second, &mut sent, STOPS_WITHIN).await;
    let stopped = handed(&hook).len();
    load(&second, &mut sent, Duration::from_secs(3)).await;
    let late = handed(&hook).len() - stopped;
    in_time!(late == 0, "{late} messages were handed over more than a second after the topic was paused");
    assert_eq!(done(&second, Method::GET, "orders", &Value::Null).await["paused"], true);

    // It holds when a node ends, and delays go on falling due.
    first.kill();
    first.start_again().await;
    let_pass(Duration::from_secs(2), Because::Fault).await;
    assert_eq!(handed(&hook).len(), stopped + late);
    let waits = done(&first, Method::GET, "orders", &Value::Null).await["due"].as_u64().unwrap();
    assert_eq!(waits as usize, sent.len() - stopped - late);
    let gone = sent.last().unwrap().clone();
    let explained = done(&first, Method::GET, &format!("orders/messages/{gone}/explain"), &Value::Null).await;
    assert!(explained["next"].as_str().unwrap().contains("duetime resume orders"), "{explained}");
    assert_eq!(
        done(&first, Method::DELETE, &format!("orders/messages/{gone}"), &json!({})).await["outcome"],
        "cancelled"
    );

    done(&second, Method::POST, "orders/resume", &json!({})).await;
    let begun = Instant::now();
    while handed(&hook).len() < sent.len() - 1 {
        in_time!(begun.elapsed() < PATIENCE, "{} of {} were handed over", handed(&hook).len(), sent.len() - 1);
        let_pass(STEP_TIME, Because::AskedAgain).await;
    }
    let_pass(Duration::from_secs(1), Because::Quiet).await;
    let all = handed(&hook);
    let once: BTreeSet<&String> = all.iter().collect();
    let wanted: BTreeSet<&String> = sent.iter().filter(|id| **id != gone).collect();
    duetime_testkit::promised!(
        once == wanted,
        "lost, or handed over although it was cancelled: {:?}",
        wanted.symmetric_difference(&once)
    );
    duetime_testkit::promised!(all.len() == once.len(), "{} messages were handed over twice", all.len() - once.len());
}
