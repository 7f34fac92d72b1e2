//! Real sockets: who holds a connection open, how many there may be, and how they end.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::TestApi;
use crate::{ConnectionBounds, HttpOptions};

const ENQUEUE: &str = "POST /v1/topics/orders/messages HTTP/1.1\r\nhost: localhost\r\n";

/// Whoever waits until silent connections are closed waits longer; a busy machine alone takes less.
const HELD_UP: Duration = Duration::from_secs(25);

/// Tries of a measurement in time that is moved.
const TRIES_MAX: usize = 3;

struct Serving {
    api: TestApi,
    address: SocketAddr,
    _end: DropGuard,
}

async fn serving(connections: ConnectionBounds) -> Serving {
    let api = TestApi::with_orders().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let end = CancellationToken::new();
    let options = HttpOptions { connections, ..HttpOptions::default() };
    let parts = crate::HttpParts { options, ..api.parts.clone() };
    let listening = crate::Listening::of(&parts);
    tokio::spawn(crate::serve(listener, crate::router(parts, axum::Router::new()), listening, end.clone()));
    Serving { api, address, _end: end.drop_guard() }
}

impl Serving {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn alive(&self) -> bool {
        let mut socket = self.connect().await;
        socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        answer(&mut socket).await.starts_with("HTTP/1.1 200")
    }

    /// Whether answers like this are among those that the metrics count.
    fn has_counted(&self, method: &str, route: &str, status: u16) -> bool {
        let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{status}\"");
        self.api.parts.meters.render().contains(&format!("duetime_http_requests_total{{{labels}}}"))
    }
}

/// One answer with a known length, head and all; what came before the end, if it ends early.
async fn answer(socket: &mut TcpStream) -> String {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(usize::MAX) {
                return text;
            }
        }
        let mut piece = [0; 4096];
        match socket.read(&mut piece).await {
            Ok(0) | Err(_) => return text,
            Ok(length) => read.extend_from_slice(&piece[..length]),
        }
    }
}

/// How long a connection stays open that sends `first`, then `drip` every so often. Time moves to the next timer where
/// the system is late with bytes that were sent, so one that took longer than `most` is tried again.
async fn open_for(serving: &Serving, first: &[u8], drip: &[u8], every: Duration, most: Duration) -> Duration {
    let mut open = open_once(serving, first, drip, every).await;
    for _ in 1..TRIES_MAX {
        if open > most {
            open = open_once(serving, first, drip, every).await;
        }
    }
    open
}

