//! Topics share the node's budget: slow ones do not stop the others, and nothing of it is ever lost.

use std::time::Duration;

use bytes::Bytes;
use duetime_core::{Headers, ShardCount, SinkRef, TopicConfig, TopicName, TopicStore as _, Verdict};
use duetime_metrics::Event;

use super::doubles::{TestSink, each, silent, slow};
use super::node::{TestNode, ids, ms, name, secs, with_sink, without_sink};
use crate::DispatchConfig;

/// Longest lateness of a healthy topic beside slow ones, 99 of 100 times.
const HEALTHY_WITHIN: Duration = Duration::from_millis(50);

fn to_sink(sink: &str, shards: u32) -> TopicConfig {
    let sink = SinkRef { name: sink.to_owned(), settings: serde_json::Map::default() };
    TopicConfig { sink: Some(sink), shards: ShardCount::Fixed(shards), ..with_sink() }
}

/// A healthy topic beside `topics` slow ones, each with so many messages of so many bytes due at once.
async fn beside_slow_topics(topics: usize, messages: usize, bytes: usize) {
    // An eighth of what a node has in messages, to be quick.
    let config = DispatchConfig { messages_max: 8_192, topic_messages_max: 1_024, ..DispatchConfig::default() };
    let node = TestNode::with(with_sink(), TestSink::new(4, 16), config).await;
    let slow_sink = TestSink::new(1_024, 256);
    slow_sink.behave(slow(secs(8)));
    node.binder.0.lock().insert("slow".to_owned(), slow_sink);
    let payload = Bytes::from(vec![7; bytes]);
    for n in 0..topics {
        let topic = TopicName::new(&format!("slow-{n}")).unwrap();
        let record = node.add_topic(&topic, to_sink("slow", 4)).await;
        node.put_in(&record, &ids("m", messages), &Headers::default(), &payload).await;
    }
    node.pass(secs(1)).await;
    let (held, held_bytes) = node.held();
    assert!(held > 1_000 || held_bytes > 32 << 20, "the slow topics take what they can: {held}, {held_bytes} bytes");
    let mut late: Vec<Duration> = Vec::new();
    for second in 0..20 {
        let began = tokio::time::Instant::now();
        node.put_all(&ids(&format!("q{second}"), 20), ms(0)).await;
        while node.sink.ids().len() < (second + 1) * 20 {
            node.pass(ms(1)).await;
            assert!(began.elapsed() < secs(5), "the healthy topic stands still");
        }
        late.extend([began.elapsed(); 20]);
        node.pass(secs(1)).await;
    }
    late.sort();
    let p99 = late[late.len() * 99 / 100];
    assert!(p99 < HEALTHY_WITHIN, "beside {topics} slow topics the healthy one is {p99:?} late at p99");
}

#[tokio::test(start_paused = true)]
async fn a_healthy_topic_is_not_late_beside_slow_topics_with_many_messages() {
    beside_slow_topics(8, 1_500, 16).await;
}

#[tokio::test(start_paused = true)]
async fn a_healthy_topic_is_not_late_beside_slow_topics_with_large_messages() {
    beside_slow_topics(5, 48, 3_900_000).await;
}

#[tokio::test(start_paused = true)]
async fn topics_deleted_under_load_leave_nothing_of_the_budget_behind() {
    let node = TestNode::with(with_sink(), TestSink::new(4, 16), DispatchConfig::default()).await;
    let sink = TestSink::new(64, 8);
    node.binder.0.lock().insert("other".to_owned(), sink.clone());
    // Some are deleted while calls are under way, some while the store settles: each combination of the three once.
    for n in 0_u64..3 * 4 * 17 {
        sink.behave(if n % 3 == 0 { slow(ms(20)) } else { each(|_| Verdict::Accepted) });
        *node.store.delay.lock() = ms(n % 4);
        let topic = TopicName::new(&format!("t{n}")).unwrap();
        let record = node.add_topic(&topic, to_sink("other", 2)).await;
        node.put_in(&record, &ids("m", 30), &Headers::default(), &Bytes::from_static(b"hello")).await;
        node.pass(ms(n % 17)).await;
        node.store.inner.delete_topic(&topic, duetime_core::Deletion::Force).await.unwrap();
        node.tell().await;
    }
    node.pass(secs(100)).await;
    assert_eq!(node.held(), (0, 0));
    node.put_all(&ids("after", 100), ms(0)).await;
    node.pass(ms(100)).await;
    assert_eq!(node.sink.ids().len(), 100);
}

#[tokio::test(start_paused = true)]
async fn headers_count_as_bytes_in_flight() {
    let node = TestNode::new(with_sink()).await;
    node.sink.behave(silent());
    let headers = Headers::new(vec![("h".to_owned(), "v".repeat(9_999))]).unwrap();
    node.put_in(&node.record().await, &ids("m", 9), &headers, &Bytes::from_static(b"hello")).await;
    node.pass(secs(1)).await;
    let (messages, bytes) = node.held();
    assert_eq!(messages, 9);
    assert_eq!(bytes, 9 * (10_000 + 5 + 3));
}

#[tokio::test(start_paused = true)]
async fn what_consumers_are_given_counts_until_their_answer_is_made_and_is_bounded_in_bytes() {
    let node = TestNode::new(without_sink()).await;
    let payload = Bytes::from(vec![7; 3 << 20]);
    node.put_in(&node.record().await, &ids("m", 20), &Headers::default(), &payload).await;
    let ask = duetime_core::ClaimAsk { max: 256, wait: ms(0), visibility: None, may_remove: true };
    let (mut answers, mut got) = (0, 0);
    while got < 20 {
        let handed = node.engine.consumers().claim(&name(), ask).await.unwrap();
        let messages: usize = handed.iter().map(|handed| handed.messages.len()).sum();
        assert!((1..=3).contains(&messages), "{messages} messages of 3 MiB in one answer");
        got += messages;
        answers += 1;
        let (held, bytes) = node.held();
        assert!(held >= messages as i64 && bytes >= (messages as i64) * (3 << 20), "{held} messages, {bytes} bytes");
        drop(handed);
        node.pass(ms(50)).await;
        assert_eq!(node.held(), (0, 0));
    }
    assert!(answers <= 14, "{answers} answers for 20 messages");
    // What did not fit went back and cost no attempt.
    assert_eq!(node.counts().counted(Event::Dead), 0);
    assert_eq!(node.survey().await.in_flight, 20);
}
