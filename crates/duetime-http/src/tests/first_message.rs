//! Topics that are made by their first message.

use std::sync::Arc;

use duetime_core::TopicConfig;
use serde_json::json;

use super::{Answer, TestApi};
use crate::{Auth, AuthConfig, FirstMessages, HttpOptions, HttpParts};

/// Makes topics that begin with `orders-`, three in all, and none that begin with `orders-secret-`.
fn options() -> HttpOptions {
    let config = TopicConfig { max_messages: Some(9), ..TopicConfig::default() };
    let patterns = vec![("orders-".to_owned(), Some(config)), ("orders-secret-".to_owned(), None)];
    HttpOptions { first_messages: Arc::new(FirstMessages { patterns, topics_max: 3 }), ..HttpOptions::default() }
}

async fn api(auth: Auth) -> TestApi {
    let api = TestApi::with(auth).await;
    api.again(HttpParts { options: options(), ..api.parts.clone() })
}

async fn send(api: &TestApi, topic: &str, token: &str) -> Answer {
    api.call_as(token, "POST", &format!("/v1/topics/{topic}/messages"), r#"{"id":"a","delay":"1h"}"#).await
}

#[tokio::test]
async fn a_first_message_makes_its_topic_as_the_longest_pattern_says() {
    let api = api(Auth::open()).await;
    assert_eq!(send(&api, "orders-1", "").await.status, 201);
    assert_eq!(send(&api, "orders-1", "").await.status, 409, "the message is there");
    let made = api.get("/v1/topics/orders-1").await.json();
    assert_eq!((&made["max_messages"], &made["scheduled"]), (&json!(9), &json!(1)));
    for topic in ["bills", "orders-secret-1", "orders"] {
        assert_eq!(send(&api, topic, "").await.problem(), (404, "unknown_topic".to_owned()), "{topic}");
    }
    assert_eq!(api.post("/v1/topics/orders-2/claim", "{}").await.problem(), (404, "unknown_topic".to_owned()));
    let audit = api.get("/v1/audit?operation=put_topic").await.json();
    assert_eq!(audit["entries"][0]["topic"], "orders-1");
    // A topic that is there is left as it is, also where it was made by hand.
    api.put("/v1/topics/orders-2", "{}").await;
    assert_eq!(send(&api, "orders-2", "").await.status, 201);
    assert_eq!(api.get("/v1/topics/orders-2").await.json().get("max_messages"), None);
    let lines = api.call("POST", "/v1/topics/orders-3/messages", "application/x-ndjson", "{}\n{}").await;
    assert_eq!(lines.json()["results"].as_array().unwrap().len(), 2);
    // There are three.
    assert_eq!(send(&api, "orders-4", "").await.problem(), (403, "too_many_topics".to_owned()));
}

#[tokio::test]
async fn a_token_makes_topics_by_messages_where_it_may_send_them_and_within_its_limits() {
    let config = serde_json::from_value::<AuthConfig>(json!({"tokens": [
        {"name": "all", "secret": "all-of-the-topics-there", "scopes": ["admin"]},
        {"name": "eu", "secret": "those-of-the-eu-1234", "scopes": ["produce"], "topics": ["orders-eu-*"], "max_topics": 1,
            "max_topic_messages": 20},
        {"name": "look", "secret": "only-looks-at-orders", "scopes": ["view"], "topics": ["orders-*"]},
    ]}));
    let config = config.unwrap();
    let api = api(Auth::load(&config).unwrap()).await;
    for (token, topic) in [("those-of-the-eu-1234", "orders-us-1"), ("only-looks-at-orders", "orders-eu-1")] {
        assert_eq!(send(&api, topic, token).await.problem(), (403, "forbidden".to_owned()), "{topic}");
    }
    assert_eq!(send(&api, "orders-eu-1", "those-of-the-eu-1234").await.status, 201);
    assert_eq!(send(&api, "orders-eu-2", "those-of-the-eu-1234").await.problem(), (403, "too_many_topics".to_owned()));
    assert_eq!(send(&api, "orders-eu-2", "all-of-the-topics-there").await.status, 201);
}
