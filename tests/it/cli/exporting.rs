//! `duetime export`, and `duetime import` of what it wrote: between stores, through a restart and a resize.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::{PROGRAM, command, node, said, to, to_with_input};

const DUE_MS: i64 = 1_924_992_000_000;
/// Ids that a path, a shell, a file or a cursor could take for something else.
const ODD: [&str; 9] =
    ["a/b c?d#e", "заказ-1", "--json", "pct:%41", "\"quoted\"\\", "🜚", "a%2Fb", "{tag}:x", " blank "];

/// The lines of a file by id.
fn messages(file: &Path) -> BTreeMap<String, Value> {
    let text = std::fs::read_to_string(file).unwrap();
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let message: Value = serde_json::from_str(line).unwrap();
        let id = message["id"].as_str().unwrap().to_owned();
        assert_eq!(all.insert(id, message), None, "{line} comes twice");
    }
    all
}

/// What a move keeps of live messages.
fn kept(file: &Path) -> BTreeMap<String, [Value; 6]> {
    let live = messages(file).into_iter().filter(|(_, message)| message["state"] != "dead");
    let names = ["due_at", "payload", "payload_base64", "headers", "expires_at", "max_attempts"];
    let part = |message: Value| names.map(|name| message[name].clone());
    live.map(|(id, message)| (id, part(message))).collect()
}

/// Odd ids, payloads of all kinds, headers.
fn lines() -> String {
    let plain = (0..1_200).map(|n| format!("order-{n}"));
    let all = plain.chain(ODD.map(str::to_owned)).enumerate();
    let line = |(n, id): (usize, String)| {
        let due = DUE_MS + (n as i64 * 7_919) % 1_000_000;
        let payload = match n % 4 {
            0 => json!({"payload": format!("text {n} \u{e9}\n\u{0}")}),
            1 => json!({"payload_base64": "/wD+gA==", "expires": "1h"}),
            2 => json!({"payload": {"order": n, "lines": [1.50, null]}, "max_attempts": 1 + n % 99}),
            _ => json!({}),
        };
        let mut message = json!({"id": id, "due_at": due, "headers": {"zone": "eu", "attempt-of": n.to_string()}});
        message.as_object_mut().unwrap().extend(payload.as_object().unwrap().clone());
        message.to_string() + "\n"
    };
    all.map(line).collect()
}

