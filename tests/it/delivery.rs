//! Order timeouts end to end on a real node: most are cancelled, the rest are delivered to a webhook
//! and to consumers, and the history of the run is judged; also when the node is killed in between.

mod orders;

use std::time::Duration;

use duetime_testkit::history::FaultKind;
use duetime_testkit::servers::{Node, RedisOptions, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::{Webhook, promised};

use orders::Run;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
/// After the last enqueue, while some are delivered and others still cancelled.
const UNTIL_KILL: Duration = Duration::from_millis(1200);
const DOWN: Duration = Duration::from_millis(300);

async fn calm(node: Node, hook: Webhook) {
    let run = Run::start(&node, &hook).await;
    run.enqueue().await;
    run.change_most().await;
    let verdict = run.finish(&node).await;
    verdict.assert_good();
    promised!(verdict.explained.is_empty(), "no duplicate without a fault: {:?}", verdict.explained);
}

async fn killed(mut node: Node, hook: Webhook) {
    let run = Run::start(&node, &hook).await;
    run.enqueue().await;
    let changes = tokio::spawn(run.clone().change_most_of());
    for _ in 0..2 {
        let_pass(UNTIL_KILL, Because::Rate).await;
        run.recorder.fault_begins(FaultKind::NodeKilled);
        node.kill();
        let_pass(DOWN, Because::Fault).await;
        node.start_again().await;
        run.recorder.fault_ends(FaultKind::NodeKilled);
    }
    changes.await.unwrap();
    run.finish(&node).await.assert_good();
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_are_not_paid_are_delivered_once_and_in_time_on_the_embedded_store() {
    let hook = Webhook::start();
    calm(Node::start_embedded(PROGRAM, &orders::config(&hook)).await, hook).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_are_not_paid_are_delivered_once_and_in_time_on_redis() {
    let redis = RedisServer::start().await;
    let hook = Webhook::start();
    calm(Node::start(PROGRAM, &redis.url(), &orders::config(&hook)).await, hook).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_node_on_the_embedded_store_loses_no_order() {
    let hook = Webhook::start();
    killed(Node::start_embedded(PROGRAM, &orders::config(&hook)).await, hook).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_node_on_redis_loses_no_order() {
    let redis = RedisServer::start_with(RedisOptions { append_only: true, ..RedisOptions::default() }).await;
    let hook = Webhook::start();
    killed(Node::start(PROGRAM, &redis.url(), &orders::config(&hook)).await, hook).await;
}
