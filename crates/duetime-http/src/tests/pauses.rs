//! Why a topic is paused, and all topics of a sink at once.

use serde_json::{Value, json};

use super::{Faulty, NOW_MS, TestApi, away};
use crate::{Auth, AuthConfig};

fn tokens(all: &[(&str, &str, Option<&str>)]) -> Auth {
    let tokens: Vec<Value> = all
        .iter()
        .map(|(name, scope, topics)| {
            let mut token = json!({"name": name, "secret": format!("a-secret-of-{name}-0123"), "scopes": [scope]});
            if let Some(topics) = topics {
                token["topics"] = json!([topics]);
                token["sinks"] = json!(["shop"]);
            }
            token
        })
        .collect();
    let config: AuthConfig = serde_json::from_value(json!({ "tokens": tokens })).unwrap();
    Auth::load(&config).unwrap()
}

async fn ask(api: &TestApi, who: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let answer = super::sink_access::ask(api, who, method, path, body).await;
    (answer.status.as_u16(), answer.json())
}

#[tokio::test]
async fn a_pause_says_why_since_when_and_by_whom_to_those_who_may_know() {
    let api = TestApi::with(tokens(&[
        ("ops", "admin", None),
        ("eve", "admin", None),
        ("looks", "view", None),
        ("takes", "consume", None),
    ]))
    .await;
    ask(&api, "ops", "PUT", "/v1/topics/orders", &json!({})).await;
    let (status, paused) =
        ask(&api, "ops", "POST", "/v1/topics/orders/pause", &json!({"reason": "stock is counted"})).await;
    let whole = json!({"reason": "stock is counted", "since": NOW_MS, "by": "ops"});
    assert_eq!((status, &paused["paused"], &paused["pause"]), (200, &json!(true), &whole));
    for (who, shown) in [
        ("ops", whole),
        ("looks", json!({"reason": "stock is counted", "since": NOW_MS})),
        ("takes", json!({"since": NOW_MS})),
    ] {
        assert_eq!(ask(&api, who, "GET", "/v1/topics/orders", &Value::Null).await.1["pause"], shown, "{who}");
        assert_eq!(ask(&api, who, "GET", "/v1/topics", &Value::Null).await.1["topics"][0]["pause"], shown, "{who}");
    }
    ask(&api, "ops", "POST", "/v1/topics/orders/messages", &json!({"id": "a"})).await;
    let (_, explained) = ask(&api, "looks", "GET", "/v1/topics/orders/messages/a/explain", &Value::Null).await;
    assert!(explained["next"].as_str().unwrap().contains("its topic is paused (stock is counted)"), "{explained}");
    let (_, audit) = ask(&api, "ops", "GET", "/v1/audit", &Value::Null).await;
    let line = audit["entries"].as_array().unwrap().iter().find(|line| line["reason"].is_string()).unwrap();
    assert_eq!(
        (&line["reason"], &line["who"], &line["topic"]),
        (&json!("stock is counted"), &json!("ops"), &json!("orders"))
    );

    // Another reason replaces it; none leaves it.
    api.advance("1m");
    let (_, again) = ask(&api, "eve", "POST", "/v1/topics/orders/pause", &json!({"reason": "it takes longer"})).await;
    assert_eq!(again["pause"], json!({"reason": "it takes longer", "since": NOW_MS, "by": "eve"}));
    let (_, same) = ask(&api, "ops", "POST", "/v1/topics/orders/pause", &json!({})).await;
    assert_eq!((&same["pause"], &same["version"]), (&again["pause"], &again["version"]));
    let (_, set) = ask(&api, "ops", "PUT", "/v1/topics/orders", &json!({"max_payload": 77})).await;
    assert_eq!(set["pause"], again["pause"], "another setting takes the reason away");
    let (_, resumed) = ask(&api, "ops", "POST", "/v1/topics/orders/resume", &json!({})).await;
    assert_eq!((resumed.get("paused"), resumed.get("pause")), (None, None));
    // The setting does the same, without a reason.
    let (_, put) = ask(&api, "eve", "PUT", "/v1/topics/orders", &json!({"paused": true})).await;
    assert_eq!(put["pause"], json!({"since": NOW_MS + 60_000, "by": "eve"}));
}

