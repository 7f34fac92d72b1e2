//! Faults and alerts: for each fault exactly the named alert calls somebody, and it ends with the fault.

use std::time::Duration;

use duetime_testkit::servers::Node;
use duetime_testkit::violation::{is_long, only_in_long};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::Answer;
use futures::future::join_all;
use serde_json::json;

use super::lab::Lab;
use crate::test_node::client;

/// Thirty seconds of the rules are one; and how often Prometheus looks.
const SHORT: (u64, &str) = (30, "250ms");
/// Where a failover, which takes as long as it takes, is to stay below what calls somebody.
const LONG: (u64, &str) = (10, "1s");
/// More topics than have series of their own.
const MANY_TOPICS: usize = 320;
/// Long enough for a failover, and for the nodes to notice.
const PAUSE: Duration = Duration::from_secs(8);
/// Long enough for the load to run and for Prometheus to see it.
const WARM: Duration = Duration::from_secs(5);

async fn lab((scale, every): (u64, &str)) -> Lab {
    let lab = Lab::start(scale, every).await;
    let_pass(WARM, Because::Quiet).await;
    lab.is_quiet_again(None).await;
    lab
}

async fn a_sink_is_down(lab: &Lab) {
    lab.hook.answer(|_| Answer::status(503));
    lab.calls("DuetimeSinkDown").await;
    // All of its topics are down by then, and those that come later are in the same message.
    let_pass(WARM, Because::Quiet).await;
    let calls = lab.calls_for("DuetimeSinkDown");
    let one = json!({"alertname": "DuetimeSinkDown", "job": "duetime", "sink": "out"});
    assert_eq!(calls, [one], "three topics of one sink are one call");
    lab.hook.answer(|_| Answer::status(200));
    lab.is_quiet_again(Some("DuetimeSinkDown")).await;
}

async fn consumers_are_gone(lab: &Lab) {
    lab.consume(false);
    lab.calls("DuetimeConsumersGone").await;
    lab.consume(true);
    lab.is_quiet_again(Some("DuetimeConsumersGone")).await;
}

/// The servers of Redis that hold a third of the shards.
fn a_third(lab: &Lab) -> [usize; 2] {
    let master = lab.redis.masters()[0];
    [lab.redis.replica_of(master), master]
}

async fn servers_are_away(lab: &mut Lab, servers: &[usize]) {
    servers.iter().for_each(|server| lab.redis.nodes[*server].stop_hard());
    lab.calls("DuetimeStoreAway").await;
    for server in servers {
        lab.redis.nodes[*server].start_again().await;
    }
    lab.redis.settled().await;
    lab.is_quiet_again(Some("DuetimeStoreAway")).await;
}

async fn all_nodes_are_gone(lab: &mut Lab) {
    lab.nodes.iter_mut().for_each(Node::kill);
    lab.calls("DuetimeNoNode").await;
    join_all(lab.nodes.iter_mut().map(Node::start_again)).await;
    // One that is back later than the first is a ticket of its own for a moment.
    lab.is_quiet_but_for(Some("DuetimeNoNode"), "DuetimeNodeDown").await;
}

/// The record of a topic vanishes, and is made again.
async fn a_record_is_gone(lab: &Lab) {
    let url = lab.nodes[0].url();
    let key = "duetime:topics";
    let master = lab.redis.nodes.iter().find(|node| node.cli(&["HDEL", key, "idle"]).trim() == "1");
    master.expect("one of the masters has the catalogue");
    lab.calls("DuetimeTopicIssue").await;
    let adopt = client().post(format!("{url}/v1/topics/idle/adopt"));
    let adopted = adopt.json(&json!({"accept_loss": false})).send().await.unwrap();
    assert_eq!(adopted.status(), 200, "{}", adopted.text().await.unwrap());
    lab.is_quiet_again(Some("DuetimeTopicIssue")).await;
}

async fn there_are_many_topics_and_a_node_restarts(lab: &mut Lab) {
    let url = lab.nodes[0].url();
    let made = (0..MANY_TOPICS).map(async |n| {
        let topic = client().put(format!("{url}/v1/topics/many-{n}")).json(&json!({"shards": 1}));
        topic.send().await.unwrap().status()
    });
    assert!(join_all(made).await.iter().all(|status| *status == 201));
    let_pass(WARM, Because::Quiet).await;
    lab.is_quiet_again(None).await;
    lab.nodes[2].sigterm(WARM).await;
    lab.nodes[2].start_again().await;
    let_pass(PAUSE, Because::Quiet).await;
    lab.is_quiet_but_for(None, "DuetimeNodeDown").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_the_gravest_faults_calls_somebody_for_itself_alone() {
    let mut lab = lab(SHORT).await;
    a_sink_is_down(&lab).await;
    consumers_are_gone(&lab).await;
    let third = a_third(&lab);
    servers_are_away(&mut lab, &third).await;
    all_nodes_are_gone(&mut lab).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_calls_somebody_for_itself_alone_and_what_heals_by_itself_calls_nobody() {
    if !is_long() {
        return only_in_long("the whole matrix of faults and alerts takes minutes");
    }
    let mut lab = lab(LONG).await;
    let url = lab.nodes[0].url();
    // A change of the shard count that moves what waits.
    let many: Vec<_> = (0..5_000).map(|n| json!({"id": format!("far-{n}"), "delay": "2h"})).collect();
    for part in many.chunks(500) {
        client().post(format!("{url}/v1/topics/orders/messages")).json(&json!(part)).send().await.unwrap();
    }
    client().put(format!("{url}/v1/topics/orders/shards")).json(&json!({"shards": 16})).send().await.unwrap();
    let_pass(Duration::from_secs(40), Because::Quiet).await;
    lab.is_quiet_again(None).await;
    lab.fails_over();
    lab.nodes[1].kill();
    lab.calls("DuetimeNodeDown").await;
    lab.nodes[1].start_again().await;
    lab.is_quiet_again(Some("DuetimeNodeDown")).await;
    lab.etcd.stop_hard();
    lab.calls("DuetimeOwnershipDown").await;
    lab.etcd.start_again().await;
    lab.is_quiet_again(Some("DuetimeOwnershipDown")).await;
    let paused = &lab.redis.nodes[lab.redis.masters()[1]];
    paused.stall().await;
    let_pass(PAUSE, Because::Quiet).await;
    paused.resume();
    lab.redis.settled().await;
    lab.is_quiet_again(None).await;
    a_record_is_gone(&lab).await;
    there_are_many_topics_and_a_node_restarts(&mut lab).await;
    let master = lab.redis.masters()[0];
    lab.redis.nodes[master].cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    lab.calls("DuetimeMessagesInDanger").await;
    lab.redis.nodes[master].cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    lab.is_quiet_again(Some("DuetimeMessagesInDanger")).await;
    // Some are refused beside others that are taken: a target that refuses all of them is down.
    lab.hook.answer(|hit| Answer::status(if hit.header("duetime-id").ends_with(['0', '1', '2']) { 400 } else { 200 }));
    lab.calls("DuetimeDeadLettersGrow").await;
    lab.hook.answer(|_| Answer::status(200));
    lab.is_quiet_again(Some("DuetimeDeadLettersGrow")).await;
    servers_are_away(&mut lab, &(0..6).collect::<Vec<_>>()).await;
}
