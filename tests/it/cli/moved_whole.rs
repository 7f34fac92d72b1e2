//! `duetime move` of messages with all that they may have, beside dead letters, a resize and another move.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_testkit::in_time;
use duetime_testkit::servers::Node;
use duetime_testkit::wait::{Because, let_pass};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::moving::{HOUR_MS, live, moved, mover, now_ms};
use super::{node, said, to, to_with_input};
use crate::test_node;

/// How often the mover is killed beside the rest.
const KILLS: u64 = 3;
const ENDS_WITHIN: Duration = Duration::from_secs(60);

fn lines(all: &[Value]) -> String {
    all.iter().map(|one| one.to_string() + "\n").collect()
}

/// What must be the same wherever a message is.
fn content(all: &BTreeMap<String, Value>) -> BTreeMap<String, [Value; 6]> {
    let kept = |message: &Value| {
        let names = ["due_at", "payload", "headers", "max_attempts", "expires_at", "visibility_timeout"];
        names.map(|name| message[name].clone())
    };
    all.iter().map(|(id, message)| (id.clone(), kept(message))).collect()
}

async fn topic(node: &Node, name: &str) -> (u16, Value) {
    test_node::ask(node, Method::GET, &format!("/v1/topics/{name}"), &Value::Null).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_with_all_headers_it_may_have_is_exported_imported_and_moved_with_expiry_and_attempts() {
    let (first, second) = (node().await, node().await);
    to(&first, &["topic", "create", "orders", "--remember", "1h"]).done();
    let of = |id: &str, count: usize| {
        let headers: BTreeMap<String, String> = (0..count).map(|n| (format!("h{n}"), format!("v{n}"))).collect();
        json!({
            "id": id, "delay": "2h", "payload": id, "headers": headers, "max_attempts": 3, "expires": "1h",
            "visibility_timeout": "5m",
        })
    };
    // The id of its copy has no room for an id that long, which is one header more.
    let (long, many) = ("ж".repeat(128), of("many", 65));
    to_with_input(&first, &["import", "orders"], &lines(&[many])).refused(1, &["the limit is 64"]);
    let full = lines(&[of("a", 64), of(&long, 64)]);
    to_with_input(&first, &["import", "orders"], &full).done();
    let before = content(&live(&first));
    assert_eq!(before.len(), 2);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("orders.ndjson");
    let file = file.to_str().unwrap();
    to(&first, &["export", "orders", "--out", file]).done();
    to(&first, &["topic", "create", "copies"]).done();
    let did = to(&first, &["import", "copies", file, "--verify", "--json"]).done().json();
    assert_eq!((&did["tally"]["scheduled"], &did["verified"]["same"]), (&2.into(), &2.into()), "{did}");

    let report = moved(&first, &second, &[]).await;
    assert_eq!((&report["tally"]["moved"], &report["tally"]["refused"]), (&2.into(), &0.into()), "{report}");
    assert_eq!(content(&live(&second)), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_gets_another_name_by_a_move_to_its_own_node() {
    let node = node().await;
    to(&node, &["topic", "create", "orders", "--remember", "1h", "--max-payload", "4KiB"]).done();
    to(&node, &["enqueue", "orders", "--id", "o-1", "--delay", "2h", "--payload", "one"]).done();
    let into = ["--into", "shop-orders"];
    let report = moved(&node, &node, &into).await;
    assert_eq!((&report["tally"]["moved"], &report["left"]["scheduled"]), (&1.into(), &0.into()), "{report}");
    let (_, renamed) = topic(&node, "shop-orders").await;
    assert_eq!((&renamed["scheduled"], &renamed["max_payload"]), (&1.into(), &4096.into()), "{renamed}");
    let (_, old) = topic(&node, "orders").await;
    assert_eq!(old["scheduled"], 0, "{old}");
    // A cancel at the old name says where it is.
    let (_, answer) = test_node::ask(&node, Method::DELETE, "/v1/topics/orders/messages/o-1", &Value::Null).await;
    assert_eq!(answer["outcome"], "moved", "{answer}");
}

/// Enqueues messages that are due in two hours.
fn enqueue(node: &Node, ids: std::ops::Range<usize>) {
    let all: Vec<Value> = ids.map(|n| json!({"id": format!("m-{n}"), "delay": "2h", "payload": "x"})).collect();
    to_with_input(node, &["import", "orders"], &lines(&all)).done();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_moves_at_once_end_well_each_and_one_goes_on_after_the_other_has_ended() {
    const MESSAGES: usize = 2_000;
    let (first, second) = (node().await, node().await);
    to(&first, &["topic", "create", "orders", "--shards", "3", "--remember", "1h"]).done();
    enqueue(&first, 0..MESSAGES);
    let ended = [(); 2].map(|()| {
        let child = mover(&first, &second, &["--rate", "2000"]);
        tokio::task::spawn_blocking(|| said(child.wait_with_output().unwrap()))
    });
    let mut brought = 0;
    for ended in ended {
        let ended = ended.await.unwrap().done();
        assert!(!ended.err.contains("knows this id"), "{}", ended.err);
        let report = ended.json();
        assert_eq!(report["done"], true, "{report}");
        brought += report["tally"]["moved"].as_u64().unwrap() - report["tally"]["there_before"].as_u64().unwrap();
    }
    assert_eq!((brought, live(&first).len(), live(&second).len()), (MESSAGES as u64, 0, MESSAGES));

    // One that follows outlives another one, which deletes the topic of copies.
    let mut follows = mover(&first, &second, &["--follow", "--rate", "100"]);
    enqueue(&first, MESSAGES..MESSAGES + 300);
    assert_eq!(moved(&first, &second, &[]).await["done"], true);
    enqueue(&first, MESSAGES + 300..MESSAGES + 310);
    let end = Instant::now() + ENDS_WITHIN;
    while topic(&first, "orders").await.1["scheduled"] != 0 {
        assert!(follows.try_wait().unwrap().is_none(), "it ended");
        in_time!(Instant::now() < end, "the source does not empty");
        let_pass(Duration::from_millis(100), Because::AskedAgain).await;
    }
    kill(Pid::from_raw(follows.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    said(tokio::task::spawn_blocking(|| follows.wait_with_output().unwrap()).await.unwrap()).done();
    assert_eq!((live(&first).len(), live(&second).len()), (0, MESSAGES + 310));
    assert_eq!(topic(&second, "orders.moving").await.0, 404);
}

/// Claims all that is due from a topic that delivers at most once, until it is told to end.
async fn consume(url: String, delivered: Arc<Mutex<Vec<String>>>, ends: Arc<AtomicBool>) {
    let http = test_node::client();
    while !ends.load(Ordering::Relaxed) {
        let ask = http.post(format!("{url}/v1/topics/orders/claim")).json(&json!({"max": 64, "wait": "300ms"}));
        let answer = ask.send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
        let claimed: Value = answer.json().await.unwrap();
        let ids = claimed["messages"].as_array().unwrap().iter();
        delivered.lock().extend(ids.map(|message| message["id"].as_str().unwrap().to_owned()));
    }
}

/// A thousand messages of an at-most-once topic: some expired, so that they become dead letters, some due while the test
/// lasts, the others later, with attempts and expiries of their own.
fn of_all_kinds(begun: i64) -> (Vec<Value>, [BTreeSet<String>; 3]) {
    let mut ids: [BTreeSet<String>; 3] = Default::default();
    let one = |n: i64| {
        let id = format!("m-{n}");
        let kind = match n % 10 {
            0 if n < 200 => 0,
            1..=3 => 1,
            _ => 2,
        };
        ids[kind].insert(id.clone());
        let mut message = json!({"id": id, "payload": format!("order {n}"), "headers": {"zone": "eu"}});
        let set = |message: &mut Value, name: &str, value: Value| message[name] = value;
        match kind {
            0 => {
                set(&mut message, "due_at", (begun - 1_000).into());
                set(&mut message, "expires", "10ms".into());
            }
            1 => set(&mut message, "due_at", (begun + 2_000 + n * 5).into()),
            _ => {
                set(&mut message, "due_at", (begun + HOUR_MS + n).into());
                set(&mut message, "max_attempts", (1 + n % 99).into());
                set(&mut message, "expires", "2h".into());
                set(&mut message, "visibility_timeout", format!("{}s", 1 + n % 99).into());
            }
        }
        message
    };
    let all = (0..1_000).map(one).collect();
    (all, ids)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_beside_dead_letters_a_resize_and_consumers_of_an_at_most_once_topic_loses_and_doubles_nothing() {
    let (first, second) = (node().await, node().await);
    let settings = ["--shards", "3", "--remember", "1h", "--delivery", "at-most-once", "--on-expiry", "dead"];
    to(&first, &[&["topic", "create", "orders"][..], &settings].concat()).done();
    let begun = now_ms();
    let (all, [expired, near, far]) = of_all_kinds(begun);
    to_with_input(&first, &["import", "orders"], &lines(&all)).done();
    let before = content(&live(&first));

    let mut child = mover(&first, &second, &["--rate", "150"]);
    let end = Instant::now() + ENDS_WITHIN;
    while topic(&second, "orders").await.0 != 200 {
        in_time!(Instant::now() < end, "the move does not begin");
        let_pass(Duration::from_millis(10), Because::AskedAgain).await;
    }
    let (delivered, ends) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let consumers = [first.url(), second.url()].map(|url| tokio::spawn(consume(url, delivered.clone(), ends.clone())));
    for n in 0..KILLS {
        if n == 1 {
            to(&first, &["shards", "set", "orders", "5"]).done();
        }
        // A batch is between its steps.
        while topic(&second, "orders.moving").await.1["scheduled"].as_u64().is_none_or(|copies| copies == 0) {
            in_time!(Instant::now() < end, "no copies are seen");
            let_pass(Duration::from_millis(1), Because::AskedAgain).await;
        }
        let_pass(Duration::from_millis(rand::random_range(0..40)), Because::Fault).await;
        child.kill().unwrap();
        child.wait().unwrap();
        child = mover(&first, &second, &["--rate", "150"]);
    }
    let report = said(tokio::task::spawn_blocking(|| child.wait_with_output().unwrap()).await.unwrap()).done().json();
    assert_eq!((&report["done"], &report["tally"]["unclear"]), (&true.into(), &0.into()), "{report}");
    while delivered.lock().len() < near.len() || topic(&first, "orders").await.1["scheduled"] != 0 {
        in_time!(Instant::now() < end, "{} of {} are delivered", delivered.lock().len(), near.len());
        let_pass(Duration::from_millis(100), Because::Time).await;
    }
    ends.store(true, Ordering::Relaxed);
    for consumer in consumers {
        consumer.await.unwrap();
    }
    let report = moved(&first, &second, &[]).await;
    assert_eq!((&report["copies_left"], &report["left"]["dead"]), (&0.into(), &expired.len().into()), "{report}");
    assert_eq!(topic(&second, "orders.moving").await.0, 404);

    let delivered = delivered.lock().clone();
    let once: BTreeSet<String> = delivered.iter().cloned().collect();
    assert_eq!((once.len(), &once), (delivered.len(), &near), "each that was due once, and nothing else");
    let (left, there) = (live(&first), live(&second));
    assert_eq!(left.keys().cloned().collect::<BTreeSet<_>>(), expired, "the dead letters stay");
    let wanted = before.into_iter().filter(|(id, _)| far.contains(id)).collect::<BTreeMap<_, _>>();
    assert_eq!(content(&there), wanted);
}
