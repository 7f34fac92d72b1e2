//! Several nodes share the shards: they come, go, die, stall, and lose etcd, under load; each run ends
//! with the verdict of the history.

mod clocks;
mod cluster;
mod leases;
mod load;
mod masters;
mod networks;
mod partitions;
mod silent_masters;
mod stores;

use std::time::Duration;

use duetime_testkit::history::FaultKind;
use duetime_testkit::wait::{Because, let_pass};

use cluster::{LEASE, SHARDS, Sharing, TOPIC, TestCluster, VISIBILITY, now_ms};

/// A killed node's shards are served by others within its lease and this.
const TAKEOVER: Duration = Duration::from_secs(2);
const GRACE: Duration = Duration::from_secs(15);

async fn secs(n: u64) {
    let_pass(Duration::from_secs(n), Because::Rate).await;
}

async fn a_node_is_killed(sharing: Sharing, lease: Duration) {
    let mut cluster = TestCluster::new(sharing, 3).await;
    cluster.produce();
    secs(2).await;
    let killed_at = now_ms();
    cluster.recorder.fault_begins(FaultKind::NodeKilled);
    cluster.is_up(0, false);
    cluster.nodes[0].kill();
    if sharing == Sharing::Etcd {
        let took = cluster.shared_by(1, &[1, 2], lease + TAKEOVER).await;
        duetime_testkit::in_time!(took <= lease + TAKEOVER, "{took:?}");
    }
    secs(5).await;
    cluster.recorder.fault_ends(FaultKind::NodeKilled);
    let (verdict, cluster) = cluster.finish(1).await;
    verdict.assert_good();
    // What the dead node held claimed is due again when its visibility timeout is over; the rest
    // waits for other scanners and for no more.
    let late = cluster.latest_ms(killed_at + 200, killed_at + 4_000);
    let most = (lease + TAKEOVER).max(VISIBILITY) + Duration::from_secs(2);
    duetime_testkit::in_time!(late <= i64::try_from(most.as_millis()).unwrap(), "{late} ms late");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_nodes_shards_are_served_by_others_within_its_lease_and_two_seconds() {
    a_node_is_killed(Sharing::Etcd, LEASE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_round_robin_a_killed_node_leaves_no_hole() {
    a_node_is_killed(Sharing::RoundRobin, Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_stalled_delivers_nothing_whose_deadline_has_passed() {
    let mut cluster = TestCluster::new(Sharing::Etcd, 3).await;
    cluster.produce();
    secs(2).await;
    cluster.recorder.fault_begins(FaultKind::NodeStalled);
    cluster.is_up(0, false);
    cluster.nodes[0].pause();
    let_pass(VISIBILITY * 2, Because::Fault).await;
    cluster.nodes[0].resume();
    cluster.is_up(0, true);
    cluster.recorder.fault_ends(FaultKind::NodeStalled);
    cluster.shared_by(0, &[0, 1, 2], Duration::from_secs(10)).await;
    let (verdict, cluster) = cluster.finish(0).await;
    verdict.assert_good();
    for (id, handed) in &cluster.arrivals.lock().handed {
        let attempts: Vec<u8> = handed.iter().map(|(_, attempt)| *attempt).collect();
        assert!(attempts.is_sorted_by(|a, b| a < b), "{id} was handed over by a claim that had ended: {attempts:?}");
    }
}

async fn nodes_are_restarted_one_by_one(sharing: Sharing) {
    let mut cluster = TestCluster::new(sharing, 3).await;
    cluster.produce();
    secs(1).await;
    for n in 0..3 {
        cluster.is_up(n, false);
        let status = cluster.nodes[n].sigterm(GRACE).await;
        assert!(status.success(), "{}", cluster.nodes[n].output());
        cluster.nodes[n].start_again().await;
        cluster.is_up(n, true);
        secs(1).await;
    }
    cluster.finish_without_a_duplicate(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_under_load_gives_no_duplicate_at_all() {
    nodes_are_restarted_one_by_one(Sharing::Etcd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_in_round_robin_gives_no_duplicate_at_all() {
    nodes_are_restarted_one_by_one(Sharing::RoundRobin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_joining_node_gets_its_share_within_seconds_and_a_leaving_ones_is_shared_at_once() {
    let mut cluster = TestCluster::new(Sharing::Etcd, 2).await;
    cluster.produce();
    cluster.join(Vec::new()).await;
    let took = cluster.shared_by(0, &[0, 1, 2], Duration::from_secs(5)).await;
    duetime_testkit::in_time!(took < Duration::from_secs(5), "{took:?}");
    cluster.shared_by(2, &[0, 1, 2], Duration::from_secs(5)).await;
    let shards = cluster.client(2).shards(TOPIC).await.unwrap().shards;
    assert_eq!(shards.iter().filter(|shard| shard.owner.as_deref() == Some("n2")).count(), SHARDS as usize / 3);
    assert!(cluster.nodes[2].sigterm(GRACE).await.success());
    let took = cluster.shared_by(0, &[0, 1], LEASE).await;
    duetime_testkit::in_time!(took < LEASE, "it gave its lease back: {took:?}");
    cluster.finish_without_a_duplicate(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_killed_and_started_again_lose_nothing() {
    let mut cluster = TestCluster::new(Sharing::Etcd, 3).await;
    cluster.produce();
    secs(2).await;
    cluster.recorder.fault_begins(FaultKind::NodeKilled);
    for n in 0..3 {
        cluster.is_up(n, false);
        cluster.nodes[n].kill();
    }
    secs(1).await;
    for n in 0..3 {
        cluster.nodes[n].start_again().await;
        cluster.is_up(n, true);
    }
    cluster.recorder.fault_ends(FaultKind::NodeKilled);
    cluster.shared_by(0, &[0, 1, 2], Duration::from_secs(10)).await;
    secs(1).await;
    cluster.finish(0).await.0.assert_good();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_gets_what_is_due_from_whatever_node_it_asks() {
    let cluster = TestCluster::new(Sharing::Etcd, 2).await;
    let settings = serde_json::json!({ "shards": SHARDS });
    cluster.client(0).put_topic("tasks", settings.as_object().unwrap()).await.unwrap();
    let messages: Vec<_> = (0..60)
        .map(|n| duetime_client::NewMessage::new("x").id(format!("t-{n}")).due(duetime_core::Due::In(Duration::ZERO)))
        .collect();
    cluster.client(0).enqueue_many("tasks", &messages).await.unwrap();
    let mut got = 0;
    let end = tokio::time::Instant::now() + Duration::from_secs(15);
    while got < messages.len() {
        duetime_testkit::in_time!(tokio::time::Instant::now() < end, "{got} of {}", messages.len());
        let ask = duetime_client::Claim { max: 20, wait: Duration::from_secs(1), ..duetime_client::Claim::default() };
        let claimed = cluster.client(1).claim("tasks", &ask).await.unwrap_or_default().messages;
        got += claimed.len();
        let receipts: Vec<_> = claimed.into_iter().map(|message| message.receipt).collect();
        if !receipts.is_empty() {
            cluster.client(0).ack("tasks", &receipts).await.unwrap();
        }
    }
}
