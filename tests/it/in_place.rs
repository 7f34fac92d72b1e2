//! Delivery in place: due messages move to streams beside their shards, exactly once, also when the
//! node is killed in between or the stream's key is taken by something else.

mod dead_letters;
mod example;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_client::{Client, NewMessage};
use duetime_core::{Clock, Due, Timestamp, TopicName};
use duetime_redis::slots;
use duetime_testkit::history::{Change, FaultKind, Outcome, Recorder, Rules, Verdict, What, check, digest};
use duetime_testkit::servers::{Node, RedisOptions, RedisServer};
use duetime_testkit::wait::{Because, let_pass, until};
use duetime_testkit::{WallClock, in_time, promised};
use redis::streams::{StreamReadOptions, StreamReadReply};
use redis::{AsyncCommands as _, FromRedisValue as _};
use reqwest::Method;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::left::left_at;
use crate::redis_faults::server::{connect_by, connection};
use crate::test_node::ask;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const TOPIC: &str = "orders";
const SHARDS: u32 = 4;
const GROUP: &str = "closers";
const ORDERS: i64 = 4_000;
const BATCH: i64 = 200;
const SPREAD_MS: i64 = 2_500;
/// Long enough for a slow machine to place and cancel all.
const FIRST_DUE_MS: i64 = 6_000;
const DOWN: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(60);

fn config(settings: &str) -> String {
    format!(
        "[sinks.streams]\ntype = \"redis-stream\"\nin_place = true\n\n\
         [topics.{TOPIC}]\nshards = {SHARDS}\nsink = {{ name = \"streams\"{settings} }}\n"
    )
}

fn streams() -> Vec<String> {
    let topic = TopicName::new(TOPIC).unwrap();
    let key = |index| format!("duetime:{{{}}}:{TOPIC}:{index}:stream", slots::tag_of(slots::slot_of(&topic, index)));
    (0..SHARDS).map(key).collect()
}

async fn server() -> RedisServer {
    RedisServer::start_with(RedisOptions { append_only: true, ..RedisOptions::default() }).await
}

async fn connect(server: &RedisServer) -> redis::aio::MultiplexedConnection {
    connection(server).await.unwrap()
}

fn payload_of(n: i64) -> Vec<u8> {
    let mut payload = format!("close order {n} ").into_bytes();
    payload.extend((0..n % 300).map(|byte| byte as u8));
    payload
}

/// Orders that fall due in the coming seconds; every other one is cancelled in time. Returns when the first is due.
async fn place(client: &Client, recorder: &Recorder) {
    let now = WallClock.now().as_millis();
    for from in (0..ORDERS).step_by(usize::try_from(BATCH).unwrap()) {
        let mut messages = Vec::new();
        for n in from..from + BATCH {
            let due_at_ms = now + FIRST_DUE_MS + n * SPREAD_MS / ORDERS;
            let (id, payload) = (format!("order-{n}"), payload_of(n));
            recorder.note(TOPIC, &id, What::Invoked(Change::Enqueue { due_at_ms, payload: digest(&payload) }));
            messages.push(NewMessage::new(payload).id(id).due(Due::At(Timestamp::from_millis(due_at_ms))));
        }
        let answers = client.enqueue_many(TOPIC, &messages).await.unwrap();
        for (n, answer) in (from..).zip(answers) {
            let outcome = answer.done().expect("it is taken").outcome.clone();
            recorder.note(TOPIC, &format!("order-{n}"), What::Answered { outcome });
        }
    }
    for from in (0..ORDERS).step_by(usize::try_from(BATCH).unwrap()) {
        let ids: Vec<String> = (from..from + BATCH).filter(|n| n % 2 == 0).map(|n| format!("order-{n}")).collect();
        ids.iter().for_each(|id| recorder.note(TOPIC, id, What::Invoked(Change::Cancel)));
        let answers = client.cancel_many(TOPIC, &ids).await.ok();
        for (at, id) in ids.iter().enumerate() {
            let done = answers.as_ref().and_then(|answers| answers[at].done());
            let what = done.map_or(What::Unanswered, |done| What::Answered { outcome: done.outcome.clone() });
            recorder.note(TOPIC, id, what);
        }
    }
    let left = now + FIRST_DUE_MS - WallClock.now().as_millis();
    in_time!(left >= 0, "all was placed {} ms too late", -left);
    let_pass(Duration::from_millis(left.cast_unsigned()), Because::Time).await;
}

