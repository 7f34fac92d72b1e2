//! Dead letters that are redriven in another topic, or with another payload.

use std::sync::Arc;

use duetime_core::StoreError;
use duetime_core::layer::{Call, StoreLayer};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{Faulty, TestApi, away};
use crate::{Auth, AuthConfig};

const REDRIVE: &str = "/v1/topics/orders/dead/redrive";

/// Dead letters of `orders` with these ids, and an empty topic `mails`.
async fn with_dead(api: &TestApi, ids: &[&str]) {
    api.put("/v1/topics/orders", r#"{"shards":2,"remember":"1h"}"#).await;
    api.put("/v1/topics/mails", r#"{"shards":2,"max_payload":100,"remember":"1h"}"#).await;
    let new = ids.iter().map(|id| json!({"id": id, "payload": format!("of {id}"), "headers": {"shop": "7"}}));
    assert_eq!(api.enqueue(&json!(new.collect::<Vec<_>>()).to_string()).await.status, 200);
    die(api, "orders", ids.len()).await;
}

async fn die(api: &TestApi, topic: &str, count: usize) {
    let mut left = count;
    while left > 0 {
        let claim = api.post(&format!("/v1/topics/{topic}/claim"), r#"{"max":256}"#).await.json();
        let receipts: Vec<&Value> = claim["messages"].as_array().unwrap().iter().map(|one| &one["receipt"]).collect();
        assert!(!receipts.is_empty(), "{left} of {topic} are not due");
        left -= receipts.len();
        let nack = json!({"receipts": receipts, "dead": true, "reason": "refused"}).to_string();
        assert_eq!(api.post(&format!("/v1/topics/{topic}/nack"), &nack).await.status, 200);
    }
}

async fn redrive(api: &TestApi, path: &str, ask: Value) -> Vec<(String, String)> {
    let answer = api.post(path, &ask.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let answer = answer.json();
    let results = answer["results"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    results.map(|one| (text(&one["outcome"]), text(&one["detail"]))).collect()
}

async fn counts(api: &TestApi, topic: &str) -> (Value, Value) {
    let topic = api.get(&format!("/v1/topics/{topic}")).await.json();
    (topic["scheduled"].clone(), topic["dead"].clone())
}

fn words(results: &[(String, String)]) -> Vec<&str> {
    results.iter().map(|(outcome, _)| outcome.as_str()).collect()
}

#[tokio::test]
async fn letters_are_redriven_in_another_topic_and_what_is_there_already_stays() {
    let api = TestApi::new().await;
    with_dead(&api, &["a", "b", "c"]).await;
    api.post("/v1/topics/mails/messages", r#"{"id":"b","payload":"another"}"#).await;
    let done = redrive(&api, REDRIVE, json!({"ids": ["a", "b", "none", ""], "to": "mails"})).await;
    assert_eq!(words(&done), ["redriven", "duplicate", "unknown", "refused"]);
    assert!(done[1].1.contains("mails has a message of this id"), "{done:?}");
    assert_eq!(
        (counts(&api, "orders").await, counts(&api, "mails").await),
        ((json!(0), json!(2)), (json!(2), json!(0)))
    );
    let moved = api.get("/v1/topics/mails/messages/a").await.json();
    assert_eq!((&moved["payload"], &moved["headers"]), (&json!("of a"), &json!({"shop": "7"})));
    assert_eq!((&moved["attempts"], &moved["redrives"]), (&json!(0), &json!(0)));
    assert_eq!(api.get("/v1/topics/mails/messages/b").await.json()["payload"], "another");
    // The topic that it left remembers where it went.
    let cancelled = api.delete("/v1/topics/orders/messages/a").await;
    assert!(cancelled.text.contains("moved"), "{}", cancelled.text);
}

#[tokio::test]
async fn a_redrive_in_another_topic_that_broke_off_is_in_both_and_is_ended_by_the_same_request() {
    let faulty = Faulty::new();
    let api = TestApi::over(faulty.clone(), Auth::open()).await;
    with_dead(&api, &["a"]).await;
    faulty.set(|call| (call.op == "edit_dead_letters").then(|| away("change dead letters")));
    let ask = json!({"ids": ["a"], "to": "mails"});
    assert_eq!(api.post(REDRIVE, &ask.to_string()).await.problem().0, 503);
    assert_eq!(
        (counts(&api, "orders").await, counts(&api, "mails").await),
        ((json!(0), json!(1)), (json!(1), json!(0)))
    );
    faulty.set(|_| None);
    assert_eq!(words(&redrive(&api, REDRIVE, ask.clone()).await), ["redriven"]);
    assert_eq!(
        (counts(&api, "orders").await, counts(&api, "mails").await),
        ((json!(0), json!(0)), (json!(1), json!(0)))
    );
    assert_eq!(words(&redrive(&api, REDRIVE, ask).await), ["unknown"]);
    assert_eq!(counts(&api, "mails").await, (json!(1), json!(0)));
    // It does not come back to a topic that remembers that it left: its letter stays.
    die(&api, "mails", 1).await;
    let back = redrive(&api, "/v1/topics/mails/dead/redrive", json!({"ids": ["a"], "to": "orders"})).await;
    assert_eq!(words(&back), ["duplicate"]);
    assert_eq!(counts(&api, "mails").await, (json!(0), json!(1)));
}

#[tokio::test]
async fn an_edited_letter_keeps_what_it_was_and_only_the_letter_that_was_read_is_edited() {
    let api = TestApi::new().await;
    with_dead(&api, &["a", "b"]).await;
    let died = api.get("/v1/topics/orders/messages/a").await.json()["death"]["at"].as_i64().unwrap();
    let ask = |died: i64| json!({"ids": ["a"], "payload": {"open": 1}, "died_at": died});
    assert_eq!(words(&redrive(&api, REDRIVE, ask(died - 1)).await), ["changed"]);
    assert_eq!(words(&redrive(&api, REDRIVE, ask(died)).await), ["redriven"]);
    api.advance("10s");
    let again = redrive(&api, REDRIVE, ask(died)).await;
    assert_eq!((words(&again), again[0].1.contains("nothing was done now")), (vec!["redriven"], true), "{again:?}");
    let unnamed = json!({"ids": ["a"], "payload": {"open": 1}});
    assert_eq!(words(&redrive(&api, REDRIVE, unnamed).await), ["redriven"], "it waits as what was asked for");
    let other = json!({"ids": ["a"], "payload": "another"});
    assert_eq!(words(&redrive(&api, REDRIVE, other).await), ["unknown"], "it is no dead letter any more");
    let edited = api.get("/v1/topics/orders/messages/a").await.json();
    assert_eq!((&edited["state"], &edited["payload"]), (&json!("scheduled"), &json!(r#"{"open":1}"#)));
    assert_eq!((&edited["previous"]["payload"], &edited["previous"]["bytes"]), (&json!("of a"), &json!(4)));
    assert_eq!(edited["headers"], json!({"shop": "7"}), "the former payload is shown once");
    // Whoever is handed it does not see that, and it is kept when it dies again, and in another topic.
    let claim = api.post("/v1/topics/orders/claim", "{}").await.json();
    assert_eq!(claim["messages"][0]["headers"], json!({"shop": "7"}));
    let nack = json!({"receipts": [claim["messages"][0]["receipt"]], "dead": true}).to_string();
    assert_eq!(api.post("/v1/topics/orders/nack", &nack).await.status, 200);
    assert_eq!(words(&redrive(&api, REDRIVE, json!({"ids": ["a"], "to": "mails"})).await), ["redriven"]);
    assert_eq!(api.get("/v1/topics/mails/messages/a").await.json()["previous"]["payload"], "of a");
    // Edited and sent elsewhere, bytes too.
    let both = json!({"ids": ["b"], "payload_base64": "AP8=", "to": "mails"});
    assert_eq!(words(&redrive(&api, REDRIVE, both).await), ["redriven"]);
    let sent = api.get("/v1/topics/mails/messages/b").await.json();
    assert_eq!((&sent["payload_base64"], &sent["previous"]["payload"]), (&json!("AP8="), &json!("of b")));
    assert_eq!(counts(&api, "orders").await, (json!(0), json!(0)));
}

#[tokio::test]
async fn what_cannot_be_redriven_elsewhere_is_refused_and_stays() {
    let api = TestApi::new().await;
    with_dead(&api, &["a"]).await;
    let long = json!({"id": "long", "payload": "x".repeat(101)}).to_string();
    assert_eq!(api.enqueue(&long).await.status, 201);
    die(&api, "orders", 1).await;
    let done = redrive(&api, REDRIVE, json!({"ids": ["long"], "to": "mails"})).await;
    assert_eq!((done[0].0.as_str(), done[0].1.contains("max_payload")), ("refused", true), "{done:?}");
    let many: Vec<String> = (0..1001).map(|n| n.to_string()).collect();
    for (ask, status, field) in [
        (json!({"all": true, "to": "mails"}), 400, "ids"),
        (json!({"ids": many, "to": "mails"}), 400, "ids"),
        (json!({"ids": ["a", "long"], "payload": "x"}), 400, "ids"),
        (json!({"ids": ["a"], "to": "orders"}), 400, "to"),
        (json!({"ids": ["a"], "to": "a b"}), 400, "to"),
        (json!({"ids": ["a"], "payload": "x", "payload_base64": "eA=="}), 400, "payload_base64"),
        (json!({"ids": ["a"], "to": "mails", "payload": "x".repeat(101)}), 413, "payload"),
        (json!({"ids": ["a"], "to": "nowhere"}), 404, ""),
    ] {
        let answer = api.post(REDRIVE, &ask.to_string()).await;
        assert_eq!(
            (answer.problem().0, answer.json()["field"].as_str().unwrap_or_default()),
            (status, field),
            "{}",
            answer.text
        );
    }
    assert_eq!(
        (counts(&api, "orders").await, counts(&api, "mails").await),
        ((json!(0), json!(2)), (json!(0), json!(0)))
    );
}

#[tokio::test]
async fn a_letter_whose_time_is_over_stays_where_it_is() {
    let api = TestApi::new().await;
    with_dead(&api, &["a"]).await;
    let at = super::NOW_MS + 60_000;
    assert_eq!(api.enqueue(&json!({"id": "timed", "payload": "x", "expires_at": at}).to_string()).await.status, 201);
    die(&api, "orders", 1).await;
    api.advance("2m");
    for ask in [json!({"ids": ["timed"], "to": "mails"}), json!({"ids": ["timed"], "payload": "y"})] {
        let done = redrive(&api, REDRIVE, ask).await;
        assert_eq!((done[0].0.as_str(), done[0].1.contains("a time that has passed")), ("refused", true), "{done:?}");
    }
    assert_eq!(
        (counts(&api, "orders").await, counts(&api, "mails").await),
        ((json!(0), json!(2)), (json!(0), json!(0)))
    );
}

#[tokio::test]
async fn where_a_repeated_request_could_deliver_twice_it_is_refused() {
    let api = TestApi::new().await;
    with_dead(&api, &["a"]).await;
    api.put("/v1/topics/forgetful", r#"{"shards":1}"#).await;
    let refused = api.post(REDRIVE, r#"{"ids":["a"],"to":"forgetful"}"#).await;
    assert_eq!((refused.problem().0, refused.json()["field"].as_str()), (400, Some("to")), "{}", refused.text);
    assert!(refused.text.contains("duetime topic set forgetful --remember 1h"), "{}", refused.text);
    let set = async |topic: &str| {
        let answer = api.put(&format!("/v1/topics/{topic}"), r#"{"delivery":"at-most-once"}"#).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    };
    // What was scheduled, delivered and is remembered is not scheduled by a repetition that read the letter before.
    set("mails").await;
    let ask = || redrive(&api, REDRIVE, json!({"ids": ["a"], "to": "mails"}));
    let both = tokio::join!(ask(), ask());
    assert!(words(&both.0) == ["redriven"] || words(&both.1) == ["redriven"], "{both:?}");
    let given = api.post("/v1/topics/mails/claim", r#"{"max":10}"#).await.json();
    assert_eq!(given["messages"].as_array().map(Vec::len), Some(1), "{given}");
}

/// Edits of letters say that they come, and wait until they may be made.
#[derive(Debug)]
struct EditsWait {
    came: Semaphore,
    may_go: Semaphore,
}

impl StoreLayer for EditsWait {
    async fn around<T: Send>(
        &self,
        call: Call<'_>,
        made: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        if call.op == "edit_dead_letters" {
            self.came.add_permits(1);
            self.may_go.acquire().await.expect("nobody closes it").forget();
        }
        made.await
    }
}

#[tokio::test]
async fn an_edit_overtakes_nothing_that_came_between_its_look_and_itself() {
    for (between, outcome) in [("purge", "unknown"), ("cancel", "unknown"), ("enqueue", "changed")] {
        let turn = Arc::new(EditsWait { came: Semaphore::new(0), may_go: Semaphore::new(0) });
        let api = TestApi::over(turn.clone(), Auth::open()).await;
        with_dead(&api, &["a"]).await;
        let ask = json!({"ids": ["a"], "payload": "edited"});
        let other = async {
            turn.came.acquire().await.expect("nobody closes it").forget();
            let answer = match between {
                "purge" => api.call("DELETE", "/v1/topics/orders/dead", "application/json", r#"{"ids":["a"]}"#).await,
                "cancel" => api.delete("/v1/topics/orders/messages/a").await,
                _ => api.enqueue(r#"{"id":"a","payload":"new","on_conflict":"replace"}"#).await,
            };
            assert!(answer.status.is_success(), "{between}: {}", answer.text);
            turn.may_go.add_permits(1);
        };
        let (done, ()) = tokio::join!(redrive(&api, REDRIVE, ask), other);
        assert_eq!(words(&done), [outcome], "{between}");
        let there = api.get("/v1/topics/orders/messages/a").await;
        match between {
            "enqueue" => assert_eq!(there.json()["payload"], "new"),
            _ => assert_eq!(there.status, 404, "{between}: {}", there.text),
        }
    }
}

#[tokio::test]
async fn an_id_that_is_named_again_is_counted_once_and_at_most_once_is_edited_too() {
    let api = TestApi::new().await;
    with_dead(&api, &["a", "b"]).await;
    let answer = api.post(REDRIVE, r#"{"ids":["a","b","a","a"],"to":"mails"}"#).await.json();
    let outcomes =
        answer["results"].as_array().unwrap().iter().map(|one| (&one["id"], &one["outcome"], &one["detail"]));
    let redriven = (&json!("redriven"), &Value::Null);
    for (id, outcome, detail) in outcomes {
        assert_eq!((outcome, detail), redriven, "{id}");
    }
    assert_eq!((&answer["done"], answer["results"].as_array().map(Vec::len)), (&json!(2), Some(4)));
    assert_eq!(counts(&api, "mails").await, (json!(2), json!(0)));
    die(&api, "mails", 2).await;
    assert_eq!(api.put("/v1/topics/mails", r#"{"delivery":"at-most-once"}"#).await.status, 200);
    let edit = json!({"ids": ["a"], "payload": "edited"});
    assert_eq!(words(&redrive(&api, "/v1/topics/mails/dead/redrive", edit).await), ["redriven"]);
    assert_eq!(counts(&api, "mails").await, (json!(1), json!(1)));
}

#[tokio::test]
async fn a_token_forwards_letters_only_to_topics_in_which_it_may_schedule() {
    let token = |name: &str, scopes: Value, topics: Value| json!({"name": name, "secret": format!("a-secret-of-{name}-0123"), "scopes": scopes, "topics": topics});
    let tokens = [
        token("own", json!(["admin", "produce"]), json!(["a-*"])),
        token("both", json!(["admin", "produce"]), json!(["a-*", "b"])),
    ];
    let config: AuthConfig = serde_json::from_value(json!({ "tokens": tokens })).unwrap();
    let api = TestApi::with(Auth::load(&config).unwrap()).await;
    let ask = async |who: &str, method: &str, path: &str, body: Value| {
        api.call_as(&format!("a-secret-of-{who}-0123"), method, path, &body.to_string()).await
    };
    let answer = ask("own", "PUT", "/v1/topics/a-1", json!({"dead_to": "b"})).await;
    assert_eq!(answer.problem(), (403, "forbidden".to_owned()));
    let settings = json!({"settings": {"dead_to": "b"}});
    assert_eq!(ask("own", "POST", "/v1/topics/a-1/adopt", settings).await.problem().0, 403);
    assert_eq!(ask("both", "PUT", "/v1/topics/a-1", json!({"dead_to": "b"})).await.json()["dead_to"], "b");
    assert_eq!(ask("own", "PUT", "/v1/topics/a-1", json!({"dead_to": null})).await.status, 200);
    // Known as a circle, whoever asks.
    let answer = ask("both", "PUT", "/v1/topics/a-1", json!({"dead_to": "a-1"})).await;
    assert_eq!((answer.problem().0, &answer.json()["field"]), (400, &json!("dead_to")));
}
