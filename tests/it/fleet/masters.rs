//! Several nodes on a Redis Cluster lose a master, and then one of themselves.

use std::time::Duration;

use duetime_core::TopicName;
use duetime_redis::slots;
use duetime_testkit::history::FaultKind;
use duetime_testkit::servers::RedisCluster;
use duetime_testkit::wait::{self, Because, let_pass};

use super::cluster::{LEASE, SHARDS, Servers, Sharing, Spot, TOPIC, TestCluster, VISIBILITY, now_ms};
use super::leases::LATE_MAX_MS;
use super::{TAKEOVER, secs};

/// A master is dead for this long before its replica may take over.
const DEAD: Duration = Duration::from_secs(7);
/// Longer than that: before it is over, the redis does not know of the death.
const NODE_TIMEOUT_MS: u32 = 60_000;
/// With this it soon does.
const NOTICED_MS: u32 = 2_000;

/// A master counts as dead after this silence.
fn dead_after(redis: &RedisCluster, silence_ms: u32) {
    for node in redis.nodes.iter().filter(|node| node.runs()) {
        node.cli(&["CONFIG", "SET", "cluster-node-timeout", &silence_ms.to_string()]);
    }
}

async fn cluster() -> TestCluster {
    let redis = RedisCluster::start(3, 1).await;
    dead_after(&redis, NODE_TIMEOUT_MS);
    let mut cluster = TestCluster::empty(Servers::Cluster(redis), Sharing::Etcd).await;
    for _ in 0..3 {
        cluster.join_at(Spot::default()).await;
    }
    cluster.all_share().await;
    cluster.produce_by_shard();
    secs(2).await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_master_is_dead_the_shards_of_the_others_go_on_and_then_a_node_dies_too() {
    let mut cluster = cluster().await;
    let topic = TopicName::new(TOPIC).unwrap();
    let redis = cluster.redis_cluster();
    let master_of = |redis: &RedisCluster, shard| redis.owner(slots::slot_of(&topic, shard));
    let dead = master_of(redis, 0);
    let spared: Vec<u32> = (0..SHARDS).filter(|shard| master_of(redis, *shard) != dead).collect();
    assert!(!spared.is_empty() && spared.len() < SHARDS as usize, "{spared:?}");
    let replica = redis.replica_of(dead);
    let killed_at = now_ms();
    cluster.recorder.fault_begins(FaultKind::StoreStopped);
    cluster.redis_cluster().nodes[dead].stop_hard();
    let_pass(DEAD, Because::Fault).await;
    // Nobody has taken over yet, and still what is due elsewhere comes, and no later than otherwise.
    assert!(!cluster.redis_cluster().is_master(replica), "the master is not missed yet");
    let until = killed_at + i64::try_from(DEAD.as_millis()).unwrap() - LATE_MAX_MS;
    cluster.arrived_of(until, Duration::from_secs(30), |shard| spared.contains(&shard)).await;
    let late = cluster.latest_of(killed_at, until, |shard| spared.contains(&shard));
    duetime_testkit::in_time!(late < LATE_MAX_MS, "shards of other masters were {late} ms late");
    // What is asked about all shards is answered for those, and says which are missing.
    let silent = SHARDS as usize - spared.len();
    let client = cluster.client(1);
    // On a slow machine another master may not answer in time either.
    let exact = async || {
        let told = client.topic(TOPIC).await.unwrap().unreachable_shards;
        let forecast = client.forecast(TOPIC, Duration::from_secs(1), 5).await.unwrap().unreachable_shards;
        let listed = client.topics().await.unwrap()[0].unreachable_shards;
        let shards = client.shards(TOPIC).await.unwrap().shards;
        assert!([told, forecast, listed].iter().all(|missing| *missing >= silent), "{told} {forecast} {listed}");
        assert!(shards.iter().all(|shard| shard.unreachable || spared.contains(&shard.index)), "{shards:?}");
        let is_exact = shards.iter().all(|shard| shard.unreachable != spared.contains(&shard.index));
        ([told, forecast, listed] == [silent; 3] && is_exact).then_some(())
    };
    wait::until(Duration::from_secs(30), "just the shards of the dead master are missing", exact).await;
    assert!(!cluster.redis_cluster().is_master(replica), "the master is not missed yet");
    dead_after(cluster.redis_cluster(), NOTICED_MS);
    cluster.redis_cluster().promoted(replica).await;
    cluster.recorder.fault_ends(FaultKind::StoreStopped);
    cluster.arrived_of(now_ms(), Duration::from_secs(60), |shard| spared.contains(&shard)).await;
    // And a node, while its shards are on three masters.
    cluster.recorder.fault_begins(FaultKind::NodeKilled);
    cluster.is_up(0, false);
    cluster.nodes[0].kill();
    cluster.shared_by(1, &[1, 2], LEASE + TAKEOVER + Duration::from_secs(20)).await;
    let_pass(VISIBILITY, Because::Time).await;
    cluster.recorder.fault_ends(FaultKind::NodeKilled);
    cluster.finish(1).await.0.assert_good();
}
