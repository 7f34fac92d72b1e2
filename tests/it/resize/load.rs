//! Producers and consumers over HTTP that write down what they see, and the verdict on it.
//!
//! Each id has one producer, which makes one change after the other; what may be in flight is not
//! changed any more, so that the order of events in the history is the order of what happened.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_core::Clock as _;
use duetime_testkit::history::{
    Change, Event, FaultKind, FinalState, Left, Outcome, Recorder, Rules, What, check, digest,
};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::{WallClock, in_time, promised};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

const PRODUCERS: usize = 4;
const CONSUMERS: usize = 3;
pub const FAR_MS: i64 = 3_600_000;
const VISIBILITY_MS: i64 = 5_000;
/// Longest wait for an answer; what was stopped meanwhile may take long.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// A node asks its store again after five seconds.
const DOUBTED_AFTER: Duration = Duration::from_secs(4);
/// Longer than any answer takes: the next claim is written down after the end of this one.
const NACK_DELAY_MS: u64 = 1_500;
/// A settlement is tried again for about as long as its claim lasts.
const SETTLE_TRIES: u32 = 80;
/// A claim that is held this long is a long one.
const HELD: Duration = Duration::from_millis(1_500);
/// Time for everything that is near to be delivered in the end.
const DRAIN_MAX: Duration = Duration::from_secs(40);

#[derive(Clone)]
pub struct Api {
    /// Which node it prefers; while that one is away, the next.
    at: usize,
    nodes: watch::Receiver<Vec<Place>>,
    client: reqwest::Client,
    history: Arc<Recorder>,
    /// Whether an answer counts that took long.
    is_patient: bool,
}

#[derive(Clone)]
struct Place {
    url: String,
    is_up: bool,
    /// Whether the answers of requests that it has already are waited for.
    is_answering: bool,
}

impl Api {
    /// The same client at another node.
    pub fn at(&self, at: usize) -> Self {
        Self { at, ..self.clone() }
    }

    /// The same client, which asks only what cannot have been done before the node fell asleep.
    pub fn patient(&self) -> Self {
        Self { is_patient: true, ..self.clone() }
    }

