//! etcd dies, stalls, forgets the leases: scanning goes on, nothing is delivered twice, and the nodes
//! come back to their leases by themselves.

use std::time::Duration;

use duetime_testkit::history::FaultKind;
use duetime_testkit::wait::{Because, let_pass};
use tokio::time::Instant;

use super::cluster::{LEASE, SHARDS, Sharing, TestCluster, now_ms};
use super::secs;

/// What is scanned on is never later than this; a shard that nobody held is found this late.
pub const LATE_MAX_MS: i64 = 4_000;

#[tokio::test(flavor = "multi_thread")]
async fn while_etcd_is_dead_scanning_goes_on_and_then_the_leases_come_back() {
    let mut cluster = TestCluster::new(Sharing::Etcd, 3).await;
    cluster.produce();
    secs(1).await;
    let began = now_ms();
    cluster.etcd.as_mut().unwrap().stop_hard();
    let_pass(LEASE * 3, Because::Fault).await;
    // What was due a while ago has come, although etcd is still dead.
    cluster.arrived(now_ms() - LATE_MAX_MS, Duration::from_secs(5)).await;
    cluster.etcd.as_mut().unwrap().start_again().await;
    cluster.shared_by(0, &[0, 1, 2], Duration::from_secs(15)).await;
    let cluster = cluster.finish_without_a_duplicate(0).await;
    let late = cluster.latest_ms(began, i64::MAX);
    duetime_testkit::in_time!(late < LATE_MAX_MS, "{late} ms late");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dies_while_etcd_is_stalled_leaves_its_shards_to_whoever_sees_them_late() {
    let mut cluster = TestCluster::new(Sharing::Etcd, 3).await;
    cluster.etcd.as_ref().unwrap().stall().await;
    cluster.is_up(0, false);
    cluster.nodes[0].kill();
    cluster.produce();
    let_pass(LEASE * 2, Because::Fault).await;
    // What was the dead node's arrives while etcd still says nothing.
    cluster.arrived(now_ms(), Duration::from_secs(24)).await;
    cluster.etcd.as_ref().unwrap().resume();
    cluster.shared_by(1, &[1, 2], Duration::from_secs(15)).await;
    let cluster = cluster.finish_without_a_duplicate(1).await;
    let late = cluster.latest_ms(0, i64::MAX);
    duetime_testkit::in_time!(late < 24_000, "{late} ms late");
}

/// Shards that nodes 1 and 2 scan, as they say; one that both scan counts twice.
async fn scanned_by_the_others(cluster: &TestCluster) -> u32 {
    let mut sum = 0;
    for n in [1, 2] {
        let metrics = cluster.client(n).metrics().await.unwrap();
        let line = metrics.lines().find(|line| line.starts_with("duetime_shards_owned{")).unwrap();
        sum += line.rsplit(' ').next().unwrap().parse::<u32>().unwrap();
    }
    sum
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shards_of_a_node_that_died_while_etcd_was_away_are_not_given_up_again_when_it_is_back() {
    let mut cluster = TestCluster::new(Sharing::Etcd, 3).await;
    cluster.produce();
    secs(1).await;
    cluster.recorder.fault_begins(FaultKind::NodeKilled);
    cluster.etcd.as_mut().unwrap().stop_hard();
    cluster.is_up(0, false);
    cluster.nodes[0].kill();
    let end = Instant::now() + LEASE * 10;
    while scanned_by_the_others(&cluster).await < SHARDS {
        duetime_testkit::in_time!(Instant::now() < end, "nobody takes the dead node's shards");
        secs(1).await;
    }
    cluster.recorder.fault_ends(FaultKind::NodeKilled);
    cluster.etcd.as_mut().unwrap().start_again().await;
    // Until its lease has ended etcd says that the dead node has them.
    let until = Instant::now() + LEASE * 4;
    let mut short_since = None;
    while Instant::now() < until {
        // A shard on its way from the one to the other may be missed, between the two questions.
        let scanned = scanned_by_the_others(&cluster).await;
        let since = *short_since.get_or_insert_with(Instant::now);
        if scanned >= SHARDS {
            short_since = None;
        }
        duetime_testkit::in_time!(
            since.elapsed() < LEASE / 2,
            "only {scanned} shards are scanned\n{}",
            cluster.nodes[1].output()
        );
        let_pass(Duration::from_millis(20), Because::AskedAgain).await;
    }
    cluster.shared_by(1, &[1, 2], Duration::from_secs(15)).await;
    cluster.finish(1).await.0.assert_good();
}

#[tokio::test(flavor = "multi_thread")]
async fn losing_every_lease_at_once_is_calm() {
    let mut cluster = TestCluster::new(Sharing::Etcd, 3).await;
    cluster.produce();
    secs(1).await;
    let began = now_ms();
    for _ in 0..3 {
        cluster.etcd.as_ref().unwrap().revoke_all_leases();
        cluster.shared_by(0, &[0, 1, 2], Duration::from_secs(10)).await;
    }
    let metrics = cluster.client(0).metrics().await.unwrap();
    assert!(metrics.contains("duetime_lease_changes_total{kind=\"lost\"}"), "{metrics}");
    let cluster = cluster.finish_without_a_duplicate(0).await;
    let late = cluster.latest_ms(began, i64::MAX);
    duetime_testkit::in_time!(late < LATE_MAX_MS, "{late} ms late");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_dead_member_of_etcd_disturbs_nobody() {
    let mut cluster = TestCluster::new(Sharing::Etcd, 2).await;
    cluster.produce();
    let began = now_ms();
    cluster.etcd.as_mut().unwrap().stop_member(0);
    let_pass(LEASE * 2, Because::Fault).await;
    cluster.join(Vec::new()).await;
    cluster.shared_by(1, &[0, 1, 2], Duration::from_secs(15)).await;
    let cluster = cluster.finish_without_a_duplicate(0).await;
    duetime_testkit::in_time!(cluster.latest_ms(began, i64::MAX) < LATE_MAX_MS);
    cluster.shared_by(0, &[0, 1, 2], Duration::from_secs(15)).await;
}
