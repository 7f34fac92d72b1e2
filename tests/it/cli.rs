//! The command line, as a user types it.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use duetime_testkit::servers::Node;
use serde_json::Value;

mod applying;
mod backup;
mod config;
mod consuming;
mod contexts;
mod docs;
mod draining;
mod exporting;
mod importing;
mod messages;
mod moved_before;
mod moved_whole;
mod moving;
mod moving_page;
mod pausing;
mod ten_first;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");

/// What a command printed and how it ended.
struct Said {
    status: i32,
    out: String,
    err: String,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {} {}", self.out, self.err))
    }

    /// Ended well.
    #[track_caller]
    fn done(self) -> Self {
        assert_eq!(self.status, 0, "{} {}", self.out, self.err);
        self
    }

    /// Ended with that status and said each of these.
    #[track_caller]
    fn refused(self, status: i32, says: &[&str]) -> Self {
        assert_eq!(self.status, status, "{} {}", self.out, self.err);
        for word in says {
            assert!(self.err.contains(word), "{word:?} is not in: {}", self.err);
        }
        self
    }
}

fn said(output: Output) -> Said {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program prints UTF-8");
    let status = output.status.code().expect("it ends by itself");
    Said { status, out: text(output.stdout), err: text(output.stderr) }
}

/// A program without the variables of the process that runs the tests, which asks `node`.
fn clean(program: &str, node: Option<&Node>) -> Command {
    let mut command = Command::new(program);
    for name in std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("DUETIME_")) {
        command.env_remove(name);
    }
    if let Some(node) = node {
        command.env("DUETIME_NODE", node.url());
    }
    command.stdin(Stdio::null());
    command
}

fn command(node: Option<&Node>, args: &[&str]) -> Command {
    let mut command = clean(PROGRAM, node);
    command.args(args);
    command
}

/// Types a command without a node.
fn typed(args: &[&str]) -> Said {
    said(command(None, args).output().expect("the program is there"))
}

/// Types a command to a node.
fn to(node: &Node, args: &[&str]) -> Said {
    said(command(Some(node), args).output().expect("the program is there"))
}

/// The same with something on standard input.
fn to_with_input(node: &Node, args: &[&str], input: &str) -> Said {
    let mut command = command(Some(node), args);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
    said(child.wait_with_output().expect("it ends"))
}

async fn node() -> Node {
    Node::start_embedded(PROGRAM, "").await
}

