//! Messages found by their id alone.

use std::collections::BTreeSet;

use serde_json::Value;

use super::TestApi;
use crate::routes::find::TOPICS_MAX;

#[tokio::test]
async fn an_id_is_found_in_all_topics_page_by_page_and_nothing_found_is_an_empty_list() {
    let api = TestApi::new().await;
    let name = |n: usize| format!("topic-{n:03}");
    let topics = TOPICS_MAX + 5;
    for n in 0..topics {
        assert_eq!(api.put(&format!("/v1/topics/{}", name(n)), r#"{"shards":1}"#).await.status, 201);
    }
    let with = [0, TOPICS_MAX - 1, TOPICS_MAX, topics - 1];
    for n in with {
        let path = format!("/v1/topics/{}/messages", name(n));
        assert_eq!(api.post(&path, r#"{"id":"a/b","delay":"1h","payload":"secret"}"#).await.status, 201);
    }
    let (mut found, mut pages, mut cursor) = (BTreeSet::new(), 0, String::new());
    loop {
        let answer = api.get(&format!("/v1/find?id=a%2Fb{cursor}")).await;
        assert!(!answer.text.contains("secret"), "{}", answer.text);
        let page = answer.json();
        pages += 1;
        assert!(page["scanned"].as_u64().unwrap() <= TOPICS_MAX as u64, "{page}");
        assert_eq!((&page["topics"], &page["failed"]), (&topics.into(), &Value::Array(Vec::new())));
        found.extend(page["messages"].as_array().unwrap().iter().map(|one| one["topic"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!((pages, found), (2, with.map(name).into()));
    // A topic that is deleted between two pages is no reason to stop.
    assert_eq!(api.delete(&format!("/v1/topics/{}?force=true", name(TOPICS_MAX - 1))).await.status, 200);
    let rest = api.get(&format!("/v1/find?id=a%2Fb&cursor={}", name(TOPICS_MAX - 1))).await.json();
    assert_eq!(rest["messages"][0]["topic"], name(TOPICS_MAX));
    let none = api.get("/v1/find?id=nobody").await;
    assert_eq!((none.status.as_u16(), &none.json()["messages"]), (200, &Value::Array(Vec::new())));
}

#[tokio::test]
async fn an_id_that_is_none_is_refused_with_what_to_give() {
    let api = TestApi::with_orders().await;
    for path in ["/v1/find", "/v1/find?id=", "/v1/find?id=a&cursor=%2F", "/v1/find?id=a&id=b"] {
        assert_eq!(api.get(path).await.problem(), (400, "invalid_query".to_owned()), "{path}");
    }
    assert!(api.get("/v1/find").await.text.contains("?id=order-42"));
    assert_eq!(api.get("/v1/find?name=a").await.problem(), (400, "unknown_parameter".to_owned()));
}
