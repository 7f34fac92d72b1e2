//! Secrets appear in no log, error, answer or metric, wherever they are configured, whatever characters they have and
//! whatever the other sides do: some that are away, some that never answer, and some that repeat all that they are given.

mod panic;
mod parrot;
mod places;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use duetime_testkit::Webhook;
use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::wait::{Because, let_pass, let_pass_blocking};
use duetime_testkit::webhook::Answer;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::test_node::client;
use parrot::{Manner, Parrot};
use places::{At, PLACES, Place, WRITTEN, Written, clean, escaped, secret};

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
/// Where nobody listens.
const AWAY: &str = "127.0.0.1:1";
/// Programs that run at once.
const AT_ONCE: usize = 8;
/// How long a node that cannot start, or waits for its store, is watched.
const WATCHED: Duration = Duration::from_secs(3);
/// And one that prints nothing, for this long.
const SILENT_MAX: Duration = Duration::from_secs(30);

struct Sides {
    parrots: BTreeMap<Manner, Parrot>,
}

impl Sides {
    async fn new() -> Self {
        let mut parrots = BTreeMap::new();
        for manner in [Manner::Silent, Manner::Raw, Manner::Redis, Manner::Nats] {
            parrots.insert(manner, Parrot::new(manner).await);
        }
        Self { parrots }
    }

    fn host(&self, place: &Place, side: &str) -> &str {
        match side {
            "away" => AWAY,
            "silent" => &self.parrots[&Manner::Silent].address,
            _ => &self.parrots[&place.speaks].address,
        }
    }

    /// Without this, the search would have searched nothing.
    fn were_given_secrets(&self, to: &[Manner]) {
        for manner in to {
            let given = self.parrots[manner].given();
            assert!(given.contains("kept"), "{manner:?} was given no secret: {given}");
        }
    }
}

struct Run {
    label: String,
    config: String,
    variables: Vec<(String, String)>,
    serves: bool,
}

impl Run {
    /// All it printed. A node that is not refused is ended after a while.
    fn printed(&self) -> String {
        let folder = tempfile::tempdir().unwrap();
        let (file, output) = (folder.path().join("duetime.toml"), folder.path().join("output"));
        std::fs::write(&file, &self.config).unwrap();
        let mut command = Command::new(PROGRAM);
        for name in std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("DUETIME_")) {
            command.env_remove(name);
        }
        if self.serves {
            command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&file);
        } else {
            command.arg("check-config").arg(&file);
        }
        let told = std::fs::File::create(&output).unwrap();
        command.current_dir(folder.path()).env("DUETIME_LOG", "trace").env("RUST_BACKTRACE", "full");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(told.try_clone().unwrap()).stderr(told);
        let (mut process, began) = (command.spawn().unwrap(), Instant::now());
        // On a slow machine it may be long until it prints anything.
        let is_watched = || {
            let most = if std::fs::metadata(&output).unwrap().len() == 0 { SILENT_MAX } else { WATCHED };
            !self.serves || began.elapsed() < most
        };
        while process.try_wait().unwrap().is_none() && is_watched() {
            let_pass_blocking(Duration::from_millis(20), Because::AskedAgain);
        }
        let _ = process.kill();
        process.wait().unwrap();
        String::from_utf8_lossy(&std::fs::read(output).unwrap()).into_owned()
    }
}