#[tokio::test]
async fn a_reason_that_is_no_line_of_text_is_refused_and_nothing_is_paused() {
    let api = TestApi::with_orders().await;
    api.put("/v1/topics/orders", r#"{"sink":null}"#).await;
    for path in ["/v1/topics/orders/pause", "/v1/sinks/shop/pause"] {
        for (body, code, field) in [
            (json!({"reason": ""}), "invalid_value", "reason"),
            (json!({"reason": "two\nlines"}), "invalid_value", "reason"),
            (json!({"reason": "\u{7f}"}), "invalid_value", "reason"),
            (json!({"reason": "x".repeat(201)}), "invalid_value", "reason"),
            (json!({"reason": 7}), "invalid_value", "reason"),
            (json!({"raeson": "x"}), "unknown_field", "raeson"),
        ] {
            let answer = api.post(path, &body.to_string()).await;
            assert_eq!(answer.problem(), (400, code.to_owned()), "{path} {body}");
            assert_eq!(answer.json()["field"], field, "{path} {body}");
        }
    }
    assert!(api.get("/v1/topics/orders").await.json().get("paused").is_none());
    let longest = json!({"reason": "x".repeat(200)}).to_string();
    assert_eq!(api.post("/v1/topics/orders/pause", &longest).await.status, 200);
    assert_eq!(api.post("/v1/topics/orders/pause", "").await.status, 200, "a body is not needed");
}

fn outcomes(answer: &Value) -> Vec<(&str, &str)> {
    let topics = answer["topics"].as_array().unwrap().iter();
    topics.map(|of| (of["topic"].as_str().unwrap(), of["outcome"].as_str().unwrap_or("failed"))).collect()
}

#[tokio::test]
async fn a_sink_is_paused_for_all_its_topics_and_resumes_only_what_was_paused_through_it() {
    let api =
        TestApi::with(tokens(&[("root", "admin", None), ("own", "admin", Some("a-*")), ("looks", "view", None)])).await;
    for (topic, sink) in [("a-1", "shop"), ("a-2", "shop"), ("a-3", "other"), ("b-1", "shop")] {
        ask(&api, "root", "PUT", &format!("/v1/topics/{topic}"), &json!({"sink": {"name": sink}})).await;
    }
    let shop = |act: &str| format!("/v1/sinks/shop/{act}");
    ask(&api, "root", "POST", "/v1/topics/a-2/pause", &json!({"reason": "its own"})).await;
    assert_eq!(ask(&api, "looks", "POST", &shop("pause"), &json!({})).await.0, 403);

    // Of what the token is not for it learns how many there are.
    let (status, paused) = ask(&api, "own", "POST", &shop("pause"), &json!({"reason": "the shop moves"})).await;
    assert_eq!((status, outcomes(&paused)), (200, vec![("a-1", "paused"), ("a-2", "left")]));
    assert_eq!((&paused["other_topics"], &paused["more"]), (&json!(1), &json!(false)));
    assert!(paused["topics"][1]["detail"].as_str().unwrap().contains("by itself"), "{paused}");
    assert!(!paused.to_string().contains("b-1"));
    let of = async |topic: &str| ask(&api, "root", "GET", &format!("/v1/topics/{topic}"), &Value::Null).await.1;
    let through = json!({"reason": "the shop moves", "since": NOW_MS, "by": "own", "sink": "shop"});
    assert_eq!(of("a-1").await["pause"], through);
    assert_eq!(of("a-2").await["pause"]["reason"], "its own");
    assert_eq!((of("a-3").await.get("paused"), of("b-1").await.get("paused")), (None, None));
    let (_, audit) = ask(&api, "root", "GET", "/v1/audit", &Value::Null).await;
    let line = audit["entries"].as_array().unwrap().iter().find(|line| line["sink"] == "shop").unwrap();
    assert!(line["who"] == "own" || line["outcome"] == "refused", "{line}");

    // The same again changes nothing, and takes along what has come to the sink since.
    ask(&api, "root", "PUT", "/v1/topics/a-3", &json!({"sink": {"name": "shop"}})).await;
    let version = of("a-1").await["version"].clone();
    let (_, again) = ask(&api, "root", "POST", &shop("pause"), &json!({"reason": "the shop moves"})).await;
    assert_eq!(outcomes(&again), [("a-1", "paused"), ("a-2", "left"), ("a-3", "paused"), ("b-1", "paused")]);
    assert_eq!(of("a-1").await["version"], version);

    // A topic that goes to another sink is resumed with the one it was paused through.
    ask(&api, "root", "PUT", "/v1/topics/b-1", &json!({"sink": {"name": "other"}})).await;
    let (_, resumed) = ask(&api, "root", "POST", &shop("resume"), &json!({})).await;
    assert_eq!(outcomes(&resumed), [("a-1", "resumed"), ("a-2", "left"), ("a-3", "resumed"), ("b-1", "resumed")]);
    for (topic, paused) in [("a-1", false), ("a-2", true), ("a-3", false), ("b-1", false)] {
        assert_eq!(of(topic).await.get("paused").is_some(), paused, "{topic}");
    }
    let (_, late) = ask(&api, "root", "POST", &shop("resume"), &json!({})).await;
    assert_eq!(outcomes(&late), [("a-2", "left")]);
    let unknown = ask(&api, "root", "POST", "/v1/sinks/shoop/pause", &json!({})).await;
    assert_eq!((unknown.0, &unknown.1["code"], &unknown.1["field"]), (404, &json!("unknown_sink"), &json!("sink")));
}

/// Refuses every second record that is written from now on.
fn refuse_every_second(store: &Faulty) {
    let mut written = 0;
    store.set(move |call| {
        written += u32::from(call.op == "put_topic");
        (call.op == "put_topic" && written % 2 == 0).then(|| away("change a topic"))
    });
}

#[tokio::test]
async fn a_topic_of_a_sink_that_cannot_be_paused_fails_alone() {
    let faults = Faulty::new();
    let api = TestApi::over(faults.clone(), Auth::open()).await;
    for topic in ["a", "b", "c"] {
        refuse_every_second(&faults);
        let made = api.put(&format!("/v1/topics/{topic}"), r#"{"sink":{"name":"shop"}}"#).await;
        assert_eq!(made.status, 201, "{}", made.text);
    }
    refuse_every_second(&faults);
    let answer = api.post("/v1/sinks/shop/pause", "{}").await;
    let paused = answer.json();
    assert_eq!(
        (answer.status.as_u16(), outcomes(&paused)),
        (200, vec![("a", "paused"), ("b", "failed"), ("c", "paused")])
    );
    assert_eq!(paused["topics"][1]["error"]["code"], "store_unavailable");
    let audit = api.get("/v1/audit").await.json();
    assert_eq!((&audit["entries"][0]["count"], &audit["entries"][0]["refused"]), (&json!(3), &json!(1)));
    refuse_every_second(&faults);
    let again = api.post("/v1/sinks/shop/pause", "{}").await.json();
    assert_eq!(outcomes(&again), [("a", "paused"), ("b", "paused"), ("c", "paused")]);
}
