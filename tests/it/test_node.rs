//! A real node on an embedded store, and a client of its HTTP API: what the tests of the API and of the sinks share.

use std::process::Command;
use std::time::Duration;

use duetime_testkit::in_time;
use duetime_testkit::servers::{Node, NodeOptions, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Longest wait for a breaker: that of its last probe may have grown to many seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Messages in one part of a backlog.
const PART: usize = 1_000;
const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");

/// A client that speaks as any program does.
pub(crate) fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// Asks a node, with a body unless it is null; the status, and what it answered if that is JSON.
pub(crate) async fn ask(node: &Node, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let request = client().request(method, format!("{}{path}", node.url()));
    let request = if body.is_null() { request } else { request.json(body) };
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap_or_default())
}

/// Asks a node for what is below `/v1/topics/`, which must succeed.
pub(crate) async fn done(node: &Node, method: Method, path: &str, body: &Value) -> Value {
    let (status, answer) = ask(node, method, &format!("/v1/topics/{path}"), body).await;
    in_time!(status != 503, "{path}: {status} {answer}");
    assert!((200..300).contains(&status), "{path}: {status} {answer}");
    answer
}

/// A node whose clock is moved, on a store that is nobody else's.
pub(crate) async fn with_test_clock(config: &str) -> Node {
    let options = NodeOptions { flags: vec!["--test-clock"], ..NodeOptions::default() };
    Node::start_as(PROGRAM, "embedded:data", config, options).await
}

/// Moves the clock of such a node ahead.
pub(crate) async fn advance(node: &Node, by: &str) {
    let (status, answer) = ask(node, Method::POST, "/v1/test-clock", &json!({"advance": by})).await;
    assert_eq!(status, 200, "{answer}");
}

/// Claims a message of the topic `orders` and waits for it; null if none came.
pub(crate) async fn claim_one(node: &Node, wait: &str) -> Value {
    let mut claimed = done(node, Method::POST, "orders/claim", &json!({"wait": wait})).await;
    claimed["messages"].get_mut(0).map(Value::take).unwrap_or_default()
}

/// Whether a command that is given to this node goes well, and what it prints on both ways.
pub(crate) fn run(node: &Node, args: &[&str]) -> (bool, String) {
    let mut command = Command::new(PROGRAM);
    command.env("DUETIME_NODE", node.url()).args(args);
    let output = tokio::task::block_in_place(|| command.output().unwrap());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), text + &String::from_utf8_lossy(&output.stderr))
}

