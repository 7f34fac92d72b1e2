//! What an idle node costs, and how it still notices everything.

use std::sync::atomic::Ordering;

use duetime_core::{RetryPolicy, ShardCount, TopicConfig};

use super::doubles::{TestSink, WiredStore, each, retry};
use super::house::{House, ids, ms, secs, with_sink};
use crate::DispatchConfig;

#[tokio::test(start_paused = true)]
async fn an_idle_node_looks_once_a_second_at_all_its_shards_and_counts_every_five() {
    let house = House::new(with_sink()).await;
    house.put_all(&ids("far", 100), secs(86_400)).await;
    house.pass(secs(2)).await;
    house.store.take_calls();
    house.pass(secs(60)).await;
    let calls = house.store.take_calls();
    assert!((59..=61).contains(&calls["heads"]), "{calls:?}");
    assert!((11..=13).contains(&calls["survey"]), "{calls:?}");
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert_eq!(house.counts().scheduled.get(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_due_in_the_middle_of_nowhere_costs_one_claim() {
    let house = House::new(with_sink()).await;
    house.put("o-1", ms(30_500)).await;
    house.pass(secs(29)).await;
    house.store.take_calls();
    house.pass(ms(2_000)).await;
    assert_eq!(house.sink.ids(), ["o-1"]);
    let calls = house.store.take_calls();
    assert_eq!((calls["claim"], calls["settle"]), (1, 1), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn without_any_hint_a_message_is_found_by_the_look_of_the_next_second() {
    let store = WiredStore::new();
    store.deaf.store(true, Ordering::SeqCst);
    let house = House::on(store, TestSink::new(4, 16), DispatchConfig::default());
    house.set_topic(with_sink()).await;
    house.pass(ms(2_300)).await;
    house.put("now", ms(0)).await;
    house.put("in-a-while", ms(5_000)).await;
    house.pass(ms(1_010)).await;
    assert_eq!(house.sink.ids(), ["now"]);
    house.pass(ms(3_985)).await;
    assert_eq!(house.sink.ids().len(), 1);
    house.pass(ms(10)).await;
    assert_eq!(house.sink.ids().len(), 2, "at its millisecond, for a poll told it in time");
}

#[tokio::test(start_paused = true)]
async fn a_new_head_wakes_the_node_before_its_next_look() {
    let house = House::new(with_sink()).await;
    house.put("late", secs(100)).await;
    house.pass(ms(10_100)).await;
    house.put("soon", ms(50)).await;
    house.pass(ms(54)).await;
    assert_eq!(house.sink.ids(), ["soon"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_head_costs_no_claim() {
    let house = House::new(with_sink()).await;
    house.put("o-1", secs(10)).await;
    house.pass(secs(5)).await;
    house.cancel("o-1").await;
    house.store.take_calls();
    house.pass(secs(20)).await;
    assert_eq!(house.store.take_calls().get("claim"), None);
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_on_time_without_any_hint_of_the_store() {
    let store = WiredStore::new();
    store.deaf.store(true, Ordering::SeqCst);
    let house = House::on(store, TestSink::new(4, 16), DispatchConfig::default());
    let policy = RetryPolicy { initial: ms(100), factor: 1.0, jitter: 0.0, ..RetryPolicy::default() };
    house.set_topic(TopicConfig { retry: policy, ..with_sink() }).await;
    house.sink.behave(each(|_| retry()));
    house.put("o-1", ms(2_050)).await;
    house.pass(ms(2_600)).await;
    assert_eq!(house.sink.ids().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn messages_that_fall_due_one_after_the_other_share_claims_and_settlements() {
    let house = House::new(TopicConfig { shards: ShardCount::Fixed(1), ..with_sink() }).await;
    let start = ms(2_000);
    for (n, id) in ids("o", 2_000).iter().enumerate() {
        house.put(id, start + ms(n as u64 / 2)).await;
    }
    house.pass(ms(1_900)).await;
    house.store.take_calls();
    house.pass(ms(1_200)).await;
    assert_eq!(house.sink.times().len(), 2_000);
    let calls = house.store.take_calls();
    assert!(calls["claim"] <= 1_005 && calls["settle"] <= 250, "{calls:?}");
    let late = house.counts().lateness.get_sample_sum() / 2_000.0;
    assert!(late < 0.003, "{late} s late in the mean");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_while_a_claim_is_under_way_is_not_overlooked() {
    let house = House::new(TopicConfig { shards: ShardCount::Fixed(1), ..with_sink() }).await;
    house.pass(ms(5_100)).await;
    *house.store.claim_answer_delay.lock() = ms(100);
    house.put("first", ms(0)).await;
    house.pass(ms(50)).await;
    house.put("second", ms(0)).await;
    house.pass(ms(170)).await;
    assert_eq!(house.sink.ids(), ["first", "second"]);
}
