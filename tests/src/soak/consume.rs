//! Consumers: most of what they claim is acked, some is given back, held for long, or forgotten.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use duetime_core::Clock as _;
use duetime_testkit::WallClock;
use duetime_testkit::history::{Outcome, What, digest};
use duetime_testkit::wait::{Because, let_pass};
use reqwest::Method;
use serde_json::{Value, json};

use super::world::{Shared, TO_CONSUMERS, VISIBILITY};
use crate::crash::Draw;

const CONSUMERS: u64 = 3;
const CLAIMED_MAX: usize = 32;
/// How long a consumer works at what it is slow with.
const SLOW: Duration = Duration::from_secs(2);
const NACK_DELAY_MS: u64 = 500;
/// Between two tries of a settlement that was not answered.
const AGAIN_AFTER: Duration = Duration::from_millis(300);
/// A claim counts as ended this long before it is.
const MARGIN_MS: i64 = 1_500;

struct Held {
    id: String,
    attempt: u8,
    receipt: Value,
    until_ms: i64,
}

/// Starts the consumers, which go on to the end.
pub fn start(shared: &Arc<Shared>, seed: u64) {
    for n in 0..CONSUMERS {
        tokio::spawn(consume(shared.clone(), Draw::new(seed, 50 + n)));
    }
}

fn now_ms() -> i64 {
    WallClock.now().as_millis()
}

async fn consume(shared: Arc<Shared>, mut draw: Draw) {
    let visibility_ms = i64::try_from(VISIBILITY.as_millis()).expect("small");
    loop {
        let until_ms = now_ms() + visibility_ms - MARGIN_MS;
        let ask = json!({"max": CLAIMED_MAX, "wait": "2s"});
        let Some(claim) = shared.call(Method::POST, TO_CONSUMERS, "/claim", &ask).await else {
            let_pass(Duration::from_millis(100), Because::AskedAgain).await;
            continue;
        };
        // Read so late, it is as good as lost: others may have what was claimed.
        if now_ms() >= until_ms {
            continue;
        }
        let (mut acked, mut nacked, mut slow) = (Vec::new(), Vec::new(), Vec::new());
        for message in claim.body["messages"].as_array().into_iter().flatten() {
            let id = message["id"].as_str().expect("an id").to_owned();
            let attempt = u8::try_from(message["attempt"].as_u64().expect("a number")).expect("small");
            let payload = digest(message["payload"].as_str().expect("a text").as_bytes());
            // How long a claim holds is not known where a failover may lose it.
            let holds = (!shared.is_replicated).then_some(until_ms);
            shared.recorder.note(TO_CONSUMERS, &id, What::Handed { attempt, payload, until_ms: holds });
            let held = Held { id, attempt, receipt: message["receipt"].clone(), until_ms };
            match draw.below(50) {
                // Forgotten: due again when its claim has run out.
                0 if attempt < 10 => {}
                1..=4 if attempt < 40 => nacked.push(held),
                5 | 6 => slow.push(held),
                _ => acked.push(held),
            }
        }
        settle(&shared, "/ack", Outcome::Accepted, acked).await;
        settle(&shared, "/nack", Outcome::Retry, nacked).await;
        if !slow.is_empty() {
            let shared = shared.clone();
            shared.settling.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let_pass(SLOW, Because::Rate).await;
                settle(&shared, "/ack", Outcome::Accepted, slow).await;
                shared.settling.fetch_sub(1, Ordering::SeqCst);
            });
        }
    }
}

/// Settles, again and again until it is answered or the claims have run out.
async fn settle(shared: &Shared, path: &str, outcome: Outcome, held: Vec<Held>) {
    if held.is_empty() {
        return;
    }
    shared.settling.fetch_add(1, Ordering::SeqCst);
    let receipts: Vec<&Value> = held.iter().map(|held| &held.receipt).collect();
    let mut body = json!({ "receipts": receipts });
    if outcome == Outcome::Retry {
        body["delay"] = format!("{NACK_DELAY_MS}ms").into();
    }
    // It may be done as soon as it is asked for, long before its answer is read.
    let asked_ms = now_ms();
    let mut tries = 0;
    let told = loop {
        let told = shared.call(Method::POST, TO_CONSUMERS, path, &body).await;
        tries += 1;
        if told.is_some() || now_ms() > held[0].until_ms {
            break told;
        }
        let_pass(AGAIN_AFTER, Because::AskedAgain).await;
    };
    for (n, held) in held.iter().enumerate() {
        let word = told.as_ref().and_then(|told| told.body["results"][n]["outcome"].as_str());
        // A call whose answer was lost may have done it: what it did counts as done.
        let may_be_done = match (word, told.as_ref()) {
            (Some("ok"), _) | (None, _) => true,
            (Some(_), Some(told)) => tries > 1 || shared.store_failed_since(told.asked),
            (Some(_), None) => false,
        };
        if may_be_done {
            let attempt = held.attempt;
            shared.recorder.note_at(asked_ms, TO_CONSUMERS, &held.id, What::Settled { attempt, outcome });
        }
    }
    shared.settling.fetch_sub(1, Ordering::SeqCst);
}
