//! A store of several servers, of which one answers nothing: the shards of the others are not delayed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use duetime_core::{ClaimAsk, RateLimit, ServerId, ShardCount, StoreError, TopicConfig, Verdict};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::doubles::{TestSink, WiredStore, each};
use super::node::{TestNode, ms, name, secs, with_sink, without_sink};
use crate::DispatchConfig;

const SHARDS: u32 = 12;
const SERVERS: usize = 3;
const SILENT: ServerId = ServerId(1);
/// What a shard of another server is late at most.
const LATE_MAX: Duration = Duration::from_millis(30);

/// Messages due one after the other on shards of all servers: `(id, due, whether its server is silent)`.
type Put = Vec<(String, Instant, bool)>;

/// When each message came to the sink first.
type Came = Arc<Mutex<HashMap<String, Instant>>>;

/// Has the sink note when each message comes.
fn noted(sink: &TestSink) -> Came {
    let came = Came::default();
    let noted = came.clone();
    sink.behave(each(move |delivery| {
        noted.lock().entry(delivery.id.to_string()).or_insert_with(Instant::now);
        Verdict::Accepted
    }));
    came
}

async fn node(config: TopicConfig, deaf: bool, sink: Arc<TestSink>) -> TestNode {
    let store = WiredStore::new().await;
    store.servers.store(SERVERS, Ordering::SeqCst);
    store.deaf.store(deaf, Ordering::SeqCst);
    let node = TestNode::on(store, sink, DispatchConfig::default());
    node.set_topic(TopicConfig { shards: ShardCount::Fixed(SHARDS), ..config }).await;
    node.pass(secs(2)).await;
    node
}

fn falls_silent(node: &TestNode) {
    node.store.silent.lock().insert(SILENT);
}

/// One message for each shard, every so often, due after each of these.
async fn put(node: &TestNode, tag: &str, delays: &[Duration], rounds: usize) -> Put {
    let mut put = Put::new();
    for round in 0..rounds {
        for delay in delays {
            for index in 0..SHARDS {
                let id = node.ids_of(index, &format!("{tag}-{round}-{}", delay.as_millis()), 1).await.remove(0);
                node.put(&id, *delay).await;
                put.push((id, Instant::now() + *delay, node.store.server_of_index(index) == SILENT));
            }
        }
        node.pass(ms(170)).await;
    }
    put
}

/// Waits until the last of these that can come has come, and returns the longest lateness.
async fn latest(node: &TestNode, came: &Came, put: &Put) -> Duration {
    let of_others: Vec<_> = put.iter().filter(|(_, _, silent)| !silent).collect();
    let end = of_others.iter().map(|(_, due, _)| *due).max().unwrap() + secs(30);
    loop {
        let came = came.lock().clone();
        let late = of_others.iter().map(|(id, due, _)| Some(came.get(id)?.saturating_duration_since(*due)));
        if let Some(late) = late.collect::<Option<Vec<_>>>() {
            return late.into_iter().max().unwrap();
        }
        assert!(Instant::now() < end, "{} came of {}", came.len(), of_others.len());
        node.pass(ms(100)).await;
    }
}

const DELAYS: [Duration; 3] = [Duration::from_millis(1_500), Duration::from_secs(4), Duration::from_secs(20)];

