//! The shard count changes under load, on real stores, with nodes killed meanwhile: nothing is lost,
//! doubled or misplaced.

mod cluster;
mod load;
mod nodes;
mod refused;
mod requests;
mod steps;
mod troubles;
mod versions;

use std::sync::Arc;
use std::time::Duration;

use duetime_core::{Store, TopicName};
use duetime_store_embedded::EmbeddedStore;
use duetime_testkit::history::FaultKind;
use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::violation::is_long;
use duetime_testkit::wait::{Because, let_pass};
use duetime_tests::FAULT_FILE;
use load::Load;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const CONFIG: &str = "[node]\nshutdown_grace = \"3s\"\n[resize]\nleave_due_within = \"100ms\"\n\
    [topics.orders]\nshards = 8\nvisibility_timeout = \"5s\"\nretry = { max_attempts = 50, initial = \"100ms\" }\n";
/// What moves need not wait for long.
const SETTINGS: &str = "[resize]\nleave_due_within = \"100ms\"\n";
/// How often a long run goes through all counts.
const ROUNDS_LONG: usize = 10;
/// Where a node is killed, another place of the protocol each time.
const KILLED_AT: [&str; 5] = ["begun", "fenced", "taken", "put", "dropped"];
/// Nodes without a coordinator.
const SHARED: &str = "round-robin";
/// Longest wait for one change of the shard count.
const PATIENCE: Duration = Duration::from_secs(60);
/// Messages that stay for the whole test and move each time.
const KEPT: usize = 400;

/// Sees that each message that was kept is in its home, once, and that nothing else is anywhere.
async fn check_homes(store: Arc<dyn Store>, kept: usize) {
    let topic = TopicName::new("orders").unwrap();
    let record = store.topics().await.unwrap().into_iter().find(|record| record.name == topic).unwrap();
    assert!(!record.routing.is_moving());
    let mut seen = 0;
    for (index, inspected) in (0..).zip(store.inspect(&topic, 0..record.max_shards_ever()).await.unwrap()) {
        let Some(inspected) = inspected else { continue };
        assert_eq!(inspected.outbox, None, "shard {index}");
        let shard = inspected.routing.shard(&topic, index);
        let mut cursor = None;
        loop {
            let page = store.scan(&shard, cursor.as_ref(), 1_000).await.unwrap();
            for found in page.found {
                assert_eq!(record.routing.home(&topic, &found.id).index, index, "{} is not at home", found.id);
                assert!(found.id.as_str().starts_with("kept-"), "{} is left", found.id);
                seen += 1;
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
    }
    assert_eq!(seen, kept);
}

/// Waits until the node has killed itself, while the count is being changed: a change that is over by then
/// has not been killed in the middle.
async fn until_killed(node: &Node, load: &Load, shards: u32) {
    let fault = node.folder().join(FAULT_FILE);
    let struck = async {
        while fault.exists() {
            let_pass(Duration::from_millis(5), Because::AskedAgain).await;
        }
    };
    let requested = async {
        load.insist(shards).await;
        std::future::pending::<()>().await;
    };
    let first = async {
        tokio::select! { biased; () = struck => {}, () = requested => {} }
    };
    tokio::time::timeout(PATIENCE, first).await.expect("the node is killed in the middle of the change");
}

/// 8 → 32 → 8 → 31 → 1 → 16 under load; `killed`: the node, and its mover with it, in the middle of each.
async fn resized(node: &mut Node, killed: bool) {
    let load = Load::start(vec![node.url()], KEPT, 0).await;
    let rounds = if is_long() { ROUNDS_LONG } else { 1 };
    let counts = [32, 8, 31, 1, 16].repeat(rounds);
    // In a long run, another step for the same count in each round.
    for (n, shards) in counts.into_iter().enumerate() {
        let step = KILLED_AT[(n + n / KILLED_AT.len()) % KILLED_AT.len()];
        if !killed {
            load.resize(shards).await;
        } else {
            // In one piece: half a file is no fault.
            let draft = node.folder().join("draft");
            std::fs::write(&draft, format!("{step} 1 SIGKILL")).unwrap();
            std::fs::rename(draft, node.folder().join(FAULT_FILE)).unwrap();
            until_killed(node, &load, shards).await;
            load.history.fault_begins(FaultKind::NodeKilled);
            node.kill();
            node.start_again().await;
            load.history.fault_ends(FaultKind::NodeKilled);
        }
        load.until_resized(shards, PATIENCE).await;
    }
    load.end().await;
    assert!(node.sigterm(Duration::from_secs(10)).await.success());
}

async fn on_redis(killed: bool) {
    let redis = RedisServer::start().await;
    let mut node = Node::start(PROGRAM, &redis.url(), CONFIG).await;
    resized(&mut node, killed).await;
    check_homes(crate::store_load::connect(redis.url()).await, KEPT).await;
}

async fn on_embedded(killed: bool) {
    let mut node = Node::start_embedded(PROGRAM, CONFIG).await;
    resized(&mut node, killed).await;
    let folder = node.folder().join("data");
    let open = tokio::task::spawn_blocking(move || EmbeddedStore::open(&folder, Default::default()));
    check_homes(open.await.unwrap().unwrap(), KEPT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shard_count_changes_under_load_on_redis() {
    on_redis(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shard_count_changes_under_load_on_the_embedded_store() {
    on_embedded(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_killed_in_the_middle_of_each_change_goes_on_with_it_on_redis() {
    on_redis(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_killed_in_the_middle_of_each_change_goes_on_with_it_on_the_embedded_store() {
    on_embedded(true).await;
}
