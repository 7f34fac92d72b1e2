//! A loop that panics is seen, counted and started again.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use duetime_core::{Headers, SinkRef, TopicConfig, TopicName};

use super::doubles::{TestSink, WiredStore};
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

#[tokio::test(start_paused = true)]
async fn a_loop_of_the_node_that_panics_is_started_again() {
    let store = WiredStore::new();
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
