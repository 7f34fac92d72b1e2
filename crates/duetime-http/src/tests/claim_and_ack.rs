//! A claim that acks earlier messages first: one request, and an outcome for each receipt.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, header};
use duetime_core::Clock as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{Answer, Faulty, TestApi, away, within};
use crate::{Audit, Auth, AuthConfig, HttpOptions, HttpParts};

const CLAIM: &str = "/v1/topics/orders/claim";

/// What answers at once is answered within this time, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(30);

async fn claim(api: &TestApi, ask: Value) -> Answer {
    within(PATIENCE, api.post(CLAIM, &ask.to_string())).await
}

/// Enqueues messages and claims them; their receipts.
async fn held(api: &TestApi, ids: &[&str]) -> Vec<Value> {
    for id in ids {
        api.enqueue(&json!({ "id": id }).to_string()).await;
    }
    let messages = claim(api, json!({"max": 256})).await.json()["messages"].clone();
    let receipt = |id: &&str| messages.as_array().unwrap().iter().find(|m| m["id"] == *id).unwrap()["receipt"].clone();
    ids.iter().map(receipt).collect()
}

/// The outcome of each receipt, or the code of its error.
fn words(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let word = |result: &Value| result.get("outcome").unwrap_or(&result["error"]["code"]).as_str().unwrap().to_owned();
    answer.json()["results"].as_array().unwrap().iter().map(word).collect()
}

async fn in_flight(api: &TestApi) -> Value {
    api.get("/v1/topics/orders").await.json()["in_flight"].clone()
}

