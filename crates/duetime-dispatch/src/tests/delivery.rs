//! What becomes of messages that fall due.

use std::sync::atomic::Ordering;
use std::time::Duration;

use duetime_core::{ClaimStore as _, Clock, DeliveryMode, RateLimit, RetryPolicy, TopicConfig, Verdict};
use duetime_metrics::Event;
use duetime_testkit::claim_request;
use tokio::time::Instant;

use super::doubles::{TestSink, each, panicking, retry, silent, slow};
use super::node::{TestNode, ids, ms, secs, with_sink};
use crate::DispatchConfig;

#[tokio::test(start_paused = true)]
async fn a_message_is_handed_over_within_milliseconds_of_its_due_time_and_acked() {
    let node = TestNode::new(with_sink()).await;
    node.put("o-1", ms(2_345)).await;
    node.pass(ms(2_344)).await;
    assert_eq!(node.sink.ids(), [""; 0], "nothing is early");
    node.pass(ms(5)).await;
    assert_eq!(node.sink.ids(), ["o-1"]);
    node.pass(ms(10)).await;
    assert_eq!(node.get("o-1").await, None, "it is acked");
    let counts = node.counts();
    assert_eq!((counts.counted(Event::Claimed), counts.counted(Event::Delivered)), (1, 1));
    assert_eq!(counts.lateness.get_sample_count(), 1);
    assert!(counts.lateness.get_sample_sum() < 0.005, "late by {} s", counts.lateness.get_sample_sum());
}

#[tokio::test(start_paused = true)]
async fn everything_due_is_delivered_once_in_batches_and_nothing_is_left() {
    let node = TestNode::new(with_sink()).await;
    node.put_all(&ids("o", 3_000), secs(1)).await;
    node.pass(secs(3)).await;
    let times = node.sink.times();
    assert_eq!(times.len(), 3_000);
    assert!(times.values().all(|times| *times == 1));
    assert!(node.sink.calls.lock().len() <= 3_000 / 16 + 40, "calls are full");
    assert_eq!(node.survey().await, Default::default());
    assert!(node.sink.most_at_once.load(Ordering::SeqCst) <= 4);
}

