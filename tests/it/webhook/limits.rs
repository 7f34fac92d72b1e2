//! What a webhook may reach.

use std::fmt::Write as _;
use std::time::Duration;

use duetime_testkit::Webhook;
use serde_json::json;

use crate::test_node::{TestNode, ids};

const PATIENCE: Duration = Duration::from_secs(60);

/// A node with these sinks, each a webhook at `hook` by the name of this machine, and a topic for each.
async fn node(hook: &Webhook, sinks: &[(&str, &str)]) -> TestNode {
    let mut config = String::new();
    let port = hook.address().port();
    for (name, lines) in sinks {
        writeln!(config, "[sinks.{name}]\ntype = \"http\"\nurl = \"http://localhost:{port}/{name}\"\n{lines}").unwrap();
    }
    let node = TestNode::new(&config).await;
    for (name, _) in sinks {
        let (status, body) = node.topic(name, json!({"shards": 2, "sink": {"name": name}})).await;
        assert_eq!(status, 201, "{body}");
    }
    node
}

fn paths(hook: &Webhook) -> Vec<String> {
    hook.hits().into_iter().map(|hit| hit.path).collect()
}

#[tokio::test]
async fn a_name_that_leads_inside_is_refused_unless_it_is_allowed_and_on_the_list() {
    let hook = Webhook::start();
    let sinks = [
        ("inside", ""),
        ("other-range", "allow = [\"10.0.0.0/8\"]"),
        ("off-the-list", "allow = [\"127.0.0.0/8\"]\nonly = [\"192.0.2.0/24\", \"shop.example\"]"),
        ("listed-not-allowed", "only = [\"localhost\"]"),
        ("by-range", "allow = [\"127.0.0.0/8\"]"),
        ("by-name", "allow = [\"localhost\"]"),
        ("listed", "allow = [\"127.0.0.0/8\"]\nonly = [\"localhost\"]"),
        ("listed-by-range", "allow = [\"localhost\"]\nonly = [\"127.0.0.0/8\"]"),
    ];
    let node = node(&hook, &sinks).await;
    for (name, _) in sinks {
        node.enqueue(name, ids("order", 3)).await;
    }
    for (name, _) in &sinks[4..] {
        node.drained(name, PATIENCE).await;
    }
    node.until_said("127.0.0.1, a loopback address, which a webhook may not reach", 1).await;
    node.until_said("127.0.0.1, not on its list", 1).await;
    let reached = paths(&hook);
    for (n, (name, _)) in sinks.iter().enumerate() {
        let hits = reached.iter().filter(|path| **path == format!("/{name}")).count();
        assert_eq!(hits, if n < 4 { 0 } else { 3 }, "{name}: {reached:?}");
    }
    for (name, _) in &sinks[..4] {
        let message = node.message_at_rest(name, "order-1").await;
        assert_eq!(message["attempts"], 0, "{name} waits: {message}");
        assert_eq!(node.counts(name).await["dead"], 0, "{name}");
    }
}
