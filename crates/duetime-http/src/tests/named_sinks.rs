//! Sinks by their names: which are put, deleted and refused, and who may do so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::records::SINKS_MAX;
use duetime_core::{NamedSink, NamedSinks, RecordKind, SinkRecord, SinkRef, SinkRefusal, TopicName};
use duetime_router::PutSinks;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::TestApi;
use super::sink_access::{ask, auth, token};
use crate::HttpParts;

/// Has `shop` in its file and takes any other, but those whose settings say that they are wrong.
#[derive(Debug, Default)]
pub struct KnownSinks {
    is_off: bool,
    put: Mutex<BTreeMap<String, String>>,
}

#[async_trait]
impl NamedSinks for KnownSinks {
    fn all(&self) -> Vec<NamedSink> {
        let none = |name: &str, is_of_file| NamedSink {
            name: name.to_owned(),
            kind: Some("http".to_owned()),
            record: None,
            is_of_file,
            fault: None,
        };
        let put = self.put.lock().clone();
        let put = put.into_iter().map(|(name, text)| {
            let record = serde_json::from_str::<SinkRecord>(&text).ok();
            let fault = record.is_none().then(|| "its record cannot be read".to_owned());
            NamedSink { record, fault, ..none(&name, false) }
        });
        put.chain([none("shop", true)]).collect()
    }

    fn takes_put(&self) -> bool {
        !self.is_off
    }

    async fn check(
        &self,
        config: &Map<String, Value>,
        topics: &[(TopicName, SinkRef)],
        tries: bool,
    ) -> Result<(), SinkRefusal> {
        let detail = "url: is wrong; mend it".to_owned();
        match config.get("url").and_then(Value::as_str) {
            Some("wrong") => Err(SinkRefusal::Invalid { field: Some("url".to_owned()), detail }),
            Some("silent") if tries => Err(SinkRefusal::Unusable("it is silent".to_owned())),
            Some("other") if tries && !topics.is_empty() => Err(SinkRefusal::Unusable(format!("{topics:?}"))),
            _ => Ok(()),
        }
    }

    async fn take_in(&self, records: &BTreeMap<String, String>) -> bool {
        let before = std::mem::replace(&mut *self.put.lock(), records.clone());
        before != *records
    }
}

const HOOK: &str = r#"{"type":"http","url":"https://a.example","headers":{"x":{"file":"token"}}}"#;

