//! A target that is away for many times the visibility timeout: ten minutes, shortened by
//! configuration.

use std::time::Duration;

use duetime_testkit::violation::{is_long, only_in_long};
use duetime_testkit::wait::{Because, let_pass};
use serde_json::json;
use tokio::time::Instant;

use crate::targets::{Nats, Rabbit, Streams, Target, all_of};
use crate::test_node::TestNode;

/// The outage lasts so many visibility timeouts; ten minutes are 20 of the default.
const TIMEOUTS: u32 = 20;
const VISIBILITY: Duration = Duration::from_secs(1);
/// What the sinks here have as their time-outs.
const TIMES: &str = "timeout = \"400ms\"\nconnect_timeout = \"400ms\"\n";
/// Messages before it, and as many in it.
const BACKLOG: usize = 5_000;
/// Calls that may be under way when the breaker opens, and ten probes: their distance doubles from a tenth of a
/// second to five.
const CALLS_MAX: f64 = 8.0 + 10.0;
/// How long a slow machine may stand still meanwhile.
const STANDSTILL: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(60);
const ANOTHER: &str = "RabbitMQ is away each time";

/// A backlog in good times, and another in an outage that begins when its first messages are on their way.
async fn a_long_outage(target: &mut impl Target, down: fn(&mut dyn Target)) {
    let node = TestNode::new(&format!("[sinks.s]\n{}{TIMES}", target.config())).await;
    node.orders(&target.settings(), json!(format!("{}ms", VISIBILITY.as_millis()))).await;
    let began = Instant::now();
    node.backlog("before", BACKLOG, || {}).await;
    node.drained("orders", PATIENCE).await;
    let usual = began.elapsed();

    node.backlog("during", BACKLOG, || down(target)).await;
    node.breaker(true).await;
    let calls = node.metric("duetime_sink_call_seconds_count").await;
    let_pass(VISIBILITY * TIMEOUTS, Because::Fault).await;
    assert_eq!(node.metric("duetime_breaker_open").await, 1.0);
    let calls = node.metric("duetime_sink_call_seconds_count").await - calls;
    assert!(calls <= CALLS_MAX, "{calls} calls to a target that is away");
    let waiting = node.counts("orders").await;
    assert_ne!(waiting["scheduled"], 0, "it went before all were handed over: {waiting}");
    target.proxy().heal();
    node.breaker(false).await;
    let began = Instant::now();
    node.drained("orders", PATIENCE).await;
    let drained = began.elapsed();

    // A call that a slow machine does not answer in its short time fails, and has the one attempt there is.
    let expired = node.metric("duetime_claims_expired_total").await;
    duetime_testkit::in_time!(expired == 0.0, "{expired} claims expired: {}", node.process.output());
    let dead = node.counts("orders").await["dead"].clone();
    duetime_testkit::in_time!(dead == 0, "one attempt was enough for all but {dead}: {}", node.process.output());
    duetime_testkit::in_time!(drained < usual * 3 + STANDSTILL, "{drained:?} for {waiting}, in good times {usual:?}");
    let arrived = all_of(target, 2 * BACKLOG).await;
    assert!(arrived.iter().all(|(_, attempt)| attempt == "1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_outage_of_redis_burns_no_attempt_and_ends_without_a_storm_of_expired_claims() {
    if !is_long() {
        return only_in_long(ANOTHER);
    }
    a_long_outage(&mut Streams::start().await, |target| target.proxy().cut()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_outage_of_rabbitmq_burns_no_attempt_and_ends_without_a_storm_of_expired_claims() {
    a_long_outage(&mut Rabbit::start().await, |target| target.proxy().cut()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_silence_of_nats_burns_no_attempt_and_ends_without_a_storm_of_expired_claims() {
    if !is_long() {
        return only_in_long(ANOTHER);
    }
    a_long_outage(&mut Nats::start().await, |target| target.proxy().lose_answers()).await;
}
