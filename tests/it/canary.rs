//! Credentials appear in no log, error, answer or metric, whatever the targets do: some that are away,
//! some that never answer, and some that repeat to us all that we told them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duetime_testkit::Webhook;
use duetime_testkit::conformance::sink::CANARY;
use duetime_testkit::servers::Node;
use duetime_testkit::violation::violated;
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::Answer;
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::test_node::client;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
/// Where nobody listens.
const AWAY: &str = "127.0.0.1:1";
const INFO: &str = "INFO {\"server_id\":\"X\",\"version\":\"2.10.0\",\"proto\":1,\"host\":\"127.0.0.1\",\
    \"port\":4222,\"headers\":true,\"max_payload\":1048576,\"auth_required\":true,\"nonce\":\"PXoWU7zWAMt75FY\"}\r\n";
/// The seed of a user of NATS, from the documentation of its keys.
const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";

/// What a parrot does with what it is told.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Silent,
    Raw,
    Redis,
    Nats,
}

/// A target that speaks just enough of a protocol to repeat what it was told.
struct Parrot {
    address: String,
    told: Arc<Mutex<Vec<u8>>>,
}

impl Parrot {
    async fn new(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = told.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let heard = heard.clone();
                tokio::spawn(repeat(socket, manner, heard));
            }
        });
        Self { address, told }
    }
}

/// Until the other side has enough.
async fn repeat(mut socket: TcpStream, manner: Manner, heard: Arc<Mutex<Vec<u8>>>) -> Option<()> {
    if manner == Manner::Nats {
        socket.write_all(INFO.as_bytes()).await.ok()?;
    }
    let mut chunk = vec![0; 64 << 10];
    loop {
        let length = socket.read(&mut chunk).await.ok().filter(|length| *length > 0)?;
        heard.lock().extend_from_slice(&chunk[..length]);
        let text = String::from_utf8_lossy(&chunk[..length]).replace(['\r', '\n', '\''], " ");
        let answer = match manner {
            Manner::Silent => continue,
            Manner::Raw => chunk[..length].to_vec(),
            Manner::Redis => format!("-WRONGPASS I was told {text}\r\n").into_bytes(),
            Manner::Nats => format!("-ERR 'I was told {text}'\r\n").into_bytes(),
        };
        socket.write_all(&answer).await.ok()?;
    }
}

fn key() -> String {
    STANDARD.encode(format!("{CANARY}-signing-key-of-a-webhook"))
}

/// Fails for good when `text` has the credential in any of the forms that it has on its way.
#[track_caller]
fn clean(place: &str, text: &str) {
    let bytes: Vec<String> = CANARY.bytes().map(|byte| byte.to_string()).collect();
    let plain = STANDARD.encode(format!("\0duetime\0{CANARY}"));
    for form in [CANARY.to_owned(), SEED.to_owned(), bytes.join(", "), plain, key(), "%2Dcanary".to_owned()] {
        if let Some(at) = text.find(&form) {
            let from = text[..at].rfind('\n').map_or(0, |line| line + 1);
            let line: String = text[from..].chars().take(2_000).collect();
            violated(format!("{place} has a credential: {line}"));
        }
    }
}

