//! Topics without a sink: consumers claim, and wait without polling the store.

use duetime_testkit::at_home::SettledAtHome as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use duetime_core::store::{Settle, Settlement};
use duetime_core::{
    ClaimAsk, ClaimedBatch, Clock as _, DeliveryMode, LeaseClass, MessageState, RateLimit, RetryPolicy, StoreError,
    TopicConfig,
};
use duetime_metrics::Event;
use tokio::time::Instant;

use super::node::{TestNode, ids, ms, name, secs, with_sink, without_sink};

fn ask(max: usize, wait: Duration) -> ClaimAsk {
    ClaimAsk { max, wait, visibility: None, may_remove: true }
}

fn count(handed: &[ClaimedBatch]) -> usize {
    handed.iter().map(|handed| handed.messages.len()).sum()
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_waits_is_handed_a_message_the_moment_it_is_due() {
    let node = TestNode::new(without_sink()).await;
    node.put("o-1", ms(7_500)).await;
    node.pass(secs(1)).await;
    node.store.take_calls();
    let asked = Instant::now();
    let handed = node.engine.consumers().claim(&name(), ask(10, secs(20))).await.unwrap();
    assert_eq!((count(&handed), handed[0].messages[0].id.as_str()), (1, "o-1"));
    let waited = asked.elapsed();
    assert!((ms(6_499)..ms(6_505)).contains(&waited), "{waited:?}");
    let calls = node.store.take_calls();
    assert_eq!(calls["claim"], 1);
    assert!(calls.values().sum::<usize>() <= 10, "waiting does not poll: {calls:?}");
    assert_eq!(node.counts().counted(Event::Claimed), 1);
    assert_eq!(node.counts().lateness.get_sample_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_wait_takes_what_is_due_from_all_shards_and_no_more_than_asked() {
    let node = TestNode::new(without_sink()).await;
    node.put_all(&ids("o", 100), ms(0)).await;
    let consumers = node.engine.consumers();
    assert_eq!(count(&consumers.claim(&name(), ask(90, ms(0))).await.unwrap()), 90);
    assert_eq!(count(&consumers.claim(&name(), ask(90, ms(0))).await.unwrap()), 10);
    assert_eq!(count(&consumers.claim(&name(), ask(90, ms(0))).await.unwrap()), 0);
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_the_order_they_came() {
    let node = TestNode::new(without_sink()).await;
    let served = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    for waiter in 0..6 {
        let (consumers, served) = (node.engine.consumers(), served.clone());
        tokio::spawn(async move {
            let handed = consumers.claim(&name(), ask(1, secs(30))).await.unwrap();
            assert_eq!(count(&handed), 1);
            served.lock().push(waiter);
        });
        node.pass(ms(10)).await;
    }
    for n in 0..6 {
        node.put(&format!("o-{n}"), ms(0)).await;
        node.pass(ms(20)).await;
    }
    assert_eq!(*served.lock(), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_acked_comes_back_and_a_shorter_visibility_is_kept_apart() {
    let node = TestNode::new(without_sink()).await;
    node.put("o-1", ms(0)).await;
    let consumers = node.engine.consumers();
    let short = ClaimAsk { visibility: Some(secs(2)), ..ask(1, secs(1)) };
    let handed = consumers.claim(&name(), short).await.unwrap();
    let class = handed[0].messages[0].score.class();
    assert_eq!(class, LeaseClass::for_visibility(secs(2)));
    assert_ne!(class, LeaseClass::for_visibility(secs(30)));
    let again = consumers.claim(&name(), ask(1, secs(10))).await.unwrap();
    assert_eq!((again[0].messages[0].attempt, again[0].messages[0].suspect), (2, true));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_kills_its_consumers_takes_nobody_along() {
    let retry = RetryPolicy { max_attempts: 3, ..RetryPolicy::default() };
    let node = TestNode::new(TopicConfig { retry, ..without_sink() }).await;
    let others: Vec<String> = (0..9).map(|n| format!("o-{n}")).collect();
    node.put("poison", ms(0)).await;
    node.put_all(&others, ms(0)).await;
    let consumers = node.engine.consumers();
    while node.dead().await.is_empty() {
        let wanted = ClaimAsk { visibility: Some(secs(1)), ..ask(10, secs(60)) };
        let handed = consumers.claim(&name(), wanted).await.unwrap();
        let has_poison = handed.iter().flat_map(|batch| batch.messages.iter()).any(|one| one.id.as_str() == "poison");
        for batch in handed {
            let acks = batch.messages.iter().map(|one| {
                let (id, score) = (one.id.clone(), one.score);
                Settle { id, score, action: Settlement::Ack }
            });
            if !has_poison {
                let acks: Vec<Settle> = acks.collect();
                node.store.inner.settle(&batch.shard, node.clock.now(), &acks).await.unwrap();
            }
            batch.release.unless_sent().sent();
        }
        node.pass(if has_poison { secs(2) } else { ms(10) }).await;
    }
    let dead = node.dead().await;
    assert_eq!(dead.iter().map(|one| one.0.as_str()).collect::<Vec<_>>(), ["poison"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_claimed_and_not_sent_goes_back_and_costs_no_attempt() {
    let node = TestNode::new(without_sink()).await;
    node.put("o-1", ms(0)).await;
    node.pass(secs(1)).await;
    let consumers = node.engine.consumers();
    for sent in [false, true] {
        let handed = consumers.claim(&name(), ask(1, secs(5))).await.unwrap().remove(0);
        assert_eq!(handed.messages[0].attempt, 1);
        let unsent = handed.release.unless_sent();
        if sent {
            unsent.sent()
        } else {
            drop(unsent)
        }
        node.pass(ms(400)).await;
        let state = node.get("o-1").await.unwrap().state;
        assert_eq!(state, if sent { MessageState::InFlight } else { MessageState::Scheduled });
    }
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_goes_away_in_the_middle_of_a_claim_costs_no_attempt() {
    let node = TestNode::new(without_sink()).await;
    node.put("o-1", ms(0)).await;
    node.pass(secs(1)).await;
    *node.store.delay.lock() = ms(100);
    let consumers = node.engine.consumers();
    let gone = tokio::time::timeout(ms(50), consumers.claim(&name(), ask(1, secs(5)))).await;
    assert!(gone.is_err());
    node.pass(ms(400)).await;
    let message = node.get("o-1").await.unwrap();
    assert_eq!((message.state, message.attempts), (MessageState::Scheduled, 0));
    let handed = consumers.claim(&name(), ask(1, secs(5))).await.unwrap();
    assert_eq!(handed[0].messages[0].attempt, 1);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_s_claim_whose_answer_was_lost_costs_no_attempt() {
    let node = TestNode::new(TopicConfig { shards: duetime_core::ShardCount::Fixed(1), ..without_sink() }).await;
    node.put_all(&ids("o", 5), ms(0)).await;
    node.store.lose_claim_answers.store(1, Ordering::SeqCst);
    let consumers = node.engine.consumers();
    assert!(matches!(consumers.claim(&name(), ask(5, secs(5))).await, Err(StoreError::Unavailable { .. })));
    let handed = consumers.claim(&name(), ask(2, secs(5))).await.unwrap();
    assert_eq!((count(&handed), handed[0].messages[0].attempt), (2, 1));
    let handed = consumers.claim(&name(), ask(5, secs(5))).await.unwrap();
    assert_eq!((count(&handed), handed[0].messages[0].attempt), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_comes_when_it_is_over_or_nearly_is_handed_to_nobody() {
    for late in [ms(800), ms(1_000), ms(4_000)] {
        let node = TestNode::new(TopicConfig { visibility_timeout: secs(1), ..without_sink() }).await;
        node.put("o-1", ms(0)).await;
        *node.store.claim_answer_delay.lock() = late;
        let consumers = node.engine.consumers();
        let (topic, began, until_answered) = (name(), Instant::now(), late - ms(50));
        let (handed, ()) = tokio::join!(consumers.claim(&topic, ask(1, secs(10))), async {
            node.pass(until_answered).await;
            *node.store.claim_answer_delay.lock() = ms(0);
        });
        let handed = handed.unwrap();
        assert!(began.elapsed() >= late, "{:?}", began.elapsed());
        let deadline = handed[0].messages[0].score.visible_at();
        assert!(deadline.since(node.clock.now()) >= ms(900), "the claim after it is whole");
        // The store may have counted the claim that was over before its answer came.
        let most = if late < secs(1) { 1 } else { 2 };
        assert!((1..=most).contains(&handed[0].messages[0].attempt), "{late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_binds_consumers_too() {
    let limit = RateLimit { per_second: 10.0, burst: 5 };
    let node = TestNode::new(TopicConfig { rate_limit: Some(limit), ..without_sink() }).await;
    node.put_all(&ids("o", 100), ms(0)).await;
    let consumers = node.engine.consumers();
    let until = Instant::now() + secs(3);
    let mut taken = 0;
    while Instant::now() < until {
        taken += count(&consumers.claim(&name(), ask(50, secs(1))).await.unwrap());
    }
    assert!((33..=37).contains(&taken), "{taken} in 3 s");
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_is_not_there_or_has_a_sink_is_refused() {
    let node = TestNode::new(with_sink()).await;
    let consumers = node.engine.consumers();
    assert!(matches!(consumers.claim(&name(), ask(1, ms(0))).await, Err(StoreError::Setup(_))));
    let other = duetime_core::TopicName::new("other").unwrap();
    assert!(matches!(consumers.claim(&other, ask(1, ms(0))).await, Err(StoreError::UnknownShard(_))));
}

#[tokio::test(start_paused = true)]
async fn at_most_once_hands_a_consumer_each_message_once() {
    let node = TestNode::new(TopicConfig { delivery: DeliveryMode::AtMostOnce, ..without_sink() }).await;
    node.put_all(&ids("o", 10), ms(0)).await;
    let consumers = node.engine.consumers();
    assert_eq!(count(&consumers.claim(&name(), ask(10, secs(1))).await.unwrap()), 10);
    node.pass(secs(100)).await;
    assert_eq!(count(&consumers.claim(&name(), ask(10, ms(0))).await.unwrap()), 0);
}

#[tokio::test(start_paused = true)]
async fn waiters_are_answered_empty_when_the_node_stops_or_the_topic_goes() {
    let node = TestNode::new(without_sink()).await;
    let consumers = node.engine.consumers();
    let waiter = tokio::spawn(async move { consumers.claim(&name(), ask(1, secs(60))).await });
    node.pass(secs(1)).await;
    let asked = Instant::now();
    node.engine.drain(secs(10)).await;
    assert_eq!(count(&waiter.await.unwrap().unwrap()), 0);
    assert!(asked.elapsed() < ms(50));
}