async fn the_others_are_on_time(config: TopicConfig, deaf: bool, sink: Arc<TestSink>) -> TestNode {
    let came = noted(&sink);
    let node = node(config, deaf, sink).await;
    // Some of the silent server's are due when it falls silent, and some of everybody's a moment after.
    let mut all = put(&node, "before", &[ms(400)], 1).await;
    node.pass(ms(225)).await;
    falls_silent(&node);
    if deaf {
        // Until then the answers to claims say what comes next; from then on only polls do.
        node.pass(secs(3)).await;
    }
    all.extend(put(&node, "after", &DELAYS, 8).await);
    let late = latest(&node, &came, &all).await;
    assert!(late <= LATE_MAX, "{late:?} late");
    node
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_delays_no_shard_of_the_others() {
    let node = the_others_are_on_time(with_sink(), false, TestSink::new(4, 16)).await;
    // And what waited comes as soon as it is back, without an attempt too many.
    node.store.silent.lock().clear();
    node.pass(secs(3)).await;
    assert_eq!(node.survey().await, Default::default());
    let calls = node.sink.calls.lock();
    assert!(calls.iter().flatten().all(|delivery| delivery.attempt == 1));
}

#[tokio::test(start_paused = true)]
async fn nor_without_hints() {
    the_others_are_on_time(with_sink(), true, TestSink::new(4, 16)).await;
}

#[tokio::test(start_paused = true)]
async fn nor_where_the_sink_takes_few_at_a_time() {
    the_others_are_on_time(with_sink(), false, TestSink::new(1, 4)).await;
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_is_not_used_up_by_a_silent_server() {
    let limit = RateLimit { per_second: 500.0, burst: 64 };
    let sink = TestSink::new(4, 16);
    let came = noted(&sink);
    let node = node(TopicConfig { rate_limit: Some(limit), ..with_sink() }, false, sink).await;
    falls_silent(&node);
    let all = put(&node, "m", &DELAYS, 4).await;
    let late = latest(&node, &came, &all).await;
    // Its claims hold tokens until they give them back.
    assert!(late <= ms(250), "{late:?} late");
}

#[tokio::test(start_paused = true)]
async fn the_gauges_of_the_others_are_taken_while_one_is_silent() {
    let node = node(with_sink(), false, TestSink::new(4, 16)).await;
    falls_silent(&node);
    let count = SHARDS as usize;
    for index in 0..SHARDS {
        let id = node.ids_of(index, "far", 1).await.remove(0);
        node.put(&id, secs(3_600)).await;
    }
    node.pass(secs(8)).await;
    let others = count - count / SERVERS;
    assert_eq!(node.counts().scheduled.get(), i64::try_from(others).unwrap());
}

fn ask(wait: Duration) -> ClaimAsk {
    // Longer than any of these tests: nobody acks.
    ClaimAsk { max: 50, wait, visibility: Some(secs(300)), may_remove: true }
}

#[tokio::test(start_paused = true)]
async fn what_falls_due_on_a_server_that_does_not_answer_grows_old_in_the_gauges() {
    let (mine, all) = (i64::from(SHARDS) / SERVERS as i64, i64::from(SHARDS));
    let node = node(with_sink(), true, TestSink::new(4, 16)).await;
    let index = (0..SHARDS).find(|index| node.store.server_of_index(*index) == SILENT).unwrap();
    let id = node.ids_of(index, "late", 1).await.remove(0);
    node.put(&id, secs(20)).await;
    node.pass(secs(10)).await;
    let seen = || (node.counts().oldest_due_age.get(), node.counts().shards_unreachable.get());
    assert_eq!(seen(), (0.0, 0));
    falls_silent(&node);
    node.pass(secs(8)).await;
    assert_eq!(seen(), (0.0, mine), "its time has not come");
    node.pass(secs(100)).await;
    let (age, unreachable) = seen();
    assert!((85.0..100.0).contains(&age) && unreachable == mine, "{age} s, {unreachable} shards");
    node.store.silent.lock().extend((0..SERVERS).map(|server| ServerId(server.try_into().unwrap())));
    node.pass(secs(20)).await;
    let (older, unreachable) = seen();
    assert!(older > age + 10.0 && unreachable == all, "{older} s, {unreachable} shards: no server answers");
    node.store.silent.lock().clear();
    node.pass(secs(20)).await;
    assert_eq!(seen(), (0.0, 0), "it came, and all answer");
}

#[tokio::test(start_paused = true)]
async fn consumers_get_what_is_due_on_the_others_at_its_time() {
    let node = node(without_sink(), false, TestSink::new(1, 1)).await;
    let mut all = put(&node, "before", &[ms(400)], 1).await;
    node.pass(ms(225)).await;
    falls_silent(&node);
    let consumers = node.engine.consumers();
    let claiming = tokio::spawn(async move {
        let mut got = HashMap::new();
        let until = Instant::now() + secs(28);
        while Instant::now() < until {
            let handed = consumers.claim(&name(), ask(secs(5))).await.expect("other servers answer");
            for message in handed.iter().flat_map(|handed| handed.messages.iter().cloned()) {
                assert_eq!(message.attempt, 1);
                got.insert(message.id.to_string(), Instant::now());
            }
        }
        got
    });
    all.extend(put(&node, "after", &DELAYS, 8).await);
    let got = claiming.await.unwrap();
    let of_others = all.iter().filter(|(_, _, silent)| !silent);
    let late = of_others.map(|(id, due, _)| got[id].saturating_duration_since(*due)).max().unwrap();
    // At the moment it falls silent nobody knows yet: a consumer that has something already waits a little.
    assert!(late <= crate::asker::GATHER_MAX, "{late:?} late");
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_asked_a_silent_server_for_all_it_takes_asks_the_others_all_the_same() {
    let node = node(without_sink(), false, TestSink::new(1, 1)).await;
    // How large messages are is known.
    put(&node, "before", &[ms(0)], 1).await;
    let consumers = node.engine.consumers();
    while !consumers.claim(&name(), ask(ms(0))).await.unwrap().is_empty() {}
    falls_silent(&node);
    let on = |silent: bool| (0..SHARDS).find(|index| (node.store.server_of_index(*index) == SILENT) == silent).unwrap();
    let (asked, other) = (node.ids_of(on(true), "asked", 1).await.remove(0), node.ids_of(on(false), "m", 2).await);
    node.put(&asked, ms(0)).await;
    let claiming = tokio::spawn(async move {
        let claimed = consumers.claim(&name(), ClaimAsk { max: 1, ..ask(secs(5)) }).await.expect("others answer");
        (claimed, Instant::now(), consumers)
    });
    node.pass(ms(100)).await;
    node.put_all(&other, ms(0)).await;
    let put_at = Instant::now();
    let (claimed, at, consumers) = claiming.await.unwrap();
    assert_eq!(claimed.iter().map(|batch| batch.messages.len()).sum::<usize>(), 1);
    assert!(at - put_at <= LATE_MAX, "{:?} late", at - put_at);
    // What the silent one brings when nobody waits for it any more costs no attempt.
    node.store.silent.lock().clear();
    node.pass(secs(3)).await;
    let claimed = consumers.claim(&name(), ask(secs(1))).await.unwrap();
    let mut got: Vec<_> =
        claimed.iter().flat_map(|batch| batch.messages.iter()).map(|m| (m.id.to_string(), m.attempt)).collect();
    got.sort();
    assert_eq!(got, [(asked, 1), (other[1].clone(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_hears_of_a_silent_server_only_when_no_other_answers() {
    let node = node(without_sink(), false, TestSink::new(1, 1)).await;
    put(&node, "due", &[ms(0)], 1).await;
    let consumers = node.engine.consumers();
    while !consumers.claim(&name(), ask(ms(0))).await.unwrap().is_empty() {}
    falls_silent(&node);
    put(&node, "again", &[ms(0)], 1).await;
    for wait in [ms(0), secs(3)] {
        let began = Instant::now();
        let handed = consumers.claim(&name(), ask(wait)).await;
        assert!(handed.is_ok(), "{handed:?}");
        assert!(began.elapsed() <= wait + secs(2), "{:?}", began.elapsed());
    }
    for server in 0..SERVERS as u64 {
        node.store.silent.lock().insert(ServerId(server));
    }
    let began = Instant::now();
    let handed = consumers.claim(&name(), ask(secs(4))).await;
    assert!(matches!(handed, Err(StoreError::Unavailable { .. })), "{handed:?}");
    assert!(began.elapsed() <= secs(7), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_ends_in_time_where_every_answer_takes_most_of_the_visibility_timeout() {
    let node = node(without_sink(), false, TestSink::new(1, 1)).await;
    let id = node.ids_of(0, "m", 1).await.remove(0);
    node.put(&id, ms(0)).await;
    *node.store.claim_answer_delay.lock() = ms(85);
    let consumers = node.engine.consumers();
    for wait in [ms(0), secs(2)] {
        let began = Instant::now();
        let visibility = Some(ms(100));
        let handed = consumers.claim(&name(), ClaimAsk { visibility, ..ask(wait) }).await;
        let error = handed.unwrap_err().to_string();
        assert!(error.contains("visibility_timeout"), "{error}");
        assert!(began.elapsed() <= wait + secs(1), "{:?}", began.elapsed());
    }
    let handed = consumers.claim(&name(), ask(secs(10))).await.unwrap();
    assert_eq!(handed[0].messages[0].attempt, 1, "what came too late cost no attempt");
}

#[tokio::test(start_paused = true)]
async fn what_a_silent_server_handed_over_too_late_is_given_back_and_costs_no_attempt() {
    let node = node(without_sink(), false, TestSink::new(1, 1)).await;
    falls_silent(&node);
    let index = (0..SHARDS).find(|index| node.store.server_of_index(*index) == SILENT).unwrap();
    let id = node.ids_of(index, "m", 1).await.remove(0);
    node.put(&id, ms(0)).await;
    let consumers = node.engine.consumers();
    assert!(consumers.claim(&name(), ask(secs(3))).await.unwrap().is_empty());
    node.store.silent.lock().clear();
    let began = Instant::now();
    let handed = consumers.claim(&name(), ask(secs(10))).await.unwrap();
    assert_eq!(handed[0].messages[0].attempt, 1);
    assert!(began.elapsed() < secs(2), "{:?}", began.elapsed());
}
