//! A clock jumps by an hour, a node's or Redis's: nothing is early, whoever is alone with it says so, and
//! afterwards everything is delivered.

use std::time::Duration;

use duetime_testkit::servers::{RedisOptions, RedisServer, SkewedClock};
use duetime_testkit::wait::{Because, let_pass};
use tokio::time::Instant;

use super::cluster::{Servers, Sharing, Spot, TestCluster, now_ms};
use super::secs;

pub const HOUR_S: i64 = 3_600;
/// For what must be seen in the end.
const SEEN_WITHIN: Duration = Duration::from_secs(30);

async fn a_nodes_clock_jumps_by(offset_s: i64, sharing: Sharing) {
    let clock = SkewedClock::new();
    let mut cluster = TestCluster::new(sharing, 2).await;
    cluster.join(clock.env()).await;
    cluster.produce();
    secs(2).await;
    clock.set(offset_s);
    // A producer's absolute times do not care, but relative ones would be by this node's word.
    let end = Instant::now() + SEEN_WITHIN;
    loop {
        let nodes = cluster.client(0).nodes().await.unwrap();
        let skewed = nodes.iter().find(|node| node.id == "n2");
        if skewed.is_some_and(|node| node.state == "unhealthy" && node.shards_owned == 0) {
            break;
        }
        duetime_testkit::in_time!(Instant::now() < end, "{nodes:?}\n{}", cluster.nodes[2].output());
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
    while !cluster.nodes[2].output().contains("clock and the store's are apart") {
        duetime_testkit::in_time!(Instant::now() < end, "{}", cluster.nodes[2].output());
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
    if sharing == Sharing::Etcd {
        cluster.shared_by(0, &[0, 1], SEEN_WITHIN).await;
    }
    secs(2).await;
    clock.set(0);
    let end = Instant::now() + SEEN_WITHIN;
    while cluster.shares(0).await.get("n2").is_none_or(|share| *share == 0) {
        duetime_testkit::in_time!(Instant::now() < end, "it takes its share again\n{}", cluster.nodes[2].output());
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
    cluster.finish_without_a_duplicate(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_an_hour_ahead_delivers_nothing_early_and_gives_its_shards_away() {
    a_nodes_clock_jumps_by(HOUR_S, Sharing::Etcd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_an_hour_behind_says_so_and_gives_its_shards_away() {
    a_nodes_clock_jumps_by(-HOUR_S, Sharing::RoundRobin).await;
}

async fn skewed_redis(clock: &SkewedClock) -> RedisServer {
    RedisServer::start_with(RedisOptions { env: clock.env(), ..RedisOptions::default() }).await
}

/// Waits until every node says of itself that it is in this state.
async fn all_are(cluster: &TestCluster, state: &str) {
    let end = Instant::now() + SEEN_WITHIN;
    for (n, node) in cluster.nodes.iter().enumerate() {
        loop {
            let told = cluster.client(n).nodes().await.unwrap();
            if told.iter().any(|node| node.id == format!("n{n}") && node.state == state) {
                break;
            }
            duetime_testkit::in_time!(Instant::now() < end, "n{n} is not {state}: {told:?}\n{}", node.output());
            let_pass(Duration::from_millis(50), Because::AskedAgain).await;
        }
    }
}

async fn rediss_clock_jumps_by(offsets_s: &[i64], sharing: Sharing) {
    let clock = SkewedClock::new();
    let mut cluster = TestCluster::empty(Servers::One(Box::new(skewed_redis(&clock).await)), sharing).await;
    for _ in 0..2 {
        cluster.join_at(Spot::default()).await;
    }
    cluster.all_share().await;
    cluster.produce();
    secs(1).await;
    for offset in offsets_s {
        clock.set(*offset);
        all_are(&cluster, "unhealthy").await;
        // What is due meanwhile waits: nobody takes it by the wrong clock, nor before its time.
        secs(2).await;
        clock.set(0);
        all_are(&cluster, "serving").await;
        cluster.arrived(now_ms(), SEEN_WITHIN).await;
    }
    for node in &cluster.nodes {
        assert!(node.output().contains("clock and the store's are apart"), "{}", node.output());
    }
    cluster.finish_without_a_duplicate(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_rediss_clock_is_an_hour_ahead_nothing_is_taken_and_then_everything_comes() {
    rediss_clock_jumps_by(&[HOUR_S], Sharing::Etcd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rediss_clock_may_jump_back_and_forward_and_nothing_is_early_or_lost() {
    rediss_clock_jumps_by(&[-HOUR_S, HOUR_S], Sharing::RoundRobin).await;
}