/// A topic for each, named alike.
fn sinks(
    parrots: &BTreeMap<&str, Parrot>,
    hook: &Webhook,
    silent: &str,
    credentials: &Path,
) -> BTreeMap<String, String> {
    let mut sinks = BTreeMap::new();
    let times = "timeout = \"500ms\"\nconnect_timeout = \"500ms\"";
    for (how, of) in [("away", None), ("silent", Some(silent)), ("parrot", None)] {
        let at = |kind: &str| of.unwrap_or(if how == "away" { AWAY } else { &parrots[kind].address }).to_owned();
        let mut add = |name: &str, config: String| sinks.insert(format!("{name}-{how}"), config);
        add(
            "stream",
            format!("type = \"redis-stream\"\nurl = \"redis://duetime:{CANARY}@{}/0\"\n{times}", at("redis")),
        );
        let rabbit = at("rabbitmq");
        add("rabbit", format!("type = \"rabbitmq\"\nurl = \"amqp://duetime:{CANARY}@{rabbit}/v\"\n{times}"));
        let nats = format!("type = \"nats\"\nurl = \"nats://{}\"\n{times}", at("nats"));
        add("nats", format!("{nats}\nuser = \"duetime\"\npassword = \"{CANARY}\""));
        add("token", format!("{nats}\ntoken = \"{CANARY}\""));
        add("creds", format!("{nats}\ncredentials_file = {credentials:?}"));
        if cfg!(feature = "kafka") {
            let login = format!("sasl = {{ user = \"duetime\", password = \"{CANARY}\" }}");
            let kafka = format!("type = \"kafka\"\nbrokers = \"{}\"\n{login}\ntimeout = \"500ms\"", at("rabbitmq"));
            add("kafka", format!("{kafka}\nconnect_timeout = \"1s\""));
        }
    }
    let http = |url: &str, allow: &str| {
        format!(
            "type = \"http\"\nurl = \"{url}?token={CANARY}\"\nsigning_secrets = [\"whsec_{}\"]\n\
             headers = {{ authorization = \"Bearer {CANARY}\", x-key = \"{CANARY}\" }}\nallow = [{allow}]\n{times}",
            key()
        )
    };
    let local = "\"127.0.0.1\"";
    for status in ["400", "401", "410", "302", "429", "500"] {
        sinks.insert(format!("hook-{status}"), http(&hook.url("/due"), local));
    }
    sinks.insert("hook-away".to_owned(), http(&format!("http://{AWAY}/due"), local));
    sinks.insert("hook-silent".to_owned(), http(&format!("http://{silent}/due"), local));
    sinks.insert("hook-raw".to_owned(), http(&format!("http://{}/due", parrots["rabbitmq"].address), local));
    sinks.insert("hook-refused".to_owned(), http("http://localhost:1/due", ""));
    sinks
}