#[tokio::test(start_paused = true)]
async fn messages_of_one_shard_go_in_the_order_they_fall_due() {
    let one = TopicConfig { shards: duetime_core::ShardCount::Fixed(1), ..with_sink() };
    let node = TestNode::with(one, TestSink::new(1, 16), DispatchConfig::default()).await;
    for (n, id) in ids("o", 50).iter().enumerate().rev() {
        node.put(id, ms(1_000 + 3 * n as u64)).await;
    }
    node.pass(secs(2)).await;
    assert_eq!(node.sink.ids(), ids("o", 50));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_fails_is_retried_with_backoff_until_it_is_a_dead_letter_with_its_reason() {
    let policy = RetryPolicy { max_attempts: 3, jitter: 0.0, ..RetryPolicy::default() };
    let node = TestNode::new(TopicConfig { retry: policy, ..with_sink() }).await;
    node.sink.behave(each(|message| if message.id.as_str() == "o-1" { retry() } else { Verdict::Accepted }));
    node.put("o-1", ms(0)).await;
    // It pays once another is accepted that was sent after it failed.
    for (n, id) in ids("good", 80).iter().enumerate() {
        node.put(id, ms(50 * n as u64)).await;
    }
    for (after_ms, calls) in [(100, 1), (850, 1), (150, 2), (1_850, 2), (300, 3)] {
        node.pass(ms(after_ms)).await;
        assert_eq!(node.sink.times()["o-1"], calls);
    }
    node.pass(secs(60)).await;
    assert_eq!(node.sink.times()["o-1"], 3);
    assert_eq!(node.dead().await, [("o-1".to_owned(), 3, "500".to_owned())]);
    let counts = node.counts();
    assert_eq!((counts.counted(Event::Retried), counts.counted(Event::Dead)), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_target_that_asks_for_a_longer_wait_gets_it_and_a_rejected_message_is_dead_at_once() {
    let node = TestNode::new(with_sink()).await;
    node.sink.behave(each(|delivery| match (delivery.id.as_str(), delivery.attempt) {
        ("bad", _) => Verdict::Rejected { reason: "410 gone".to_owned() },
        ("slow", 1) => Verdict::Retry { reason: "429".to_owned(), after: Some(secs(90)) },
        _ => Verdict::Accepted,
    }));
    node.put("bad", ms(0)).await;
    node.put("slow", ms(0)).await;
    node.put("good", ms(10)).await;
    node.pass(secs(89)).await;
    assert_eq!(node.dead().await, [("bad".to_owned(), 1, "410 gone".to_owned())]);
    assert_eq!(node.sink.times()["slow"], 1);
    node.pass(secs(2)).await;
    assert_eq!(node.sink.times()["slow"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_panics_or_answers_for_too_few_costs_what_no_answer_costs() {
    let node = TestNode::new(with_sink()).await;
    node.sink.behave(panicking());
    node.put("o-1", ms(0)).await;
    node.pass(ms(100)).await;
    node.sink.behave(Box::new(|_| Box::pin(async { Vec::new() })));
    node.pass(secs(4)).await;
    assert!(node.sink.times()["o-1"] >= 3);
    node.sink.behave(each(|_| Verdict::Accepted));
    node.pass(secs(6)).await;
    assert_eq!(node.get("o-1").await, None);
    assert!(node.sink.calls.lock().iter().flatten().all(|delivery| delivery.attempt == 1));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_what_is_being_handed_over_is_no_settlement_that_came_too_late() {
    let node = TestNode::new(with_sink()).await;
    node.sink.behave(slow(secs(1)));
    node.put("o-1", ms(0)).await;
    node.pass(ms(500)).await;
    node.cancel("o-1").await;
    node.pass(secs(2)).await;
    assert_eq!((node.sink.ids(), node.counts().settlements_expired.get()), (vec!["o-1".to_owned()], 0));
}

#[tokio::test(start_paused = true)]
async fn a_call_says_until_when_it_is_waited_for() {
    let config = TopicConfig { visibility_timeout: secs(10), ..with_sink() };
    let node = TestNode::new(config).await;
    let began = duetime_core::Clock::now(&*node.clock);
    node.put("o-1", ms(0)).await;
    node.pass(ms(100)).await;
    let not_after = node.sink.calls.lock()[0][0].not_after.since(began);
    assert!((secs(9)..=secs(10)).contains(&not_after), "{not_after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_answered_ends_before_the_deadline() {
    let config = TopicConfig { visibility_timeout: secs(10), ..with_sink() };
    let node = TestNode::new(config).await;
    node.sink.behave(silent());
    node.put("o-1", ms(0)).await;
    node.pass(ms(9_600)).await;
    let message = node.get("o-1").await.unwrap();
    assert_eq!((message.attempts, message.state), (1, duetime_core::MessageState::Scheduled), "it may have arrived");
    assert_eq!(node.counts().claims_expired.get(), 0, "the claim was settled, it did not run out");
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_holder_crashed_comes_alone_and_takes_nobody_along() {
    let config = TopicConfig { visibility_timeout: secs(5), shards: duetime_core::ShardCount::Fixed(1), ..with_sink() };
    let node = TestNode::new(config).await;
    node.sink.behave(silent());
    node.put("o-1", ms(0)).await;
    node.pass(ms(50)).await;
    drop(node.engine);
    // Another node takes over, on the same store.
    let sink = TestSink::new(4, 16);
    let other = TestNode::on(node.store.clone(), sink, DispatchConfig::default());
    other.tell().await;
    other.put_all(&ids("o-2", 20), secs(6)).await;
    other.pass(secs(10)).await;
    let calls = other.sink.calls.lock();
    let alone = calls.iter().find(|call| call.iter().any(|delivery| delivery.id.as_str() == "o-1")).unwrap();
    assert_eq!((alone.len(), alone[0].attempt), (1, 2));
    assert_eq!(calls.iter().map(Vec::len).sum::<usize>(), 21);
    assert_eq!(other.counts().claims_expired.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slow_sink_is_given_no_more_than_it_takes_before_the_deadline() {
    let config = TopicConfig { visibility_timeout: secs(8), ..with_sink() };
    let node = TestNode::with(config, TestSink::new(2, 1), DispatchConfig::default()).await;
    node.sink.behave(slow(secs(1)));
    node.put_all(&ids("o", 60), ms(0)).await;
    node.pass(secs(1)).await;
    let mut most = 0;
    for _ in 0..40 {
        node.pass(secs(1)).await;
        most = most.max(node.survey().await.in_flight);
    }
    assert!(most <= 8, "{most} messages were held, a sink of 2 a second takes 8 in half of 8 s");
    assert!(node.sink.times().values().all(|times| *times == 1));
    assert_eq!(node.sink.times().len(), 60);
    assert_eq!(node.counts().settlements_expired.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_can_no_longer_be_sent_in_time_is_given_back_and_costs_no_attempt() {
    let config = TopicConfig { visibility_timeout: secs(8), ..with_sink() };
    let node = TestNode::with(config, TestSink::new(1, 1), DispatchConfig::default()).await;
    node.put_all(&ids("fast", 200), ms(0)).await;
    node.pass(secs(1)).await;
    // It was fast, so many are claimed; then every call takes 5 s.
    node.sink.behave(slow(secs(5)));
    node.put_all(&ids("slow", 50), ms(0)).await;
    node.pass(secs(400)).await;
    let times = node.sink.times();
    assert_eq!(times.len(), 250);
    assert!(times.values().all(|times| *times == 1), "{times:?}");
    assert!(node.sink.calls.lock().iter().flatten().all(|delivery| delivery.attempt == 1));
    assert_eq!(node.counts().claims_expired.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_claim_brings_that_the_server_carried_out_late_costs_no_attempt() {
    let retry = RetryPolicy { max_attempts: 1, ..RetryPolicy::default() };
    let node = TestNode::new(TopicConfig { visibility_timeout: secs(3), retry, ..with_sink() }).await;
    node.put_all(&ids("o", 20), secs(1)).await;
    // The server stands still as it is asked: counted from then, the claims are over when they come.
    *node.store.claim_delay.lock() = secs(4);
    node.pass(secs(2)).await;
    *node.store.claim_delay.lock() = Duration::ZERO;
    node.pass(secs(10)).await;
    assert_eq!(node.counts().counted(Event::Dead), 0);
    assert_eq!(node.sink.times().len(), 20);
    assert!(node.sink.calls.lock().iter().flatten().all(|delivery| delivery.attempt == 1));
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_holds_over_all_shards() {
    let limit = RateLimit { per_second: 50.0, burst: 10 };
    let node = TestNode::new(TopicConfig { rate_limit: Some(limit), ..with_sink() }).await;
    node.put_all(&ids("o", 500), ms(0)).await;
    node.pass(secs(2)).await;
    let after_two = node.sink.ids().len();
    assert!((100..=115).contains(&after_two), "{after_two} in 2 s");
    node.pass(secs(9)).await;
    assert_eq!(node.sink.times().len(), 500);
}

#[tokio::test(start_paused = true)]
async fn at_most_once_delivers_once_whatever_the_sink_says() {
    let config = TopicConfig { delivery: DeliveryMode::AtMostOnce, ..with_sink() };
    let node = TestNode::new(config).await;
    node.sink.behave(each(|delivery| if delivery.id.as_str().ends_with('0') { retry() } else { Verdict::Accepted }));
    node.put_all(&ids("o", 100), ms(0)).await;
    node.pass(secs(100)).await;
    let times = node.sink.times();
    assert!(times.len() == 100 && times.values().all(|times| *times == 1));
    let counts = node.counts();
    assert_eq!((counts.counted(Event::Delivered), counts.counted(Event::Dead)), (90, 10));
    assert_eq!(node.survey().await, Default::default());
    assert_eq!(node.store.take_calls().get("settle"), None);
}

#[tokio::test(start_paused = true)]
async fn at_most_once_loses_nothing_that_was_not_sent() {
    let node = TestNode::new(TopicConfig { delivery: DeliveryMode::AtMostOnce, ..with_sink() }).await;
    let refuse = |_: &_| Verdict::NotSent { reason: "concurrency".to_owned(), after: ms(40) };
    node.sink.behave(each(refuse));
    node.put_all(&ids("o", 100), ms(0)).await;
    node.pass(secs(2)).await;
    assert_eq!(node.counts().counted(Event::Dead), 0);
    node.sink.behave(each(|_| Verdict::Accepted));
    node.pass(secs(2)).await;
    let counts = node.counts();
    assert_eq!((counts.counted(Event::Delivered), counts.counted(Event::Dead)), (100, 0));
    assert_eq!(node.held(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_million_due_at_once_keeps_the_node_within_its_permits() {
    let dispatch = DispatchConfig { messages_max: 64, topic_messages_max: 48, ..DispatchConfig::default() };
    let node = TestNode::with(with_sink(), TestSink::new(4, 16), dispatch).await;
    node.sink.behave(slow(ms(20)));
    node.put_all(&ids("o", 2_000), ms(0)).await;
    let started = Instant::now();
    let mut most = 0;
    while node.sink.ids().len() < 2_000 {
        node.pass(ms(7)).await;
        most = most.max(node.survey().await.in_flight);
        assert!(started.elapsed() < Duration::from_secs(30));
    }
    assert!(most <= 48, "{most} messages in flight");
}

#[tokio::test(start_paused = true)]
async fn a_fast_sink_is_kept_busy_although_the_store_is_far_away() {
    let node = TestNode::with(with_sink(), TestSink::new(1, 1), DispatchConfig::default()).await;
    *node.store.delay.lock() = ms(20);
    node.put_all(&ids("o", 600), ms(0)).await;
    node.pass(secs(2)).await;
    assert_eq!(node.sink.times().len(), 600);
}

#[tokio::test(start_paused = true)]
async fn a_suspect_waits_for_a_call_of_its_own_although_others_are_due() {
    let config = TopicConfig { visibility_timeout: secs(20), ..with_sink() };
    let node = TestNode::with(config, TestSink::new(1, 16), DispatchConfig::default()).await;
    let (of_0, of_1) = (node.ids_of(0, "a", 2).await, node.ids_of(1, "b", 10).await);
    // Somebody else claims it and crashes.
    node.topics.send_replace(Default::default());
    node.pass(ms(1)).await;
    node.put(&of_0[0], ms(0)).await;
    let record = node.record().await;
    let request = duetime_core::store::ClaimRequest {
        visibility: secs(2),
        retry: RetryPolicy { initial: ms(100), ..RetryPolicy::default() },
        ..claim_request(1)
    };
    let now = node.clock.now();
    node.store.inner.claim(&record.routing.shard(&record.name, 0), now, &request).await.unwrap();
    node.pass(secs(4)).await;
    node.put(&of_0[1], ms(0)).await;
    node.sink.behave(slow(secs(1)));
    node.tell().await;
    node.pass(ms(100)).await;
    node.put_all(&of_1, ms(0)).await;
    node.pass(secs(8)).await;
    let calls = node.sink.calls.lock();
    let alone = calls.iter().find(|call| call.iter().any(|delivery| delivery.id.as_str() == of_0[0])).unwrap();
    assert_eq!((alone.len(), alone[0].attempt), (1, 2));
    assert_eq!(calls.iter().map(Vec::len).sum::<usize>(), 12);
}
