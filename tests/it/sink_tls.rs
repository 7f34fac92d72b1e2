//! Brokers over TLS: whom a sink trusts, and what a cut between publish and confirm costs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::{Delivery, Sink, Verdict};
use duetime_testkit::conformance::sink::{CANARY, message};
use duetime_testkit::servers::{
    NatsServer, Proxy, RabbitMqServer, RedisOptions, RedisServer, free_port, write_certificates,
};
use duetime_testkit::wait::{Because, let_pass, until};
use lapin::options::{BasicGetOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use serde_json::json;
use tokio::time::Instant;

use crate::bound_sink::bind;

/// Longest wait until a sink uses a target again.
const RECOVERY_MAX: Duration = Duration::from_secs(30);

/// The sinks here wait for a second; a slow machine may add to that.
const WAIT_MAX: Duration = Duration::from_secs(10);

fn ids(prefix: &str, count: usize) -> Vec<Delivery> {
    (0..count).map(|n| message(&format!("{prefix}-{n}"), "x")).collect()
}

/// A server whose authority is not known is refused, and one whose is known is used.
async fn trusts_only(config: &str, ca: &Path, settings: &serde_json::Value) -> Arc<dyn Sink> {
    let said = bind(config, settings.clone()).unwrap().check().await.unwrap_err();
    let said = said.to_lowercase();
    assert!(said.contains("certificate") || said.contains("issuer"), "{said}");
    let sink = bind(&format!("{config}ca_file = {ca:?}\n"), settings.clone()).unwrap();
    // What it waits for at most is short for a slow machine.
    let answers = async || sink.check().await.map_err(|error| eprintln!("{error}")).ok();
    until(RECOVERY_MAX, "a target whose authority is known is used", answers).await;
    let verdicts = sink.deliver(&[message("first", "x")]).await;
    duetime_testkit::in_time!(!matches!(verdicts[0], Verdict::NoAnswer { .. }), "{verdicts:?}");
    assert_eq!(verdicts, [Verdict::Accepted]);
    sink
}

/// What was sent, but whose confirm was lost, is unavailable, costs no attempt, and is sent again. `there` counts what
/// the target has.
async fn a_lost_confirm_is_an_absence(sink: &Arc<dyn Sink>, proxy: &Proxy, mut there: impl AsyncFnMut() -> u64) {
    proxy.lose_answers();
    let batch = ids("cut", 20);
    let sent = Instant::now();
    for verdict in sink.deliver(&batch).await {
        let (Verdict::Unavailable { reason } | Verdict::NoAnswer { reason }) = &verdict else { panic!("{verdict:?}") };
        assert!(!reason.contains(CANARY), "{reason}");
    }
    duetime_testkit::in_time!(
        sent.elapsed() < WAIT_MAX,
        "a batch waits no longer than a message: {:?}",
        sent.elapsed()
    );
    let end = Instant::now() + RECOVERY_MAX;
    while there().await != 21 {
        duetime_testkit::in_time!(Instant::now() < end, "more was lost than the answers");
        let_pass(Duration::from_millis(100), Because::AskedAgain).await;
    }
    proxy.heal();
    let end = Instant::now() + RECOVERY_MAX;
    while !sink.deliver(&batch).await.iter().all(|verdict| *verdict == Verdict::Accepted) {
        duetime_testkit::in_time!(Instant::now() < end, "the target is not used again");
        let_pass(Duration::from_millis(200), Because::AskedAgain).await;
    }
}

/// How often each delivery id is there.
fn counted(ids: impl IntoIterator<Item = String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for id in ids {
        *counts.entry(id).or_insert(0) += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_streams_over_tls_and_a_cut_before_the_answer() {
    let user = Some(("duetime".to_owned(), CANARY.to_owned()));
    let server = RedisServer::start_with(RedisOptions { tls: true, user, ..RedisOptions::default() }).await;
    let proxy = Proxy::before(server.port()).await;
    let config = format!("type = \"redis-stream\"\nurl = {:?}\ntimeout = \"1s\"\n", server.url_at(proxy.port()));
    let sink = trusts_only(&config, &server.ca_file(), &json!({"name": "s", "stream": "due"})).await;
    let there = async || server.cli(&["--raw", "XLEN", "due"]).trim().parse().unwrap();
    a_lost_confirm_is_an_absence(&sink, &proxy, there).await;
    let entries = server.cli(&["XRANGE", "due", "-", "+"]);
    let mut lines = entries.lines();
    let mut ids = Vec::new();
    while let Some(line) = lines.next() {
        if line.trim_end().ends_with("delivery-id") {
            ids.push(lines.next().unwrap().to_owned());
        }
    }
    let counts = counted(ids);
    assert_eq!(counts.len(), 21, "{entries}");
    assert!(counts.values().all(|count| *count <= 2), "twice where the answer was lost, and no more: {counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_over_tls_and_a_cut_before_the_acknowledgement() {
    let folder = tempfile::tempdir().unwrap();
    write_certificates(folder.path());
    let at = |name: &str| folder.path().join(name);
    let tls = format!("tls {{ cert_file: {:?}, key_file: {:?} }}", at("server.pem"), at("server.key"));
    let login = format!("authorization {{ user: duetime, password: {CANARY:?} }}");
    let server = NatsServer::start_with(&format!("{tls}\n{login}")).await;
    let port = server.port();
    let options = async_nats::ConnectOptions::new().add_root_certificates(at("ca.pem")).require_tls(true);
    let options = options.user_and_password("duetime".to_owned(), CANARY.to_owned());
    let admin = async_nats::jetstream::new(options.connect(format!("tls://127.0.0.1:{port}")).await.unwrap());
    let config =
        async_nats::jetstream::stream::Config { name: "D".into(), subjects: vec!["due".into()], ..Default::default() };
    let mut stream = admin.create_stream(config).await.unwrap();

    let proxy = Proxy::before(port).await;
    let config = format!(
        "type = \"nats\"\nurl = \"tls://127.0.0.1:{}\"\nuser = \"duetime\"\npassword = {CANARY:?}\ntimeout = \"1s\"\n",
        proxy.port()
    );
    let sink = trusts_only(&config, &at("ca.pem"), &json!({"name": "s", "subject": "due"})).await;
    a_lost_confirm_is_an_absence(&sink, &proxy, async || stream.info().await.unwrap().state.messages).await;
    assert_eq!(stream.info().await.unwrap().state.messages, 21, "what was sent twice is stored once");
}

#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_over_tls_and_a_cut_before_the_confirm() {
    let folder = tempfile::tempdir().unwrap();
    write_certificates(folder.path());
    let at = |name: &str| folder.path().join(name).display().to_string();
    let tls_port = free_port();
    let broker = RabbitMqServer::start_with(&format!(
        "listeners.ssl.1 = 127.0.0.1:{tls_port}\nssl_options.cacertfile = {}\nssl_options.certfile = {}\n\
         ssl_options.keyfile = {}\nssl_options.verify = verify_none\nssl_options.fail_if_no_peer_cert = false\n\
         default_user = duetime\ndefault_pass = {CANARY}",
        at("ca.pem"),
        at("server.pem"),
        at("server.key")
    ))
    .await;
    let url = broker.url("duetime", CANARY);
    let connection = lapin::Connection::connect(&url, lapin::ConnectionProperties::default()).await.unwrap();
    let admin = connection.create_channel().await.unwrap();
    admin.queue_declare("due".into(), QueueDeclareOptions::durable(), FieldTable::default()).await.unwrap();

    let proxy = Proxy::before(tls_port).await;
    let url = format!("amqps://duetime:{CANARY}@127.0.0.1:{}", proxy.port());
    let config = format!("type = \"rabbitmq\"\nurl = {url:?}\ntimeout = \"1s\"\n");
    let sink = trusts_only(&config, Path::new(&at("ca.pem")), &json!({"name": "s", "routing_key": "due"})).await;
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let there = async || {
        let queue = admin.queue_declare("due".into(), passive, FieldTable::default()).await.unwrap();
        u64::from(queue.message_count())
    };
    a_lost_confirm_is_an_absence(&sink, &proxy, there).await;
    let mut ids = Vec::new();
    while let Some(got) = admin.basic_get("due".into(), BasicGetOptions { no_ack: true }).await.unwrap() {
        ids.push(got.properties.message_id().as_ref().unwrap().to_string());
    }
    let counts = counted(ids);
    assert_eq!(counts.len(), 21);
    assert!(counts.values().all(|count| *count <= 2), "twice where the confirm was lost, and no more: {counts:?}");
}
