//! Sinks that are put by the API, at real nodes: known by all, changed while messages flow, kept over restarts.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use duetime_testkit::Webhook;
use duetime_testkit::servers::RedisServer;
use duetime_testkit::wait::{Because, let_pass, until};
use duetime_testkit::webhook::Hit;
use reqwest::Method;
use serde_json::{Value, json};

use crate::test_node::{TestNode, ids};

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const PATIENCE: Duration = Duration::from_secs(30);
/// Nodes know a change within this, and take it in.
const KNOWN_WITHIN: Duration = Duration::from_secs(3);
const CANARY: &str = "canary-5f1e0c-sink";

/// The section of a node whose secrets are in `folder`.
fn section(folder: &Path) -> String {
    format!(
        "[sinks_by_api]\nenabled = true\nsecrets = {folder:?}\ntargets = [\"http://127.0.0.1:*\"]\nallow = [\"127.0.0.1\"]\n"
    )
}

fn secrets() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), format!("Bearer {CANARY}\n")).unwrap();
    folder
}

fn settings(hook: &Webhook) -> Value {
    json!({"type": "http", "url": hook.url("/in"), "headers": {"authorization": {"file": "token"}}})
}

async fn put(node: &TestNode, query: &str, settings: &Value) -> (u16, Value) {
    let (status, answer) = node.call(Method::PUT, &format!("/v1/sinks/hook{query}"), settings.clone()).await;
    (status.as_u16(), answer)
}

/// What was delivered: a sink that is tried is asked with OPTIONS.
fn delivered(hook: &Webhook) -> Vec<Hit> {
    hook.hits().into_iter().filter(|hit| hit.method == "POST").collect()
}

/// How often each message arrived at any of these.
fn arrived(hooks: &[&Webhook]) -> BTreeMap<String, usize> {
    let mut arrived = BTreeMap::new();
    for hit in hooks.iter().flat_map(|hook| delivered(hook)) {
        assert_eq!(hit.header("authorization"), format!("Bearer {CANARY}"));
        *arrived.entry(hit.header("duetime-id").to_owned()).or_default() += 1;
    }
    arrived
}