/// Runs them, some at a time, and looks for secrets in what each printed; all of it by its label.
async fn all_printed(runs: Vec<Run>) -> BTreeMap<String, String> {
    let printed = futures::stream::iter(runs).map(|run| {
        tokio::task::spawn_blocking(move || {
            let printed = run.printed();
            clean(&run.label, &printed);
            assert!(!printed.is_empty(), "{} printed nothing", run.label);
            (run.label, printed)
        })
    });
    printed.buffer_unordered(AT_ONCE).map(Result::unwrap).collect().await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_what_a_check_or_a_start_prints_wherever_and_however_it_is_configured() {
    let (sides, redis, folder) = (Sides::new().await, RedisServer::start().await, tempfile::tempdir().unwrap());
    let store = redis.url();
    let mut runs = Vec::new();
    for (how, side) in WRITTEN.into_iter().flat_map(|how| [(how, "away"), (how, "parrot")]) {
        let mut sinks =
            Run { label: format!("sinks {how:?} {side}"), config: String::new(), variables: Vec::new(), serves: false };
        for (n, place) in PLACES.iter().enumerate().filter(|(_, place)| place.is_built_in()) {
            let name = format!("p{n}-{how:?}-{side}");
            let at = At { name: &name, host: sides.host(place, side), store: &store, folder: folder.path() };
            let (config, variables) = place.configured(&at, how, &secret(n));
            if place.is_of_a_sink() && !place.is_refused() {
                sinks.config.push_str(&config);
                sinks.variables.extend(variables);
                continue;
            }
            // How it was written makes no difference once it is read.
            let formats: &[&str] = if how == Written::Text { &["check", "text", "json"] } else { &["check"] };
            for format in formats {
                let serves = *format != "check";
                let lines = if serves && !config.contains("[node]") {
                    format!("[node]\nlog_format = {format:?}\n")
                } else {
                    String::new()
                };
                let label = format!("{} {how:?} {side} {format}", place.field);
                runs.push(Run { label, config: format!("{lines}{config}"), variables: variables.clone(), serves });
            }
        }
        runs.push(sinks);
    }
    let printed = all_printed(runs).await;
    for (how, side) in [(Written::Text, "away"), (Written::File, "parrot"), (Written::Env, "parrot")] {
        let checked = &printed[&format!("sinks {how:?} {side}")];
        for (n, place) in PLACES.iter().enumerate().filter(|(_, place)| place.is_built_in() && place.is_of_a_sink()) {
            assert!(
                place.is_refused() || checked.contains(&format!("sinks.p{n}-{how:?}-{side}: ")),
                "{} is not complained about: {checked}",
                place.field
            );
        }
    }
    sides.were_given_secrets(&[Manner::Raw, Manner::Redis, Manner::Nats]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_that_is_written_wrongly_is_in_a_complaint() {
    let folder = tempfile::tempdir().unwrap();
    let mut runs = Vec::new();
    for (n, place) in PLACES.iter().enumerate().filter(|(_, place)| place.is_built_in()) {
        let at = At { name: "sink", host: AWAY, store: "embedded:data", folder: folder.path() };
        let secret = secret(n);
        let mut values = Vec::new();
        for text in [secret.clone(), place.unescaped(&at, &secret)] {
            values.extend([
                format!("[{text:?}]"),
                format!("[[{text:?}]]"),
                format!("{{ text = {text:?} }}"),
                format!("{{ file = [{text:?}] }}"),
                format!("{{ env = {text:?}, file = {text:?} }}"),
                format!("{text:?}"),
                format!("{:?}", text.replacen("://", ":", 1)),
                text.clone(),
                format!("\"{text}\""),
                format!("'{text}'"),
                format!("{text:?}").trim_end_matches('"').to_owned(),
                format!("{text:?} {text:?}"),
                format!("true\n{text:?} = 1"),
            ]);
        }
        for (at_value, value) in values.iter().enumerate() {
            // A path is shown, and so is the name of a key.
            if place.is_path() || at_value % 13 == 12 {
                continue;
            }
            let config = place.around(&at, value);
            runs.push(Run {
                label: format!("{} as {at_value}", place.field),
                config,
                variables: Vec::new(),
                serves: false,
            });
        }
    }
    for section in ["auth", "store", "sinks", "sinks.x", "ownership", "node"] {
        let value = format!("{:?}", secret(8));
        for (wrong, config) in
            [("text", value.clone()), ("list", format!("[{value}]")), ("table", format!("{{ tokens = {value} }}"))]
        {
            runs.push(Run {
                label: format!("{section} {wrong}"),
                config: format!("{section} = {config}\n"),
                variables: Vec::new(),
                serves: false,
            });
        }
    }
    all_printed(runs).await;
}

/// The sinks of a node, each with one place: name and configuration.
fn sinks(sides: &Sides, hook: &Webhook, folder: &Path) -> BTreeMap<String, (usize, String)> {
    let mut sinks = BTreeMap::new();
    let hook = format!("127.0.0.1:{}", hook.port());
    for (n, place) in PLACES.iter().enumerate() {
        if !place.is_of_a_sink() || !place.is_built_in() || place.is_refused() {
            continue;
        }
        let mut add = |side: &str, host: &str| {
            let name = format!("p{n}-{side}");
            let at = At { name: &name, host, store: "", folder };
            let config = place.configured(&at, Written::Text, &secret(n)).0;
            let config = if side == "refused" { config.replace("allow = [\"127.0.0.1\"]", "") } else { config };
            sinks.insert(name, (n, config));
        };
        for side in ["away", "silent", "parrot"] {
            add(side, sides.host(place, side));
        }
        if place.field.contains("/http/") {
            for status in ["400", "401", "410", "302", "429", "500"] {
                add(status, &hook);
            }
            add("refused", "localhost:1");
        }
    }
    sinks
}

/// A webhook that says what it was given, as it was given, as a program shows it, and as JSON.
fn echo() -> Webhook {
    let hook = Webhook::start();
    hook.answer(|hit| {
        let topic = hit.header("duetime-topic").to_owned();
        let status = topic.rsplit_once('-').and_then(|(_, status)| status.parse().ok()).unwrap_or(500);
        let bearer = hit.header("authorization").to_owned();
        let slashes = json!({ "path": hit.path, "authorization": bearer }).to_string().replace('/', "\\/");
        let told = match hit.header("webhook-id").len() % 2 {
            0 => format!("I was given {} {:?} {bearer}", hit.path, hit.headers),
            _ => format!("I was given {slashes}"),
        };
        Answer::status(status).header("location", hit.path.clone()).header("retry-after", bearer).body(told)
    });
    hook
}

/// Every path that can be read, from the document of the API.
fn paths_of(document: &Value, topics: &[String]) -> Vec<String> {
    let mut paths = vec!["/".to_owned(), "/openapi.json".to_owned(), "/no-such-path".to_owned()];
    for (path, _) in document["paths"].as_object().unwrap().iter().filter(|(_, methods)| methods["get"].is_object()) {
        // Ends when the node does.
        if path.ends_with("/events") {
            continue;
        }
        if !path.contains('{') {
            paths.push(path.clone());
            continue;
        }
        // Each topic has the name of its sink.
        for topic in topics {
            let path = path.replace("{topic}", topic).replace("{sink}", topic);
            paths.push(path.replace("{id}", "ab").replace("{shard}", "0"));
        }
    }
    assert!(paths.iter().all(|path| !path.contains('{')), "{paths:?}");
    paths
}

async fn a_node_shows_no_secret(log_format: &str) {
    let (sides, hook, folder) = (Sides::new().await, echo(), tempfile::tempdir().unwrap());
    let sinks = sinks(&sides, &hook, folder.path());
    let mut config = format!("[node]\nlog_format = {log_format:?}\naudit = \"log\"\n");
    let is_token = |place: &Place| place.field.starts_with("crates/duetime-http/src/auth.rs") && !place.is_refused();
    let mut tokens = Vec::new();
    for (n, place) in PLACES.iter().enumerate().filter(|(_, place)| is_token(place)) {
        let at = At { name: &format!("t{n}"), host: "", store: "", folder: folder.path() };
        config.push_str(&place.configured(&at, Written::Text, &secret(n)).0);
        tokens.push(secret(n));
    }
    for (_, lines) in sinks.values() {
        config.push_str(lines);
    }
    let all = vec![("DUETIME_LOG", "trace".to_owned())];
    let node = Node::start_with(PROGRAM, "embedded:data", &config, all).await;
    let client = client();
    let url = |path: &str| format!("{}{path}", node.url());
    let ask = async |method: reqwest::Method, path: &str, token: &str, body: Value| {
        let request = client.request(method, url(path)).header("authorization", format!("Bearer {token}"));
        let request = if body.is_null() { request } else { request.json(&body) };
        let answer = request.send().await.unwrap();
        let (status, headers) = (answer.status().as_u16(), format!("{:?}", answer.headers()));
        let text = answer.text().await.unwrap();
        clean(path, &headers);
        clean(path, &text);
        (status, text)
    };
    let (put, post, get) = (reqwest::Method::PUT, reqwest::Method::POST, reqwest::Method::GET);
    for name in sinks.keys() {
        let topic = json!({"shards": 1, "sink": {"name": name}, "retry": {"max_attempts": 1}});
        let made = ask(put.clone(), &format!("/v1/topics/{name}"), &tokens[0], topic).await;
        assert_eq!(made.0, 201, "{}", made.1);
        let messages = json!([{"id": "a", "delay": 0, "payload": "x"}, {"id": "ab", "delay": 0, "payload": "x"}]);
        let sent = ask(post.clone(), &format!("/v1/topics/{name}/messages"), &tokens[1], messages).await;
        assert_eq!(sent.0, 200, "{}", sent.1);
        let wrong = json!({"sink": {"name": name, "urll": 1, "password": true}});
        assert!(ask(put.clone(), &format!("/v1/topics/{name}"), &tokens[0], wrong).await.0 >= 400);
    }
    // Almost a token.
    for token in &tokens {
        assert_eq!(ask(get.clone(), "/v1/topics", &format!("{token}x"), Value::Null).await.0, 401);
        assert_eq!(ask(get.clone(), "/v1/topics", &token[1..], Value::Null).await.0, 401);
    }
    // Long enough for every time-out and for several probes.
    let_pass(Duration::from_secs(4), Because::Time).await;
    node.until_said("sink is down", 1).await;

    let document = ask(get.clone(), "/openapi.json", &tokens[0], Value::Null).await.1;
    let topics: Vec<String> = sinks.keys().cloned().collect();
    let mut answers = String::new();
    for path in paths_of(&serde_json::from_str(&document).unwrap(), &topics) {
        answers.push_str(&ask(get.clone(), &path, &tokens[0], Value::Null).await.1);
    }
    for command in
        [&["status"][..], &["nodes"], &["audit"], &["explain", "p11-away", "a"], &["sink", "get", "p11-away"]]
    {
        let mut command_line = Command::new(PROGRAM);
        command_line.args(command).env("DUETIME_NODE", node.url());
        for (way, token) in [
            ("token", tokens[0].clone()),
            ("almost", format!("{}x", tokens[0])),
            ("broken", format!("{}\n.", tokens[0])),
        ] {
            let output = command_line.env("DUETIME_TOKEN", token).env("DUETIME_LOG", "trace").output().unwrap();
            let said =
                format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            clean(&format!("{command:?} {way}"), &said);
        }
    }
    let log = node.output();
    clean("the log", &log);
    // Without these the search would have searched nothing.
    sides.were_given_secrets(&[Manner::Redis, Manner::Nats, Manner::Raw]);
    assert!(hook.hits().iter().any(|hit| format!("{:?}", hit.headers).contains("kept")));
    assert!(answers.contains("I was given") && answers.contains("***"), "a reason repeats what the hook said");
    assert!(log.contains("sink is down"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_shows_no_secret_in_its_answers_metrics_and_text_logs() {
    a_node_shows_no_secret("text").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_shows_no_secret_in_its_answers_metrics_and_json_logs() {
    a_node_shows_no_secret("json").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_shows_no_secret_of_a_store_that_no_longer_lets_it_in() {
    let redis = RedisServer::start().await;
    let password = secret(0);
    let set = |password: &str| {
        let said = redis.cli(&["ACL", "SETUSER", "u", "on", "resetpass", &format!(">{password}"), "~*", "&*", "+@all"]);
        assert_eq!(said.trim(), "OK");
    };
    set(&password);
    let store = format!("redis://u:{}@127.0.0.1:{}/0", escaped(&password), redis.port());
    let mut nodes = Vec::new();
    for format in ["text", "json"] {
        let config = format!(
            "[node]\nid = {format:?}\nlog_format = {format:?}\n[ownership]\nmode = \"round-robin\"\n\
             [store]\nretry_for = \"1s\"\n[topics.a]\nshards = 1\n"
        );
        nodes.push(Node::start_with(PROGRAM, &store, &config, vec![("DUETIME_LOG", "trace".to_owned())]).await);
    }
    set("another");
    redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    redis.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let client = client();
    for node in &nodes {
        let sent = client.post(format!("{}/v1/topics/a/messages", node.url())).json(&json!({"id": "x"}));
        let refused = sent.send().await.unwrap();
        assert_eq!(refused.status(), 503);
        clean("a refusal", &refused.text().await.unwrap());
        for path in ["/readyz", "/v1/nodes", "/v1/topics", "/v1/topics/a", "/v1/topics/a/messages/x", "/metrics"] {
            clean(path, &client.get(format!("{}{path}", node.url())).send().await.unwrap().text().await.unwrap());
        }
        let output = node.output();
        clean("the log", &output);
        assert!(output.contains("redis refused the user or the password"), "{output}");
    }
}
