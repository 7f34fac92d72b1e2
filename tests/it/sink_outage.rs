//! A target that is away for many times the visibility timeout: ten minutes, shortened by
//! configuration.

use std::time::Duration;

use duetime_testkit::violation::{is_long, only_in_long};
use duetime_testkit::wait::{Because, let_pass};
use serde_json::json;
use tokio::time::Instant;

#[cfg(feature = "kafka")]
use crate::sink_kafka::Broker;
use crate::targets::{Nats, Rabbit, Streams, Target, all_of};
use crate::test_node::TestNode;

/// The outage lasts so many visibility timeouts; ten minutes are 20 of the default.
const TIMEOUTS: u32 = 20;
/// Messages before it, and as many in it.
const BACKLOG: usize = 5_000;
/// Calls that may be under way when the breaker opens, and the probes while their distance doubles from a tenth of a
/// second to five; after that there is one in [`APART`].
const CALLS_MAX: f64 = 8.0 + 6.0;
const APART: Duration = Duration::from_secs(5);
/// How long a slow machine may stand still meanwhile.
const STANDSTILL: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(120);
/// Most messages that a sink has on their way at a time, and whose answers may be lost.
const WINDOW: usize = 8 * 256;
const ANOTHER: &str = "RabbitMQ is away each time";

/// A backlog in good times, and another in an outage that begins when its first messages are on their way.
async fn a_long_outage(target: &mut impl Target, down: fn(&mut dyn Target)) {
    let answers_within = target.answers_within();
    let visibility = answers_within * 5 / 2;
    let (wait, config) = (answers_within.as_millis(), target.config());
    let times = format!("timeout = \"{wait}ms\"\nconnect_timeout = \"{wait}ms\"\n");
    let node = TestNode::new(&format!("[sinks.s]\n{config}{times}")).await;
    node.orders(&target.settings(), json!(format!("{}ms", visibility.as_millis()))).await;
    let began = Instant::now();
    node.backlog("before", BACKLOG, || {}).await;
    node.drained("orders", PATIENCE).await;
    let usual = began.elapsed();

    node.backlog("during", BACKLOG, || down(target)).await;
    node.breaker(true).await;
    let calls = node.metric("duetime_sink_call_seconds_count").await;
    let outage = visibility * TIMEOUTS;
    let_pass(outage, Because::Fault).await;
    assert_eq!(node.metric("duetime_breaker_open").await, 1.0);
    let calls = node.metric("duetime_sink_call_seconds_count").await - calls;
    let most = CALLS_MAX + outage.div_duration_f64(APART);
    assert!(calls <= most, "{calls} calls to a target that is away");
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
    let twice = arrived.len() - 2 * BACKLOG;
    assert!(twice <= WINDOW, "{twice} twice, though no more were on their way");
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

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread")]
async fn a_long_outage_or_silence_of_kafka_burns_no_attempt_and_ends_without_a_storm_of_expired_claims() {
    if !is_long() {
        return only_in_long(ANOTHER);
    }
    // Both at once, for they mostly wait.
    let (mut away, mut silent) = tokio::join!(Broker::start(), Broker::start());
    tokio::join!(
        a_long_outage(&mut away, |target| target.proxy().cut()),
        a_long_outage(&mut silent, |target| target.proxy().hold_answers()),
    );
}
