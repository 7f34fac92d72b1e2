//! Requests that reach a node, or are gone on with by it, long after their client gave them up: the client has asked
//! another node since, and has changed its mind. Nothing of them is carried out.

use std::time::Duration;

use duetime_core::Clock as _;
use duetime_testkit::servers::{Node, Proxy, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::{WallClock, in_time};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::test_node::{TestNode, client};

const CONFIG: &str = "[ownership]\nmode = \"round-robin\"\n[topics.orders]\nshards = 4\n";
/// A client waits this long, then asks elsewhere.
const CLIENT_WAITS: Duration = Duration::from_secs(1);
/// One that asks a node that is well waits this long.
const PATIENCE: Duration = Duration::from_secs(30);
/// A node that does not run for longer knows it.
const STALL: Duration = Duration::from_secs(4);
const MESSAGES: &str = "/v1/topics/orders/messages";

fn now_ms() -> i64 {
    WallClock.now().as_millis()
}

struct Asked {
    base: String,
    not_after: Option<i64>,
    waits: Duration,
}

impl Asked {
    fn at(node: &Node) -> Self {
        Self { base: node.url(), not_after: None, waits: PATIENCE }
    }

    /// By a client that gives up soon.
    fn soon(node: &Node) -> Self {
        Self { waits: CLIENT_WAITS, ..Self::at(node) }
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Option<(StatusCode, Value)> {
        let mut request = client().request(method, format!("{}{path}", self.base)).timeout(self.waits);
        if let Some(end) = self.not_after {
            request = request.header("duetime-not-after", end);
        }
        if let Some(body) = &body {
            request = request.json(body);
        }
        let answer = request.send().await.ok()?;
        Some((answer.status(), answer.json().await.ok()?))
    }

    async fn enqueue(&self, id: &str) -> Option<StatusCode> {
        Some(self.call(Method::POST, MESSAGES, Some(json!({ "id": id, "delay": "1h" }))).await?.0)
    }

    async fn cancel(&self, id: &str) -> Option<StatusCode> {
        Some(self.call(Method::DELETE, &format!("{MESSAGES}/{id}"), None).await?.0)
    }

    async fn is_there(&self, id: &str) -> bool {
        match self.call(Method::GET, &format!("{MESSAGES}/{id}"), None).await.expect("it answers").0 {
            StatusCode::OK => true,
            StatusCode::NOT_FOUND => false,
            other => panic!("{other}"),
        }
    }
}

/// What the client did at `here`, having had no answer where it asked first: order-1 was cancelled, order-2 was cancelled
/// and enqueued anew.
async fn goes_on_elsewhere(here: &Asked) {
    assert_eq!(here.enqueue("order-1").await, Some(StatusCode::CREATED));
    assert_eq!(here.cancel("order-1").await, Some(StatusCode::OK));
    assert_eq!(here.cancel("order-2").await, Some(StatusCode::OK));
    assert_eq!(here.enqueue("order-2").await, Some(StatusCode::CREATED));
}

async fn nothing_was_undone(here: &Asked) {
    for _ in 0..10 {
        assert!(!here.is_there("order-1").await, "a cancelled order came back");
        assert!(here.is_there("order-2").await, "an acknowledged order was cancelled");
        let_pass(Duration::from_millis(100), Because::Quiet).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stalled_carries_out_nothing_of_what_it_finds() {
    let redis = RedisServer::start().await;
    let (first, second) = (TestNode::on(&redis.url(), CONFIG).await, TestNode::on(&redis.url(), CONFIG).await);
    let (there, here) = (Asked::at(&first), Asked::at(&second));
    assert_eq!(there.enqueue("order-2").await, Some(StatusCode::CREATED));
    first.stall().await;
    let stalled = Asked::soon(&first);
    let (enqueued, cancelled) = tokio::join!(stalled.enqueue("order-1"), stalled.cancel("order-2"));
    assert_eq!((enqueued, cancelled), (None, None), "it stands still");
    goes_on_elsewhere(&here).await;
    let_pass(STALL, Because::Fault).await;
    first.resume();
    nothing_was_undone(&here).await;
    // It goes on with what comes from then on.
    while there.enqueue("order-3").await != Some(StatusCode::CREATED) {
        let_pass(Duration::from_millis(100), Because::AskedAgain).await;
    }
    // A log line is written after what it is about.
    let begun = Instant::now();
    while !first.output().contains("this process did not run") {
        in_time!(begun.elapsed() < PATIENCE, "nothing is said of the stall: {}", first.output());
        let_pass(Duration::from_millis(20), Because::AskedAgain).await;
    }
}

/// Ten thousand cancels lie on a connection that the node had open, and one on each of many that wait to be accepted.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stalled_closes_every_connection_from_before_unread() {
    let redis = RedisServer::start().await;
    let (first, second) = (TestNode::on(&redis.url(), CONFIG).await, TestNode::on(&redis.url(), CONFIG).await);
    let (there, here) = (Asked::at(&first), Asked::at(&second));
    let address = first.url().trim_start_matches("http://").to_owned();
    let mut open = TcpStream::connect(&address).await.unwrap();
    // It is accepted, and idle.
    open.write_all(format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).await.unwrap();
    assert_ne!(open.read(&mut [0; 4096]).await.unwrap(), 0);
    first.stall().await;
    let cancel = format!("DELETE {MESSAGES}/order-1 HTTP/1.1\r\nhost: {address}\r\n\r\n");
    let mut connections = vec![open];
    for _ in 0..100 {
        let mut waiting = TcpStream::connect(&address).await.unwrap();
        waiting.write_all(cancel.as_bytes()).await.unwrap();
        connections.push(waiting);
    }
    let (many, pipelined) = (cancel.repeat(10_000), &mut connections[0]);
    // What the system does not take any more is not sent.
    let _ = tokio::time::timeout(CLIENT_WAITS, pipelined.write_all(many.as_bytes())).await;
    assert_eq!(here.enqueue("order-1").await, Some(StatusCode::CREATED));
    let_pass(STALL, Because::Fault).await;
    first.resume();
    for mut connection in connections {
        // Closed with requests that nobody read, it may end with an error.
        let mut answers = Vec::new();
        let read = tokio::time::timeout(CLIENT_WAITS * 10, connection.read_to_end(&mut answers)).await;
        assert!(answers.is_empty(), "{}", String::from_utf8_lossy(&answers));
        in_time!(read.is_ok(), "it is closed");
    }
    assert!(here.is_there("order-1").await);
    while there.enqueue("order-3").await != Some(StatusCode::CREATED) {
        let_pass(Duration::from_millis(100), Because::AskedAgain).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_was_held_up_on_its_way_is_refused_when_it_says_until_when_it_is_wanted() {
    let node = TestNode::with_orders().await;
    let port = node.url().rsplit_once(':').unwrap().1.parse().unwrap();
    let (first, second) = (Proxy::before(port).await, Proxy::before(port).await);
    let here = Asked::at(&node);
    assert_eq!(here.enqueue("order-2").await, Some(StatusCode::CREATED));
    first.keep_back(b"order-1", false);
    second.keep_back(b"order-2", false);
    let held = |proxy: &Proxy| {
        let end = now_ms() + i64::try_from(CLIENT_WAITS.as_millis()).unwrap();
        let base = format!("http://127.0.0.1:{}", proxy.port());
        Asked { base, not_after: Some(end), waits: CLIENT_WAITS }
    };
    let (one, other) = (held(&first), held(&second));
    let (enqueued, cancelled) = tokio::join!(one.enqueue("order-1"), other.cancel("order-2"));
    assert_eq!((enqueued, cancelled), (None, None));
    let begun = Instant::now();
    while first.kept() + second.kept() < 2 {
        in_time!(begun.elapsed() < PATIENCE, "both requests came to their proxies");
        let_pass(Duration::from_millis(20), Because::AskedAgain).await;
    }
    assert_eq!(first.kept() + second.kept(), 2);
    goes_on_elsewhere(&here).await;
    first.deliver();
    second.deliver();
    nothing_was_undone(&here).await;
    // In good time, the same header changes nothing; one that nobody can read is refused.
    let sent = |not_after| Asked { not_after: Some(not_after), ..Asked::at(&node) };
    assert_eq!(sent(now_ms() + 60_000).enqueue("order-4").await, Some(StatusCode::CREATED));
    assert_eq!(sent(now_ms() - 1).enqueue("order-5").await, Some(StatusCode::PRECONDITION_FAILED));
    assert_eq!(sent(-7).enqueue("order-6").await, Some(StatusCode::BAD_REQUEST));
    assert!(!here.is_there("order-5").await && !here.is_there("order-6").await);
}
