//! A topic whose sink is a webhook, on a real node.

mod limits;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duetime_testkit::Webhook;
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::Answer;
use hmac::{Hmac, Mac as _};
use serde_json::json;
use sha2::Sha256;
use tokio::time::Instant;

use crate::test_node::{TestNode, ids};

const CANARY: &str = "canary-4b1d02";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

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
async fn a_webhook_that_is_down_for_long_costs_no_attempt_and_the_backlog_drains() {
    let mut hook = Webhook::start();
    hook.stop();
    let sink = format!("headers = {{ authorization = \"Bearer {CANARY}\" }}");
    let node = node(&hook, &sink, json!({"max_attempts": 2, "initial": "10ms"})).await;
    node.enqueue("orders", ids("order", 500)).await;
    // Many more tries than there are attempts.
    let_pass(Duration::from_secs(4), Because::Fault).await;
    let counts = node.counts("orders").await;
    // Some may be on their way to find out whether it is back.
    let waiting = counts["scheduled"].as_u64().unwrap() + counts["in_flight"].as_u64().unwrap();
    assert_eq!((waiting, &counts["dead"]), (500, &json!(0)), "{counts}");
    assert_eq!(node.message_at_rest("orders", "order-7").await["attempts"], 0);
    hook.start_again();
    node.drained("orders", Duration::from_secs(40)).await;
    let hits = hook.hits();
    assert_eq!(hits.iter().map(|hit| hit.header("duetime-id")).collect::<BTreeSet<_>>().len(), 500);
    assert_eq!(hits.len(), 500, "nothing twice");
    assert!(hits.iter().all(|hit| hit.header("duetime-attempt") == "1"));
    assert!(hits.iter().all(|hit| hit.header("authorization").ends_with(CANARY)));
    assert!(!node.process.output().contains(CANARY), "{}", node.process.output());
}

#[tokio::test]
async fn a_message_that_is_gone_for_good_is_a_dead_letter_with_its_reason() {
    let hook = Webhook::start();
    hook.answer(|hit| if hit.header("duetime-id") == "order-1" { gone() } else { Answer::status(202) });
    let node = node(&hook, "", json!({})).await;
    node.enqueue("orders", ids("order", 3)).await;
    // That others are accepted afterwards shows that it is not the target that is gone.
    let began = tokio::time::Instant::now();
    while node.counts("orders").await["dead"] != 1 {
        duetime_testkit::in_time!(began.elapsed() < Duration::from_secs(20), "{}", node.process.output());
        node.enqueue("orders", ids(&format!("later-{}", began.elapsed().as_millis()), 1)).await;
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
    node.drained("orders", Duration::from_secs(20)).await;
    let dead = node.dead("orders").await;
    assert_eq!((&dead[0]["id"], &dead[0]["attempts"]), (&json!("order-1"), &json!(2)));
    assert_eq!(dead[0]["death"]["reason"], "the target answered 410: Gone, this shop has closed");
    assert_eq!(hook.hits().iter().filter(|hit| hit.header("duetime-id") == "order-1").count(), 2, "it was confirmed");
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

fn gone() -> Answer {
    Answer::status(410).body("this shop has closed")
}

#[tokio::test]
async fn a_pause_that_the_target_asks_for_is_kept_and_costs_nothing() {
    let hook = Webhook::start();
    let first = Arc::new(AtomicUsize::new(0));
    let asked = Arc::new(std::sync::Mutex::new(None));
    let (seen, at) = (first.clone(), asked.clone());
    hook.answer(move |_| {
        if seen.fetch_add(1, Ordering::SeqCst) == 0 {
            return Answer::status(429).header("retry-after", "2");
        }
        at.lock().unwrap().get_or_insert_with(Instant::now);
        Answer::status(200)
    });
    let node = node(&hook, "", json!({"max_attempts": 1})).await;
    let started = Instant::now();
    node.enqueue("orders", ids("order", 1)).await;
    node.drained("orders", Duration::from_secs(20)).await;
    let waited = asked.lock().unwrap().expect("it was handed over") - started;
    assert!(waited >= Duration::from_millis(1_900), "{waited:?}");
    assert_eq!(node.counts("orders").await["dead"], 0);
    assert_eq!(hook.hits().iter().map(|hit| hit.header("duetime-attempt")).collect::<Vec<_>>(), ["1", "1"]);
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

#[tokio::test]
async fn a_receiver_can_verify_every_signature_by_itself() {
    let hook = Webhook::start();
    let newer = format!("whsec_{}", STANDARD.encode([7; 32]));
    let node = node(&hook, &format!("signing_secrets = [{newer:?}, {SECRET:?}]"), json!({})).await;
    node.enqueue_all("orders", vec![json!({"id": "bits", "payload_base64": "AP/+DQo=", "delay": 0})]).await;
    node.enqueue("orders", ids("order", 5)).await;
    node.drained("orders", Duration::from_secs(20)).await;
    let hits = hook.hits();
    assert_eq!(hits.len(), 6);
    assert!(hits.iter().any(|hit| hit.body[..] == *b"\x00\xff\xfe\r\n"));
    let now_s = std::fs::metadata(node.process.folder().join("output")).unwrap().modified().unwrap();
    let now_s = now_s.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    for hit in hits {
        let timestamp = hit.header("webhook-timestamp");
        assert!(timestamp.parse::<u64>().unwrap().abs_diff(now_s) < 120);
        let mut signed = format!("{}.{timestamp}.", hit.header("webhook-id")).into_bytes();
        signed.extend_from_slice(&hit.body);
        let signatures: Vec<&str> = hit.header("webhook-signature").split(' ').collect();
        for (secret, signature) in [newer.as_str(), SECRET].into_iter().zip(&signatures) {
            let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
            let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
            mac.update(&signed);
            assert_eq!(*signature, format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())));
        }
        assert_eq!(signatures.len(), 2);
    }
}

#[tokio::test]
async fn a_topic_with_a_wrong_sink_or_setting_is_refused_with_the_nearest_right_one() {
    let hook = Webhook::start();
    let node = node(&hook, "", json!({})).await;
    for (sink, says) in [
        (json!({"name": "shpo"}), "did you mean \"shop\""),
        (json!({"name": "shop", "pth": "/x"}), "did you mean \"path\""),
        (json!({"name": "shop", "url": "http://169.254.169.254/"}), "url"),
    ] {
        let (status, body) = node.topic("other", json!({"sink": sink})).await;
        assert!(status.is_client_error(), "{body}");
        assert!(body["detail"].as_str().unwrap().contains(says), "{body}");
    }
}
