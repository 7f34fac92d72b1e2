//! A herd at one moment is spread over the `smear` of its topic, over HTTP: never early, within
//! the bound, said in the answer, and the same when it is asked again.

use std::collections::HashMap;
use std::time::SystemTime;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::test_node::TestNode;

fn present_ms() -> i64 {
    i64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap()
}

/// How many milliseconds later than `asked` each id is due.
fn spread(answers: &[Value], asked: i64, outcome: &str) -> HashMap<String, i64> {
    let offset = |answer: &Value| {
        assert_eq!(answer["outcome"], outcome, "{answer}");
        let later = answer["due_at"].as_i64().unwrap() - asked;
        assert!((0..=2_000).contains(&later), "never early, never later than the bound: {answer}");
        if outcome != "duplicate" {
            assert_eq!(answer["smeared_ms"], later, "{answer}");
        }
        (answer["id"].as_str().unwrap().to_owned(), later)
    };
    answers.iter().map(offset).collect()
}

#[tokio::test]
async fn a_herd_is_spread_over_the_smear_of_its_topic() {
    let node = &TestNode::new("").await;
    let (status, refused) = node.topic("orders", json!({"shards": 4, "smear": "61m"})).await;
    assert_eq!((status, &refused["code"]), (StatusCode::BAD_REQUEST, &json!("invalid_topic_settings")), "{refused}");
    assert_eq!(
        (&refused["field"], &refused["detail"]),
        (&json!("smear"), &json!("smear must be 1h or less; 0s for none"))
    );
    let (_, view) = node.topic("orders", json!({"shards": 4, "smear": "2s"})).await;
    assert_eq!(view["smear"], "2s", "{view}");

    let asked = present_ms() + 1_500;
    let herd = |on_conflict: &str| -> Vec<Value> {
        (0..400).map(|n| json!({"id": format!("order-{n}"), "due_at": asked, "on_conflict": on_conflict})).collect()
    };
    let send = async |on_conflict| node.results("orders", herd(on_conflict)).await;
    let first = spread(&send("reject").await, asked, "scheduled");
    let tenths = (0..10).map(|tenth| first.values().filter(|later| **later / 201 == tenth).count());
    assert!(tenths.clone().all(|some| some >= 15), "even: {:?}", tenths.collect::<Vec<_>>());
    assert_eq!(spread(&send("reject").await, asked, "duplicate"), first, "what is there is answered");
    assert_eq!(spread(&send("replace").await, asked, "replaced"), first, "the same id, the same share");

    let (_, moved) = node.call(Method::PATCH, "/v1/topics/orders/messages/order-7", json!({"due_at": asked})).await;
    assert_eq!((&moved["smeared_ms"], &moved["due_at"]), (&json!(first["order-7"]), &json!(asked + first["order-7"])));
    let (_, gone) = node.call(Method::PATCH, "/v1/topics/orders/messages/nobody", json!({"due_at": asked})).await;
    assert_eq!((&gone["outcome"], &gone["smeared_ms"]), (&json!("unknown"), &Value::Null));

    let back = json!([{"id": "back", "due_at": asked, "on_conflict": "return"}]);
    let back = node.results("orders", back.as_array().unwrap().clone()).await.remove(0);
    assert_eq!((&back["due_at"], &back["smeared_ms"]), (&json!(asked), &Value::Null), "what moved here keeps its time");
    let (_, gone) = node.call(Method::DELETE, "/v1/topics/orders/messages/back", Value::Null).await;
    assert_eq!(gone["outcome"], "cancelled");

    let mut claimed = 0;
    while claimed < 400 {
        let (_, batch) = node.post("/v1/topics/orders/claim", json!({"max": 256, "wait": "10s"})).await;
        let now = present_ms();
        let messages = batch["messages"].as_array().unwrap();
        assert!(!messages.is_empty(), "{claimed} of 400 came within 10 s");
        for message in messages {
            let later = first[message["id"].as_str().unwrap()];
            assert_eq!(message["due_at"], asked + later, "{message}");
            assert!(now >= asked + later, "early: {message} at {now}");
        }
        let receipts: Vec<&Value> = messages.iter().map(|message| &message["receipt"]).collect();
        let (status, _) = node.post("/v1/topics/orders/ack", json!({"receipts": receipts})).await;
        assert_eq!(status, StatusCode::OK);
        claimed += messages.len();
    }

    let (_, none) = node.topic("orders", json!({"smear": null})).await;
    assert_eq!(none["smear"], Value::Null, "{none}");
    let (_, plain) = node.post("/v1/topics/orders/messages", json!({"id": "plain", "due_at": asked})).await;
    assert_eq!((&plain["due_at"], &plain["smeared_ms"]), (&json!(asked), &Value::Null));
}