/// Waits until nothing is claimed any more.
async fn until_acked(api: &TestApi) {
    within(PATIENCE, async {
        while in_flight(api).await != 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_claim_with_acks_answers_an_outcome_for_each_receipt_beside_what_is_due() {
    let api = TestApi::with_orders().await;
    let options = HttpOptions { audit: Audit::default(), ..HttpOptions::default() };
    let api = api.again(HttpParts { options, ..api.parts.clone() });
    let receipts = held(&api, &["done", "cancelled"]).await;
    assert_eq!(api.delete("/v1/topics/orders/messages/cancelled").await.status, 409);
    api.enqueue(r#"{"id":"next"}"#).await;
    let ack = json!([receipts[0], receipts[0], "x", 7, receipts[1]]);
    let answer = claim(&api, json!({"max": 5, "ack": ack})).await;
    assert_eq!(words(&answer), ["ok", "already", "invalid_receipt", "invalid_receipt", "cancelled"]);
    let found = answer.json();
    assert_eq!((&found["messages"][0]["id"], &found["results"][0]["id"]), (&json!("next"), &json!("done")));
    let error = &found["results"][2]["error"];
    assert_eq!((&error["field"], &error["index"]), (&json!("ack"), &json!(2)), "{found}");
    assert_eq!(found.get("error"), None);
    let line = &api.get("/v1/audit?operation=claim&limit=1").await.json()["entries"][0];
    assert_eq!((&line["count"], &line["refused"]), (&json!(6), &json!(2)), "five receipts and a message: {line}");
    let text = api.get("/metrics").await.text;
    assert!(text.contains("duetime_messages_total{event=\"delivered\",topic=\"orders\"} 1"), "{text}");
    let plain = claim(&api, json!({})).await;
    assert_eq!(plain.json(), json!({"messages": []}), "without acks there are no results");
    assert_eq!(claim(&api, json!({"ack": []})).await.json(), json!({"messages": [], "results": []}));
}

#[tokio::test]
async fn acks_are_done_before_a_claim_waits_and_stay_done_when_its_client_hangs_up() {
    let api = TestApi::with_orders().await;
    let receipts = held(&api, &["a", "b"]).await;
    let ask = json!({"wait": "60s", "ack": receipts}).to_string();
    let request = Request::post(CLAIM).header(header::CONTENT_TYPE, "application/json").body(Body::from(ask));
    let mut waiting = Box::pin(api.clone_api().oneshot(request.unwrap()));
    tokio::select! {
        answer = &mut waiting => panic!("nothing is due, and it was answered {}", answer.unwrap().status()),
        () = until_acked(&api) => {}
    }
    drop(waiting);
    let again = claim(&api, json!({ "ack": receipts })).await;
    assert_eq!(words(&again), ["already", "already"]);
}

#[tokio::test]
async fn a_claim_does_not_wait_when_an_ack_was_not_done() {
    let api = TestApi::with_orders().await;
    let receipts = held(&api, &["late"]).await;
    api.advance("31s");
    assert_eq!(claim(&api, json!({})).await.json()["messages"][0]["id"], "late", "another has it");
    let expired = claim(&api, json!({"wait": "60s", "ack": receipts})).await;
    assert_eq!(words(&expired), ["expired"]);
    let invalid = claim(&api, json!({"wait": "60s", "ack": ["x"]})).await;
    assert_eq!((words(&invalid), &invalid.json()["messages"]), (vec!["invalid_receipt".to_owned()], &json!([])));
}

#[tokio::test]
async fn a_request_that_is_refused_has_acked_nothing() {
    let api = TestApi::with_orders().await;
    let receipts = held(&api, &["a"]).await;
    for (ask, code, field) in [
        (json!({"ack": receipts, "max": 0}), "invalid_value", "max"),
        (json!({"ack": receipts, "wait": "61s"}), "invalid_value", "wait"),
        (json!({"ack": receipts, "acks": 1}), "unknown_field", "acks"),
        (json!({"ack": receipts[0]}), "invalid_value", "ack"),
        (json!({"ack": vec![&receipts[0]; 65_537]}), "too_many_items", "ack"),
    ] {
        let refused = claim(&api, ask).await;
        assert_eq!(refused.problem().1, code, "{}", refused.text);
        assert_eq!(refused.json()["field"], field, "{}", refused.text);
    }
    let body = json!({ "ack": receipts });
    assert_eq!(api.post("/v1/topics/nope/claim", &body.to_string()).await.problem(), (404, "unknown_topic".to_owned()));
    let request = Request::post(CLAIM).header(header::CONTENT_TYPE, "application/json");
    let late = request.header("duetime-not-after", api.clock.now().as_millis() - 1);
    let late = api.send(late.body(Body::from(body.to_string())).unwrap()).await;
    assert_eq!(late.problem(), (412, "deadline_exceeded".to_owned()));
    assert_eq!(in_flight(&api).await, 1);
    assert_eq!(words(&claim(&api, body).await), ["ok"]);
}

#[tokio::test]
async fn outcomes_of_acks_are_answered_also_when_the_claim_fails() {
    let store = Faulty::new();
    let api = TestApi::over(store.clone(), Auth::open()).await;
    api.put("/v1/topics/orders", r#"{"shards":4}"#).await;
    let receipts = held(&api, &["a", "b", "c"]).await;
    store.set(|call| (call.op == "claim").then(|| away(call.op)));
    let answer = claim(&api, json!({"ack": [receipts[0]]})).await;
    assert_eq!(words(&answer), ["ok"]);
    let found = answer.json();
    assert_eq!((&found["messages"], &found["error"]["code"]), (&json!([]), &json!("store_unavailable")), "{found}");
    assert_eq!((&found["error"]["status"], &answer.headers[header::RETRY_AFTER]), (&json!(503), &"1".parse().unwrap()));
    store.set(|call| (call.op == "settle").then(|| away(call.op)));
    api.enqueue(r#"{"id":"next"}"#).await;
    let answer = claim(&api, json!({"ack": [receipts[1]], "wait": "60s"})).await;
    assert_eq!(words(&answer), ["store_unavailable"]);
    assert_eq!(answer.json()["messages"][0]["id"], "next");
    store.set(|_| None);
    api.put("/v1/topics/orders", r#"{"sink":{"name":"log"}}"#).await;
    let answer = claim(&api, json!({"ack": receipts})).await;
    assert_eq!(words(&answer), ["already", "ok", "ok"]);
    assert_eq!(answer.json()["error"]["code"], "topic_has_sink");
    assert_eq!(claim(&api, json!({})).await.problem(), (409, "topic_has_sink".to_owned()), "without acks as ever");
}

fn secret(name: &str) -> String {
    format!("a-secret-of-{name}-0123")
}

fn tokens(all: Value) -> AuthConfig {
    serde_json::from_value(json!({ "tokens": all })).unwrap()
}

async fn as_shop(api: &TestApi, path: &str, body: &Value) -> Answer {
    api.call_as(&secret("shop"), "POST", path, &body.to_string()).await
}

#[tokio::test(start_paused = true)]
async fn a_claim_with_acks_counts_as_two_requests_of_its_token() {
    let shop = json!({"name": "shop", "secret": secret("shop"), "scopes": ["admin"], "requests_per_second": 1});
    let root = json!({"name": "root", "secret": secret("root"), "scopes": ["admin"]});
    let api = TestApi::with(Auth::load(&tokens(json!([shop, root]))).unwrap()).await;
    assert_eq!(api.call_as(&secret("root"), "PUT", "/v1/topics/orders", "{}").await.status, 201);
    // One that may send a single request a second may do both at once, and waits longer then.
    for (ask, seconds) in [(json!({}), "1"), (json!({"ack": ["x"]}), "2")] {
        assert_eq!(as_shop(&api, CLAIM, &ask).await.status, 200, "{ask}");
        let refused = as_shop(&api, CLAIM, &ask).await;
        assert_eq!(refused.problem(), (429, "rate_limited".to_owned()));
        assert_eq!(refused.headers[header::RETRY_AFTER], seconds, "{ask}");
        tokio::time::advance(Duration::from_secs(2)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_taken_back_while_its_claim_waits_is_told_what_became_of_its_acks() {
    let token = |name: &str| json!({"name": name, "secret": secret(name), "scopes": ["admin"]});
    let auth = Auth::load(&tokens(json!([token("root"), token("shop")]))).unwrap();
    let api = TestApi::with(auth.clone()).await;
    assert_eq!(api.call_as(&secret("root"), "PUT", "/v1/topics/orders", "{}").await.status, 201);
    assert_eq!(as_shop(&api, "/v1/topics/orders/messages", &json!({"id": "a"})).await.status, 201);
    let claimed = as_shop(&api, CLAIM, &json!({})).await.json();
    let ask = json!({"wait": "60s", "ack": [claimed["messages"][0]["receipt"]]});
    let waiting = as_shop(&api, CLAIM, &ask);
    let taken_back = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        auth.reload(&tokens(json!([token("root")]))).unwrap();
    };
    let (answer, ()) = within(PATIENCE, async { tokio::join!(waiting, taken_back) }).await;
    assert_eq!((words(&answer), &answer.json()["error"]["code"]), (vec!["ok".to_owned()], &json!("token_unknown")));
}