/// All messages of a topic that match: a node that is busy ends a page early.
pub(crate) async fn listed(node: &Node, topic: &str, query: &str) -> Vec<Value> {
    let (mut messages, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = done(node, Method::GET, &format!("{topic}/messages?limit=500{query}{cursor}"), &json!({})).await;
        messages.extend(page["messages"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next"].as_str() else { return messages };
        cursor = format!("&cursor={next}");
    }
}

/// A real node on an embedded store, and a client of its HTTP API: what the tests of the API and of the sinks share.
pub(crate) struct TestNode {
    pub(crate) process: Node,
    client: reqwest::Client,
}

impl std::ops::Deref for TestNode {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.process
    }
}

impl TestNode {
    pub(crate) async fn new(config: &str) -> Self {
        Self { process: Node::start_embedded(PROGRAM, config).await, client: client() }
    }

    /// The same on this store.
    pub(crate) async fn on(store: &str, config: &str) -> Self {
        Self { process: Node::start(PROGRAM, store, config).await, client: client() }
    }

    /// So many nodes of one Redis, which share its shards; each with a file of its own that has these lines.
    pub(crate) async fn sharing(many: usize, redis: &RedisServer, lines: &str) -> Vec<Self> {
        let mut nodes = Vec::new();
        for n in 0..many {
            let own = format!("[node]\nid = \"n{n}\"\n[ownership]\nmode = \"round-robin\"\n{lines}");
            nodes.push(Self::on(&redis.url(), &own).await);
        }
        nodes
    }

    /// The same as the first with these variables.
    pub(crate) async fn with(env: Vec<(&'static str, String)>, config: &str) -> Self {
        Self { process: Node::start_with(PROGRAM, "embedded:data", config, env).await, client: client() }
    }

    /// With the topic `orders` of four shards, which consumers claim from.
    pub(crate) async fn with_orders() -> Self {
        let node = Self::new("").await;
        assert_eq!(node.topic("orders", json!({"shards": 4})).await.0, 201);
        node
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.process.url()))
    }

    async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
        let answer = request.send().await.unwrap();
        (answer.status(), answer.json().await.unwrap())
    }

    pub(crate) async fn call(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        Self::answer(self.request(method, path).json(&body)).await
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        Self::answer(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        self.call(Method::POST, path, body).await
    }

    /// Creates or changes a topic; answers what the node said.
    pub(crate) async fn topic(&self, topic: &str, settings: Value) -> (StatusCode, Value) {
        self.call(Method::PUT, &format!("/v1/topics/{topic}"), settings).await
    }

    /// Creates the topic `orders` with the sink `s`, these settings beside its name, and one attempt for each message.
    pub(crate) async fn orders(&self, settings: &Value, visibility: Value) {
        let mut sink = settings.clone();
        sink["name"] = json!("s");
        let retry = json!({"max_attempts": 1});
        let topic = json!({"shards": 4, "sink": sink, "visibility_timeout": visibility, "retry": retry});
        let (status, body) = self.topic("orders", topic).await;
        assert_eq!(status, 201, "{body}");
    }

    /// Waits until the breaker of the topic `orders` is open, or closed.
    pub(crate) async fn breaker(&self, open: bool) {
        let end = Instant::now() + PATIENCE;
        while (self.metric("duetime_breaker_open").await > 0.0) != open {
            duetime_testkit::in_time!(Instant::now() < end, "the breaker stays as it is:\n{}", self.process.output());
            let_pass(Duration::from_millis(20), Because::AskedAgain).await;
        }
    }

    /// Enqueues so many messages that are due at once, with these ids and payloads.
    pub(crate) async fn enqueue(&self, topic: &str, ids: impl IntoIterator<Item = String>) {
        let messages: Vec<Value> =
            ids.into_iter().map(|id| json!({"delay": 0, "payload": format!("of {id}"), "id": id})).collect();
        self.enqueue_all(topic, messages).await;
    }

    pub(crate) async fn enqueue_all(&self, topic: &str, messages: Vec<Value>) {
        let many = messages.len();
        let results = self.results(topic, messages).await;
        assert_eq!(results.iter().filter(|one| one["outcome"] == "scheduled").count(), many, "{results:?}");
    }

    /// The same, and answers what became of each.
    pub(crate) async fn results(&self, topic: &str, messages: Vec<Value>) -> Vec<Value> {
        let (status, body) = self.post(&format!("/v1/topics/{topic}/messages"), json!(messages)).await;
        in_time!(status != 503, "{topic}: {status} {body}");
        assert_eq!(status, 200, "{body}");
        body["results"].as_array().unwrap().clone()
    }

    pub(crate) async fn counts(&self, topic: &str) -> Value {
        self.get(&format!("/v1/topics/{topic}")).await.1
    }

    /// How many of a histogram's observations for the topic `orders` are no more than `most`, a bound of a bucket.
    pub(crate) async fn bucket(&self, name: &str, most: Duration) -> f64 {
        let start = format!("{name}_bucket{{");
        let bound = format!("le=\"{}\"", most.as_secs());
        let told = self.metrics().await;
        let mut lines = told.lines().filter(|line| line.starts_with(&start) && line.contains("topic=\"orders\""));
        let line = lines.find(|line| line.contains(&bound)).unwrap_or_else(|| panic!("{start} {bound}: {told}"));
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }

    pub(crate) async fn metrics(&self) -> String {
        self.request(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap()
    }

    pub(crate) async fn memory_mib(&self) -> f64 {
        self.metric("process_resident_memory_bytes").await / f64::from(1 << 20)
    }

    /// The value of a metric of the topic `orders`, or of all topics, summed over its other labels.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let told = self.metrics().await;
        let ours = |labels: &str| !labels.contains("topic=") || labels.contains("topic=\"orders\"");
        let lines = told.lines().filter_map(|line| line.strip_prefix(name)).filter_map(|rest| rest.rsplit_once(' '));
        let exact = lines.filter(|(labels, _)| (labels.is_empty() || labels.starts_with('{')) && ours(labels));
        exact.map(|(_, value)| value.parse::<f64>().unwrap()).sum()
    }

    /// The value of the one line of the metrics that begins so.
    pub(crate) async fn line(&self, start: &str) -> Option<f64> {
        let told = self.metrics().await;
        told.lines().find_map(|one| one.strip_prefix(start)).map(|value| value.trim().parse().unwrap())
    }

    pub(crate) async fn message(&self, topic: &str, id: &str) -> Value {
        self.get(&format!("/v1/topics/{topic}/messages/{id}")).await.1
    }

    /// One message while it is not on its way: a target that is down is tried every few seconds, and whoever is on its
    /// way then shows the attempt that it is.
    pub(crate) async fn message_at_rest(&self, topic: &str, id: &str) -> Value {
        let began = tokio::time::Instant::now();
        loop {
            let message = self.message(topic, id).await;
            if message["state"] != "in_flight" {
                return message;
            }
            duetime_testkit::in_time!(began.elapsed() < PATIENCE, "it is always on its way: {message}");
        }
    }

    pub(crate) async fn dead(&self, topic: &str) -> Vec<Value> {
        let (_, body) = self.get(&format!("/v1/topics/{topic}/dead")).await;
        body["messages"].as_array().unwrap().clone()
    }

    /// Enqueues `many` messages of the topic `orders` in parts; after the first of them `then` is done.
    pub(crate) async fn backlog(&self, prefix: &str, many: usize, mut then: impl FnMut()) {
        let all: Vec<String> = ids(prefix, many).collect();
        for (n, part) in all.chunks(PART).enumerate() {
            self.enqueue("orders", part.iter().cloned()).await;
            if n == 0 {
                then();
            }
        }
    }

    /// Waits until nothing is scheduled or in flight.
    pub(crate) async fn drained(&self, topic: &str, within: Duration) {
        let end = Instant::now() + within;
        loop {
            let counts = self.counts(topic).await;
            if counts["scheduled"] == 0 && counts["in_flight"] == 0 {
                return;
            }
            duetime_testkit::in_time!(Instant::now() < end, "not drained: {counts}\n{}", self.process.output());
            let_pass(Duration::from_millis(50), Because::AskedAgain).await;
        }
    }
}

/// `prefix-0`, `prefix-1` and so on.
pub(crate) fn ids(prefix: &str, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |n| format!("{prefix}-{n}"))
}
