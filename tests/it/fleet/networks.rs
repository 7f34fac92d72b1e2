//! The network of one node is cut: from Redis, from etcd, from both, in one direction. Packets are
//! dropped and nobody is notified. Each node runs in a network namespace of its own.

use std::sync::Arc;
use std::time::Duration;

use duetime_testkit::history::FaultKind;
use duetime_testkit::servers::{NetworkSpace, NodeOptions, Proxy, RedisServer, Way};
use duetime_testkit::wait::{Because, let_pass};

use super::cluster::{LEASE, Servers, Sharing, Spot, TestCluster, VISIBILITY, now_ms};
use super::leases::LATE_MAX_MS;
use super::secs;

/// For nodes to agree again.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

/// One node's namespace, with what listens on its end of the wire for each server.
struct Place {
    space: Arc<NetworkSpace>,
    redis: Proxy,
    etcd: Vec<Proxy>,
    _hook: Proxy,
}

impl Place {
    fn redis_ports(&self) -> Vec<u16> {
        vec![self.redis.port()]
    }

    fn etcd_ports(&self) -> Vec<u16> {
        self.etcd.iter().map(Proxy::port).collect()
    }

    fn all_ports(&self) -> Vec<u16> {
        [self.redis_ports(), self.etcd_ports()].concat()
    }
}

/// Three nodes; the network of the first can be cut.
async fn cluster() -> (TestCluster, Place) {
    let mut cluster = TestCluster::empty(Servers::One(Box::new(RedisServer::start().await)), Sharing::Etcd).await;
    let space = Arc::new(NetworkSpace::new());
    let host = space.outside();
    let etcd = cluster.etcd.as_ref().unwrap();
    let mut members = Vec::new();
    for n in 0..etcd.urls().len() {
        members.push(Proxy::on(host, etcd.port(n)).await);
    }
    let Servers::One(redis) = &cluster.servers else { unreachable!("made above") };
    let redis = Proxy::on(host, redis.port()).await;
    let hook = Proxy::on(host, cluster.hook.port()).await;
    let spot = Spot {
        store: Some(format!("redis://{host}:{}", redis.port())),
        etcd: Some(members.iter().map(|member| format!("http://{host}:{}", member.port())).collect()),
        hook: Some(format!("http://{host}:{}/in", hook.port())),
        options: NodeOptions { space: Some(space.clone()), ..NodeOptions::default() },
    };
    cluster.join_at(spot).await;
    cluster.join_at(Spot::default()).await;
    cluster.join_at(Spot::default()).await;
    cluster.all_share().await;
    cluster.produce();
    secs(1).await;
    (cluster, Place { space, redis, etcd: members, _hook: hook })
}

async fn heals(cluster: &mut TestCluster, place: &Place) {
    place.space.heal();
    cluster.shared_by(1, &[0, 1, 2], SETTLED_WITHIN).await;
    cluster.shared_by(0, &[0, 1, 2], SETTLED_WITHIN).await;
    cluster.is_up(0, true);
}

/// Without Redis the node can do nothing. What it holds is due again when its visibility timeout is over.
async fn a_node_is_cut_off_from(ports: impl Fn(&Place) -> Vec<u16>, way: Way) {
    let (mut cluster, place) = cluster().await;
    cluster.recorder.fault_begins(FaultKind::NetworkFailed);
    cluster.is_up(0, false);
    place.space.cut(&ports(&place), way);
    let cut_at = now_ms();
    cluster.shared_by(1, &[1, 2], SETTLED_WITHIN).await;
    let_pass(VISIBILITY, Because::Time).await;
    // All comes by the others, though the node is still cut off.
    cluster.arrived(now_ms(), SETTLED_WITHIN).await;
    heals(&mut cluster, &place).await;
    cluster.recorder.fault_ends(FaultKind::NetworkFailed);
    let healed_at = now_ms();
    secs(1).await;
    let (verdict, cluster) = cluster.finish(0).await;
    verdict.assert_good();
    duetime_testkit::in_time!(healed_at > cut_at && cluster.latest_ms(healed_at, i64::MAX) < LATE_MAX_MS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_cut_off_from_redis_gives_its_shards_away_and_gets_a_share_when_it_is_back() {
    a_node_is_cut_off_from(Place::redis_ports, Way::Both).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_requests_to_redis_and_etcd_are_dropped_is_replaced_and_comes_back() {
    a_node_is_cut_off_from(Place::all_ports, Way::Out).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_hears_nothing_from_redis_and_etcd_is_replaced_and_comes_back() {
    a_node_is_cut_off_from(Place::all_ports, Way::In).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_packets_to_etcd_are_dropped_goes_on_and_delivers_nothing_twice() {
    let (mut cluster, place) = cluster().await;
    let began = now_ms();
    for way in [Way::Both, Way::In] {
        place.space.cut(&place.etcd_ports(), way);
        cluster.shared_by(1, &[1, 2], SETTLED_WITHIN).await;
        let_pass(LEASE, Because::Fault).await;
        heals(&mut cluster, &place).await;
    }
    let cluster = cluster.finish_without_a_duplicate(0).await;
    let late = cluster.latest_ms(began, i64::MAX);
    duetime_testkit::in_time!(late < LATE_MAX_MS, "{late} ms late");
}
