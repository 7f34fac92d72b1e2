//! Topics of `delivery = "at-most-once"`: a target to which no connection can be made loses no message, for none was sent.

use std::time::Duration;

use duetime_testkit::wait::{Because, let_pass};
use serde_json::json;

#[cfg(feature = "kafka")]
use crate::sink_kafka::Broker;
use crate::targets::{Hook, Nats, Rabbit, Streams, Target, all_of};
use crate::test_node::{TestNode, ids};

/// Messages before the outage, and in it.
const BEFORE: usize = 100;
const DURING: usize = 500;
/// The outage lasts this long, which is many probes.
const AWAY: Duration = Duration::from_secs(3);
/// A connection that was closed is known to be after this.
const NOTICED: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(60);

/// A target that goes away while nothing is under way, and comes back.
async fn loses_nothing<T: Target>(mut target: T, warm: usize, down: fn(&mut T), up: fn(&mut T)) {
    let node = TestNode::new(&format!("[sinks.s]\n{}", target.config())).await;
    let mut sink = target.settings();
    sink["name"] = json!("s");
    let (status, body) = node.topic("orders", json!({"shards": 4, "sink": sink, "delivery": "at-most-once"})).await;
    assert_eq!(status, 201, "{body}");
    node.enqueue("orders", ids("before", warm)).await;
    node.drained("orders", PATIENCE).await;
    all_of(&mut target, warm).await;
    down(&mut target);
    let_pass(NOTICED, Because::Quiet).await;
    node.enqueue("orders", ids("during", DURING)).await;
    node.breaker(true).await;
    let_pass(AWAY, Because::Fault).await;
    up(&mut target);
    node.breaker(false).await;
    node.drained("orders", PATIENCE).await;
    let arrived = all_of(&mut target, warm + DURING).await;
    assert_eq!(arrived.len(), warm + DURING, "each once");
    let said = "sink answers again, claims go on";
    let times = node.until_said(said, 1).await.matches(said).count();
    duetime_testkit::in_time!(times == 1, "{said:?} is said {times} times: {}", node.process.output());
    assert!(!node.process.output().contains("are gone"), "{}", node.process.output());
}

fn cut<T: Target>(target: &mut T) {
    target.proxy().cut();
}

fn heal<T: Target>(target: &mut T) {
    target.proxy().heal();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_refuses_connections_loses_no_message() {
    for warm in [0, BEFORE] {
        loses_nothing(Hook::direct().await, warm, |hook| hook.hook.stop(), |hook| hook.hook.start_again()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_server_that_is_away_loses_no_message() {
    for warm in [0, BEFORE] {
        loses_nothing(Streams::start().await, warm, cut, heal).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nats_server_that_is_away_loses_no_message() {
    for warm in [0, BEFORE] {
        loses_nothing(Nats::start().await, warm, cut, heal).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rabbitmq_broker_that_is_away_loses_no_message() {
    for warm in [0, BEFORE] {
        loses_nothing(Rabbit::start().await, warm, cut, heal).await;
    }
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread")]
async fn a_kafka_broker_that_is_away_loses_no_message() {
    for warm in [0, BEFORE] {
        loses_nothing(Broker::start().await, warm, cut, heal).await;
    }
}