fn text(fields: &std::collections::HashMap<String, redis::Value>, name: &str) -> String {
    String::from_redis_value(fields[name].clone()).unwrap()
}

/// Reads all streams as one consumer of a group, acks, and notes what came.
async fn consume(server: redis::Client, recorder: Arc<Recorder>, ended: Arc<AtomicBool>) {
    let mut connection = connect_by(&server).await.unwrap();
    let (streams, news) = (streams(), vec![">"; SHARDS as usize]);
    for stream in &streams {
        let _: () = connection.xgroup_create_mkstream(stream, GROUP, "0").await.unwrap();
    }
    let options = StreamReadOptions::default().group(GROUP, "one").count(500).block(50);
    loop {
        let last = ended.load(Ordering::Relaxed);
        let read: Option<StreamReadReply> = connection.xread_options(&streams, &news, &options).await.unwrap();
        let mut came = 0;
        for stream in read.map(|reply| reply.keys).unwrap_or_default() {
            for entry in &stream.ids {
                let (id, attempt) = (text(&entry.map, "id"), text(&entry.map, "attempt").parse().unwrap());
                let payload = Vec::<u8>::from_redis_value(entry.map["payload"].clone()).unwrap();
                recorder.note(TOPIC, &id, What::Handed { attempt, payload: digest(&payload), until_ms: None });
                recorder.note(TOPIC, &id, What::Settled { attempt, outcome: Outcome::Accepted });
                let _: () = connection.xack(&stream.key, GROUP, &[&entry.id]).await.unwrap();
                came += 1;
            }
        }
        if last && came == 0 {
            return;
        }
    }
}

async fn until_nothing_is_left(client: &Client) {
    let drained = async {
        loop {
            match client.topic(TOPIC).await {
                Ok(told) if told.scheduled + told.in_flight == 0 => return told.dead,
                _ => let_pass(Duration::from_millis(30), Because::AskedAgain).await,
            }
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, drained).await.expect("all is handed over"), 0, "nothing died");
}

