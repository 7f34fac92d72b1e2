//! What a webhook may reach, how much of an answer is read and how much is asked of a target at once.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use duetime_testkit::Webhook;
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::Answer;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::test_node::{TestNode, ids};

const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of an answer, and of them the most that the two ends of a connection hold.
const ENDLESS: usize = 256 << 20;
const BUFFERS_MAX: usize = 32 << 20;

/// A node with these sinks, each a webhook at `hook` by the name of this machine, and a topic for each.
async fn node(hook: &Webhook, sinks: &[(&str, &str)]) -> TestNode {
    let mut config = String::new();
    let port = hook.address().port();
    for (name, lines) in sinks {
        writeln!(config, "[sinks.{name}]\ntype = \"http\"\nurl = \"http://localhost:{port}/{name}\"\n{lines}").unwrap();
    }
    let node = TestNode::new(&config).await;
    for (name, _) in sinks {
        let (status, body) = node.topic(name, json!({"shards": 2, "sink": {"name": name}})).await;
        assert_eq!(status, 201, "{body}");
    }
    node
}

fn paths(hook: &Webhook) -> Vec<String> {
    hook.hits().into_iter().map(|hit| hit.path).collect()
}

#[tokio::test]
async fn a_name_that_leads_inside_is_refused_unless_it_is_allowed_and_on_the_list() {
    let hook = Webhook::start();
    let sinks = [
        ("inside", ""),
        ("other-range", "allow = [\"10.0.0.0/8\"]"),
        ("off-the-list", "allow = [\"127.0.0.0/8\"]\nonly = [\"192.0.2.0/24\", \"shop.example\"]"),
        ("listed-not-allowed", "only = [\"localhost\"]"),
        ("by-range", "allow = [\"127.0.0.0/8\"]"),
        ("by-name", "allow = [\"localhost\"]"),
        ("listed", "allow = [\"127.0.0.0/8\"]\nonly = [\"localhost\"]"),
        ("listed-by-range", "allow = [\"localhost\"]\nonly = [\"127.0.0.0/8\"]"),
    ];
    let node = node(&hook, &sinks).await;
    for (name, _) in sinks {
        node.enqueue(name, ids("order", 3)).await;
    }
    for (name, _) in &sinks[4..] {
        node.drained(name, PATIENCE).await;
    }
    node.until_said("127.0.0.1, a loopback address, which a webhook may not reach", 1).await;
    node.until_said("127.0.0.1, not on its list", 1).await;
    let reached = paths(&hook);
    for (n, (name, _)) in sinks.iter().enumerate() {
        let hits = reached.iter().filter(|path| **path == format!("/{name}")).count();
        assert_eq!(hits, if n < 4 { 0 } else { 3 }, "{name}: {reached:?}");
    }
    for (name, _) in &sinks[..4] {
        let message = node.message_at_rest(name, "order-1").await;
        assert_eq!(message["attempts"], 0, "{name} waits: {message}");
        assert_eq!(node.counts(name).await["dead"], 0, "{name}");
    }
}

#[tokio::test]
async fn a_redirect_leads_nowhere_and_no_more_of_an_answer_is_read_than_allowed() {
    let hook = Webhook::start();
    hook.answer(|hit| match hit.path.as_str() {
        "/moved" => Answer::status(307).header("location", "/inside"),
        "/talks" => Answer::status(410).body(vec![b'x'; 8 << 20]),
        _ => Answer::status(200).body(vec![b'x'; 8 << 20]),
    });
    let allow = "allow = [\"localhost\"]\nmax_response = \"1KiB\"";
    let node = node(&hook, &[("moved", allow), ("talks", allow), ("thanks", allow)]).await;
    for name in ["moved", "talks", "thanks"] {
        node.enqueue(name, ids("order", 2)).await;
    }
    node.drained("thanks", PATIENCE).await;
    let reason = refusal(&node, "talks").await;
    assert!(!paths(&hook).contains(&"/inside".to_owned()), "{:?}", paths(&hook));
    assert!(reason.contains("410") && reason.len() <= 1_200, "{reason}");
    // A page of maintenance redirects all: messages wait for its end.
    assert_eq!(node.counts("moved").await["dead"], 0);
    assert_eq!(node.counts("thanks").await["dead"], 0);
    let accepted = paths(&hook).iter().filter(|path| *path == "/thanks").count();
    assert_eq!(accepted, 2, "each was asked once");
}

