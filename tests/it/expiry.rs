//! Messages that expire, through the API.

use std::time::Duration;

use duetime_core::Clock as _;
use duetime_testkit::WallClock;
use duetime_testkit::wait::{Because, let_pass};
use reqwest::Method;
use serde_json::{Value, json};

use crate::test_node::{TestNode, ask, done};

const SOON: Duration = Duration::from_secs(3);

#[tokio::test]
async fn offers_expire_and_are_remembered_as_that() {
    let node = &TestNode::new("").await;
    let topic = json!({"shards": 2, "remember": "1h", "paused": true});
    done(node, Method::PUT, "offers", &topic).await;
    // Later than the request is read, however slow the machine is.
    let soon = WallClock.now().plus(SOON).as_millis();
    let offers = json!([
        {"id": "after", "delay": 0, "expires": "300ms"},
        {"id": "at", "delay": 0, "expires_at": soon},
        {"id": "later", "delay": 0, "expires": "1h"},
        {"id": "both", "expires": "1h", "expires_at": soon},
        {"id": "before", "delay": "1h", "expires_at": soon},
        {"id": "odd", "expires": "soon"},
    ]);
    let answer = done(node, Method::POST, "offers/messages", &offers).await;
    let outcomes: Vec<&Value> = (0..3).map(|at| &answer["results"][at]["outcome"]).collect();
    assert_eq!(outcomes, ["scheduled"; 3], "{answer}");
    let codes: Vec<&Value> = (3..6).map(|at| &answer["results"][at]["error"]["code"]).collect();
    assert_eq!(codes, ["invalid_expiry"; 3], "{answer}");
    let later = done(node, Method::GET, "offers/messages/later", &Value::Null).await;
    assert_eq!(later["expires_at"].as_i64(), later["due_at"].as_i64().map(|due| due + 3_600_000), "{later}");
    let_pass(SOON, Because::Rate).await;
    done(node, Method::PUT, "offers", &json!({"paused": false})).await;
    let claim = done(node, Method::POST, "offers/claim", &json!({"max": 10, "wait": "10s"})).await;
    let ids: Vec<&Value> = claim["messages"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, ["later"], "{claim}");
    // The other shard may be claimed from after the answer.
    for _ in 0..50 {
        if done(node, Method::GET, "offers", &Value::Null).await["scheduled"] == 0 {
            break;
        }
        done(node, Method::POST, "offers/claim", &json!({"max": 10, "wait": "100ms"})).await;
    }
    for id in ["after", "at"] {
        let (status, gone) = ask(node, Method::DELETE, &format!("/v1/topics/offers/messages/{id}"), &Value::Null).await;
        assert_eq!((status, &gone["outcome"], &gone["became"]["outcome"]), (404, &json!("expired"), &json!("expired")));
    }
    let again = json!([{"id": "at", "delay": "1h"}]);
    let answer = done(node, Method::POST, "offers/messages", &again).await;
    assert_eq!(answer["results"][0]["outcome"], "duplicate", "its id is remembered: {answer}");
}
