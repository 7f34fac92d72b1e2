//! Messages with a visibility timeout of their own.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use duetime_core::store::{ClaimedMessage, Settle, Settled, Settlement};
use duetime_core::{
    ClaimAsk, ClaimedBatch, Clock as _, DeliveryMode, Headers, LeaseClass, MessageState, ShardCount, TopicConfig,
    own_visibility,
};
use duetime_testkit::at_home::SettledAtHome as _;
use tokio::time::Instant;

use super::node::{TestNode, ms, name, secs, without_sink};

fn ask(max: usize, wait: Duration) -> ClaimAsk {
    ClaimAsk { max, wait, visibility: None, may_remove: true }
}

/// A node whose topic hides what is claimed for 30 s, in one shard.
async fn one_shard() -> TestNode {
    TestNode::new(TopicConfig { shards: ShardCount::Fixed(1), ..without_sink() }).await
}

async fn put_with(node: &TestNode, id: &str, visibility: Duration) {
    let headers = own_visibility::kept_in(visibility, &Headers::default());
    node.put_in(&node.record().await, &[id.to_owned()], &headers, &Bytes::new()).await;
}

fn messages(handed: &[ClaimedBatch]) -> Vec<ClaimedMessage> {
    handed.iter().flat_map(|batch| batch.messages.iter().cloned()).collect()
}

/// How long others are kept from it, from now on.
fn left(node: &TestNode, message: &ClaimedMessage) -> Duration {
    message.score.visible_at().since(node.clock.now())
}

fn by_id(handed: &[ClaimedBatch], id: &str) -> ClaimedMessage {
    messages(handed).into_iter().find(|message| message.id.as_str() == id).unwrap_or_else(|| panic!("{id} came"))
}

