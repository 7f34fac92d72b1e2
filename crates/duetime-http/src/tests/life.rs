//! What is known of a message's past.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use duetime_core::tracer::HandOverOutcome;
use duetime_core::{MessageId, Nonce, PastHandOver, Timestamp, TopicName};
use serde_json::{Value, json};

use super::{NOW_MS, TestApi};
use crate::Auth;

const CONSUMER: &str = "consumer-secret-0";
const ADMIN: &str = "admin-secret-0123";

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
    api.parts.past.note([PastHandOver {
        topic: TopicName::new("orders").unwrap(),
        id: MessageId::new("a").unwrap(),
        nonce: Nonce(1),
        due_at: Timestamp::from_millis(NOW_MS),
        attempt: 2,
        at: Timestamp::from_millis(NOW_MS + 9),
        took: Duration::from_millis(3),
        lateness: Duration::from_millis(9),
        outcome: HandOverOutcome::Failed { kind: "retry", reason: "503".to_owned(), free: true },
        by: None,
    }]);
    assert_eq!(api.delete("/v1/topics/orders/messages/a").await.status, 404);
    let life = api.get(path).await.json();
    assert!(life.get("state").is_none(), "{life}");
    let last = life["hand_overs"][1].clone();
    assert_eq!((&last["outcome"], &last["reason"], &last["free"]), (&json!("failed"), &json!("503"), &json!(true)));
    assert_eq!((&last["late_ms"], &last["took_ms"]), (&json!(9), &json!(3)));
    assert!(life["changes"][0]["action"].as_str().unwrap().starts_with("DELETE"), "{life}");
    assert_eq!(life["settlements"][0]["action"], "ack");
    assert!(!life["not_known"].to_string().contains("how it ended"), "{life}");
}

#[tokio::test]
async fn what_consumers_did_with_receipts_is_known_with_its_verdict_and_its_reason() {
    let api = TestApi::with_orders().await;
    let life = async || api.get("/v1/topics/orders/messages/a/life").await.json();
    let claim = async || api.post("/v1/topics/orders/claim", "{}").await.json()["messages"][0]["receipt"].clone();
    let settle = async |how: &str, receipt: &Value, rest: Value| {
        let mut body = json!({ "receipts": [receipt] });
        body.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        api.post(&format!("/v1/topics/orders/{how}"), &body.to_string()).await.json()["results"][0].clone()
    };
    api.enqueue(r#"{"id":"a"}"#).await;
    let first = claim().await;
    let extended = settle("extend", &first, json!({ "visibility_timeout": "20s" })).await;
    settle("nack", &extended["receipt"], json!({ "delay": 0, "reason": "busy" })).await;
    settle("ack", &first, json!({})).await;
    let second = claim().await;
    settle("nack", &second, json!({ "dead": true, "reason": "broken" })).await;
    settle("extend", &second, json!({})).await;

    let known = life().await;
    let claims = known["hand_overs"].as_array().unwrap().iter().map(|one| &one["attempt"]).collect::<Vec<_>>();
    assert_eq!(claims, [1, 2], "{known}");
    let of = |one: &Value| {
        let text = |field: &str| one[field].as_str().unwrap_or("-").to_owned();
        (text("action"), text("outcome"), text("reason"), one["attempt"].as_u64().unwrap())
    };
    let settlements: Vec<_> = known["settlements"].as_array().unwrap().iter().map(of).collect();
    let want = [
        ("extend", "ok", "-", 1),
        ("nack", "ok", "busy", 1),
        ("ack", "expired", "-", 1),
        ("dead", "ok", "broken", 2),
        ("extend", "expired", "-", 2),
    ];
    let want = want.map(|(action, outcome, reason, attempt)| (action.into(), outcome.into(), reason.into(), attempt));
    assert_eq!(settlements, want);
    let settlements = &known["settlements"];
    assert_eq!(settlements[0]["deadline"], NOW_MS + 20_000);
    assert_eq!((&settlements[1]["delay_ms"], settlements[1].get("deadline")), (&json!(0), None));
    assert_eq!(known["state"], "dead");
}

#[tokio::test]
async fn only_administrators_see_whose_token_claimed_and_settled() {
    let tokens = json!({ "tokens": [
        { "name": "shop", "secret": CONSUMER, "scopes": ["consume", "view"] },
        { "name": "ops", "secret": ADMIN, "scopes": ["admin", "produce"] },
    ]});
    let api = TestApi::with(Auth::load(&serde_json::from_value(tokens).unwrap()).unwrap()).await;
    let ask = async |secret: &str, method: &str, path: &str, body: &str| {
        let request = Request::builder().method(method).uri(format!("/v1/topics/orders{path}"));
        let request =
            request.header("content-type", "application/json").header("authorization", format!("Bearer {secret}"));
        api.send(request.body(Body::from(body.to_owned())).unwrap()).await
    };
    ask(ADMIN, "PUT", "", "{}").await;
    ask(ADMIN, "POST", "/messages", r#"{"id":"a"}"#).await;
    let claimed = ask(CONSUMER, "POST", "/claim", "{}").await.json();
    let receipts = json!({ "receipts": [claimed["messages"][0]["receipt"]] }).to_string();
    ask(CONSUMER, "POST", "/ack", &receipts).await;
    for (secret, by) in [(CONSUMER, Value::Null), (ADMIN, json!("shop"))] {
        let life = ask(secret, "GET", "/messages/a/life", "").await.json();
        assert_eq!((&life["hand_overs"][0]["by"], &life["settlements"][0]["by"]), (&by, &by), "{life}");
    }
}
