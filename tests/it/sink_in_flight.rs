//! How much a target is given before it has answered: enough to keep it busy, and never more than promised.

use std::ops::RangeInclusive;
use std::time::Duration;

use duetime_testkit::wait::{Because, let_pass};
use serde_json::json;
use tokio::time::Instant;

use crate::targets::{Hook, Nats, Rabbit, Streams, Target, all_of};
use crate::test_node::{TestNode, ids};

/// The sinks wait longer than the tests do.
const TIMES: &str = "timeout = \"2m\"\n";
/// Messages before the answers are held back, so that what has to be opened is open.
const WARM: usize = 1_000;
/// More than any sink takes at once.
const BACKLOG: usize = 3_000;
/// What a broker is given at once: more than one batch of 128 messages, and at most eight.
const OF_A_BROKER: RangeInclusive<usize> = 129..=8 * 128;
/// What a webhook is given at once: as many requests as its default `concurrency` says.
const OF_A_WEBHOOK: RangeInclusive<usize> = 64..=64;
/// Nothing more comes when nothing came for this long.
const QUIET: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);

/// A target that takes everything and answers nothing gets so many messages, and no more.
async fn all_wait_for_answers(target: &mut impl Target, wanted: RangeInclusive<usize>) {
    let node = TestNode::new(&format!("[sinks.s]\n{}{TIMES}", target.config())).await;
    node.orders(&target.settings(), json!("10m")).await;
    node.enqueue("orders", ids("warm", WARM)).await;
    node.drained("orders", PATIENCE).await;
    all_of(target, WARM).await;

    target.proxy().hold_answers();
    let all: Vec<String> = ids("held", BACKLOG).collect();
    for part in all.chunks(1_000) {
        node.enqueue("orders", part.iter().cloned()).await;
    }
    let end = Instant::now() + PATIENCE;
    let (mut outstanding, mut since) = (0, Instant::now());
    while outstanding < *wanted.start() || since.elapsed() < QUIET {
        duetime_testkit::in_time!(Instant::now() < end, "{outstanding} are outstanding:\n{}", node.process.output());
        let now = target.arrived().await.len() - WARM;
        if now > outstanding {
            (outstanding, since) = (now, Instant::now());
        }
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
    assert!(wanted.contains(&outstanding), "{outstanding} are outstanding, {wanted:?} should be");
    let counts = node.counts("orders").await;
    let held = counts["in_flight"].as_u64().unwrap() + counts["scheduled"].as_u64().unwrap();
    assert_eq!(held, BACKLOG as u64, "none of them is settled: {counts}");

    target.proxy().heal();
    node.drained("orders", PATIENCE).await;
    assert_eq!(node.counts("orders").await["dead"], 0);
    let arrived = all_of(target, WARM + BACKLOG).await;
    assert_eq!(arrived.len(), WARM + BACKLOG, "held answers are no reason to send anything twice");
    assert!(arrived.iter().all(|(_, attempt)| attempt == "1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_has_many_messages_in_flight_and_never_more_than_eight_batches() {
    all_wait_for_answers(&mut Streams::start().await, OF_A_BROKER).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_has_many_messages_in_flight_and_never_more_than_eight_batches() {
    all_wait_for_answers(&mut Nats::start().await, OF_A_BROKER).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_has_many_messages_in_flight_and_never_more_than_eight_batches() {
    all_wait_for_answers(&mut Rabbit::start().await, OF_A_BROKER).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_has_as_many_requests_in_flight_as_its_concurrency_says() {
    all_wait_for_answers(&mut Hook::start().await, OF_A_WEBHOOK).await;
}
