//! A target that is away is left alone: one small probe at a time finds out when it is back.

use std::sync::Arc;
use std::time::Duration;

use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::Answer;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::targets::{Hook, Nats, Streams, Target, all_of};
use crate::test_node::{TestNode, ids};

/// How long the target is away.
const AWAY: Duration = Duration::from_secs(5);
/// Probes in that time, whose distance doubles from a tenth of a second, and one that may be under way.
const PROBES: usize = 7;
/// Messages of a probe.
const OF_A_PROBE: usize = 8;
/// Messages of the largest probe.
const PROBE_MAX: usize = 256;
const BACKLOG: usize = 200;
/// The webhook here answers after this time.
const SLOW: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(60);

/// One message finds out that the target is away; the others that fall due meanwhile then only meet the breaker.
async fn opened(node: &TestNode) {
    node.enqueue("orders", ids("first", 1)).await;
    node.breaker(true).await;
}

/// It was noticed once that the target went, and once that it came back: more often only where calls ran out of time.
async fn noticed_once(node: &TestNode) {
    for said in ["sink is down, claims stop until it answers", "sink answers again, claims go on"] {
        let output = node.until_said(said, 1).await;
        let times = output.matches(said).count();
        duetime_testkit::in_time!(times == 1, "{said:?} is said {times} times: {output}");
    }
}

/// The target is used again, and all of the backlog has come once.
async fn closed(node: &TestNode, target: &mut impl Target) {
    node.breaker(false).await;
    node.drained("orders", PATIENCE).await;
    assert_eq!(node.counts("orders").await["dead"], 0, "{}", node.process.output());
    let arrived = all_of(target, BACKLOG + 1).await;
    assert!(arrived.iter().all(|(_, attempt)| attempt == "1"));
    noticed_once(node).await;
}

/// Connections to a broker that ends them at once.
async fn one_connection_for_each_probe(target: &mut impl Target) {
    let node = TestNode::new(&format!("[sinks.s]\n{}", target.config())).await;
    node.orders(&target.settings(), json!("1m")).await;
    target.proxy().cut();
    opened(&node).await;
    node.enqueue("orders", ids("held", BACKLOG)).await;
    let (asked, calls) = (target.proxy().connections(), node.metric("duetime_sink_call_seconds_count").await);
    let_pass(AWAY, Because::Fault).await;
    let asked = target.proxy().connections() - asked;
    let calls = node.metric("duetime_sink_call_seconds_count").await - calls;
    assert!((1..=PROBES).contains(&asked), "{asked} connections, {calls} calls");
    assert!((1.0..=PROBES as f64).contains(&calls), "{asked} connections, {calls} calls");
    assert_eq!(node.metric("duetime_breaker_open").await, 1.0);
    let told = node.metric("duetime_sink_errors_total").await;
    assert!((1.0..=1.0 + (PROBES * OF_A_PROBE) as f64).contains(&told), "{told} messages were tried");
    target.proxy().heal();
    closed(&node, target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_server_that_is_away_is_asked_by_one_probe_at_a_time() {
    one_connection_for_each_probe(&mut Streams::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nats_server_that_is_away_is_asked_by_one_probe_at_a_time() {
    one_connection_for_each_probe(&mut Nats::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_answers_503_for_everything_is_sent_a_probe_at_a_time_until_one_request_is_taken() {
    let mut target = Hook::start().await;
    let node = TestNode::new(&format!("[sinks.s]\n{}", target.config())).await;
    node.orders(&target.settings(), json!("1m")).await;
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let answer_with = |status: u16| {
        let noted = arrivals.clone();
        target.hook.answer(move |_| {
            noted.lock().push(Instant::now());
            Answer::status(status).after(SLOW)
        });
    };
    answer_with(503);
    opened(&node).await;
    node.enqueue("orders", ids("held", BACKLOG)).await;
    arrivals.lock().clear();
    let_pass(AWAY, Because::Fault).await;
    let probes = std::mem::take(&mut *arrivals.lock());
    // Each probe that is answered, but for none of its messages, is followed by one of twice as many.
    let most = OF_A_PROBE * ((1 << PROBES) - 1);
    assert!((1..=most).contains(&probes.len()), "{} requests", probes.len());
    assert_eq!(node.metric("duetime_breaker_open").await, 1.0);
    let counts = node.counts("orders").await;
    assert_eq!(counts["dead"], 0, "{counts}");

    answer_with(200);
    node.breaker(false).await;
    node.drained("orders", PATIENCE).await;
    let arrivals = std::mem::take(&mut *arrivals.lock());
    let answered = arrivals[0] + SLOW;
    let before: Vec<Instant> = arrivals.iter().copied().filter(|at| *at < answered).collect();
    assert!(before.len() <= PROBE_MAX, "{} requests before one was taken", before.len());
    noticed_once(&node).await;
    assert!(target.arrived().await.iter().all(|(_, attempt)| attempt == "1"));
}
