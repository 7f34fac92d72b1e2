//! Producers and consumers over HTTP that write down what they see, and the verdict on it.
//!
//! Each id has one producer, which makes one change after the other; what may be in flight is not
//! changed any more, so that the order of events in the history is the order of what happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_core::Clock as _;
use duetime_testkit::WallClock;
use duetime_testkit::history::{Change, FinalState, Left, Outcome, Recorder, Rules, What, check, digest};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const PRODUCERS: usize = 4;
const CONSUMERS: usize = 3;
const FAR_MS: i64 = 3_600_000;
const VISIBILITY_MS: i64 = 5_000;
/// Longer than any answer takes: the next claim is written down after the end of this one.
const NACK_DELAY_MS: u64 = 1_500;
/// A settlement is tried again for about as long as its claim lasts.
const SETTLE_TRIES: u32 = 80;
/// A claim that is held so long is a long one.
const HELD: Duration = Duration::from_millis(1_500);
/// Time for everything that is near to be delivered in the end.
const DRAIN_MAX: Duration = Duration::from_secs(40);

#[derive(Clone)]
struct Api {
    base: String,
    client: reqwest::Client,
    history: Arc<Recorder>,
}

impl Api {
    /// The answer, or none while the node is away.
    async fn call(&self, method: Method, path: &str, body: Value) -> Option<(StatusCode, Value)> {
        let url = format!("{}/v1/topics/orders{path}", self.base);
        let answer = self.client.request(method, url).json(&body).timeout(Duration::from_secs(20)).send().await.ok()?;
        let status = answer.status();
        let body: Value = answer.json().await.ok()?;
        assert!(status.as_u16() < 500 || status == StatusCode::SERVICE_UNAVAILABLE, "{status}: {body}");
        (status != StatusCode::SERVICE_UNAVAILABLE).then_some((status, body))
    }

    /// One change of an id, written down from question to answer; its outcome.
    async fn change(&self, id: &str, change: Change, method: Method, path: &str, body: Value) -> Option<String> {
        self.history.note("orders", id, What::Invoked(change));
        let outcome = match self.call(method, path, body).await {
            Some((_, body)) => body["outcome"].as_str().or(body["code"].as_str()).map(str::to_owned),
            None => None,
        };
        let what = outcome.clone().map_or(What::Unanswered, |outcome| What::Answered { outcome });
        self.history.note("orders", id, what);
        outcome
    }

    async fn enqueue(&self, id: &str, delay_ms: i64, text: &str, conflict: &str) -> Option<String> {
        let due_at_ms = WallClock.now().as_millis() + delay_ms;
        let change = Change::Enqueue { due_at_ms, payload: digest(text.as_bytes()) };
        let body = json!({"id": id, "due_at": due_at_ms, "payload": text, "on_conflict": conflict});
        self.change(id, change, Method::POST, "/messages", body).await
    }

    async fn reschedule(&self, id: &str, delay_ms: i64) -> Option<String> {
        let due_at_ms = WallClock.now().as_millis() + delay_ms;
        let path = format!("/messages/{id}");
        self.change(id, Change::Reschedule { due_at_ms }, Method::PATCH, &path, json!({ "due_at": due_at_ms })).await
    }

    async fn cancel(&self, id: &str) -> Option<String> {
        self.change(id, Change::Cancel, Method::DELETE, &format!("/messages/{id}"), json!({})).await
    }

    async fn produce(self, producer: usize, stop: Arc<AtomicBool>) {
        for n in 0.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let id = format!("p{producer}-{n}");
            let near_ms = rand::random_range(0..1_500);
            let first = match n % 5 {
                0 => near_ms,
                _ => FAR_MS,
            };
            if self.enqueue(&id, first, &format!("{id} first"), "reject").await.as_deref() != Some("scheduled") {
                continue;
            }
            match n % 5 {
                0 => {}
                1 => {
                    assert!(matches!(self.cancel(&id).await.as_deref(), Some("cancelled") | None), "{id}");
                }
                2 => {
                    self.reschedule(&id, near_ms).await;
                }
                3 => {
                    let replaced = self.enqueue(&id, near_ms, &format!("{id} second"), "replace").await;
                    assert!(matches!(replaced.as_deref(), Some("replaced") | None), "{id}: {replaced:?}");
                }
                _ => {
                    let again = self.enqueue(&id, FAR_MS, &format!("{id} again"), "reject").await;
                    assert!(matches!(again.as_deref(), Some("duplicate") | None), "{id}: {again:?}");
                    self.reschedule(&id, near_ms).await;
                }
            }
        }
    }

    async fn consume(self, stop: Arc<AtomicBool>) {
        let mut held = JoinSet::new();
        while !stop.load(Ordering::Relaxed) {
            let Some((_, claim)) = self.call(Method::POST, "/claim", json!({"max": 16, "wait": "200ms"})).await else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            for message in claim["messages"].as_array().cloned().unwrap_or_default() {
                let id = message["id"].as_str().unwrap().to_owned();
                let attempt = u8::try_from(message["attempt"].as_u64().unwrap()).unwrap();
                let payload = digest(message["payload"].as_str().unwrap().as_bytes());
                let until_ms = Some(WallClock.now().as_millis() + VISIBILITY_MS - 1_000);
                self.history.note("orders", &id, What::Handed { attempt, payload, until_ms });
                let (api, receipt) = (self.clone(), message["receipt"].clone());
                match rand::random_range(0..10) {
                    0 => {
                        held.spawn(async move {
                            tokio::time::sleep(HELD).await;
                            api.settle("/ack", &id, attempt, &receipt, Outcome::Accepted).await;
                        });
                    }
                    1 | 2 if attempt < 5 => api.settle("/nack", &id, attempt, &receipt, Outcome::Retry).await,
                    _ => api.settle("/ack", &id, attempt, &receipt, Outcome::Accepted).await,
                }
            }
        }
        held.join_all().await;
    }

    /// Settles, again and again until it is answered.
    async fn settle(&self, path: &str, id: &str, attempt: u8, receipt: &Value, outcome: Outcome) {
        let nack = json!({"receipts": [receipt], "delay": NACK_DELAY_MS});
        let body = if path == "/ack" { json!({"receipts": [receipt]}) } else { nack };
        for n in 0..SETTLE_TRIES {
            let Some((_, answer)) = self.call(Method::POST, path, body.clone()).await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            // A try whose answer was lost may have done it.
            if answer["results"][0]["outcome"] == "ok" || n > 0 {
                self.history.note("orders", id, What::Settled { attempt, outcome });
            }
            return;
        }
    }
}

