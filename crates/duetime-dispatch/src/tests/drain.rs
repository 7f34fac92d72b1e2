//! The end of a node: nothing lost, nothing twice, in time.

use std::sync::atomic::Ordering;

use duetime_core::MessageState;
use tokio::time::Instant;

use super::doubles::{TestSink, each, silent, slow};
use super::node::{TestNode, ids, ms, secs, with_sink};
use crate::DispatchConfig;

#[tokio::test(start_paused = true)]
async fn a_drain_lets_calls_finish_gives_back_the_rest_and_settles_everything() {
    let node = TestNode::with(with_sink(), TestSink::new(2, 1), DispatchConfig::default()).await;
    node.put_all(&ids("fast", 300), ms(0)).await;
    node.pass(secs(1)).await;
    node.sink.behave(slow(secs(3)));
    node.put_all(&ids("o", 100), ms(0)).await;
    node.pass(ms(500)).await;
    let asked = Instant::now();
    node.engine.drain(secs(10)).await;
    let took = asked.elapsed();
    assert!((ms(2_000)..ms(3_100)).contains(&took), "{took:?}");
    let left = node.survey().await;
    assert_eq!((left.in_flight, left.scheduled), (0, 98), "two were being delivered, the others are back");
    // The next node delivers the rest, once, as first attempts.
    let sink = TestSink::new(2, 16);
    let next = TestNode::on(node.store.clone(), sink, DispatchConfig::default());
    next.tell().await;
    next.pass(secs(2)).await;
    assert_eq!(next.sink.times().len(), 98);
    assert!(next.sink.calls.lock().iter().flatten().all(|delivery| delivery.attempt == 1));
    let mut all = node.sink.ids();
    all.extend(next.sink.ids());
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!((all.len(), count), (400, 400), "nothing twice");
}

#[tokio::test(start_paused = true)]
async fn an_idle_node_drains_at_once() {
    let node = TestNode::new(with_sink()).await;
    let asked = Instant::now();
    node.engine.drain(secs(10)).await;
    assert!(asked.elapsed() < ms(20));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_end_in_time_is_broken_off_and_its_message_stays_claimed() {
    let node = TestNode::new(with_sink()).await;
    node.sink.behave(silent());
    node.put("o-1", ms(0)).await;
    node.pass(ms(100)).await;
    let asked = Instant::now();
    node.engine.drain(secs(4)).await;
    assert!(asked.elapsed() <= secs(4));
    let message = node.get("o-1").await.unwrap();
    assert_eq!((message.state, message.attempts), (MessageState::InFlight, 1), "nobody knows whether it arrived");
}

#[tokio::test(start_paused = true)]
async fn a_drain_returns_within_its_grace_although_the_store_is_away() {
    let node = TestNode::new(with_sink()).await;
    node.sink.behave(slow(ms(200)));
    node.put_all(&ids("o", 10), ms(0)).await;
    node.pass(ms(100)).await;
    node.store.away.store(true, Ordering::SeqCst);
    let asked = Instant::now();
    node.engine.drain(secs(5)).await;
    assert!(asked.elapsed() <= ms(5_010), "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_claim_under_way_when_the_drain_begins_is_given_back() {
    let node = TestNode::new(with_sink()).await;
    node.pass(secs(1)).await;
    *node.store.delay.lock() = ms(300);
    node.put_all(&ids("o", 10), ms(0)).await;
    node.pass(ms(100)).await;
    node.engine.drain(secs(5)).await;
    assert_eq!(node.sink.ids().len(), 0);
    let left = node.survey().await;
    assert_eq!((left.in_flight, left.scheduled), (0, 10));
    for id in ids("o", 10) {
        assert_eq!(node.get(&id).await.unwrap().attempts, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_while_the_sink_is_down_loses_nothing() {
    let node = TestNode::new(with_sink()).await;
    node.sink.behave(each(|_| super::doubles::unavailable()));
    node.put_all(&ids("o", 30), ms(0)).await;
    node.pass(ms(333)).await;
    node.engine.drain(secs(5)).await;
    assert_eq!(node.survey().await.scheduled, 30);
}
