//! `duetime import --from` of systems that cannot be listed: real brokers are drained, by commands that are killed, are
//! slow, and meet what others do there meanwhile.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duetime_core::Clock as _;
use duetime_testkit::WallClock;
use duetime_testkit::servers::{Node, free_port};
use serde_json::Value;

use super::{command, node, to};

pub(super) mod beanstalkd;
mod rabbitmq;

/// What is done once, at the moment that a tap waits for.
type Once = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// Hands what a client sends on to a server, and does something once before it hands on what has `pattern` in it.
struct Tap {
    port: u16,
}

impl Tap {
    fn start(server: u16, pattern: &'static [u8], then: impl FnOnce() + Send + 'static) -> Self {
        let port = free_port();
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let then: Once = Arc::new(Mutex::new(Some(Box::new(then))));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (server, then) = (TcpStream::connect(("127.0.0.1", server)).unwrap(), then.clone());
                let (mut back, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut back, &mut to_client));
                std::thread::spawn(move || hand_on(client, server, pattern, &then));
            }
        });
        Self { port }
    }

    /// Keeps back the first answer to what has `pattern` in it, and ends that connection.
    fn without_answer(server: u16, pattern: &'static [u8]) -> Self {
        let port = free_port();
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let is_asked = Arc::new(AtomicBool::new(false));
        let asked = is_asked.clone();
        let then: Once = Arc::new(Mutex::new(Some(Box::new(move || asked.store(true, Ordering::SeqCst)))));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (server, then) = (TcpStream::connect(("127.0.0.1", server)).unwrap(), then.clone());
                let (mut back, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let is_asked = is_asked.clone();
                std::thread::spawn(move || {
                    let mut bytes = vec![0; 64 << 10];
                    while let Ok(read @ 1..) = back.read(&mut bytes) {
                        if is_asked.swap(false, Ordering::SeqCst) || to_client.write_all(&bytes[..read]).is_err() {
                            break;
                        }
                    }
                    let _ = to_client.shutdown(std::net::Shutdown::Both);
                });
                std::thread::spawn(move || hand_on(client, server, pattern, &then));
            }
        });
        Self { port }
    }
}

fn hand_on(mut from: TcpStream, mut to: TcpStream, pattern: &[u8], then: &Once) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if bytes[..read].windows(pattern.len()).any(|some| some == pattern)
            && let Some(then) = then.lock().unwrap().take()
        {
            then();
        }
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// A command that a tap kills at the moment that it waits for.
type Victim = Arc<Mutex<Option<Child>>>;

fn kill(victim: &Victim) {
    let mut child = victim.lock().unwrap();
    let child = child.as_mut().expect("it runs");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Begins a command that is killed when it would enqueue, and waits for its end.
async fn kill_at_the_enqueue(node: &Node, args: &[&str]) {
    let victim = Victim::default();
    let killed = victim.clone();
    let port: u16 = node.url().rsplit(':').next().unwrap().parse().unwrap();
    let tap = Tap::start(port, b"POST /v1/topics/orders/messages", move || kill(&killed));
    let url = format!("http://127.0.0.1:{}", tap.port);
    begin(&victim, node, &[args, &["--node", &url]].concat());
    is_killed(&victim).await;
}

/// Begins a command, which the victim is from then on.
fn begin(victim: &Victim, node: &Node, args: &[&str]) {
    let mut victim = victim.lock().unwrap();
    *victim = Some(command(Some(node), args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
}

fn messages(node: &Node) -> BTreeMap<String, Value> {
    let lines = to(node, &["export", "orders"]).done().out;
    let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let all: Vec<Value> = all.collect();
    let by_id: BTreeMap<_, _> = all.iter().map(|one| (one["id"].as_str().unwrap().to_owned(), one.clone())).collect();
    assert_eq!(by_id.len(), all.len(), "an id came twice");
    by_id
}

/// Delivers the one message that is due.
fn deliver(node: &Node) {
    let claimed = to(node, &["claim", "orders", "--wait", "10s", "--json"]).done().json();
    to(node, &["ack", "orders", claimed["messages"][0]["receipt"].as_str().unwrap()]).done();
}

async fn topic() -> Node {
    let node = node().await;
    to(&node, &["topic", "create", "orders", "--shards", "2", "--max-payload", "1KiB"]).done();
    node
}

fn now_ms() -> i64 {
    WallClock.now().as_millis()
}

/// Waits until the command has ended by the hand of a tap.
async fn is_killed(victim: &Victim) {
    let ended = || victim.lock().unwrap().as_mut().is_some_and(|child| child.try_wait().unwrap().is_some());
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    while !ended() {
        duetime_testkit::in_time!(tokio::time::Instant::now() < end, "the command was not killed");
        let because = duetime_testkit::wait::Because::AskedAgain;
        duetime_testkit::wait::let_pass(Duration::from_millis(20), because).await;
    }
    let status = victim.lock().unwrap().as_mut().unwrap().try_wait().unwrap().unwrap();
    assert!(status.code().is_none(), "it ended by itself: {status}");
}
