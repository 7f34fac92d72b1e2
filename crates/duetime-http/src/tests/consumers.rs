//! Consumers that name themselves.

use serde_json::json;

use super::{NOW_MS, TestApi};

const CONSUMERS: &str = "/v1/topics/orders/consumers";

#[tokio::test]
async fn a_consumer_that_names_itself_is_shown_with_what_it_holds_and_until_when() {
    let api = TestApi::with_orders().await;
    for id in ["a", "b", "c"] {
        api.enqueue(&json!({"id": id}).to_string()).await;
    }
    let claim = async |body: &str| api.post("/v1/topics/orders/claim", body).await.json();
    claim("{}").await;
    assert_eq!(api.get(CONSUMERS).await.json(), json!({"scope": "node", "node": "n1", "consumers": []}));
    let claimed = claim(r#"{"consumer":"worker 1","max":2}"#).await;
    let shown = api.get(CONSUMERS).await.json();
    let wanted = json!({
        "consumer": "worker 1", "last_claim_at": NOW_MS, "claims_per_minute": 1, "held": 2,
        "held_until": claimed["messages"][0]["deadline"],
    });
    assert_eq!(shown["consumers"], json!([wanted]));
    // What is settled is not held, what is extended is held for longer, and what is settled with a claim too.
    let receipt = |n: usize| claimed["messages"][n]["receipt"].clone();
    let extend = json!({"receipts": [receipt(0)], "visibility_timeout": "5m"}).to_string();
    let fresh = api.post("/v1/topics/orders/extend", &extend).await.json()["results"][0]["receipt"].clone();
    api.post("/v1/topics/orders/nack", &json!({"receipts": [receipt(1)], "delay": "1h"}).to_string()).await;
    let held = async || {
        let one = api.get(CONSUMERS).await.json()["consumers"][0].clone();
        (one["held"].clone(), one["held_until"].clone())
    };
    let (count, until) = held().await;
    assert_eq!(count, 1);
    assert!(until.as_i64().unwrap() >= NOW_MS + 300_000, "{until}");
    api.advance("6m");
    assert_eq!(held().await.0, 0, "the claim ran out");
    claim(&json!({"consumer": "worker 1", "ack": [fresh]}).to_string()).await;
    api.delete("/v1/topics/orders?force=true").await;
    assert_eq!(api.get(CONSUMERS).await.problem(), (404, "unknown_topic".to_owned()));
    api.put("/v1/topics/orders", "{}").await;
    assert_eq!(api.get(CONSUMERS).await.json()["consumers"], json!([]));
}

#[tokio::test]
async fn a_name_is_a_short_text() {
    let api = TestApi::with_orders().await;
    for name in ["", "a\nb", &"x".repeat(101)] {
        let refused = api.post("/v1/topics/orders/claim", &json!({"consumer": name}).to_string()).await;
        assert_eq!(refused.problem(), (400, "invalid_value".to_owned()), "{name:?}");
        assert_eq!(refused.json()["field"], "consumer");
    }
}
