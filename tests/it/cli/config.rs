//! The configuration file and its refusals, and what keeps a node from starting.

use std::path::PathBuf;
use std::process::Command;

use super::{PROGRAM, Said, node, said, typed};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, text: &str) -> PathBuf {
        let file = self.0.path().join("duetime.toml");
        std::fs::write(&file, text).unwrap();
        file
    }

    fn check(&self, text: &str) -> Said {
        typed(&["check-config", self.write(text).to_str().unwrap()])
    }

    fn serve(&self, args: &[&str]) -> Said {
        let mut command = Command::new(PROGRAM);
        said(command.current_dir(self.0.path()).arg("serve").args(args).output().unwrap())
    }
}

#[test]
fn a_file_that_is_no_toml_or_is_not_there_is_named() {
    Folder::new().check("[node\n").refused(1, &["duetime.toml:1"]);
    typed(&["check-config", "/does/not/exist.toml"]).refused(1, &["/does/not/exist.toml"]);
}

#[test]
fn a_file_is_judged_with_the_variables_that_the_node_would_have() {
    let folder = Folder::new();
    let check = |text: &str, args: &[&str], store: &str| {
        let file = folder.write(text);
        let mut command = Command::new(PROGRAM);
        let command = command.current_dir(folder.0.path()).env("DUETIME_STORE", store);
        said(command.arg("check-config").arg(file).args(args).output().unwrap())
    };
    let keys = "[store]\ndurability = \"replicas:1\"\nretry_for = \"10ms\"\n";
    let away = check(keys, &[], "redis://127.0.0.1:1/0").refused(1, &["--store or DUETIME_STORE: store.url: "]);
    assert!(!away.err.contains("embedded") && away.out.contains("by flag or variable: --store"), "{}", away.out);
    check(keys, &[], "embedded:./data")
        .refused(1, &["duetime.toml:2: store.durability: is for Redis, and the store is"]);
    // A flag beats its variable, as with `serve`.
    let args = ["--store", "embedded:./data", "--node-id", ".."];
    check("", &args, "redis://127.0.0.1:1/0")
        .refused(1, &["--node-id or DUETIME_NODE_ID: node.id: name \"..\" is refused"]);
    let well = check("[topics.orders]\n", &args[..2], "redis://127.0.0.1:1/0").done();
    assert!(well.out.contains("store embedded:./data"), "{}", well.out);
}

#[test]
fn the_example_and_a_good_file_are_accepted() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../duetime.example.toml");
    let said = typed(&["check-config", example]).done();
    assert!(said.out.contains("sink audit: answers"), "{}", said.out);
}

#[test]
fn what_is_not_in_this_version_is_said_clearly() {
    for (text, says) in [
        ("[store]\nurl = \"redis-cluster://a:1,,b:2\"", "a host is missing; write host:port,host:port"),
        ("[store]\nurl = \"redis-sentinel://a:1\"", "write redis-sentinel://h:p,h:p/MASTER"),
        (
            "[store]\nurl = \"redis-sentinel://a:1/main\"\nsentinel_user = \"ann\"",
            "duetime.toml:3: store.sentinel_user: has no password; give sentinel_password too",
        ),
        ("[store]\nurl = \"rediss-cluster://a:1\"\nsentinel_password = \"s\"", "is for sentinels; leave it out"),
        ("[store]\nurl = \"mysql://x\"", "embedded:PATH"),
        (
            "[store]\ndurability = \"replicas:1\"",
            "store.durability: is for Redis, and the store is embedded; leave it out",
        ),
        ("[store]\nurl = \"redis://a\"\ndurability = \"replicas:0\"", "write \"memory\" or \"replicas:1\""),
        ("[ownership]\nmode = \"etcd\"", "\"etcd\" shares shards among nodes, and an embedded store has one"),
        (
            "[store]\nurl = \"redis://a\"\n[ownership]\nmode = \"etcd\"",
            "ownership.etcd: mode \"etcd\" needs its addresses",
        ),
        (
            "[store]\nurl = \"redis://a\"\n[ownership]\nmode = \"etcd\"\netcd = [\"http://u:secret@a:1\"]",
            "ownership.etcd: write addresses as",
        ),
        (
            "[store]\nurl = \"redis://a\"\n[ownership]\nmode = \"etcd\"\netcd = [\"a:1\"]\nlease_ttl = \"100ms\"",
            "ownership.lease_ttl: must be 1s to 10m",
        ),
        ("[ownership]\nmode = \"etdc\"", "expected one of \"solo\", \"round-robin\", \"etcd\""),
        ("[topics.t]\nsink = { name = \"mq\" }", "no [sinks.mq] is configured"),
        ("[topics.\"a b\"]", "topic name"),
        ("[node]\nlisten = \"here\"", "127.0.0.1:3830"),
    ] {
        Folder::new().check(text).refused(1, &[says]);
    }
}

