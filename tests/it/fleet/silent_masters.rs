//! One master of a Redis Cluster answers nothing and nobody takes its place: what is due on the others is
//! delivered at its time, to sinks and to consumers, however far ahead it was enqueued.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use duetime_client::{Claim, Client, NewMessage};
use duetime_core::{Due, Timestamp, TopicName};
use duetime_redis::slots;
use duetime_testkit::history::FaultKind;
use duetime_testkit::servers::{NetworkSpace, NodeOptions, Proxy, RedisCluster};
use duetime_testkit::violation::{is_long, only_in_long};
use duetime_testkit::wait::{Because, let_pass};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::cluster::{SHARDS, Servers, Sharing, Spot, TOPIC, TestCluster, now_ms};
use super::secs;

/// Longer than any of these tests: the redis does not miss the master.
const NODE_TIMEOUT_MS: &str = "120000";
/// Before the fault and after it messages are enqueued that fall due so much later.
const AHEAD_MS: [i64; 3] = [1_500, 4_000, 20_000];
/// For this long they are enqueued after it.
const ENQUEUE_FOR: Duration = Duration::from_secs(6);
/// A loop that waits for the silent master is late by many seconds; a busy machine is not.
const LATE_MAX_MS: i64 = 2_500;
/// All but one in a hundred are this late at most: a loop that waits a second for the silent master now and then makes
/// more of them late.
const P99_MAX_MS: i64 = 400;
/// The topic that consumers claim from.
const TASKS: &str = "tasks";
/// Why a test is one of the long run.
const ANOTHER: &str = "a paused master of two nodes, and one of etcd's nodes that is cut off, are tried each time";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Paused,
    Killed,
    Dropped,
}

/// A node that reaches every master of a redis by a wire whose packets can be dropped.
struct Place {
    space: Arc<NetworkSpace>,
    hook: Proxy,
    etcd: Vec<Proxy>,
}

impl Place {
    async fn new(cluster: &TestCluster, space: Arc<NetworkSpace>) -> Self {
        let hook = Proxy::on(space.outside(), cluster.hook.port()).await;
        let mut etcd = Vec::new();
        for n in 0..cluster.etcd.as_ref().map_or(0, |etcd| etcd.urls().len()) {
            etcd.push(Proxy::on(space.outside(), cluster.etcd.as_ref().unwrap().port(n)).await);
        }
        Self { space, hook, etcd }
    }

    fn spot(&self, redis: &RedisCluster) -> Spot {
        let host = self.space.outside();
        let nodes: Vec<String> = redis.nodes.iter().map(|node| format!("{host}:{}", node.port())).collect();
        Spot {
            store: Some(format!("redis-cluster://{}", nodes.join(","))),
            hook: Some(format!("http://{host}:{}/in", self.hook.port())),
            etcd: Some(self.etcd.iter().map(|member| format!("http://{host}:{}", member.port())).collect()),
            options: NodeOptions { space: Some(self.space.clone()), ..NodeOptions::default() },
        }
    }
}

/// Three masters without replicas that never miss each other, and a node with its wire for each spot.
async fn cluster(sharing: Sharing) -> (TestCluster, Place) {
    let space = Arc::new(NetworkSpace::new());
    let redis = RedisCluster::start_at(space.outside(), 3, 0).await;
    for node in &redis.nodes {
        node.cli(&["CONFIG", "SET", "cluster-node-timeout", NODE_TIMEOUT_MS]);
    }
    let mut cluster = TestCluster::empty(Servers::Unsafe(redis), sharing).await;
    let place = Place::new(&cluster, space).await;
    let spot = place.spot(cluster.redis_cluster());
    cluster.join_at(spot).await;
    (cluster, place)
}

/// The master that is to fall silent, and the shards of the others.
fn split(cluster: &mut TestCluster) -> (usize, Vec<u32>) {
    let topic = TopicName::new(TOPIC).unwrap();
    let redis = cluster.redis_cluster();
    let silent = redis.owner(slots::slot_of(&topic, 0));
    let spared: Vec<u32> = (0..SHARDS).filter(|shard| redis.owner(slots::slot_of(&topic, *shard)) != silent).collect();
    assert!(!spared.is_empty() && spared.len() < SHARDS as usize, "{spared:?}");
    (silent, spared)
}

/// When each message of the consumers' topic was delivered first.
type Claimed = Arc<Mutex<HashMap<String, i64>>>;

