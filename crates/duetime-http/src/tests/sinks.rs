//! What a node says of a topic's sink, and a try at once.

use duetime_testkit::at_home::SettledAtHome as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::store::{Settle, Settlement};
use duetime_core::{
    Clock as _, ClusterNodes, Member, MessageId, OutageEnd, ProbeOutcome, SinkDown, SinkIssue, SinkOutage, SinkState,
    SinkStates, Timestamp, TopicName,
};
use duetime_testkit::claim_request;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::drain::Asked;
use super::{NOW_MS, TestApi};
use crate::{Auth, HttpParts};

/// Says of every sink the same.
#[derive(Debug, Default)]
pub struct FixedSinks {
    pub down: Option<SinkDown>,
    pub refused: Option<String>,
    pub tried: Option<ProbeOutcome>,
    pub outages: Vec<SinkOutage>,
}

#[async_trait]
impl SinkStates for FixedSinks {
    fn state(&self, _: &TopicName) -> Option<SinkState> {
        let kind = self.refused.is_none().then_some("http");
        Some(SinkState { name: "shop".to_owned(), kind, refused: self.refused.clone(), down: self.down.clone() })
    }

    fn issues(&self) -> Vec<SinkIssue> {
        let issue = |why: &String| SinkIssue { sink: "shop".to_owned(), detail: format!("topic \"orders\": {why}") };
        self.refused.iter().map(issue).collect()
    }

    fn outages(&self) -> Vec<SinkOutage> {
        self.outages.clone()
    }

    async fn probe_now(&self, _: &TopicName, _: Duration) -> Option<ProbeOutcome> {
        self.tried
    }
}

fn down() -> FixedSinks {
    let since = Timestamp::from_millis(NOW_MS - 60_000);
    let next_try = Some(Timestamp::from_millis(NOW_MS + 5_000));
    let (deferred_until, reason) = (Timestamp::from_millis(NOW_MS + 60_000), "could not connect: Connection refused");
    let down = SinkDown { since, deferred_until, reason: reason.to_owned(), next_try };
    FixedSinks { down: Some(down), tried: Some(ProbeOutcome::Down), ..FixedSinks::default() }
}

