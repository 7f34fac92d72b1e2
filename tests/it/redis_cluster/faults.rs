//! Slots move, scripts are forgotten, masters pause, fail over and are killed: nothing is lost.

use duetime_testkit::at_home::MessagesAtHome as _;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::{ClaimRequest, EnqueueOutcome};
use duetime_core::{ClaimStore as _, TopicName, TopicStore as _};
use duetime_metrics::Meters;
use duetime_redis::slots;
use duetime_store_redis::{Durability, RedisStore, RedisStoreConfig};
use duetime_testkit::claim_request;
use duetime_testkit::servers::{RedisCluster, Sentinel};
use duetime_testkit::wait::{Because, let_pass};

use super::{CLUSTER, SHARDS};
use crate::store_load::{StoreLoad, TOPIC, message, now, record};

/// How long a slot is left half moved. Below the time for which a call is repeated.
const HELD: Duration = Duration::from_secs(4);
/// How late messages of masters that are well may be while another is dead.
const UNDISTURBED: Duration = Duration::from_millis(2500);

pub async fn connect(url: String, durability: Durability) -> Arc<RedisStore> {
    let config = RedisStoreConfig { url: url.into(), durability, ..RedisStoreConfig::default() };
    RedisStore::connect(config, Arc::new(Meters::new())).await.unwrap()
}

pub async fn pause(millis: u64) {
    let_pass(Duration::from_millis(millis), Because::Rate).await;
}

pub fn slot(topic: &str, index: u32) -> u16 {
    slots::slot_of(&TopicName::new(topic).unwrap(), index)
}

