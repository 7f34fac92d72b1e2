//! One claim over several topics of a real node.

use std::collections::BTreeMap;
use std::time::Duration;

use duetime_testkit::wait::{Because, let_pass};
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

/// How often shards were asked when they are due next.
async fn polls(node: &TestNode) -> f64 {
    node.line("duetime_store_call_seconds_count{op=\"next_due\"}").await.unwrap_or(0.0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_over_topics_costs_no_polls_where_something_is_known_to_be_due_and_goes_by_the_weights() {
    const CLAIMS: usize = 200;
    let node = TestNode::new("").await;
    let idle: Vec<String> = (0..14).map(|n| format!("idle-{n}")).collect();
    for topic in TOPICS.iter().copied().chain(idle.iter().map(String::as_str)) {
        assert_eq!(node.topic(topic, json!({"shards": 1, "visibility_timeout": "5m"})).await.0, 201);
    }
    for topic in TOPICS {
        node.enqueue(topic, ids("m", CLAIMS)).await;
    }
    let mut topics: BTreeMap<&str, u32> = idle.iter().map(|topic| (topic.as_str(), 1)).collect();
    topics.extend([("orders", 300), ("mails", 100)]);
    let (before, began) = (polls(&node).await, Instant::now());
    let mut orders = 0;
    for _ in 0..CLAIMS {
        let (_, found) = node.post("/v1/claim", json!({"topics": topics})).await;
        assert_eq!((found["messages"].as_array().unwrap().len(), &found["failed"]), (1, &json!([])), "{found}");
        orders += usize::from(found["topic"] == "orders");
    }
    // The net under lost hints polls all shards in one call each second, or a few.
    let net = 10.0 * (2.0 + began.elapsed().as_secs_f64());
    let polled = polls(&node).await - before;
    assert!(polled < net + CLAIMS as f64 / 4.0, "{polled} polls for {CLAIMS} claims, {net} of the net");
    // 150 are expected; 6 is a standard deviation.
    assert!((110..=190).contains(&orders), "{orders} of {CLAIMS}");
    // What nobody knows of is found all the same, with one look at each topic.
    for topic in TOPICS {
        while !node.post("/v1/claim", json!({"topics": {topic: 1}, "max": 256})).await.1["messages"]
            .as_array()
            .unwrap()
            .is_empty()
        {}
    }
    let before = polls(&node).await;
    let (_, found) = node.post("/v1/claim", json!({"topics": topics})).await;
    assert_eq!(found, json!({"messages": [], "failed": []}));
    let polled = polls(&node).await - before;
    assert!(polled <= 16.0 + net, "{polled}");
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

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_delivers_at_most_once_from_now_on_loses_nothing_to_a_claim_that_waits() {
    let node = TestNode::new("").await;
    for topic in TOPICS {
        assert_eq!(node.topic(topic, json!({"shards": 1})).await.0, 201);
    }
    let ask = json!({"topics": {"orders": 1, "mails": 1}, "wait": "20s"});
    let waits = node.post("/v1/claim", ask);
    let change = async {
        let_pass(Duration::from_millis(300), Because::Quiet).await;
        for topic in TOPICS {
            assert_eq!(node.topic(topic, json!({"delivery": "at-most-once"})).await.0, 200);
        }
        for topic in TOPICS {
            node.enqueue(topic, ids("m", 1)).await;
        }
    };
    let ((status, found), ()) = tokio::join!(waits, change);
    assert_eq!((status.as_u16(), &found["code"]), (409, &json!("topic_at_most_once")), "{found}");
    for topic in TOPICS {
        let (_, found) = node.post(&format!("/v1/topics/{topic}/claim"), json!({"wait": "10s"})).await;
        assert_eq!(found["messages"].as_array().map(Vec::len), Some(1), "{topic}: {found}");
    }
}
