//! A topic is paused at one of two nodes while messages fall due, and resumed at the other.

use std::collections::BTreeSet;
use std::time::Duration;

use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::{Webhook, in_time};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::test_node::{ask, done};

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

/// The record of `orders` as a node writes it that knows no reasons: it keeps what it does not know.
fn written_by_an_older_node(redis: &RedisServer, paused: bool) {
    let key = redis.cli(&["--scan", "--pattern", "*:topics"]).lines().next().expect("the catalog").to_owned();
    let mut record: Value = serde_json::from_str(redis.cli(&["HGET", &key, "orders"]).trim()).unwrap();
    if paused {
        record["config"]["paused"] = true.into();
    } else {
        record["config"].as_object_mut().unwrap().remove("paused");
    }
    record["version"] = (record["version"].as_u64().unwrap() + 1).into();
    redis.cli(&["HSET", &key, "orders", &record.to_string()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_is_paused_at_all_nodes_over_restarts_until_it_is_resumed() {
    let (redis, hook) = (RedisServer::start().await, Webhook::start());
    let config = format!(
        "[ownership]\nmode = \"round-robin\"\n[sinks.shop]\ntype = \"http\"\nurl = \"{}\"\nallow = [\"127.0.0.1\"]\n",
        hook.url("/")
    );
    let first = Node::start(PROGRAM, &redis.url(), &config).await;
    let mut second = Node::start(PROGRAM, &redis.url(), &config).await;
    done(&first, Method::PUT, "orders", &json!({"shards": 4, "sink": {"name": "shop"}})).await;
    let act = async |node: &Node, act: &str, body: &Value| {
        let (status, answer) = ask(node, Method::POST, &format!("/v1/sinks/shop/{act}"), body).await;
        assert_eq!(status, 200, "{answer}");
        answer["topics"][0]["outcome"].clone()
    };
    assert_eq!(act(&first, "pause", &json!({"reason": "the shop moves"})).await, "paused");
    let_pass(STOPS_WITHIN, Because::Quiet).await;
    let ids: Vec<Value> = (0..100).map(|n| json!({"id": format!("order-{n}"), "payload": n})).collect();
    done(&second, Method::POST, "orders/messages", &json!(ids)).await;
    second.kill();
    second.start_again().await;
    let_pass(Duration::from_secs(2), Because::Quiet).await;
    in_time!(handed(&hook).is_empty(), "{} were handed over while the sink was paused", handed(&hook).len());
    let pause = done(&second, Method::GET, "orders", &Value::Null).await["pause"].clone();
    assert_eq!((&pause["reason"], &pause["sink"]), (&json!("the shop moves"), &json!("shop")));

    // A node of the version before resumes the topic and pauses it again: that is no pause of the sink any more, and
    // the reason was another's.
    written_by_an_older_node(&redis, false);
    written_by_an_older_node(&redis, true);
    let shown = done(&first, Method::GET, "orders", &Value::Null).await;
    assert_eq!((&shown["paused"], shown.get("pause")), (&json!(true), None));
    assert_eq!(act(&second, "resume", &json!({})).await, "left");
    done(&second, Method::POST, "orders/resume", &json!({})).await;
    done(&second, Method::POST, "orders/pause", &json!({})).await;
    let again = done(&second, Method::GET, "orders", &Value::Null).await["pause"].clone();
    assert_eq!(again.get("reason"), None, "the reason of an earlier pause came back");

    done(&second, Method::POST, "orders/resume", &json!({})).await;
    assert_eq!(act(&first, "pause", &json!({})).await, "paused");
    assert_eq!(act(&second, "resume", &json!({})).await, "resumed");
    let begun = Instant::now();
    while handed(&hook).len() < ids.len() {
        in_time!(begun.elapsed() < PATIENCE, "{} of {} were handed over", handed(&hook).len(), ids.len());
        let_pass(STEP_TIME, Because::AskedAgain).await;
    }
}