async fn on_redis(redis: &RedisServer) -> Node {
    Node::start(PROGRAM, &redis.url(), "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_exported_from_an_embedded_store_and_imported_into_redis_is_the_same_and_so_it_is_back_again() {
    let redis = RedisServer::start().await;
    let (first, second, third) = (node().await, on_redis(&redis).await, node().await);
    let folder = tempfile::tempdir().unwrap();
    let files = ["1", "2", "3"].map(|name| folder.path().join(name));
    let names = files.each_ref().map(|file| file.to_str().unwrap());
    for (at, shards) in [(&first, "3"), (&second, "8"), (&third, "1")] {
        to(at, &["topic", "create", "orders", "--shards", shards]).done();
    }
    to_with_input(&first, &["import", "orders"], &lines()).done();
    to(&first, &["enqueue", "orders", "--id", "died", "--delay", "0s", "--payload", "x"]).done();
    let claimed = to(&first, &["claim", "orders", "--wait", "20s", "--json"]).done().json();
    let receipt = claimed["messages"][0]["receipt"].as_str().unwrap();
    to(&first, &["nack", "orders", receipt, "--dead", "--reason", "address unknown"]).done();

    let wanted = 1_200 + ODD.len();
    to(&first, &["export", "orders", "--out", names[0]]).done();
    assert_eq!(kept(&files[0]).len(), wanted);
    let died = &messages(&files[0])["died"];
    assert!(died["state"] == "dead" && died["death"]["reason"].as_str().unwrap().contains("address unknown"), "{died}");
    let live = folder.path().join("live");
    std::fs::write(&live, to(&first, &["export", "orders", "--state", "scheduled"]).done().out).unwrap();
    assert_eq!((kept(&live), messages(&live).len()), (kept(&files[0]), wanted));
    for (reason, count) in [(died["death"]["reason"].as_str().unwrap(), 1), ("another", 0)] {
        let out = to(&first, &["export", "orders", "--state", "dead", "--reason", reason]).done().out;
        assert_eq!(out.lines().count(), count, "{reason}: {out}");
    }
    to(&first, &["export", "orders", "--state", "due", "--reason", "x"]).refused(1, &["--state dead"]);

    let import = ["import", "orders", names[0], "--verify", "--json"];
    let did = to(&second, &import).done().json();
    assert_eq!((&did["tally"]["scheduled"], &did["tally"]["left"]), (&wanted.into(), &1.into()), "{did}");
    assert_eq!((&did["verified"]["same"], &did["verified"]["missing"]), (&wanted.into(), &0.into()), "{did}");
    let again = to(&second, &import).done().json();
    assert_eq!((&again["tally"]["scheduled"], &again["tally"]["duplicate"]), (&0.into(), &wanted.into()), "{again}");
    to(&second, &["export", "orders", "--out", names[1]]).done();
    to(&third, &["import", "orders", names[1]]).done();
    to(&third, &["export", "orders", "--out", names[2]]).done();
    assert_eq!(kept(&files[0]), kept(&files[1]));
    assert_eq!(kept(&files[1]), kept(&files[2]));
    to(&third, &["export", "orders", "--out", names[2]]).refused(1, &["is there already"]);

    // Another due time, and one that is not there: both are found out.
    to(&third, &["reschedule", "orders", "order-7", "--delay", "1h"]).done();
    to(&third, &["cancel", "orders", "order-8"]).done();
    let prefix = folder.path().join("two");
    let two = to(&second, &["export", "orders", "--prefix", "order-7", "--due-to", "2040-01-01T00:00:00Z"]).done().out;
    std::fs::write(&prefix, two).unwrap();
    assert_eq!(kept(&prefix).len(), 111, "and no dead letters");
    let differs = ["import", "orders", prefix.to_str().unwrap(), "--verify"];
    to(&third, &differs).refused(1, &["order-7 has another due time"]);
}

/// An export that is held up after its first page.
async fn held_up(node: &Node, file: &Path) -> Child {
    let args = ["export", "orders", "--out", file.to_str().unwrap()];
    let mut child = command(Some(node), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut state = file.as_os_str().to_owned();
    state.push(".state");
    while !Path::new(&state).exists() {
        let_pass(Duration::from_millis(1), Because::AskedAgain).await;
    }
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGSTOP).unwrap();
    let goes_on = child.try_wait().unwrap().is_none() && Path::new(&state).exists();
    duetime_testkit::in_time!(goes_on, "it is held up before its end");
    child
}

async fn exported_through_troubles(mut node: Node) {
    const KEPT: usize = 20_000;
    let folder = tempfile::tempdir().unwrap();
    to(&node, &["topic", "create", "orders", "--shards", "8"]).done();
    let lines: String =
        (0..KEPT).map(|n| format!("{{\"id\":\"m-{n}\",\"delay\":\"1h\",\"payload\":\"{n}\"}}\n")).collect();
    to_with_input(&node, &["import", "orders"], &lines).done();
    let file = folder.path().join("orders.ndjson");
    let child = held_up(&node, &file).await;
    node.kill();
    node.start_again().await;
    // Messages of the last shards move to those that the export has read.
    to(&node, &["shards", "set", "orders", "2"]).done();
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGCONT).unwrap();
    let ended = said(tokio::task::spawn_blocking(|| child.wait_with_output().unwrap()).await.unwrap()).done();
    assert!(ended.err.contains("all is read again"), "{}", ended.err);
    let wanted: BTreeSet<String> = (0..KEPT).map(|n| format!("m-{n}")).collect();
    assert_eq!(messages(&file).into_keys().collect::<BTreeSet<_>>(), wanted);

    // One that was killed is carried on by the same command, and what it wrote of a page is not kept.
    let file = folder.path().join("again.ndjson");
    let mut child = held_up(&node, &file).await;
    child.kill().unwrap();
    child.wait().unwrap();
    let mut torn = std::fs::OpenOptions::new().append(true).open(&file).unwrap();
    std::io::Write::write_all(&mut torn, b"{\"id\":\"to").unwrap();
    let name = file.to_str().unwrap();
    to(&node, &["export", "orders", "--state", "due", "--out", name]).refused(1, &["other options"]);
    to(&node, &["export", "orders", "--out", name]).done();
    assert_eq!(messages(&file).into_keys().collect::<BTreeSet<_>>(), wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_from_redis_through_a_crash_and_a_resize_misses_no_message_that_was_there_throughout() {
    let redis = RedisServer::start().await;
    exported_through_troubles(on_redis(&redis).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_from_an_embedded_store_through_a_crash_and_a_resize_misses_none_either() {
    exported_through_troubles(node().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_large_messages_ends_early_and_the_next_goes_on_behind_it() {
    let node = node().await;
    to(&node, &["topic", "create", "orders", "--max-payload", "2MiB"]).done();
    let payload = "x".repeat(1 << 20);
    let lines: String =
        (0..11).map(|n| json!({"id": n.to_string(), "delay": "1h", "payload": payload}).to_string() + "\n").collect();
    to_with_input(&node, &["import", "orders"], &lines).done();
    let client = crate::test_node::client();
    let (mut ids, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let url = format!("{}/v1/topics/orders/messages?limit=500{cursor}", node.url());
        let answer = client.get(url).header("accept", "application/x-ndjson").send().await.unwrap();
        let next = answer.headers().get("duetime-next").map(|next| next.to_str().unwrap().to_owned());
        let text = answer.text().await.unwrap();
        assert!(text.len() < (6 << 20), "{} bytes", text.len());
        ids.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].to_string()));
        pages += 1;
        let Some(next) = next else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!((ids.len(), ids.iter().collect::<BTreeSet<_>>().len()), (11, 11), "{ids:?}");
    assert!(pages >= 3, "{pages}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_shown_no_payloads_exports_nothing() {
    let token = |name: &str, scope: &str| {
        format!("[[auth.tokens]]\nname = \"{name}\"\nsecret = \"{name}-0123456789abcdef\"\nscopes = [\"{scope}\"]\n")
    };
    let node = Node::start_embedded(PROGRAM, &(token("all", "admin") + &token("eye", "view"))).await;
    let all = ["--token", "all-0123456789abcdef"];
    to(&node, &[&["topic", "create", "orders"][..], &all].concat()).done();
    to(&node, &[&["enqueue", "orders", "--id", "a", "--delay", "1h", "--payload", "x"][..], &all].concat()).done();
    let eye = to(&node, &["export", "orders", "--token", "eye-0123456789abcdef"]).refused(1, &["`produce`"]);
    assert_eq!(eye.out, "");
    let whole = to(&node, &[&["export", "orders"][..], &all].concat()).done();
    assert!(whole.out.contains("\"payload\":\"x\""), "{}", whole.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_of_a_topic_that_was_made_anew_keeps_what_was_written_of_the_one_before() {
    let node = node().await;
    let folder = tempfile::tempdir().unwrap();
    to(&node, &["topic", "create", "orders"]).done();
    let lines: String = (0..20_000).map(|n| format!("{{\"id\":\"m-{n}\",\"delay\":\"1h\"}}\n")).collect();
    to_with_input(&node, &["import", "orders"], &lines).done();
    let file = folder.path().join("orders.ndjson");
    let mut child = held_up(&node, &file).await;
    child.kill().unwrap();
    child.wait().unwrap();
    to(&node, &["topic", "delete", "orders", "--force"]).done();
    to(&node, &["topic", "create", "orders"]).done();
    let args = ["export", "orders", "--out", file.to_str().unwrap()];
    to(&node, &args).refused(1, &["deleted and created again", "name another file"]);
    assert!(std::fs::metadata(&file).unwrap().len() > 0);
}
