//! Tokens: who is let in, and where.

use axum::http::header;
use serde_json::{Value, json};

use super::{Answer, TestApi};
use crate::{Auth, AuthConfig};

const ADMIN: &str = "admin-secret-0123";
const PRODUCER: &str = "producer-secret-0";
const CONSUMER: &str = "consumer-secret-0";
const SHOP_ADMIN: &str = "shop-admin-secret-0";

async fn api() -> TestApi {
    let config: AuthConfig = serde_json::from_str(&format!(
        r#"{{"tokens":[
            {{"name":"ops","secret":"{ADMIN}","scopes":["admin"]}},
            {{"name":"shop","secret":"{PRODUCER}","scopes":["produce"],"topics":["orders","shop-*"]}},
            {{"name":"shop-ops","secret":"{SHOP_ADMIN}","scopes":["admin"],"topics":["shop-*"]}},
            {{"name":"worker","secret":"{CONSUMER}","scopes":["consume"],"topics":["orders"]}}]}}"#
    ))
    .unwrap();
    TestApi::with(Auth::load(&config).unwrap()).await
}

async fn call(api: &TestApi, token: &str, method: &str, path: &str, body: &str) -> Answer {
    if token.is_empty() {
        return api.call(method, path, "application/json", body.to_owned()).await;
    }
    api.call_as(token, method, path, body).await
}

#[tokio::test]
async fn every_route_under_v1_asks_for_a_token() {
    let api = api().await;
    let document: Value = serde_json::from_str(crate::openapi::text()).unwrap();
    let mut routes = 0;
    for (template, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let path = template.replace("{topic}", "orders").replace("{id}", "a").replace("{shard}", "0");
            let bare = call(&api, "", &method.to_uppercase(), &path, "").await;
            if template.starts_with("/v1/") {
                assert_eq!(bare.problem(), (401, "token_missing".to_owned()), "{method} {template}");
                assert!(bare.headers[header::WWW_AUTHENTICATE].to_str().unwrap().starts_with("Bearer"));
                let wrong = call(&api, "some-other-secret", &method.to_uppercase(), &path, "").await;
                assert_eq!(wrong.problem(), (401, "token_unknown".to_owned()));
                routes += 1;
            } else {
                let wanted = if template == "/metrics" { 401 } else { 200 };
                assert_eq!(bare.status, wanted, "{method} {template}");
            }
        }
    }
    assert!(routes >= 20);
}

#[tokio::test]
async fn a_token_may_do_what_its_scopes_say_on_its_topics() {
    let api = api().await;
    for topic in ["orders", "shop-1", "bills"] {
        let path = format!("/v1/topics/{topic}");
        assert_eq!(call(&api, PRODUCER, "PUT", &path, "").await.problem(), (403, "forbidden".to_owned()));
        assert_eq!(call(&api, ADMIN, "PUT", &path, "").await.status, 201);
    }
    for (token, method, path, body, status) in [
        (PRODUCER, "POST", "/v1/topics/orders/messages", "{\"id\":\"a\"}", 201),
        (PRODUCER, "POST", "/v1/topics/shop-1/messages", "{}", 201),
        (PRODUCER, "POST", "/v1/topics/bills/messages", "{}", 403),
        (PRODUCER, "POST", "/v1/topics/bi%6Cls/messages", "{}", 403),
        (PRODUCER, "GET", "/v1/topics/orders/messages/a", "", 200),
        (PRODUCER, "POST", "/v1/topics/orders/claim", "", 403),
        (PRODUCER, "GET", "/v1/topics/orders/dead", "", 403),
        (PRODUCER, "DELETE", "/v1/topics/orders/dead", "{\"all\":true}", 403),
        (PRODUCER, "GET", "/v1/topics/orders", "", 200),
        (PRODUCER, "GET", "/v1/topics/bills", "", 403),
        (CONSUMER, "POST", "/v1/topics/orders/claim", "", 200),
        (CONSUMER, "POST", "/v1/topics/orders/ack", "{\"receipts\":[]}", 200),
        (CONSUMER, "POST", "/v1/topics/orders/messages", "{}", 403),
        (CONSUMER, "POST", "/v1/topics/orders/cancel", "{\"ids\":[]}", 403),
        (CONSUMER, "DELETE", "/v1/topics/orders/messages/a", "", 403),
        (CONSUMER, "GET", "/v1/nodes", "", 200),
        (SHOP_ADMIN, "PUT", "/v1/topics/shop-1", "", 200),
        (SHOP_ADMIN, "POST", "/v1/nodes/nobody/drain", "{}", 403),
        (SHOP_ADMIN, "POST", "/v1/nodes/nobody/undrain", "{}", 403),
        (ADMIN, "POST", "/v1/nodes/nobody/drain", "{}", 404),
        (ADMIN, "POST", "/v1/topics/bills/messages", "{}", 201),
        (ADMIN, "DELETE", "/v1/topics/bills/dead", "{\"all\":true}", 200),
    ] {
        let answer = call(&api, token, method, path, body).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text);
    }
    let seen = call(&api, PRODUCER, "GET", "/v1/topics", "").await.json();
    let names: Vec<_> = seen["topics"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["orders", "shop-1"]);
}

#[test]
fn secrets_are_read_from_files_and_weak_or_doubled_ones_are_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{ADMIN}\n")).unwrap();
    let load = |tokens: &str| Auth::load(&serde_json::from_str(&format!(r#"{{"tokens":[{tokens}]}}"#)).unwrap());
    let from_file = format!(r#"{{"name":"a","secret_file":{:?},"scopes":["admin"]}}"#, file.path());
    assert!(!load(&from_file).unwrap().is_open());
    let same = format!(r#"{from_file},{{"name":"b","secret":"{ADMIN}","scopes":["admin"]}}"#);
    assert!(load(&same).unwrap_err().contains("same secret"));
    assert!(load(r#"{"name":"a","secret":"short","scopes":["admin"]}"#).unwrap_err().contains("16 bytes"));
    assert!(load(r#"{"name":"a","scopes":["admin"]}"#).unwrap_err().contains("secret_file"));
    assert!(load(&format!(r#"{{"name":"a","secret":"{ADMIN}","scopes":[]}}"#)).unwrap_err().contains("scopes"));
    assert!(
        load(r#"{"name":"a","secret_file":"/no/such","scopes":["admin"]}"#)
            .unwrap_err()
            .contains("cannot read the secret")
    );
    assert!(load("").unwrap().is_open());
}

#[tokio::test]
async fn a_token_learns_what_it_is_for_and_never_its_secret() {
    let config: AuthConfig = serde_json::from_str(
        r#"{"tokens":[{"name":"shop","secret":"a-secret-of-shop-0123","scopes":["produce","view"],
            "topics":["shop-*"],"messages_per_second":50}]}"#,
    )
    .unwrap();
    let api = TestApi::with(Auth::load(&config).unwrap()).await;
    let me = api.call_as("a-secret-of-shop-0123", "GET", "/v1/me", "").await;
    assert!(!me.text.contains("secret"), "{}", me.text);
    let mut me = me.json();
    assert!(me.as_object_mut().unwrap().remove("version").is_some());
    let wanted = json!({"name": "shop", "scopes": ["view", "produce"], "topics": ["shop-*"], "sinks": [],
        "messages_per_second": 50.0, "node": "n1"});
    assert_eq!(me, wanted);
    let open = TestApi::new().await.get("/v1/me").await.json();
    assert_eq!(open["scopes"], json!(["view", "produce", "consume", "admin"]));
    assert!(open.get("name").is_none() && open.get("topics").is_none());
}
