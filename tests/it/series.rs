//! Messages that come again by a rule, through the API, in time that is moved.

use duetime_testkit::servers::{Node, RedisServer};
use reqwest::Method;
use serde_json::{Value, json};

use crate::test_node::{TestNode, advance, ask, claim_one, done, with_test_clock};

const TOPIC: &str = "[topics.orders]\nvisibility_timeout = \"1m\"\nremember = \"1d\"\n";

async fn claim(node: &Node) -> Value {
    claim_one(node, "30s").await
}

async fn ack(node: &Node, receipt: &Value) -> Value {
    done(node, Method::POST, "orders/ack", &json!({"receipts": [receipt]})).await["results"][0]["outcome"].take()
}

#[tokio::test]
async fn a_consumer_is_handed_each_message_of_a_series_at_its_time_until_it_is_cancelled() {
    let node = &with_test_clock(TOPIC).await;
    let hourly = json!({"id": "s", "delay": "30m", "payload": "again", "repeat": {"every": "1h", "missed": "once"}});
    let placed = done(node, Method::POST, "orders/messages", &hourly).await;
    let start = placed["due_at"].as_i64().unwrap();
    advance(node, "30m").await;
    let mut before = Value::Null;
    for turn in 0..3 {
        let message = claim(node).await;
        let due = start + turn * 3_600_000;
        assert_eq!(
            (&message["due_at"], &message["attempt"], &message["headers"]),
            (&json!(due), &json!(1), &json!({}))
        );
        assert_ne!(message["delivery_id"], before, "each has its own");
        assert_eq!(ack(node, &message["receipt"]).await, "ok");
        assert_eq!(ack(node, &message["receipt"]).await, "already");
        let next = done(node, Method::GET, "orders/messages/s", &Value::Null).await;
        assert_eq!((&next["state"], next["due_at"].as_i64()), (&json!("scheduled"), Some(due + 3_600_000)), "{next}");
        let rule = json!({"every": "1h", "missed": "once", "next_at": due + 7_200_000});
        assert_eq!(next["repeat"], rule, "{next}");
        before = message["delivery_id"].clone();
        advance(node, "1h").await;
    }
    // Some pass while nobody claims: they come as one.
    advance(node, "3h 30m").await;
    let late = claim(node).await;
    assert_eq!(ack(node, &late["receipt"]).await, "ok");
    let one = claim(node).await;
    assert_eq!(one["due_at"].as_i64(), Some(start + 6 * 3_600_000), "{one}");
    // A cancel ends the series, also of the one that is held.
    let (status, cancelled) = ask(node, Method::DELETE, "/v1/topics/orders/messages/s", &Value::Null).await;
    assert_eq!((status, &cancelled["outcome"]), (409, &json!("in_flight")), "{cancelled}");
    assert_eq!(ack(node, &one["receipt"]).await, "cancelled");
    let (status, gone) = ask(node, Method::GET, "/v1/topics/orders/messages/s", &Value::Null).await;
    assert_eq!(status, 404, "{gone}");
}

#[tokio::test]
async fn a_series_does_not_expire_at_a_moment_and_topics_that_remove_first_take_none() {
    let node = &TestNode::new("").await;
    done(node, Method::PUT, "orders", &json!({"shards": 2})).await;
    done(node, Method::PUT, "once", &json!({"shards": 2, "delivery": "at-most-once"})).await;
    let whole = json!([
        {"id": "a", "repeat": {"every": "1h"}, "expires_at": 4_000_000_000_000_i64},
        {"id": "b", "repeat": {"cron": "0 9 * * MON-FRI", "time_zone": "Europe/Berlin"}},
    ]);
    let answer = done(node, Method::POST, "orders/messages", &whole).await;
    assert_eq!(answer["results"][0]["error"]["code"], "invalid_expiry", "{answer}");
    assert_eq!(answer["results"][1]["outcome"], "scheduled", "{answer}");
    let both = json!([{"id": "plain"}, {"id": "again", "repeat": {"every": "1h"}}]);
    let answer = done(node, Method::POST, "once/messages", &both).await;
    assert_eq!(answer["results"][0]["outcome"], "scheduled", "{answer}");
    let error = &answer["results"][1]["error"];
    assert_eq!((&error["code"], &error["field"]), (&json!("topic_cannot_repeat"), &json!("repeat")), "{answer}");
}

#[tokio::test]
async fn a_topic_whose_sink_delivers_in_place_takes_no_message_that_repeats() {
    let redis = RedisServer::start().await;
    let node = TestNode::on(&redis.url(), "[sinks.here]\ntype = \"redis-stream\"\nin_place = true\n").await;
    done(&node, Method::PUT, "orders", &json!({"shards": 1, "sink": {"name": "here"}})).await;
    let again = json!({"id": "again", "repeat": {"every": "1h"}});
    let (status, problem) = ask(&node, Method::POST, "/v1/topics/orders/messages", &again).await;
    assert_eq!((status, &problem["code"]), (409, &json!("topic_cannot_repeat")), "{problem}");
}
