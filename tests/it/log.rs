//! The log for programs: each line is as docs/OPERATIONS.md says.

use duetime_testkit::Webhook;
use serde_json::{Value, json};

use crate::test_node::TestNode;

#[tokio::test]
async fn each_line_of_a_json_log_has_the_documented_fields() {
    let mut hook = Webhook::start();
    hook.stop();
    let sink = format!("[sinks.s]\ntype = \"http\"\nurl = {:?}\nallow = [\"127.0.0.1\"]", hook.url("/"));
    let node = TestNode::new(&format!("[node]\nlog_format = \"json\"\n{sink}")).await;
    node.orders(&json!({}), json!("30s")).await;
    node.enqueue("orders", ["a".to_owned()]).await;
    node.breaker(true).await;
    let output = node.process.output();
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