#[tokio::test]
async fn a_sink_is_put_changed_and_deleted_by_its_version() {
    let api = TestApi::new().await;
    let made = api.put("/v1/sinks/hook?if_version=0", HOOK).await;
    assert_eq!((made.status.as_u16(), &made.json()["version"]), (201, &json!(1)), "{}", made.text);
    assert_eq!(api.put("/v1/sinks/hook?if_version=0", HOOK).await.problem(), (412, "changed".to_owned()));
    let changed = api.put("/v1/sinks/hook?if_version=1", r#"{"type":"log"}"#).await;
    assert_eq!((changed.status.as_u16(), &changed.json()["version"]), (200, &json!(2)));
    let again = api.put("/v1/sinks/hook", HOOK).await.json();
    let wanted = json!({"name": "hook", "type": "http", "origin": "api", "version": 3, "changed_at": super::NOW_MS,
        "config": {"type": "http", "url": "https://a.example", "headers": {"x": {"file": "token"}}}, "topics": 0});
    assert_eq!(again, wanted);
    assert_eq!(api.get("/v1/sinks/hook").await.json(), wanted);
    let shop = json!({"name": "shop", "type": "http", "origin": "file", "topics": 0});
    assert_eq!(api.get("/v1/sinks").await.json(), json!({"sinks": [wanted, shop], "by_api": true}));
    assert_eq!(api.delete("/v1/sinks/hook?if_version=2").await.problem(), (412, "changed".to_owned()));
    assert_eq!(api.delete("/v1/sinks/hook?if_version=3").await.json(), json!({"outcome": "deleted"}));
    for answer in [api.delete("/v1/sinks/hook").await, api.get("/v1/sinks/hook").await] {
        assert_eq!(answer.problem(), (404, "unknown_sink".to_owned()));
    }
    // Who holds a version of the one that is gone does not change the one that has its name now.
    let anew = api.put("/v1/sinks/hook?if_version=0", HOOK).await;
    assert_eq!((anew.status.as_u16(), &anew.json()["version"]), (201, &json!(4)), "{}", anew.text);
    for old in 1..4 {
        let late = api.put(&format!("/v1/sinks/hook?if_version={old}"), HOOK).await;
        assert_eq!(late.problem(), (412, "changed".to_owned()), "version {old}");
    }
    assert_eq!(api.put("/v1/sinks/other", HOOK).await.json()["version"], 5, "versions are counted over all sinks");
}

#[tokio::test]
async fn whoever_puts_a_sink_is_told_what_it_put_and_not_what_came_after() {
    let api = TestApi::new().await;
    let body = |n| format!(r#"{{"type":"http","url":"https://a{n}.example"}}"#);
    let puts = (0..8).map(|n| {
        let api = &api;
        async move { api.put("/v1/sinks/hook", &body(n)).await.json() }
    });
    let answers = futures::future::join_all(puts).await;
    let versions: BTreeSet<u64> = answers.iter().map(|answer| answer["version"].as_u64().unwrap()).collect();
    assert_eq!(versions.len(), answers.len(), "{answers:?}");
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(answer["config"]["url"], format!("https://a{n}.example"), "{answer}");
    }
}

#[tokio::test]
async fn a_sink_that_cannot_be_used_or_is_used_is_left_as_it_is() {
    let api = TestApi::new().await;
    for (path, body, problem, field) in [
        ("/v1/sinks/hook", r#"{"url":"wrong"}"#, (400, "invalid_sink"), json!("url")),
        ("/v1/sinks/hook?try=false", r#"{"url":"wrong"}"#, (400, "invalid_sink"), json!("url")),
        ("/v1/sinks/hook", r#"{"url":"silent"}"#, (409, "sink_unusable"), Value::Null),
        ("/v1/sinks/shop", HOOK, (409, "sink_of_file"), json!("sink")),
        ("/v1/sinks/a%20b", HOOK, (400, "invalid_sink"), json!("sink")),
        ("/v1/sinks/%2e%2e", HOOK, (400, "invalid_sink"), json!("sink")),
        ("/v1/sinks/hook?try=perhaps", HOOK, (400, "invalid_query"), json!("try")),
        ("/v1/sinks/hook?if_version=x", HOOK, (400, "invalid_query"), json!("if_version")),
        ("/v1/sinks/hook", "[]", (400, "invalid_value"), Value::Null),
    ] {
        let answer = api.put(path, body).await;
        assert_eq!(answer.problem(), (problem.0, problem.1.to_owned()), "{path} {body}");
        assert_eq!(answer.json()["field"], field, "{path} {body}");
        let dry = api.put(&format!("{path}{}dry_run=true", if path.contains('?') { "&" } else { "?" }), body).await;
        assert_eq!(dry.json()["detail"], answer.json()["detail"], "{path} {body}");
    }
    assert_eq!(api.delete("/v1/sinks/shop").await.problem(), (409, "sink_of_file".to_owned()));
    assert_eq!(api.put("/v1/sinks/hook?try=false", r#"{"url":"silent"}"#).await.status, 201);
    assert_eq!(api.put("/v1/topics/orders", r#"{"sink":{"name":"hook"}}"#).await.status, 201);
    let other = api.put("/v1/sinks/hook", r#"{"url":"other"}"#).await;
    assert!(other.problem().1 == "sink_unusable" && other.text.contains("orders"), "{}", other.text);
    let used = api.delete("/v1/sinks/hook").await;
    assert_eq!(used.problem(), (409, "sink_in_use".to_owned()));
    assert!(used.text.contains("orders") && api.get("/v1/sinks/hook").await.json()["topics"] == 1);
    assert_eq!(api.put("/v1/topics/orders", r#"{"sink":null}"#).await.status, 200);
    assert_eq!(api.delete("/v1/sinks/hook").await.status, 200);
}

#[tokio::test]
async fn a_dry_run_is_answered_as_a_put_and_changes_nothing() {
    let api = TestApi::new().await;
    let seen = async || api.get("/v1/sinks").await.json();
    let before = seen().await;
    let dry = api.put("/v1/sinks/hook?dry_run=true", HOOK).await;
    assert_eq!(seen().await, before);
    let made = api.put("/v1/sinks/hook", HOOK).await;
    assert_eq!((dry.status, dry.json()), (made.status, made.json()));
    let before = seen().await;
    let other = r#"{"type":"log"}"#;
    assert_eq!(api.put("/v1/sinks/hook?dry_run=true&if_version=1", other).await.status, 200);
    assert_eq!(api.put("/v1/sinks/hook?dry_run=true&if_version=2", other).await.problem().1, "changed");
    assert_eq!(seen().await, before);
    let audit = api.get("/v1/audit?operation=put_sink&limit=1").await.json();
    assert_eq!(audit["entries"][0]["reason"], "dry run", "{audit}");
}

#[tokio::test]
async fn one_sink_more_than_are_kept_is_refused_until_another_is_deleted() {
    let api = TestApi::new().await;
    for n in 0..SINKS_MAX {
        api.store.swap_record(RecordKind::Sink, &format!("hook-{n}"), None, Some("{}")).await.unwrap();
    }
    let refused = api.put("/v1/sinks/more", HOOK).await;
    assert_eq!(refused.problem(), (507, "store_full".to_owned()));
    let said = "256 sinks that were put by the API are kept at most; delete one that no topic delivers through";
    assert_eq!(refused.json()["detail"], said);
    assert_eq!(api.put("/v1/sinks/more?dry_run=true", HOOK).await.json()["detail"], said);
    assert_eq!(api.delete("/v1/sinks/hook-0").await.status, 200);
    assert_eq!(api.put("/v1/sinks/more", HOOK).await.status, 201);
}

#[tokio::test]
async fn a_node_without_sinks_by_the_api_says_how_to_have_them() {
    let api = TestApi::new().await;
    let off = Arc::new(KnownSinks { is_off: true, ..KnownSinks::default() });
    let put_sinks = PutSinks::new(api.store.clone(), off, api.clock.clone());
    let api = api.again(HttpParts { put_sinks, ..api.parts.clone() });
    for answer in [api.put("/v1/sinks/hook", HOOK).await, api.delete("/v1/sinks/hook").await] {
        assert_eq!(answer.problem(), (409, "sinks_by_api_off".to_owned()));
        assert!(answer.text.contains("[sinks_by_api]"), "{}", answer.text);
    }
    assert_eq!(api.put("/v1/sinks/shop", HOOK).await.problem(), (409, "sink_of_file".to_owned()));
    assert_eq!(api.get("/v1/sinks").await.json()["by_api"], false);
}

#[tokio::test]
async fn only_an_administrator_of_all_topics_changes_a_sink_and_only_one_of_its_own() {
    let tokens = [
        token("root", &json!({})),
        token("ops", &json!({"sinks": ["a-*"]})),
        token("tenant", &json!({"topics": ["a-*"], "sinks": ["a-*"]})),
        token("viewer", &json!({"scopes": ["view"]})),
    ];
    let api = TestApi::with(auth(&tokens)).await;
    let hook: Value = serde_json::from_str(HOOK).unwrap();
    let ask = async |who: &str, method: &str, path: &str| ask(&api, who, method, path, &hook).await;
    assert_eq!(ask("root", "PUT", "/v1/sinks/b-hook").await.json()["changed_by"], "root");
    assert_eq!(ask("ops", "PUT", "/v1/sinks/a-hook").await.json()["changed_by"], "ops");
    for (who, path) in [
        ("ops", "/v1/sinks/b-hook"),
        ("tenant", "/v1/sinks/a-hook"),
        ("viewer", "/v1/sinks/a-hook"),
        ("ops", "/v1/sinks/new"),
    ] {
        for method in ["PUT", "DELETE"] {
            let answer = ask(who, method, path).await;
            assert_eq!(answer.problem(), (403, "forbidden".to_owned()), "{who} {method} {path}");
        }
    }
    let names = async |who: &str| {
        let all = ask(who, "GET", "/v1/sinks").await.json()["sinks"].clone();
        all.as_array().unwrap().iter().map(|sink| sink["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("viewer").await, ["a-hook", "b-hook", "shop"]);
    assert_eq!(names("tenant").await, ["a-hook"]);
    assert_eq!(ask("tenant", "GET", "/v1/sinks/b-hook").await.problem(), (403, "forbidden".to_owned()));
}
