//! A slot whose keys are on their way, or whose master is gone, and what callers see of it.

use duetime_testkit::at_home::MessagesAtHome as _;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::{ClaimStore as _, TopicName, TopicStore as _};
use duetime_redis::slots;
use duetime_redis::{Link, LinkConfig, RedisUrl};
use duetime_store_redis::RedisStore;
use duetime_testkit::claim_request;
use duetime_testkit::servers::RedisCluster;
use duetime_testkit::wait::{Because, let_pass};
use redis::Value;

use super::{CLUSTER, SHARDS};
use crate::store_load::{StoreLoad, TOPIC, message, now, record};

/// How long a slot is left half moved: longer than a call is repeated.
const HELD: Duration = Duration::from_secs(30);
/// How late messages of other slots may be meanwhile.
const UNDISTURBED: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(60);

async fn connect(cluster: &RedisCluster) -> Arc<RedisStore> {
    crate::store_load::connect(cluster.url()).await
}

fn slot(index: u32) -> u16 {
    slots::slot_of(&TopicName::new(TOPIC).unwrap(), index)
}

/// The slot's master and another one.
fn ends(cluster: &RedisCluster, slot: u16) -> (usize, usize) {
    let from = cluster.owner(slot);
    (from, cluster.masters().into_iter().find(|master| *master != from).expect("three masters"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_keys_are_on_two_masters_waits_until_they_are_together() {
    let cluster = RedisCluster::start(3, 0).await;
    let store = connect(&cluster).await;
    let topic = record(TOPIC, 1);
    let topic = store.put_topic(&topic, None).await.unwrap();
    let shard = topic.routing.shard(&topic.name, 0);
    store.enqueue(&shard, now(), &[message("a", Duration::ZERO)]).await.unwrap();
    let slot = slot(0);
    let (from, to) = ends(&cluster, slot);
    cluster.begin_move(slot, from, to);
    // Of the shard's seven; the claim needs five.
    cluster.move_keys(slot, from, to, 3);
    let claiming = tokio::spawn({
        let (store, shard) = (store.clone(), shard.clone());
        async move { store.claim(&shard, now(), &claim_request(16)).await }
    });
    // The masters have said so to the caller, and it goes on.
    let refusals = |node: usize| {
        let told = cluster.nodes[node].cli(&["INFO", "errorstats"]);
        told.lines().filter(|line| line.starts_with("errorstat_TRYAGAIN")).count()
    };
    let refused = async {
        while refusals(from) + refusals(to) == 0 {
            let_pass(Duration::from_millis(20), Because::AskedAgain).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("a master says TRYAGAIN");
    let_pass(Duration::from_millis(100), Because::Quiet).await;
    assert!(!claiming.is_finished(), "claimed from half a shard, or given up");
    cluster.move_keys(slot, from, to, 1000);
    cluster.end_move(slot, to);
    let claim = claiming.await.unwrap().expect("claimed once the keys are together");
    assert_eq!(claim.messages.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_has_gone_over_is_read_where_it_is_while_its_slot_is_still_moving() {
    let cluster = RedisCluster::start(3, 0).await;
    let link = Link::new(LinkConfig::new(RedisUrl::parse(&cluster.url()).unwrap())).unwrap();
    let set = redis::cmd("SET").arg("{here}a").arg("1").to_owned();
    link.command("set", &set).await.unwrap();
    let slot = slots::crc16(b"here") % slots::SLOTS;
    let (from, to) = ends(&cluster, slot);
    cluster.begin_move(slot, from, to);
    cluster.move_keys(slot, from, to, 1000);
    // The slot stays as it is: only who follows ASK, and says so there, gets an answer.
    let get = redis::cmd("GET").arg("{here}a").to_owned();
    for _ in 0..3 {
        assert_eq!(link.command("get", &get).await.unwrap(), Value::BulkString(b"1".to_vec()));
    }
    cluster.end_move(slot, to);
    assert_eq!(link.command("get", &get).await.unwrap(), Value::BulkString(b"1".to_vec()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_half_moved_for_thirty_seconds_loses_nothing_and_delays_no_other() {
    let cluster = RedisCluster::start(3, 0).await;
    let load = StoreLoad::start(connect(&cluster).await, &CLUSTER).await;
    let held = slot(0);
    let (from, to) = ends(&cluster, held);
    cluster.begin_move(held, from, to);
    cluster.move_keys(held, from, to, 2);
    load.forget_lateness();
    // A claim of before may run out meanwhile.
    load.through(let_pass(HELD, Because::Fault)).await;
    let undisturbed = load.latest(|index| index != 0).expect("other shards went on");
    duetime_testkit::in_time!(undisturbed < UNDISTURBED, "shards of other slots were {undisturbed:?} late");
    cluster.move_keys(held, from, to, 1000);
    cluster.end_move(held, to);
    load.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_the_cluster_is_down_for_want_of_a_master() {
    let mut cluster = RedisCluster::start(3, 0).await;
    let load = StoreLoad::start(connect(&cluster).await, &CLUSTER).await;
    let gone = cluster.owner(slot(0));
    let other = (0..SHARDS).map(slot).find(|slot| cluster.owner(*slot) != gone).expect("shards are spread");
    let (witness, _) = ends(&cluster, other);
    let down = async {
        cluster.nodes[gone].stop_hard();
        let refuses = || cluster.nodes[witness].cli(&["INFO", "errorstats"]).contains("errorstat_CLUSTERDOWN");
        let refused = async {
            while !refuses() {
                let_pass(Duration::from_millis(50), Because::AskedAgain).await;
            }
        };
        tokio::time::timeout(PATIENCE, refused).await.expect("the others say CLUSTERDOWN to their callers");
        let_pass(Duration::from_secs(2), Because::Fault).await;
        cluster.nodes[gone].start_again().await;
        cluster.settled().await;
    };
    load.through(down).await;
    load.check().await;
}