/// What a target says that takes nothing of `topic`.
async fn refusal(node: &TestNode, topic: &str) -> String {
    let began = tokio::time::Instant::now();
    loop {
        if let Some(reason) = node.counts(topic).await["sink_issue"]["reason"].as_str() {
            return reason.to_owned();
        }
        duetime_testkit::in_time!(began.elapsed() < PATIENCE, "{topic} is not down: {}", node.process.output());
        let_pass(std::time::Duration::from_millis(20), Because::AskedAgain).await;
    }
}

/// A target whose answer has no end in sight; how much of it was taken is counted.
async fn endless() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, taken) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = taken.clone();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let counted = counted.clone();
            tokio::spawn(async move {
                let mut head = [0; 4096];
                let _ = socket.read(&mut head).await;
                let head = format!("HTTP/1.1 410 Gone\r\ncontent-length: {ENDLESS}\r\n\r\n");
                let _ = socket.write_all(head.as_bytes()).await;
                let piece = vec![b'x'; 64 << 10];
                for _ in 0..ENDLESS / piece.len() {
                    if socket.write_all(&piece).await.is_err() {
                        return;
                    }
                    counted.fetch_add(piece.len(), Ordering::Relaxed);
                }
            });
        }
    });
    (port, taken)
}

#[tokio::test]
async fn an_answer_without_end_is_read_no_further_than_allowed() {
    let (port, taken) = endless().await;
    let node = TestNode::new(&format!(
        "[sinks.talks]\ntype = \"http\"\nurl = \"http://127.0.0.1:{port}/\"\nallow = [\"127.0.0.1\"]\nmax_response = \"1KiB\"\n"
    ))
    .await;
    let (status, body) = node.topic("talks", json!({"shards": 1, "sink": {"name": "talks"}})).await;
    assert_eq!(status, 201, "{body}");
    node.enqueue("talks", ids("order", 1)).await;
    let reason = refusal(&node, "talks").await;
    assert!(reason.contains("410"), "{reason}");
    // What the buffers of the connection hold was written, and not read.
    let taken = taken.load(Ordering::Relaxed);
    assert!(taken < BUFFERS_MAX, "{taken} bytes of an answer were taken, 1 KiB is allowed");
}

#[tokio::test]
async fn concurrency_and_rate_hold_over_all_topics_of_a_target() {
    const SLOW: Duration = Duration::from_millis(100);
    let hook = Webhook::start();
    hook.answer(|hit| Answer::status(200).after(if hit.path == "/narrow" { SLOW } else { Duration::ZERO }));
    let narrow = "allow = [\"localhost\"]\nconcurrency = 3";
    let paced = "allow = [\"localhost\"]\nper_second = 20";
    let node = node(&hook, &[("narrow", narrow), ("paced", paced)]).await;
    for name in ["narrow", "paced"] {
        let second = format!("{name}-too");
        let (status, body) = node.topic(&second, json!({"shards": 2, "sink": {"name": name}})).await;
        assert_eq!(status, 201, "{body}");
        let began = Instant::now();
        node.enqueue(name, ids("order", 18)).await;
        node.enqueue(&second, ids("order", 18)).await;
        node.drained(name, PATIENCE).await;
        node.drained(&second, PATIENCE).await;
        // 36 answers of 100 ms, three at a time; 36 requests at 20 a second.
        let least = if name == "narrow" { SLOW * 12 } else { Duration::from_millis(50) * 35 };
        assert!(began.elapsed() >= least, "{name}: {:?}", began.elapsed());
    }
    assert_eq!(hook.hits().len(), 72);
    let ports: std::collections::BTreeSet<_> =
        hook.hits().iter().filter(|hit| hit.path == "/narrow").map(|hit| hit.peer.port()).collect();
    assert!(ports.len() <= 3, "no more connections than requests at once: {ports:?}");
}
