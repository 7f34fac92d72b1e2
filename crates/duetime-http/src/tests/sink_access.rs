//! A token for some topics uses and sees the sinks that are given to it, and no others.

use std::sync::Arc;

use duetime_core::{BindError, Sink, SinkBinder, SinkRef, TopicName};
use serde_json::{Value, json};

use super::{Answer, TestApi};
use crate::{Auth, AuthConfig};

/// Knows the names of two sinks, and refuses every other.
#[derive(Debug)]
struct TwoSinks;

impl SinkBinder for TwoSinks {
    fn bind(&self, _: &TopicName, sink: &SinkRef) -> Result<Arc<dyn Sink>, BindError> {
        let configured = vec!["a-hook".to_owned(), "b-hook".to_owned()];
        if configured.contains(&sink.name) {
            return Err(BindError::Refused(format!("sink {:?}: it was reached", sink.name)));
        }
        Err(BindError::UnknownSink { name: sink.name.clone(), configured })
    }
}

/// An administrator, but where `more` says otherwise.
pub fn token(name: &str, more: &Value) -> Value {
    let mut token = json!({"name": name, "secret": format!("a-secret-of-{name}-0123"), "scopes": ["admin"]});
    token.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    token
}

/// Reads tokens as the configuration has them.
pub fn auth(tokens: &[Value]) -> Auth {
    let config: AuthConfig = serde_json::from_value(json!({ "tokens": tokens })).unwrap();
    Auth::load(&config).unwrap()
}

/// `root` is for all; `a` for the topics and sinks of `a-`; `bare` for the topics alone; `ops` for one sink.
fn tokens() -> Auth {
    auth(&[
        token("root", &json!({})),
        token("a", &json!({"topics": ["a-*"], "sinks": ["a-*"]})),
        token("bare", &json!({"topics": ["a-*"]})),
        token("ops", &json!({"sinks": ["b-hook"]})),
    ])
}

/// The answer to a request with the token of `who`.
pub async fn ask(api: &TestApi, who: &str, method: &str, path: &str, body: &Value) -> Answer {
    let body = if method == "GET" { String::new() } else { body.to_string() };
    api.call_as(&format!("a-secret-of-{who}-0123"), method, path, &body).await
}

#[tokio::test]
async fn a_token_gives_topics_only_sinks_that_are_its_own() {
    let api = TestApi::with(tokens()).await;
    for name in ["a-1", "a-2"] {
        ask(&api, "root", "PUT", &format!("/v1/topics/{name}"), &json!({"sink": {"name": "b-hook"}})).await;
    }
    let give = |sink: &str| json!({"sink": {"name": sink, "path": "/x"}});
    for (who, sink) in [("a", "b-hook"), ("a", "shop"), ("bare", "a-hook"), ("bare", "nosuch"), ("ops", "a-hook")] {
        // What a topic has already is no reason to let it be changed.
        for (method, path, body) in [
            ("PUT", "/v1/topics/a-1", give(sink)),
            ("PUT", "/v1/topics/a-new", give(sink)),
            ("POST", "/v1/topics/a-1/adopt", json!({"settings": give(sink)})),
            ("POST", &*format!("/v1/sinks/{sink}/pause"), json!({})),
            ("POST", &*format!("/v1/sinks/{sink}/resume"), json!({})),
        ] {
            let answer = ask(&api, who, method, path, &body).await;
            assert_eq!(answer.problem(), (403, "forbidden".to_owned()), "{who} {method} {path}");
            let (detail, field) = (&answer.json()["detail"], &answer.json()["field"]);
            let says = format!("token {who:?} may not use the sink {sink:?}; add it to its sinks or use another token");
            assert_eq!((detail, field), (&json!(says), &json!("sink")));
        }
    }
    // Its topics are its own in all else.
    assert_eq!(ask(&api, "bare", "PUT", "/v1/topics/a-1", &json!({"max_payload": 9})).await.status, 200);
    assert_eq!(ask(&api, "bare", "PUT", "/v1/topics/a-1", &json!({"sink": null})).await.status, 200);
    assert_eq!(ask(&api, "a", "PUT", "/v1/topics/a-1", &give("a-hook")).await.status, 200);
    assert_eq!(ask(&api, "ops", "PUT", "/v1/topics/a-1", &give("b-hook")).await.status, 200);
    assert_eq!(ask(&api, "root", "PUT", "/v1/topics/a-1", &give("c")).await.status, 200);
    let me = |who: &'static str| async { ask(&api, who, "GET", "/v1/me", &Value::Null).await.json()["sinks"].clone() };
    assert_eq!((me("root").await, me("bare").await, me("a").await), (Value::Null, json!([]), json!(["a-*"])));
}

#[tokio::test]
async fn a_refusal_names_no_sink_that_the_token_may_not_use() {
    let api = TestApi::with(tokens()).await;
    api.parts.catalog.check_sinks_with(Arc::new(TwoSinks), false);
    let give = async |who: &str, sink: &str| {
        let answer = ask(&api, who, "PUT", "/v1/topics/a-1", &json!({"sink": {"name": sink}})).await;
        assert_eq!(answer.problem(), (400, "invalid_topic_settings".to_owned()));
        answer.json()["detail"].as_str().unwrap().to_owned()
    };
    assert!(give("root", "hook").await.ends_with("Configured: a-hook and b-hook"));
    let said = give("a", "a-hok").await;
    assert!(said.contains("did you mean \"a-hook\"? Configured: a-hook") && !said.contains("b-hook"), "{said}");
    assert!(give("a", "a-hook").await.contains("it was reached"));
}

#[tokio::test]
async fn rates_and_metrics_show_a_token_its_own_sinks_alone() {
    let api = TestApi::with(tokens()).await;
    for sink in ["a-hook", "b-hook"] {
        api.parts.meters.sink(sink, "http").errors("no_answer", 7);
    }
    for (who, a, b) in [("root", true, true), ("a", true, false), ("bare", false, false), ("ops", false, true)] {
        for path in ["/v1/rates", "/metrics"] {
            let text = ask(&api, who, "GET", path, &Value::Null).await.text;
            assert_eq!((text.contains("\"a-hook\""), text.contains("\"b-hook\"")), (a, b), "{who} {path}");
        }
    }
}
