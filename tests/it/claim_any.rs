//! One claim over several topics of a real node.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::test_node::{TestNode, ids};

const MESSAGES: usize = 60;
const TOPICS: [&str; 2] = ["orders", "mails"];
const WITHIN: Duration = Duration::from_secs(60);

/// Claims from all topics and acks until nothing has come for a second; how often each message came, and the most
/// attempts of one.
async fn consume(node: &TestNode) -> (BTreeMap<String, usize>, u64) {
    let (mut seen, mut attempts) = (BTreeMap::new(), 0);
    let end = Instant::now() + WITHIN;
    let mut quiet = 0;
    while quiet < 3 {
        duetime_testkit::in_time!(Instant::now() < end, "{} messages have come", seen.len());
        let ask = json!({"topics": {"orders": 1, "mails": 1}, "max": 3, "wait": "1s", "consumer": "worker"});
        let (status, found) = node.post("/v1/claim", ask).await;
        assert_eq!(status, 200, "{found}");
        let messages = found["messages"].as_array().unwrap();
        quiet = if messages.is_empty() { quiet + 1 } else { 0 };
        let Some(topic) = found["topic"].as_str() else { continue };
        for message in messages {
            *seen.entry(format!("{topic}/{}", message["id"].as_str().unwrap())).or_default() += 1;
            attempts = attempts.max(message["attempt"].as_u64().unwrap());
        }
        let receipts: Vec<&Value> = messages.iter().map(|message| &message["receipt"]).collect();
        let (_, acked) = node.post(&format!("/v1/topics/{topic}/ack"), json!({"receipts": receipts})).await;
        assert!(acked["results"].as_array().unwrap().iter().all(|one| one["outcome"] == "ok"), "{acked}");
    }
    (seen, attempts)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_falls_due_in_two_topics_at_one_time_comes_once_each_and_pays_no_attempt() {
    let node = TestNode::new("").await;
    for topic in TOPICS {
        // Longer than the test: nothing comes twice by its claim's end.
        assert_eq!(node.topic(topic, json!({"shards": 2, "visibility_timeout": "5m"})).await.0, 201);
    }
    let produce = async {
        for part in ids("m", MESSAGES).collect::<Vec<_>>().chunks(4) {
            let messages: Vec<Value> = part.iter().map(|id| json!({"id": id, "delay": "100ms"})).collect();
            let both = TOPICS.map(|topic| node.enqueue_all(topic, messages.clone()));
            futures::future::join_all(both).await;
        }
    };
    let ((), one, two) = tokio::join!(produce, consume(&node), consume(&node));
    let mut seen = one.0;
    for (id, times) in two.0 {
        *seen.entry(id).or_default() += times;
    }
    assert_eq!(seen.len(), TOPICS.len() * MESSAGES);
    assert!(seen.values().all(|times| *times == 1), "{seen:?}");
    assert_eq!((one.1, two.1), (1, 1), "what was given back paid nothing");
}
