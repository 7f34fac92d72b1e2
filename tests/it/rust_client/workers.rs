//! How workers of the client for Rust keep, lose and settle messages, through a network that fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use duetime_client::{ClaimedMessage, ConsumeOptions, ConsumerEvent, Due, Handled};
use duetime_testkit::servers::Fault;
use duetime_testkit::wait::{Because, let_pass};
use futures::future::BoxFuture;
use reqwest::Method;
use serde_json::json;

use super::rig::{List, Rig, TOPIC, message, quick, receipts_of};
use super::seen;
use crate::test_node::done;

const SHORT: Duration = Duration::from_millis(200);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A handler that adds the id of its message to a list.
fn adding(to: &List<String>) -> impl Fn(ClaimedMessage) -> std::future::Ready<()> + Send + Sync + 'static {
    let to = to.clone();
    move |message| {
        to.lock().push(message.id);
        std::future::ready(())
    }
}

/// A handler that takes so long, and then adds what `say` tells of its message to a list.
fn adding_later<T: Send + 'static>(
    to: &List<T>,
    takes: Duration,
    say: fn(ClaimedMessage) -> T,
) -> impl Fn(ClaimedMessage) -> BoxFuture<'static, ()> + Send + Sync + 'static {
    let to = to.clone();
    move |message| {
        let to = to.clone();
        Box::pin(async move {
            let_pass(takes, Because::Rate).await;
            to.lock().push(say(message));
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_is_handled_once_and_no_more_is_claimed_than_slots_are_free() {
    let rig = Rig::made(60, json!({})).await;
    let (handled, held, most) = (List::default(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let handle = {
        let (handled, held, most) = (handled.clone(), held.clone(), most.clone());
        move |message: ClaimedMessage| {
            let (handled, held, most) = (handled.clone(), held.clone(), most.clone());
            async move {
                most.fetch_max(held.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let_pass(ms(20), Because::Rate).await;
                held.fetch_sub(1, Ordering::SeqCst);
                handled.lock().push((message.id, message.attempt));
            }
        }
    };
    let worker = rig.consume(ConsumeOptions { concurrency: 7, ..quick() }, handle);
    seen("all are acked", async || rig.is_empty().await).await;
    assert!(worker.events.lock().is_empty(), "{:?}", worker.events.lock());
    worker.stop().await;
    let mut all = handled.lock().clone();
    all.sort();
    all.dedup();
    assert_eq!((all.len(), handled.lock().len()), (60, 60));
    assert!((2..=7).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    for claim in rig.requests("/claim") {
        assert!((1..=7).contains(&claim.json()["max"].as_u64().unwrap()), "{}", claim.json());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_handler_keeps_its_claim() {
    let rig = Rig::made(2, json!({})).await;
    // The first beat is cut off; the next one is in time.
    rig.fault("/extend", Fault::Cut);
    let attempts = List::default();
    let handle = {
        let attempts = attempts.clone();
        move |message: ClaimedMessage| {
            attempts.lock().push(message.attempt);
            let_pass(ms(10_000), Because::Rate)
        }
    };
    let worker = rig.consume(ConsumeOptions { visibility: ms(6_000), ..quick() }, handle);
    seen("both are acked", async || rig.is_empty().await).await;
    assert!(worker.lost().is_empty(), "{:?}", worker.lost());
    worker.stop().await;
    assert_eq!(*attempts.lock(), [1, 1]);
    assert!(rig.requests("/extend").len() >= 3, "{}", rig.requests("/extend").len());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_that_was_given_up_is_not_begun_later() {
    let rig = Rig::made(1, json!({})).await;
    rig.fault("/extend", Fault::Late(ms(900)));
    let worker =
        rig.consume(ConsumeOptions { visibility: ms(2_400), ..quick() }, |_| let_pass(ms(3_000), Because::Rate));
    seen("it is acked", async || rig.is_empty().await).await;
    worker.stop().await;
    seen("the late one is answered", async || rig.requests("/extend")[0].status.is_some()).await;
    assert_eq!(rig.requests("/extend")[0].status, Some(412));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ack_waits_for_the_extension_that_is_under_way() {
    let rig = Arc::new(Rig::made(1, json!({})).await);
    rig.fault("/extend", Fault::DelayAnswer(ms(400)));
    let handle = {
        let rig = rig.clone();
        move |_| {
            let rig = rig.clone();
            async move { rig.until_sent("/extend", 1).await }
        }
    };
    let worker = rig.consume(ConsumeOptions { visibility: ms(6_000), ..quick() }, handle);
    seen("it is acked", async || rig.is_empty().await).await;
    assert!(worker.events.lock().is_empty(), "{:?}", worker.events.lock());
    worker.stop().await;
    let extended = rig.receipts("/extend");
    let acked = [rig.receipts("/ack"), rig.receipts("/claim")].concat();
    assert_eq!((extended.len(), acked.len()), (1, 1));
    assert_ne!(extended, acked);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_fails_or_panics_is_a_nack_with_its_reason() {
    let rig = Rig::made(4, json!({"retry": {"max_attempts": 1}})).await;
    let handle = |message: ClaimedMessage| {
        assert!(message.id != "m-3", "before its first await");
        async move {
            match &*message.id {
                "m-0" => Err("no such order".to_owned()),
                "m-1" => panic!("no such {}", "shop"),
                // Longer than a reason may be.
                _ => Err(format!("trace: {}", "☕".repeat(1_000))),
            }
        }
    };
    let worker = rig.consume(quick(), handle);
    seen("all are dead letters", async || rig.topic().await.dead == 4).await;
    let failed = |event: &ConsumerEvent| matches!(event, ConsumerEvent::Failed { id: Some(_), .. });
    assert_eq!(worker.events.lock().iter().filter(|event| failed(event)).count(), 4, "{:?}", worker.events.lock());
    worker.stop().await;
    let said = ["no such order", "panicked: no such shop", "trace: ☕☕☕", "panicked: before its first await"];
    for (n, reason) in said.into_iter().enumerate() {
        let id = &*format!("m-{n}");
        let death = rig.find(id).await.unwrap().death.unwrap();
        assert!(death.reason.contains(reason), "{id}: {}", death.reason);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nack_with_a_delay_is_not_undone_by_a_beat() {
    let rig = Rig::made(1, json!({})).await;
    // It is under way when the claim is a third over.
    rig.fault("/nack", Fault::DelayAnswer(ms(1_000)));
    let handle = |_| async {
        let_pass(ms(2_500), Because::Rate).await;
        Handled::Again { delay: Some(Duration::from_secs(3600)), reason: Some("not yet".to_owned()) }
    };
    let worker = rig.consume(ConsumeOptions { visibility: ms(9_000), ..quick() }, handle);
    seen("it is nacked", async || rig.requests("/nack").iter().any(|nack| nack.status.is_some())).await;
    let_pass(ms(1_500), Because::Quiet).await;
    assert!(worker.lost().is_empty(), "{:?}", worker.lost());
    worker.stop().await;
    assert_eq!((&*rig.find("m-0").await.unwrap().state, rig.requests("/nack").len()), ("scheduled", 1));
    assert_eq!(rig.requests("/extend").len() + rig.receipts("/claim").len() + rig.requests("/ack").len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_gives_a_message_up_or_has_it_again_when_its_topic_says() {
    let rig = Rig::made(2, json!({"retry": {"max_attempts": 5, "initial": "20ms"}})).await;
    let attempts = List::default();
    let handle = {
        let attempts = attempts.clone();
        move |message: ClaimedMessage| {
            attempts.lock().push((message.id.clone(), message.attempt));
            std::future::ready(match (&*message.id, message.attempt) {
                ("m-0", _) => Handled::Dead { reason: "no such order".to_owned() },
                (_, 1) => Handled::Again { delay: None, reason: None },
                _ => Handled::Done,
            })
        }
    };
    let worker = rig.consume(quick(), handle);
    let left = async || rig.topic().await;
    seen("one is dead, one is done", async || {
        let left = left().await;
        (left.scheduled, left.in_flight, left.dead) == (0, 0, 1)
    })
    .await;
    worker.stop().await;
    assert!(rig.find("m-0").await.unwrap().death.unwrap().reason.contains("no such order"));
    let mut attempts = attempts.lock().clone();
    attempts.sort();
    assert_eq!(attempts, [("m-0".to_owned(), 1), ("m-1".to_owned(), 1), ("m-1".to_owned(), 2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_whose_claim_runs_out_is_dropped() {
    let rig = Rig::made(1, json!({"retry": {"initial": "1h", "max": "1h"}})).await;
    rig.proxy.fault(Method::POST, "/extend", Fault::Cut, 1_000);
    let worker = rig.consume(ConsumeOptions { visibility: ms(1_800), ..quick() }, |_| std::future::pending::<()>());
    seen("the message is lost", async || !worker.lost().is_empty()).await;
    assert_eq!(worker.lost(), ["expired"]);
    // It would wait for a handler that runs.
    worker.stop().await;
    assert!(rig.requests("/extend").len() > 1);
    assert_eq!(rig.requests("ack").len() + rig.requests("/release").len() + rig.receipts("/claim").len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_after_its_claim_is_over_is_lost_and_not_handled() {
    let rig = Rig::made(1, json!({})).await;
    rig.fault("/claim", Fault::DelayAnswer(ms(1_500)));
    let handled = List::default();
    let worker = rig.consume(ConsumeOptions { visibility: ms(1_200), ..quick() }, adding(&handled));
    seen("it is acked", async || rig.is_empty().await).await;
    seen("its release is answered", async || rig.requests("/release").iter().any(|it| it.status.is_some())).await;
    assert_eq!(worker.lost(), ["expired"]);
    worker.stop().await;
    assert_eq!((handled.lock().clone(), rig.requests("/release").len()), (vec!["m-0".to_owned()], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ack_that_hangs_alone_or_with_a_claim_is_sent_again_in_time() {
    for (path, concurrency) in [("/claim", 1), ("/ack", 2)] {
        let rig = Arc::new(Rig::made(1, json!({})).await);
        let begun = List::default();
        let handle = {
            let (rig, begun) = (rig.clone(), begun.clone());
            move |_| {
                begun.lock().push(tokio::time::Instant::now());
                rig.fault(path, Fault::Delay(ms(20_000)));
                let_pass(SHORT, Because::Rate)
            }
        };
        let visibility = ms(6_000);
        let worker = rig.consume(ConsumeOptions { concurrency, visibility, wait: SHORT, ..quick() }, handle);
        seen("it is acked", async || rig.is_empty().await).await;
        let took = begun.lock()[0].elapsed();
        duetime_testkit::in_time!(took < visibility, "{path}: {took:?}");
        assert!(worker.lost().is_empty(), "{:?}", worker.lost());
        worker.stop().await;
        assert_eq!(begun.lock().len(), 1, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_falls_due_late_in_a_claim_that_waits_longer_than_its_visibility_is_kept() {
    let rig = Rig::made(0, json!({})).await;
    let message = message("late").due(Due::In(ms(6_000)));
    rig.beside.enqueue(TOPIC, &message).await.unwrap();
    let handled = List::default();
    let handle = adding_later(&handled, ms(500), |message| message.attempt);
    let options = ConsumeOptions { visibility: ms(4_000), wait: Duration::from_secs(20), ..ConsumeOptions::default() };
    let worker = rig.consume(options, handle);
    seen("it is acked", async || rig.is_empty().await).await;
    assert!(worker.lost().is_empty(), "{:?}", worker.lost());
    worker.stop().await;
    assert_eq!(*handled.lock(), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ack_that_comes_after_a_cancel_says_so() {
    let rig = Arc::new(Rig::made(1, json!({})).await);
    let handle = {
        let rig = rig.clone();
        move |message: ClaimedMessage| {
            let rig = rig.clone();
            async move { drop(rig.beside.cancel(TOPIC, &message.id).await.unwrap()) }
        }
    };
    let worker = rig.consume(quick(), handle);
    seen("the cancel is seen", async || !worker.lost().is_empty()).await;
    assert_eq!(worker.lost(), ["cancelled"]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_while_no_slot_is_free_is_acked_with_the_next_claim() {
    let rig = Rig::made(5, json!({})).await;
    let worker = rig.consume(ConsumeOptions { concurrency: 1, ..quick() }, |_| let_pass(SHORT, Because::Rate));
    seen("all are acked", async || rig.is_empty().await).await;
    assert!(worker.events.lock().is_empty(), "{:?}", worker.events.lock());
    worker.stop().await;
    let acked = rig.receipts("/claim");
    let mut all = [rig.receipts("/ack"), acked.clone()].concat();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 5);
    assert!(acked.len() >= 4, "{acked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ack_does_not_wait_behind_a_claim_that_waits() {
    let rig = Arc::new(Rig::made(1, json!({})).await);
    let handle = {
        let rig = rig.clone();
        move |_| {
            let rig = rig.clone();
            async move { rig.until_sent("/claim", 2).await }
        }
    };
    let options = ConsumeOptions { concurrency: 2, wait: Duration::from_secs(8), ..ConsumeOptions::default() };
    let worker = rig.consume(options, handle);
    seen("it is acked", async || rig.is_empty().await).await;
    assert_eq!((rig.requests("/claim").len(), rig.receipts("/ack").len()), (2, 1));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ack_whose_claim_has_no_answer_is_sent_by_itself() {
    let rig = Arc::new(Rig::made(2, json!({})).await);
    let faults = Arc::new(parking_lot::Mutex::new(vec![Fault::CutAnswer, Fault::Cut]));
    let handle = {
        let rig = rig.clone();
        move |_| {
            rig.fault("/claim", faults.lock().pop().unwrap());
            let_pass(SHORT, Because::Rate)
        }
    };
    let worker = rig.consume(ConsumeOptions { concurrency: 1, ..quick() }, handle);
    seen("both are acked", async || rig.is_empty().await).await;
    assert!(worker.lost().is_empty(), "{:?}", worker.lost());
    worker.stop().await;
    let with_claim = rig.receipts("/claim");
    assert_eq!((with_claim.len(), rig.receipts("/ack")), (2, with_claim));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ack_that_cannot_be_sent_is_told_and_not_followed_by_a_nack() {
    let mut rig = Rig::made(1, json!({})).await;
    rig.client = rig.client.clone().retrying(Duration::ZERO);
    rig.proxy.fault(Method::POST, "/ack", Fault::Cut, 1_000);
    // With a slot that is free the ack goes by itself.
    let worker = rig.consume(ConsumeOptions { concurrency: 2, ..quick() }, |_| let_pass(SHORT, Because::Rate));
    let failed = |event: &ConsumerEvent| matches!(event, ConsumerEvent::Failed { id: Some(id), .. } if id == "m-0");
    seen("it is told", async || worker.events.lock().iter().any(failed)).await;
    worker.stop().await;
    assert_eq!(rig.requests("/nack").len(), 0);
    assert_eq!(rig.find("m-0").await.unwrap().state, "in_flight", "it comes again after its visibility");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_is_seen_at_once_by_an_ack_that_goes_with_a_claim_that_would_wait() {
    let rig = Arc::new(Rig::made(1, json!({})).await);
    let handle = {
        let rig = rig.clone();
        move |claimed: ClaimedMessage| {
            let rig = rig.clone();
            async move {
                let_pass(SHORT, Because::Rate).await;
                drop(rig.beside.cancel(TOPIC, &claimed.id).await.unwrap());
            }
        }
    };
    let options = ConsumeOptions { concurrency: 1, wait: Duration::from_secs(50), ..ConsumeOptions::default() };
    let worker = rig.consume(options, handle);
    seen("the cancel is seen", async || !worker.lost().is_empty()).await;
    worker.stop.notify_one();
    // What ends the claim that waits by now.
    rig.beside.enqueue(TOPIC, &message("late")).await.unwrap();
    assert_eq!(worker.lost(), ["cancelled"]);
    worker.end().await;
    assert_eq!(rig.requests("/ack").len(), 0);
    // Where such a claim is lost, the ack is sent by itself before the visibility ends: 30 s.
    for claim in rig.requests("/claim") {
        let wait = if receipts_of(&claim).is_empty() { "10000ms" } else { "5000ms" };
        assert_eq!(claim.json()["wait"], wait);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_lets_handlers_end_and_releases_what_is_claimed_after_it() {
    let rig = Rig::made(1, json!({"shards": 1})).await;
    let (begun, ended) = (List::default(), Arc::new(AtomicUsize::new(0)));
    let handle = {
        let (begun, ended) = (begun.clone(), ended.clone());
        move |message: ClaimedMessage| {
            begun.lock().push(message.id);
            let ended = ended.clone();
            async move {
                let_pass(ms(500), Because::Rate).await;
                ended.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    let worker = rig.consume(ConsumeOptions { concurrency: 2, wait: ms(3_000), ..ConsumeOptions::default() }, handle);
    seen("the handler begins", async || !begun.lock().is_empty()).await;
    seen("the next claim waits", async || rig.requests("/claim").len() == 2).await;
    worker.stop.notify_one();
    // The worker has seen the stop by then.
    let_pass(SHORT, Because::Quiet).await;
    rig.beside.enqueue(TOPIC, &message("late")).await.unwrap();
    worker.end().await;
    let late = rig.find("late").await.unwrap();
    assert_eq!((&*late.state, late.attempts), ("scheduled", 0));
    assert_eq!((ended.load(Ordering::SeqCst), rig.find("m-0").await.is_none()), (1, true));
    assert_eq!((rig.requests("/release").len(), begun.lock().clone()), (1, vec!["m-0".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_goes_on_when_its_node_is_busy_or_restarts() {
    let mut rig = Rig::made(50, json!({})).await;
    rig.fault("/claim", super::rig::busy());
    let handled = List::default();
    let handle = adding_later(&handled, ms(10), |message| message.id);
    let worker = rig.consume(ConsumeOptions { visibility: ms(2_000), ..quick() }, handle);
    seen("some are handled", async || handled.lock().len() > 5).await;
    rig.node.kill();
    rig.node.start_again().await;
    for n in 0..20 {
        rig.client.enqueue(TOPIC, &message(format!("later-{n}"))).await.unwrap();
    }
    let distinct = || handled.lock().iter().collect::<std::collections::BTreeSet<_>>().len();
    seen("all are handled", async || distinct() == 70 && rig.is_empty().await).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_handled_twice_while_the_shard_count_changes() {
    let rig = Rig::made(0, json!({})).await;
    let handled = List::default();
    let worker = rig.consume(ConsumeOptions { concurrency: 20, ..quick() }, adding(&handled));
    for n in 0..150 {
        if n == 50 {
            done(&rig.node, Method::PUT, TOPIC, &json!({"shards": 5})).await;
        }
        let message = message(format!("m-{n}")).due(Due::In(ms(300)));
        assert_eq!(rig.client.enqueue(TOPIC, &message).await.unwrap().outcome, "scheduled");
    }
    seen("all are handled", async || handled.lock().len() >= 150 && rig.is_empty().await).await;
    worker.stop().await;
    let mut all = handled.lock().clone();
    all.sort();
    all.dedup();
    assert_eq!((all.len(), handled.lock().len()), (150, 150));
    assert_eq!(rig.topic().await.shard_count, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_delivered_at_most_once_has_nothing_to_settle() {
    let rig = Rig::made(3, json!({"delivery": "at-most-once"})).await;
    let handled = List::default();
    let worker = rig.consume(quick(), adding(&handled));
    seen("all are handled", async || handled.lock().len() == 3).await;
    assert!(worker.events.lock().is_empty(), "{:?}", worker.events.lock());
    worker.stop().await;
    assert_eq!(rig.requests("/ack").len() + rig.receipts("/claim").len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_names_itself_is_in_the_list_of_consumers() {
    let rig = Rig::made(1, json!({})).await;
    let options = ConsumeOptions { consumer: Some("worker-1".to_owned()), ..quick() };
    let worker = rig.consume(options, |_| std::future::pending::<()>());
    seen("it is named, and holds a message", async || {
        let found = rig.beside.consumers(TOPIC).await.unwrap().consumers;
        found.iter().any(|one| one.consumer == "worker-1" && one.held == 1)
    })
    .await;
    worker.task.abort();
}