    /// The answer, or none while the node is away.
    pub async fn call(&self, method: Method, path: &str, body: Value) -> Option<(StatusCode, Value)> {
        let (status, body) = self.told(method, path, body).await?;
        let passes = matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::INSUFFICIENT_STORAGE);
        assert!(status.as_u16() < 500 || passes, "{status}: {body}");
        if passes && self.is_patient {
            eprintln!("a patient producer was refused: {status} {body}");
        }
        (!passes).then_some((status, body))
    }

    /// The answer whatever it is, unless the node goes away meanwhile.
    pub async fn told(&self, method: Method, path: &str, body: Value) -> Option<(StatusCode, Value)> {
        let mut nodes = self.nodes.clone();
        let (n, url) = {
            let all = nodes.borrow_and_update();
            let n = (0..all.len()).map(|n| (self.at + n) % all.len()).find(|n| all[*n].is_up);
            let n = n.unwrap_or(self.at % all.len());
            (n, format!("{}/v1/topics/orders{path}", all[n].url))
        };
        let asked = async {
            let mut request = self.client.request(method, url).json(&body).timeout(ANSWER_MAX);
            if self.is_patient {
                // Without it, a node that slept carries nothing of it out.
                let end = duetime_core::Clock::now(&duetime_testkit::WallClock).plus(ANSWER_MAX).as_millis();
                request = request.header("duetime-not-after", end);
            }
            let answer = request.send().await.ok()?;
            Some((answer.status(), answer.json().await.ok()?))
        };
        tokio::select! {
            biased;
            answer = asked => answer,
            _ = nodes.wait_for(|all| !all[n].is_answering) => None,
        }
    }

    /// One change of an id, written down from question to answer; its outcome.
    ///
    /// What fewer replicas have than the nodes are configured to wait for may be lost: it counts as not answered.
    async fn change(&self, id: &str, change: Change, method: Method, path: &str, body: Value) -> Option<String> {
        self.history.note("orders", id, What::Invoked(change));
        let asked = Instant::now();
        let answer = self.call(method, path, body).await;
        // The store's answer to the node may have been lost, and what was delivered since is unknown.
        let is_sure = self.is_patient || asked.elapsed() < DOUBTED_AFTER || !self.may_doubt();
        let answer = answer.filter(|_| is_sure);
        let outcome = match answer {
            Some((_, body)) if body["replicas"] == 0 => None,
            Some((_, body)) => body["outcome"].as_str().or(body["code"].as_str()).map(str::to_owned),
            None => None,
        };
        let what = outcome.clone().map_or(What::Unanswered, |outcome| What::Answered { outcome });
        self.history.note("orders", id, what);
        outcome
    }

    /// Whether a node may have been cut off from its store, or asleep, at some time.
    fn may_doubt(&self) -> bool {
        self.history.met(|fault| fault != FaultKind::NodeKilled)
    }

    pub async fn enqueue(&self, id: &str, delay_ms: i64, text: &str, conflict: &str) -> Option<String> {
        let due_at_ms = WallClock.now().as_millis() + delay_ms;
        let change = Change::Enqueue { due_at_ms, payload: digest(text.as_bytes()) };
        let headers = json!({ "of": id });
        let body = json!({"id": id, "due_at": due_at_ms, "payload": text, "headers": headers, "on_conflict": conflict});
        self.change(id, change, Method::POST, "/messages", body).await
    }

    pub async fn reschedule(&self, id: &str, delay_ms: i64) -> Option<String> {
        let due_at_ms = WallClock.now().as_millis() + delay_ms;
        let path = format!("/messages/{id}");
        self.change(id, Change::Reschedule { due_at_ms }, Method::PATCH, &path, json!({ "due_at": due_at_ms })).await
    }

    pub async fn cancel(&self, id: &str) -> Option<String> {
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
            let asked_ms = WallClock.now().as_millis();
            let Some((_, claim)) = self.call(Method::POST, "/claim", json!({"max": 16, "wait": "200ms"})).await else {
                let_pass(Duration::from_millis(20), Because::AskedAgain).await;
                continue;
            };
            // Read so late, it is as good as lost: others may have what was claimed.
            if WallClock.now().as_millis() >= asked_ms + VISIBILITY_MS - 1_000 {
                continue;
            }
            let until_ms = asked_ms + VISIBILITY_MS - 1_000;
            let mut claimed = Vec::new();
            // All of them are in its hands now, however long the first of them take.
            for message in claim["messages"].as_array().cloned().unwrap_or_default() {
                let id = message["id"].as_str().unwrap().to_owned();
                let attempt = u8::try_from(message["attempt"].as_u64().unwrap()).unwrap();
                let payload = digest(message["payload"].as_str().unwrap().as_bytes());
                self.history.note("orders", &id, What::Handed { attempt, payload, until_ms: Some(until_ms) });
                claimed.push((id, attempt, message["receipt"].clone()));
            }
            for (id, attempt, receipt) in claimed {
                let api = self.clone();
                match rand::random_range(0..10) {
                    0 => {
                        held.spawn(async move {
                            let_pass(HELD, Because::Rate).await;
                            api.settle("/ack", &id, attempt, &receipt, Outcome::Accepted, until_ms).await;
                        });
                    }
                    1 | 2 if attempt < 5 => {
                        api.settle("/nack", &id, attempt, &receipt, Outcome::Retry, until_ms).await;
                    }
                    _ => api.settle("/ack", &id, attempt, &receipt, Outcome::Accepted, until_ms).await,
                }
            }
        }
        held.join_all().await;
    }

    /// Whether a cancel was asked for, as it is in the end for what was left in doubt: in flight too, it is gone then.
    fn is_cancelled(&self, id: &str) -> bool {
        self.history.events().iter().any(|event| event.id == id && event.what == What::Invoked(Change::Cancel))
    }

    /// What is known of an id, and of the faults, to explain what is broken.
    fn so_far(&self, id: &str) -> String {
        let all = self.history.events().into_iter().filter(|event| event.id == id || event.id.is_empty());
        all.map(|event| format!("\n  {event:?}")).collect()
    }

    /// Settles, again and again until it is answered.
    async fn settle(&self, path: &str, id: &str, attempt: u8, receipt: &Value, outcome: Outcome, until_ms: i64) {
        let nack = json!({"receipts": [receipt], "delay": format!("{NACK_DELAY_MS}ms")});
        let body = if path == "/ack" { json!({"receipts": [receipt]}) } else { nack };
        for n in 0..SETTLE_TRIES {
            let Some((_, answer)) = self.call(Method::POST, path, body.clone()).await else {
                let_pass(Duration::from_millis(50), Because::AskedAgain).await;
                continue;
            };
            // A try whose answer was lost, here or between node and store, may have done it: within its
            // time a claim is not gone by itself.
            let in_time = WallClock.now().as_millis() < until_ms;
            let is_ok = answer["results"][0]["outcome"] == "ok";
            let is_gone = answer["code"] == "unknown_topic";
            let is_cancelled = self.is_cancelled(id);
            promised!(
                is_ok || n > 0 || !in_time || is_gone || is_cancelled || self.may_doubt(),
                "{id}: a receipt is refused in its time: {answer}; so far: {}",
                self.so_far(id)
            );
            if is_ok {
                self.history.note("orders", id, What::Settled { attempt, outcome });
            } else if n > 0 || (in_time && !is_cancelled) {
                self.history.note("orders", id, What::Settled { attempt, outcome: Outcome::Unknown });
            }
            return;
        }
    }
}

