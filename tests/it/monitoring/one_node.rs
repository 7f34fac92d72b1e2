//! Faults of a node with the embedded store, and the alerts for them.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use duetime_testkit::servers::Node;
use serde_json::{Value, json};

use super::runbook::walk;
use super::watch::Watch;
use crate::small_disk::SmallDisk;
use crate::test_node::client;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
/// The rules' durations are so many times shorter.
const SCALE: u64 = 30;
const DISK_MIB: usize = 128;
/// What somebody else writes on the disk, beside the store: without it the store is far from full.
const ELSE_MIB: usize = 88;
const PAGE: usize = 4096;
const BATCH: usize = 100;
const ENDS_WITHIN: Duration = Duration::from_secs(20);

async fn with_a_topic(store: &str) -> Node {
    let node = Node::start(PROGRAM, store, "").await;
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
    let mut node = with_a_topic(&format!("embedded:{}", data.display())).await;
    for round in 0..20 {
        assert!(is_taken(&node, round, "small").await);
    }
    let watch = Watch::start("250ms", &[("duetime", &[&node], SCALE)]).await;
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
