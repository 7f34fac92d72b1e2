//! etcd is there, and a node does not reach it, or slowly, or hears no answer: scanning goes on, nothing
//! is delivered twice, and the nodes come back to their leases by themselves.

use std::time::Duration;

use duetime_testkit::servers::{Proxy, RedisServer};
use duetime_testkit::wait::{Because, let_pass};

use super::cluster::{LEASE, Servers, Sharing, Spot, TestCluster, now_ms};
use super::leases::LATE_MAX_MS;
use super::secs;

/// For nodes to agree again.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);
/// One way. An answer takes twice as long.
const SLOW: Duration = Duration::from_millis(400);

/// A proxy before each member of etcd, and their addresses.
async fn proxies(cluster: &TestCluster) -> (Vec<Proxy>, Vec<String>) {
    let etcd = cluster.etcd.as_ref().unwrap();
    let mut all = Vec::new();
    for n in 0..etcd.urls().len() {
        all.push(Proxy::before(etcd.port(n)).await);
    }
    let urls = all.iter().map(|proxy| format!("http://localhost:{}", proxy.port())).collect();
    (all, urls)
}

/// Three nodes, of which the first so many reach etcd through the proxies.
async fn cluster(behind: usize) -> (TestCluster, Vec<Proxy>) {
    let mut cluster = TestCluster::empty(Servers::One(Box::new(RedisServer::start().await)), Sharing::Etcd).await;
    let (proxies, urls) = proxies(&cluster).await;
    for n in 0..3 {
        cluster.join_at(Spot { etcd: (n < behind).then(|| urls.clone()), ..Spot::default() }).await;
    }
    cluster.all_share().await;
    cluster.produce();
    secs(1).await;
    (cluster, proxies)
}

/// One node does not hear of etcd: the others share its shards, it goes on with them, and it is back in the end.
async fn one_node_does_not_hear_of_etcd(how: impl Fn(&Proxy)) {
    let (cluster, proxies) = cluster(1).await;
    let began = now_ms();
    proxies.iter().for_each(how);
    cluster.shared_by(1, &[1, 2], SETTLED_WITHIN).await;
    let_pass(LEASE, Because::Fault).await;
    proxies.iter().for_each(Proxy::heal);
    cluster.shared_by(1, &[0, 1, 2], SETTLED_WITHIN).await;
    cluster.shared_by(0, &[0, 1, 2], SETTLED_WITHIN).await;
    let cluster = cluster.finish_without_a_duplicate(0).await;
    let late = cluster.latest_ms(began, i64::MAX);
    duetime_testkit::in_time!(late < LATE_MAX_MS, "{late} ms late");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_cut_off_from_etcd_disturbs_nobody_and_comes_back_by_itself() {
    one_node_does_not_hear_of_etcd(Proxy::cut).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_answers_from_etcd_are_lost_disturbs_nobody_and_comes_back_by_itself() {
    one_node_does_not_hear_of_etcd(Proxy::lose_answers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_etcd_is_slow_for_all_scanning_goes_on_and_then_the_leases_are_shared_again() {
    let (mut cluster, proxies) = cluster(3).await;
    let began = now_ms();
    proxies.iter().for_each(|proxy| proxy.delay(SLOW));
    let_pass(LEASE * 2, Because::Fault).await;
    // Shards change hands while it is slow: a node stops in good order.
    cluster.is_up(2, false);
    assert!(cluster.nodes[2].sigterm(super::GRACE).await.success());
    let_pass(LEASE * 2, Because::Fault).await;
    proxies.iter().for_each(Proxy::heal);
    cluster.shared_by(0, &[0, 1], SETTLED_WITHIN).await;
    let cluster = cluster.finish_without_a_duplicate(0).await;
    let late = cluster.latest_ms(began, i64::MAX);
    duetime_testkit::in_time!(late < LATE_MAX_MS * 2, "{late} ms late");
}
