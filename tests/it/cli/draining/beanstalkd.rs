//! A real beanstalkd, with jobs that were put by its protocol.

use std::io::{BufRead as _, BufReader};

use duetime_testkit::servers::BeanstalkdServer;
use serde_json::json;

use super::*;

/// A producer or a worker.
pub(in crate::cli) struct Peer(BufReader<TcpStream>);

impl Peer {
    pub(in crate::cli) fn of(port: u16) -> Self {
        let mut peer = Self(BufReader::new(TcpStream::connect(("127.0.0.1", port)).unwrap()));
        assert_eq!(peer.ask("use orders"), "USING orders");
        assert_eq!(peer.ask("watch orders"), "WATCHING 2");
        peer
    }

    /// The first line of the answer.
    fn ask(&mut self, command: &str) -> String {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        self.line()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The number of the job.
    pub(in crate::cli) fn put(&mut self, delay_s: u64, body: &str) -> String {
        let answer = self.ask(&format!("put 7 {delay_s} 60 {}\r\n{body}", body.len()));
        answer.strip_prefix("INSERTED ").expect(&answer).to_owned()
    }

    /// A count of the tube.
    fn count(&mut self, state: &str) -> u64 {
        let length: u64 = self.ask("stats-tube orders").rsplit(' ').next().unwrap().parse().unwrap();
        let mut body = vec![0; length as usize + 2];
        self.0.read_exact(&mut body).unwrap();
        let text = String::from_utf8(body).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("current-jobs-{state}: ")));
        line.unwrap().parse().unwrap()
    }
}

