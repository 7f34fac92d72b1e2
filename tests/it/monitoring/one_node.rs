//! Faults of a node that is alone, and the alerts for them.

use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use duetime_testkit::servers::{Node, RedisServer};
use futures::future::join_all;
use serde_json::{Value, json};

use super::lab::MEMORY;
use super::runbook::walk;
use super::watch::Watch;
use crate::small_disk::SmallDisk;
use crate::test_node::client;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
/// The rules' durations are so many times shorter.
const SCALE: u64 = 30;
/// The same where an hour has to pass.
const SCALE_OF_HOURS: u64 = 600;
const LOOKS: &str = "250ms";
const DISK_MIB: usize = 128;
/// What somebody else writes on the disk, beside the store: without it the store is far from full.
const ELSE_MIB: usize = 88;
const PAGE: usize = 4096;
const BATCH: usize = 100;
const ENDS_WITHIN: Duration = Duration::from_secs(20);
/// Of this one address may hold four fifths.
const LITTLE_REQUEST_MEMORY: &str = "[node]\nrequest_memory = \"64MiB\"\n";
/// Bodies that have begun, what came of each, and what comes of it at a time: they leave six mebibytes.
const HELD_BODIES: usize = 3;
const HELD_BYTES: usize = 15 << 20;
const TRICKLE: [u8; 4 << 10] = [b' '; 4 << 10];
/// What each of them is said to have, and never has.
const ANNOUNCED_BYTES: usize = 32 << 20;
/// Requests that are sent at once while these are held, and what each would need.
const REQUESTS: usize = 4;
const REQUEST_BYTES: usize = 8 << 20;

async fn with_a_topic(store: &str, config: &str) -> Node {
    let node = Node::start(PROGRAM, store, config).await;
    let made = client().put(format!("{}/v1/topics/orders", node.url())).json(&json!({"shards": 4}));
    assert_eq!(made.send().await.unwrap().status(), 201);
    node
}

/// Schedules a batch, far ahead; whether all of it was taken.
async fn is_taken(node: &Node, round: usize, payload: &str) -> bool {
    let one = |n| json!({"id": format!("{round}-{n}"), "delay": "2h", "payload": payload});
    let messages: Vec<Value> = (0..BATCH).map(one).collect();
    let url = format!("{}/v1/topics/orders/messages", node.url());
    let answer: Value = client().post(url).json(&messages).send().await.unwrap().json().await.unwrap();
    answer["results"].as_array().is_some_and(|all| all.iter().all(|one| one["outcome"] == "scheduled"))
}

/// Every second page of it is no page any more, but for the first.
fn damage(database: &Path) {
    let database = std::fs::File::options().write(true).open(database).unwrap();
    let pages = usize::try_from(database.metadata().unwrap().len()).unwrap() / PAGE;
    for page in (2..pages).step_by(2) {
        database.write_all_at(&[0xAA; PAGE], (page * PAGE) as u64).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_and_a_damaged_database_call_somebody_each() {
    let Some(disk) = SmallDisk::mount(DISK_MIB) else {
        return;
    };
    let (data, others) = (disk.path().join("data"), disk.path().join("somebody else's"));
    let mut node = with_a_topic(&format!("embedded:{}", data.display()), "").await;
    for round in 0..20 {
        assert!(is_taken(&node, round, "small").await);
    }
    let watch = Watch::start(LOOKS, &[("duetime", &[&node], SCALE)]).await;
    watch.is_quiet_again(None).await;

    std::fs::write(&others, vec![1; ELSE_MIB << 20]).unwrap();
    let large = "x".repeat(20_000);
    let mut round = 100;
    while is_taken(&node, round, &large).await {
        round += 1;
    }
    // Producers try again as long as they are refused.
    watch.calls_while("DuetimeMessagesInDanger", async || assert!(!is_taken(&node, round, &large).await)).await;
    let folder = data.display().to_string();
    walk("DuetimeMessagesInDanger", &node, None, &[("FOLDER", &folder)], "no space left").await;
    std::fs::remove_file(&others).unwrap();
    watch.is_quiet_again(Some("DuetimeMessagesInDanger")).await;

    let copy = disk.path().join("copy.db");
    let mut backup = Command::new(PROGRAM);
    backup.args(["backup", copy.to_str().unwrap(), "--node", &node.url()]);
    let made = backup.output().unwrap();
    assert!(made.status.success(), "{made:?}");
    damage(&data.join("duetime.db"));
    let list = format!("{}/v1/topics/orders/messages?limit=100", node.url());
    watch.calls_while("DuetimeMessagesInDanger", async || drop(client().get(&list).send().await)).await;
    walk("DuetimeMessagesInDanger", &node, None, &[("FOLDER", &folder)], "damage").await;
    node.sigterm(ENDS_WITHIN).await;
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::create_dir(&data).unwrap();
    std::fs::copy(&copy, data.join("duetime.db")).unwrap();
    node.start_again().await;
    // It was the only node.
    let besides = ["DuetimeNoNode", "DuetimeNodeDown"];
    watch.is_quiet_but_for(Some("DuetimeMessagesInDanger"), &besides).await;
}

/// A request whose body has begun and does not end: the node holds what came of it.
fn begun(node: &Node) -> TcpStream {
    let address = node.url().replace("http://", "");
    let mut request = TcpStream::connect(&address).unwrap();
    let head = format!(
        "POST /v1/topics/orders/messages HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {ANNOUNCED_BYTES}\r\n\r\n"
    );
    request.write_all(head.as_bytes()).unwrap();
    request.write_all(&vec![b' '; HELD_BYTES]).unwrap();
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_a_node_has_no_memory_for_call_somebody() {
    let node = with_a_topic("embedded:data", LITTLE_REQUEST_MEMORY).await;
    let held: Vec<TcpStream> = (0..HELD_BODIES).map(|_| begun(&node)).collect();
    let watch = Watch::start(LOOKS, &[("duetime", &[&node], SCALE)]).await;
    watch.is_quiet_again(None).await;
    let (url, large) = (format!("{}/v1/topics/orders/messages", node.url()), Bytes::from(vec![b' '; REQUEST_BYTES]));
    let client = client();
    let ask = || client.post(&url).header("content-type", "application/json").body(large.clone()).send();
    let busy = async || {
        drop(join_all((0..REQUESTS).map(|_| ask())).await);
        // A body that brings nothing for long is given up, and one that takes a minute.
        let all_are_held = held.iter().all(|mut body| body.write_all(&TRICKLE).is_ok());
        duetime_testkit::in_time!(all_are_held, "a body was given up before somebody was called");
    };
    watch.calls_while("DuetimeRequestsFail", busy).await;
    walk("DuetimeRequestsFail", &node, None, &[], "status=\"503\"").await;
    drop(held);
    watch.is_quiet_again(Some("DuetimeRequestsFail")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_without_a_limit_of_memory_calls_somebody_until_it_has_one() {
    let redis = RedisServer::start().await;
    let node = Node::start(PROGRAM, &redis.url(), "").await;
    let watch = Watch::start(LOOKS, &[("duetime", &[&node], SCALE_OF_HOURS)]).await;
    watch.calls("DuetimeNoMemoryLimit").await;
    let port = redis.port().to_string();
    walk("DuetimeNoMemoryLimit", &node, None, &[("HOST", "127.0.0.1"), ("PORT", &port)], "maxmemory:0").await;
    redis.cli(&["CONFIG", "SET", "maxmemory", MEMORY]);
    watch.is_quiet_again(Some("DuetimeNoMemoryLimit")).await;
}
