//! A target that bears only so many messages at once: two nodes and a webhook, consumers at one and at two nodes, while
//! the shard count changes too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use duetime_testkit::servers::RedisServer;
use duetime_testkit::wait::{Because, let_pass, until};
use duetime_testkit::webhook::Answer;
use duetime_testkit::{Webhook, in_time, promised};
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::test_node::{TestNode, ids};

const MAX: usize = 6;
const MESSAGES: usize = 400;
/// How long the target, or a consumer, works on one.
const WORK: Duration = Duration::from_millis(25);
const CONSUMERS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(60);
/// Claims end by themselves in no test.
const VISIBILITY: &str = "5m";

/// What a target works on at once.
#[derive(Default)]
struct Open {
    now: AtomicUsize,
    most: AtomicUsize,
    all: AtomicUsize,
}

impl Open {
    fn begin(&self, many: usize) {
        self.most.fetch_max(self.now.fetch_add(many, Ordering::SeqCst) + many, Ordering::SeqCst);
        self.all.fetch_add(many, Ordering::SeqCst);
    }

    fn end(&self, many: usize) {
        self.now.fetch_sub(many, Ordering::SeqCst);
    }

    fn check(&self) {
        let most = self.most.load(Ordering::SeqCst);
        promised!(most <= MAX, "{most} were in flight at once, {MAX} may be");
        assert!(most > MAX / 2, "the bound was not reached: {most} at once");
    }
}

/// Waits until the target has begun so many.
async fn until_begun(open: &Open, many: usize, node: &TestNode) {
    let end = Instant::now() + PATIENCE;
    while open.all.load(Ordering::SeqCst) < many {
        let (begun, counts) = (open.all.load(Ordering::SeqCst), node.counts("orders").await);
        in_time!(Instant::now() < end, "{begun} of {many} were begun: {counts}");
        let_pass(Duration::from_millis(20), Because::AskedAgain).await;
    }
}

