//! Twenty thousand silent connections, and bodies that are small and mean much.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_testkit::servers::Node;
use duetime_testkit::wait::{Because, let_pass_blocking};
use tokio::net::TcpSocket;
use tokio::time::Instant;

use super::PROGRAM;
use crate::test_node::client;

/// More than a node lets one address, or all, have open.
const SILENT: usize = 20_000;

/// Connections held at once: what one process may open besides its own files.
const HELD: usize = 8_000;

/// How often a node is asked for its health while connections are opened.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// Longest wait for an answer, before a client of many would take the node to be dead.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Connections that are opened while nobody accepts any.
const UNACCEPTED: usize = 1_000;

/// Asks for `/healthz` on a connection of its own, and says how long that took.
fn health(address: SocketAddr) -> io::Result<Duration> {
    let began = Instant::now();
    let mut socket = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    socket.set_read_timeout(Some(ANSWER_MAX))?;
    socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(began.elapsed())
}

/// It is refused to nobody, and late only where the machine is slow.
fn answered(asked: io::Result<Duration>) -> Duration {
    asked.unwrap_or_else(|error| {
        let is_late = matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock);
        duetime_testkit::in_time!(!is_late, "{error}");
        panic!("it is refused to nobody: {error}")
    })
}

fn address(node: &Node) -> SocketAddr {
    node.url().trim_start_matches("http://").parse().unwrap()
}

/// Opens a connection from one of eight addresses, so that the bound over all is reached and not only that of one.
async fn connect(n: usize, to: SocketAddr) -> io::Result<tokio::net::TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(format!("127.0.{}.1:0", 1 + n % 8).parse().unwrap())?;
    socket.connect(to).await
}

#[tokio::test]
async fn twenty_thousand_silent_connections_do_not_keep_health_from_being_answered() {
    let node = Node::start_embedded(PROGRAM, "").await;
    let address = address(&node);
    let are_open = Arc::new(AtomicBool::new(false));
    let all_open = are_open.clone();
    let asking = std::thread::spawn(move || {
        let mut took = Vec::new();
        while !all_open.load(Ordering::Relaxed) {
            took.push(health(address));
            let_pass_blocking(ASK_EVERY, Because::AskedAgain);
        }
        took
    });
    let mut held = std::collections::VecDeque::new();
    for n in 0..SILENT {
        held.push_back(connect(n, address).await.unwrap());
        if held.len() > HELD {
            held.pop_front();
        }
    }
    are_open.store(true, Ordering::Relaxed);
    let asked = asking.join().unwrap();
    let mut took: Vec<Duration> = asked.into_iter().map(answered).collect();
    took.sort();
    // Who asks and who opens connections take the processors from the node: some answers may be slow.
    let (half, last) = (took[took.len() / 2], took[took.len() - 1]);
    duetime_testkit::in_time!(half < Duration::from_millis(100) && last < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn a_rush_of_connections_meets_a_long_queue_and_a_table_of_files_that_need_not_grow() {
    let node = Node::start_embedded(PROGRAM, "").await;
    let of_process = |file: &str, line: &str| {
        let text = std::fs::read_to_string(format!("/proc/{}/{file}", node.id())).unwrap();
        let rest = text.lines().find_map(|one| one.strip_prefix(line)).unwrap();
        rest.split_whitespace().next().unwrap().parse::<usize>().unwrap()
    };
    let allowed = of_process("limits", "Max open files");
    assert!(of_process("status", "FDSize:") >= allowed.min(8192 + 512), "`accept` would wait each time it doubles");
    let longest: usize = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap();
    node.stall().await;
    let mut held = Vec::new();
    for n in 0..UNACCEPTED.min(longest) {
        // One that does not fit is tried again after a second.
        let connection = tokio::time::timeout(Duration::from_millis(900), connect(n, address(&node))).await;
        duetime_testkit::in_time!(connection.is_ok(), "the queue is full after {n} connections");
        held.push(connection.unwrap().unwrap());
    }
    node.resume();
    health(address(&node)).expect("all of them were accepted before");
}

/// Bodies that come at once, and what each has.
const BODIES: usize = 64;
const BODY_BYTES: usize = 16 << 20;
/// `node.request_memory` of a node that gets them.
const REQUEST_MEMORY_MIB: f64 = 128.0;

#[tokio::test]
async fn bodies_that_come_at_once_take_little_more_memory_than_all_requests_may() {
    let item = [&b"{\"id\":\""[..], &vec![b'a'; BODY_BYTES], b"\",\"delay\":\"1ms\"}"].concat();
    let item = bytes::Bytes::from(item);
    for kind in ["application/json", "application/x-ndjson"] {
        let node = Node::start_embedded(PROGRAM, "[node]\nrequest_memory = \"128MiB\"\n").await;
        let client = client();
        let topic = format!("{}/v1/topics/orders", node.url());
        let put = client.put(&topic).json(&serde_json::json!({"max_payload": "16MiB"}));
        assert_eq!(put.send().await.unwrap().status(), 201);
        let mebibytes = |line: &str| {
            let text = std::fs::read_to_string(format!("/proc/{}/status", node.id())).unwrap();
            let rest = text.lines().find_map(|one| one.strip_prefix(line)).unwrap();
            rest.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1024.0
        };
        let before = mebibytes("VmRSS:");
        let all = (0..BODIES).map(|_| {
            let request = client.post(format!("{topic}/messages")).header("content-type", kind);
            let request = request.body(item.clone());
            tokio::spawn(async move { request.send().await.unwrap().status().as_u16() })
        });
        for status in futures::future::join_all(all).await {
            let status = status.unwrap();
            assert!([200, 400, 503].contains(&status), "{status}");
        }
        let most = mebibytes("VmHWM:") - before;
        assert!(most < 1.5 * REQUEST_MEMORY_MIB, "{kind}: {most:.0} MiB");
    }
}
