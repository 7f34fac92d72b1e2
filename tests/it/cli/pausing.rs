//! `duetime pause`, `resume`, and the same for all topics of a sink.

use duetime_testkit::servers::RedisServer;
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::{Webhook, in_time};
use serde_json::json;
use tokio::time::Instant;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_is_shown_with_its_reason_wherever_the_topic_is() {
    let node = node().await;
    to(&node, &["topic", "create", "orders"]).done();
    let paused = to(&node, &["pause", "orders", "--reason", "stock is counted"]).done().out;
    assert!(paused.contains("orders is paused since ") && paused.contains(": stock is counted"), "{paused}");
    let shown = to(&node, &["topic", "get", "orders"]).done().out;
    let line = shown.lines().find(|line| line.trim_start().starts_with("paused")).unwrap_or_default();
    assert!(line.contains("since ") && line.contains("stock is counted"), "{shown}");
    assert!(to(&node, &["topic", "list"]).done().out.contains("stock is counted"));
    assert!(to(&node, &["audit"]).done().out.contains("stock is counted"));
    let topic = to(&node, &["topic", "get", "orders", "--json"]).done().json();
    assert_eq!((&topic["paused"], &topic["pause"]["reason"]), (&json!(true), &json!("stock is counted")));
    to(&node, &["pause", "orders", "--reason", "two\nlines"]).refused(1, &["reason", "one line"]);
    assert!(to(&node, &["resume", "orders"]).done().out.contains("orders goes on"));
    assert_eq!(to(&node, &["topic", "get", "orders", "--json"]).done().json().get("pause"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_is_paused_and_resumed_with_all_its_topics() {
    let sinks = "[sinks.out]\ntype = \"log\"\n[sinks.other]\ntype = \"log\"\n";
    let node = Node::start_embedded(PROGRAM, sinks).await;
    for (topic, sink) in [("a", "out"), ("b", "out"), ("c", "other")] {
        to(&node, &["topic", "create", topic, "--sink", sink]).done();
    }
    to(&node, &["pause", "b"]).done();
    let paused = to(&node, &["sink", "pause", "out", "--reason", "the log is moved", "--json"]).done().json();
    let outcome = |of: &Value, n: usize| (of["topics"][n]["topic"].clone(), of["topics"][n]["outcome"].clone());
    assert_eq!(
        (outcome(&paused, 0), outcome(&paused, 1)),
        (("a".into(), "paused".into()), ("b".into(), "left".into()))
    );
    let of = |topic: &str| to(&node, &["topic", "get", topic, "--json"]).done().json();
    assert_eq!((&of("a")["pause"]["sink"], &of("a")["pause"]["reason"]), (&"out".into(), &"the log is moved".into()));
    assert_eq!(of("c").get("paused"), None);
    let said = to(&node, &["sink", "resume", "out"]).done().out;
    assert!(said.contains("resumed") && said.contains("it is paused by itself"), "{said}");
    assert_eq!((of("a").get("paused"), &of("b")["paused"]), (None, &json!(true)));
    to(&node, &["sink", "pause", "outt"]).refused(1, &["no topic delivers through a sink \"outt\""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_is_tried_from_all_nodes_by_one_command() {
    let (redis, mut hook) = (RedisServer::start().await, Webhook::start());
    let config = format!(
        "[ownership]\nmode = \"round-robin\"\n[sinks.shop]\ntype = \"http\"\nurl = \"{}\"\nallow = [\"127.0.0.1\"]\n\
         max_probe_wait = \"10m\"\n",
        hook.url("/")
    );
    let named = |id: &str| format!("[node]\nid = \"{id}\"\n{config}");
    let first = Node::start(PROGRAM, &redis.url(), &named("first")).await;
    let second = Node::start(PROGRAM, &redis.url(), &named("second")).await;
    to(&first, &["topic", "create", "orders", "--shards", "16", "--sink", "shop"]).done();
    hook.stop();
    let mut rounds = 0;
    let mut enqueue = || {
        rounds += 1;
        let lines: String = (0..64).map(|n| format!("{{\"id\":\"m-{rounds}-{n}\"}}\n")).collect();
        to_with_input(&first, &["import", "orders"], &lines).done();
    };
    enqueue();
    let down = |node: &Node| to(node, &["sink", "get", "orders"]).status == 1;
    let begun = Instant::now();
    let knows_both = || to(&first, &["nodes", "--json"]).out.contains("\"second\"");
    while !(down(&first) && down(&second) && knows_both()) {
        in_time!(begun.elapsed() < PATIENCE, "both nodes find the sink down, and the first one knows the other");
        let_pass(Duration::from_millis(200), Because::AskedAgain).await;
    }
    let tried = to(&first, &["sink", "probe", "orders", "--all-nodes", "--json"]);
    let nodes = |of: &Value| -> Vec<String> {
        let mut all: Vec<String> =
            of.as_array().unwrap().iter().map(|one| one["node"].as_str().unwrap().to_owned()).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(
        (tried.status, nodes(&tried.json())),
        (1, vec!["first".to_owned(), "second".to_owned()]),
        "{}",
        tried.err
    );

    // Once it is back, one command closes the breakers of all nodes.
    hook.start_again();
    let begun = Instant::now();
    loop {
        // The one that is up hands over all it finds in its turn, and the other needs something to try.
        enqueue();
        let tried = to(&first, &["sink", "probe", "orders", "--all-nodes"]);
        if tried.status == 0 {
            assert!(tried.out.contains("first") && tried.out.contains("second"), "{}", tried.out);
            break;
        }
        in_time!(begun.elapsed() < PATIENCE, "the sink is up for all: {} {}", tried.out, tried.err);
        let_pass(Duration::from_millis(200), Because::AskedAgain).await;
    }
    assert!(!down(&first) && !down(&second));
}