#[test]
fn the_version_names_the_commit_and_what_is_built_in() {
    let printed = typed(&["--version"]).done().out;
    let version = env!("CARGO_PKG_VERSION");
    let rest = printed.trim_end().strip_prefix(&format!("duetime {version} (commit ")).expect(&printed);
    let (commit, features) = rest.split_once(", features: ").expect(&printed);
    assert!(features.ends_with(')'), "{printed}");
    let commit = commit.split(' ').next().unwrap();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    if root.join(".git").exists() {
        let known = Command::new("git").args(["cat-file", "-t", commit]).current_dir(root).output();
        assert_eq!(String::from_utf8_lossy(&known.unwrap().stdout).trim(), "commit", "{printed}");
    } else {
        assert!(!commit.is_empty(), "{printed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_three_lines_that_serve_prints_work_as_they_stand() {
    let mut node = node().await;
    let printed = node.output();
    let lines: Vec<&str> = printed.lines().filter(|line| line.starts_with("  curl")).collect();
    assert_eq!(lines.len(), 3, "{printed}");
    let wanted = ["\"timeouts\"", "\"scheduled\"", "\"cancelled\""];
    for (line, wanted) in lines.iter().zip(wanted) {
        let output = Command::new("sh").args(["-c", &format!("{} -sS", line.trim())]).output().unwrap();
        let said = said(output);
        assert!(said.out.contains(wanted), "{line}: {} {}", said.out, said.err);
    }
    assert_eq!(node.sigterm(Duration::from_secs(20)).await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_created_changed_shown_and_deleted() {
    let node = node().await;
    let made =
        to(&node, &["topic", "create", "orders", "--shards", "2", "--max-attempts", "5", "--json"]).done().json();
    assert_eq!((&made["shard_count"], &made["retry"]["max_attempts"]), (&2.into(), &5.into()));
    to(&node, &["topic", "create", "orders"]).refused(1, &["already exists", "duetime topic set orders"]);
    let set = to(&node, &["topic", "set", "orders", "--retry-initial", "2s", "--rate-limit", "10", "--json"]).done();
    let set = set.json();
    assert_eq!((&set["retry"]["initial"], &set["retry"]["max_attempts"]), (&"2s".into(), &5.into()));
    to(&node, &["topic", "set", "orders"]).refused(1, &["at least one setting"]);
    to(&node, &["topic", "set", "nope", "--max-attempts", "3"]).refused(1, &["nope"]);
    to(&node, &["topic", "set", "orders", "--visibility-timeout", "soon"]).refused(1, &["visibility_timeout"]);
    to(&node, &["topic", "set", "orders", "--sink", "mq"]).refused(1, &["mq"]);
    let shown = to(&node, &["topic", "get", "orders"]).done();
    assert!(shown.out.contains("max attempts 5, initial 2s, max 10m"), "{}", shown.out);
    assert!(to(&node, &["topic", "list"]).done().out.contains("orders"));
    to(&node, &["enqueue", "orders", "--delay", "1h"]).done();
    to(&node, &["topic", "delete", "orders"]).refused(1, &["holds 1 messages", "--force"]);
    to(&node, &["topic", "delete", "orders", "--force"]).done();
    assert_eq!(to(&node, &["topic", "list", "--json"]).done().json()["topics"], serde_json::json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_see_nodes_shards_and_status() {
    let node = node().await;
    to(&node, &["topic", "create", "orders", "--shards", "3"]).done();
    let shards = to(&node, &["shards", "get", "orders", "--json"]).done().json();
    assert_eq!(shards["shards"].as_array().unwrap().len(), 3);
    assert!(to(&node, &["shards", "get", "orders"]).done().out.contains("SLOT"));
    assert!(to(&node, &["shards", "set", "orders", "8"]).done().out.contains("topic orders has 8 shards"));
    for wrong in ["0", "4097", "many"] {
        to(&node, &["shards", "set", "orders", wrong]).refused(1, &["4096"]);
    }
    let before = typed(&["--node", node.url().trim_start_matches("http://"), "--json", "topic", "get", "orders"]);
    assert_eq!(before.done().json()["shard_count"], 8);
    let nodes = to(&node, &["nodes", "--json"]).done().json();
    assert_eq!(nodes["nodes"][0]["mode"], "solo");
    let status = to(&node, &["status", "--json"]).done().json();
    assert_eq!((&status["ready"], &status["topics"][0]["name"]), (&true.into(), &"orders".into()));
    assert_eq!((&status["issues"], &status["unclaimed"]), (&serde_json::json!([]), &serde_json::json!([])));
    assert!(to(&node, &["status"]).done().out.contains("is able to serve"));
    to(&node, &["top"]).refused(1, &["duetime status"]);
}

#[test]
fn without_a_node_the_error_says_how_to_start_one() {
    let node = ["--node", "http://127.0.0.1:1"];
    let said = typed(&[&["status"][..], &node].concat());
    said.refused(1, &["cannot reach http://127.0.0.1:1", "duetime serve"]);
    typed(&["status", "--node", "ftp://localhost"]).refused(1, &["http://127.0.0.1:3830"]);
    typed(&["--node", "127.0.0.1:1", "status"]).refused(1, &["cannot reach http://127.0.0.1:1"]);
}

#[test]
fn a_change_whose_answer_is_lost_says_that_it_may_have_been_done() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let node = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let _ = std::io::Read::read(&mut connection, &mut [0; 4096]);
        }
    });
    let unknown = "whether it was done is not known";
    typed(&["cancel", "orders", "a", "--node", &node]).refused(1, &["did not answer", unknown, "repeat it"]);
    let looked = typed(&["get", "orders", "a", "--node", &node]).refused(1, &["did not answer"]);
    assert!(!looked.err.contains(unknown), "{}", looked.err);
}

#[test]
fn wrong_use_ends_with_2_and_help_with_0() {
    for args in [&["topic"][..], &["enqueue"], &["cancel", "orders"], &["reschedule", "orders", "a"], &["nonsense"]] {
        assert_eq!(typed(args).status, 2, "{args:?}");
    }
    typed(&["enqueue", "orders", "--delay", "soon"]).refused(2, &["is not a duration", "30m"]);
    typed(&["enqueue", "orders", "--delay", "1s", "--at", "5"]).refused(2, &["--at"]);
    typed(&["enqueue", "orders", "--delay", "30"]).refused(2, &["30s", "30ms"]);
    typed(&["enqueue", "orders", "--delay", "-5s"]).refused(2, &["not negative"]);
    typed(&["--node", "x", "serve"]).refused(2, &["--node"]);
    assert!(typed(&["--help"]).done().out.contains("check-config"));
    typed(&["redrive", "orders"]).refused(2, &["tip: `duetime dead redrive TOPIC`"]);
    // What a variable gives is not asked for.
    let output = command(None, &["enqueue"]).env("DUETIME_NODE", "http://127.0.0.1:1").output().unwrap();
    let lacks = said(output).refused(2, &["<TOPIC>", "Usage:"]);
    assert!(!lacks.err.contains("--node"), "{}", lacks.err);
}

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = typed(&["completions", shell]).done();
        assert!(said.out.contains("check-config") && said.out.contains("redrive"), "{shell}");
    }
    typed(&["completions", "cmd"]).refused(2, &["bash"]);
}
