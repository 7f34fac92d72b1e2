//! Nodes that come and go, producers who sleep through changes.

use std::collections::BTreeMap;
use std::time::Duration;

use duetime_testkit::history::FaultKind::{NodeKilled, NodeStalled};
use duetime_testkit::in_time;
use duetime_testkit::servers::RedisServer;
use duetime_testkit::wait::{Because, let_pass};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::load::{Api, FAR_MS};
use super::nodes::TestCluster;
use super::{PATIENCE, SETTINGS, SHARED};

const KEPT: usize = 200;

/// As the nodes say: each epoch began once, where the one before it ended. A node says it after it has answered.
async fn one_at_a_time(cluster: &TestCluster) {
    let end = Instant::now() + PATIENCE;
    loop {
        let changes = changes(&cluster.outputs());
        let follow = changes.windows(2).all(|pair| pair[0].1 == pair[1].0);
        if changes.len() >= 3 && follow {
            return;
        }
        if Instant::now() > end {
            in_time!(changes.len() >= 3, "{changes:?}");
            assert!(follow, "{changes:?}");
        }
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
}

/// From how many shards to how many, in the order of the epochs.
fn changes(outputs: &str) -> Vec<(u64, u64)> {
    let mut begun = BTreeMap::new();
    for line in outputs.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let number = |name: &str| line[name].as_u64().unwrap();
        if line["message"] == "shard count is changing" {
            let again = begun.insert(number("epoch"), (number("from"), number("to")));
            assert_eq!(again, None, "{line}");
        }
    }
    begun.into_values().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_follows_nodes_that_come_and_go_and_die_with_patience_and_within_its_bounds() {
    const SHRINK_AFTER: Duration = Duration::from_secs(3);
    let redis = RedisServer::start().await;
    let settings = format!(
        "{SETTINGS}auto_factor = 4\nauto_min = 6\nauto_max = 12\nauto_grow_after = \"1s\"\nauto_shrink_after = \"{}s\"\n",
        SHRINK_AFTER.as_secs()
    );
    let mut cluster = TestCluster::start(&redis.url(), SHARED, 1, "\"auto\"", &settings, KEPT, 0).await;
    cluster.load.until_resized(6, PATIENCE).await;
    cluster.join().await;
    cluster.load.until_resized(8, PATIENCE).await;
    cluster.join().await;
    cluster.load.until_resized(12, PATIENCE).await;
    let killed_at = Instant::now();
    cluster.goes(0, NodeKilled);
    cluster.load.until_resized(8, PATIENCE).await;
    assert!(killed_at.elapsed() >= SHRINK_AFTER, "a restart is shorter, and moves nothing");
    cluster.comes(0, NodeKilled).await;
    cluster.load.until_resized(12, PATIENCE).await;
    one_at_a_time(&cluster).await;
    cluster.finish().await;
}

/// What a node was asked while it slept, and what it has to answer.
async fn asked_in_its_sleep(api: Api, n: usize) {
    let id = format!("held-{n}");
    let ask = async || match n % 4 {
        0 => api.cancel(&id).await,
        // Far: what is delivered before a lost answer is asked for again is unknown then.
        1 => api.reschedule(&id, FAR_MS / 2).await,
        2 => api.enqueue(&id, 500, "another body", "replace").await,
        _ => api.enqueue(&id, 500, "a body", "reject").await,
    };
    // A node that slept closes the connection unread: it is asked again, with the routing that it had. Another one of the
    // pool may be closed too.
    let mut answer = ask().await;
    let closed_at = Instant::now();
    while answer.is_none() {
        in_time!(closed_at.elapsed() < PATIENCE, "{id}: no answer");
        let_pass(Duration::from_millis(100), Because::AskedAgain).await;
        answer = ask().await;
    }
    let expected = ["cancelled", "rescheduled", "replaced", "scheduled"][n % 4];
    assert_eq!(answer.as_deref(), Some(expected), "{id}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_whose_node_slept_through_two_changes_does_not_notice() {
    let redis = RedisServer::start().await;
    let mut cluster = TestCluster::start(&redis.url(), SHARED, 2, "8", SETTINGS, KEPT, 1).await;
    cluster.load.api = cluster.load.api.at(1);
    let sleepy = cluster.load.api.at(0).patient();
    for n in (0..48).filter(|n| n % 4 != 3) {
        let first = sleepy.enqueue(&format!("held-{n}"), FAR_MS, "a body", "reject").await;
        assert_eq!(first.as_deref(), Some("scheduled"));
    }
    // Half of the load's producers are in the middle of something.
    cluster.load.history.fault_begins(NodeStalled);
    cluster.nodes[0].stall().await;
    let mut held = JoinSet::new();
    for n in 0..48 {
        held.spawn(asked_in_its_sleep(sleepy.clone(), n));
    }
    for shards in [31, 5] {
        cluster.load.insist(shards).await;
        cluster.load.until_resized(shards, PATIENCE).await;
    }
    cluster.nodes[0].resume();
    cluster.load.history.fault_ends(NodeStalled);
    held.join_all().await;
    for n in (0..48).filter(|n| n % 4 == 1) {
        assert_eq!(sleepy.reschedule(&format!("held-{n}"), 500).await.as_deref(), Some("rescheduled"));
    }
    cluster.finish().await;
}
