//! `duetime backup`: a copy of a node under load, and a node that starts on it.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use duetime_testkit::servers::{Node, RedisServer};

use super::{PROGRAM, node, to, to_with_input};

const LINES: usize = 500;
const PAYLOAD_BYTES: usize = 4 << 10;

fn lines(part: usize) -> String {
    let payload = "x".repeat(PAYLOAD_BYTES);
    (0..LINES).map(|n| format!(r#"{{"id":"m-{part}-{n}","delay":"1h","payload":"{payload}"}}"#) + "\n").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_under_load_is_copied_and_another_starts_on_the_copy() {
    let node = Arc::new(node().await);
    to(&node, &["topic", "create", "orders", "--shards", "2"]).done();
    for part in 0..10 {
        to_with_input(&node, &["import", "orders"], &lines(part)).done();
    }
    let ended = Arc::new(AtomicBool::new(false));
    let (loaded, until) = (node.clone(), ended.clone());
    let load = std::thread::spawn(move || {
        let mut part = 10;
        while !until.load(Ordering::Acquire) {
            to_with_input(&loaded, &["import", "orders"], &lines(part)).done();
            part += 1;
        }
        part
    });
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.db");
    let name = copy.to_str().unwrap();
    let said = to(&node, &["backup", name, "--json"]).done().json();
    let messages = said["messages"].as_u64().unwrap();
    assert!(messages >= (10 * LINES) as u64 && said["topics"] == 1, "{said}");
    let meta = std::fs::metadata(&copy).unwrap();
    assert_eq!((meta.len(), meta.permissions().mode() & 0o777), (said["bytes"].as_u64().unwrap(), 0o600));
    to(&node, &["backup", name]).refused(1, &["is there already"]);
    ended.store(true, Ordering::Release);
    assert!(load.join().unwrap() > 10, "messages were written meanwhile");

    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::rename(&copy, data.join("duetime.db")).unwrap();
    let restored = Node::start(PROGRAM, &format!("embedded:{}", data.display()), "").await;
    assert_eq!(to(&restored, &["topic", "get", "orders", "--json"]).done().json()["scheduled"], messages);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_in_redis_is_copied_by_other_means_and_the_refusal_names_them() {
    let redis = RedisServer::start().await;
    let node = Node::start(PROGRAM, &redis.url(), "").await;
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.db");
    to(&node, &["backup", copy.to_str().unwrap()]).refused(1, &["deploy/redis/backup"]);
    assert!(!copy.exists());
}
