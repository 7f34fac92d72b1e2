//! The HTTP API, good and bad input.

use std::time::Duration;

use bytes::Bytes;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::test_node::TestNode;

/// A head must be there within half a minute.
const LET_GO_WITHIN: Duration = Duration::from_secs(60);
const NDJSON: &str = "application/x-ndjson";

#[tokio::test]
async fn an_order_timeout_from_enqueue_to_ack() {
    let node = TestNode::with_orders().await;
    for (id, delay) in [("paid", "1h"), ("unpaid", "300ms")] {
        let message = json!({"id": id, "delay": delay, "payload": {"order": id}, "headers": {"shop": "7"}});
        let (status, body) = node.post("/v1/topics/orders/messages", message).await;
        assert_eq!((status.as_u16(), &body["outcome"]), (201, &json!("scheduled")));
    }
    let (status, body) = node.call(Method::DELETE, "/v1/topics/orders/messages/paid", json!({})).await;
    assert_eq!((status.as_u16(), &body["outcome"]), (200, &json!("cancelled")));
    let (_, claim) = node.post("/v1/topics/orders/claim", json!({"max": 10, "wait": "20s"})).await;
    let message = &claim["messages"][0];
    assert_eq!((&message["id"], &message["payload"]), (&json!("unpaid"), &json!("{\"order\":\"unpaid\"}")));
    assert_eq!((&message["headers"]["shop"], &message["attempt"]), (&json!("7"), &json!(1)));
    let (_, acked) = node.post("/v1/topics/orders/ack", json!({"receipts": [message["receipt"]]})).await;
    assert_eq!(acked["results"][0]["outcome"], "ok");
    let (_, topic) = node.get("/v1/topics/orders").await;
    assert_eq!([&topic["scheduled"], &topic["in_flight"], &topic["dead"]], [&json!(0), &json!(0), &json!(0)]);
}

#[tokio::test]
async fn requests_at_once_are_all_answered_and_everything_is_claimed_once() {
    let node = TestNode::with_orders().await;
    let sends = (0..400).map(|n| {
        let message = json!({"id": format!("m-{n}")});
        let node = &node;
        async move { node.post("/v1/topics/orders/messages", message).await.0 }
    });
    assert!(futures::future::join_all(sends).await.iter().all(|status| *status == 201));
    let mut ids = Vec::new();
    while ids.len() < 400 {
        let (_, claim) = node.post("/v1/topics/orders/claim", json!({"max": 100, "wait": "10s"})).await;
        let messages = claim["messages"].as_array().unwrap();
        assert!(!messages.is_empty(), "{} of 400 were claimed", ids.len());
        ids.extend(messages.iter().map(|m| m["id"].as_str().unwrap().to_owned()));
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 400);
}

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
    const LINES: u64 = 150_000;
    const GOOD_OF: u64 = 20;
    // A small part of what goes through: a node that kept it would grow by six times as much.
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
    assert!(most - before < GROWTH_MIB_MAX, "150 MB went through and memory grew from {before} to {most} MiB");
    assert_eq!(node.get("/v1/topics/orders").await.1["scheduled"], LINES / GOOD_OF);
}

#[tokio::test]
async fn every_kind_of_bad_line_is_refused_alone() {
    let node = TestNode::with_orders().await;
    let lines: Vec<Vec<u8>> = vec![
        br#"{"id":"good-1"}"#.to_vec(),
        br#"{"id":"a","delya":1}"#.to_vec(),
        br#"{"id":""}"#.to_vec(),
        format!("{{\"id\":\"{}\"}}", "x".repeat(257)).into_bytes(),
        br#"{"id":"a\u0000b"}"#.to_vec(),
        format!("{{\"payload\":\"{}\"}}", "x".repeat((256 << 10) + 1)).into_bytes(),
        br#"{"delay":"11years"}"#.to_vec(),
        br#"{"due_at":"yesterday"}"#.to_vec(),
        br#"{"delay":-1}"#.to_vec(),
        br#"{"due_at":123456789012345678901234567890}"#.to_vec(),
        br#"{"delay":NaN}"#.to_vec(),
        br#"{"id":"#.to_vec(),
        b"{\"payload\":\"\xc3\x28\"}".to_vec(),
        br#"{"payload_base64":"a b"}"#.to_vec(),
        vec![b'x'; 2 << 20],
        br#"{"id":"good-2"}"#.to_vec(),
    ];
    let request = node.request(Method::POST, "/v1/topics/orders/messages").header("content-type", NDJSON);
    let answer: Value = request.body(lines.join(&b'\n')).send().await.unwrap().json().await.unwrap();
    let word = |r: &Value| r["outcome"].as_str().or(r["error"]["code"].as_str()).unwrap().to_owned();
    let words: Vec<String> = answer["results"].as_array().unwrap().iter().map(word).collect();
    let wanted = [
        "scheduled",
        "unknown_field",
        "invalid_id",
        "invalid_id",
        "invalid_id",
        "payload_too_large",
        "invalid_delay",
        "invalid_due_time",
        "invalid_delay",
        "invalid_due_time",
        "malformed_json",
        "malformed_json",
        "malformed_json",
        "invalid_base64",
        "line_too_long",
        "scheduled",
    ];
    assert_eq!(words, wanted);
    assert_eq!(answer["results"][14]["error"]["line"], 15);
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_answered_as_a_problem() {
    let node = TestNode::with_orders().await;
    let messages = "/v1/topics/orders/messages";
    let json = "application/json";
    for (method, path, content_type, body, status, code) in [
        ("GET", "/v3", json, "", 404, "unknown_route"),
        ("POST", "/v1/topics", json, "", 405, "method_not_allowed"),
        ("POST", messages, "text/plain", "{}", 415, "unsupported_media_type"),
        ("POST", messages, json, "{", 400, "malformed_json"),
        ("POST", "/v1/topics/nope/messages", json, "{}", 404, "unknown_topic"),
        ("GET", "/v1/topics/orders/messages/%ff", json, "", 400, "invalid_path"),
        ("GET", "/v1/topics/a:b", json, "", 400, "invalid_topic_name"),
        ("GET", "/v1/topics/orders/messages/nope", json, "", 404, "unknown_message"),
        ("GET", "/v1/topics/orders/dead?limit=many", json, "", 400, "invalid_query"),
        ("PUT", "/v1/topics/orders", json, "{\"shard\":2}", 400, "unknown_field"),
        ("PUT", "/v1/topics/mq", json, "{\"sink\":{\"name\":\"nope\"}}", 400, "invalid_topic_settings"),
    ] {
        let request = node.request(method.parse().unwrap(), path).header("content-type", content_type);
        let answer = request.body(body).send().await.unwrap();
        assert_eq!(answer.headers()["content-type"], "application/problem+json", "{method} {path}");
        let told = answer.status().as_u16();
        let problem: Value = answer.json().await.unwrap();
        assert_eq!((told, &problem["code"], &problem["status"]), (status, &json!(code), &json!(status)), "{problem}");
        assert!(!problem["detail"].as_str().unwrap().is_empty());
    }
    let huge = node.request(Method::POST, messages).header("content-type", json).header("content-length", 1u64 << 40);
    let huge = huge.body(reqwest::Body::wrap_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>()));
    let refused = tokio::time::timeout(Duration::from_secs(10), huge.send()).await.expect("before the body");
    assert_eq!(refused.unwrap().status(), 413);
}

