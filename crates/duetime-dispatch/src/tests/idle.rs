//! What an idle node costs, and how it still notices everything.

use std::sync::atomic::Ordering;

use duetime_core::{ClaimAsk, RetryPolicy, ShardCount, TopicConfig, Verdict};

use super::doubles::{TestSink, WiredStore, each};
use super::node::{TestNode, ids, ms, name, secs, with_sink, without_sink};
use crate::DispatchConfig;

#[tokio::test(start_paused = true)]
async fn an_idle_node_looks_once_a_second_at_all_its_shards_and_counts_every_five() {
    let node = TestNode::new(with_sink()).await;
    node.put_all(&ids("far", 100), secs(86_400)).await;
    node.pass(secs(2)).await;
    node.store.take_calls();
    node.pass(secs(60)).await;
    let calls = node.store.take_calls();
    assert!((59..=61).contains(&calls["next_due"]), "{calls:?}");
    assert!((11..=13).contains(&calls["counts"]), "{calls:?}");
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert_eq!(node.counts().scheduled.get(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_due_in_the_middle_of_nowhere_costs_one_claim() {
    let node = TestNode::new(with_sink()).await;
    node.put("o-1", ms(30_500)).await;
    node.pass(secs(29)).await;
    node.store.take_calls();
    node.pass(ms(2_000)).await;
    assert_eq!(node.sink.ids(), ["o-1"]);
    let calls = node.store.take_calls();
    assert_eq!((calls["claim"], calls["settle"]), (1, 1), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn without_any_hint_a_message_is_found_by_the_look_of_the_next_second() {
    let store = WiredStore::new().await;
    store.deaf.store(true, Ordering::SeqCst);
    let node = TestNode::on(store, TestSink::new(4, 16), DispatchConfig::default());
    node.set_topic(with_sink()).await;
    node.pass(ms(2_300)).await;
    node.put("now", ms(0)).await;
    node.put("in-a-while", ms(5_000)).await;
    node.pass(ms(1_010)).await;
    assert_eq!(node.sink.ids(), ["now"]);
    node.pass(ms(3_985)).await;
    assert_eq!(node.sink.ids().len(), 1);
    node.pass(ms(10)).await;
    assert_eq!(node.sink.ids().len(), 2, "at its millisecond, for a poll reported it in time");
}

#[tokio::test(start_paused = true)]
async fn a_new_head_wakes_the_node_before_its_next_look() {
    let node = TestNode::new(with_sink()).await;
    node.put("late", secs(100)).await;
    node.pass(ms(10_100)).await;
    node.put("soon", ms(50)).await;
    node.pass(ms(54)).await;
    assert_eq!(node.sink.ids(), ["soon"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_head_costs_no_claim() {
    let node = TestNode::new(with_sink()).await;
    node.put("o-1", secs(10)).await;
    node.pass(secs(5)).await;
    node.cancel("o-1").await;
    node.store.take_calls();
    node.pass(secs(20)).await;
    assert_eq!(node.store.take_calls().get("claim"), None);
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_on_time_without_any_hint_of_the_store() {
    let store = WiredStore::new().await;
    store.deaf.store(true, Ordering::SeqCst);
    let node = TestNode::on(store, TestSink::new(4, 16), DispatchConfig::default());
    let policy = RetryPolicy { initial: ms(100), factor: 1.0, jitter: 0.0, ..RetryPolicy::default() };
    node.set_topic(TopicConfig { retry: policy, ..with_sink() }).await;
    // For a failure it would wait until another is accepted.
    node.sink.behave(each(|_| Verdict::NotSent { reason: "limit".to_owned(), after: ms(100) }));
    node.put("o-1", ms(2_050)).await;
    node.pass(ms(2_600)).await;
    assert_eq!(node.sink.ids().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn messages_that_fall_due_one_after_the_other_share_claims_and_settlements() {
    let node = TestNode::new(TopicConfig { shards: ShardCount::Fixed(1), ..with_sink() }).await;
    let start = ms(2_000);
    for (n, id) in ids("o", 2_000).iter().enumerate() {
        node.put(id, start + ms(n as u64 / 2)).await;
    }
    node.pass(ms(1_900)).await;
    node.store.take_calls();
    node.pass(ms(1_200)).await;
    assert_eq!(node.sink.times().len(), 2_000);
    let calls = node.store.take_calls();
    assert!(calls["claim"] <= 1_005 && calls["settle"] <= 250, "{calls:?}");
    let late = node.counts().lateness.get_sample_sum() / 2_000.0;
    assert!(late < 0.003, "{late} s late in the mean");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_while_a_claim_is_under_way_is_not_overlooked() {
    let node = TestNode::new(TopicConfig { shards: ShardCount::Fixed(1), ..with_sink() }).await;
    node.pass(ms(5_100)).await;
    *node.store.claim_answer_delay.lock() = ms(100);
    node.put("first", ms(0)).await;
    node.pass(ms(50)).await;
    node.put("second", ms(0)).await;
    node.pass(ms(170)).await;
    assert_eq!(node.sink.ids(), ["first", "second"]);
}

#[tokio::test(start_paused = true)]
async fn consumers_who_ask_at_once_share_their_polls_and_none_misses_what_came_before_it_asked() {
    let store = WiredStore::new().await;
    store.deaf.store(true, Ordering::SeqCst);
    let node = TestNode::on(store, TestSink::new(4, 16), DispatchConfig::default());
    node.set_topic(without_sink()).await;
    node.pass(ms(2_100)).await;
    node.store.take_calls();
    let claim = |wait| {
        let consumers = node.engine.consumers();
        tokio::spawn(async move {
            let ask = ClaimAsk { max: 10, wait, visibility: None, may_remove: true };
            consumers.claim(&name(), ask).await.unwrap()
        })
    };
    let waiting: Vec<_> = (0..50).map(|_| claim(secs(20))).collect();
    node.pass(ms(200)).await;
    assert!(node.store.take_calls()["next_due"] <= 3, "fifty claims that found nothing");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    node.pass(ms(10)).await;
    let hasty: Vec<_> = (0..50).map(|_| claim(ms(0))).collect();
    for claimed in hasty {
        assert!(claimed.await.unwrap().is_empty());
    }
    let polls = node.store.take_calls()["next_due"];
    assert!((1..=3).contains(&polls), "{polls} for fifty who do not wait");
    node.pass(ms(1)).await;
    node.put("now", ms(0)).await;
    // No hint says so, and the next look of the node is far: who asks now finds it.
    let found = claim(ms(0)).await.unwrap();
    assert_eq!(found.iter().map(|batch| batch.messages.len()).sum::<usize>(), 1);
    assert_eq!(node.store.take_calls()["next_due"], 1);
}
