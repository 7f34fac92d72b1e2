//! A store that is away, slow, or loses its answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use duetime_core::{TopicConfig, Verdict};
use duetime_metrics::Meters;

use super::doubles::{HandedOwnership, TestSink, WiredStore, each, retry, slow};
use super::node::{TestNode, ids, ms, name, secs, with_sink};
use crate::DispatchConfig;

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_was_lost_costs_no_attempt_and_no_time_to_speak_of() {
    let node = TestNode::new(with_sink()).await;
    node.store.lose_claim_answers.store(2, Ordering::SeqCst);
    node.put_all(&ids("o", 20), ms(10)).await;
    node.pass(ms(500)).await;
    let times = node.sink.times();
    assert!(times.len() == 20 && times.values().all(|times| *times == 1), "{times:?}");
    assert!(node.sink.calls.lock().iter().flatten().all(|delivery| delivery.attempt == 1));
    assert_eq!(node.survey().await, Default::default());
}

#[tokio::test(start_paused = true)]
async fn a_store_outage_is_sat_out_without_spinning_and_nothing_is_lost() {
    let node = TestNode::new(with_sink()).await;
    node.put_all(&ids("o", 100), secs(5)).await;
    node.pass(secs(4)).await;
    node.store.away.store(true, Ordering::SeqCst);
    node.pass(secs(10)).await;
    node.store.take_calls();
    node.pass(secs(60)).await;
    let all: usize = node.store.take_calls().values().sum();
    assert!(all <= 60 + 2 * 45, "{all} calls in a minute to a store that is away");
    node.store.away.store(false, Ordering::SeqCst);
    node.pass(secs(4)).await;
    let times = node.sink.times();
    assert!(times.len() == 100 && times.values().all(|times| *times == 1));
    assert!(node.sink.calls.lock().iter().flatten().all(|delivery| delivery.attempt == 1));
}

#[tokio::test(start_paused = true)]
async fn a_verdict_survives_an_outage_that_is_shorter_than_the_visibility_timeout() {
    let node = TestNode::new(with_sink()).await;
    node.sink.behave(slow(ms(100)));
    node.put_all(&ids("o", 40), ms(0)).await;
    node.pass(ms(50)).await;
    node.store.away.store(true, Ordering::SeqCst);
    node.pass(secs(20)).await;
    assert_eq!(node.sink.ids().len(), 40);
    node.store.away.store(false, Ordering::SeqCst);
    node.pass(secs(60)).await;
    assert_eq!(node.sink.ids().len(), 40, "nothing was delivered twice");
    assert_eq!(node.survey().await, Default::default());
    assert_eq!(node.counts().settlements_expired.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_verdict_that_cannot_be_settled_in_time_is_dropped_counted_and_the_message_comes_again() {
    let node = TestNode::new(with_sink()).await;
    node.sink.behave(slow(ms(100)));
    node.put_all(&ids("o", 4), ms(0)).await;
    node.pass(ms(50)).await;
    node.store.away.store(true, Ordering::SeqCst);
    node.pass(secs(40)).await;
    node.store.away.store(false, Ordering::SeqCst);
    node.pass(secs(30)).await;
    assert_eq!(node.counts().settlements_expired.get(), 4);
    assert!(node.sink.times().values().all(|times| *times == 2));
    assert_eq!(node.survey().await, Default::default());
}

#[tokio::test(start_paused = true)]
async fn a_settlement_whose_answer_was_lost_is_not_taken_for_a_lost_one() {
    let node = TestNode::new(with_sink()).await;
    let fails = |id: &str, attempt| id != "good" && attempt == 1;
    node.sink.behave(each(move |it| if fails(it.id.as_str(), it.attempt) { retry() } else { Verdict::Accepted }));
    node.store.lose_settle_answers.store(2, Ordering::SeqCst);
    node.put_all(&ids("o", 10), ms(0)).await;
    node.put("good", ms(50)).await;
    node.pass(secs(10)).await;
    assert!(node.sink.times().into_iter().all(|(id, times)| times == if id == "good" { 1 } else { 2 }));
    assert_eq!(node.counts().settlements_expired.get(), 0);
    assert_eq!(node.survey().await, Default::default());
}

#[tokio::test(start_paused = true)]
async fn clocks_that_are_far_apart_stop_the_claims_until_they_are_corrected() {
    let node = TestNode::new(with_sink()).await;
    node.store.inner.set_ahead_ms(3_600_000);
    node.put_all(&ids("o", 10), ms(0)).await;
    node.pass(secs(30)).await;
    assert_eq!(node.sink.ids().len(), 0);
    let claims = node.store.take_calls()["claim"];
    assert!(claims <= 60, "{claims} claims in 30 s by a clock that is wrong");
    node.store.inner.set_ahead_ms(0);
    node.pass(secs(3)).await;
    assert_eq!(node.sink.times().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_store_whose_clock_is_behind_is_waited_for_and_not_pestered() {
    let node = TestNode::new(with_sink()).await;
    node.store.inner.set_ahead_ms(-800);
    node.put("first", secs(2)).await;
    node.pass(secs(4)).await;
    node.store.take_calls();
    node.put("second", ms(500)).await;
    node.pass(ms(1_290)).await;
    assert_eq!(node.sink.ids().len(), 1, "not early by the store's clock");
    node.pass(ms(15)).await;
    assert_eq!(node.sink.ids().len(), 2);
    let claims = node.store.take_calls()["claim"];
    assert!(claims <= 4, "{claims} claims for one message");
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_slows_down_and_loses_nothing() {
    let node = TestNode::new(with_sink()).await;
    *node.store.delay.lock() = ms(700);
    node.put_all(&ids("o", 300), ms(0)).await;
    node.pass(secs(20)).await;
    let times = node.sink.times();
    assert!(times.len() == 300 && times.values().all(|times| *times == 1));
    assert_eq!(node.survey().await, Default::default());
}

#[tokio::test(start_paused = true)]
async fn where_nodes_take_turns_what_waits_is_shown_while_the_store_is_away_and_gives_no_turn() {
    for in_turns in [true, false] {
        let ownership = Arc::new(HandedOwnership { in_turns, ..HandedOwnership::default() });
        let (store, sink, meters) = (WiredStore::new().await, TestSink::new(4, 16), Arc::new(Meters::new()));
        let node = TestNode::owning(store, sink, DispatchConfig::default(), meters, ownership.clone());
        node.set_topic(TopicConfig::default()).await;
        let all: Vec<u32> = (0..node.record().await.routing.shards).collect();
        ownership.hand(&name(), &all);
        node.put_all(&ids("o", 5), ms(0)).await;
        node.pass(secs(12)).await;
        assert_eq!(node.counts().due.get(), 5);
        node.store.away.store(true, Ordering::SeqCst);
        node.pass(secs(8)).await;
        ownership.hand(&name(), &[]);
        node.pass(secs(30)).await;
        let shown = (node.counts().due.get(), node.counts().shards_unreachable.get());
        // Else the shards are another node's.
        assert_eq!(shown, if in_turns { (5, i64::try_from(all.len()).unwrap()) } else { (0, 0) });
        assert_eq!(node.counts().oldest_due_age.get() > 35.0, in_turns);
        node.store.away.store(false, Ordering::SeqCst);
        node.pass(secs(8)).await;
        let counts = node.counts();
        assert_eq!((counts.due.get(), counts.shards_unreachable.get(), counts.oldest_due_age.get()), (0, 0, 0.0));
    }
}
