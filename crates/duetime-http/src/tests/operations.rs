//! Health, metrics, the document; unknown routes; a store that fails; a handler that breaks.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header;
use duetime_core::{ChangeId, Clock, GoneNode, RoutingId, Shard, StoreError, Timestamp, TopicName};
use duetime_small_store::SmallStore;
use duetime_testkit::ManualClock;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Faulty, NOW_MS, TestApi, away};
use crate::{Auth, HttpParts};

/// What a call on a shard fails with.
type Fault = fn(&Shard) -> Option<StoreError>;

/// Calls that a test makes fail.
const FAILING: [&str; 6] = ["enqueue", "edit", "claim", "ready", "routing", "next_due"];

/// Has these calls fail by the shard that each is about.
fn fail(store: &Faulty, fault: Fault) {
    let of_none = Shard::new(TopicName::new("none").unwrap(), 0, RoutingId { epoch: 1, change_id: ChangeId(1) });
    store.set(move |call| {
        let fails = FAILING.contains(&call.op);
        if fails { fault(call.shards.first().unwrap_or(&of_none)) } else { None }
    });
}

async fn failing() -> (TestApi, Arc<Faulty>) {
    let store = Faulty::new();
    let api = TestApi::over(store.clone(), Auth::open()).await;
    api.put("/v1/topics/orders", r#"{"shards":4}"#).await;
    (api, store)
}

#[tokio::test]
async fn a_resize_is_refused_while_who_decides_on_it_is_away() {
    let (api, store) = failing().await;
    fail(&store, |_| Some(away("enqueue")));
    let refused = api.put("/v1/topics/orders/shards", r#"{"shards":8}"#).await;
    assert_eq!(refused.problem(), (503, "authority_unavailable".to_owned()), "{}", refused.text);
    assert!(refused.text.contains("nothing was begun"));
    fail(&store, |_| None);
    let after = api.get("/v1/topics/orders/shards").await.json();
    assert_eq!((&after["configured"], &after["shard_count"]), (&json!(4), &json!(4)));
}

#[tokio::test]
async fn each_failure_of_the_store_has_its_own_answer() {
    let (api, store) = failing().await;
    let faults: [(Fault, u16, &str); 5] = [
        (|_| Some(StoreError::Full("4 of 4 bytes".to_owned())), 507, "store_full"),
        (|_| Some(away("enqueue")), 503, "store_unavailable"),
        (|_| Some(StoreError::ClockSkew(5000)), 503, "clock_skew"),
        (|_| Some(StoreError::Damaged("x".to_owned())), 500, "store_damaged"),
        (|shard| Some(StoreError::NotReady(shard.to_string())), 503, "routing_changing"),
    ];
    for (fault, status, code) in faults {
        fail(&store, fault);
        let answer = api.enqueue("{}").await;
        assert_eq!(answer.problem(), (status, code.to_owned()), "{}", answer.text);
        assert_eq!(answer.headers.contains_key(header::RETRY_AFTER), status == 503);
    }
    fail(&store, |_| Some(away("enqueue")));
    assert_eq!(api.get("/readyz").await.problem(), (503, "store_unavailable".to_owned()));
    assert_eq!(api.get("/healthz").await.status, 200);
    assert!(api.get("/metrics").await.text.contains("duetime_store_errors_total{kind=\"unavailable\"}"));
}

#[tokio::test]
async fn a_stranger_learns_that_the_store_does_not_serve_and_not_why() {
    const SECRET: &str = "looks-at-all-topics";
    let config = json!({"tokens": [{"name": "all", "secret": SECRET, "scopes": ["view"]}]});
    let store = Faulty::new();
    let api = TestApi::over(store.clone(), Auth::load(&serde_json::from_value(config).unwrap()).unwrap()).await;
    fail(&store, |_| Some(StoreError::Damaged("/srv/kept/duetime.db".to_owned())));
    for (token, sees) in [("", false), ("of nobody", false), (SECRET, true)] {
        let refused = api.call_as(token, "GET", "/readyz", "").await;
        assert_eq!(refused.problem(), (500, "store_damaged".to_owned()));
        assert_eq!(refused.text.contains("/srv/kept"), sees, "{token}: {}", refused.text);
    }
}

#[tokio::test]
async fn a_node_is_ready_only_if_a_shard_answers_it_and_whatever_becomes_of_one_topic() {
    let (api, store) = failing().await;
    // As a cluster that refuses every call on a key, and answers a ping.
    fail(&store, |shard: &Shard| (shard.topic.as_str() == "orders").then(|| away("enqueue")));
    let refused = api.get("/readyz").await;
    assert_eq!(refused.problem(), (503, "store_unavailable".to_owned()));
    assert!(refused.text.contains("none of its 1 servers answers"), "{}", refused.text);
    let found = json!({"store": "serves", "servers": "0 of 1 answer", "clock": "0 ms apart", "sharing": "etcd works",
        "sinks": "none is known to be down"});
    assert_eq!(refused.json()["found"], found);
    fail(&store, |_| None);
    api.parts.catalog.issues().lose(&"orders".parse().unwrap(), [3].into());
    let degraded = api.get("/readyz").await;
    assert_eq!((degraded.status.as_u16(), &degraded.json()["status"]), (200, &json!("degraded")));
    assert_eq!(degraded.json()["found"]["servers"], "1 of 1 answer");
}

#[tokio::test]
async fn the_list_of_nodes_has_the_issues_of_the_one_that_answers_for_who_may_see_all() {
    let config = json!({"tokens": [
        {"name": "all", "secret": "looks-at-all-topics", "scopes": ["view"]},
        {"name": "some", "secret": "looks-at-one-topic", "scopes": ["view"], "topics": ["orders"]},
    ]});
    let api = TestApi::with(Auth::load(&serde_json::from_value(config).unwrap()).unwrap()).await;
    let issues = async |secret: &str| api.call_as(secret, "GET", "/v1/nodes", "").await.json()["issues"].clone();
    assert_eq!(issues("looks-at-all-topics").await, json!(null));
    api.parts.catalog.issues().lose(&"orders".parse().unwrap(), [3].into());
    assert_eq!(issues("looks-at-all-topics").await, json!(["shards of topic orders are lost: 3"]));
    assert_eq!(issues("looks-at-one-topic").await, json!(null));
}

/// A node whose store has a replica.
async fn replicated() -> (TestApi, SmallStore) {
    let clock = ManualClock::at(Timestamp::from_millis(NOW_MS));
    let small = SmallStore::with_replicas(clock.clone(), 1).await;
    let api = TestApi::on(&small, small.shared(), clock, Auth::open()).await;
    api.put("/v1/topics/orders", r#"{"shards":4}"#).await;
    (api, small)
}

#[tokio::test]
async fn answers_say_how_many_replicas_have_what_was_done() {
    let (api, small) = replicated().await;
    for id in ["a", "b", "c"] {
        api.enqueue(&json!({"id": id, "delay": "1h"}).to_string()).await;
    }
    let patch = api.call("PATCH", "/v1/topics/orders/messages/a", "application/json", r#"{"delay":"2h"}"#).await;
    assert_eq!((&patch.json()["outcome"], &patch.json()["replicas"]), (&json!("rescheduled"), &json!(1)));
    let cancelled = api.delete("/v1/topics/orders/messages/a").await.json();
    assert_eq!((&cancelled["outcome"], &cancelled["replicas"]), (&json!("cancelled"), &json!(1)));
    let many = api.post("/v1/topics/orders/cancel", r#"{"ids":["b","x"]}"#).await.json();
    assert_eq!((&many["results"][0]["replicas"], &many["results"][1]["replicas"]), (&json!(1), &json!(1)));
    // What no replica has says so too: the fewest of all.
    small.cut_replicas(true);
    for which in [r#"{"ids":["x"]}"#, r#"{"ids":["x","y","z"]}"#] {
        let purged = api.call("DELETE", "/v1/topics/orders/dead", "application/json", which).await.json();
        assert_eq!(purged["replicas"], 0, "{purged}");
    }
}

#[tokio::test]
async fn a_full_store_cancels_what_is_there_and_says_that_it_notes_nothing() {
    let (api, small) = replicated().await;
    assert_eq!(api.put("/v1/topics/orders", r#"{"remember":"1h"}"#).await.status, 200);
    for id in ["a", "b"] {
        api.enqueue(&json!({"id": id, "delay": "1h"}).to_string()).await;
    }
    small.set_full(true);
    let many = api.post("/v1/topics/orders/cancel", r#"{"ids":["x","a"]}"#).await.json();
    let (x, a) = (&many["results"][0], &many["results"][1]);
    assert_eq!(x["error"]["code"], "store_full", "{many}");
    assert_eq!((&a["outcome"], &a["replicas"]), (&json!("cancelled"), &json!(1)), "{many}");
    let alone = api.delete("/v1/topics/orders/messages/x").await;
    assert_eq!(alone.problem(), (507, "store_full".to_owned()));
    assert!(alone.text.contains("no room to note its cancel"), "{}", alone.text);
    assert_eq!(api.delete("/v1/topics/orders/messages/b").await.json()["outcome"], "cancelled");
    assert_eq!(api.delete("/v1/topics/orders/messages/b").await.problem(), (404, "unknown_message".to_owned()));
    small.set_full(false);
    let enqueued = api.enqueue(r#"{"id":"x","delay":"1h"}"#).await.json();
    assert_eq!(enqueued["outcome"], "scheduled", "it was not noted: {enqueued}");
}

#[tokio::test]
async fn acks_wait_for_replicas_only_where_the_topic_asks_for_it() {
    let (api, _) = replicated().await;
    for (settings, replicas) in [(r#"{"confirm_acks":true}"#, json!(1)), (r#"{"confirm_acks":null}"#, Value::Null)] {
        assert_eq!(api.put("/v1/topics/orders", settings).await.status, 200);
        api.enqueue("{}").await;
        let claimed = api.post("/v1/topics/orders/claim", "{}").await.json();
        let receipts = json!({"receipts": [claimed["messages"][0]["receipt"]]}).to_string();
        let acked = api.post("/v1/topics/orders/ack", &receipts).await.json();
        assert_eq!((&acked["results"][0]["outcome"], &acked["results"][0]["replicas"]), (&json!("ok"), &replicas));
    }
}

#[tokio::test]
async fn one_bad_shard_never_takes_the_others_items_along() {
    let (api, store) = failing().await;
    fail(&store, |shard| (shard.index == 2).then(|| away("enqueue")));
    let messages: Vec<Value> = (0..100).map(|n| json!({"id": n.to_string()})).collect();
    let results = api.enqueue(&Value::from(messages).to_string()).await.json()["results"].as_array().unwrap().clone();
    assert_eq!(results.len(), 100);
    let failed = results.iter().filter(|r| r["error"]["code"] == "store_unavailable").count();
    let placed = results.iter().filter(|r| r["outcome"] == "scheduled").count();
    assert!(failed > 5 && placed > 50 && failed + placed == 100, "{failed} failed, {placed} placed");
    let ids: Vec<&str> = results.iter().map(|r| r["id"].as_str().unwrap()).collect();
    assert_eq!(ids, (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_handler_that_breaks_answers_a_problem_and_the_next_request_works() {
    let (api, store) = failing().await;
    fail(&store, |_| panic!("boom"));
    let answer = api.post("/v1/topics/orders/claim", "").await;
    assert_eq!(answer.problem(), (500, "internal".to_owned()));
    assert!(!answer.text.contains("boom"));
    // A call that breaks in the queue of its batch is answered too, and leaves the queue usable.
    assert_eq!(api.enqueue("{}").await.problem(), (503, "store_unavailable".to_owned()));
    fail(&store, |_| None);
    for _ in 0..20 {
        assert_eq!(api.enqueue("{}").await.status, 201);
    }
}

/// A clock that breaks.
#[derive(Debug)]
struct Broken;

impl Clock for Broken {
    fn now(&self) -> Timestamp {
        panic!("boom")
    }
}

#[tokio::test]
async fn what_breaks_before_a_request_has_its_handler_is_answered_too() {
    let api = TestApi::new().await;
    let broken = api.again(HttpParts { clock: Arc::new(Broken), ..api.parts.clone() });
    assert_eq!(broken.get("/v1/topics").await.problem(), (500, "internal".to_owned()));
}

#[tokio::test]
async fn unknown_routes_and_wrong_methods_are_problems() {
    let api = TestApi::with_orders().await;
    assert_eq!(api.get("/v2").await.problem(), (404, "unknown_route".to_owned()));
    assert_eq!(api.get("/v1/topics/orders/messages/").await.problem(), (404, "unknown_route".to_owned()));
    let wrong = api.post("/v1/topics", "").await;
    assert_eq!(wrong.problem(), (405, "method_not_allowed".to_owned()));
    assert!(wrong.headers[header::ALLOW].to_str().unwrap().contains("GET"));
    assert!(
        api.get("/metrics")
            .await
            .text
            .contains("duetime_http_requests_total{method=\"GET\",route=\"other\",status=\"404\"} 2")
    );
}

#[tokio::test]
async fn an_operation_without_parameters_refuses_any() {
    let api = TestApi::with_orders().await;
    let topic = "/v1/topics/orders";
    for path in ["/v1/topics", topic, "/v1/me", "/v1/nodes", "/v1/events"] {
        let refused = api.get(&format!("{path}?force=true")).await;
        assert_eq!(refused.problem(), (400, "unknown_parameter".to_owned()), "{path}");
        assert!(refused.text.contains("none is known here"), "{}", refused.text);
    }
    assert_eq!(api.get(&format!("{topic}?")).await.status, 200);
    assert_eq!(api.get("/v1/audit?limit=1").await.status, 200);
}

#[tokio::test]
async fn nodes_that_went_are_listed_as_they_are_remembered() {
    let api = TestApi::with_orders().await;
    assert_eq!(api.get("/v1/nodes").await.json().get("gone"), None);
    let went = GoneNode {
        id: "n2".to_owned(),
        address: "10.0.0.2:3830".to_owned(),
        version: "1.2.3".to_owned(),
        since_ms: 5,
        gone_ms: 7,
        stopped: false,
    };
    let gone = watch::channel(Arc::new(vec![went])).1;
    let api = api.again(HttpParts { gone, ..api.parts.clone() });
    let wanted = json!([{"id": "n2", "address": "10.0.0.2:3830", "version": "1.2.3", "since": 5, "gone_at": 7,
        "stopped": false}]);
    assert_eq!(api.get("/v1/nodes").await.json()["gone"], wanted);
}

#[tokio::test]
async fn a_draining_node_is_not_ready_and_says_so() {
    let api = TestApi::with_orders().await;
    let found = json!({"store": "serves", "servers": "1 of 1 answer", "clock": "0 ms apart", "sharing": "etcd works",
        "sinks": "none is known to be down"});
    assert_eq!(api.get("/readyz").await.json(), json!({"status": "ready", "found": found}));
    let nodes = api.get("/v1/nodes").await.json();
    assert_eq!((&nodes["nodes"][0]["id"], &nodes["nodes"][0]["state"]), (&json!("n1"), &json!("serving")));
    assert_eq!(nodes["nodes"][0]["topics"], json!({"orders": 1}));
    api.parts.meters.topic(&TopicName::new("orders").unwrap()).count(duetime_metrics::Event::Claimed, 90);
    api.parts.meters.sample(Duration::from_secs(30));
    api.parts.meters.topic(&TopicName::new("orders").unwrap()).count(duetime_metrics::Event::Claimed, 30);
    api.parts.meters.sample(Duration::from_secs(60));
    let vitals = api.get("/v1/nodes").await.json()["nodes"][0]["vitals"].clone();
    assert!(vitals["memory_bytes"].as_u64().unwrap() > 1 << 20, "{vitals}");
    assert_eq!(
        (&vitals["claims_per_minute"], &vitals["clock_skew_ms"]),
        (&json!(60), &json!(0)),
        "since the first sample"
    );
    api.parts.draining.cancel();
    let refused = api.get("/readyz").await;
    assert_eq!(refused.problem(), (503, "draining".to_owned()));
    assert_eq!(refused.json()["found"]["servers"], "not asked: the node is draining");
    assert_eq!(api.get("/v1/nodes").await.json()["nodes"][0]["state"], "draining");
}

#[tokio::test]
async fn the_document_and_the_metrics_are_served() {
    let api = TestApi::new().await;
    let document = api.get("/openapi.json").await.json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let text = document.to_string();
    for name in text.split("#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(document["components"]["schemas"][name].is_object(), "{name} is referred to and missing");
    }
    let metrics = api.get("/metrics").await;
    assert!(metrics.headers[header::CONTENT_TYPE].to_str().unwrap().contains("version=0.0.4"));
}

#[tokio::test]
async fn lateness_of_topics_without_series_of_their_own_says_so_and_what_is_still_has_no_steps() {
    let api = TestApi::with_orders().await;
    let meters = api.parts.meters.clone();
    let name = |text: &str| TopicName::new(text).unwrap();
    let seen = |text: &str| drop(meters.topic(&name(text)));
    seen("orders");
    (0..duetime_metrics::TOPIC_SERIES_MAX).for_each(|n| seen(&format!("other-{n}")));
    assert_eq!(api.put("/v1/topics/zebra", "{}").await.status, 201);
    seen("zebra");
    meters.sample(Duration::ZERO);
    meters.topic(&name("orders")).lateness.observe(1.5);
    meters.sample(Duration::from_secs(30));
    let answer = api.get("/v1/rates").await.json();
    let [orders, zebra] = [&answer["topics"][0], &answer["topics"][1]];
    assert_eq!((orders.get("of_rest"), orders["steps"].as_array().unwrap().len()), (None, 1));
    assert_eq!((&zebra["topic"], &zebra["of_rest"], &zebra["steps"]), (&json!("zebra"), &json!(true), &json!([])));
}

#[tokio::test]
async fn rates_and_lateness_of_the_last_minute_are_answered_in_numbers() {
    let api = TestApi::with_orders().await;
    let meters = api.parts.meters.clone();
    let topic = meters.topic(&TopicName::new("orders").unwrap());
    meters.sample(Duration::ZERO);
    for n in 0..60 {
        api.enqueue(&json!({"id": format!("m-{n}")}).to_string()).await;
    }
    (0..59).for_each(|_| topic.lateness.observe(0.004));
    topic.lateness.observe(1.5);
    meters.sink("out", "log").call(Duration::from_millis(3));
    meters.sink("out", "log").errors("no_answer", 7);
    meters.sample(Duration::from_secs(30));
    let answer = api.get("/v1/rates").await.json();
    let orders = &answer["topics"][0];
    assert_eq!(
        (&orders["topic"], &orders["over_ms"], &orders["scheduled"]),
        (&json!("orders"), &json!(30_000), &json!(2.0))
    );
    let p99 = orders["late_p99_ms"].as_f64().unwrap();
    assert!((1000.0..2500.0).contains(&p99), "{p99}");
    assert_eq!((&orders["deliveries"], &orders["late"]), (&json!(60), &json!(1)));
    assert_eq!((&orders["deliveries_total"], &orders["late_total"]), (&json!(60), &json!(1)));
    assert_eq!(orders["steps"][0]["late"], 1);
    assert!(orders.get("capacity").is_none());
    let steps = orders["steps"].as_array().unwrap();
    assert_eq!((steps.len(), &steps[0]["scheduled"], &steps[0]["at"]), (1, &json!(2.0), &json!(super::NOW_MS)));
    assert!(orders.get("detail").is_none());
    let detail = api.get("/v1/rates?topic=orders").await.json()["topics"][0]["detail"].clone();
    assert_eq!((&detail["flow"]["scheduled"], &detail["lateness"][0]["at"]), (&json!(60), &json!(super::NOW_MS)));
    let counts = detail["lateness"][0]["counts"].as_array().unwrap();
    assert_eq!(counts.iter().filter_map(serde_json::Value::as_u64).sum::<u64>(), 60);
    assert_eq!(counts.len(), detail["bounds_ms"].as_array().unwrap().len() + 1);
    assert_eq!(detail["budget"][1], json!({"at": super::NOW_MS, "deliveries": 60, "late": 1}));
    assert_eq!(api.get("/v1/rates?topic=nobody").await.json()["topics"], json!([]));
    let sink = &answer["sinks"][0];
    assert_eq!((&sink["sink"], &sink["type"], &sink["refused"][0]["count"]), (&json!("out"), &json!("log"), &json!(0)));
    assert_eq!(sink["refused"][3], json!({"kind": "no_answer", "count": 7, "last_minute": 0}), "the sink is new");
    meters.sample(Duration::from_secs(60));
    meters.sink("out", "log").errors("no_answer", 5);
    meters.sample(Duration::from_secs(90));
    let sink = api.get("/v1/rates").await.json()["sinks"][0].clone();
    assert_eq!(sink["refused"][3], json!({"kind": "no_answer", "count": 12, "last_minute": 5}));
}

#[tokio::test]
async fn a_scrape_of_many_topics_holds_up_nobody() {
    let api = TestApi::with_orders().await;
    for n in 0..200 {
        let topic = TopicName::new(&format!("topic-{n}")).unwrap();
        api.parts.meters.topic(&topic).count(duetime_metrics::Event::Scheduled, 1);
    }
    let mut scrape = Box::pin(api.get("/metrics"));
    // All in one thread: while the text is written others have their turn, or there is none between.
    let mut turns = 0;
    let answer = loop {
        match futures::poll!(&mut scrape) {
            std::task::Poll::Ready(answer) => break answer,
            std::task::Poll::Pending => turns += 1,
        }
        tokio::task::yield_now().await;
    };
    assert!(answer.text.len() > 100_000 && turns > 100, "{turns} turns, {} bytes", answer.text.len());
}