fn import<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["import", "orders", "--from", "beanstalkd", url, "--tube", "orders", "--json"], more].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_and_ready_jobs_of_a_tube_keep_id_body_and_due_time_and_others_stay() {
    let (beanstalkd, node) = (BeanstalkdServer::start().await, topic().await);
    let (mut peer, url) = (Peer::of(beanstalkd.port()), beanstalkd.url());
    let before = now_ms();
    let mut wanted = BTreeMap::new();
    for n in 0..600 {
        // Jobs of another tube lie between, more of them than of this one at the end.
        for _ in 0..(n / 100) {
            peer.ask("use others");
            peer.put(3_600, "not of this tube");
        }
        peer.ask("use orders");
        let delay = if n % 50 == 0 { 0 } else { 7_200 - n };
        wanted.insert(format!("orders-{}", peer.put(delay, &format!("order {n}\r\n"))), (n, delay));
    }
    // The one with the least priority is reserved first.
    let buried = peer.ask("put 0 0 60 6\r\nburied").replace("INSERTED", "RESERVED");
    assert_eq!(peer.ask("reserve-with-timeout 0"), format!("{buried} 6"));
    assert_eq!(peer.line(), "buried");
    assert_eq!(peer.ask(&format!("{} 0", buried.replace("RESERVED", "bury"))), "BURIED");
    let counted = to(&node, &import(&url, &["--dry-run"])).done().json();
    assert_eq!((&counted["tally"]["scheduled"], &counted["drained"]["removed"]), (&600.into(), &0.into()), "{counted}");
    to(&node, &import(&url, &["--verify"])).refused(1, &["--verify", "duetime topic get orders"]);
    assert_eq!(messages(&node).len() as u64 + peer.count("delayed"), 588);

    to(&node, &["pause", "orders"]).done();
    let did = to(&node, &import(&url, &[])).done().json();
    assert_eq!((&did["tally"]["scheduled"], &did["not_delayed"]), (&600.into(), &json!({"buried": 1})), "{did}");
    assert_eq!((&did["drained"]["removed"], &did["drained"]["waiting"]), (&600.into(), &0.into()), "{did}");
    let (after, there) = (now_ms(), messages(&node));
    assert_eq!(there.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
    for (id, (n, delay)) in wanted {
        let message = &there[&id];
        assert_eq!(
            (&message["payload"], &message["headers"]["beanstalkd-pri"]),
            (&json!(format!("order {n}\r\n")), &json!("7"))
        );
        let delay_ms = 1000 * delay as i64;
        let due = message["due_at"].as_i64().unwrap();
        assert!(before + delay_ms <= due && due <= after + delay_ms + 1000, "{delay_ms}: {message}");
    }
    assert_eq!(["delayed", "ready", "buried"].map(|state| peer.count(state)), [0, 0, 1]);
    assert_eq!(peer.ask("use others"), "USING others");
    assert!(peer.ask("peek-delayed").starts_with("FOUND"), "jobs of another tube were taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_killed_before_it_enqueues_or_deletes_loses_no_job_and_doubles_none_when_it_runs_again() {
    let (beanstalkd, node, victim) = (BeanstalkdServer::start().await, topic().await, Victim::default());
    let mut peer = Peer::of(beanstalkd.port());
    for n in 0..600 {
        peer.put(3_600 - n / 100, &format!("order {n}"));
    }
    kill_at_the_enqueue(&node, &import(&beanstalkd.url(), &[])).await;
    assert_eq!(["delayed", "ready"].map(|state| peer.count(state)), [600, 0]);
    let killed = victim.clone();
    let tap = Tap::start(beanstalkd.port(), b"delete ", move || kill(&killed));
    begin(&victim, &node, &import(&format!("beanstalkd://127.0.0.1:{}", tap.port), &[]));
    is_killed(&victim).await;
    let enqueued = messages(&node);
    assert!(!enqueued.is_empty(), "it was killed before it had enqueued anything");
    let did = to(&node, &import(&beanstalkd.url(), &[])).done().json();
    let there = messages(&node);
    let mut bodies: Vec<&str> = there.values().map(|message| message["payload"].as_str().unwrap()).collect();
    bodies.sort_unstable();
    bodies.dedup();
    assert_eq!((there.len(), bodies.len()), (600, 600), "{did}");
    assert_eq!(did["tally"]["scheduled"].as_u64().unwrap() as usize, 600 - enqueued.len(), "{did}");
    assert_eq!(["delayed", "ready", "reserved"].map(|state| peer.count(state)), [0, 0, 0]);
}

/// The delayed job that is due first cannot be a message, and the protocol shows no delayed job behind it.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_the_topic_refuses_stay_and_hide_none_behind_them() {
    let (beanstalkd, node) = (BeanstalkdServer::start().await, topic().await);
    let mut peer = Peer::of(beanstalkd.port());
    let large = "x".repeat(2_000);
    for n in 0..400 {
        peer.put(3_600 + n, "far");
    }
    let (first, ready) = (peer.put(1_000, &large), peer.put(0, &large));
    peer.put(1_001, "near");
    peer.put(0, "ready");
    let folder = tempfile::tempdir().unwrap();
    let refused = folder.path().join("refused.ndjson");
    let url = beanstalkd.url();
    let args = import(&url, &["--refused", refused.to_str().unwrap()]);
    let did = to(&node, &args).refused(1, &["2000 bytes"]).json();
    assert_eq!((&did["tally"]["scheduled"], &did["tally"]["refused"]), (&402.into(), &2.into()), "{did}");
    assert_eq!((&did["drained"]["removed"], &did["drained"]["waiting"]), (&402.into(), &2.into()), "{did}");
    let written = std::fs::read_to_string(&refused).unwrap();
    for number in [&first, &ready] {
        assert!(written.contains(&format!("\"orders-{number}\"")), "{written}");
    }
    assert_eq!(["delayed", "ready", "reserved"].map(|state| peer.count(state)), [1, 1, 0]);
    assert!(peer.ask(&format!("stats-job {first}")).starts_with("OK"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_deleted_there_meanwhile_does_not_come_alive_here() {
    let (beanstalkd, node) = (BeanstalkdServer::start().await, topic().await);
    let mut peer = Peer::of(beanstalkd.port());
    let numbers: Vec<String> = (0..5).map(|n| peer.put(3_600, &format!("order {n}"))).collect();
    let deleted = numbers[2].clone();
    let tap = Tap::start(beanstalkd.port(), b"delete ", move || {
        assert_eq!(peer.ask(&format!("delete {deleted}")), "DELETED");
    });
    let url = format!("beanstalkd://127.0.0.1:{}", tap.port);
    let did = to(&node, &import(&url, &[])).done().json();
    assert_eq!((&did["drained"]["removed"], &did["drained"]["cancelled"]), (&4.into(), &1.into()), "{did}");
    let there = messages(&node);
    assert!(there.len() == 4 && !there.contains_key(&format!("orders-{}", numbers[2])), "{there:?}");
}

/// A command that stands still between its enqueue and its delete, and another one that does the work meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_command_takes_no_delete_by_another_command_for_a_cancel() {
    let (beanstalkd, node) = (BeanstalkdServer::start().await, Arc::new(topic().await));
    let mut peer = Peer::of(beanstalkd.port());
    for n in 0..5 {
        peer.put(3_600, &format!("order {n}"));
    }
    let (other, url) = (node.clone(), beanstalkd.url());
    let tap = Tap::start(beanstalkd.port(), b"delete ", move || {
        let did = to(&other, &import(&url, &[])).done().json();
        assert_eq!((&did["tally"]["duplicate"], &did["drained"]["removed"]), (&5.into(), &5.into()), "{did}");
    });
    let url = format!("beanstalkd://127.0.0.1:{}", tap.port);
    let did = to(&node, &import(&url, &[])).refused(1, &["look here"]).json();
    assert_eq!((&did["drained"]["cancelled"], &did["drained"]["unclear"]), (&0.into(), &5.into()), "{did}");
    assert_eq!(messages(&node).len(), 5);
}

/// A server counts its jobs from 1, and so does each other one.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_the_number_of_another_servers_job_is_not_taken_for_it() {
    let (one, other, node) = (BeanstalkdServer::start().await, BeanstalkdServer::start().await, topic().await);
    assert_eq!(Peer::of(one.port()).put(3_600, "of the one"), Peer::of(other.port()).put(3_600, "of the other"));
    to(&node, &import(&one.url(), &[])).done();
    let did = to(&node, &import(&other.url(), &[])).refused(1, &["another message with its id"]).json();
    assert_eq!((&did["tally"]["refused"], &did["drained"]["waiting"]), (&1.into(), &1.into()), "{did}");
    assert_eq!(Peer::of(other.port()).count("delayed"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_the_number_of_a_delivered_one_of_another_server_is_not_taken_for_it() {
    let (one, other, node) = (BeanstalkdServer::start().await, BeanstalkdServer::start().await, topic().await);
    to(&node, &["topic", "set", "orders", "--remember", "1h"]).done();
    assert_eq!(Peer::of(one.port()).put(0, "order"), Peer::of(other.port()).put(3_600, "order"));
    to(&node, &import(&one.url(), &[])).done();
    deliver(&node);
    let did = to(&node, &import(&other.url(), &[])).refused(1, &["another message with its id"]).json();
    assert_eq!((&did["tally"]["refused"], &did["drained"]["waiting"]), (&1.into(), &1.into()), "{did}");
    assert_eq!(Peer::of(other.port()).count("delayed"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_drain_lacks_is_named() {
    let (beanstalkd, node) = (BeanstalkdServer::start().await, topic().await);
    let url = beanstalkd.url();
    let says = |args: &[&str], says: &str| {
        to(&node, &[&["import", "orders", "--from"], args].concat()).refused(1, &[says]);
    };
    says(&["beanstalkd", &url], "--tube is missing");
    says(&["beanstalkd", &url, "--tube", "a b"], "no name of a tube");
    says(&["beanstalkd", &url, "--tube", "a", "--ttl", "5m"], "--ttl is not for this kind");
    says(&["beanstalkd", "redis://x", "--tube", "a"], "beanstalkd://host:11300");
    says(&["beanstalkd", "beanstalkd://127.0.0.1:1", "--tube", "a"], "the connection to beanstalkd");
    says(&["rabbitmq-dlx", "amqp://127.0.0.1:1"], "--queue is missing");
    says(&["rabbitmq-dlx", "http://127.0.0.1", "--queue", "q"], "amqp://user:password@host");
    says(&["rabbitmq-dlx", "amqp://duetime:canary-word@127.0.0.1:1", "--queue", "q"], "the source:");
    says(&["bullmq", "redis://127.0.0.1:1", "--queue", "q", "--ttl", "5m"], "--ttl is not for this kind");
    says(&["sqs", &url], "beanstalkd");
    let absent = to(&node, &["import", "orders", "--from", "beanstalkd", &url, "--tube", "another"]).done();
    assert!(absent.err.contains("nothing waits there"), "{}", absent.err);
}
