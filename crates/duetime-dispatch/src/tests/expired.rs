//! Messages that expire before anybody has them.

use std::time::Duration;

use bytes::Bytes;
use duetime_core::{ClaimAsk, Clock as _, DeliveryMode, Expiry, Headers, OnExpiry, TopicConfig, Verdict};
use duetime_metrics::Event;
use tokio::time::Instant;

use super::doubles::each;
use super::node::{TestNode, ids, ms, name, secs, with_sink, without_sink};

/// Messages that are due now and expire after this long, and others that do not expire.
async fn put(node: &TestNode, expires: Duration) {
    let expiring = Expiry::After(expires).kept_in(&Headers::default());
    let record = node.record().await;
    node.put_in(&record, &ids("expires", 30), &expiring, &Bytes::from_static(b"late")).await;
    node.put_in(&record, &ids("stays", 10), &Headers::default(), &Bytes::from_static(b"hello")).await;
}

fn counted(node: &TestNode) -> (u64, u64, u64) {
    let counts = node.counts();
    (counts.counted(Event::Expired), counts.counted(Event::Delivered), counts.counted(Event::Dead))
}

#[tokio::test(start_paused = true)]
async fn nobody_is_handed_what_has_expired_and_the_rest_is_not_kept_waiting() {
    let node = TestNode::new(TopicConfig { paused: true, ..with_sink() }).await;
    put(&node, secs(60)).await;
    node.pass(secs(61)).await;
    node.set_topic(with_sink()).await;
    node.pass(secs(5)).await;
    assert_eq!((counted(&node), node.sink.times().len()), ((30, 10, 0), 10));
    assert_eq!(node.survey().await, Default::default());
    assert_eq!(node.held(), (0, 0), "nothing is counted as in flight");
}

#[tokio::test(start_paused = true)]
async fn what_is_in_time_is_delivered_and_what_was_handed_over_does_not_expire() {
    let node = TestNode::new(without_sink()).await;
    put(&node, secs(60)).await;
    let ask = || ClaimAsk { max: 256, wait: ms(0), visibility: Some(secs(90)), may_remove: true };
    let handed = node.engine.consumers().claim(&name(), ask()).await.unwrap();
    assert_eq!(handed.iter().map(|batch| batch.messages.len()).sum::<usize>(), 40);
    handed.into_iter().for_each(|batch| batch.release.unless_sent().sent());
    node.pass(secs(80)).await;
    assert_eq!((counted(&node), node.survey().await.in_flight), ((0, 0, 0), 40), "its consumer has it still");
    node.pass(secs(20)).await;
    let again = node.engine.consumers().claim(&name(), ask()).await.unwrap();
    let mut messages = again.iter().flat_map(|batch| batch.messages.iter());
    assert!(messages.all(|one| one.id.as_str().starts_with("stays")), "the claim is over, and so is its time");
    assert_eq!(counted(&node).0, 30);
}

#[tokio::test(start_paused = true)]
async fn a_topic_may_have_dead_letters_of_what_has_expired() {
    let config = TopicConfig { on_expiry: OnExpiry::Dead, ..with_sink() };
    let node = TestNode::new(TopicConfig { paused: true, ..config.clone() }).await;
    put(&node, secs(60)).await;
    let expires = node.clock.now().plus(secs(60));
    node.pass(secs(61)).await;
    node.set_topic(config).await;
    node.pass(secs(5)).await;
    assert_eq!(counted(&node), (30, 10, 30));
    let dead = node.dead().await;
    assert_eq!(dead.len(), 30);
    assert!(dead[0].2.starts_with("expired: it was not handed over before"), "{}, {expires}", dead[0].2);
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_sent_at_most_once_expires_while_its_target_is_down() {
    let node = TestNode::new(TopicConfig { delivery: DeliveryMode::AtMostOnce, ..with_sink() }).await;
    node.sink.behave(each(|_| Verdict::Unavailable { reason: "away".to_owned() }));
    put(&node, secs(60)).await;
    node.pass(secs(61)).await;
    node.sink.behave(each(|_| Verdict::Accepted));
    node.pass(secs(30)).await;
    assert_eq!(counted(&node), (30, 10, 0));
    assert_eq!(node.held(), (0, 0), "nothing is counted as in flight");
}

#[tokio::test(start_paused = true)]
async fn what_is_delivered_at_most_once_expires_too() {
    let config = TopicConfig { delivery: DeliveryMode::AtMostOnce, ..with_sink() };
    let node = TestNode::new(TopicConfig { paused: true, ..config.clone() }).await;
    put(&node, secs(60)).await;
    node.pass(secs(61)).await;
    node.set_topic(config).await;
    node.pass(secs(5)).await;
    assert_eq!((counted(&node), node.sink.times().len()), ((30, 10, 0), 10));
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_asks_for_one_message_is_given_the_first_that_has_not_expired() {
    let node = TestNode::new(TopicConfig { paused: true, ..without_sink() }).await;
    put(&node, secs(60)).await;
    node.pass(secs(61)).await;
    node.set_topic(without_sink()).await;
    node.pass(ms(10)).await;
    let one = ClaimAsk { max: 1, wait: ms(0), visibility: None, may_remove: true };
    let handed = node.engine.consumers().claim(&name(), one).await.unwrap();
    let messages: Vec<_> = handed.iter().flat_map(|batch| batch.messages.iter()).collect();
    assert!(matches!(&messages[..], [one] if one.id.as_str().starts_with("stays")), "{messages:?}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_does_not_wait_does_not_go_through_all_that_has_expired() {
    const BATCHES: usize = 40;
    let node = TestNode::new(TopicConfig { paused: true, ..without_sink() }).await;
    let (record, expiring) = (node.record().await, Expiry::After(secs(60)).kept_in(&Headers::default()));
    for part in 0..BATCHES {
        node.put_in(&record, &ids(&format!("expires-{part}"), 250), &expiring, &Bytes::from_static(b"late")).await;
    }
    node.pass(secs(61)).await;
    *node.store.delay.lock() = ms(20);
    node.set_topic(without_sink()).await;
    node.pass(ms(100)).await;
    let (one, began) = (ClaimAsk { max: 1, wait: ms(0), visibility: None, may_remove: true }, Instant::now());
    assert!(node.engine.consumers().claim(&name(), one).await.unwrap().is_empty());
    assert!(began.elapsed() < ms(400), "{:?}", began.elapsed());
    let expired = counted(&node).0;
    assert!((250..10_000).contains(&expired), "whole batches, but not all: {expired}");
}