#[test]
fn what_fails_only_when_it_is_tried_is_named_by_line_and_key_too() {
    let text = "\
[ownership]
mode = \"etcd\"
etcd = [\"http://127.0.0.1:1\"]
[store]
url = \"redis://127.0.0.1:1/0\"
retry_for = \"10ms\"
[sinks.near]
type = \"redis-stream\"
url = \"redis://127.0.0.1:1/0\"
connect_timeout = \"500ms\"
";
    let lines = ["duetime.toml:5: store.url: ", "duetime.toml:3: ownership.etcd: ", "duetime.toml:7: sinks.near: "];
    Folder::new().check(text).refused(1, &lines);
    let text = "[store]\nurl = \"rediss://a\"\ntls = { server_name = \"b\", key_file = \"c\" }\n";
    let says = ["duetime.toml:3: store.tls: give both", "duetime.toml:3: store.tls: server_name is for etcd"];
    Folder::new().check(text).refused(1, &says);
    let folder = Folder::new();
    let file = folder.write("[node]\nlisten = \"127.0.0.1:0\"\naudit = { file = \"/no/such/folder/a\" }\n");
    folder.serve(&["--config", file.to_str().unwrap()]).refused(1, &["duetime.toml:3: node.audit: "]);
}

#[test]
fn without_tokens_only_a_loopback_address_is_listened_on() {
    let folder = Folder::new();
    folder.serve(&["--listen", "0.0.0.0:0"]).refused(1, &["--listen", "[[auth.tokens]]", "127.0.0.1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_start_says_what_to_do() {
    let (node, folder) = (node().await, Folder::new());
    let address = node.url().replace("http://", "");
    folder.serve(&["--listen", &address]).refused(1, &["in use already", "--listen"]);
    let store = format!("embedded:{}", node.folder().join("data").display());
    folder.serve(&["--listen", "127.0.0.1:0", "--store", &store]).refused(1, &["opening the store"]);
    folder.serve(&["--listen", "127.0.0.1:0", "--store", "nonsense"]).refused(1, &["--store", "embedded:PATH"]);
    folder.serve(&["--ownership", "etcd"]).refused(1, &["--ownership", "an embedded store has one"]);
    folder.serve(&["--ownership", "many"]).refused(2, &["round-robin"]);
    folder.serve(&["--shutdown-grace", "soon"]).refused(1, &["--shutdown-grace", "is not a duration"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_topics_are_there_at_the_first_start_and_left_alone_later() {
    let config = "[sinks.audit]\ntype = \"log\"\n[topics.orders]\nshards = 2\nsink = { name = \"audit\" }\n";
    let mut node = duetime_testkit::servers::Node::start_embedded(PROGRAM, config).await;
    let topic = super::to(&node, &["topic", "get", "orders", "--json"]).done().json();
    assert_eq!((&topic["shard_count"], &topic["sink"]["name"]), (&2.into(), &"audit".into()));
    super::to(&node, &["topic", "set", "orders", "--max-attempts", "3"]).done();
    node.sigterm(std::time::Duration::from_secs(20)).await;
    node.start_again().await;
    let topic = super::to(&node, &["topic", "get", "orders", "--json"]).done().json();
    assert_eq!(topic["retry"]["max_attempts"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tokens_a_caller_without_one_learns_how_to_give_it() {
    let config = "[[auth.tokens]]\nname = \"all\"\nsecret = \"0123456789abcdef\"\nscopes = [\"admin\"]\n";
    let node = duetime_testkit::servers::Node::start_embedded(PROGRAM, config).await;
    super::to(&node, &["topic", "list"]).refused(1, &["--token", "DUETIME_TOKEN"]);
    super::to(&node, &["topic", "list", "--token", "0123456789abcdef"]).done();
    assert!(node.output().contains("Bearer $DUETIME_TOKEN"));
}

#[test]
fn a_new_token_comes_with_the_hash_that_the_file_takes() {
    let made = super::typed(&["token", "new", "--name", "shop", "--json"]).done().json();
    let (secret, hash) = (made["secret"].as_str().unwrap(), made["hash"].as_str().unwrap());
    assert!(secret.len() >= 43 && hash.starts_with("sha256:"), "{made}");
    let again = super::typed(&["token", "new", "--name", "shop"]).done();
    assert!(again.out.contains("[[auth.tokens]]") && !again.out.contains(secret), "each is another one");
    let file = again.out.split_once("[[auth.tokens]]").unwrap().1;
    Folder::new().check(&format!("[[auth.tokens]]{file}")).done();
}
