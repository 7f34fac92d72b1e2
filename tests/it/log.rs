//! The log for programs: each line is as docs/OPERATIONS.md says.

use std::time::Duration;

use duetime_testkit::Webhook;
use duetime_testkit::servers::Node;
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::Answer;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::test_node::{TestNode, client};

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn each_line_of_a_json_log_has_the_documented_fields() {
    let mut hook = Webhook::start();
    hook.stop();
    let sink = format!("[sinks.s]\ntype = \"http\"\nurl = {:?}\nallow = [\"127.0.0.1\"]", hook.url("/"));
    let node = TestNode::new(&format!("[node]\nlog_format = \"json\"\n{sink}")).await;
    node.orders(&json!({}), json!("30s")).await;
    node.enqueue("orders", ["a".to_owned()]).await;
    node.breaker(true).await;
    let output = node.until_said("sink is down", 1).await;
    let lines: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect();
    for line in &lines {
        let text = |field: &str| line[field].as_str().unwrap_or_else(|| panic!("{field} of {line}"));
        assert!(["ERROR", "WARN", "INFO"].contains(&text("level")), "{line}");
        let at = text("timestamp");
        assert!(at.len() == 27 && at.ends_with('Z') && at.as_bytes()[10] == b'T', "{line}");
        assert!(text("target").starts_with("duetime") && !text("message").is_empty(), "{line}");
        let flat = |value: &Value| !value.is_object() && !value.is_array();
        assert!(line.as_object().unwrap().values().all(flat), "values stand beside the sentence: {line}");
    }
    let down =
        lines.iter().find(|line| line["message"].as_str().unwrap().starts_with("sink is down")).expect("a warning");
    assert_eq!(
        (&down["level"], &down["topic"], &down["target"]),
        (&json!("WARN"), &json!("orders"), &json!("duetime_dispatch::breaker"))
    );
    assert!(down["reason"].is_string(), "{down}");
}

#[tokio::test]
async fn lines_of_a_request_and_of_a_hand_over_name_the_trace_of_the_caller() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let hook = Webhook::start();
    hook.answer(|_| Answer::status(425));
    let sinks = format!(
        "[sinks.fails]\ntype = \"http\"\nurl = {:?}\nallow = [\"127.0.0.1\"]\n[sinks.shows]\ntype = \"log\"",
        hook.url("/")
    );
    for format in ["text", "json"] {
        let config = format!("[node]\nlog_format = {format:?}\naudit = \"log\"\n{sinks}");
        let levels = vec![("DUETIME_LOG", "info,duetime_http=debug,duetime_dispatch=debug".to_owned())];
        let node = Node::start_with(PROGRAM, "embedded:data", &config, levels).await;
        let client = client();
        let post = |path: &str| client.post(format!("{}/v1/topics/{path}/messages", node.url()));
        for sink in ["fails", "shows"] {
            let topic = json!({"shards": 1, "sink": {"name": sink}, "retry": {"max_attempts": 1}});
            client.put(format!("{}/v1/topics/{sink}", node.url())).json(&topic).send().await.unwrap();
            let traced = post(sink).header("traceparent", format!("00-{TRACE}-b7ad6b7169203331-01"));
            assert_eq!(traced.json(&json!({"id": "traced", "delay": 0})).send().await.unwrap().status(), 201);
        }
        // The last that is said of them. A message may be handed over before its enqueue is answered.
        let until = Instant::now() + PATIENCE;
        let said = |text: &str| node.output().contains(text);
        let is_answered = |line: &&str| line.contains("request is answered") && line.contains("POST");
        let answered = || node.output().lines().filter(is_answered).count();
        while !(said("message is not accepted") && said("message handed over") && answered() == 2) {
            duetime_testkit::in_time!(Instant::now() < until, "{}", node.output());
            let_pass(Duration::from_millis(20), Because::AskedAgain).await;
        }
        let output = node.output();
        // Of a line in JSON the trace is a field beside the others, wherever the line was said.
        let trace_of = |line: &str| match serde_json::from_str::<Value>(line) {
            Ok(line) => line["trace_id"].as_str().map(str::to_owned),
            Err(_) => line.contains(&format!("trace_id=\"{TRACE}\"")).then(|| TRACE.to_owned()),
        };
        for part in ["request is answered", "message is not accepted", "message handed over"] {
            // Those that ask for its health name none.
            let line =
                output.lines().filter(|line| line.contains(part) && !line.contains("PUT") && !line.contains("GET"));
            let traces: Vec<Option<String>> = line.map(trace_of).collect();
            let traced = traces.iter().flatten().filter(|trace| *trace == TRACE).count();
            assert!(traced > 0 && traced == traces.len(), "{format}, {part}: {traces:?} {output}");
        }
        // Each line of a request names it, also of one without a trace.
        let answered: Vec<&str> = output.lines().filter(|line| line.contains("request is answered")).collect();
        assert!(answered.iter().all(|line| line.contains("request_id")), "{output}");
        let audited = output.lines().filter(|line| line.contains("duetime::audit") || line.contains("\"outcome\""));
        let (made, sent): (Vec<&str>, Vec<&str>) = audited.partition(|line| line.contains("PUT"));
        assert!(made.len() == 2 && made.iter().all(|line| !line.contains("trace_id")), "{output}");
        assert!(sent.len() == 2 && sent.iter().all(|line| line.matches(TRACE).count() == 2), "{output}");
    }
}

#[tokio::test]
async fn the_audit_line_of_a_request_whose_client_went_away_names_it() {
    let node = Node::start_embedded(PROGRAM, "[node]\naudit = \"log\"").await;
    let (client, topic) = (client(), format!("{}/v1/topics/orders", node.url()));
    client.put(&topic).json(&json!({"shards": 1})).send().await.unwrap();
    let is_named = || node.output().lines().any(|line| line.contains("unknown") && line.contains("gone-1"));
    let until = Instant::now() + PATIENCE;
    while !is_named() {
        duetime_testkit::in_time!(Instant::now() < until, "{}", node.output());
        let claim =
            client.post(format!("{topic}/claim")).header("x-request-id", "gone-1").json(&json!({"wait": "20s"}));
        claim.timeout(Duration::from_millis(500)).send().await.expect_err("nothing is due");
    }
}