async fn judge(recorder: &Recorder, redis: &RedisServer) -> Verdict {
    let state = left_at(redis.url()).await;
    let verdict = check(&recorder.events(), &state, Rules { attempts_max: 1, aftermath_ms: 0 });
    verdict.assert_good();
    promised!(verdict.explained.is_empty(), "exactly once needs no explanation: {:?}", verdict.explained);
    verdict
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_is_in_its_stream_exactly_once_although_the_node_is_killed_under_load() {
    let redis = server().await;
    let mut node = Node::start(PROGRAM, &redis.url(), &config("")).await;
    let client = Client::new(&node.url(), None).unwrap();
    let (recorder, ended) = (Recorder::new(Arc::new(WallClock)), Arc::new(AtomicBool::new(false)));
    let raw = redis::Client::open(redis.url()).unwrap();
    // It ends with the test, before the server does.
    let mut consumer = JoinSet::new();
    consumer.spawn(consume(raw, recorder.clone(), ended.clone()));
    place(&client, &recorder).await;
    for _ in 0..3 {
        let_pass(DOWN, Because::Rate).await;
        recorder.fault_begins(FaultKind::NodeKilled);
        node.kill();
        let_pass(DOWN, Because::Fault).await;
        node.start_again().await;
        recorder.fault_ends(FaultKind::NodeKilled);
    }
    let client = Client::new(&node.url(), None).unwrap();
    until_nothing_is_left(&client).await;
    ended.store(true, Ordering::Relaxed);
    consumer.join_next().await.unwrap().unwrap();
    let verdict = judge(&recorder, &redis).await;
    assert_eq!(verdict.accepted, usize::try_from(ORDERS).unwrap() / 2, "what was not cancelled is handed over");
    let metrics = client.metrics().await.unwrap();
    assert!(metrics.contains("duetime_lateness_seconds_count{topic=\"orders\"}"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_have_all_fields_and_streams_are_cut_to_their_length() {
    let redis = server().await;
    let node = Node::start(PROGRAM, &redis.url(), &config(", max_length = 100")).await;
    let client = Client::new(&node.url(), None).unwrap();
    let all: Vec<NewMessage> = (0..4_000).map(|n| NewMessage::new("x").id(format!("m-{n}"))).collect();
    for part in all.chunks(1_000) {
        client.enqueue_many(TOPIC, part).await.unwrap();
    }
    until_nothing_is_left(&client).await;
    let http = crate::test_node::client();
    let url = format!("{}/v1/topics/{TOPIC}/messages", node.url());
    let body = serde_json::json!({ "id": "one", "due_at": 1_000_000_000_000_i64, "payload": "{ü}\u{0}",
        "headers": { "trace": "a:b", "long": "v".repeat(300), "empty": "" } });
    assert_eq!(http.post(&url).json(&body).send().await.unwrap().status(), 201);
    until_nothing_is_left(&client).await;
    let mut connection = connect(&redis).await;
    let mut entries: BTreeMap<String, redis::streams::StreamId> = BTreeMap::new();
    for stream in streams() {
        let found: redis::streams::StreamRangeReply = connection.xrange_all(&stream).await.unwrap();
        // Redis cuts whole nodes of 100 entries.
        assert!((90..=300).contains(&found.ids.len()), "{stream} has {} entries", found.ids.len());
        entries.extend(found.ids.into_iter().map(|entry| (text(&entry.map, "id"), entry)));
    }
    let fields = &entries["one"].map;
    for (name, value) in [
        ("topic", TOPIC),
        ("attempt", "1"),
        ("due-at", "1000000000000"),
        ("header.trace", "a:b"),
        ("header.long", &"v".repeat(300)),
        ("header.empty", ""),
        ("payload", "{ü}\u{0}"),
    ] {
        assert_eq!(text(fields, name), value, "{name}");
    }
    assert_eq!(fields.len(), 8);
    client.delete_topic(TOPIC, true).await.unwrap();
    let left: Vec<String> = connection.keys("duetime:{*").await.unwrap();
    // For a day each place remembers which life was deleted there.
    let left: Vec<String> =
        left.into_iter().filter(|key| !key.ends_with(":meta") && !key.ends_with(":lives")).collect();
    assert_eq!(left, [""; 0], "the streams go with their topic");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_no_stream_stops_its_shard_alone_and_loses_nothing() {
    let redis = server().await;
    let mut connection = connect(&redis).await;
    let _: () = connection.set(&streams()[0], "somebody else's").await.unwrap();
    let node = Node::start(PROGRAM, &redis.url(), &config("")).await;
    let client = Client::new(&node.url(), None).unwrap();
    let all: Vec<NewMessage> = (0..400).map(|n| NewMessage::new("x").id(format!("m-{n}"))).collect();
    client.enqueue_many(TOPIC, &all).await.unwrap();
    let of_first = client.shards(TOPIC).await.unwrap().shards[0].scheduled;
    assert!(of_first > 0);
    let others = async {
        while client.topic(TOPIC).await.unwrap().scheduled > of_first {
            let_pass(Duration::from_millis(30), Because::AskedAgain).await;
        }
    };
    tokio::time::timeout(PATIENCE, others).await.expect("the other shards are handed over");
    let said = node.until_said("WRONGTYPE", 1).await;
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("WRONGTYPE")).collect();
    let names_all = |line: &str| [TOPIC, "shard orders:0", &streams()[0]].iter().all(|name| line.contains(name));
    assert!(!lines.is_empty() && lines.iter().all(|line| names_all(line)), "{said}");
    // Whoever asks is told, wherever they ask.
    let issue = async || client.sink(TOPIC).await.unwrap().issue;
    let issue = until(PATIENCE, "a stream takes nothing", issue).await;
    assert!(issue.state == "refused" && names_all(&format!("{TOPIC} {}", issue.reason.clone().unwrap())), "{issue:?}");
    let ready = async || {
        let (_, ready) = ask(&node, Method::GET, "/readyz", &Value::Null).await;
        (ready["status"] == "degraded").then_some(ready)
    };
    let ready = until(PATIENCE, "the node says that something is wrong", ready).await;
    assert!(names_all(ready["issues"][0].as_str().unwrap()), "{ready}");
    let _: () = connection.del(&streams()[0]).await.unwrap();
    until_nothing_is_left(&client).await;
    let length: u64 = connection.xlen(&streams()[0]).await.unwrap();
    assert_eq!(length, of_first);
    let well = async || client.sink(TOPIC).await.unwrap().issue.is_none().then_some(());
    until(PATIENCE, "nothing is wrong any more", well).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_streams_refuses_the_sink() {
    let node = Node::start_embedded(PROGRAM, "[sinks.streams]\ntype = \"redis-stream\"\nin_place = true\n").await;
    let client = Client::new(&node.url(), None).unwrap();
    let settings = serde_json::json!({ "sink": { "name": "streams" } });
    let error = client.put_topic(TOPIC, settings.as_object().unwrap()).await.unwrap_err().to_string();
    assert!(error.contains("in place") && error.contains("url"), "{error}");
}
