//! Targets that take a connection and never say anything.

use std::fmt::Write as _;
use std::time::Duration;

use duetime_testkit::Webhook;
use duetime_testkit::wait::{Because, let_pass};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::test_node::{TestNode, ids};

/// Longest waits of the sinks here.
const TIMES: &str = "timeout = \"1s\"\nconnect_timeout = \"1s\"\n";
/// A target that never spoke is taken to be down after the wait for the login; one to which there is a connection, after
/// that for an answer and two seconds in which nothing else is accepted.
const DOWN_WITHIN: Duration = Duration::from_secs(4);
/// How much longer it may take on a machine with other work to do.
const SLACK: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_never_says_anything_is_down_in_a_moment_and_others_are_on_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = listener.local_addr().unwrap();
    let holding = tokio::spawn(async move {
        let mut held: Vec<TcpStream> = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
        }
    });
    let hook = Webhook::start();
    let mut config = format!("[sinks.s]\ntype = \"http\"\nurl = {:?}\nallow = [\"127.0.0.1\"]\n", hook.url("/due"));
    let mut sinks = vec![
        ("http", format!("url = \"http://{silent}/\"\nallow = [\"127.0.0.1\"]\n")),
        ("nats", format!("url = \"nats://{silent}\"\n")),
        ("rabbitmq", format!("url = \"amqp://guest:guest@{silent}\"\n")),
        ("redis-stream", format!("url = \"redis://{silent}\"\n")),
    ];
    if cfg!(feature = "kafka") {
        sinks.push(("kafka", format!("brokers = \"{silent}\"\n")));
    }
    for (kind, lines) in &sinks {
        write!(config, "[sinks.{kind}]\ntype = \"{kind}\"\n{lines}{TIMES}").unwrap();
    }
    let node = TestNode::new(&config).await;
    node.orders(&json!({}), json!("1m")).await;
    for (kind, _) in &sinks {
        let (status, body) = node.topic(kind, json!({"shards": 2, "sink": {"name": kind}})).await;
        assert_eq!(status, 201, "{body}");
        node.enqueue(kind, ids("m", 200)).await;
    }
    let began = Instant::now();
    node.enqueue("orders", ids("order", 200)).await;
    node.drained("orders", PATIENCE).await;
    let orders = began.elapsed();
    duetime_testkit::in_time!(orders < DOWN_WITHIN, "orders were handed over after {orders:?}");
    for (kind, _) in &sinks {
        while node.counts(kind).await["sink_issue"]["state"] != "down" {
            let waited = began.elapsed();
            duetime_testkit::in_time!(waited < DOWN_WITHIN + SLACK, "{kind} is not down:\n{}", node.process.output());
            let_pass(Duration::from_millis(20), Because::AskedAgain).await;
        }
        println!("{kind} is down after {:?}", began.elapsed());
    }
    for (kind, _) in &sinks {
        let message = loop {
            let message = node.message(kind, "m-7").await;
            if message["state"] != "in_flight" {
                break message;
            }
            duetime_testkit::in_time!(began.elapsed() < PATIENCE, "{kind}: {message}");
        };
        // One that may have been sent says so, and nobody pays.
        assert!(message["attempts"].as_u64() <= Some(1), "{kind}: {message}");
        assert_eq!(node.counts(kind).await["dead"], 0, "{kind}");
    }
    holding.abort();
}
