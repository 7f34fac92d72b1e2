//! Disks that are full or lose bytes.

use duetime_testkit::at_home::{MessagesAtHome as _, SettledAtHome as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use duetime_core::store::{ClaimRequest, Edit, Edited, Enqueue, Settle, Settled, Settlement};
use duetime_core::{ClaimStore as _, Due, Nonce, StoreError, TopicStore as _};
use duetime_store_embedded::EmbeddedStore;
use duetime_testkit::servers::Node;
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::{claim_request, plain_message};
use duetime_tests::crash::Draw;
use reqwest::Method;
use serde_json::{Value, json};

use super::{START, make_topic, open, shards};
use crate::small_disk::SmallDisk;
use crate::test_node::done;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const PAYLOAD_BYTES: usize = 16 << 10;
const BATCH: usize = 32;

/// What a node is sent until it has refused [`REFUSED`]. The larger a batch, the fewer pages of the log are written
/// again by the next one: a log that is nearly all messages makes the database grow by as much when it is copied.
const NODE_PAYLOAD_BYTES: usize = 20_000;
const NODE_BATCH: usize = 100;
const REFUSED: usize = 100;

fn message(n: usize, due: Due) -> Enqueue {
    let id = format!("order-{n}");
    Enqueue {
        payload: id.bytes().cycle().take(PAYLOAD_BYTES).collect::<Vec<u8>>().into(),
        nonce: Nonce(n as u64),
        ..plain_message(&id, due)
    }
}

fn asking(request: u64) -> ClaimRequest {
    ClaimRequest { request, visibility: Duration::from_secs(60), ..claim_request(BATCH) }
}

/// How many messages of the topic `own` were claimed, and acked.
async fn claim_and_ack(node: &Node) -> usize {
    let claim = done(node, Method::POST, "own/claim", &json!({"max": 50})).await;
    let receipts: Vec<&Value> = claim["messages"].as_array().unwrap().iter().map(|m| &m["receipt"]).collect();
    if receipts.is_empty() {
        return 0;
    }
    let settled = done(node, Method::POST, "own/ack", &json!({"receipts": receipts})).await;
    let outcomes = settled["results"].as_array().unwrap();
    assert!(outcomes.iter().all(|result| result["outcome"] == "ok"), "{settled}");
    outcomes.len()
}

#[tokio::test]
async fn a_disk_that_its_own_messages_filled_delivers_and_cancels_all_of_them() {
    let Some(disk) = SmallDisk::mount(64) else {
        return;
    };
    let node = Node::start(PROGRAM, &format!("embedded:{}", disk.path().join("data").display()), "").await;
    done(&node, Method::PUT, "own", &json!({"shards": 2, "visibility_timeout": "5m"})).await;
    let payload = "x".repeat(NODE_PAYLOAD_BYTES);
    let (mut taken, mut refused) = (Vec::new(), 0);
    let mut size = NODE_BATCH;
    while refused < REFUSED {
        let ids = (0..size).map(|n| format!("m-{}", taken.len() + refused + n));
        let items: Vec<Value> = ids.map(|id| json!({"id": id, "delay": 0, "payload": payload})).collect();
        let answer = done(&node, Method::POST, "own/messages", &items.into()).await;
        for result in answer["results"].as_array().unwrap() {
            if result["outcome"] == "scheduled" {
                taken.push(result["id"].as_str().unwrap().to_owned());
            } else {
                assert_eq!(result["error"]["code"], "store_full", "{result}");
                refused += 1;
                // Where many do not fit, one still may.
                size = 1;
            }
        }
    }
    // Nothing is kept back beyond the log and the reserve.
    assert!(taken.len() * NODE_PAYLOAD_BYTES >= 16 << 20, "{}", taken.len());

    let mut acked = claim_and_ack(&node).await;
    assert!(acked > 0, "nothing could be claimed");
    let last = &taken[taken.len() - NODE_BATCH..];
    let cancelled = done(&node, Method::POST, "own/cancel", &json!({"ids": last})).await;
    let outcomes = cancelled["results"].as_array().unwrap();
    assert!(outcomes.iter().all(|result| result["outcome"] == "cancelled"), "{cancelled}");
    loop {
        match claim_and_ack(&node).await {
            0 => break,
            more => acked += more,
        }
    }
    assert_eq!(acked, taken.len() - NODE_BATCH);
}

#[tokio::test]
async fn a_store_is_opened_on_a_full_disk_and_delivers_and_cancels() {
    let Some(disk) = SmallDisk::mount(96) else {
        return;
    };
    let folder = disk.path().join("store");
    let store = open(&folder);
    make_topic(&store).await;
    let shard = &shards()[0];
    let batch: Vec<Enqueue> = (0..BATCH).map(|n| message(n, Due::At(START))).collect();
    store.enqueue(shard, START, &batch).await.unwrap();
    drop(store);
    let mut filler = std::fs::File::create(disk.path().join("somebody else's")).unwrap();
    while std::io::Write::write_all(&mut filler, &[1; 4096]).is_ok() {}

    let store = open(&folder);
    assert!(!folder.join("duetime.reserve").exists(), "it gave way");
    let refused = store.enqueue(shard, START, &[message(BATCH, Due::At(START))]).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Full(told) if told.contains("claims, acks and cancels go on")), "{refused}");
    let claim = store.claim(shard, START, &ClaimRequest { limit: 8, ..asking(1) }).await.unwrap();
    let acks: Vec<Settle> =
        claim.messages.iter().map(|m| Settle { id: m.id.clone(), score: m.score, action: Settlement::Ack }).collect();
    assert_eq!(store.settle(shard, START, &acks).await.unwrap(), vec![Settled::Ok; 8]);
    let cancel = [Edit::Cancel(batch[20].id.clone())];
    assert_eq!(store.edit(shard, START, &cancel).await.unwrap(), [Edited::Cancelled]);
}

