//! Topics that deliver at most once lose nothing while nobody crashes, however many shards a consumer asks; and whatever
//! becomes of a node's connection, nobody is handed what another had, or what was cancelled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duetime_testkit::in_time;
use duetime_testkit::servers::{Node, Proxy, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use parking_lot::Mutex;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::time::Instant;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const PATIENCE: Duration = Duration::from_secs(60);
const MESSAGES: usize = 800;
const CONSUMERS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn at_most_once_loses_nothing_while_consumers_ask_many_shards() {
    let redis = RedisServer::start().await;
    let node = Node::start(PROGRAM, &redis.url(), "").await;
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

/// What a claim by `node` brings within `wait`: ids.
async fn claimed(node: &Node, wait: &str) -> Vec<String> {
    let claim = crate::test_node::client().post(format!("{}/v1/topics/once/claim", node.url()));
    let answer: Value = claim.json(&json!({"max": 1, "wait": wait})).send().await.unwrap().json().await.unwrap();
    let ids = answer["messages"].as_array().into_iter().flatten();
    ids.map(|message| message["id"].as_str().unwrap().to_owned()).collect()
}

/// The link of a node is cut before Redis has read that a message is to be removed, which was claimed. `remember`: how
/// long the topic remembers. The node repeats the removal after `between`, which has the other node.
async fn a_removal_arrives_late<F: Future>(
    remember: &str,
    between: impl Fn(Arc<Node>) -> F,
) -> (Vec<String>, F::Output) {
    let redis = RedisServer::start().await;
    let proxy = Proxy::before(redis.port()).await;
    let cut_off = Node::start(PROGRAM, &format!("redis://127.0.0.1:{}", proxy.port()), "").await;
    let other = Arc::new(Node::start(PROGRAM, &redis.url(), "").await);
    let (client, topic) = (crate::test_node::client(), format!("{}/v1/topics/once", other.url()));
    let settings = json!({"shards": 1, "delivery": "at-most-once", "visibility_timeout": "2s", "remember": remember});
    assert_eq!(client.put(&topic).json(&settings).send().await.unwrap().status(), StatusCode::CREATED);
    let since = Instant::now();
    while !client.get(format!("{}/v1/topics/once", cut_off.url())).send().await.unwrap().status().is_success() {
        in_time!(since.elapsed() < PATIENCE, "the other node hears of the topic");
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
    // A claim does not name it: the first that does is its removal.
    proxy.keep_back(b"the-target", true);
    let faults = async {
        let item = json!({"id": "the-target", "payload": "x", "delay": "300ms"});
        let made = client.post(format!("{topic}/messages")).json(&item).send().await.unwrap();
        assert!(made.status().is_success());
        let since = Instant::now();
        while proxy.kept() == 0 {
            in_time!(since.elapsed() < PATIENCE, "it is claimed, and about to be removed");
            let_pass(Duration::from_millis(5), Because::AskedAgain).await;
        }
        proxy.cut();
        let done = between(other.clone()).await;
        proxy.heal();
        done
    };
    tokio::join!(claimed(&cut_off, "12s"), faults)
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_once_a_removal_that_arrives_late_hands_out_nothing_that_another_had() {
    for remember in ["0s", "1h"] {
        let takes = |other: Arc<Node>| async move { claimed(&other, "10s").await };
        let (first, second) = a_removal_arrives_late(remember, takes).await;
        assert_eq!((first.len(), second), (0, vec!["the-target".to_owned()]), "{first:?}, remember {remember}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_once_a_removal_that_arrives_late_hands_out_nothing_that_was_cancelled() {
    for remember in ["0s", "1h"] {
        let cancels = |other: Arc<Node>| async move {
            let message = format!("{}/v1/topics/once/messages/the-target", other.url());
            crate::test_node::client().delete(message).send().await.unwrap().status()
        };
        let (first, status) = a_removal_arrives_late(remember, cancels).await;
        // It was in flight, and is gone.
        assert_eq!(status, StatusCode::CONFLICT);
        assert_eq!(first, Vec::<String>::new(), "it was cancelled, remember {remember}");
    }
}