async fn open_once(serving: &Serving, first: &[u8], drip: &[u8], every: Duration) -> Duration {
    let began = Instant::now();
    let (mut from, mut to) = serving.connect().await.into_split();
    to.write_all(first).await.unwrap();
    let drip = drip.to_vec();
    let dripping = tokio::spawn(async move {
        let mut beat = tokio::time::interval_at(began + every, every);
        loop {
            beat.tick().await;
            if drip.is_empty() || to.write_all(&drip).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    });
    let mut piece = [0; 4096];
    while !matches!(from.read(&mut piece).await, Ok(0) | Err(_)) {}
    dripping.abort();
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn nobody_holds_a_connection_open_by_silence_or_drops() {
    let serving = serving(ConnectionBounds::default()).await;
    let json = format!("{ENQUEUE}content-type: application/json\r\ncontent-length: 1000\r\n\r\n");
    let ndjson = format!("{ENQUEUE}content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n");
    let first = format!("{ndjson}1b\r\n{{\"id\":\"drip\",\"delay\":\"1h\"}}\n\r\n");
    let http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let ping = b"\0\0\x08\x06\0\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08";
    let second = Duration::from_secs(1);
    for (name, first, drip, every, most) in [
        ("nothing", &b""[..], &b""[..], 20, 31),
        ("one byte", b"P", b"", 20, 31),
        ("an idle HTTP/2", http2, b"", 20, 31),
        ("pings of HTTP/2", http2, ping, 5, 31),
        ("half a head", b"GET / HTTP/1.1\r\nhost: localhost\r\nfoo", b"", 20, 31),
        ("a head in drops", b"GET / HTTP/1.1\r\nhost: localhost\r\nfoo: ", b"a", 10, 31),
        ("one request", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", b"", 20, 31),
        ("a body in drops", json.as_bytes(), b" ", 20, 101),
        ("blank lines", ndjson.as_bytes(), b"1\r\n\n\r\n", 20, 101),
        ("one message, then blank lines", first.as_bytes(), b"1\r\n\n\r\n", 20, 101),
    ] {
        let open = open_for(&serving, first, drip, every * second, most * second).await;
        assert!(open <= most * second, "{name}: open for {open:?}");
        assert!(open >= 29 * second, "{name}: open for {open:?}");
    }
    assert!(serving.alive().await);
    assert_eq!(serving.api.get("/v1/topics/orders/messages/drip").await.status, 200, "what came stays");
}

#[tokio::test]
async fn silent_connections_beyond_the_bounds_hold_nobody_up() {
    let serving = serving(ConnectionBounds { all: 48, per_address: 32 }).await;
    let mut held = Vec::new();
    for round in 0..30 {
        for _ in 0..20 {
            held.push(serving.connect().await);
        }
        let began = Instant::now();
        assert!(serving.alive().await, "round {round}");
        assert!(began.elapsed() < HELD_UP, "round {round}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn where_all_places_are_busy_a_node_still_says_that_it_is_alive() {
    let serving = serving(ConnectionBounds { all: 4, per_address: 4 }).await;
    let mut claims = Vec::new();
    for _ in 0..4 {
        let mut socket = serving.connect().await;
        let claim = "POST /v1/topics/orders/claim HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                     content-length: 14\r\n\r\n{\"wait\":\"60s\"}";
        socket.write_all(claim.as_bytes()).await.unwrap();
        claims.push(socket);
    }
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let mut socket = serving.connect().await;
        socket.write_all(b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let refused = answer(&mut socket).await;
        if refused.starts_with("HTTP/1.1 503") {
            assert!(refused.contains("\"busy\"") && refused.contains("retry-after: 1"), "{refused}");
            assert!(refused.contains("connection: close"), "{refused}");
            break;
        }
        assert!(Instant::now() < until, "the claims are not under way");
    }
    assert!(serving.alive().await);
    assert!(serving.has_counted("GET", "other", 503) && serving.has_counted("GET", "/healthz", 200));
    claims.pop();
    while !{
        let mut socket = serving.connect().await;
        socket.write_all(b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        answer(&mut socket).await.starts_with("HTTP/1.1 200")
    } {
        assert!(Instant::now() < until, "a place that is free is given again");
    }
}

#[tokio::test]
async fn a_refusal_before_the_body_was_read_reaches_the_client_and_its_next_request_too() {
    let serving = serving(ConnectionBounds::default()).await;
    // Small: the rest is read, and the connection is kept.
    let mut kept = serving.connect().await;
    for _ in 0..3 {
        let body = "x".repeat(100_000);
        let head = format!("{ENQUEUE}content-type: text/plain\r\ncontent-length: {}\r\n\r\n", body.len());
        kept.write_all(head.as_bytes()).await.unwrap();
        kept.write_all(body.as_bytes()).await.unwrap();
        let refused = answer(&mut kept).await;
        assert!(refused.starts_with("HTTP/1.1 415") && !refused.contains("connection: close"), "{refused}");
    }
    // Large: the client is informed, and gets the answer although it sends everything first.
    let mut large = serving.connect().await;
    let length = 40 << 20;
    let head = format!("{ENQUEUE}content-type: application/json\r\ncontent-length: {length}\r\n\r\n");
    large.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..length >> 20 {
        large.write_all(&vec![b' '; 1 << 20]).await.unwrap();
    }
    let refused = answer(&mut large).await;
    assert!(refused.starts_with("HTTP/1.1 413") && refused.contains("connection: close"), "{refused}");
    // A client that waits for leave to send is refused at once.
    for (kind, length, status) in [("text/plain", 1000, 415), ("application/json", 40 << 20, 413)] {
        let mut asking = serving.connect().await;
        let asks = format!("expect: 100-continue\r\ncontent-length: {length}\r\n\r\n");
        let head = format!("{ENQUEUE}content-type: {kind}\r\n{asks}");
        asking.write_all(head.as_bytes()).await.unwrap();
        let refused = answer(&mut asking).await;
        let begins = format!("HTTP/1.1 {status}");
        assert!(refused.starts_with(&begins) && refused.contains("connection: close"), "{refused}");
    }
}

/// A client of HTTP/2 that asks for the API's document and takes nothing of it.
async fn stalled(serving: &Serving) -> TcpStream {
    let mut socket = serving.connect().await;
    let no_window = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0";
    let head = b"\x82\x86\x41\x09127.0.0.1\x04\x0d/openapi.json";
    let frame = [&[0, 0, u8::try_from(head.len()).unwrap(), 1, 5, 0, 0, 0, 1], &head[..]].concat();
    socket.write_all(&[&no_window[..], &frame].concat()).await.unwrap();
    socket
}

#[tokio::test(start_paused = true)]
async fn clients_that_take_nothing_of_their_answers_make_way_where_all_places_are_taken() {
    let serving = serving(ConnectionBounds { all: 4, per_address: 4 }).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(stalled(&serving).await);
    }
    let asked = async || {
        let mut socket = serving.connect().await;
        socket.write_all(b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        answer(&mut socket).await
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(asked().await.starts_with("HTTP/1.1 503"), "a moment is no stall");
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(asked().await.starts_with("HTTP/1.1 200"));
    // Whoever listens to events takes what comes, however seldom that is.
    let mut listeners = Vec::new();
    for _ in 0..4 {
        let mut socket = serving.connect().await;
        socket.write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        listeners.push(socket);
        tokio::time::sleep(Duration::from_secs(6)).await;
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(asked().await.starts_with("HTTP/1.1 503"), "they listen on");
}

#[tokio::test]
async fn heads_that_proxies_may_read_otherwise_are_refused() {
    let serving = serving(ConnectionBounds::default()).await;
    for (head, status) in [
        ("GET /v1/topics HTTP/1.1\r\n\r\n", "400"),
        ("GET /v1/topics HTTP/1.0\r\n\r\n", "200"),
        (
            "POST /v1/topics/orders/claim HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "501",
        ),
        (
            "POST /v1/topics/orders/claim HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             transfer-encoding: Chunked\r\n\r\n0\r\n\r\n",
            "200",
        ),
    ] {
        let mut socket = serving.connect().await;
        socket.write_all(head.as_bytes()).await.unwrap();
        let answered = answer(&mut socket).await;
        assert_eq!(answered.split(' ').nth(1), Some(status), "{head:?}: {answered}");
        assert!(status == "200" || answered.contains("connection: close"), "{answered}");
    }
    assert!(serving.has_counted("GET", "other", 400) && serving.has_counted("POST", "other", 501));
}
