//! One consumer's request claims from the shards that are due side by side, and gives back what it does not take.

use std::sync::atomic::Ordering;
use std::time::Duration;

use duetime_core::{
    ClaimAsk, ClaimedBatch, Clock, DeliveryMode, MessageState, ShardCount, TopicConfig, TopicStore as _,
};
use tokio::time::Instant;

use super::node::{TestNode, ids, ms, name, secs, without_sink};

const SHARDS: u32 = 8;

fn ask(max: usize, wait: Duration) -> ClaimAsk {
    ClaimAsk { max, wait, visibility: None, may_remove: true }
}

fn count(handed: &[ClaimedBatch]) -> usize {
    handed.iter().map(|handed| handed.messages.len()).sum()
}

async fn node() -> TestNode {
    with_topic(without_sink()).await
}

async fn with_topic(config: TopicConfig) -> TestNode {
    let node = TestNode::new(TopicConfig { shards: ShardCount::Fixed(SHARDS), ..config }).await;
    // It is known how large messages are.
    node.put("first", ms(0)).await;
    assert_eq!(count(&node.engine.consumers().claim(&name(), ask(1, secs(1))).await.unwrap()), 1);
    node
}

/// One message in each shard, due 10 ms ago.
async fn one_each(node: &TestNode) -> Vec<String> {
    let mut all = Vec::new();
    for index in 0..SHARDS {
        all.extend(node.ids_of(index, "each", 1).await);
    }
    node.put_all(&all, ms(0)).await;
    node.pass(ms(10)).await;
    all
}

fn ids_in(handed: &[ClaimedBatch]) -> Vec<String> {
    handed.iter().flat_map(|one| one.messages.iter().map(|message| message.id.to_string())).collect()
}

/// Fails unless `taken` are `all`, each once.
fn each_once(mut taken: Vec<String>, mut all: Vec<String>) {
    taken.sort();
    all.sort();
    assert_eq!(taken, all, "each once");
}

/// A client claims all, and hangs up after 2 ms.
async fn hang_up(node: &TestNode) {
    let gone = tokio::time::timeout(ms(2), node.engine.consumers().claim(&name(), ask(100, secs(20)))).await;
    assert!(gone.is_err());
}

