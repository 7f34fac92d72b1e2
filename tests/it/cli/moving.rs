//! `duetime move`: from one store to another under load, killed and started again, back again, and what it refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_core::Clock as _;
use duetime_testkit::WallClock;
use duetime_testkit::servers::{Node, RedisCluster, RedisServer};
use duetime_testkit::violation::{is_long, only_in_long};
use duetime_testkit::wait::{Because, let_pass};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use rand::seq::SliceRandom as _;
use reqwest::Method;
use serde_json::{Value, json};

use super::{PROGRAM, command, node, said, to, to_with_input};
use crate::test_node;

/// Messages of the load, cut into parts that are changed by one task each.
const MESSAGES: usize = 3_000;
const TASKS: usize = 6;
/// How often the mover is killed.
const KILLS: usize = 6;
/// Messages that fall due while the load lasts are due within this.
const NEAR_MS: std::ops::Range<i64> = 3_000..25_000;
pub(super) const HOUR_MS: i64 = 3_600_000;

pub(super) fn now_ms() -> i64 {
    WallClock.now().as_millis()
}

pub(super) fn mover(from: &Node, to: &Node, more: &[&str]) -> Child {
    let url = to.url();
    let args = [&["move", "orders", "--to", &url, "--margin", "2s", "--json"][..], more].concat();
    command(Some(from), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

pub(super) async fn moved(from: &Node, to: &Node, more: &[&str]) -> Value {
    let child = mover(from, to, more);
    said(tokio::task::spawn_blocking(|| child.wait_with_output().unwrap()).await.unwrap()).done().json()
}

/// What one message must be in the end.
#[derive(Clone, Debug, Default)]
struct Wanted {
    payload: String,
    due_at: i64,
    cancelled: bool,
    /// A cancel found it claimed, or after its delivery.
    may_be_delivered: bool,
}

/// Both sides, and what was asked of them.
struct World {
    http: reqwest::Client,
    urls: [String; 2],
    wanted: Mutex<BTreeMap<String, Wanted>>,
    /// Payloads by id, as consumers had them.
    delivered: Mutex<BTreeMap<String, Vec<String>>>,
    ends: AtomicBool,
}

impl World {
    fn new(from: &Node, to: &Node) -> Arc<Self> {
        Arc::new(Self {
            http: test_node::client(),
            urls: [from.url(), to.url()],
            wanted: Mutex::default(),
            delivered: Mutex::default(),
            ends: AtomicBool::new(false),
        })
    }

    async fn ask(&self, side: usize, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let request = self.http.request(method, format!("{}/v1/topics/orders/{path}", self.urls[side]));
        let request = if body.is_null() { request } else { request.json(body) };
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    /// At the source, and where that does not have it at the destination.
    async fn cancel(&self, id: &str) {
        let mut may_be_delivered = false;
        for side in [0, 1] {
            let (status, answer) = self.ask(side, Method::DELETE, &format!("messages/{id}"), &Value::Null).await;
            let outcome = answer["outcome"].as_str().unwrap_or_default();
            may_be_delivered |= matches!(outcome, "in_flight" | "delivered");
            match (status, outcome) {
                (200, "cancelled") | (409, "in_flight") | (404, "delivered") => break,
                (404, "moved") if side == 0 => {}
                (404, "unknown") if side == 1 => {}
                other => panic!("{id} at {side}: {other:?} {answer}"),
            }
        }
        let mut wanted = self.wanted.lock();
        let wanted = wanted.get_mut(id).unwrap();
        (wanted.cancelled, wanted.may_be_delivered) = (true, may_be_delivered);
    }

    /// The same again until either side has it: between the two it has none for a moment.
    async fn reschedule(&self, id: &str, due_at: i64) {
        for side in [0, 1].into_iter().cycle() {
            let body = json!({"due_at": due_at});
            let (status, answer) = self.ask(side, Method::PATCH, &format!("messages/{id}"), &body).await;
            match status {
                200 => break,
                404 => let_pass(Duration::from_millis(20), Because::AskedAgain).await,
                _ => panic!("{id}: {status} {answer}"),
            }
        }
        self.wanted.lock().get_mut(id).unwrap().due_at = due_at;
    }

    async fn replace(&self, id: &str, wanted: Wanted) {
        let body = json!({"id": id, "due_at": wanted.due_at, "payload": wanted.payload, "on_conflict": "replace"});
        let (status, answer) = self.ask(0, Method::POST, "messages", &body).await;
        if status == 409 {
            assert_eq!(answer["became"]["outcome"], "moved", "{answer}");
            let (status, answer) = self.ask(1, Method::POST, "messages", &body).await;
            assert!(matches!(status, 200 | 201), "{answer}");
        }
        self.wanted.lock().insert(id.to_owned(), wanted);
    }

    async fn enqueue(&self, side: usize, id: &str, due_at: i64) {
        let wanted = Wanted { payload: format!("{id} new"), due_at, ..Wanted::default() };
        let body = json!({"id": id, "due_at": due_at, "payload": wanted.payload, "headers": {"zone": "eu"}});
        let (status, answer) = self.ask(side, Method::POST, "messages", &body).await;
        assert_eq!(status, 201, "{answer}");
        self.wanted.lock().insert(id.to_owned(), wanted);
    }

    /// What the application does with its part of the messages while they move.
    async fn changes(self: Arc<Self>, part: usize, mut ids: Vec<String>) {
        ids.shuffle(&mut rand::rng());
        for (n, id) in ids.into_iter().enumerate() {
            let is_far = self.wanted.lock()[&id].due_at > now_ms() + HOUR_MS / 2;
            let far = now_ms() + 2 * HOUR_MS + n as i64;
            match n % 6 {
                0 => self.cancel(&id).await,
                1 if is_far => self.reschedule(&id, far).await,
                2 if is_far => {
                    let payload = format!("{id} another");
                    self.replace(&id, Wanted { payload, due_at: far, ..Wanted::default() }).await;
                }
                3 if is_far => {
                    // Away and back: what it was before.
                    let before = self.wanted.lock()[&id].due_at;
                    self.reschedule(&id, far).await;
                    self.reschedule(&id, before).await;
                }
                4 if is_far => self.reschedule(&id, now_ms() + 6_000).await,
                _ => self.enqueue(n % 2, &format!("new-{part}-{n}"), far).await,
            }
            let_pass(Duration::from_millis(5), Because::Rate).await;
        }
    }

    async fn consume(self: Arc<Self>, side: usize) {
        while !self.ends.load(Ordering::Relaxed) {
            let (_, claimed) = self.ask(side, Method::POST, "claim", &json!({"max": 64, "wait": "500ms"})).await;
            let messages = claimed["messages"].as_array().unwrap();
            if messages.is_empty() {
                continue;
            }
            let receipts: Vec<&Value> = messages.iter().map(|message| &message["receipt"]).collect();
            let (_, acked) = self.ask(side, Method::POST, "ack", &json!({"receipts": receipts})).await;
            let mut delivered = self.delivered.lock();
            for (message, acked) in messages.iter().zip(acked["results"].as_array().unwrap()) {
                let (id, payload) = (message["id"].as_str().unwrap(), message["payload"].as_str().unwrap());
                // One that was cancelled or replaced while it was claimed was had all the same.
                assert!(matches!(acked["outcome"].as_str(), Some("ok" | "cancelled")), "{id}: {acked}");
                delivered.entry(id.to_owned()).or_default().push(payload.to_owned());
            }
        }
    }

    fn judge(&self, sides: &[BTreeMap<String, Value>; 2]) {
        let (wanted, delivered) = (self.wanted.lock(), self.delivered.lock());
        let mut faults = Vec::new();
        for (id, wanted) in wanted.iter() {
            let lives: Vec<&Value> = sides.iter().filter_map(|side| side.get(id)).collect();
            let had = delivered.get(id).map_or(&[][..], Vec::as_slice);
            let is_good = match (lives.as_slice(), had) {
                ([], []) => wanted.cancelled,
                ([], [payload]) => *payload == wanted.payload && (!wanted.cancelled || wanted.may_be_delivered),
                ([message], []) => {
                    !wanted.cancelled
                        && message["due_at"] == wanted.due_at
                        && message["payload"] == wanted.payload
                        && message["headers"].as_object().unwrap().keys().all(|name| name == "zone")
                }
                _ => false,
            };
            if !is_good {
                faults.push(format!("{id}: {wanted:?}, lives {lives:?}, delivered {had:?}"));
            }
        }
        assert!(faults.is_empty(), "{} faults: {:#?}", faults.len(), &faults[..faults.len().min(10)]);
        let known = sides.iter().flat_map(BTreeMap::keys).filter(|id| !wanted.contains_key(*id)).count();
        assert_eq!(known, 0, "nothing else is there");
    }
}

/// The messages of a topic by id.
pub(super) fn live(node: &Node) -> BTreeMap<String, Value> {
    let out = to(node, &["export", "orders"]).done().out;
    let message = |line: &str| {
        let message: Value = serde_json::from_str(line).unwrap();
        (message["id"].as_str().unwrap().to_owned(), message)
    };
    let all: Vec<_> = out.lines().map(message).collect();
    let ids: BTreeSet<&String> = all.iter().map(|(id, _)| id).collect();
    assert_eq!(ids.len(), all.len());
    all.into_iter().collect()
}

async fn moves_under_load(from: &Node, target: &Node) {
    to(from, &["topic", "create", "orders", "--shards", "4", "--remember", "1h"]).done();
    let world = World::new(from, target);
    let begun = now_ms();
    let mut lines = String::new();
    for n in 0..MESSAGES {
        let due_at = begun + if n % 4 == 0 { rand::random_range(NEAR_MS) } else { HOUR_MS + n as i64 };
        let (id, payload) = (format!("m-{n}"), format!("first {n}"));
        lines +=
            &(json!({"id": id, "due_at": due_at, "payload": payload, "headers": {"zone": "eu"}}).to_string() + "\n");
        world.wanted.lock().insert(id, Wanted { payload, due_at, ..Wanted::default() });
    }
    to_with_input(from, &["import", "orders"], &lines).done();
    let dry = moved(from, target, &["--dry-run"]).await;
    assert!(dry["would_move"].as_u64().unwrap() >= MESSAGES as u64 / 2, "{dry}");
    let (status, _) = test_node::ask(target, Method::GET, "/v1/topics/orders", &Value::Null).await;
    assert_eq!(status, 404, "a dry run makes nothing");

    // The topic is made at the destination, then both are used.
    let mut first = mover(from, target, &["--rate", "200"]);
    while test_node::ask(target, Method::GET, "/v1/topics/orders", &Value::Null).await.0 != 200 {
        let_pass(Duration::from_millis(10), Because::AskedAgain).await;
    }
    let ids: Vec<String> = world.wanted.lock().keys().cloned().collect();
    let parts = (0..TASKS).map(|part| ids.iter().skip(part).step_by(TASKS).cloned().collect::<Vec<_>>());
    let changes: Vec<_> = parts.enumerate().map(|(n, ids)| tokio::spawn(world.clone().changes(n, ids))).collect();
    let consumers = [0, 1].map(|side| tokio::spawn(world.clone().consume(side)));
    let mut left_copies = 0;
    for n in 0..KILLS {
        let_pass(Duration::from_millis(rand::random_range(300..900)), Because::Fault).await;
        first.kill().unwrap();
        first.wait().unwrap();
        let (_, copies) = test_node::ask(target, Method::GET, "/v1/topics/orders.moving", &Value::Null).await;
        left_copies += copies["scheduled"].as_u64().unwrap_or_default();
        if n == KILLS / 2 {
            to(target, &["shards", "set", "orders", "7"]).done();
        }
        let rate = (400 * (n + 1)).to_string();
        first = mover(from, target, &["--rate", &rate, "--follow"]);
    }
    for change in changes {
        change.await.unwrap();
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let report = moved(from, target, &[]).await;
    assert_eq!((&report["done"], &report["tally"]["unclear"]), (&true.into(), &0.into()), "{report}");
    println!("{left_copies} copies were left by kills; {report}");

    // What was near is delivered, then nothing is left at the source.
    let is_drained = async || {
        let (_, left) = test_node::ask(from, Method::GET, "/v1/topics/orders", &Value::Null).await;
        left["scheduled"] == 0 && left["in_flight"] == 0
    };
    while !is_drained().await {
        moved(from, target, &[]).await;
        let_pass(Duration::from_millis(500), Because::Time).await;
    }
    let last = moved(from, target, &[]).await;
    assert_eq!((&last["copies_left"], &last["tally"]["unclear"]), (&0.into(), &0.into()), "{last}");
    let (status, gone) = test_node::ask(target, Method::GET, "/v1/topics/orders.moving", &Value::Null).await;
    assert_eq!(status, 404, "{gone}");
    let is_due = async |node: &Node| {
        let near = now_ms() + HOUR_MS / 4;
        let due = to(node, &["list", "orders", "--due-to", &near.to_string(), "--json"]).done().json();
        !due["messages"].as_array().unwrap().is_empty()
    };
    while is_due(target).await {
        let_pass(Duration::from_millis(200), Because::Time).await;
    }
    world.ends.store(true, Ordering::Relaxed);
    for consumer in consumers {
        consumer.await.unwrap();
    }
    world.judge(&[live(from), live(target)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_from_an_embedded_store_into_redis_under_load_and_kills_loses_nothing_and_doubles_nothing() {
    let redis = RedisServer::start().await;
    moves_under_load(&node().await, &Node::start(PROGRAM, &redis.url(), "").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_from_redis_into_a_cluster_under_load_and_kills_loses_nothing_and_doubles_nothing() {
    if !is_long() {
        return only_in_long("each store is moved from or to each time, by two other moves");
    }
    let (redis, cluster) = (RedisServer::start().await, RedisCluster::start(3, 0).await);
    let from = Node::start(PROGRAM, &redis.url(), "").await;
    moves_under_load(&from, &Node::start(PROGRAM, &cluster.url(), "").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_from_a_cluster_back_into_an_embedded_store_under_load_and_kills_loses_nothing_and_doubles_nothing() {
    let cluster = RedisCluster::start(3, 0).await;
    moves_under_load(&Node::start(PROGRAM, &cluster.url(), "").await, &node().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_moved_can_move_back_and_a_cancel_on_the_way_holds() {
    let redis = RedisServer::start().await;
    let (first, second) = (node().await, Node::start(PROGRAM, &redis.url(), "").await);
    to(&first, &["topic", "create", "orders", "--remember", "1h"]).done();
    let long = "ж".repeat(128);
    for id in ["a", "b c/d?e", "pct:%41", "x:y", &long] {
        to(&first, &["enqueue", "orders", "--id", id, "--delay", "2h", "--payload", id, "--header", "k=v"]).done();
    }
    let before = live(&first);
    assert_eq!(moved(&first, &second, &[]).await["tally"]["moved"], 5);
    assert_eq!(live(&first).len(), 0);
    let told = to(&first, &["get", "orders", "a"]).refused(1, &["moved elsewhere"]);
    assert_eq!(told.out, "");
    let there = live(&second);
    let content = |all: &BTreeMap<String, Value>| -> Vec<(String, [Value; 3])> {
        let kept = |message: &Value| ["due_at", "payload", "headers"].map(|name| message[name].clone());
        all.iter().map(|(id, message)| (id.clone(), kept(message))).collect()
    };
    assert_eq!(content(&before), content(&there));

    // The side that it has left says so, and the other one cancels it.
    to(&first, &["cancel", "orders", "x:y"]).refused(1, &[]);
    to(&first, &["get", "orders", "x:y"]).refused(1, &["a cancel of it came", "after it had moved elsewhere"]);
    to(&second, &["cancel", "orders", "x:y"]).done();
    let back = moved(&second, &first, &[]).await;
    assert_eq!(back["tally"]["moved"], 4, "{back}");
    assert_eq!(live(&second).len(), 0);
    let mut expected = content(&before);
    expected.retain(|(id, _)| id != "x:y");
    assert_eq!(content(&live(&first)), expected);
    // And there again, with what is delivered or cancelled there refused.
    to(&first, &["cancel", "orders", "a"]).done();
    assert_eq!(moved(&first, &second, &[]).await["tally"]["moved"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_could_not_be_exact_is_refused_with_the_fix() {
    let (first, second) = (node().await, node().await);
    let (url, own) = (second.url(), first.url());
    to(&first, &["topic", "create", "orders"]).done();
    let ask = ["move", "orders", "--to", &url];
    to(&first, &ask).refused(1, &["source does not remember", "duetime topic set orders --remember 1d"]);
    to(&first, &["topic", "set", "orders", "--remember", "1h"]).done();
    to(&first, &["move", "orders", "--to", &own]).refused(1, &["the source itself"]);
    to(&second, &["topic", "create", "orders"]).done();
    to(&first, &ask).refused(1, &["destination does not remember"]);
    to(&second, &["topic", "set", "orders", "--remember", "1h", "--max-payload", "1KiB"]).done();
    to(&first, &ask).refused(1, &["--max-payload"]);
    to(&second, &["topic", "set", "orders", "--max-payload", "64KiB"]).done();
    to(&first, &["topic", "set", "orders", "--max-payload", "64KiB"]).done();
    to(&first, &["enqueue", "orders", "--id", "near", "--delay", "1m", "--payload", "x"]).done();
    to(&first, &["enqueue", "orders", "--id", "far", "--delay", "1h", "--payload", "x"]).done();
    for (limit, most, enough) in [("--max-messages", "1", "2"), ("--max-bytes", "64KiB", "none")] {
        to(&second, &["topic", "set", "orders", limit, most]).done();
        let said = format!("{limit} {enough}");
        to(&first, &ask).refused(1, &[&said]);
        to(&first, &[&ask[..], &["--dry-run"]].concat()).refused(1, &[&said]);
        to(&second, &["topic", "set", "orders", limit, "none"]).done();
    }
    let shown = to(&first, &ask).done().out;
    assert!(shown.contains("1 moved") && shown.contains("1 scheduled (due within 5m"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_move_says_so_and_what_is_paused_stays_so() {
    let (first, second) = (node().await, node().await);
    to(&first, &["topic", "create", "orders", "--remember", "1h"]).done();
    to(&first, &["pause", "orders"]).done();
    for id in 0..60 {
        to(&first, &["enqueue", "orders", "--id", &id.to_string(), "--delay", "1h"]).done();
    }
    let child = mover(&first, &second, &["--rate", "1"]);
    let has_some = async || {
        let (_, there) = test_node::ask(&second, Method::GET, "/v1/topics/orders", &Value::Null).await;
        there["scheduled"].as_u64().is_some_and(|scheduled| scheduled > 0)
    };
    while !has_some().await {
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    let ended = said(tokio::task::spawn_blocking(|| child.wait_with_output().unwrap()).await.unwrap());
    ended.refused(1, &["interrupted", "the same command goes on", "is made paused at the destination"]);
    let there = to(&second, &["topic", "get", "orders", "--json"]).done().json();
    assert_eq!(there["paused"], true, "{there}");
    assert!(!live(&first).is_empty());
    assert_eq!(moved(&first, &second, &[]).await["done"], true);
    assert_eq!((live(&first).len(), live(&second).len()), (0, 60));
}
