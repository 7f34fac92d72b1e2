//! The HTTP API of a real node: what only a socket, its memory and its own store show.

use bytes::Bytes;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::test_node::TestNode;

const NDJSON: &str = "application/x-ndjson";

#[tokio::test]
async fn what_a_consumer_that_hangs_up_was_being_sent_goes_back_at_once() {
    let node = TestNode::new("").await;
    let settings = json!({"visibility_timeout": "5m", "max_payload": "14MiB"});
    assert_eq!(node.topic("large", settings).await.0, 201);
    // More than the system takes in for a client that does not read.
    let message = json!({"id": "large", "delay": 0, "payload": "x".repeat(12 << 20)});
    assert_eq!(node.post("/v1/topics/large/messages", message).await.0, 201);
    let mut socket = tokio::net::TcpStream::connect(node.process.url().trim_start_matches("http://")).await.unwrap();
    let claim = "POST /v1/topics/large/claim HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                 content-length: 14\r\n\r\n{\"wait\":\"60s\"}";
    socket.write_all(claim.as_bytes()).await.unwrap();
    let mut head = [0; 1000];
    socket.read_exact(&mut head).await.unwrap();
    assert!(head.starts_with(b"HTTP/1.1 200"));
    drop(socket);
    let (_, again) = node.post("/v1/topics/large/claim", json!({"wait": "20s"})).await;
    assert_eq!(again["messages"][0]["attempt"], 1, "it went back, and that cost no attempt");
    // What was sent as a whole is its client's.
    let (_, none) = node.post("/v1/topics/large/claim", json!({})).await;
    assert_eq!(none["messages"], json!([]));
    let (_, acked) = node.post("/v1/topics/large/ack", json!({"receipts": [again["messages"][0]["receipt"]]})).await;
    assert_eq!(acked["results"][0]["outcome"], "ok");
}

/// A body of `lines` lines, each made by `line`, sent in pieces of about 64 KiB.
fn endless(lines: u64, line: impl Fn(u64) -> String + Send + Sync + 'static) -> reqwest::Body {
    let pieces = futures::stream::unfold(0, move |mut at| {
        let mut piece = String::new();
        while at < lines && piece.len() < 64 << 10 {
            piece += &line(at);
            at += 1;
        }
        std::future::ready((!piece.is_empty()).then(|| (Ok::<_, std::io::Error>(Bytes::from(piece)), at)))
    });
    reqwest::Body::wrap_stream(pieces)
}

#[tokio::test]
async fn a_stream_of_any_length_is_taken_and_answered_in_bounded_memory() {
    let node = TestNode::with_orders().await;
    let filler = "x".repeat(1000);
    // One message in twenty is good: what is measured is the way through, and not the store alone.
    let line = move |n: u64| match n % GOOD_OF {
        0 => format!("{{\"id\":\"{n}\",\"delay\":\"1h\"}}\n"),
        _ => format!("{{\"idd\":\"{n}\",\"payload\":\"{filler}\"}}\n"),
    };
    let before = node.memory_mib().await;
    const LINES: u64 = 75_000;
    const GOOD_OF: u64 = 20;
    // A small part of what goes through: a node that kept it would grow by three times as much.
    const GROWTH_MIB_MAX: f64 = 24.0;
    let request = node.request(Method::POST, "/v1/topics/orders/messages");
    let request = request.header("content-type", NDJSON).header("accept", NDJSON).body(endless(LINES, line));
    let mut answer = request.send().await.unwrap();
    assert_eq!((answer.status(), &answer.headers()["content-type"]), (StatusCode::OK, &NDJSON.parse().unwrap()));
    let (mut lines, mut good, mut rest) = (0u64, 0u64, Vec::new());
    let mut most = before;
    while let Some(piece) = answer.chunk().await.unwrap() {
        rest.extend_from_slice(&piece);
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            let result: Value = serde_json::from_slice(&rest[..end]).unwrap();
            rest.drain(..=end);
            if result["outcome"] == "scheduled" {
                good += 1;
                assert_eq!(result["id"], lines.to_string());
            } else {
                assert_eq!((&result["error"]["line"], &result["error"]["index"]), (&json!(lines + 1), &json!(lines)));
            }
            lines += 1;
            if lines.is_multiple_of(25_000) {
                most = most.max(node.memory_mib().await);
            }
        }
    }
    assert_eq!((lines, good), (LINES, LINES / GOOD_OF));
    println!("memory grew from {before} to {most} MiB");
    assert!(most - before < GROWTH_MIB_MAX, "75 MB went through and memory grew from {before} to {most} MiB");
    assert_eq!(node.get("/v1/topics/orders").await.1["scheduled"], LINES / GOOD_OF);
}

#[tokio::test]
async fn where_the_file_of_the_store_lies_is_shown_to_who_may_look() {
    let config = r#"
        [[auth.tokens]]
        name = "ops"
        secret = "an-admins-secret-1"
        scopes = ["admin"]
        [[auth.tokens]]
        name = "shop"
        secret = "a-producers-secret"
        scopes = ["produce"]
        topics = ["orders"]
        [topics.orders]
    "#;
    let node = TestNode::new(config).await;
    let message = node.request(Method::POST, "/v1/topics/orders/messages").bearer_auth("a-producers-secret");
    message.json(&json!({"id": "o-1", "delay": "1h"})).send().await.unwrap();
    for (token, path_shown) in [("an-admins-secret-1", true), ("a-producers-secret", false)] {
        let explain = "/v1/topics/orders/messages/o-1/explain";
        let explained: Value =
            node.request(Method::GET, explain).bearer_auth(token).send().await.unwrap().json().await.unwrap();
        assert_eq!((&explained["id"], explained.get("file").is_some()), (&json!("o-1"), path_shown), "{explained}");
    }
}
