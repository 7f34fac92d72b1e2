//! The text of a panic may be made of anything: what the configuration holds is not in what a panic prints.

use std::time::Duration;

use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use duetime_tests::{FAULT_FILE, PANIC_FILE};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::places::{At, PLACES, Written, clean, escaped, secret};
use super::{AWAY, PROGRAM};
use crate::test_node::client;

const PATIENCE: Duration = Duration::from_secs(60);
/// The place of the store's own password.
const OF_STORE: usize = 0;

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_what_a_panic_prints() {
    let (redis, folder) = (RedisServer::start().await, tempfile::tempdir().unwrap());
    let said = redis.cli(&["ACL", "SETUSER", "u", "on", &format!(">{}", secret(OF_STORE)), "~*", "&*", "+@all"]);
    assert_eq!(said.trim(), "OK");
    let store = format!("redis://u:{}@127.0.0.1:{}/0", escaped(&secret(OF_STORE)), redis.port());
    // Sinks and tokens; a private key and a hash are no part of any error.
    let held = |(_, place): &(usize, &super::Place)| {
        let is_token = place.field.starts_with("crates/duetime-http/src/auth.rs");
        place.is_built_in() && !place.is_refused() && (place.is_of_a_sink() || is_token)
    };
    let (mut config, mut texts) = (String::new(), vec![store.clone(), secret(OF_STORE)]);
    for (n, place) in PLACES.iter().enumerate().filter(held) {
        let at = At { name: &format!("p{n}"), host: AWAY, store: "", folder: folder.path() };
        let lines = place.configured(&at, Written::Text, &secret(n)).0;
        config.push_str(&lines);
        texts.push(format!("{lines:?}"));
        // A key is made of the secret; credentials are read when they are needed first.
        if !place.field.ends_with("signing_secrets") && !place.field.ends_with("credentials_file") {
            texts.extend([secret(n), format!("{:?}", secret(n)), escaped(&secret(n))]);
        }
    }
    let token = secret(PLACES.iter().position(|place| place.field.ends_with("auth.rs: secret")).unwrap());
    for (n, format) in ["text", "json"].into_iter().enumerate() {
        let lines = format!("[node]\nlog_format = {format:?}\n{config}");
        let mut node = Node::start_with(PROGRAM, &store, &lines, vec![("RUST_BACKTRACE", "1".to_owned())]).await;
        std::fs::write(node.folder().join(PANIC_FILE), texts.join("\n")).unwrap();
        // Taken by the request, which is answered 500 then, or by a background loop.
        std::fs::write(node.folder().join(FAULT_FILE), "begun 1 panic").unwrap();
        let client = client();
        let put = async |path: &str, body: Value| {
            let request = client.put(format!("{}/v1/topics/{path}", node.url()));
            let request = request.header("authorization", format!("Bearer {token}")).json(&body);
            let answer = request.send().await.unwrap();
            let (status, text) = (answer.status(), answer.text().await.unwrap());
            clean("an answer", &text);
            assert!(status.is_success() || status == 500, "{text}");
        };
        put(&format!("t{n}"), json!({"shards": 1})).await;
        put(&format!("t{n}/shards"), json!({"shards": 2})).await;
        let until = Instant::now() + PATIENCE;
        let printed = |text: &str| node.output().contains(text);
        while !printed("the program panicked; report it") {
            duetime_testkit::in_time!(Instant::now() < until, "{}", node.output());
            let_pass(Duration::from_millis(20), Because::AskedAgain).await;
        }
        let output = node.output();
        clean("a panic", &output);
        let line = output.lines().find(|line| line.contains("the program panicked")).unwrap();
        for part in ["called `Result::unwrap()` on an `Err` value", "duetime-under-test.rs", "***"] {
            assert!(line.contains(part), "{part}: {line}");
        }
        if format == "json" {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!((&line["level"], &line["target"]), (&"ERROR".into(), &"duetime::panics".into()));
            assert!(line["backtrace"].as_str().unwrap().contains("duetime"), "{line}");
        }
        node.kill();
    }
}