/// A node with the topic `orders`, which has a sink of which `sinks` is true.
async fn api(sinks: FixedSinks) -> TestApi {
    let api = TestApi::new().await;
    let api = api.again(HttpParts { sinks: Arc::new(sinks), ..api.parts.clone() });
    let made = api.put("/v1/topics/orders", r#"{"shards":4,"sink":{"name":"shop"}}"#).await;
    assert_eq!(made.status, 201, "{}", made.text);
    api
}

#[tokio::test]
async fn a_sink_that_is_down_is_shown_with_its_reason_what_waits_and_the_next_try() {
    let api = api(down()).await;
    assert_eq!(api.post("/v1/topics/orders/messages", r#"{"id":"a"}"#).await.status, 201);
    let issue = json!({
        "state": "down", "reason": "could not connect: Connection refused",
        "since": NOW_MS - 60_000, "next_try": NOW_MS + 5_000
    });
    let topic = api.get("/v1/topics/orders").await.json();
    assert_eq!((&topic["sink_issue"], &topic["due"]), (&issue, &json!(1)));
    // What it gave back falls due anew: the age counts from when the sink was taken to be down.
    assert_eq!(topic["oldest_due_at"], NOW_MS - 60_000);
    // How long what waits takes is known where the capacity is.
    assert!(api.get("/v1/topics/orders/sink").await.json().get("catch_up_ms").is_none());
    api.put("/v1/topics/orders", r#"{"rate_limit":{"per_second":0.5}}"#).await;
    assert_eq!(api.get("/v1/topics/orders/sink").await.json()["catch_up_ms"], 2000);
    api.put("/v1/topics/orders", r#"{"rate_limit":null}"#).await;
    assert_eq!(api.get("/v1/topics").await.json()["topics"][0]["sink_issue"], issue);
    let sink = api.get("/v1/topics/orders/sink").await.json();
    let mut by_node = issue.clone();
    by_node["node"] = json!("n1");
    let expected = json!({
        "sink": "shop", "type": "http", "issue": issue, "issues": [by_node], "due": 1, "node": "n1",
        "shards_scanned": 1, "other_nodes": []
    });
    assert_eq!(sink, expected);
    let next = api.get("/v1/topics/orders/messages/a/explain").await.json()["next"].as_str().unwrap().to_owned();
    assert!(next.starts_with("Due since ") && next.contains("\"shop\" is down since 2025-11-20T23:59:00"), "{next}");
    assert!(next.contains("Connection refused. It is tried again at 2025-11-21T00:00:05"), "{next}");
    let tried = api.post("/v1/topics/orders/sink/probe", "{}").await;
    assert_eq!((tried.status.as_u16(), &tried.json()["outcome"]), (200, &json!("down")));
    assert_eq!(tried.json()["issue"], issue);
}

#[tokio::test]
async fn a_sink_with_which_nothing_is_wrong_has_no_issue_and_one_that_cannot_be_used_says_why() {
    let well = api(FixedSinks { tried: Some(ProbeOutcome::WasUp), ..FixedSinks::default() }).await;
    assert!(well.get("/v1/topics/orders").await.json().get("sink_issue").is_none());
    assert_eq!(well.post("/v1/topics/orders/sink/probe", "{}").await.json()["outcome"], "was_up");
    let refused = api(FixedSinks { refused: Some("no sink is called \"shop\"".to_owned()), ..FixedSinks::default() });
    let topic = refused.await.get("/v1/topics/orders").await.json();
    assert_eq!(topic["sink_issue"], json!({"state": "refused", "reason": "no sink is called \"shop\""}));
}

#[tokio::test]
async fn a_topic_without_a_sink_and_a_node_that_scans_none_of_its_shards_refuse_a_try() {
    let api = api(down()).await;
    assert_eq!(api.put("/v1/topics/claimed", r#"{"shards":1}"#).await.status, 201);
    for answer in [api.post("/v1/topics/claimed/sink/probe", "{}").await, api.get("/v1/topics/claimed/sink").await] {
        assert_eq!(answer.problem(), (409, "topic_has_no_sink".to_owned()));
    }
    let other = Member { id: "n2".to_owned(), address: "10.0.0.2:3830".to_owned(), ..Member::default() };
    let cluster = ClusterNodes {
        members: [("n1~1".into(), Member { id: "n1".to_owned(), ..Member::default() }), ("n2~1".into(), other)].into(),
        owners: [((TopicName::new("orders").unwrap(), 0), "n2~1".into())].into(),
    };
    let cluster = watch::channel(Arc::new(cluster)).1;
    let elsewhere = api.again(HttpParts { cluster: cluster.clone(), ..api.parts.clone() });
    let answer = elsewhere.post("/v1/topics/orders/sink/probe", "{}").await;
    assert_eq!(answer.problem(), (409, "not_owner".to_owned()));
    assert!(answer.text.contains("n2") && answer.text.contains("10.0.0.2:3830"), "{}", answer.text);
    let seen = elsewhere.get("/v1/topics/orders/sink").await.json();
    assert_eq!(seen["other_nodes"], json!([{"id": "n2", "address": "10.0.0.2:3830", "shards": 1}]));
    // In round-robin nobody knows what others scan, and any node may scan a shard the next moment.
    let ownership = Arc::new(Asked { takes_turns: true, ..Asked::default() });
    let turns = api.again(HttpParts { cluster, ownership, ..api.parts.clone() });
    assert_eq!(turns.post("/v1/topics/orders/sink/probe", "{}").await.status, 200);
}

#[tokio::test]
async fn what_the_target_said_is_shown_to_tokens_with_the_scope_view() {
    let token = |scope: &str| {
        let secret = format!("a-secret-of-{scope}-0123");
        format!(r#"{{"name":"{scope}","secret":"{secret}","scopes":["{scope}"]}}"#)
    };
    let tokens = ["view", "produce", "admin"].map(token).join(",");
    let auth = Auth::load(&serde_json::from_str(&format!(r#"{{"tokens":[{tokens}]}}"#)).unwrap()).unwrap();
    let api = api(down()).await;
    let api = api.again(HttpParts { auth, ..api.parts.clone() });
    for (scope, shown) in [("view", true), ("produce", false), ("admin", true)] {
        let answer = api.call_as(&format!("a-secret-of-{scope}-0123"), "GET", "/v1/topics/orders", "").await;
        assert_eq!(answer.json()["sink_issue"]["state"], "down");
        assert_eq!(answer.text.contains("Connection refused"), shown, "{scope}: {}", answer.text);
    }
}

#[tokio::test]
async fn when_sinks_were_down_is_shown_to_tokens_that_may_look_and_of_their_own_topics() {
    let outage = |topic: &str, ended| SinkOutage {
        topic: TopicName::new(topic).unwrap(),
        sink: "shop".to_owned(),
        since: Timestamp::from_millis(NOW_MS - 60_000),
        ended,
        reason: "connection refused".to_owned(),
        last_reason: None,
        probes: 3,
    };
    let over = Some((Timestamp::from_millis(NOW_MS), OutageEnd::Accepted));
    let outages = vec![outage("orders", None), outage("mails", over)];
    let api = api(FixedSinks { outages, ..FixedSinks::default() }).await;
    let all = api.get("/v1/outages").await.json();
    let lasts = json!({
        "topic": "orders", "sink": "shop", "since": NOW_MS - 60_000, "reason": "connection refused", "probes": 3
    });
    assert_eq!((&all["node"], &all["outages"][0]), (&json!("n1"), &lasts));
    assert_eq!((&all["outages"][1]["until"], &all["outages"][1]["end"]), (&json!(NOW_MS), &json!("accepted")));
    let one = api.get("/v1/outages?topic=mails").await.json();
    assert_eq!((one["outages"].as_array().unwrap().len(), &one["outages"][0]["topic"]), (1, &json!("mails")));
    assert_eq!(api.get("/v1/outages?topic=%20").await.problem(), (400, "invalid_query".to_owned()));
    let token = |scope: &str| {
        format!(r#"{{"name":"{scope}","secret":"a-secret-of-{scope}-0123","scopes":["{scope}"],"topics":["mails"]}}"#)
    };
    let tokens = ["view", "produce"].map(token).join(",");
    let auth = Auth::load(&serde_json::from_str(&format!(r#"{{"tokens":[{tokens}]}}"#)).unwrap()).unwrap();
    let api = api.again(HttpParts { auth, ..api.parts.clone() });
    for (scope, status, seen) in [("view", 200, 1), ("produce", 403, 0)] {
        let answer = api.call_as(&format!("a-secret-of-{scope}-0123"), "GET", "/v1/outages", "").await;
        assert_eq!(answer.status, status, "{}", answer.text);
        assert_eq!(answer.json()["outages"].as_array().map_or(0, Vec::len), seen, "{scope}: {}", answer.text);
    }
}

#[tokio::test]
async fn what_a_sink_that_is_down_gave_back_is_not_listed_as_scheduled_and_the_forecast_says_how_many_it_may_be() {
    let api = api(down()).await;
    for message in [r#"{"id":"late"}"#, r#"{"id":"soon","delay":"20s"}"#, r#"{"id":"later","delay":"2h"}"#] {
        assert_eq!(api.post("/v1/topics/orders/messages", message).await.status, 201);
    }
    let topic = TopicName::new("orders").unwrap();
    let record = api.parts.router.topic(&topic).await.unwrap();
    let id = MessageId::new("late").unwrap();
    let shard = record.routing.home(&topic, &id);
    let ask = claim_request(1);
    let claimed = api.store.claim(&shard, api.clock.now(), &ask).await.unwrap().messages.remove(0);
    let settle = Settle { id, score: claimed.score, action: Settlement::Defer(Duration::from_secs(30)) };
    api.store.settle(&shard, api.clock.now(), &[settle]).await.unwrap();

    let listed = async |query: &str| -> Vec<(String, String)> {
        let page = api.get(&format!("/v1/topics/orders/messages?{query}")).await.json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let messages = page["messages"].as_array().unwrap().iter();
        let mut found: Vec<_> = messages.map(|one| (text(&one["id"]), text(&one["state"]))).collect();
        found.sort_unstable();
        found
    };
    let all = [("late", "retrying"), ("later", "scheduled"), ("soon", "scheduled")];
    let all = all.map(|(id, state)| (id.to_owned(), state.to_owned()));
    assert_eq!(listed("").await, all);
    assert_eq!(listed("state=scheduled").await, all[1..]);
    let next = api.get("/v1/topics/orders/messages/late/explain").await.json()["next"].as_str().unwrap().to_owned();
    assert!(next.starts_with("Due since 2025-11-21T00:00:00.000Z, and deferred to 2025-11-21T00:00:30"), "{next}");
    assert!(next.contains("\"shop\" is down since") && next.contains("cost no attempt"), "{next}");
    let forecast = api.get("/v1/topics/orders/forecast?bucket=1m&buckets=180").await.json();
    assert_eq!((&forecast["due"], &forecast["deferred_max"]), (&json!(0), &json!(2)), "{forecast}");

    let well = api.again(HttpParts { sinks: Arc::new(FixedSinks::default()), ..api.parts.clone() });
    let page = well.get("/v1/topics/orders/messages?prefix=late").await.json();
    assert_eq!(page["messages"][0]["state"], "scheduled", "as its score says");
    assert!(well.get("/v1/topics/orders/forecast").await.json().get("deferred_max").is_none());
}

#[tokio::test]
async fn a_pause_is_shown_with_the_sink_that_it_holds_up() {
    let api = api(FixedSinks::default()).await;
    assert!(api.get("/v1/topics/orders/sink").await.json().get("paused").is_none());
    assert_eq!(api.post("/v1/sinks/shop/pause", r#"{"reason":"the shop moves"}"#).await.status, 200);
    let view = api.get("/v1/topics/orders/sink").await.json();
    assert_eq!(view["paused"], true);
    assert_eq!(view["pause"], json!({"reason": "the shop moves", "since": NOW_MS, "sink": "shop"}));
    assert!(view.get("issue").is_none(), "{view}");
}

#[tokio::test]
async fn a_node_is_degraded_while_streams_in_its_store_take_nothing() {
    let why = "shard orders:0: redis refused to hand messages over to a stream: WRONGTYPE";
    let api = api(FixedSinks { refused: Some(why.to_owned()), ..FixedSinks::default() }).await;
    let ready = api.get("/readyz").await;
    assert_eq!((ready.status.as_u16(), &ready.json()["status"]), (200, &json!("degraded")));
    assert_eq!(ready.json()["issues"], json!([format!("topic \"orders\": {why}")]));
}

#[tokio::test]
async fn sinks_that_take_nothing_are_named_to_whoever_may_see_all() {
    const SECRET: &str = "looks-at-all-topics";
    let config = json!({"tokens": [{"name": "all", "secret": SECRET, "scopes": ["view"]}]});
    let api = TestApi::with(Auth::load(&serde_json::from_value(config).unwrap()).unwrap()).await;
    let sinks = FixedSinks { refused: Some("10.0.0.7:443 refused".to_owned()), ..FixedSinks::default() };
    let api = api.again(HttpParts { sinks: Arc::new(sinks), ..api.parts.clone() });
    let found = async |secret: &str| api.call_as(secret, "GET", "/readyz", "").await.json()["found"]["sinks"].clone();
    assert_eq!(found(SECRET).await, "these take nothing: shop");
    assert_eq!(found("").await, "some take nothing; send a token for all topics to see which");
}