/// Works on a damaged folder: whatever is answered is right or says that something is wrong.
async fn work_on_damaged(folder: &Path) -> Result<usize, StoreError> {
    let store = EmbeddedStore::open(folder, Default::default())?;
    // A topic whose record is damaged is reported by name, and harms that topic alone.
    store.topics().await?;
    if let [topic, ..] = store.unreadable().as_slice() {
        return Err(StoreError::Damaged(format!("record of topic {topic}")));
    }
    let mut claimed = 0;
    for shard in shards() {
        for request in 0..40 {
            let claim = store.claim(&shard, START, &asking(request)).await?;
            if claim.messages.is_empty() {
                break;
            }
            for one in &claim.messages {
                let n: usize = one.id.as_str().strip_prefix("order-").unwrap().parse().unwrap();
                assert_eq!(one.payload, message(n, Due::At(START)).payload, "a damaged message was handed over");
                claimed += 1;
            }
        }
    }
    Ok(claimed)
}

async fn folder_with_messages(folder: &Path) -> Vec<u8> {
    let store = open(folder);
    make_topic(&store).await;
    let batch: Vec<Enqueue> = (0..BATCH).map(|n| message(n, Due::At(START))).collect();
    store.enqueue(&shards()[0], START, &batch).await.unwrap();
    drop(store);
    std::fs::read(folder.join("duetime.db")).unwrap()
}

#[tokio::test]
async fn flipped_bytes_are_noticed_and_never_handed_over() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder_with_messages(folder.path()).await;
    let mut noticed = 0;
    for seed in 0..60 {
        let mut draw = Draw::new(seed, 0);
        let mut damaged = whole.clone();
        for _ in 0..1 + draw.below(400) {
            let at = draw.below(damaged.len() as u64) as usize;
            damaged[at] ^= 1 << draw.below(8);
        }
        std::fs::write(folder.path().join("duetime.db"), &damaged).unwrap();
        match work_on_damaged(folder.path()).await {
            Ok(claimed) => noticed += usize::from(claimed < BATCH),
            Err(StoreError::Damaged(told)) => {
                assert!(!told.is_empty());
                noticed += 1;
            }
            // The record of the topic and that of its shard name different changes: nothing is answered.
            Err(StoreError::Stale(_)) => noticed += 1,
            Err(other) => panic!("damage of seed {seed} is reported as {other:?}"),
        }
    }
    assert!(noticed > 30, "{noticed} of 60");
}

#[tokio::test]
async fn a_file_cut_short_or_of_another_kind_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder_with_messages(folder.path()).await;
    for (what, bytes) in
        [("cut short", &whole[..whole.len() / 2]), ("text", b"not a database at all. ".repeat(99).as_slice())]
    {
        std::fs::write(folder.path().join("duetime.db"), bytes).unwrap();
        let told = work_on_damaged(folder.path()).await.expect_err(what);
        assert!(matches!(told, StoreError::Damaged(_)), "{what}: {told}");
        assert!(told.to_string().contains("restore a backup"), "{what}: {told}");
    }
}

#[tokio::test]
async fn a_limit_of_the_size_of_files_refuses_new_messages_and_does_not_end_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(PROGRAM, &format!("embedded:{}", folder.path().join("data").display()), "").await;
    done(&node, Method::PUT, "own", &json!({"shards": 2})).await;
    let limit = |bytes: &str| {
        let pid = node.id().to_string();
        let set = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={bytes}:")]).status();
        assert!(set.expect("prlimit, of util-linux, is there").success());
    };
    limit("33554432");
    let payload = "x".repeat(NODE_PAYLOAD_BYTES);
    let enqueue = async |from: usize, count: usize| {
        let item = |n: usize| json!({"id": format!("m-{n}"), "delay": "1h", "payload": payload});
        let items: Vec<Value> = (from..from + count).map(item).collect();
        let answer = done(&node, Method::POST, "own/messages", &json!(items)).await;
        answer["results"].as_array().unwrap().clone()
    };
    let mut taken = 0;
    let refused = loop {
        let results = enqueue(taken, NODE_BATCH).await;
        taken += results.iter().filter(|result| result["outcome"] == "scheduled").count();
        if let Some(refused) = results.into_iter().find(|result| result["outcome"] != "scheduled") {
            break refused;
        }
        assert!(taken < 10_000, "the files grow beyond their limit");
    };
    assert_eq!(refused["error"]["code"], "store_full", "{refused}");
    limit("unlimited");
    let again = async {
        while enqueue(10_000, 1).await[0]["outcome"] != "scheduled" {
            let_pass(Duration::from_millis(100), Because::AskedAgain).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), again).await.expect("messages are taken again");
    let topic = done(&node, Method::GET, "own", &Value::Null).await;
    assert_eq!(topic["scheduled"], taken + 1, "{topic}");
}
