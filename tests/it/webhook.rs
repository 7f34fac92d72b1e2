//! A topic whose sink is a webhook, on a real node.

mod batch;
mod limits;
mod urls;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_testkit::Webhook;
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::Answer;
use serde_json::json;

use crate::test_node::{TestNode, ids};

/// A node whose topic `orders` goes to `hook`, with these further settings.
async fn node(hook: &Webhook, sink: &str, retry: serde_json::Value) -> TestNode {
    let config =
        format!("[sinks.shop]\ntype = \"http\"\nurl = {:?}\nallow = [\"127.0.0.1\"]\n{sink}", hook.url("/due"));
    let node = TestNode::new(&config).await;
    let (status, body) = node.topic("orders", json!({"shards": 2, "sink": {"name": "shop"}, "retry": retry})).await;
    assert_eq!(status, 201, "{body}");
    node
}

#[tokio::test]
async fn a_cancel_of_what_a_webhook_did_not_answer_says_that_it_may_arrive() {
    let hook = Webhook::start();
    hook.answer(|_| Answer::status(200).after(Duration::from_secs(30)));
    let node = node(&hook, "timeout = \"500ms\"", json!({"initial": "1m"})).await;
    node.enqueue("orders", ids("order", 1)).await;
    node.breaker(true).await;
    let message = loop {
        let message = node.message("orders", "order-0").await;
        if message["state"] != "in_flight" {
            break message;
        }
        let_pass(Duration::from_millis(5), Because::AskedAgain).await;
    };
    assert_eq!((&message["state"], &message["attempts"]), (&json!("scheduled"), &json!(1)), "{message}");
    let (status, body) = node.call(reqwest::Method::DELETE, "/v1/topics/orders/messages/order-0", json!(null)).await;
    assert_eq!((status.as_u16(), &body["outcome"]), (409, &json!("in_flight")), "{body}");
    let hit = hook.hits().remove(0);
    let not_after: i64 = hit.header("duetime-not-after").parse().unwrap();
    let sent_s: i64 = hit.header("webhook-timestamp").parse().unwrap();
    assert!((0..2_000).contains(&(not_after - sent_s * 1_000)), "{not_after} of {sent_s}");
}

#[tokio::test]
async fn a_target_too_slow_for_one_message_is_asked_again_and_the_others_go_on() {
    let hook = Webhook::start();
    let was_slow = AtomicBool::new(false);
    hook.answer(move |hit| {
        let slow = hit.header("duetime-id") == "order-0" && !was_slow.swap(true, Ordering::Relaxed);
        Answer::status(200).after(Duration::from_millis(if slow { 20_000 } else { 0 }))
    });
    let node = node(&hook, "timeout = \"2s\"", json!({"initial": "50ms"})).await;
    node.enqueue("orders", ids("order", 20)).await;
    node.drained("orders", Duration::from_secs(20)).await;
    let hits = hook.hits();
    let tries = hits.iter().filter(|hit| hit.header("duetime-id") == "order-0");
    let tries: Vec<_> = tries.map(|hit| (hit.header("duetime-attempt"), hit.header("webhook-id"))).collect();
    assert_eq!(tries.iter().map(|(attempt, _)| *attempt).collect::<Vec<_>>(), ["1", "1"]);
    // Nothing was accepted that was sent after it had failed, so it did not pay.
    assert_eq!(tries[0].1, tries[1].1, "the same delivery id");
    assert_eq!(hits.len(), 21);
}
