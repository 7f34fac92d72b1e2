//! Faults and alerts: for each fault exactly the named alert calls somebody, its runbook names the cause, and it ends
//! with the fault.

use std::time::{Duration, SystemTime};

use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::violation::{is_long, only_in_long};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::Answer;
use futures::future::join_all;
use serde_json::{Value, json};

use super::lab::{Lab, MEMORY, SECOND, certify};
use super::runbook::walk;
use crate::test_node::client;

/// Thirty seconds of the rules are one, those of the other cluster too; and how often Prometheus looks.
const SHORT: Pace = (30, 30, "250ms");
/// Where a failover, which takes as long as it takes, is to stay below what calls somebody.
const LONG: Pace = (10, 10, "1s");
/// A batch of the other cluster's mover, which may move a message a second, takes longer than its windows.
const LONG_BUT_FOR_SECOND: Pace = (10, 90, "1s");
/// More topics than have series of their own.
const MANY_TOPICS: usize = 320;
/// Long enough for a failover, and for the nodes to notice.
const PAUSE: Duration = Duration::from_secs(8);
/// Long enough for the load to run and for Prometheus to see it.
const WARM: Duration = Duration::from_secs(5);
/// That no alert comes where none is to come.
const LISTENS: Duration = Duration::from_secs(40);
/// Beyond what a node works with.
const WRONG_BY_S: i64 = 3;
/// Of one millisecond.
const HERD: usize = 50_000;
/// Within the hour that alerts look at.
const HERD_AHEAD: Duration = Duration::from_secs(1_800);
const BATCH: usize = 500;
/// About a mebibyte for each of three masters.
const LARGE: usize = 3_000;
/// What a change of the shard count has to move, far ahead.
const FAR: usize = 2_000;
/// A node that is asked to end has ended by then.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// How many times shorter the rules are, of the cluster and of the other one, and how often Prometheus looks.
type Pace = (u64, u64, &'static str);

async fn lab((scale, second, every): Pace, store: &str) -> Lab {
    let lab = Lab::start(scale, second, every, store).await;
    let_pass(WARM, Because::Quiet).await;
    lab.watch.is_quiet_again(None).await;
    lab
}

async fn enqueue(node: &Node, topic: &str, messages: &[Value]) {
    for part in messages.chunks(BATCH) {
        let url = format!("{}/v1/topics/{topic}/messages", node.url());
        assert_eq!(client().post(url).json(&part).send().await.unwrap().status(), 200, "{topic}");
    }
}

/// Messages of two hours from now, for the shards of a topic to be changed.
fn far() -> Vec<Value> {
    (0..FAR).map(|n| json!({"id": format!("far-{n}"), "delay": "2h"})).collect()
}

async fn set_shards(node: &Node, topic: &str, shards: u32) {
    let put = client().put(format!("{}/v1/topics/{topic}/shards", node.url()));
    let answer = put.json(&json!({"shards": shards})).send().await.unwrap();
    assert_eq!(answer.status(), 202, "{topic}");
}

/// The words for a server, for `walk`.
fn words<'a>(server: &'a [(&'static str, String); 2]) -> [(&'static str, &'a str); 2] {
    server.each_ref().map(|(word, given)| (*word, given.as_str()))
}

async fn a_sink_is_down(lab: &Lab) {
    lab.hook.answer(|_| Answer::status(503));
    lab.watch.calls("DuetimeSinkDown").await;
    // All of its topics are down by then, and those that come later are in the same message.
    let_pass(WARM, Because::Quiet).await;
    let calls = lab.watch.calls_for("DuetimeSinkDown");
    let one = json!({"alertname": "DuetimeSinkDown", "job": "duetime", "sink": "out"});
    assert_eq!(calls, [one], "three topics of one sink are one call");
    lab.walk("DuetimeSinkDown", 0, &[("TOPIC", "hooks")], "503").await;
    lab.hook.answer(|_| Answer::status(200));
    lab.watch.is_quiet_again(Some("DuetimeSinkDown")).await;
}

async fn consumers_are_gone(lab: &Lab) {
    lab.consume(false);
    lab.watch.calls("DuetimeConsumersGone").await;
    lab.walk("DuetimeConsumersGone", 1, &[("TOPIC", "orders")], "127.0.0.1").await;
    lab.consume(true);
    lab.watch.is_quiet_again(Some("DuetimeConsumersGone")).await;
}

/// A certificate is about to end, and is replaced while the nodes run.
async fn a_certificate_ends(lab: &Lab) {
    certify(lab.certificates.path(), 1);
    lab.watch.calls("DuetimeCertificateEnds").await;
    let file = lab.certificates.path().join("cert.pem").display().to_string();
    lab.walk("DuetimeCertificateEnds", 0, &[("FILE", &file)], "notAfter=").await;
    certify(lab.certificates.path(), 365);
    lab.watch.is_quiet_again(Some("DuetimeCertificateEnds")).await;
}

/// Another cluster of the same Prometheus is gone, and is not hidden by this one.
async fn the_other_cluster_is_gone(lab: &mut Lab) {
    lab.second.kill();
    lab.watch.calls("DuetimeNoNode").await;
    let calls = lab.watch.calls_for("DuetimeNoNode");
    assert!(calls.iter().all(|call| call["job"] == SECOND), "{calls:?}");
    lab.second.start_again().await;
    lab.watch.is_quiet_again(Some("DuetimeNoNode")).await;
}

async fn a_clock_is_wrong(lab: &Lab) {
    lab.clock.set(WRONG_BY_S);
    lab.watch.calls("DuetimeClockSkew").await;
    lab.walk("DuetimeClockSkew", 0, &[], "ms ahead of the store's").await;
    lab.clock.set(0);
    lab.watch.is_quiet_again(Some("DuetimeClockSkew")).await;
}

/// The servers of Redis that hold a third of the shards.
fn a_third(lab: &Lab) -> [usize; 2] {
    let master = lab.redis.masters()[0];
    [lab.redis.replica_of(master), master]
}

async fn servers_are_away(lab: &mut Lab, servers: &[usize]) {
    servers.iter().for_each(|server| lab.redis.nodes[*server].stop_hard());
    lab.watch.calls("DuetimeStoreAway").await;
    if let Some(there) = (0..lab.redis.nodes.len()).find(|server| !servers.contains(server)) {
        lab.walk("DuetimeStoreAway", 0, &words(&lab.server(there)), "master,fail").await;
    }
    for server in servers {
        lab.redis.nodes[*server].start_again().await;
    }
    lab.redis.settled().await;
    lab.watch.is_quiet_again(Some("DuetimeStoreAway")).await;
}

async fn all_nodes_are_gone(lab: &mut Lab) {
    lab.nodes.iter_mut().for_each(Node::kill);
    lab.watch.calls("DuetimeNoNode").await;
    lab.walk("DuetimeNoNode", 0, &[], "Failed to connect").await;
    join_all(lab.nodes.iter_mut().map(Node::start_again)).await;
    // One that is back later than the first is a ticket of its own for a moment.
    lab.watch.is_quiet_but_for(Some("DuetimeNoNode"), &["DuetimeNodeDown"]).await;
}

/// The record of a topic vanishes, and is made again.
async fn a_record_is_gone(lab: &Lab) {
    let url = lab.nodes[0].url();
    let key = "duetime:topics";
    let master = lab.redis.nodes.iter().find(|node| node.cli(&["HDEL", key, "idle"]).trim() == "1");
    master.expect("one of the masters has the catalogue");
    lab.watch.calls("DuetimeTopicIssue").await;
    lab.walk("DuetimeTopicIssue", 0, &[], "idle").await;
    let adopt = client().post(format!("{url}/v1/topics/idle/adopt"));
    let adopted = adopt.json(&json!({"accept_loss": false})).send().await.unwrap();
    assert_eq!(adopted.status(), 200, "{}", adopted.text().await.unwrap());
    lab.watch.is_quiet_again(Some("DuetimeTopicIssue")).await;
}

async fn there_are_many_topics_and_a_node_restarts(lab: &mut Lab) {
    let url = lab.nodes[0].url();
    let made = (0..MANY_TOPICS).map(async |n| {
        let topic = client().put(format!("{url}/v1/topics/many-{n}")).json(&json!({"shards": 1}));
        topic.send().await.unwrap().status()
    });
    assert!(join_all(made).await.iter().all(|status| *status == 201));
    let_pass(WARM, Because::Quiet).await;
    lab.watch.is_quiet_again(None).await;
    lab.nodes[2].sigterm(WARM).await;
    lab.nodes[2].start_again().await;
    let_pass(PAUSE, Because::Quiet).await;
    lab.watch.is_quiet_but_for(None, &["DuetimeNodeDown"]).await;
}

/// A change of the shard count that moves what waits.
async fn shards_are_changed(lab: &Lab) {
    enqueue(&lab.nodes[0], "orders", &far()).await;
    set_shards(&lab.nodes[0], "orders", 16).await;
    let_pass(LISTENS, Because::Quiet).await;
    lab.watch.is_quiet_again(None).await;
}

/// A change of the shard count that goes on too slowly to be seen, in the other cluster, until that may move more.
async fn a_change_is_stuck(lab: &mut Lab) {
    let topic = client().put(format!("{}/v1/topics/moving", lab.second.url())).json(&json!({"shards": 2}));
    assert_eq!(topic.send().await.unwrap().status(), 201);
    enqueue(&lab.second, "moving", &far()).await;
    set_shards(&lab.second, "moving", 8).await;
    lab.watch.calls("DuetimeResizeStuck").await;
    let calls = lab.watch.calls_for("DuetimeResizeStuck");
    assert!(calls.iter().all(|call| call["job"] == SECOND), "{calls:?}");
    let words = [("TOPIC", "moving"), ("N", "16")];
    walk("DuetimeResizeStuck", &lab.second, None, &words, "at most 1 a second").await;
    lab.second.configure("");
    lab.second.sigterm(ENDS_WITHIN).await;
    lab.second.start_again().await;
    // It was the only node of its cluster.
    lab.watch.is_quiet_but_for(Some("DuetimeResizeStuck"), &["DuetimeNoNode", "DuetimeNodeDown"]).await;
}

/// Messages are to be moved to a server that is full: what calls is that.
async fn a_change_meets_a_full_server(lab: &Lab) {
    let master = lab.redis.masters()[1];
    lab.redis.nodes[master].cli(&["CONFIG", "SET", "maxmemory", "1"]);
    set_shards(&lab.nodes[0], "orders", 24).await;
    lab.watch.calls("DuetimeStoreFull").await;
    let server = lab.server(master);
    lab.walk("DuetimeStoreFull", 0, &words(&server), "maxmemory:1").await;
    lab.walk("DuetimeResizeStuck", 0, &[("TOPIC", "orders")], "a shard that messages move to is full").await;
    lab.redis.nodes[master].cli(&["CONFIG", "SET", "maxmemory", MEMORY]);
    lab.watch.is_quiet_again(Some("DuetimeStoreFull")).await;
}

/// More falls due at one moment than can be delivered in time, and is cancelled.
async fn a_herd_is_ahead(lab: &Lab) {
    let at = SystemTime::UNIX_EPOCH.elapsed().unwrap() + HERD_AHEAD;
    let at = u64::try_from(at.as_millis()).unwrap();
    let herd: Vec<_> = (0..HERD).map(|n| json!({"id": format!("herd-{n}"), "due_at": at})).collect();
    enqueue(&lab.nodes[0], "herd", &herd).await;
    lab.watch.calls("DuetimeHerdAhead").await;
    lab.walk("DuetimeHerdAhead", 0, &[("TOPIC", "herd")], " late").await;
    for some in herd.chunks(BATCH) {
        let ids: Vec<&Value> = some.iter().map(|message| &message["id"]).collect();
        let cancel = client().post(format!("{}/v1/topics/herd/cancel", lab.nodes[0].url()));
        assert_eq!(cancel.json(&json!({"ids": ids})).send().await.unwrap().status(), 200);
    }
    lab.watch.is_quiet_again(Some("DuetimeHerdAhead")).await;
}

/// Its replica takes its place.
async fn a_master_is_paused(lab: &Lab) {
    let paused = &lab.redis.nodes[lab.redis.masters()[1]];
    paused.stall().await;
    let_pass(PAUSE, Because::Quiet).await;
    paused.resume();
    lab.redis.settled().await;
    lab.watch.is_quiet_again(None).await;
}

async fn a_node_is_gone(lab: &mut Lab) {
    lab.nodes[1].kill();
    lab.watch.calls("DuetimeNodeDown").await;
    lab.walk("DuetimeNodeDown", 0, &[], "127.0.0.1").await;
    lab.nodes[1].start_again().await;
    lab.watch.is_quiet_again(Some("DuetimeNodeDown")).await;
}

async fn etcd_is_away_and_then_full(lab: &mut Lab) {
    lab.etcd.stop_hard();
    lab.watch.calls("DuetimeOwnershipDown").await;
    lab.walk("DuetimeOwnershipDown", 0, &[], "etcd is out of reach").await;
    lab.etcd.start_again().await;
    lab.watch.is_quiet_again(Some("DuetimeOwnershipDown")).await;
    lab.etcd.fill();
    lab.watch.calls("DuetimeOwnershipDown").await;
    lab.walk("DuetimeOwnershipDown", 0, &[], "NOSPACE").await;
    // A node that dies now leaves its shards to nobody.
    lab.nodes[1].kill();
    lab.watch.calls("DuetimeNothingScans").await;
    lab.walk("DuetimeNothingScans", 0, &[("TOPIC", "orders")], "nobody").await;
    lab.etcd.make_room();
    lab.nodes[1].start_again().await;
    let besides = ["DuetimeOwnershipDown", "DuetimeNodeDown"];
    lab.watch.is_quiet_but_for(Some("DuetimeNothingScans"), &besides).await;
}

/// A replica is gone, of nodes whose messages are to be on one.
async fn a_replica_is_gone(lab: &mut Lab) {
    let master = lab.redis.masters()[1];
    let replica = lab.redis.replica_of(master);
    lab.redis.nodes[replica].stop_hard();
    lab.watch.calls("DuetimeTooFewReplicas").await;
    lab.walk("DuetimeTooFewReplicas", 0, &words(&lab.server(master)), "connected_slaves:0").await;
    lab.redis.nodes[replica].start_again().await;
    lab.redis.settled().await;
    lab.watch.is_quiet_again(Some("DuetimeTooFewReplicas")).await;
}

async fn a_master_would_evict(lab: &Lab) {
    let master = lab.redis.masters()[0];
    lab.redis.nodes[master].cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    lab.watch.calls("DuetimeMessagesInDanger").await;
    lab.walk("DuetimeMessagesInDanger", 0, &words(&lab.server(master)), "allkeys-lru").await;
    lab.redis.nodes[master].cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    lab.watch.is_quiet_again(Some("DuetimeMessagesInDanger")).await;
}

/// The nodes may do all but one thing, which what looks for strays does all the time.
async fn a_command_is_denied(lab: &Lab) {
    let allow = |what: &str| {
        for server in &lab.redis.nodes {
            server.cli(&["ACL", "SETUSER", "default", what]);
        }
    };
    allow("-zscan");
    lab.watch.calls("DuetimeStoreErrors").await;
    lab.walk("DuetimeStoreErrors", 0, &words(&lab.server(lab.redis.masters()[0])), "zscan").await;
    allow("+@all");
    lab.watch.is_quiet_again(Some("DuetimeStoreErrors")).await;
}

/// Some are not taken beside others that are: a target that takes none is down.
async fn some_are_refused(lab: &Lab) {
    lab.hook.answer(|hit| Answer::status(if hit.header("duetime-id").ends_with(['0', '1', '2']) { 400 } else { 200 }));
    lab.watch.calls("DuetimeDeadLettersGrow").await;
    lab.walk("DuetimeDeadLettersGrow", 0, &[("TOPIC", "hooks")], "400").await;
    lab.hook.answer(|_| Answer::status(200));
    lab.watch.is_quiet_again(Some("DuetimeDeadLettersGrow")).await;
}

/// One of the destinations behind a sink is down, and those beside it are not.
async fn a_destination_is_bad(lab: &Lab) {
    lab.hook.answer(|hit| Answer::status(if hit.header("duetime-id").starts_with("bad-") { 503 } else { 200 }));
    let round = std::sync::atomic::AtomicUsize::new(0);
    let sends = async || {
        let round = round.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let one = |n| json!({"id": format!("{}-{round}-{n}", if n == 0 { "bad" } else { "good" })});
        enqueue(&lab.nodes[0], "tenants", &(0..10).map(one).collect::<Vec<_>>()).await;
    };
    lab.watch.calls_while("DuetimeDeadLettersGrow", sends).await;
    lab.walk("DuetimeDeadLettersGrow", 0, &[("TOPIC", "tenants")], "503").await;
    lab.hook.answer(|_| Answer::status(200));
    lab.watch.is_quiet_again(Some("DuetimeDeadLettersGrow")).await;
}

/// What a server of Redis uses, in bytes.
fn used(server: &RedisServer) -> u64 {
    let info = server.cli(&["INFO", "memory"]);
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("it says so");
    line.trim().parse().unwrap()
}

/// A master is half full, and fills up.
async fn a_master_fills_up(lab: &Lab) {
    let master = lab.redis.masters()[0];
    let limit = (used(&lab.redis.nodes[master]) * 19 / 10).to_string();
    lab.redis.nodes[master].cli(&["CONFIG", "SET", "maxmemory", &limit]);
    let one = |n| json!({"id": format!("large-{n}"), "delay": "2h", "payload": "x".repeat(500)});
    enqueue(&lab.nodes[0], "idle", &(0..LARGE).map(one).collect::<Vec<_>>()).await;
    lab.watch.calls("DuetimeStoreFullIn6h").await;
    lab.walk("DuetimeStoreFullIn6h", 0, &words(&lab.server(master)), "idle").await;
    lab.redis.nodes[master].cli(&["CONFIG", "SET", "maxmemory", MEMORY]);
    lab.watch.is_quiet_again(Some("DuetimeStoreFullIn6h")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_the_gravest_faults_calls_somebody_for_itself_alone() {
    let mut lab = lab(SHORT, "").await;
    a_sink_is_down(&lab).await;
    consumers_are_gone(&lab).await;
    a_certificate_ends(&lab).await;
    the_other_cluster_is_gone(&mut lab).await;
    a_clock_is_wrong(&lab).await;
    let third = a_third(&lab);
    servers_are_away(&mut lab, &third).await;
    all_nodes_are_gone(&mut lab).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_of_a_change_of_shards_and_a_herd_calls_somebody_for_itself_alone() {
    if !is_long() {
        return only_in_long("changes of shard counts and a herd are watched for minutes");
    }
    let mut lab = lab(LONG_BUT_FOR_SECOND, "").await;
    shards_are_changed(&lab).await;
    a_change_is_stuck(&mut lab).await;
    a_change_meets_a_full_server(&lab).await;
    a_herd_is_ahead(&lab).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_of_a_server_calls_somebody_for_itself_alone_and_what_heals_by_itself_calls_nobody() {
    if !is_long() {
        return only_in_long("servers are away for minutes, one after the other");
    }
    let mut lab = lab(LONG, "durability = \"replicas:1\"").await;
    a_replica_is_gone(&mut lab).await;
    lab.watch.fails_over();
    etcd_is_away_and_then_full(&mut lab).await;
    a_node_is_gone(&mut lab).await;
    a_master_is_paused(&lab).await;
    servers_are_away(&mut lab, &(0..6).collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_of_a_topic_or_a_setting_calls_somebody_for_itself_alone() {
    if !is_long() {
        return only_in_long("the windows of the rules pass, one after the other");
    }
    let mut lab = lab(LONG, "").await;
    a_record_is_gone(&lab).await;
    a_master_would_evict(&lab).await;
    a_command_is_denied(&lab).await;
    some_are_refused(&lab).await;
    a_destination_is_bad(&lab).await;
    lab.watch.fails_over();
    there_are_many_topics_and_a_node_restarts(&mut lab).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_fills_up_calls_somebody_before_it_is_full() {
    if !is_long() {
        return only_in_long("a trend has to last for a while");
    }
    let lab = lab(SHORT, "").await;
    a_master_fills_up(&lab).await;
}
