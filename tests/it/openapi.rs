//! The API document and the running server agree.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use crate::test_node::client;
use duetime_testkit::servers::Node;
use duetime_testkit::violation::is_long;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");

/// Far more than the examples take, far less than nobody would notice.
const PATIENCE: Duration = Duration::from_secs(280);

/// How lines are sent: else an example of some is an error of its own.
const LINES: &str = r#"
import json
import schemathesis

@schemathesis.serializer("application/x-ndjson")
def lines(context, value):
    if isinstance(value, (bytes, str)):
        return value if isinstance(value, bytes) else value.encode(errors="replace")
    return json.dumps(value, default=str).encode()
"#;

/// Requests that are made up for each operation, beside those of its examples and of its limits.
fn examples() -> u32 {
    if is_long() { 100 } else { 5 }
}

/// Runs schemathesis against the node: `operations` choose what is called, always on `topic`.
async fn schemathesis(node: &Node, topic: &str, operations: &[&str], examples: u32) {
    let folder = tempfile::tempdir().unwrap();
    // A topic that was given a limit and is full says so with 507.
    let checks = "[checks]\nnot_a_server_error.expected-statuses = [\"2xx\", \"3xx\", \"4xx\", \"507\"]\n";
    let config = format!("{checks}[parameters]\n\"path.topic\" = {topic:?}\n");
    std::fs::write(folder.path().join("schemathesis.toml"), config).unwrap();
    std::fs::write(folder.path().join("lines.py"), LINES).unwrap();
    let mut command = Command::new("schemathesis");
    command
        .current_dir(folder.path())
        .env("SCHEMATHESIS_HOOKS", "lines")
        .env("PYTHONPATH", folder.path())
        .args(["--config-file", "schemathesis.toml", "run", &format!("{}/openapi.json", node.url())])
        .args([
            "--checks",
            "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        ])
        .args(["--phases", "examples,coverage,fuzzing", "--max-examples", &examples.to_string()])
        // Two workers parse lambdas at once, and Python 3.11 then ends one with "AST constructor recursion depth mismatch".
        .args(["--seed", "1", "--workers", "1", "--generation-database", "none", "--no-color"])
        .args(["--request-timeout", "90"])
        .args(operations);
    let ran = tokio::task::spawn_blocking(move || command.output());
    let output = tokio::time::timeout(PATIENCE, ran).await.expect("schemathesis does not end").unwrap();
    let output = output.unwrap_or_else(|error| {
        panic!("schemathesis does not start ({error}); `./test --tools` installs what the tests need")
    });
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains(" passed"), "{told}");
}

async fn put(node: &Node, topic: &str, settings: &str) {
    let request = client().put(format!("{}/v1/topics/{topic}", node.url()));
    let answer = request.header("content-type", "application/json").body(settings.to_owned()).send().await.unwrap();
    assert_eq!(answer.status(), 201);
}

#[tokio::test]
async fn a_machine_that_tries_everything_finds_no_failure_and_no_undocumented_answer() {
    let node = Node::start_embedded(PROGRAM, "").await;
    put(&node, "orders", "{}").await;
    // A claim may wait for a minute, and a deleted topic answers nothing else: both apart. Events have no end.
    let apart = ["delete_topic", "claim", "get_events"].map(|name| ["--exclude-operation-id", name]).concat();
    schemathesis(&node, "orders", &apart, examples()).await;
    let them = ["--include-operation-id", "delete_topic", "--include-operation-id", "claim"];
    schemathesis(&node, "nope", &them, examples()).await;
    assert_eq!(client().get(format!("{}/readyz", node.url())).send().await.unwrap().status(), 200);
}

/// Every place where `api` refers to a part of itself.
fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|inner| references(inner, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| references(inner, found)),
        _ => {}
    }
}

#[tokio::test]
async fn the_document_is_openapi_3_1_and_whole() {
    let node = Node::start_embedded(PROGRAM, "").await;
    let answer = client().get(format!("{}/openapi.json", node.url())).send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "application/json");
    let api: Value = answer.json().await.unwrap();
    assert!(api["openapi"].as_str().unwrap().starts_with("3.1."));
    assert!(api["info"]["title"].is_string() && api["info"]["version"].is_string());
    let mut found = Vec::new();
    references(&api, &mut found);
    assert!(found.len() > 20);
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("it refers to itself only");
        assert!(api.pointer(pointer).is_some(), "{reference} is missing");
    }
    let mut names = BTreeSet::new();
    for (path, item) in api["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name), "{name} is there twice");
            let given = operation["parameters"].as_array().into_iter().flatten();
            let given: BTreeSet<&str> =
                given.filter(|p| p["in"] == "path").map(|p| p["name"].as_str().unwrap()).collect();
            let wanted: BTreeSet<&str> =
                path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
            assert_eq!(given, wanted, "{method} {path}");
            for (status, answer) in operation["responses"].as_object().unwrap() {
                assert!(status.parse::<u16>().is_ok_and(|status| (200..600).contains(&status)));
                assert!(!answer["description"].as_str().unwrap().is_empty(), "{method} {path} {status}");
                assert!(!answer["content"].as_object().unwrap().is_empty(), "{method} {path} {status}");
            }
        }
    }
}