fn ids_of(handed: &[ClaimedBatch]) -> Vec<String> {
    messages(handed).into_iter().map(|message| message.id.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn each_message_is_hidden_for_as_long_as_it_says_and_the_rest_as_its_topic_says() {
    let node = one_shard().await;
    node.put("plain", ms(0)).await;
    put_with(&node, "longer", secs(600)).await;
    put_with(&node, "shorter", secs(2)).await;
    node.store.take_calls();
    let handed = node.engine.consumers().claim(&name(), ask(10, secs(5))).await.unwrap();
    let calls = node.store.take_calls();
    assert_eq!((calls["claim"], calls["settle"]), (1, 1), "one batch more: {calls:?}");
    for (id, visibility) in [("plain", secs(30)), ("longer", secs(600)), ("shorter", secs(2))] {
        let message = by_id(&handed, id);
        let left = left(&node, &message);
        assert!(left <= visibility + ms(5) && left > visibility - ms(500), "{id}: {left:?}");
        assert_eq!(message.score.class(), LeaseClass::for_visibility(visibility), "{id}");
        assert_eq!(node.get(id).await.unwrap().visible_at, message.score.visible_at(), "{id}: as the store has it");
        let ack = [Settle { id: message.id, score: message.score, action: Settlement::Ack }];
        let settled = node.store.inner.settle(&handed[0].shard, node.clock.now(), &ack).await.unwrap();
        assert_eq!(settled, [Settled::Ok], "{id}: it is settled by what was answered");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_asks_for_a_time_has_that_and_no_batch_more() {
    let node = one_shard().await;
    put_with(&node, "own", secs(600)).await;
    node.store.take_calls();
    let wanted = ClaimAsk { visibility: Some(secs(7)), ..ask(1, secs(5)) };
    let handed = node.engine.consumers().claim(&name(), wanted).await.unwrap();
    assert_eq!(node.store.take_calls().get("settle"), None);
    assert!(left(&node, &by_id(&handed, "own")) <= secs(7) + ms(5));
}

#[tokio::test(start_paused = true)]
async fn what_says_nothing_costs_no_batch_more() {
    let node = one_shard().await;
    node.put_all(&super::node::ids("o", 20), ms(0)).await;
    node.store.take_calls();
    let handed = node.engine.consumers().claim(&name(), ask(20, secs(5))).await.unwrap();
    assert_eq!((messages(&handed).len(), node.store.take_calls().get("settle")), (20, None));
}

#[tokio::test(start_paused = true)]
async fn one_that_says_a_shorter_time_comes_again_when_that_is_over() {
    let node = one_shard().await;
    put_with(&node, "o-1", secs(2)).await;
    let consumers = node.engine.consumers();
    for batch in consumers.claim(&name(), ask(1, secs(5))).await.unwrap() {
        batch.release.unless_sent().sent();
    }
    let began = Instant::now();
    let again = consumers.claim(&name(), ask(1, secs(25))).await.unwrap();
    let message = by_id(&again, "o-1");
    assert_eq!((message.attempt, message.suspect), (2, true));
    // And the first wait of the retry.
    let waited = began.elapsed();
    assert!(waited >= secs(2) - ms(500) && waited < secs(5), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn an_extension_without_an_answer_hands_its_messages_to_nobody_and_they_come_again() {
    let node = one_shard().await;
    node.put("plain", ms(0)).await;
    put_with(&node, "own", secs(60)).await;
    node.store.lose_settle_answers.store(1, Ordering::SeqCst);
    let consumers = node.engine.consumers();
    let began = Instant::now();
    let handed = consumers.claim(&name(), ask(10, secs(5))).await.unwrap();
    assert_eq!(ids_of(&handed), ["plain"], "the others go out");
    for batch in handed {
        let acks: Vec<Settle> = batch.messages.iter().map(|one| settle(one, Settlement::Ack)).collect();
        node.store.inner.settle(&batch.shard, node.clock.now(), &acks).await.unwrap();
        batch.release.unless_sent().sent();
    }
    let mut again = Vec::new();
    while again.is_empty() {
        again = consumers.claim(&name(), ask(10, secs(60))).await.unwrap();
    }
    // It was extended: nobody has it before that ends.
    assert!(began.elapsed() >= secs(59) && began.elapsed() < secs(70), "{:?}", began.elapsed());
    assert_eq!(ids_of(&again), ["own"]);
}

fn settle(message: &ClaimedMessage, action: Settlement) -> Settle {
    Settle { id: message.id.clone(), score: message.score, action }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_cancelled_before_it_is_extended_is_handed_to_nobody() {
    let node = one_shard().await;
    put_with(&node, "own", secs(60)).await;
    node.pass(secs(1)).await;
    *node.store.delay.lock() = ms(100);
    let consumers = node.engine.consumers();
    let topic = name();
    let (handed, ()) = tokio::join!(consumers.claim(&topic, ask(10, ms(0))), async {
        while node.store.calls.lock().get("settle").is_none() {
            node.pass(ms(1)).await;
        }
        node.cancel("own").await;
    });
    assert!(messages(&handed.unwrap()).is_empty());
    assert_eq!(node.get("own").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_goes_away_while_messages_are_extended_costs_no_attempt() {
    let node = one_shard().await;
    put_with(&node, "own", secs(3600)).await;
    node.pass(secs(1)).await;
    *node.store.delay.lock() = ms(100);
    let consumers = node.engine.consumers();
    let topic = name();
    let asked = async {
        tokio::select! {
            handed = consumers.claim(&topic, ask(1, secs(5))) => panic!("{handed:?} came before the extension"),
            () = async {
                while node.store.calls.lock().get("settle").is_none() {
                    node.pass(ms(1)).await;
                }
            } => {}
        }
    };
    asked.await;
    node.pass(ms(500)).await;
    let message = node.get("own").await.unwrap();
    assert_eq!((message.state, message.attempts), (MessageState::Scheduled, 0));
}

#[tokio::test(start_paused = true)]
async fn an_extension_whose_answer_comes_when_it_is_nearly_over_goes_back() {
    let node = one_shard().await;
    put_with(&node, "own", ms(200)).await;
    node.pass(secs(1)).await;
    *node.store.delay.lock() = ms(170);
    let consumers = node.engine.consumers();
    let handed = consumers.claim(&name(), ask(1, ms(0))).await.unwrap();
    assert!(messages(&handed).is_empty(), "{handed:?}");
    *node.store.delay.lock() = ms(0);
    node.pass(ms(250)).await;
    assert_eq!(node.get("own").await.unwrap().attempts, 0);
    assert_eq!(by_id(&consumers.claim(&name(), ask(1, secs(5))).await.unwrap(), "own").attempt, 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_ready_does_not_wait_for_a_server_that_answers_no_extension() {
    let node = TestNode::new(TopicConfig { shards: ShardCount::Fixed(2), ..without_sink() }).await;
    node.store.servers.store(2, Ordering::SeqCst);
    let (own, plain) = (node.ids_of(0, "own", 1).await.remove(0), node.ids_of(1, "plain", 1).await.remove(0));
    put_with(&node, &own, secs(600)).await;
    node.put(&plain, ms(0)).await;
    node.pass(secs(1)).await;
    *node.store.delay.lock() = ms(10);
    let (consumers, topic, began) = (node.engine.consumers(), name(), Instant::now());
    let (handed, ()) = tokio::join!(consumers.claim(&topic, ask(10, secs(5))), async {
        while node.store.calls.lock().get("settle").is_none() {
            node.pass(ms(1)).await;
        }
        node.store.silent.lock().insert(node.store.server_of_index(0));
    });
    assert_eq!(ids_of(&handed.unwrap()), [plain]);
    assert!(began.elapsed() < secs(5), "{:?}", began.elapsed());
    node.store.silent.lock().clear();
    node.pass(secs(2)).await;
    let message = node.get(&own).await.unwrap();
    assert_eq!((message.state, message.attempts), (MessageState::Scheduled, 0), "it went back when it was answered");
}

#[tokio::test(start_paused = true)]
async fn at_most_once_it_means_nothing() {
    let config = TopicConfig { delivery: DeliveryMode::AtMostOnce, ..without_sink() };
    let node = TestNode::new(config).await;
    put_with(&node, "own", secs(60)).await;
    let consumers = node.engine.consumers();
    assert_eq!(ids_of(&consumers.claim(&name(), ask(1, secs(5))).await.unwrap()), ["own"]);
    assert_eq!(node.get("own").await, None);
}