/// Producers and consumers over HTTP that write down what they see, and the verdict on it.
pub struct Load {
    pub history: Arc<Recorder>,
    pub api: Api,
    nodes: watch::Sender<Vec<Place>>,
    kept: usize,
    producing: Arc<AtomicBool>,
    consuming: Arc<AtomicBool>,
    producers: JoinSet<()>,
    consumers: JoinSet<()>,
}

impl Load {
    /// Begins, with so many messages that are due in an hour. The consumers go to the nodes but the first `quiet`.
    pub async fn start(urls: Vec<String>, kept: usize, quiet: usize) -> Self {
        let history = Recorder::new(Arc::new(WallClock));
        let places = urls.into_iter().map(|url| Place { url, is_up: true, is_answering: true });
        let (nodes, seen) = watch::channel(places.collect());
        let api =
            Api { at: 0, nodes: seen, client: crate::test_node::client(), history: history.clone(), is_patient: false };
        for n in 0..kept {
            let id = format!("kept-{n}");
            let first = api.at(n).enqueue(&id, FAR_MS, &id, "reject").await;
            assert_eq!(first.as_deref(), Some("scheduled"));
        }
        let (producing, consuming) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (mut producers, mut consumers) = (JoinSet::new(), JoinSet::new());
        for producer in 0..PRODUCERS {
            producers.spawn(api.at(producer).produce(producer, producing.clone()));
        }
        let count = nodes.borrow().len();
        for consumer in 0..CONSUMERS {
            consumers.spawn(api.at(quiet + consumer % (count - quiet)).consume(consuming.clone()));
        }
        Self { history, api, nodes, kept, producing, consuming, producers, consumers }
    }

    /// Nobody asks this node from now on, or waits for its answer; or they do again.
    pub fn is_up(&self, n: usize, is_up: bool) {
        self.nodes.send_modify(|all| (all[n].is_up, all[n].is_answering) = (is_up, is_up));
    }

