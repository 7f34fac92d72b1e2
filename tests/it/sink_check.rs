//! `duetime check-config` against real targets: what is wrong with a sink is said, and what to do, before a node starts.

use std::process::{Command, Stdio};
use std::time::Duration;

use async_nats::jetstream::{self, stream};
use duetime_testkit::Webhook;
use duetime_testkit::conformance::sink::CANARY;
use duetime_testkit::servers::{NatsServer, RabbitMqServer, RedisOptions, RedisServer};
use lapin::ExchangeKind;
use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// The sinks of silent targets wait for four seconds, all at once; a slow machine may add to that.
const CHECK_MAX: Duration = Duration::from_secs(30);
/// Not the password, but a secret all the same.
const WRONG: &str = "canary-7f3a9c-wrong";
const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");

/// Whether all is well, and what was printed.
pub(crate) fn check(config: &str) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("duetime.toml");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(PROGRAM);
    command.current_dir(folder.path()).arg("check-config").arg(file).env("DUETIME_LOG", "trace").stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), said)
}

/// A sink, and what is to be said of it.
struct Wrong {
    name: &'static str,
    config: String,
    says: [&'static str; 2],
}

fn wrong(name: &'static str, kind: &str, lines: &str, says: [&'static str; 2]) -> Wrong {
    // Where an answer must come, a slow machine has the time for it.
    let longest = if name.ends_with("-silent") { "4s" } else { "20s" };
    let times = format!("timeout = \"{longest}\"\nconnect_timeout = \"{longest}\"");
    Wrong { name, config: format!("[sinks.{name}]\ntype = \"{kind}\"\n{lines}\n{times}\n"), says }
}

fn http(name: &'static str, url: &str, allow: &str, says: [&'static str; 2]) -> Wrong {
    wrong(name, "http", &format!("url = {url:?}\nallow = [{allow}]\nheaders = {{ x-key = {CANARY:?} }}"), says)
}

fn url(name: &'static str, kind: &str, url: &str, says: [&'static str; 2]) -> Wrong {
    wrong(name, kind, &format!("url = {url:?}"), says)
}

fn nats_lines(url: &str, password: &str) -> String {
    format!("url = {url:?}\nuser = \"duetime\"\npassword = {password:?}")
}

/// A server of each kind, with one user.
struct Servers {
    redis: RedisServer,
    replica: RedisServer,
    secure: RedisServer,
    nats: NatsServer,
    broker: RabbitMqServer,
}

impl Servers {
    async fn start() -> Self {
        let options =
            || RedisOptions { user: Some(("duetime".to_owned(), CANARY.to_owned())), ..RedisOptions::default() };
        let replica = RedisServer::start_with(options()).await;
        replica.cli(&["REPLICAOF", "127.0.0.1", "1"]);
        Self {
            redis: RedisServer::start_with(options()).await,
            replica,
            secure: RedisServer::start_with(RedisOptions { tls: true, ..options() }).await,
            nats: NatsServer::start_with(&format!("authorization {{ user: duetime, password: {CANARY:?} }}")).await,
            broker: RabbitMqServer::start_with(&format!("default_user = duetime\ndefault_pass = {CANARY}")).await,
        }
    }

    /// Sinks that are all right.
    fn good(&self) -> String {
        format!(
            "[sinks.mq]\ntype = \"rabbitmq\"\nurl = {:?}\n[sinks.nats]\ntype = \"nats\"\n{}\n\
             [sinks.streams]\ntype = \"redis-stream\"\nurl = {:?}\n",
            self.broker.url("duetime", CANARY),
            nats_lines(&self.nats.url(), CANARY),
            self.redis.url()
        )
    }
}