#[tokio::test]
async fn a_token_is_asked_for_where_tokens_are_configured() {
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
    "#;
    let node = TestNode::new(config).await;
    let ask = |method: Method, path: &str, token: Option<&str>| {
        let request = node.request(method, path).json(&json!({}));
        token.into_iter().fold(request, |request, token| request.bearer_auth(token)).send()
    };
    for (method, path, token, status) in [
        (Method::PUT, "/v1/topics/orders", None, 401),
        (Method::PUT, "/v1/topics/orders", Some("a-producers-secret"), 403),
        (Method::PUT, "/v1/topics/orders", Some("an-admins-secret-2"), 401),
        (Method::PUT, "/v1/topics/orders", Some("an-admins-secret-1"), 201),
        (Method::POST, "/v1/topics/orders/messages", Some("a-producers-secret"), 201),
        (Method::POST, "/v1/topics/other/messages", Some("a-producers-secret"), 403),
        (Method::GET, "/healthz", None, 200),
        (Method::GET, "/metrics", None, 401),
        (Method::GET, "/metrics", Some("a-producers-secret"), 200),
    ] {
        assert_eq!(ask(method.clone(), path, token).await.unwrap().status(), status, "{method} {path} {token:?}");
    }
    let message = node.request(Method::POST, "/v1/topics/orders/messages").bearer_auth("a-producers-secret");
    message.json(&json!({"id": "o-1", "delay": "1h"})).send().await.unwrap();
    for (token, path_shown) in [("an-admins-secret-1", true), ("a-producers-secret", false)] {
        let explain = "/v1/topics/orders/messages/o-1/explain";
        let explained: Value =
            node.request(Method::GET, explain).bearer_auth(token).send().await.unwrap().json().await.unwrap();
        assert_eq!((&explained["id"], explained.get("file").is_some()), (&json!("o-1"), path_shown), "{explained}");
    }
}

#[tokio::test]
async fn clients_that_stall_or_talk_nonsense_hold_nobody_up() {
    let node = TestNode::with_orders().await;
    let address = node.process.url().trim_start_matches("http://").to_owned();
    let mut stalled = Vec::new();
    for _ in 0..50 {
        let mut socket = tokio::net::TcpStream::connect(&address).await.unwrap();
        socket.write_all(b"POST /v1/topics/orders/messages HTTP/1.1\r\nhost: x\r\ncontent-le").await.unwrap();
        stalled.push(socket);
    }
    let mut nonsense = tokio::net::TcpStream::connect(&address).await.unwrap();
    nonsense.write_all(b"\x16\x03\x01 GET / nonsense\r\n\r\n").await.unwrap();
    let mut told = String::new();
    let _ = nonsense.read_to_string(&mut told).await;
    assert!(told.is_empty() || told.starts_with("HTTP/1.1 400"), "{told}");
    let mut half = tokio::net::TcpStream::connect(&address).await.unwrap();
    half.write_all(b"POST /v1/topics/orders/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{\"id\"")
        .await
        .unwrap();
    drop(half);
    let work = node.post("/v1/topics/orders/messages", json!({"id": "a"}));
    let (status, _) = tokio::time::timeout(Duration::from_secs(10), work).await.expect("nobody is held up");
    assert_eq!(status, 201);
    assert_eq!(node.get("/v1/topics/orders").await.1["scheduled"], 1);
    // And each of them is let go: else they would use up all the places in the end.
    let end = tokio::time::Instant::now() + LET_GO_WITHIN;
    for mut socket in stalled {
        let mut told = Vec::new();
        let closed = tokio::time::timeout_at(end, socket.read_to_end(&mut told)).await;
        duetime_testkit::in_time!(
            closed.is_ok(),
            "a client that sent half a head is still connected after {LET_GO_WITHIN:?}"
        );
    }
}
