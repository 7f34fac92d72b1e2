//! A topic whose messages say where they go.

use std::time::Duration;

use duetime_testkit::servers::free_port;
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::{Webhook, in_time};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::test_node::TestNode;

const PATIENCE: Duration = Duration::from_secs(60);

/// A node whose topic `orders` calls the URL in the header `callback`, below `/in/` on this machine.
async fn node(main: &Webhook, retry: Value) -> TestNode {
    let config = format!(
        "[sinks.shop]\ntype = \"http\"\nurl = {:?}\nallow = [\"127.0.0.1\"]\nmethods = [\"PUT\"]\n\
         targets = [\"http://127.0.0.1:*/in/*\"]",
        main.url("/due")
    );
    let node = TestNode::new(&config).await;
    let sink = json!({"name": "shop", "url": "{header.callback}", "method": "PUT"});
    let (status, body) = node.topic("orders", json!({"shards": 2, "sink": sink, "retry": retry})).await;
    assert_eq!(status, 201, "{body}");
    node
}

fn to(id: &str, url: &str) -> Value {
    json!({"id": id, "delay": 0, "payload": id, "headers": {"callback": url}})
}

#[tokio::test]
async fn each_message_goes_where_it_says_and_one_that_may_not_is_a_dead_letter() {
    let (main, one, other) = (Webhook::start(), Webhook::start(), Webhook::start());
    let node = node(&main, json!({})).await;
    let no_header = json!({"id": "no-header", "delay": 0});
    let messages = vec![
        to("one", &one.url("/in/1?shop=7")),
        to("other", &other.url("/in/2")),
        to("not-below", &one.url("/admin")),
        to("elsewhere", "http://169.254.169.254/in/latest"),
        no_header,
    ];
    node.enqueue_all("orders", messages).await;
    node.drained("orders", PATIENCE).await;
    for (hook, path, body) in [(&one, "/in/1?shop=7", "one"), (&other, "/in/2", "other")] {
        let hits = hook.hits();
        let called: Vec<_> = hits.iter().map(|hit| (&hit.method[..], &hit.path[..], &hit.body[..])).collect();
        assert_eq!(called, [("PUT", path, body.as_bytes())]);
    }
    assert!(main.hits().is_empty(), "{:?}", main.hits());
    let dead = node.dead("orders").await;
    assert_eq!(dead.len(), 3, "{dead:?}");
    for (id, says) in [
        ("not-below", "but not with this path"),
        ("elsewhere", "leads to http://169.254.169.254:80, which `targets` of the sink does not allow"),
        ("no-header", "no header \"callback\""),
    ] {
        let letter = dead.iter().find(|letter| letter["id"] == id).unwrap_or_else(|| panic!("{id}: {dead:?}"));
        assert!(letter["death"]["reason"].as_str().unwrap().contains(says), "{letter}");
    }
}

#[tokio::test]
async fn a_topic_whose_messages_name_their_host_does_not_deliver_at_most_once() {
    let main = Webhook::start();
    let node = node(&main, json!({})).await;
    let once = |url: &str| json!({"delivery": "at-most-once", "sink": {"name": "shop", "url": url}});
    // Neither a new one, nor one that is there and delivers at least once.
    for (topic, settings) in [("once", once("{header.callback}")), ("orders", json!({"delivery": "at-most-once"}))] {
        let (status, body) = node.topic(topic, settings).await;
        assert!(status.is_client_error(), "{body}");
        let detail = body["detail"].as_str().unwrap();
        assert!(detail.starts_with("delivery = \"at-most-once\" is refused"), "{body}");
    }
    let (status, body) = node.topic("once", once(&main.url("/in/{id}"))).await;
    assert_eq!(status, 201, "{body}");
}

#[tokio::test]
async fn a_target_that_is_down_costs_its_own_messages_and_holds_up_no_other() {
    let (main, up) = (Webhook::start(), Webhook::start());
    let node = node(&main, json!({"max_attempts": 3, "initial": "50ms", "max": "50ms"})).await;
    let gone = format!("http://127.0.0.1:{}/in/x", free_port());
    node.enqueue_all("orders", (0..20).map(|n| to(&format!("gone-{n}"), &gone)).collect()).await;
    let (end, mut sent) = (Instant::now() + PATIENCE, 0);
    // Others are accepted meanwhile, until the last of these is a dead letter.
    while node.counts("orders").await["dead"] != 20 {
        node.enqueue_all("orders", vec![to(&format!("good-{sent}"), &up.url("/in/y"))]).await;
        sent += 1;
        in_time!(Instant::now() < end, "after {sent} others:\n{}", node.process.output());
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
    node.drained("orders", PATIENCE).await;
    for letter in node.dead("orders").await {
        assert_eq!(letter["attempts"], 3, "{letter}");
        let reason = letter["death"]["reason"].as_str().unwrap();
        assert!(reason.starts_with("could not connect to http://127.0.0.1:"), "{letter}");
    }
    assert_eq!(up.hits().len(), sent, "each good one came once");
}
