//! One message at a time.

use std::time::Duration;

use duetime_core::{Due, TopicName};
use duetime_testkit::plain_message;
use serde_json::json;

use super::{NOW_MS, TestApi};

const MESSAGES: &str = "/v1/topics/orders/messages";

#[tokio::test]
async fn one_message_is_scheduled_replaced_or_a_duplicate() {
    let api = TestApi::with_orders().await;
    let first = api.enqueue(r#"{"id":"o-1","delay":"30m","payload":"a"}"#).await;
    assert_eq!(first.status, 201);
    let body = first.json();
    assert_eq!((&body["id"], &body["outcome"]), (&json!("o-1"), &json!("scheduled")));
    assert_eq!(body["due_at"], NOW_MS + 1_800_000);
    assert!(body["shard"].as_u64().unwrap() < 4);

    let again = api.enqueue(r#"{"id":"o-1","delay":"1h"}"#).await;
    assert_eq!(again.problem(), (409, "duplicate".to_owned()));
    let found = again.json();
    for field in ["id", "due_at", "shard"] {
        assert_eq!(found[field], body[field], "{found}");
    }
    assert_eq!(found["outcome"], "duplicate");
    let over = api.enqueue(r#"{"id":"o-1","delay":"1h","on_conflict":"replace","payload":"b"}"#).await;
    assert_eq!((over.status.as_u16(), &over.json()["outcome"]), (200, &json!("replaced")));

    let read = api.get("/v1/topics/orders/messages/o-1").await.json();
    assert_eq!((&read["state"], &read["payload"], &read["attempts"]), (&json!("scheduled"), &json!("b"), &json!(0)));
    assert_eq!((&read["due_at"], &read["shard"]), (&json!(NOW_MS + 3_600_000), &body["shard"]));
}

#[tokio::test]
async fn of_two_messages_the_one_that_is_due_earlier_or_later_is_there_and_both_are_no_problem() {
    let api = TestApi::new().await;
    api.put("/v1/topics/orders", r#"{"shards":4}"#).await;
    let place = async |delay: &str, rule: &str| {
        let body = format!(r#"{{"id":"o-1","delay":"{delay}","payload":"{delay}","on_conflict":"{rule}"}}"#);
        let answer = api.enqueue(&body).await;
        let found = answer.json();
        (answer.status.as_u16(), found["outcome"].as_str().unwrap().to_owned(), found["due_at"].as_i64().unwrap())
    };
    let due = |hours: i64| NOW_MS + 3_600_000 * hours;
    assert_eq!(place("2h", "earliest").await, (201, "scheduled".to_owned(), due(2)));
    for (delay, rule) in [("3h", "earliest"), ("2h", "earliest"), ("1h", "latest")] {
        assert_eq!(place(delay, rule).await, (200, "kept".to_owned(), due(2)), "{delay} {rule}");
    }
    assert_eq!(api.get(&format!("{MESSAGES}/o-1")).await.json()["payload"], "2h");
    assert_eq!(place("1h", "earliest").await, (200, "replaced".to_owned(), due(1)));
    assert_eq!(place("3h", "latest").await, (200, "replaced".to_owned(), due(3)));
    assert_eq!(api.get(&format!("{MESSAGES}/o-1")).await.json()["payload"], "3h");
}

#[tokio::test]
async fn a_cancel_of_a_version_answers_changed_where_the_message_is_another_one_by_now() {
    let api = TestApi::new().await;
    api.put("/v1/topics/orders", r#"{"shards":4,"remember":"1h"}"#).await;
    let versions = async |id: &str| api.get(&format!("{MESSAGES}/{id}")).await.json()["version"].clone();
    for id in ["a", "b", "c"] {
        api.enqueue(&format!(r#"{{"id":"{id}","delay":"1h"}}"#)).await;
    }
    let (a, b, c) = (versions("a").await, versions("b").await, versions("c").await);
    api.enqueue(r#"{"id":"a","delay":"1h","on_conflict":"replace"}"#).await;
    let path =
        |id: &str, version: &serde_json::Value| format!("{MESSAGES}/{id}?if_version={}", version.as_str().unwrap());
    let changed = api.delete(&path("a", &a)).await;
    assert_eq!((changed.status.as_u16(), &changed.json()["outcome"]), (412, &json!("changed")));
    assert_eq!(api.delete(&path("b", &b)).await.json()["outcome"], "cancelled");
    assert_eq!(api.delete(&format!("{MESSAGES}/b?if_version=7")).await.status, 400);

    let cancel = async |body: serde_json::Value| api.post("/v1/topics/orders/cancel", &body.to_string()).await.json();
    let moved = cancel(json!({"ids": ["a", "b", "c", "d"], "if_versions": [a, b, c, "x"], "moved": true})).await;
    let results = moved["results"].as_array().unwrap();
    let words: Vec<_> = results.iter().map(|result| result["outcome"].as_str().unwrap_or_default()).collect();
    assert_eq!(words, ["changed", "cancelled", "cancelled", ""], "{moved}");
    assert_eq!(results[1]["became"]["outcome"], "cancelled", "it was cancelled before: {moved}");
    assert_eq!((&results[2]["became"], &results[3]["error"]["code"]), (&json!(null), &json!("invalid_version")));
    for rule in ["reject", "replace", "earliest"] {
        let again = api.enqueue(&json!({"id": "c", "on_conflict": rule}).to_string()).await;
        let refused = again.json();
        assert_eq!((again.status.as_u16(), &refused["became"]["outcome"]), (409, &json!("moved")), "{refused}");
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.contains("\"on_conflict\": \"return\"") && !detail.contains("replace"), "{refused}");
    }
    let gone = api.delete(&format!("{MESSAGES}/c")).await;
    assert_eq!((gone.status.as_u16(), &gone.json()["outcome"]), (404, &json!("moved")));
    assert_eq!(gone.json()["became"]["version"], c);
    assert_eq!(api.get(&format!("{MESSAGES}/c")).await.json()["became"]["outcome"], "cancelled_before");
    for (bad, field) in
        [(json!({"ids": ["a"], "if_versions": []}), "if_versions"), (json!({"ids": ["a"], "moved": true}), "moved")]
    {
        let refused = cancel(bad).await;
        assert_eq!((&refused["code"], &refused["field"]), (&json!("invalid_version"), &json!(field)));
    }
}

#[tokio::test]
async fn an_id_is_made_when_none_is_given_and_due_at_takes_both_forms() {
    let api = TestApi::with_orders().await;
    let made = api.enqueue(r#"{"due_at":"2025-11-21T00:00:01Z"}"#).await.json();
    let id = uuid::Uuid::parse_str(made["id"].as_str().unwrap()).unwrap();
    assert_eq!((id.get_version_num(), &made["due_at"]), (7, &json!(NOW_MS + 1000)));
    let past = api.enqueue(r#"{"due_at":"2025-11-20T23:59:00Z"}"#).await.json();
    assert_eq!(
        (&past["outcome"], &past["late_by_ms"]),
        (&json!("scheduled"), &json!(60_000)),
        "it says how late it is"
    );
    assert!(made.get("late_by_ms").is_none(), "{made}");
    assert_eq!(api.drain().await.len(), 1, "a past due time is due at once, the other one is not");
}

#[tokio::test]
async fn a_payload_is_delivered_as_it_was_sent() {
    let api = TestApi::with_orders().await;
    for (id, given, wanted) in [
        ("s", r#""payload":"plain \u00e9 \"q\"""#, json!("plain é \"q\"")),
        ("o", r#""payload":{"b" : 1.0,  "a":[1e2]}"#, json!(r#"{"b" : 1.0,  "a":[1e2]}"#)),
        ("n", r#""payload":null"#, json!("null")),
        ("d", r#""payload":12345678901234567890123"#, json!("12345678901234567890123")),
        ("b", r#""payload_base64":"aGk=""#, json!("hi")),
        ("u", r#""payload_base64":"aGk""#, json!("hi")),
        ("e", r#""delay":0"#, json!("")),
    ] {
        let sent = api.enqueue(&format!(r#"{{"id":"{id}",{given}}}"#)).await;
        assert_eq!(sent.status, 201, "{}", sent.text);
        assert_eq!(api.get(&format!("/v1/topics/orders/messages/{id}")).await.json()["payload"], wanted, "{id}");
    }
    api.enqueue(r#"{"id":"x","payload_base64":"//79"}"#).await;
    let raw = api.get("/v1/topics/orders/messages/x").await.json();
    assert_eq!((raw.get("payload"), &raw["payload_base64"]), (None, &json!("//79")));
}

#[tokio::test]
async fn bad_input_is_refused_with_its_code_field_and_fix() {
    let api = TestApi::with_orders().await;
    let long_id = format!(r#"{{"id":"{}"}}"#, "x".repeat(257));
    for (message, code, field, help) in [
        (r#"{"delai":"1s"}"#, "unknown_field", "delai", "\"delay\""),
        (r#"{"id":""}"#, "invalid_id", "id", "1 to 256"),
        (&long_id, "invalid_id", "id", "257"),
        (r#"{"id":"a\nb"}"#, "invalid_id", "id", "control"),
        (r#"{"id":7}"#, "invalid_id", "id", "quotes"),
        (r#"{"id":"\ud800"}"#, "invalid_id", "id", "Unicode"),
        (r#"{"delay":-5}"#, "invalid_delay", "delay", "30m"),
        (r#"{"delay":1.5}"#, "invalid_delay", "delay", "30m"),
        (r#"{"delay":1e999}"#, "invalid_delay", "delay", "30m"),
        (r#"{"delay":30}"#, "invalid_delay", "delay", "30s"),
        (r#"{"delay":"30"}"#, "invalid_delay", "delay", "30s"),
        (r#"{"due_at":1795492282}"#, "invalid_due_time", "due_at", "1795492282000"),
        (r#"{"due_at":"1795492282"}"#, "invalid_due_time", "due_at", "is it in seconds?"),
        (r#"{"due_at":0}"#, "invalid_due_time", "due_at", "2001"),
        (r#"{"delay":"soon"}"#, "invalid_delay", "delay", "30m"),
        (r#"{"delay":true}"#, "invalid_delay", "delay", "30m"),
        (r#"{"delay":99999999999999999999999}"#, "invalid_delay", "delay", "milliseconds"),
        (r#"{"delay":"11y"}"#, "invalid_delay", "delay", "10 years"),
        (r#"{"due_at":-1}"#, "invalid_due_time", "due_at", "1970"),
        (r#"{"due_at":9999999999999}"#, "invalid_due_time", "due_at", "10 years"),
        (r#"{"due_at":"tomorrow"}"#, "invalid_due_time", "due_at", "RFC 3339"),
        (r#"{"due_at":{}}"#, "invalid_due_time", "due_at", "RFC 3339"),
        (r#"{"delay":1,"due_at":1}"#, "invalid_due_time", "due_at", "one of them"),
        (r#"{"payload":"a","payload_base64":"YQ=="}"#, "invalid_payload", "payload_base64", "one of them"),
        (r#"{"payload_base64":"%%%"}"#, "invalid_base64", "payload_base64", "base64"),
        (r#"{"payload_base64":[]}"#, "invalid_payload", "payload_base64", "quotes"),
        (r#"{"headers":{"a b":"c"}}"#, "invalid_headers", "headers", "a b"),
        (r#"{"headers":{"a":1}}"#, "invalid_headers", "headers", "string"),
        (r#"{"headers":{"duetime-repeat":"1h"}}"#, "invalid_headers", "headers", "give \"repeat\""),
        (r#"{"headers":{"a":"1","a":"2"}}"#, "invalid_headers", "headers", "twice"),
        (r#"{"on_conflict":"ignore"}"#, "invalid_on_conflict", "on_conflict", "reject"),
        (r#"{"id":"a","id":"b"}"#, "invalid_value", "id", "give it once"),
    ] {
        let refused = api.enqueue(message).await;
        assert_eq!(refused.problem(), (400, code.to_owned()), "{message}: {}", refused.text);
        let body = refused.json();
        assert_eq!(body["field"], field, "{message}");
        assert!(body["detail"].as_str().unwrap().contains(help), "{message}: {}", refused.text);
    }
    for message in ["{", "7", "\"x\"", r#"{"delay":NaN}"#, ""] {
        assert_eq!(api.enqueue(message).await.problem().0, 400, "{message}");
    }
    let broken_utf8 = b"{\"payload\":\"\xff\"}".to_vec();
    let refused = api.call("POST", "/v1/topics/orders/messages", "application/json", broken_utf8).await;
    assert_eq!(refused.problem(), (400, "malformed_json".to_owned()));
    assert_eq!(api.drain().await, vec![]);
}

#[tokio::test]
async fn a_message_that_says_nothing_of_when_falls_due_after_the_delay_of_its_topic() {
    let api = TestApi::new().await;
    api.put("/v1/topics/orders", r#"{"delay":"30m"}"#).await;
    assert_eq!(api.put("/v1/topics/orders", r#"{"delay":"11y"}"#).await.problem().0, 400);
    let now = api.enqueue(r#"{"id":"now","delay":"0s"}"#).await.json()["due_at"].as_i64().unwrap();
    let (half_an_hour, day) = (1_800_000, 86_400_000);
    for (message, after_ms) in [(r#"{"id":"a"}"#, half_an_hour), (r#"{"id":"b","delay":"1d"}"#, day)] {
        assert_eq!(api.enqueue(message).await.json()["due_at"], now + after_ms, "{message}");
    }
    let many = api.call("POST", "/v1/topics/orders/messages", "application/x-ndjson", "{\"id\":\"c\"}\n").await;
    assert_eq!(many.json()["results"][0]["due_at"], now + half_an_hour);
    api.put("/v1/topics/orders", r#"{"delay":null}"#).await;
    assert_eq!(api.enqueue(r#"{"id":"d"}"#).await.json()["due_at"], now);
}

#[tokio::test]
async fn a_payload_over_the_topics_limit_is_refused() {
    let api = TestApi::new().await;
    api.put("/v1/topics/orders", r#"{"max_payload":10}"#).await;
    assert_eq!(api.enqueue(r#"{"payload":"0123456789"}"#).await.status, 201);
    assert_eq!(api.enqueue(r#"{"payload":"0123456789x"}"#).await.problem(), (413, "payload_too_large".to_owned()));
    let huge = format!(r#"{{"payload":"{}"}}"#, "x".repeat(33 << 20));
    assert_eq!(api.enqueue(&huge).await.problem(), (413, "body_too_large".to_owned()));
}

#[tokio::test]
async fn ids_in_a_path_are_decoded_once() {
    let api = TestApi::with_orders().await;
    for (id, encoded) in [
        ("a/b", "a%2Fb"),
        ("50%", "50%25"),
        ("%2F", "%252F"),
        ("заказ 42", "%D0%B7%D0%B0%D0%BA%D0%B0%D0%B7%2042"),
        ("a+b?c#d", "a+b%3Fc%23d"),
        ("%2e", "%252e"),
        ("...", "..."),
    ] {
        let sent = api.enqueue(&json!({"id": id, "delay": "1h"}).to_string()).await;
        assert_eq!(sent.status, 201, "{}", sent.text);
        let path = format!("/v1/topics/orders/messages/{encoded}");
        assert_eq!(api.get(&path).await.json()["id"], id);
        assert_eq!(api.get(&format!("{path}/explain")).await.json()["id"], id);
        assert_eq!(api.delete(&path).await.json()["outcome"], "cancelled");
    }
    assert_eq!(api.get("/v1/topics/orders/messages/%FF").await.problem(), (400, "invalid_path".to_owned()));
    assert_eq!(api.get("/v1/topics/orders/messages/a%00").await.problem(), (400, "invalid_id".to_owned()));
    assert_eq!(api.get("/v1/topics/a%20b").await.problem(), (400, "invalid_topic_name".to_owned()));
}

#[tokio::test]
async fn an_id_of_dots_alone_is_refused_and_one_that_is_stored_is_reached_by_lists_and_bodies() {
    let api = TestApi::with_orders().await;
    for dots in [".", ".."] {
        let one = api.enqueue(&json!({"id": dots, "delay": "1h"}).to_string()).await;
        assert_eq!(one.problem(), (400, "invalid_id".to_owned()));
        let problem = one.json();
        assert_eq!(problem["field"], "id");
        assert!(problem["detail"].as_str().unwrap().ends_with("use another id"), "{problem}");
        let replaces = json!([{"id": "a", "delay": "1h"}, {"id": dots, "on_conflict": "replace"}]);
        let batch = api.enqueue(&replaces.to_string()).await.json();
        assert_eq!(batch["results"][1]["error"]["code"], "invalid_id", "{batch}");
        let line = api.call("POST", MESSAGES, "application/x-ndjson", format!("{{\"id\":\"{dots}\"}}\n")).await;
        assert_eq!(line.json()["results"][0]["error"]["code"], "invalid_id", "{}", line.text);

        // As a version before stored it.
        let stored = plain_message(dots, Due::In(Duration::from_secs(3600)));
        let placed = api.parts.router.enqueue(&TopicName::new("orders").unwrap(), vec![stored]).await;
        assert!(placed[0].is_ok(), "{placed:?}");
        let listed = api.get(&format!("{MESSAGES}?prefix={dots}")).await.json();
        assert_eq!(listed["messages"][0]["id"], dots, "{listed}");
        // A client that sends the path as it was given reaches it too.
        let encoded = dots.replace('.', "%2e");
        assert_eq!(api.get(&format!("{MESSAGES}/{encoded}")).await.json()["id"], dots);
        let cancelled = api.post("/v1/topics/orders/cancel", &json!({"ids": [dots]}).to_string()).await.json();
        assert_eq!(cancelled["results"][0]["outcome"], "cancelled", "{cancelled}");
    }
}

#[tokio::test]
async fn cancel_and_reschedule_answer_what_became_of_the_message() {
    let api = TestApi::with_orders().await;
    let path = "/v1/topics/orders/messages/o-1";
    api.enqueue(r#"{"id":"o-1","delay":"30m","headers":{"Trace":"1"}}"#).await;
    let moved = api.call("PATCH", path, "application/json", r#"{"delay":"1m"}"#).await;
    assert_eq!(
        (moved.status.as_u16(), moved.json()),
        (
            200,
            json!({
                "id": "o-1", "outcome": "rescheduled", "due_at": NOW_MS + 60_000
            })
        )
    );
    for (bad, field) in [
        ("", "due_at"),
        ("{}", "due_at"),
        (r#"{"delay":1,"due_at":2}"#, "due_at"),
        (r#"{"at":1}"#, "at"),
        (r#"{"delay":"never"}"#, "delay"),
        (r#"{"delay":30}"#, "delay"),
    ] {
        let refused = api.call("PATCH", path, "application/json", bad).await;
        assert_eq!((refused.problem().0, &refused.json()["field"]), (400, &json!(field)), "{bad}");
    }
    api.advance("1m");
    assert_eq!(api.post("/v1/topics/orders/claim", "").await.json()["messages"][0]["headers"], json!({"Trace": "1"}));
    let held = api.call("PATCH", path, "application/json", r#"{"delay":"1m"}"#).await;
    assert_eq!((held.problem(), &held.json()["outcome"]), ((409, "in_flight".to_owned()), &json!("in_flight")));
    assert!(held.text.contains("nothing was changed"), "{}", held.text);
    let gone = api.delete(path).await;
    assert_eq!((gone.problem(), &gone.json()["outcome"]), ((409, "in_flight".to_owned()), &json!("in_flight")));
    let unknown = api.delete(path).await;
    assert_eq!((unknown.problem(), &unknown.json()["id"]), ((404, "unknown_message".to_owned()), &json!("o-1")));
    assert_eq!(unknown.json()["outcome"], "unknown");
    let read = api.get(path).await;
    assert_eq!((read.problem(), read.json().get("outcome")), ((404, "unknown_message".to_owned()), None));
    api.advance("1h");
    assert_eq!(api.drain().await, vec![], "a cancelled message is not tried again");
}

#[tokio::test]
async fn many_are_cancelled_with_an_outcome_for_each() {
    let api = TestApi::with_orders().await;
    api.enqueue(r#"{"id":"a","delay":"1h"}"#).await;
    api.enqueue(r#"{"id":"b","delay":"1h"}"#).await;
    let answer = api.post("/v1/topics/orders/cancel", r#"{"ids":["a","x",7,"","b","a"]}"#).await.json();
    let results = answer["results"].as_array().unwrap();
    let outcomes: Vec<&str> =
        results.iter().map(|r| r["outcome"].as_str().or(r["error"]["code"].as_str()).unwrap()).collect();
    assert_eq!(outcomes, ["cancelled", "unknown", "invalid_id", "invalid_id", "cancelled", "unknown"]);
    assert_eq!(results[3]["error"]["index"], 3);
    assert_eq!(api.post("/v1/topics/orders/cancel", "{}").await.json()["field"], "ids");
}

#[tokio::test]
async fn explain_says_where_a_message_is_and_what_happens_next() {
    let api = TestApi::with_orders().await;
    api.enqueue(r#"{"id":"o-1","delay":"30m"}"#).await;
    let explained = api.get("/v1/topics/orders/messages/o-1/explain").await.json();
    assert!(explained["shard"].as_u64().unwrap() < 4);
    assert!(explained["slot"].is_u64() && explained["key"].as_str().unwrap().contains(":orders:"), "{explained}");
    assert_eq!(explained.get("file"), None, "the store is no file");
    assert!(explained["next"].as_str().unwrap().contains("in 30m"), "{explained}");
    api.advance("30m");
    api.post("/v1/topics/orders/claim", "").await;
    let held = api.get("/v1/topics/orders/messages/o-1/explain").await.json();
    assert!(held["next"].as_str().unwrap().contains("attempt 1 of 10"), "{held}");
}
