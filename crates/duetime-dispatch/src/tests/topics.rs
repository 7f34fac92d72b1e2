//! Topics that come, change and go while the node runs.

use std::sync::Arc;

use duetime_core::{Clock, MessageId, ScheduleStore, SinkRef, TopicConfig, TopicStore as _, Topics};
use duetime_metrics::Meters;

use super::doubles::{HandedOwnership, TestSink, WiredStore, slow};
use super::node::{TestNode, ids, ms, name, secs, with_sink, without_sink};
use crate::DispatchConfig;

fn to_sink(sink: &str) -> TopicConfig {
    let sink = SinkRef { name: sink.to_owned(), settings: serde_json::Map::default() };
    TopicConfig { sink: Some(sink), ..with_sink() }
}

#[tokio::test(start_paused = true)]
async fn a_topic_whose_sink_is_unknown_waits_and_goes_on_once_the_sink_is_named_right() {
    let node = TestNode::new(to_sink("tset")).await;
    node.put_all(&ids("o", 10), ms(0)).await;
    node.pass(secs(10)).await;
    assert_eq!(node.survey().await.scheduled, 10);
    node.set_topic(to_sink("test")).await;
    node.pass(secs(1)).await;
    assert_eq!(node.sink.times().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_topic_with_another_sink_hands_over_to_that_one_from_then_on() {
    let node = TestNode::new(with_sink()).await;
    let second = TestSink::new(1, 1);
    node.binder.0.lock().insert("second".to_owned(), second.clone());
    node.sink.behave(slow(secs(2)));
    node.put_all(&ids("a", 4), ms(0)).await;
    node.pass(ms(500)).await;
    node.set_topic(to_sink("second")).await;
    node.put_all(&ids("b", 4), ms(0)).await;
    node.pass(secs(5)).await;
    assert_eq!((node.sink.times().len(), second.times().len()), (4, 4));
    assert_eq!(node.survey().await, Default::default());
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_loses_its_sink_is_open_to_consumers() {
    let node = TestNode::new(with_sink()).await;
    node.set_topic(without_sink()).await;
    node.put("o-1", ms(100)).await;
    let ask = duetime_core::ClaimAsk { max: 1, wait: secs(5), visibility: None, may_remove: true };
    let handed = node.engine.consumers().claim(&name(), ask).await.unwrap();
    assert_eq!(handed.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_topic_ends_and_can_be_created_anew() {
    let node = TestNode::new(with_sink()).await;
    node.put_all(&ids("o", 10), secs(5)).await;
    node.store.inner.delete_topic(&name(), duetime_core::Deletion::Force).await.unwrap();
    node.topics.send_replace(Arc::new(Topics::new()));
    node.pass(secs(10)).await;
    node.store.take_calls();
    node.pass(secs(10)).await;
    assert_eq!(node.store.take_calls().values().sum::<usize>(), 0, "nothing is owned, nothing is asked");
    assert!(!node.meters.render().contains("topic=\"orders\""));
    node.set_topic(with_sink()).await;
    node.put_all(&ids("p", 10), ms(10)).await;
    node.pass(secs(1)).await;
    assert_eq!(node.sink.times().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_ends_while_it_is_surveyed_gets_no_series_again() {
    let node = TestNode::new(with_sink()).await;
    node.store.take_calls();
    *node.store.delay.lock() = secs(10);
    node.pass(secs(8)).await;
    assert_eq!(node.store.take_calls().get("counts"), Some(&1), "a survey is under way");
    node.topics.send_replace(Arc::new(Topics::new()));
    node.pass(ms(10)).await;
    assert!(!node.meters.render().contains("topic=\"orders\""));
    node.pass(secs(30)).await;
    assert!(!node.meters.render().contains("topic=\"orders\""));
}

#[tokio::test(start_paused = true)]
async fn a_topic_deleted_behind_the_node_s_back_asks_for_fresh_topics_and_does_not_disturb_the_others() {
    let node = TestNode::new(with_sink()).await;
    node.put_all(&ids("o", 10), ms(500)).await;
    node.pass(ms(100)).await;
    node.store.inner.delete_topic(&name(), duetime_core::Deletion::Force).await.unwrap();
    let stale = node.engine.stale_topics();
    tokio::time::timeout(secs(5), stale.notified()).await.expect("the node asks for fresh topics");
    node.tell().await;
    node.pass(secs(5)).await;
    assert_eq!(node.sink.times().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn gauges_show_what_there_is() {
    let node = TestNode::new(with_sink()).await;
    node.sink.behave(slow(secs(20)));
    node.put_all(&ids("soon", 3), ms(0)).await;
    node.put_all(&ids("later", 5), secs(1_000)).await;
    node.pass(secs(11)).await;
    let counts = node.counts();
    assert_eq!((counts.scheduled.get(), counts.in_flight.get(), counts.due.get()), (5, 3, 0));
    assert_eq!((counts.shards.get(), counts.shards_owned.get()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_given_up_is_claimed_from_no_more_and_reported_once_all_of_it_is_settled() {
    let ownership = Arc::new(HandedOwnership::default());
    let (store, sink, meters) = (WiredStore::new().await, TestSink::new(4, 16), Arc::new(Meters::new()));
    let node = TestNode::owning(store, sink, DispatchConfig::default(), meters, ownership.clone());
    node.set_topic(with_sink()).await;
    ownership.hand(&name(), &[0, 1]);
    node.pass(ms(10)).await;
    node.sink.behave(slow(secs(3)));
    node.put_all(&ids("a", 20), ms(0)).await;
    node.pass(secs(1)).await;
    ownership.hand(&name(), &[1]);
    node.pass(secs(1)).await;
    assert_eq!(*ownership.settled.lock(), [0; 0], "calls of shard 0 are under way");
    node.put_all(&ids("b", 20), ms(0)).await;
    node.pass(secs(20)).await;
    assert_eq!(*ownership.settled.lock(), [0]);
    let record = node.record().await;
    let of_one =
        ids("b", 20).iter().filter(|id| record.routing.home(&name(), &MessageId::new(id).unwrap()).index == 1).count();
    assert_eq!(node.sink.times().len(), 20 + of_one);
    ownership.hand(&name(), &[0, 1]);
    node.pass(secs(5)).await;
    assert_eq!(node.sink.times().len(), 40);
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_given_up_while_it_is_taken_is_reported_when_nothing_was_asked_after_all() {
    let node = TestNode::new(with_sink()).await;
    let emptied = Arc::new(tokio::sync::Notify::new());
    let (clock, store): (Arc<dyn Clock>, Arc<dyn ScheduleStore>) = (node.clock.clone(), node.store.clone());
    let wheel = Arc::new(crate::wheel::Wheel::new(crate::alarm::Alarm::Runtime));
    let schedule = crate::schedule::TopicSchedule::new(name(), wheel, clock, emptied.clone(), store);
    let record = node.record().await.routing.id();
    schedule.own(record, [0]);
    let [idle] = &schedule.idle()[..] else { panic!("one shard is idle") };
    schedule.polled(idle, Some(node.clock.now()));
    let taken = schedule.take(crate::server_load::Bounds::claims(1)).unwrap();
    schedule.own(record, []);
    emptied.notified().await;
    assert_eq!(schedule.take_emptied(), [0; 0], "it is being claimed from");
    schedule.put_back(taken);
    tokio::time::timeout(ms(1), emptied.notified()).await.expect("the next owner waits for it");
    assert_eq!(schedule.take_emptied(), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_may_ask_for_a_topic_the_moment_it_is_created() {
    let node = TestNode::new(with_sink()).await;
    node.set_topic(without_sink()).await;
    let ask = duetime_core::ClaimAsk { max: 1, wait: ms(0), visibility: None, may_remove: true };
    assert!(node.engine.consumers().claim(&name(), ask).await.is_ok());
}