#[tokio::test(start_paused = true)]
async fn shards_that_are_due_are_asked_side_by_side() {
    let node = node().await;
    one_each(&node).await;
    *node.store.delay.lock() = ms(10);
    let began = Instant::now();
    let handed = node.engine.consumers().claim(&name(), ask(100, ms(0))).await.unwrap();
    assert_eq!(count(&handed), SHARDS as usize);
    assert!(began.elapsed() <= ms(12), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn no_more_shards_are_asked_than_messages_are_wanted() {
    let node = node().await;
    one_each(&node).await;
    node.store.take_calls();
    let handed = node.engine.consumers().claim(&name(), ask(3, ms(0))).await.unwrap();
    assert_eq!(count(&handed), 3);
    node.pass(ms(100)).await;
    let calls = node.store.take_calls();
    assert_eq!((calls["claim"], calls.get("settle")), (3, None), "nothing was claimed to be given back");
}

#[tokio::test(start_paused = true)]
async fn a_claim_brings_all_that_is_due_although_some_answers_take_longer_than_others() {
    for slow in 0..SHARDS {
        let node = node().await;
        let put = one_each(&node).await;
        *node.store.slow_shard.lock() = Some((slow, ms(60)));
        let handed = node.engine.consumers().claim(&name(), ask(put.len(), secs(1))).await.unwrap();
        assert_eq!(count(&handed), put.len(), "shard {slow} is slow");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_in_hand_does_not_wait_long_for_a_shard_whose_answer_is_slow() {
    let node = node().await;
    let all = one_each(&node).await;
    *node.store.delay.lock() = ms(2);
    *node.store.slow_shard.lock() = Some((3, secs(3)));
    let consumers = node.engine.consumers();
    let began = Instant::now();
    let handed = consumers.claim(&name(), ask(100, secs(20))).await.unwrap();
    assert_eq!(count(&handed), SHARDS as usize - 1);
    assert!(began.elapsed() <= ms(110), "{:?}", began.elapsed());
    *node.store.slow_shard.lock() = None;
    // What came too late went back at once and cost no attempt.
    let handed = consumers.claim(&name(), ask(100, secs(20))).await.unwrap();
    assert_eq!((count(&handed), handed[0].messages[0].attempt), (1, 1));
    assert!(began.elapsed() <= ms(3_100), "{:?}", began.elapsed());
    assert_eq!(handed[0].messages[0].id.as_str(), all[3]);
}

#[tokio::test(start_paused = true)]
async fn all_that_was_claimed_for_a_client_that_hangs_up_goes_back_at_once() {
    let node = node().await;
    let all = one_each(&node).await;
    *node.store.slow_shard.lock() = Some((3, ms(4)));
    let consumers = node.engine.consumers();
    // Seven shards have answered, the eighth has not.
    hang_up(&node).await;
    node.pass(ms(10)).await;
    for id in &all {
        let message = node.get(id).await.unwrap();
        assert_eq!((message.state, message.attempts), (MessageState::Scheduled, 0), "{id}");
    }
    assert_eq!(node.held(), (0, 0));
    *node.store.slow_shard.lock() = None;
    let handed = consumers.claim(&name(), ask(100, secs(1))).await.unwrap();
    assert_eq!(count(&handed), SHARDS as usize);
    assert!(handed.iter().flat_map(|handed| handed.messages.iter()).all(|message| message.attempt == 1));
}

#[tokio::test(start_paused = true)]
async fn a_drain_hands_out_or_gives_back_what_is_in_hand() {
    let node = node().await;
    let all = one_each(&node).await;
    *node.store.slow_shard.lock() = Some((3, ms(4)));
    let consumers = node.engine.consumers();
    let waiting = tokio::spawn(async move { consumers.claim(&name(), ask(100, secs(20))).await.unwrap() });
    node.pass(ms(2)).await;
    node.engine.drain(secs(5)).await;
    let handed = waiting.await.unwrap();
    let in_hand = ids_in(&handed);
    for id in &all {
        let state = node.get(id).await.unwrap().state;
        let is_in_hand = in_hand.contains(id);
        assert_eq!(state == MessageState::Scheduled, !is_in_hand, "{id} is {state:?}, in hand: {is_in_hand}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_on_a_topic_that_is_deleted_is_notified_and_gets_the_messages_of_a_new_one() {
    let node = node().await;
    let wait = || {
        let consumers = node.engine.consumers();
        tokio::spawn(async move { (consumers.claim(&name(), ask(1, secs(60))).await, Instant::now()) })
    };
    // Deleted: all who wait learn of it at once.
    let waiting = [wait(), wait(), wait()];
    node.pass(secs(1)).await;
    node.store.inner.delete_topic(&name(), duetime_core::Deletion::Force).await.unwrap();
    let deleted = Instant::now();
    node.tell().await;
    for waiting in waiting {
        let (answer, at) = waiting.await.unwrap();
        assert!(matches!(answer, Err(duetime_core::StoreError::UnknownShard(_))), "{answer:?}");
        assert!(at - deleted <= ms(5), "{:?}", at - deleted);
    }
    // Deleted and created anew between two looks at the topics.
    node.set_topic(without_sink()).await;
    let waiting = wait();
    node.pass(secs(1)).await;
    node.store.inner.delete_topic(&name(), duetime_core::Deletion::Force).await.unwrap();
    node.set_topic(without_sink()).await;
    node.put("anew", ms(300)).await;
    let due = Instant::now() + ms(300);
    let (answer, at) = waiting.await.unwrap();
    assert_eq!(answer.unwrap()[0].messages[0].id.as_str(), "anew");
    assert!(at <= due + ms(5), "{:?} late", at - due);
}

#[tokio::test(start_paused = true)]
async fn who_waits_while_the_topic_s_settings_change_goes_on_waiting_under_the_new_ones() {
    let node = node().await;
    let consumers = node.engine.consumers();
    let waiting = tokio::spawn(async move { consumers.claim(&name(), ask(1, secs(60))).await.unwrap() });
    node.pass(secs(1)).await;
    node.set_topic(TopicConfig { visibility_timeout: secs(7), ..without_sink() }).await;
    node.put_all(&ids("o", 1), ms(100)).await;
    node.pass(ms(150)).await;
    let handed = waiting.await.unwrap();
    let visible = handed[0].messages[0].score.visible_at();
    let left = visible.since(node.clock.now());
    assert!(left <= secs(7), "{left:?}");
}

/// So many messages, spread over the shards, due at once.
async fn many(node: &TestNode, prefix: &str, count: usize) {
    let all = ids(prefix, count);
    node.put_all(&all, ms(0)).await;
    node.pass(ms(10)).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_brings_as_many_as_it_asks_for_where_so_many_are_due() {
    let node = node().await;
    *node.store.delay.lock() = ms(4);
    let consumers = node.engine.consumers();
    for (due, max) in [(20, 10), (20, 20), (60, 50), (8, 8), (200, 200)] {
        many(&node, &format!("{due}-{max}"), due).await;
        assert_eq!(count(&consumers.claim(&name(), ask(max, secs(1))).await.unwrap()), max, "{max} of {due}");
        // The rest.
        while count(&consumers.claim(&name(), ask(256, ms(0))).await.unwrap()) > 0 {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_has_enough_fills_a_claim_alone_and_each_has_its_turn() {
    let node = node().await;
    many(&node, "many", 1_600).await;
    let consumers = node.engine.consumers();
    // The first claim learns how many there are.
    let mut taken = count(&consumers.claim(&name(), ask(40, ms(0))).await.unwrap());
    node.store.take_calls();
    let mut turns = Vec::new();
    for _ in 0..3 * SHARDS {
        let handed = consumers.claim(&name(), ask(20, ms(0))).await.unwrap();
        assert_eq!((handed.len(), count(&handed)), (1, 20), "of one shard");
        turns.push(handed[0].shard.index);
        taken += 20;
    }
    let (all, shards) = (turns.len(), SHARDS as usize);
    for turn in turns.windows(shards) {
        let mut turn = turn.to_vec();
        turn.sort_unstable();
        assert_eq!(turn, (0..SHARDS).collect::<Vec<_>>(), "no shard waits for longer than all others once: {turns:?}");
    }
    assert_eq!(node.store.take_calls()["claim"], all);
    while taken < 1_600 {
        taken += count(&consumers.claim(&name(), ask(256, ms(0))).await.unwrap());
    }
    assert!(node.store.take_calls()["claim"] <= 3 * shards, "what is left is claimed in full claims");
}

async fn at_most_once() -> TestNode {
    with_topic(TopicConfig { delivery: DeliveryMode::AtMostOnce, ..without_sink() }).await
}

#[tokio::test(start_paused = true)]
async fn at_most_once_loses_nothing_to_a_shard_whose_answer_is_slow() {
    let node = at_most_once().await;
    one_each(&node).await;
    *node.store.delay.lock() = ms(2);
    *node.store.slow_shard.lock() = Some((3, secs(3)));
    let consumers = node.engine.consumers();
    let mut taken = 0;
    for round in 0..SHARDS * 3 {
        // Each answer of that shard comes when nobody waits for it any more; then it is well again.
        if round == SHARDS {
            *node.store.slow_shard.lock() = None;
        }
        taken += count(&consumers.claim(&name(), ask(100, secs(2))).await.unwrap_or_default());
    }
    assert_eq!(taken, SHARDS as usize);
}

#[tokio::test(start_paused = true)]
async fn what_was_claimed_at_most_once_for_a_client_that_hangs_up_is_scheduled_again() {
    let node = at_most_once().await;
    let all = one_each(&node).await;
    *node.store.delay.lock() = ms(4);
    let consumers = node.engine.consumers();
    hang_up(&node).await;
    node.pass(ms(50)).await;
    for id in &all {
        assert_eq!(node.get(id).await.unwrap().state, MessageState::Scheduled, "{id}");
    }
    let mut taken = Vec::new();
    while taken.len() < all.len() {
        let handed = consumers.claim(&name(), ask(100, secs(1))).await.unwrap();
        assert!(count(&handed) > 0, "{taken:?}");
        taken.extend(ids_in(&handed));
    }
    each_once(taken, all);
    assert_eq!(node.held(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_was_cancelled_meanwhile_is_not_handed_out_at_most_once_and_never_scheduled_again() {
    let node = at_most_once().await;
    let all = one_each(&node).await;
    *node.store.claim_answer_delay.lock() = ms(4);
    // The client hangs up before it is answered, and a cancel comes before the node has noticed.
    hang_up(&node).await;
    node.cancel(&all[0]).await;
    node.put(&all[0], secs(3600)).await;
    node.pass(ms(50)).await;
    assert_eq!(node.get(&all[0]).await.unwrap().visible_at, node.clock.now().plus(secs(3600) - ms(50)));
    node.cancel(&all[0]).await;
    // A cancel comes between the claim and the answer.
    let waiting = {
        let consumers = node.engine.consumers();
        tokio::spawn(async move { consumers.claim(&name(), ask(100, secs(1))).await.unwrap() })
    };
    node.pass(ms(2)).await;
    node.cancel(&all[1]).await;
    let handed = waiting.await.unwrap();
    let handed = ids_in(&handed);
    assert!(!handed.contains(&all[0]) && !handed.contains(&all[1]), "{handed:?}");
    node.pass(secs(100)).await;
    assert_eq!((node.get(&all[0]).await, node.get(&all[1]).await), (None, None));
}

#[tokio::test(start_paused = true)]
async fn what_a_claim_took_whose_answer_was_lost_is_handed_out_at_most_once_all_the_same() {
    let node = at_most_once().await;
    let all = one_each(&node).await;
    node.store.lose_claim_answers.store(SHARDS as usize, Ordering::SeqCst);
    let consumers = node.engine.consumers();
    let mut taken = Vec::new();
    for _ in 0..30 {
        let handed = consumers.claim(&name(), ask(100, secs(1))).await.unwrap_or_default();
        taken.extend(ids_in(&handed));
    }
    each_once(taken, all);
}