async fn consume(client: Client, claimed: Claimed) {
    loop {
        let ask = Claim { max: 50, wait: Duration::from_secs(5), ..Claim::default() };
        let got = client.claim(TASKS, &ask).await.unwrap().messages;
        let receipts: Vec<_> = got.iter().map(|message| message.receipt.clone()).collect();
        for message in got {
            claimed.lock().entry(message.id.to_string()).or_insert_with(now_ms);
        }
        if !receipts.is_empty() {
            // Those of the silent master cannot be acked; that is not to be waited for.
            let client = client.clone();
            tokio::spawn(async move { client.ack(TASKS, &receipts).await });
        }
    }
}

/// One message on `topic`, due `ahead_ms` from now; answers when.
async fn put(client: &Client, topic: &str, id: &str, ahead_ms: i64) -> i64 {
    let due_at = now_ms() + ahead_ms;
    let message = NewMessage::new("x").id(id).due(Due::At(Timestamp::from_millis(due_at)));
    client.enqueue(topic, &message).await.unwrap();
    due_at
}

async fn the_others_are_on_time(fault: Fault, nodes: usize) {
    let (mut cluster, place) = cluster(Sharing::RoundRobin).await;
    for _ in 1..nodes {
        let spot = place.spot(cluster.redis_cluster());
        cluster.join_at(spot).await;
    }
    let tasks = serde_json::json!({ "shards": SHARDS });
    cluster.client(0).put_topic(TASKS, tasks.as_object().unwrap()).await.unwrap();
    secs(2).await;
    let (silent, spared) = split(&mut cluster);
    let spared_of = |topic: &str| -> Vec<u32> {
        let redis = match &cluster.servers {
            Servers::Cluster(redis) | Servers::Unsafe(redis) => redis,
            Servers::One(_) => unreachable!("made above"),
        };
        let topic = TopicName::new(topic).unwrap();
        (0..SHARDS).filter(|shard| redis.owner(slots::slot_of(&topic, *shard)) != silent).collect()
    };
    let spared_tasks = spared_of(TASKS);
    let seed = async |topic: &str| cluster.client(0).shards(topic).await.unwrap().seed.expect("an admin sees it");
    let (hook_seed, tasks_seed) = (seed(TOPIC).await, seed(TASKS).await);
    let homes = |seed: u32, shards: &[u32], id: &String| shards.contains(&super::load::shard_in(seed, id));
    let mut of_hook = (0..).map(|n| format!("h-{n}")).filter(|id| homes(hook_seed, &spared, id));
    let mut of_tasks = (0..).map(|n| format!("t-{n}")).filter(|id| homes(tasks_seed, &spared_tasks, id));
    let mut due = HashMap::new();
    // Everybody's, also the silent master's, due when it falls silent and soon after.
    for n in 0..60 {
        for topic in [TOPIC, TASKS] {
            put(cluster.client(0), topic, &format!("any-{n}"), 500 + n * 100).await;
        }
    }
    let claimed = Claimed::default();
    let consumer = tokio::spawn(consume(cluster.client(0).clone(), claimed.clone()));
    cluster.recorder.fault_begins(FaultKind::StoreStopped);
    let port = cluster.redis_cluster().nodes[silent].port();
    match fault {
        Fault::Paused => cluster.redis_cluster().nodes[silent].pause(),
        Fault::Killed => cluster.redis_cluster().nodes[silent].stop_hard(),
        Fault::Dropped => place.space.cut(&[port], duetime_testkit::servers::Way::Both),
    }
    let began = Instant::now();
    while began.elapsed() < ENQUEUE_FOR {
        for ahead_ms in AHEAD_MS {
            for (topic, ids) in [(TOPIC, &mut of_hook as &mut dyn Iterator<Item = String>), (TASKS, &mut of_tasks)] {
                let id = ids.next().expect("there are always more");
                let due_at = put(cluster.client(0), topic, &id, ahead_ms).await;
                due.insert(id, due_at);
            }
        }
        let_pass(Duration::from_millis(100), Because::AskedAgain).await;
    }
    let came = |id: &String| {
        let handed = cluster.arrivals.lock().handed.get(id).map(|handed| handed[0].0);
        handed.or_else(|| claimed.lock().get(id).copied())
    };
    let end = due.values().max().unwrap() + LATE_MAX_MS;
    while now_ms() < end && due.keys().any(|id| came(id).is_none()) {
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
    let late = |id: &String, due: i64| came(id).map_or(i64::MAX, |at| at - due);
    let mut lateness: Vec<i64> = due.iter().map(|(id, due)| late(id, *due)).collect();
    lateness.sort_unstable();
    let (half, p99) = (lateness[lateness.len() / 2], lateness[lateness.len() * 99 / 100]);
    println!("{} messages: p50 {half} ms, p99 {p99} ms, longest {} ms late", lateness.len(), lateness.last().unwrap());
    duetime_testkit::in_time!(
        lateness.iter().all(|late| *late <= LATE_MAX_MS),
        "{lateness:?}\n{}",
        cluster.nodes[0].output()
    );
    duetime_testkit::in_time!(p99 <= P99_MAX_MS, "p99 {p99} ms\n{lateness:?}\n{}", cluster.nodes[0].output());
    assert!(!consumer.is_finished(), "a consumer was refused although two masters answer");
    consumer.abort();
    if fault == Fault::Paused {
        cluster.redis_cluster().nodes[silent].resume();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_master_delays_nothing_of_the_others() {
    if !is_long() {
        return only_in_long(ANOTHER);
    }
    the_others_are_on_time(Fault::Paused, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_master_makes_no_hole_in_the_turns_of_several_nodes() {
    the_others_are_on_time(Fault::Paused, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_master_that_nobody_replaces_delays_nothing_of_the_others() {
    if !is_long() {
        return only_in_long(ANOTHER);
    }
    the_others_are_on_time(Fault::Killed, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_whose_packets_are_dropped_delays_nothing_of_the_others() {
    if !is_long() {
        return only_in_long(ANOTHER);
    }
    the_others_are_on_time(Fault::Dropped, 1).await;
}

/// A node that one master does not answer may keep that master's shards no longer than this.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(20);

/// Three nodes of which the first is cut off from one master. Answers how late that master's messages are
/// once the others have taken over.
async fn one_node_is_cut_off_from_one_master(sharing: Sharing) {
    let (mut cluster, place) = cluster(sharing).await;
    cluster.join_at(Spot::default()).await;
    cluster.join_at(Spot::default()).await;
    cluster.all_share().await;
    cluster.is_up(0, false);
    cluster.produce();
    let (cut_off, spared) = split(&mut cluster);
    let is_cut_off = |shard: u32| !spared.contains(&shard);
    secs(2).await;
    cluster.recorder.fault_begins(FaultKind::NetworkFailed);
    let port = cluster.redis_cluster().nodes[cut_off].port();
    place.space.cut(&[port], duetime_testkit::servers::Way::Both);
    let began = Instant::now();
    if sharing == Sharing::Etcd {
        loop {
            let shards = cluster.client(1).shards(TOPIC).await.unwrap().shards;
            let theirs = shards.iter().filter(|shard| is_cut_off(shard.index));
            let handed_over = theirs.clone().all(|shard| shard.owner.as_deref().is_some_and(|owner| owner != "n0"));
            // It keeps some of the others, or takes them again: they are shared anew meanwhile.
            if handed_over && shards.iter().any(|shard| shard.owner.as_deref() == Some("n0")) {
                break;
            }
            duetime_testkit::in_time!(
                began.elapsed() < HANDED_OVER_WITHIN,
                "{shards:?}\n{}",
                cluster.nodes[0].output()
            );
            let_pass(Duration::from_millis(50), Because::AskedAgain).await;
        }
    } else {
        let_pass(HANDED_OVER_WITHIN / 2, Because::Fault).await;
    }
    // Its clients see nothing of it from here on.
    let from = now_ms();
    secs(8).await;
    let until = now_ms();
    cluster.arrived(until, Duration::from_secs(10)).await;
    let late = cluster.latest_ms(from, until);
    duetime_testkit::in_time!(late < super::leases::LATE_MAX_MS, "{late} ms late");
    place.space.heal();
    if sharing == Sharing::Etcd {
        cluster.shared_by(1, &[0, 1, 2], Duration::from_secs(30)).await;
    }
    cluster.recorder.fault_ends(FaultKind::NetworkFailed);
    secs(1).await;
    cluster.finish(1).await.0.assert_good();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_one_master_does_not_answer_hands_its_shards_to_nodes_that_it_does() {
    one_node_is_cut_off_from_one_master(Sharing::Etcd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_round_robin_the_others_scan_what_one_node_does_not_reach() {
    if !is_long() {
        return only_in_long(ANOTHER);
    }
    one_node_is_cut_off_from_one_master(Sharing::RoundRobin).await;
}