    /// Nobody asks this node from now on. What was asked of it is answered before it ends.
    pub fn ends(&self, n: usize) {
        self.nodes.send_modify(|all| all[n].is_up = false);
    }

    pub fn join(&self, url: String) {
        self.nodes.send_modify(|all| all.push(Place { url, is_up: true, is_answering: true }));
    }

    pub async fn resize(&self, shards: u32) {
        let answer = self.api.call(Method::PUT, "/shards", json!({ "shards": shards })).await;
        let (status, body) = answer.expect("answered");
        assert_eq!(status, StatusCode::ACCEPTED, "{body}");
    }

    /// The same, again until it is answered; by a node that dies of it, or whose store is away, it is not.
    pub async fn insist(&self, shards: u32) {
        let requested = async {
            while self.api.call(Method::PUT, "/shards", json!({ "shards": shards })).await.is_none() {
                let_pass(Duration::from_millis(50), Because::AskedAgain).await;
            }
        };
        tokio::time::timeout(ANSWER_MAX, requested).await.expect("answered");
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
                let_pass(Duration::from_millis(50), Because::AskedAgain).await;
            }
        };
        let in_time = tokio::time::timeout(patience, done).await;
        in_time!(in_time.is_ok(), "not resized to {shards} in time: {last}");
    }

    /// A message that was kept, as it is there now: its due time and headers are those it was given.
    async fn kept(&self, events: &[Event], id: &str) -> Option<Left> {
        let asked = async {
            loop {
                if let Some(told) = self.api.call(Method::GET, &format!("/messages/{id}"), json!({})).await {
                    return told;
                }
                let_pass(Duration::from_millis(50), Because::AskedAgain).await;
            }
        };
        let (status, told) = tokio::time::timeout(ANSWER_MAX, asked).await.expect("answered");
        if status == StatusCode::NOT_FOUND {
            return None;
        }
        let given = events.iter().find_map(|event| match event.what {
            What::Invoked(Change::Enqueue { due_at_ms, .. }) if event.id == id => Some(due_at_ms),
            _ => None,
        });
        let due_at_ms = told["due_at"].as_i64();
        promised!(due_at_ms == given, "{id} was given {given:?} and has another due time: {told}");
        promised!(told["headers"] == json!({ "of": id }), "{id} has other headers: {told}");
        let payload = digest(told["payload"].as_str().unwrap_or_default().as_bytes());
        let state = told["state"].as_str().unwrap_or_default().to_owned();
        Some(Left { topic: "orders".to_owned(), id: id.to_owned(), state, payload, reason: None })
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
        let mut counts = (kept, 0, 0);
        let drained = async {
            loop {
                let Some((_, topic)) = self.api.call(Method::GET, "", json!({})).await else { continue };
                let count = |name: &str| topic[name].as_u64().unwrap();
                counts = (count("scheduled"), count("in_flight"), count("dead"));
                if counts == (kept, 0, 0) {
                    return;
                }
                let_pass(Duration::from_millis(100), Because::AskedAgain).await;
            }
        };
        let in_time = tokio::time::timeout(DRAIN_MAX, drained).await;
        let told = format!("scheduled, in flight and dead are {counts:?}, and {kept} were to be kept");
        assert!(counts.0 + counts.1 >= kept && counts.2 == 0, "{told}");
        in_time!(in_time.is_ok(), "{told}");
        self.consuming.store(true, Ordering::Relaxed);
        while let Some(ended) = self.consumers.join_next().await {
            ended.unwrap();
        }
        let mut left = FinalState { left: Vec::new(), counts: Some(counts) };
        for n in 0..self.kept {
            left.left.extend(self.kept(&events, &format!("kept-{n}")).await);
        }
        let verdict = check(&self.history.events(), &left, Rules { attempts_max: 50, aftermath_ms: 2 * VISIBILITY_MS });
        verdict.assert_good();
        in_time!(verdict.accepted > 30, "there was a load: {verdict}");
    }
}
