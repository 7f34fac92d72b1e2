//! A paused topic: nothing is claimed, for a sink or by consumers, until it is resumed.

use std::time::Duration;

use duetime_core::{ClaimAsk, TopicConfig};
use duetime_metrics::Event;
use tokio::time::Instant;

use super::node::{TestNode, ids, ms, name, secs, with_sink, without_sink};

fn paused(config: TopicConfig) -> TopicConfig {
    TopicConfig { paused: true, ..config }
}

fn ask(wait: Duration) -> ClaimAsk {
    ClaimAsk { max: 100, wait, visibility: None, may_remove: true }
}

#[tokio::test(start_paused = true)]
async fn a_paused_topic_hands_nothing_to_its_sink_and_goes_on_where_it_was_when_it_is_resumed() {
    let node = TestNode::new(with_sink()).await;
    node.put_all(&ids("before", 10), ms(0)).await;
    node.pass(secs(1)).await;
    assert_eq!(node.counts().counted(Event::Delivered), 10);
    node.set_topic(paused(with_sink())).await;
    node.pass(ms(10)).await;
    node.put_all(&ids("due", 20), ms(0)).await;
    node.put_all(&ids("later", 20), secs(30)).await;
    node.store.take_calls();
    node.pass(secs(60)).await;
    assert_eq!(node.counts().counted(Event::Delivered), 10);
    assert_eq!(node.store.take_calls().get("claim").copied().unwrap_or_default(), 0);
    assert_eq!(node.survey().await.due, 40, "delays go on falling due");
    assert_eq!(node.counts().paused.get(), 1);
    node.cancel("due-3").await;
    node.set_topic(with_sink()).await;
    node.pass(secs(2)).await;
    assert_eq!(node.counts().counted(Event::Delivered), 49);
    assert_eq!(node.counts().paused.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn consumers_of_a_paused_topic_wait_and_are_served_when_it_is_resumed() {
    let node = TestNode::new(paused(without_sink())).await;
    node.put_all(&ids("o", 10), ms(0)).await;
    let begun = Instant::now();
    let handed = node.engine.consumers().claim(&name(), ask(secs(5))).await.unwrap();
    assert!(handed.is_empty() && begun.elapsed() >= secs(5), "{:?}", begun.elapsed());
    let consumers = node.engine.consumers();
    let waits = tokio::spawn(async move { consumers.claim(&name(), ask(secs(60))).await.unwrap() });
    node.pass(secs(10)).await;
    assert!(!waits.is_finished());
    let resumed = Instant::now();
    node.set_topic(without_sink()).await;
    let handed = waits.await.unwrap();
    assert!(!handed.is_empty() && resumed.elapsed() < secs(1), "{:?}", resumed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_waits_when_the_topic_is_paused_is_given_nothing_that_falls_due() {
    let node = TestNode::new(without_sink()).await;
    node.put("o-1", secs(10)).await;
    let consumers = node.engine.consumers();
    let waits = tokio::spawn(async move { consumers.claim(&name(), ask(secs(30))).await.unwrap() });
    node.pass(secs(5)).await;
    node.set_topic(paused(without_sink())).await;
    assert!(waits.await.unwrap().is_empty());
    assert_eq!(node.counts().counted(Event::Claimed), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_on_its_way_to_a_consumer_goes_back_at_once_when_the_topic_is_paused() {
    let node = TestNode::new(without_sink()).await;
    *node.store.claim_answer_delay.lock() = ms(50);
    node.put("o-1", ms(0)).await;
    let consumers = node.engine.consumers();
    let waits = tokio::spawn(async move { consumers.claim(&name(), ask(secs(60))).await.unwrap() });
    node.pass(ms(20)).await;
    node.set_topic(paused(without_sink())).await;
    node.pass(secs(2)).await;
    let survey = node.survey().await;
    assert_eq!((survey.due, survey.in_flight, waits.is_finished()), (1, 0, false));
}
