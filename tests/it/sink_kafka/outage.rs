//! A broker that is away, or silent, for many times the visibility timeout: ten minutes, shortened by
//! configuration.

use std::collections::BTreeSet;
use std::time::Duration;

use duetime_testkit::conformance::sink::Received;
use duetime_testkit::servers::Proxy;
use duetime_testkit::violation::{is_long, only_in_long};
use duetime_testkit::wait::{Because, let_pass};
use serde_json::json;
use tokio::time::Instant;

use super::Kafka;
use super::tansu::Broker;
use crate::test_node::{TestNode, ids};

/// The outage lasts so many visibility timeouts; ten minutes are 20 of the default.
const TIMEOUTS: u32 = 20;
const VISIBILITY: Duration = Duration::from_millis(2_500);
const BACKLOG: usize = 5_000;
/// Most messages that the sink has on their way at a time.
const WINDOW: usize = 8 * 256;
/// Longest wait until all is delivered.
const DRAINED_MAX: Duration = Duration::from_secs(120);

/// Answers what arrived after an outage that begins in the middle of the work.
async fn outage(fail: impl Fn(&Proxy)) -> Vec<Received> {
    let broker = Broker::with("orders").await;
    let node = TestNode::new(&format!(
        "[sinks.k]\ntype = \"kafka\"\nbrokers = {:?}\ntimeout = \"800ms\"\nconnect_timeout = \"1s\"\n",
        broker.address()
    ))
    .await;
    let topic = json!({
        "shards": 4, "sink": {"name": "k"}, "visibility_timeout": format!("{}ms", VISIBILITY.as_millis()),
        "retry": {"max_attempts": 1},
    });
    let (status, body) = node.topic("orders", topic).await;
    assert_eq!(status, 201, "{body}");
    let began = Instant::now();
    node.backlog("before", BACKLOG, || {}).await;
    node.drained("orders", DRAINED_MAX).await;
    let usual = began.elapsed();

    node.backlog("during", BACKLOG, || fail(broker.proxy())).await;
    let_pass(VISIBILITY * TIMEOUTS, Because::Fault).await;
    assert_eq!(node.metric("duetime_breaker_open").await, 1.0);
    let waiting = node.counts("orders").await;
    broker.proxy().heal();
    let began = Instant::now();
    node.drained("orders", DRAINED_MAX).await;
    let drained = began.elapsed();

    let expired = node.metric("duetime_claims_expired_total").await;
    // A call that a slow machine does not answer in its short time fails, and has the one attempt there is.
    duetime_testkit::in_time!(expired == 0.0, "{expired} claims expired: {}", node.process.output());
    let dead = node.dead("orders").await;
    duetime_testkit::in_time!(dead.is_empty(), "one attempt was enough for all: {dead:?}");
    // The wait of the breaker may have grown to this before the last probe.
    let noticed = VISIBILITY * TIMEOUTS;
    duetime_testkit::in_time!(drained < usual * 3 + noticed, "{drained:?} for {waiting}, in good times {usual:?}");
    let received = broker.reader().fetch();
    assert!(received.iter().all(|message| message.attempt == "1"));
    assert_eq!(received.iter().map(|message| &message.id).collect::<BTreeSet<_>>().len(), 2 * BACKLOG);
    received
}

/// A cluster that refuses connections, from the start or after it took some; nothing is sent to it, so nothing is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_away_loses_no_message_that_is_delivered_at_most_once() {
    for warm in [0, 100] {
        let mut kafka = Kafka::with("orders");
        let node = TestNode::new(&format!("[sinks.k]\n{}", kafka.config())).await;
        let topic = json!({"shards": 4, "sink": {"name": "k"}, "delivery": "at-most-once"});
        let (status, body) = node.topic("orders", topic).await;
        assert_eq!(status, 201, "{body}");
        node.enqueue("orders", ids("before", warm)).await;
        // They leave the store as they are claimed, so that only the cluster knows when they have arrived.
        let mut received = Vec::new();
        let end = Instant::now() + DRAINED_MAX;
        while received.len() < warm {
            duetime_testkit::in_time!(Instant::now() < end, "{} of {warm} arrived", received.len());
            received.extend(kafka.reader.fetch());
        }
        kafka.cluster.down();
        // Long enough for the library to see it.
        let_pass(Duration::from_secs(1), Because::Quiet).await;
        node.enqueue("orders", ids("during", 500)).await;
        node.breaker(true).await;
        let_pass(Duration::from_secs(3), Because::Fault).await;
        kafka.cluster.up();
        node.breaker(false).await;
        while received.len() < warm + 500 {
            duetime_testkit::in_time!(Instant::now() < end, "{} arrived: {}", received.len(), node.process.output());
            received.extend(kafka.reader.fetch());
        }
        let arrived = received.iter().map(|message| &message.id).collect::<BTreeSet<_>>().len();
        assert_eq!((arrived, received.len()), (warm + 500, warm + 500), "{}", node.process.output());
    }
}

/// Both at once, for they mostly wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_outage_or_silence_of_kafka_burns_no_attempt_and_ends_without_a_storm_of_expired_claims() {
    if !is_long() {
        return only_in_long("RabbitMQ is away each time");
    }
    let (_, received) = tokio::join!(outage(Proxy::cut), outage(Proxy::hold_answers));
    let twice = received.len() - 2 * BACKLOG;
    assert!(twice <= WINDOW, "{twice} twice, though no more were on their way");
}