/// Topics whose settings the servers have something to say about.
const TOPICS: &str = r#"
[topics.by-exchange]
sink = { name = "mq", exchange = "due" }
[topics.by-queue]
sink = { name = "mq" }
[topics.by-subject]
sink = { name = "nats", subject = "orders.due.{header.region|eu}" }
[topics.by-key]
sink = { name = "streams", stream = "due" }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_sink_or_a_topic_is_said_with_its_remedy_and_without_the_secret() {
    let servers = Servers::start().await;
    let (hook, secure_hook) = (Webhook::start(), Webhook::start_tls());
    // Takes connections and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = listener.local_addr().unwrap();
    let rabbit = servers.broker.url("duetime", CANARY);
    let at = |url: &str, scheme: &str| url.replacen(url.split(':').next().unwrap(), scheme, 1);
    let refused = ["Connection refused", "fix host and port"];
    let no_tls = ["InvalidContentType", "there is no TLS at this port"];
    let unknown = ["UnknownIssuer", "set `ca_file`"];
    let too_late = ["", "see that no firewall is between"];
    let table = [
        http("h-guard", &format!("http://localhost:{}/", hook.port()), "", ["a loopback address", "to `allow`"]),
        http("h-tls", &secure_hook.url("/"), "\"localhost\"", unknown),
        http("h-away", "http://localhost:1/", "\"localhost\"", refused),
        http("h-silent", &format!("http://{silent}/"), "\"127.0.0.1\"", ["within 4000 ms", "raise `timeout`"]),
        http("h-name", "http://no-such-host.invalid/", "", ["no-such-host.invalid", "; fix "]),
        url("m-password", "rabbitmq", &rabbit.replace(CANARY, WRONG), ["Login was refused", "check user and password"]),
        url("m-vhost", "rabbitmq", &format!("{rabbit}/nowhere"), ["vhost nowhere not found", "rabbitmqctl add_vhost"]),
        url("m-tls", "rabbitmq", &at(&rabbit, "amqps"), no_tls),
        url("m-away", "rabbitmq", &format!("amqp://duetime:{CANARY}@127.0.0.1:1"), refused),
        url("m-silent", "rabbitmq", &format!("amqp://duetime:{CANARY}@{silent}"), too_late),
        wrong("n-password", "nats", &nats_lines(&servers.nats.url(), WRONG), ["authorization", "check `user`"]),
        wrong("n-tls", "nats", &nats_lines(&at(&servers.nats.url(), "tls"), CANARY), no_tls),
        wrong("n-away", "nats", &nats_lines("nats://127.0.0.1:1", CANARY), refused),
        wrong("n-silent", "nats", &nats_lines(&format!("nats://{silent}"), CANARY), too_late),
        url("r-password", "redis-stream", &servers.redis.url().replace(CANARY, WRONG), ["the password", "check `url`"]),
        url("r-replica", "redis-stream", &servers.replica.url(), ["READONLY", "the address of its master"]),
        url("r-tls", "redis-stream", &servers.secure.url(), unknown),
        url("r-away", "redis-stream", &format!("redis://duetime:{CANARY}@127.0.0.1:1/0"), refused),
        url("r-silent", "redis-stream", &format!("redis://duetime:{CANARY}@{silent}/0"), too_late),
    ];
    let mut config = servers.good() + TOPICS;
    table.iter().for_each(|one| config.push_str(&one.config));
    config.push_str("[topics.elsewhere]\nsink = { name = \"m-away\", exchange = \"nowhere\" }\n");
    servers.redis.cli(&["SET", "due", "x"]);

    let began = Instant::now();
    let (good, said) = tokio::task::block_in_place(|| check(&config));
    duetime_testkit::in_time!(began.elapsed() < CHECK_MAX, "{:?}", began.elapsed());
    assert!(!good && !said.contains(CANARY), "{said}");
    let line = |part: &str| said.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}{said}"));
    for Wrong { name, says, .. } in table {
        let line = line(&format!(": sinks.{name}: "));
        assert!(says.iter().all(|part| line.contains(part)), "{says:?}: {line}");
    }
    for (topic, says) in [
        ("by-exchange", ["no exchange 'due'", "declare the exchange"]),
        ("by-queue", ["no queue 'by-queue'", "declare the queue"]),
        ("by-subject", ["\"orders.due.*\"", "create one, or fix `subject`"]),
        ("by-key", ["\"due\" is a string", "remove it, or fix `stream`"]),
    ] {
        let line = line(&format!(": topics.{topic}.sink: "));
        assert!(says.iter().all(|part| line.contains(part)), "{says:?}: {line}");
    }
    for name in ["mq", "nats", "streams"] {
        line(&format!("sink {name}: answers"));
    }
    assert!(!said.contains("topics.elsewhere"), "its sink was reported already: {said}");

    // Once fixed, there is nothing to say.
    servers.redis.cli(&["DEL", "due"]);
    let admin = lapin::Connection::connect(&rabbit, lapin::ConnectionProperties::default()).await.unwrap();
    let channel = admin.create_channel().await.unwrap();
    let options = ExchangeDeclareOptions::default();
    channel.exchange_declare("due".into(), ExchangeKind::Topic, options, FieldTable::default()).await.unwrap();
    channel.queue_declare("by-queue".into(), QueueDeclareOptions::durable(), FieldTable::default()).await.unwrap();
    let login = async_nats::ConnectOptions::new().user_and_password("duetime".to_owned(), CANARY.to_owned());
    let admin = jetstream::new(login.connect(servers.nats.url()).await.unwrap());
    let subjects = vec!["orders.due.>".to_owned()];
    admin.create_stream(stream::Config { name: "O".to_owned(), subjects, ..Default::default() }).await.unwrap();
    let (good, said) = tokio::task::block_in_place(|| check(&(servers.good() + TOPICS)));
    assert!(good, "{said}");
    assert_eq!(servers.redis.cli(&["KEYS", "*"]).trim(), "", "nothing was handed over");
}