fn check_config(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("duetime.toml");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(PROGRAM);
    command.current_dir(folder.path()).arg("check-config").arg(file).env("DUETIME_LOG", "trace");
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success(), "nothing here can be used");
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_is_in_no_log_no_answer_and_no_metric_whatever_the_targets_do() {
    let mut parrots = BTreeMap::new();
    for (kind, manner) in [("redis", Manner::Redis), ("nats", Manner::Nats), ("rabbitmq", Manner::Raw)] {
        parrots.insert(kind, Parrot::new(manner).await);
    }
    let silent = Parrot::new(Manner::Silent).await;
    let hook = Webhook::start();
    hook.answer(|hit| {
        let status = hit.header("duetime-topic").trim_start_matches("hook-").parse().unwrap_or(500);
        let told = format!("I was told {} {:?} {}", hit.path, hit.headers, key());
        Answer::status(status).header("location", format!("/{CANARY}")).header("retry-after", CANARY).body(told)
    });
    let folder = tempfile::tempdir().unwrap();
    let credentials = folder.path().join("nats.creds");
    let (dashes, jwt) = ("------", format!("{CANARY}.jwt"));
    let file = format!(
        "{dashes}JWT{dashes}\n{jwt}\n{dashes}END{dashes}\n\n{dashes}SEED{dashes}\n{SEED}\n{dashes}END{dashes}\n"
    );
    std::fs::write(&credentials, file).unwrap();
    let sinks = sinks(&parrots, &hook, &silent.address, &credentials);
    let mut config = String::new();
    for (name, lines) in &sinks {
        writeln!(config, "[sinks.{name}]\n{lines}").unwrap();
    }
    let checked = tokio::task::block_in_place(|| check_config(&config));
    clean("check-config", &checked);
    for name in sinks.keys().filter(|name| !name.contains("-silent") && !name.starts_with("hook-")) {
        assert!(checked.contains(&format!("sinks.{name}: ")), "{name} is not complained about: {checked}");
    }

    let all = vec![("DUETIME_LOG", "trace".to_owned())];
    let node = Node::start_with(PROGRAM, "embedded:data", &config, all).await;
    let client = client();
    let url = |path: &str| format!("{}{path}", node.url());
    for name in sinks.keys() {
        let topic = json!({"shards": 1, "sink": {"name": name}, "retry": {"max_attempts": 1}});
        let made = client.put(url(&format!("/v1/topics/{name}"))).json(&topic).send().await.unwrap();
        assert_eq!(made.status(), 201, "{}", made.text().await.unwrap());
        let messages = json!([{"id": "a", "delay": 0, "payload": "x"}, {"id": "b", "delay": 0, "payload": "x"}]);
        let sent = client.post(url(&format!("/v1/topics/{name}/messages"))).json(&messages).send().await.unwrap();
        assert_eq!(sent.status(), 200);
        let wrong = json!({"sink": {"name": name, "urll": 1, "password": true}});
        let refused = client.put(url(&format!("/v1/topics/{name}"))).json(&wrong).send().await.unwrap();
        assert!(refused.status().is_client_error());
        clean("a refusal", &refused.text().await.unwrap());
    }
    // Long enough for every time-out and for several probes.
    let_pass(Duration::from_secs(4), Because::Time).await;

    let mut paths: Vec<String> =
        ["/metrics", "/v1/topics", "/v1/nodes", "/readyz", "/openapi.json", "/"].map(str::to_owned).into();
    for name in sinks.keys() {
        for part in ["", "/dead", "/shards", "/messages/a", "/messages/b"] {
            paths.push(format!("/v1/topics/{name}{part}"));
        }
    }
    let mut answers = String::new();
    for path in paths {
        let answer = client.get(url(&path)).send().await.unwrap().text().await.unwrap();
        clean(&path, &answer);
        answers.push_str(&answer);
    }
    let log = node.output();
    clean("the log", &log);
    // Without these the search would have searched nothing.
    for parrot in parrots.values().chain([&silent]) {
        assert!(String::from_utf8_lossy(&parrot.told.lock()).contains("duetime"), "a parrot was told nothing");
    }
    assert!(String::from_utf8_lossy(&parrots["redis"].told.lock()).contains(CANARY));
    assert!(String::from_utf8_lossy(&parrots["nats"].told.lock()).contains(CANARY));
    assert!(String::from_utf8_lossy(&parrots["nats"].told.lock()).contains(&jwt));
    assert!(hook.hits().iter().any(|hit| format!("{:?}", hit.headers).contains(CANARY)));
    assert!(answers.contains("I was told") && answers.contains("***"), "a reason repeats what the hook said");
    assert!(log.contains("sink is down"), "{log}");
}

