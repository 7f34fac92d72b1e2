//! What is known of a message's past.

use std::time::Duration;

use duetime_core::tracer::HandOverOutcome;
use duetime_core::{MessageId, Nonce, PastHandOver, Timestamp, TopicName};
use serde_json::json;

use super::{NOW_MS, TestApi};

#[tokio::test]
async fn a_message_s_hand_overs_and_changes_are_known_also_when_it_is_gone() {
    let api = TestApi::with_orders().await;
    let path = "/v1/topics/orders/messages/a/life";
    assert_eq!(api.get(path).await.problem(), (404, "unknown_message".to_owned()));
    api.enqueue(r#"{"id":"a"}"#).await;
    let claimed = api.post("/v1/topics/orders/claim", "{}").await.json();
    let life = api.get(path).await.json();
    let first = &life["hand_overs"][0];
    assert_eq!((&life["state"], &life["node"]), (&json!("in_flight"), &json!("n1")));
    assert_eq!((&first["outcome"], &first["attempt"], &first["at"]), (&json!("claimed"), &json!(1), &json!(NOW_MS)));
    assert_eq!(first["delivery_id"], claimed["messages"][0]["delivery_id"]);
    assert_eq!(first["trace_id"].as_str().unwrap().len(), 32);
    assert!(life["not_known"][0].as_str().unwrap().contains("enqueued"), "{life}");

    let receipt = claimed["messages"][0]["receipt"].clone();
    api.post("/v1/topics/orders/ack", &json!({ "receipts": [receipt] }).to_string()).await;
    api.parts.past.note(PastHandOver {
        topic: TopicName::new("orders").unwrap(),
        id: MessageId::new("a").unwrap(),
        nonce: Nonce(1),
        due_at: Timestamp::from_millis(NOW_MS),
        attempt: 2,
        at: Timestamp::from_millis(NOW_MS + 9),
        took: Duration::from_millis(3),
        lateness: Duration::from_millis(9),
        outcome: HandOverOutcome::Failed { kind: "retry", reason: "503".to_owned(), free: true },
    });
    assert_eq!(api.delete("/v1/topics/orders/messages/a").await.status, 404);
    let life = api.get(path).await.json();
    assert!(life.get("state").is_none(), "{life}");
    let last = life["hand_overs"][1].clone();
    assert_eq!((&last["outcome"], &last["reason"], &last["free"]), (&json!("failed"), &json!("503"), &json!(true)));
    assert_eq!((&last["late_ms"], &last["took_ms"]), (&json!(9), &json!(3)));
    assert!(life["changes"][0]["action"].as_str().unwrap().starts_with("DELETE"), "{life}");
    assert!(life["not_known"].to_string().contains("how it ended"), "{life}");
}