/// See the module.
pub struct Load {
    pub history: Arc<Recorder>,
    api: Api,
    kept: usize,
    producing: Arc<AtomicBool>,
    consuming: Arc<AtomicBool>,
    producers: JoinSet<()>,
    consumers: JoinSet<()>,
}

impl Load {
    /// Begins, with so many messages that are due in an hour.
    pub async fn start(base: String, kept: usize) -> Self {
        let history = Recorder::new(Arc::new(WallClock));
        let api = Api { base, client: crate::http_api::client(), history: history.clone() };
        for n in 0..kept {
            let id = format!("kept-{n}");
            assert_eq!(api.enqueue(&id, FAR_MS, &id, "reject").await.as_deref(), Some("scheduled"));
        }
        let (producing, consuming) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (mut producers, mut consumers) = (JoinSet::new(), JoinSet::new());
        for producer in 0..PRODUCERS {
            producers.spawn(api.clone().produce(producer, producing.clone()));
        }
        for _ in 0..CONSUMERS {
            consumers.spawn(api.clone().consume(consuming.clone()));
        }
        Self { history, api, kept, producing, consuming, producers, consumers }
    }

    /// Wishes for another count.
    pub async fn resize(&self, shards: u32) {
        let (status, body) =
            self.api.call(Method::PUT, "/shards", json!({ "shards": shards })).await.expect("answered");
        assert_eq!(status, StatusCode::ACCEPTED, "{body}");
    }

    /// Waits until the topic has that many and nothing moves.
    pub async fn until_resized(&self, shards: u32, patience: Duration) {
        let mut last = Value::Null;
        let done = async {
            loop {
                if let Some((_, now)) = self.api.call(Method::GET, "/shards", json!({})).await {
                    if now["shard_count"] == shards && now.get("resize").is_none() {
                        return;
                    }
                    last = now["resize"].clone();
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let in_time = tokio::time::timeout(patience, done).await;
        assert!(in_time.is_ok(), "not resized to {shards} in time: {last}");
    }

    /// Lets everything that is near be delivered, and judges.
    pub async fn end(mut self) {
        self.producing.store(true, Ordering::Relaxed);
        while let Some(ended) = self.producers.join_next().await {
            ended.unwrap();
        }
        let events = self.history.events();
        // Enqueued without an answer, or rescheduled so: they may be far away still.
        let unsure: std::collections::BTreeSet<&str> =
            events.iter().filter(|event| event.what == What::Unanswered).map(|event| event.id.as_str()).collect();
        for id in unsure {
            self.api.cancel(id).await;
        }
        let kept = self.kept as u64;
        let mut counts = (0, 0, 0);
        let drained = async {
            loop {
                let (_, topic) = self.api.call(Method::GET, "", json!({})).await.expect("answered");
                let count = |name: &str| topic[name].as_u64().unwrap();
                counts = (count("scheduled"), count("in_flight"), count("dead"));
                if counts == (kept, 0, 0) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let in_time = tokio::time::timeout(DRAIN_MAX, drained).await;
        assert!(in_time.is_ok(), "scheduled, in flight and dead are {counts:?}, and {kept} were to be kept");
        self.consuming.store(true, Ordering::Relaxed);
        while let Some(ended) = self.consumers.join_next().await {
            ended.unwrap();
        }
        let left = |n: usize| {
            let id = format!("kept-{n}");
            let payload = digest(id.as_bytes());
            Left { topic: "orders".to_owned(), id, state: "scheduled".to_owned(), payload, reason: None }
        };
        let left = FinalState { left: (0..self.kept).map(left).collect(), counts: Some(counts) };
        let verdict = check(&self.history.events(), &left, Rules { attempts_max: 50, aftermath_ms: 2 * VISIBILITY_MS });
        verdict.assert_good();
        assert!(verdict.accepted > 100, "there was a load: {verdict}");
    }
}