#[test]
fn a_configuration_that_cannot_be_read_is_explained_without_its_credentials() {
    for text in [
        format!("[sinks.x]\ntype = \"rabbitmq\"\nurl = \"amqp://u:{CANARY}@h"),
        format!("[sinks.x]\ntype = \"rabbitmq\"\nurl = [\"amqp://u:{CANARY}@h\"]"),
        format!("[sinks.x]\ntype = \"rabbitmq\"\nurl = \"amqpp://u:{CANARY}@h\""),
        format!("[sinks.x]\ntype = \"nats\"\nurl = \"nats://u:{CANARY}@h\""),
        format!("[sinks.x]\ntype = \"nats\"\nurl = \"nats://h\"\npassword = \"{CANARY}\""),
        format!("[sinks.x]\ntype = \"nats\"\nurl = \"nats://h\"\ntoken = {{ text = \"{CANARY}\" }}"),
        format!("[sinks.x]\ntype = \"nats\"\nurl = \"nats://h\"\ntoken = [\"{CANARY}\"]"),
        format!("[sinks.x]\ntype = \"redis-stream\"\nurl = \"http://u:{CANARY}@h\""),
        format!("[sinks.x]\ntype = \"http\"\nurl = \"http://u:{CANARY}@h\""),
        format!("[sinks.x]\ntype = \"http\"\nurl = \"ftp://h?{CANARY}\""),
        format!("[sinks.x]\ntype = \"http\"\nurl = \"http://h\"\nsigning_secrets = [\"{CANARY}\"]"),
        format!("[sinks.x]\ntype = \"http\"\nurl = \"http://h\"\nheaders = {{ \"a b\" = \"{CANARY}\" }}"),
        format!("[sinks.x]\ntype = \"http\"\nurl = \"http://h\"\nheaders = {{ a = \"{CANARY}\\n\" }}"),
        format!("[sinks.x]\ntype = \"http\"\nurl = \"http://h\"\nheaders = \"{CANARY}\""),
        format!("[sinks.x]\ntype = \"kafka\"\nbrokers = \"u:{CANARY}@h\""),
        format!("[sinks.x]\ntype = \"kafka\"\nbrokers = \"h\"\nsasl = \"{CANARY}\""),
        format!("[sinks.x]\ntype = \"kafka\"\nbrokers = \"h\"\nproperties = {{ \"linger.ms\" = \"{CANARY}\" }}"),
        format!("[sinks.x]\ntype = \"pigeon\"\npassword = \"{CANARY}\""),
        format!("[store]\nurl = \"redis://u:{CANARY}@{AWAY}/x\""),
        format!("[store]\nurl = \"redis://u:{CANARY}@{AWAY}/0\""),
    ] {
        let said = check_config(&text);
        clean(&text, &said);
    }
}

/// In passwords that were not escaped: the printable characters that mean something in an address or a file. That all of
/// them are hidden is tested where addresses are shown.
const ODD: &str = "/#?@:% \\\"";

/// Fails for good when `said` has a part of the password.
fn halves(place: &str, said: &str) {
    for half in ["leftcanary", "canaryright"] {
        if said.contains(half) {
            violated(format!("{place}: {said}"));
        }
    }
}

#[test]
fn a_password_that_is_not_escaped_is_in_no_error_whatever_characters_it_has() {
    let mut sinks = String::new();
    for (n, odd) in ODD.chars().enumerate() {
        let password = format!("leftcanary{odd}canaryright");
        for (kind, url) in [
            ("rabbitmq", format!("amqp://u:{password}@{AWAY}/v")),
            ("redis-stream", format!("redis://u:{password}@{AWAY}/0")),
            ("nats", format!("nats://u:{password}@{AWAY}")),
            ("http", format!("http://u:{password}@{AWAY}/in")),
        ] {
            let times = if kind == "http" { "" } else { "timeout = \"500ms\"\nconnect_timeout = \"500ms\"\n" };
            writeln!(sinks, "[sinks.{kind}-{n}]\ntype = \"{kind}\"\nurl = {url:?}\n{times}").unwrap();
        }
    }
    halves("sinks", &check_config(&sinks));
    // Each waits for servers that are away: all at once.
    std::thread::scope(|scope| {
        for odd in "/#?".chars() {
            let password = format!("leftcanary{odd}canaryright");
            for url in [
                format!("redis://u:{password}@{AWAY}/0"),
                format!("redis-cluster://u:{password}@{AWAY},127.0.0.1:2"),
                format!("redis-sentinel://u:{password}@{AWAY}/master"),
            ] {
                scope.spawn(move || halves(&url, &check_config(&format!("[store]\nurl = {url:?}\n"))));
            }
        }
    });
    for tokens in ["\"leftcanary\"", "[\"leftcanary\"]", "[[\"leftcanary\"]]", "{ secret = [\"leftcanary\"] }"] {
        halves(tokens, &check_config(&format!("[auth]\ntokens = {tokens}\n")));
    }
    halves("auth", &check_config("auth = \"leftcanary\"\n"));
}