/// Waits until so many messages whose ids begin so arrived at any of these; answers how often each did.
async fn all_arrive(hooks: &[&Webhook], prefix: &str, many: usize) -> BTreeMap<String, usize> {
    let of_prefix = || arrived(hooks).into_iter().filter(|(id, _)| id.starts_with(prefix)).collect::<BTreeMap<_, _>>();
    let what = format!("{many} messages {prefix} arrive");
    until(PATIENCE, &what, async || Some(of_prefix()).filter(|arrived| arrived.len() >= many)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_put_at_one_node_is_used_and_changed_at_all_while_messages_flow() {
    let (redis, folder, first, second) = (RedisServer::start().await, secrets(), Webhook::start(), Webhook::start());
    let mut nodes = TestNode::sharing(2, &redis, &section(folder.path())).await;
    let (status, made) = put(&nodes[0], "?if_version=0", &settings(&first)).await;
    assert_eq!((status, &made["version"], &made["origin"]), (201, &json!(1), &json!("api")), "{made}");
    let (status, answer) = nodes[1].topic("orders", json!({"shards": 4, "sink": {"name": "hook"}})).await;
    assert_eq!(status, 201, "the other node knows it at once: {answer}");
    nodes[1].enqueue("orders", ids("a", 20)).await;
    all_arrive(&[&first], "a-", 20).await;

    // In the middle of what flows it leads elsewhere.
    for (n, part) in ids("b", 400).collect::<Vec<_>>().chunks(20).enumerate() {
        nodes[n % 2].enqueue("orders", part.iter().cloned()).await;
        if n == 10 {
            let (status, changed) = put(&nodes[1], "?if_version=1", &settings(&second)).await;
            assert_eq!((status, &changed["version"]), (200, &json!(2)), "{changed}");
        }
        let_pass(Duration::from_millis(50), Because::Rate).await;
    }
    let all = all_arrive(&[&first, &second], "b-", 400).await;
    assert!(all.values().all(|times| *times == 1), "{all:?}");
    assert_eq!(put(&nodes[0], "?if_version=1", &settings(&first)).await.1["code"], "changed");
    let_pass(KNOWN_WITHIN, Because::Time).await;
    let before = delivered(&first).len();
    nodes[0].enqueue("orders", ids("c", 20)).await;
    all_arrive(&[&second], "c-", 20).await;
    assert_eq!(delivered(&first).len(), before, "the old target gets nothing any more");

    // A node that begins anew has it from the store, whatever else is there.
    let key = redis.cli(&["--scan", "--pattern", "*:sinks"]);
    redis.cli(&["EVAL", "return redis.call('HSET', KEYS[1], 'broken', string.char(255))", "1", &key]);
    nodes[1].process.kill();
    nodes[0].process.sigterm(PATIENCE).await;
    nodes[0].process.start_again().await;
    nodes[0].enqueue("orders", ids("d", 5)).await;
    all_arrive(&[&second], "d-", 5).await;

    let delete = async || {
        let (status, answer) = nodes[0].call(Method::DELETE, "/v1/sinks/hook", json!({})).await;
        (status.as_u16(), answer)
    };
    let (status, used) = delete().await;
    assert_eq!((status, &used["code"]), (409, &json!("sink_in_use")), "{used}");
    assert_eq!(nodes[0].topic("orders", json!({"sink": null})).await.0, 200);
    assert_eq!(delete().await.0, 200);
    let (status, gone) = nodes[0].call(Method::DELETE, "/v1/sinks/broken", json!({})).await;
    assert_eq!(status, 200, "one that cannot be read is deleted as well: {gone}");
    assert_eq!(nodes[0].topic("orders", json!({"sink": {"name": "hook"}})).await.0, 400);
    for node in &nodes {
        assert!(!node.output().contains(CANARY), "a secret is in the log");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_a_node_without_its_secret_messages_wait_and_cost_no_attempt() {
    let (redis, folder, hook) = (RedisServer::start().await, secrets(), Webhook::start());
    let empty = tempfile::tempdir().unwrap();
    let own = |n: usize, folder: &Path| {
        format!("[node]\nid = \"n{n}\"\n[ownership]\nmode = \"round-robin\"\n{}", section(folder))
    };
    let mut with = TestNode::on(&redis.url(), &own(0, folder.path())).await;
    let without = TestNode::on(&redis.url(), &own(1, empty.path())).await;
    assert_eq!(put(&with, "", &settings(&hook)).await.0, 201);
    assert_eq!(with.topic("orders", json!({"shards": 4, "sink": {"name": "hook"}})).await.0, 201);
    let (_, there) = without.get("/v1/sinks/hook").await;
    let problem = there["problem"].as_str().unwrap();
    assert!(problem.contains("no file \"token\""), "{there}");
    with.process.kill();
    without.enqueue("orders", ids("a", 20)).await;
    let_pass(KNOWN_WITHIN, Because::Quiet).await;
    let counts = without.counts("orders").await;
    assert_eq!((&counts["due"], &counts["dead"]), (&json!(20), &json!(0)), "{counts}");
    assert_eq!(without.message("orders", "a-0").await["attempts"], 0);
    let (_, sink) = without.get("/v1/topics/orders/sink").await;
    assert_eq!(sink["issue"]["state"], "refused", "{sink}");
    let (_, ready) = without.get("/readyz").await;
    assert!(ready["issues"].to_string().contains("takes nothing"), "{ready}");
    assert!(without.output().contains("cannot be used at this node"), "{}", without.output());
    std::fs::copy(folder.path().join("token"), empty.path().join("token")).unwrap();
    let all = all_arrive(&[&hook], "a-", 20).await;
    assert!(all.values().all(|times| *times == 1), "{all:?}");
    assert!(delivered(&hook).iter().all(|hit| hit.header("duetime-attempt") == "1"));
}

fn run(node: &TestNode, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(PROGRAM);
    let output = command.arg("sink").args(arguments).args(["--node", &node.url()]).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!said.contains(CANARY), "{said}");
    (output.status.success(), said)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_its_own_takes_sinks_by_command_and_keeps_them() {
    let (folder, mut hook) = (secrets(), Webhook::start());
    let mut node = TestNode::new(&format!("[sinks.audit]\ntype = \"log\"\n{}", section(folder.path()))).await;
    let file = folder.path().join("sink.toml");
    let lines = format!(
        "type = \"http\"\nurl = {:?}\nheaders = {{ authorization = {{ file = \"token\" }} }}\n",
        hook.url("/in")
    );
    std::fs::write(&file, lines).unwrap();
    let file = file.display().to_string();
    hook.stop();
    let (is_put, said) = run(&node, &["put", "hook", "--file", &file]);
    assert!(!is_put && said.contains("tried it") && said.contains("sink_unusable"), "{said}");
    hook.start_again();
    let (is_put, said) = run(&node, &["put", "hook", "--file", &file, "--if-version", "0"]);
    assert!(is_put && said.contains("the API") && said.contains("ready"), "{said}");
    let (_, said) = run(&node, &["list"]);
    assert!(said.contains("audit") && said.contains("file") && said.contains("hook"), "{said}");
    let (is_put, said) = run(&node, &["put", "audit", "--file", &file]);
    assert!(!is_put && said.contains("sink_of_file"), "{said}");
    for wrong in [
        json!({"type": "http", "url": hook.url("/in"), "headers": {"authorization": "Bearer x"}}),
        json!({"type": "http", "url": hook.url("/in"), "headers": {"authorization": {"file": "../token"}}}),
        json!({"type": "http", "url": hook.url("/in"), "headers": {"authorization": {"file": "/etc/passwd"}}}),
        json!({"type": "http", "url": hook.url("/in"), "headers": {"authorization": {"env": "PATH"}}}),
        json!({"type": "http", "url": "http://169.254.169.254/latest"}),
        json!({"type": "http", "url": hook.url("/in"), "allow": ["0.0.0.0/0"]}),
    ] {
        let (status, answer) = put(&node, "", &wrong).await;
        assert_eq!((status, &answer["code"]), (400, &json!("invalid_sink")), "{wrong}: {answer}");
    }
    assert_eq!(node.topic("orders", json!({"sink": {"name": "hook"}})).await.0, 201);
    node.enqueue("orders", ids("a", 5)).await;
    all_arrive(&[&hook], "a-", 5).await;
    node.process.sigterm(PATIENCE).await;
    node.process.start_again().await;
    node.enqueue("orders", ids("b", 5)).await;
    all_arrive(&[&hook], "b-", 5).await;
    let (is_deleted, said) = run(&node, &["delete", "hook"]);
    assert!(!is_deleted && said.contains("orders"), "{said}");
    assert_eq!(node.topic("orders", json!({"sink": null})).await.0, 200);
    assert!(run(&node, &["delete", "hook"]).0);
    assert!(!run(&node, &["show", "hook"]).0);
    let (_, audit) = node.get("/v1/audit?operation=put_sink").await;
    assert!(audit["entries"].as_array().unwrap().is_empty(), "it began anew: {audit}");
    let (_, audit) = node.get("/v1/audit?operation=delete_sink").await;
    assert_eq!(audit["entries"][0]["sink"], "hook", "{audit}");
}
