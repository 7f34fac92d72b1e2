//! A loop that panics is seen, counted and started again.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use duetime_core::{Headers, SinkRef, TopicConfig, TopicName};

use super::doubles::{PANICS, TestSink, WiredStore};
use super::node::{TestNode, ids, ms, secs, with_sink};
use crate::DispatchConfig;

#[tokio::test(start_paused = true)]
async fn a_topic_s_loop_that_panics_is_started_again_and_messages_flow_again() {
    for call in ["claim", "settle"] {
        let node = TestNode::new(with_sink()).await;
        node.put_all(&ids("before", 20), ms(0)).await;
        node.pass(ms(100)).await;
        assert_eq!(node.sink.times().len(), 20);
        node.store.panics.lock().insert(call, 1);
        node.put_all(&ids("during", 20), ms(0)).await;
        // What the loops held is due again when its claim ends.
        node.pass(secs(40)).await;
        assert_eq!(node.meters.loop_restarts("delivery"), 1, "{call}");
        node.put_all(&ids("after", 20), ms(0)).await;
        node.pass(ms(100)).await;
        assert_eq!(node.sink.times().len(), 60, "{call}");
        assert_eq!(node.survey().await, Default::default(), "{call}");
        assert_eq!(node.held(), (0, 0), "{call}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_topic_s_loop_that_always_panics_leaves_the_other_topics_alone() {
    let node = TestNode::new(with_sink()).await;
    let other = TestSink::new(4, 16);
    node.binder.0.lock().insert("other".to_owned(), other.clone());
    node.store.panics.lock().insert("settle", usize::MAX);
    node.put_all(&ids("o", 20), ms(0)).await;
    let given_up = tokio::time::timeout(secs(600), node.supervisor.given_up()).await;
    assert!(given_up.is_err(), "one topic's fault does not end the node");
    assert!(node.meters.loop_restarts("delivery") > 10);
    node.store.panics.lock().clear();
    let sink = SinkRef { name: "other".to_owned(), settings: serde_json::Map::default() };
    let config = TopicConfig { sink: Some(sink), ..with_sink() };
    let record = node.add_topic(&TopicName::new("other").unwrap(), config).await;
    node.put_in(&record, &ids("o", 20), &Headers::default(), &Bytes::from_static(b"hello")).await;
    node.pass(ms(100)).await;
    assert_eq!(other.times().len(), 20);
    // Each claim that ended without a verdict cost an attempt: nothing is lost, what is left waits longer.
    node.pass(secs(7_200)).await;
    let survey = node.survey().await;
    assert_eq!((survey.scheduled, survey.in_flight), (0, 0), "{survey:?}");
}

fn with_sink_named(sink: &str) -> TopicConfig {
    let sink = SinkRef { name: sink.to_owned(), settings: serde_json::Map::default() };
    TopicConfig { sink: Some(sink), ..with_sink() }
}

#[tokio::test(start_paused = true)]
async fn what_follows_the_topics_begins_anew_after_a_panic_and_no_topic_is_left_half_made() {
    let node = TestNode::new(with_sink()).await;
    let other = TestSink::new(4, 16);
    node.binder.0.lock().insert("other".to_owned(), other.clone());
    // In the middle of a new topic: it is known, and nothing runs for it yet.
    node.store.panics.lock().insert("server_of", 1);
    let record = node.add_topic(&TopicName::new("other").unwrap(), with_sink_named("other")).await;
    node.pass(secs(1)).await;
    assert_eq!(node.meters.loop_restarts("topics"), 1);
    node.put_in(&record, &ids("o", 20), &Headers::default(), &Bytes::from_static(b"hello")).await;
    node.put_all(&ids("first", 20), ms(0)).await;
    node.pass(ms(100)).await;
    assert_eq!((other.times().len(), node.sink.times().len()), (20, 20), "both topics are delivered");
    assert!(node.sink.times().values().all(|times| *times == 1), "no loop of before goes on beside the new ones");
    // And a topic that is changed later runs as it is then, once.
    node.set_topic(with_sink_named("other")).await;
    node.put_all(&ids("moved", 20), ms(0)).await;
    node.pass(ms(100)).await;
    assert_eq!((other.times().len(), node.sink.times().len()), (40, 20));
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_panics_when_it_is_made_ready_leaves_the_other_topics_alone() {
    let node = TestNode::new(with_sink()).await;
    let topic = TopicName::new("other").unwrap();
    node.add_topic(&topic, with_sink_named(PANICS)).await;
    let given_up = tokio::time::timeout(secs(600), node.supervisor.given_up()).await;
    assert!(given_up.is_err(), "one topic's fault does not end the node");
    assert_eq!(node.meters.loop_restarts("topics"), 0);
    let refused = node.engine.sinks().state(&topic).unwrap().refused.unwrap();
    assert!(refused.contains("panicked"), "{refused}");
    assert_eq!(node.engine.sinks().issues().len(), 1, "of that sink");
    node.put_all(&ids("o", 20), ms(0)).await;
    node.pass(ms(100)).await;
    assert_eq!(node.sink.times().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_loop_of_the_node_that_panics_is_started_again() {
    let store = WiredStore::new().await;
    store.deaf.store(true, Ordering::SeqCst);
    let node = TestNode::on(store, TestSink::new(4, 16), DispatchConfig::default());
    node.set_topic(with_sink()).await;
    node.store.panics.lock().insert("next_due", 2);
    node.pass(secs(5)).await;
    assert_eq!(node.meters.loop_restarts("poll"), 2);
    node.put_all(&ids("o", 20), ms(0)).await;
    node.pass(secs(2)).await;
    assert_eq!(node.sink.times().len(), 20, "without hints the poll finds what is due");
}

#[tokio::test(start_paused = true)]
async fn a_loop_of_the_node_that_always_panics_ends_the_node() {
    let node = TestNode::new(with_sink()).await;
    node.store.panics.lock().insert("next_due", usize::MAX);
    let given_up = tokio::time::timeout(secs(30), node.supervisor.given_up()).await;
    assert_eq!(given_up.unwrap(), "poll");
}