/// Another master than `from`.
fn other(cluster: &RedisCluster, from: usize) -> usize {
    cluster.masters().into_iter().find(|master| *master != from).expect("three masters")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_while_slots_move_scripts_are_forgotten_and_masters_pause() {
    let cluster = RedisCluster::start(3, 1).await;
    let store = connect(cluster.url(), Durability::Memory).await;
    let load = StoreLoad::start(store.clone(), &CLUSTER).await;
    for _ in 0..5 {
        for node in &cluster.nodes {
            node.cli(&["SCRIPT", "FLUSH"]);
        }
        pause(50).await;
    }
    for master in cluster.masters() {
        cluster.nodes[master].cli(&["CLIENT", "PAUSE", "1500", "ALL"]);
    }
    pause(1600).await;
    // Every shard's slot goes to another master and some come back.
    for index in 0..SHARDS {
        let slot = slot(TOPIC, index);
        let from = cluster.owner(slot);
        cluster.move_slot(slot, from, other(&cluster, from));
    }
    for index in 0..SHARDS / 2 {
        let slot = slot(TOPIC, index);
        let from = cluster.owner(slot);
        cluster.move_slot(slot, from, other(&cluster, from));
    }
    // One is left half moved for a while.
    let held = slot(TOPIC, 0);
    let from = cluster.owner(held);
    let to = other(&cluster, from);
    cluster.begin_move(held, from, to);
    cluster.move_keys(held, from, to, 2);
    load.forget_lateness();
    let_pass(HELD, Because::Fault).await;
    let undisturbed = load.latest(|index| index != 0).expect("other shards went on");
    duetime_testkit::in_time!(undisturbed < UNDISTURBED, "shards of other slots were {undisturbed:?} late");
    cluster.move_keys(held, from, to, 1000);
    cluster.end_move(held, to);
    // And one without a key in it, while a topic is made there.
    let empty = slot("fresh", 0);
    let from = cluster.owner(empty);
    let to = other(&cluster, from);
    cluster.begin_move(empty, from, to);
    let topic = record("fresh", 1);
    let making = tokio::spawn({
        let (store, topic) = (store.clone(), topic.clone());
        async move { store.put_topic(&topic, None).await }
    });
    pause(1000).await;
    cluster.end_move(empty, to);
    let topic = making.await.unwrap().expect("a topic is made once its slot stands still");
    let shard = topic.routing.shard(&topic.name, 0);
    let answers = store.enqueue(&shard, now(), &[message("a", Duration::ZERO)]).await.unwrap();
    assert_eq!(answers[0].outcome, EnqueueOutcome::Scheduled);
    pause(5).await;
    let ask = ClaimRequest { visibility: Duration::from_secs(1), ..claim_request(1) };
    assert_eq!(store.claim(&shard, now(), &ask).await.unwrap().messages.len(), 1);
    // The history knows nothing of it.
    assert!(store.delete_topic(&topic.name, duetime_core::Deletion::Force).await.unwrap());
    load.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_a_replica_has_is_lost_when_a_master_fails_over_or_is_killed() {
    let mut cluster = RedisCluster::start(3, 1).await;
    let store = connect(cluster.url(), Durability::Replicas(1)).await;
    let load = StoreLoad::start(store, &CLUSTER).await;
    // In good order.
    let master = cluster.owner(slot(TOPIC, 0));
    load.through(async { cluster.fail_over(master).await }).await;
    pause(500).await;
    // And by a kill: the shards of the other masters go on meanwhile.
    let master = cluster.owner(slot(TOPIC, 1));
    let spared: Vec<u32> = (0..SHARDS).filter(|index| cluster.owner(slot(TOPIC, *index)) != master).collect();
    assert!(!spared.is_empty(), "shards are spread over masters");
    load.forget_lateness();
    let replica = cluster.replica_of(master);
    cluster.nodes[master].stop_hard();
    load.through(async { cluster.promoted(replica).await }).await;
    let undisturbed = load.latest(|index| spared.contains(&index)).expect("shards of other masters went on");
    duetime_testkit::in_time!(undisturbed < UNDISTURBED, "shards of other masters were {undisturbed:?} late");
    load.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_a_replica_has_is_lost_when_sentinel_fails_over() {
    let mut servers = Sentinel::start_careful(2, 1, 1).await;
    let store = connect(servers.url(), Durability::Replicas(1)).await;
    let load = StoreLoad::start(store, &CLUSTER).await;
    let primary = servers.primary();
    servers.servers[primary].stop_hard();
    load.through(async { servers.left(primary).await }).await;
    load.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_enqueue_says_how_many_replicas_have_it() {
    let mut servers = Sentinel::start_careful(1, 1, 1).await;
    let store = connect(servers.url(), Durability::Replicas(2)).await;
    // The primary is to take writes alone in the end.
    servers.servers[0].cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    let record = record(TOPIC, 1);
    let record = store.put_topic(&record, None).await.unwrap();
    let shard = record.routing.shard(&record.name, 0);
    let given = message("a", Duration::from_secs(60));
    // Two are asked for and one is there: what is reached is said, and the message is scheduled.
    let answers = store.enqueue(&shard, now(), std::slice::from_ref(&given)).await.unwrap();
    assert_eq!((answers[0].outcome, answers[0].replicas), (EnqueueOutcome::Scheduled, Some(1)));
    // A repetition writes nothing, and says the same.
    let answers = store.enqueue(&shard, now(), std::slice::from_ref(&given)).await.unwrap();
    assert_eq!((answers[0].outcome, answers[0].replicas), (EnqueueOutcome::Scheduled, Some(1)));
    servers.servers[1].stop_hard();
    let answers = store.enqueue(&shard, now(), &[message("b", Duration::from_secs(60))]).await.unwrap();
    assert_eq!((answers[0].outcome, answers[0].replicas), (EnqueueOutcome::Scheduled, Some(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_is_there_once_a_replica_has_it() {
    let servers = Sentinel::start_careful(1, 1, 1).await;
    let store = connect(servers.url(), Durability::Replicas(1)).await;
    let behind = 1 - servers.primary();
    servers.servers[behind].pause();
    let making = tokio::spawn({
        let store = store.clone();
        async move { store.put_topic(&record(TOPIC, 4), None).await }
    });
    pause(500).await;
    assert!(!making.is_finished(), "created before a replica had it");
    servers.servers[behind].resume();
    making.await.unwrap().expect("created once the replica has it");
    assert_eq!(store.topics().await.unwrap().len(), 1);
}
