//! Live messages, listed.

use serde_json::{Value, json};

use super::{NOW_MS, TestApi};

/// The ids of all pages, sorted, and how many pages there were.
async fn all(api: &TestApi, query: &str) -> (Vec<String>, usize) {
    let (mut ids, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let path = format!("/v1/topics/orders/messages?{query}{cursor}");
        let answer = api.get(&path).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let page = answer.json();
        pages += 1;
        let found = page["messages"].as_array().unwrap();
        ids.extend(found.iter().map(|message| message["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else {
            assert_eq!(page["shards_done"], page["shards"]);
            ids.sort_unstable();
            return (ids, pages);
        };
        cursor = format!("&cursor={next}");
    }
}

async fn api() -> TestApi {
    let api = TestApi::with_orders().await;
    for n in 0..30 {
        api.enqueue(&format!(r#"{{"id":"later-{n:02}","delay":"{}s","payload":"secret"}}"#, 60 + n)).await;
    }
    api.enqueue(r#"{"id":"now-1"}"#).await;
    api.enqueue(r#"{"id":"now-2"}"#).await;
    api
}

#[tokio::test]
async fn live_messages_are_listed_by_state_time_and_beginning_of_their_id() {
    let api = api().await;
    let claim = api.post("/v1/topics/orders/claim", r#"{"max":1}"#).await.json();
    let held = claim["messages"][0]["id"].as_str().unwrap().to_owned();
    api.enqueue(r#"{"id":"again"}"#).await;
    let free = if held == "now-1" { "now-2" } else { "now-1" };
    let again = api.post("/v1/topics/orders/claim", r#"{"max":2}"#).await.json();
    for message in again["messages"].as_array().unwrap() {
        let nack =
            json!({ "receipts": [message["receipt"]], "delay": if message["id"] == free { "0s" } else { "50s" } });
        api.post("/v1/topics/orders/nack", &nack.to_string()).await;
    }
    assert_eq!(all(&api, "limit=500").await.0.len(), 33);
    assert_eq!(all(&api, "state=due").await.0, [free]);
    assert_eq!(all(&api, "state=in_flight").await.0, [held]);
    assert_eq!(all(&api, "state=retrying").await.0, ["again"]);
    assert_eq!(all(&api, "state=scheduled").await.0.len(), 30);
    assert_eq!(all(&api, "prefix=later-1").await.0.len(), 10);
    let window = format!("due_from={}&due_to=2025-11-21T00:01:05Z&state=scheduled", NOW_MS + 62_000);
    assert_eq!(all(&api, &window).await.0, ["later-02", "later-03", "later-04"]);
    let one = api.get("/v1/topics/orders/messages?prefix=again").await;
    let message = &one.json()["messages"][0];
    assert_eq!((&message["state"], &message["attempts"]), (&json!("retrying"), &json!(1)));
    assert_eq!(message["visible_at"], NOW_MS + 50_000);
    assert!(!one.text.contains("payload") && !one.text.contains("receipt"), "{}", one.text);
}

#[tokio::test]
async fn pages_of_any_length_have_each_message_once() {
    let api = api().await;
    let (whole, pages) = all(&api, "limit=500").await;
    assert_eq!((whole.len(), pages), (32, 1));
    for limit in [1, 2, 7, 31] {
        let (ids, pages) = all(&api, &format!("limit={limit}")).await;
        assert_eq!(ids, whole, "in pages of {limit}");
        assert!(pages >= 32 / limit, "{pages} pages of {limit}");
    }
}

#[tokio::test]
async fn a_page_looks_at_a_bounded_number_of_messages_and_says_where_to_go_on() {
    let api = TestApi::with_orders().await;
    let batch: Vec<Value> = (0..10_000).map(|n| json!({ "id": format!("m{n}"), "delay": "1h" })).collect();
    for some in batch.chunks(1000) {
        api.enqueue(&json!(some).to_string()).await;
    }
    api.enqueue(r#"{"id":"needle","delay":"2h"}"#).await;
    let first = api.get("/v1/topics/orders/messages?prefix=needle").await.json();
    let scanned = first["scanned"].as_u64().unwrap();
    assert!((1..=4096 + 256).contains(&scanned), "{first}");
    assert!(first["next"].is_string());
    let (ids, pages) = all(&api, "prefix=needle").await;
    assert_eq!(ids, ["needle"]);
    assert!((3..20).contains(&pages), "{pages}");
}

#[tokio::test]
async fn a_list_asked_for_wrongly_says_what_to_give() {
    let api = TestApi::with_orders().await;
    for (query, word) in [
        ("state=dead", "GET …/dead"),
        ("state=late", "retrying"),
        ("limit=0", "1 to 500"),
        ("limit=501", "1 to 500"),
        ("due_from=soon", "RFC 3339"),
        ("due_from=2000000000000&due_to=2000000000000", "after due_from"),
        ("cursor=x", "not a cursor"),
        ("cursor=WzEsMixbMSwiYSJd", "not a cursor"),
        ("id=x", "prefix"),
    ] {
        let answer = api.get(&format!("/v1/topics/orders/messages?{query}")).await;
        assert_eq!(answer.problem().0, 400, "{query}");
        assert!(answer.text.contains(word), "{query}: {}", answer.text);
    }
    assert_eq!(api.get("/v1/topics/nope/messages").await.problem().0, 404);
}