async fn resize(node: &TestNode, shards: u32) {
    let (status, body) = node.call(Method::PUT, "/v1/topics/orders/shards", json!({"shards": shards})).await;
    assert!(status.is_success(), "{body}");
    let end = Instant::now() + PATIENCE;
    loop {
        let view = node.get("/v1/topics/orders/shards").await.1;
        if view["shard_count"] == shards && view.get("resize").is_none() {
            return;
        }
        in_time!(Instant::now() < end, "not resized to {shards}: {view}");
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
}

/// Changes the shard count while messages are worked on: to as many as may be in flight, and to one.
async fn resize_meanwhile(node: &TestNode, open: &Open) {
    for (begun, shards) in [(MESSAGES / 8, 6), (MESSAGES / 4, 1), (MESSAGES / 2, 4)] {
        until_begun(open, begun, node).await;
        resize(node, shards).await;
    }
}

async fn make(node: &TestNode, settings: Value) {
    let mut topic = json!({"shards": 2, "max_in_flight": MAX, "visibility_timeout": VISIBILITY});
    topic.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let (status, body) = node.topic("orders", topic).await;
    assert_eq!((status.as_u16(), &body["max_in_flight"]), (201, &json!(MAX)), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_is_asked_by_two_nodes_no_more_than_it_bears_at_once() {
    let (redis, hook, open) = (RedisServer::start().await, Webhook::start(), Arc::new(Open::default()));
    // Each request is open until its answer is due: that is no longer than it is in flight.
    let (counted, ends) = (open.clone(), Mutex::new(Vec::<Instant>::new()));
    hook.answer(move |_| {
        let (now, mut ends) = (Instant::now(), ends.lock());
        let before = ends.len();
        ends.retain(|end| *end > now);
        counted.end(before - ends.len());
        counted.begin(1);
        ends.push(now + WORK);
        Answer::status(200).after(WORK)
    });
    let lines = format!(
        "[resize]\nleave_due_within = \"100ms\"\n[sinks.s]\ntype = \"http\"\nurl = \"{}\"\nallow = [\"127.0.0.1\"]\n",
        hook.url("/")
    );
    let nodes = TestNode::sharing(2, &redis, &lines).await;
    make(&nodes[0], json!({"sink": {"name": "s"}})).await;
    nodes[1].enqueue("orders", ids("m", MESSAGES)).await;
    resize_meanwhile(&nodes[0], &open).await;
    until_begun(&open, MESSAGES, &nodes[0]).await;
    nodes[0].drained("orders", PATIENCE).await;
    open.check();
    assert_eq!(hook.hits().len(), MESSAGES, "each came once");
}

async fn post(client: &reqwest::Client, url: &str, body: Value) -> Value {
    let answer = client.post(url).json(&body).send().await.unwrap();
    assert!(answer.status().is_success(), "{url}: {answer:?}");
    answer.json().await.unwrap()
}

/// Claims as many as it gets, works on them one after the other, and acks each.
async fn consume(node: String, open: Arc<Open>) {
    let client = crate::test_node::client();
    let (claim, ack) = (format!("{node}/v1/topics/orders/claim"), format!("{node}/v1/topics/orders/ack"));
    while open.all.load(Ordering::SeqCst) < MESSAGES {
        let claimed = post(&client, &claim, json!({"max": 10, "wait": "500ms"})).await;
        let messages = claimed["messages"].as_array().unwrap();
        open.begin(messages.len());
        for message in messages {
            let_pass(WORK, Because::Rate).await;
            open.end(1);
            post(&client, &ack, json!({"receipts": [message["receipt"]]})).await;
        }
    }
}

async fn consumers_keep_the_bound(nodes: &[TestNode]) {
    make(&nodes[0], json!({})).await;
    nodes[0].enqueue("orders", ids("m", MESSAGES)).await;
    let open = Arc::new(Open::default());
    let mut consumers = JoinSet::new();
    for n in 0..CONSUMERS {
        consumers.spawn(consume(nodes[n % nodes.len()].url(), open.clone()));
    }
    resize_meanwhile(&nodes[0], &open).await;
    while let Some(ended) = consumers.join_next().await {
        ended.unwrap();
    }
    nodes[0].drained("orders", PATIENCE).await;
    open.check();
    assert_eq!(open.all.load(Ordering::SeqCst), MESSAGES, "each came once");
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_of_two_nodes_hold_no_more_than_may_be_in_flight() {
    let redis = RedisServer::start().await;
    let lines = "[resize]\nleave_due_within = \"100ms\"\n";
    consumers_keep_the_bound(&TestNode::sharing(2, &redis, lines).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_of_a_node_with_its_own_store_hold_no_more_than_may_be_in_flight() {
    consumers_keep_the_bound(&[TestNode::new("[resize]\nleave_due_within = \"100ms\"\n").await]).await;
}

async fn claimed(node: &TestNode, wait: &str) -> Vec<Value> {
    let (status, body) = node.post("/v1/topics/orders/claim", json!({"max": 10, "wait": wait})).await;
    assert_eq!(status, 200, "{body}");
    body["messages"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_is_full_is_counted_as_long_as_somebody_waits_for_a_place() {
    let node = TestNode::new("").await;
    let topic = json!({"shards": 2, "max_in_flight": 2, "visibility_timeout": VISIBILITY});
    assert_eq!(node.topic("orders", topic).await.0, 201);
    let is_shown = async |full: f64| {
        let what = format!("duetime_shards_full is {full}");
        let seen = async || (node.metric("duetime_shards_full").await == full).then_some(());
        until(PATIENCE, &what, seen).await;
    };
    // Some are due in each of the two.
    node.enqueue("orders", ids("m", 40)).await;
    let mut held = Vec::new();
    while held.len() < 2 {
        held.extend(claimed(&node, "5s").await);
    }
    let receipts: Vec<&Value> = held.iter().map(|message| &message["receipt"]).collect();
    let settled = async {
        is_shown(2.0).await;
        node.post("/v1/topics/orders/ack", json!({ "receipts": receipts })).await.0
    };
    let (next, status) = tokio::join!(claimed(&node, "30s"), settled);
    assert_eq!((next.is_empty(), status.as_u16()), (false, 200));
    is_shown(0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_place_is_told_so_and_gets_it_when_one_is_settled_or_runs_out() {
    let node = TestNode::new("").await;
    let topic = json!({"shards": 1, "max_in_flight": 1, "visibility_timeout": "2s"});
    assert_eq!(node.topic("orders", topic).await.0, 201);
    node.enqueue("orders", ids("m", 3)).await;
    let first = claimed(&node, "0s").await;
    assert_eq!(first.len(), 1);
    let waiting = if first[0]["id"] == "m-1" { "m-2" } else { "m-1" };
    let explained = node.get(&format!("/v1/topics/orders/messages/{waiting}/explain")).await.1;
    let next = explained["next"].as_str().unwrap();
    assert!(next.contains("max_in_flight = 1") && next.contains("1 are in flight, and 1 may be"), "{next}");

    // Who waits already is given the next one as soon as there is a place: by asking alone, less and less often, it
    // would have it after some 750 ms.
    let began = Instant::now();
    let settled = async {
        let_pass(Duration::from_millis(400), Because::Rate).await;
        node.post("/v1/topics/orders/ack", json!({"receipts": [first[0]["receipt"]]})).await.0
    };
    let (second, status) = tokio::join!(claimed(&node, "10s"), settled);
    assert_eq!((second.len(), status.as_u16()), (1, 200));
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(400), "{took:?}");
    in_time!(took < Duration::from_millis(700), "the place was free after 400 ms, and taken after {took:?}");

    // The second is never settled: its claim runs out, and the third has its place.
    let third = claimed(&node, "10s").await;
    assert_eq!(third.len(), 1);
    assert_ne!(third[0]["id"], second[0]["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_that_shards_cannot_keep_is_refused() {
    let node = TestNode::new("").await;
    let refused = async |topic: &str, settings: Value| {
        let (status, body) = node.topic(topic, settings).await;
        assert!(status.is_client_error(), "{body}");
        body["detail"].as_str().unwrap().to_owned()
    };
    let detail = refused("orders", json!({"shards": 8, "max_in_flight": 7})).await;
    assert!(detail.contains("max_in_flight = 7") && detail.contains("shards = 8"), "{detail}");
    let detail = refused("orders", json!({"max_in_flight": 7, "delivery": "at-most-once"})).await;
    assert!(detail.contains("delivery"), "{detail}");
    assert_eq!(node.topic("orders", json!({"shards": 8})).await.0, 201);
    assert!(refused("orders", json!({"max_in_flight": 7})).await.contains("set shards to 7 or fewer"));
    let both = refused("orders", json!({"shards": 4, "max_in_flight": 7})).await;
    assert!(both.contains("the 8 shards that the topic has"), "{both}");
    assert_eq!(node.topic("orders", json!({"max_in_flight": 8})).await.0, 200);
    let (status, body) = node.call(Method::PUT, "/v1/topics/orders/shards", json!({"shards": 9})).await;
    assert!(status.is_client_error() && body["detail"].as_str().unwrap().contains("max_in_flight"), "{body}");
    // As many shards as the number of nodes says, and no more than can be kept.
    assert_eq!(node.topic("auto", json!({"shards": "auto", "max_in_flight": 2})).await.0, 201);
    assert_eq!(node.get("/v1/topics/auto/shards").await.1["shard_count"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_whose_sink_delivers_in_place_has_no_bound() {
    let redis = RedisServer::start().await;
    let node = TestNode::on(&redis.url(), "[sinks.streams]\ntype = \"redis-stream\"\nin_place = true\n").await;
    let refused = async |settings: Value| {
        let (status, body) = node.topic("orders", settings).await;
        assert!(status.is_client_error() && body["detail"].as_str().unwrap().contains("in place"), "{body}");
    };
    refused(json!({"shards": 2, "sink": {"name": "streams"}, "max_in_flight": 4})).await;
    assert_eq!(node.topic("orders", json!({"shards": 2, "sink": {"name": "streams"}})).await.0, 201);
    refused(json!({"max_in_flight": 4})).await;
}
