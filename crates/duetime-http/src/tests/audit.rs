//! The audit log: who changed what, and never a payload.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, header};
use serde_json::{Value, json};

use super::TestApi;
use crate::{Audit, AuditFile, AuditTarget, Auth, AuthConfig, HttpOptions, HttpParts};

/// Long enough for the thread that writes.
const PATIENCE: Duration = Duration::from_secs(30);

const SECRET: &str = "a-secret-of-ops-0123";

#[tokio::test]
async fn every_change_is_a_line_with_who_what_how_many_and_how_it_ended() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let target = AuditTarget::File(AuditFile { file: file.path().to_owned() });
    let audit = Audit::open(Some(&target)).unwrap();
    let config: AuthConfig =
        serde_json::from_value(json!({"tokens": [{"name": "ops", "secret": SECRET, "scopes": ["admin"]}]})).unwrap();
    let api = TestApi::with(Auth::load(&config).unwrap()).await;
    let options = HttpOptions { audit: audit.clone(), ..HttpOptions::default() };
    let api = api.again(HttpParts { options, ..api.parts.clone() });
    let lines = || -> Vec<Value> {
        assert_eq!(audit.flush(PATIENCE), 0);
        let text = std::fs::read_to_string(file.path()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let ask = async |method: &str, path: &str, content_type: &str, body: &str| {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content_type)
            .header(header::AUTHORIZATION, format!("Bearer {SECRET}"));
        let answer = api.send(request.body(Body::from(body.to_owned())).unwrap()).await;
        let mut line = lines().pop().unwrap();
        let line = line.as_object_mut().unwrap();
        assert!(line.remove("time").unwrap().as_str().unwrap().ends_with('Z'));
        assert_eq!(line.remove("from"), Some(Value::Null), "no socket here");
        assert_eq!(line.remove("status").unwrap(), answer.status.as_u16());
        (Value::from(line.clone()), answer)
    };
    let line = |of: (&str, &str), action: &str, count: u64, refused: u64, outcome: &str| {
        json!({"who": "ops", "operation": of.0, "kind": of.1, "action": action, "topic": "orders", "count": count,
            "refused": refused, "outcome": outcome})
    };
    let json = "application/json";
    let (put, _) = ask("PUT", "/v1/topics/orders", json, r#"{"shards":2}"#).await;
    assert_eq!(put, line(("put_topic", "administration"), "PUT /v1/topics/{topic}", 0, 0, "done"));
    let messages = "/v1/topics/orders/messages";
    let canary = r#"{"id":"a","payload":"CANARY","headers":{"h":"CANARY"}}"#;
    let (one, _) = ask("POST", messages, json, canary).await;
    assert_eq!(one, line(("enqueue", "messages"), "POST /v1/topics/{topic}/messages", 1, 0, "done"));
    let (many, _) = ask("POST", messages, json, &format!("[{canary},{{}},0]")).await;
    assert_eq!(many, line(("enqueue", "messages"), "POST /v1/topics/{topic}/messages", 3, 1, "done"));
    let (stream, _) = ask("POST", messages, "application/x-ndjson", "{}\n{}\n\n7\n{}\n").await;
    assert_eq!(stream, line(("enqueue", "messages"), "POST /v1/topics/{topic}/messages", 4, 1, "done"));
    let (cancel, _) = ask("DELETE", "/v1/topics/orders/messages/b%6Fb", json, "").await;
    let mut wanted = line(("cancel_message", "messages"), "DELETE /v1/topics/{topic}/messages/{id}", 0, 0, "refused");
    wanted["id"] = "bob".into();
    assert_eq!(cancel, wanted);
    let (claim, answer) = ask("POST", "/v1/topics/orders/claim", json, r#"{"max":3}"#).await;
    assert_eq!(claim, line(("claim", "claims"), "POST /v1/topics/{topic}/claim", 3, 0, "done"));
    let receipts: Vec<Value> =
        answer.json()["messages"].as_array().unwrap().iter().map(|message| message["receipt"].clone()).collect();
    let (ack, _) = ask("POST", "/v1/topics/orders/ack", json, &json!({"receipts": receipts}).to_string()).await;
    assert_eq!(ack, line(("ack", "claims"), "POST /v1/topics/{topic}/ack", 3, 0, "done"));
    let (purge, _) = ask("DELETE", "/v1/topics/orders/dead", json, r#"{"all":true}"#).await;
    assert_eq!(purge, line(("purge_dead", "administration"), "DELETE /v1/topics/{topic}/dead", 0, 0, "done"));
    let (delete, _) = ask("DELETE", "/v1/topics/orders?force=true", json, "").await;
    assert_eq!(delete, line(("delete_topic", "administration"), "DELETE /v1/topics/{topic}", 0, 0, "done"));

    let before = lines().len();
    let stranger = Request::delete("/v1/topics/orders").body(Body::empty()).unwrap();
    assert_eq!(api.send(stranger).await.status, 401);
    let refused = lines().pop().unwrap();
    assert_eq!(
        (&refused["who"], &refused["kind"], &refused["outcome"], &refused["status"]),
        (&Value::Null, &"refused".into(), &"refused".into(), &401.into())
    );
    api.get("/healthz").await;
    assert_eq!(lines().len(), before + 1, "who only looks leaves no line");
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert!(!text.contains("CANARY") && !text.contains(SECRET), "{text}");
}

#[tokio::test]
async fn a_file_that_was_moved_away_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let audit = Audit::open(Some(&AuditTarget::File(AuditFile { file: path.clone() }))).unwrap();
    let api = TestApi::new().await;
    let options = HttpOptions { audit: audit.clone(), ..HttpOptions::default() };
    let api = api.again(HttpParts { options, ..api.parts.clone() });
    api.put("/v1/topics/a", "{}").await;
    assert_eq!(audit.flush(PATIENCE), 0);
    std::fs::rename(&path, folder.path().join("audit.1")).unwrap();
    audit.reopen().unwrap();
    api.put("/v1/topics/b", "{}").await;
    assert_eq!(audit.flush(PATIENCE), 0);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("\"topic\":\"b\"") && !text.contains("\"topic\":\"a\""), "{text}");
    let nowhere = AuditTarget::File(AuditFile { file: folder.path().join("no/such") });
    assert!(Audit::open(Some(&nowhere)).unwrap_err().contains("cannot be opened"));
}

#[tokio::test]
async fn the_last_entries_are_answered_newest_first_and_traffic_does_not_push_out_what_administrators_did() {
    let config: AuthConfig = serde_json::from_value(json!({"tokens": [
        {"name": "ops", "secret": SECRET, "scopes": ["admin"]},
        {"name": "shop", "secret": "a-secret-of-shop-0123", "scopes": ["admin"], "topics": ["shop"]}]}))
    .unwrap();
    let api = TestApi::with(Auth::load(&config).unwrap()).await;
    let ask = async |secret: &str, method: &str, path: &str, body: &str| api.call_as(secret, method, path, body).await;
    ask(SECRET, "PUT", "/v1/topics/orders", "{}").await;
    ask(SECRET, "PUT", "/v1/topics/shop", "{}").await;
    for n in 0..300 {
        api.advance("1s");
        let message = format!(r#"{{"id":"m-{n}","payload":"CANARY"}}"#);
        assert_eq!(ask(SECRET, "POST", "/v1/topics/orders/messages", &message).await.status, 201);
    }
    let answer = ask(SECRET, "GET", "/v1/audit?limit=1000", "").await;
    assert!(!answer.text.contains("CANARY") && !answer.text.contains(SECRET), "{}", answer.text);
    let answer = answer.json();
    let entries = answer["entries"].as_array().unwrap();
    assert_eq!((entries.len(), &answer["node"]), (258, &json!("n1")));
    assert_eq!(entries[0]["action"], "POST /v1/topics/{topic}/messages");
    let last = &entries[257];
    assert_eq!(
        (&last["action"], &last["topic"], &last["who"]),
        (&json!("PUT /v1/topics/{topic}"), &json!("orders"), &json!("ops"))
    );
    let own = ask("a-secret-of-shop-0123", "GET", "/v1/audit", "").await.json();
    let topics: Vec<&Value> = own["entries"].as_array().unwrap().iter().map(|line| &line["topic"]).collect();
    assert_eq!(topics, ["shop"]);
    assert_eq!(ask(SECRET, "GET", "/v1/audit?limit=1", "").await.json()["entries"].as_array().unwrap().len(), 1);
    for bad in ["0", "1001", "x"] {
        assert_eq!(ask(SECRET, "GET", &format!("/v1/audit?limit={bad}"), "").await.problem().0, 400);
    }
}

#[tokio::test]
async fn entries_are_filtered_by_kind_operation_and_topic_and_claims_push_out_nothing_else() {
    let api = TestApi::with_orders().await;
    api.put("/v1/topics/shop", "{}").await;
    api.enqueue(r#"{"id":"a","delay":"1h"}"#).await;
    assert_eq!(api.delete("/v1/topics/orders/messages/a").await.status, 200);
    api.advance("1s");
    api.post("/v1/topics/orders/pause", r#"{"reason":"stock"}"#).await;
    api.post("/v1/topics/orders/resume", "{}").await;
    for _ in 0..300 {
        api.advance("1s");
        api.post("/v1/topics/orders/claim", r#"{"max":1}"#).await;
    }
    let found = async |query: &str| -> Vec<String> {
        let answer = api.get(&format!("/v1/audit?limit=1000{query}")).await.json();
        let entries = answer["entries"].as_array().unwrap();
        entries.iter().map(|entry| entry["operation"].as_str().unwrap().to_owned()).collect()
    };
    let all = found("").await;
    assert_eq!(all.iter().filter(|operation| *operation == "claim").count(), 256);
    assert!(all.contains(&"cancel_message".to_owned()) && all.contains(&"pause_topic".to_owned()), "{all:?}");
    let made = found("&kind=administration,messages&topic=orders").await;
    assert_eq!(made, ["resume_topic", "pause_topic", "cancel_message", "enqueue", "put_topic"]);
    assert_eq!(found("&operation=put_topic,enqueue&topic=shop").await, ["put_topic"]);
    assert_eq!(found("&kind=messages&operation=claim").await, Vec::<String>::new());
    for (query, word) in [("kind=claim", "administration"), ("operation=pause", "pause_sink"), ("actor=x", "operation")]
    {
        let answer = api.get(&format!("/v1/audit?{query}")).await;
        assert_eq!(answer.problem().0, 400, "{query}");
        assert!(answer.text.contains(word), "{query}: {}", answer.text);
    }
}
