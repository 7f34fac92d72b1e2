//! Bulk actions on real servers: their node is killed in the middle, and they are stopped and go on.

use std::time::Duration;

use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use reqwest::Method;
use serde_json::{Value, json};

use crate::test_node::{done, listed, run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
/// A plan of a node that is gone is taken over after 15 s, and looked for every 5 s.
const PATIENCE: Duration = Duration::from_secs(90);
const MESSAGES: usize = 400;
const A_SECOND: u64 = 25;

/// A plan of the topic `orders`, once it is as `wanted`.
pub async fn plan_when(node: &Node, id: &str, patience: Duration, wanted: impl Fn(&Value) -> bool) -> Value {
    let seen = async {
        loop {
            let plan = done(node, Method::GET, &format!("orders/plans/{id}"), &json!({})).await;
            if wanted(&plan) {
                return plan;
            }
            let_pass(Duration::from_millis(100), Because::AskedAgain).await;
        }
    };
    tokio::time::timeout(patience, seen).await.expect("the plan gets there in time")
}

async fn fill(node: &Node) {
    let ids = (0..MESSAGES).map(|n| json!({ "id": format!("order-{n}"), "delay": "1h" }));
    done(node, Method::POST, "orders/messages", &json!(ids.collect::<Vec<_>>())).await;
}

async fn left(node: &Node) -> u64 {
    listed(node, "orders", "").await.len() as u64
}

fn count(plan: &Value, name: &str) -> u64 {
    plan["counts"][name].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_action_goes_on_at_another_node_when_its_node_is_killed() {
    let redis = RedisServer::start().await;
    let config = "[ownership]\nmode = \"round-robin\"\n[topics.orders]\nshards = 8\n";
    let mut first = Node::start(PROGRAM, &redis.url(), config).await;
    let second = Node::start(PROGRAM, &redis.url(), config).await;
    fill(&first).await;
    let ask = json!({ "action": "cancel", "prefix": "order-", "per_second": A_SECOND });
    let plan = done(&first, Method::POST, "orders/plans", &ask).await;
    assert_eq!(plan["expected"], MESSAGES);
    let id = plan["id"].as_str().unwrap();
    done(&first, Method::POST, &format!("orders/plans/{id}/start"), &json!({ "at_most": MESSAGES })).await;
    plan_when(&second, id, PATIENCE, |plan| count(plan, "done") >= 2 * A_SECOND).await;
    first.kill();
    // The count changes meanwhile: what moves is met all the same.
    done(&second, Method::PUT, "orders/shards", &json!({ "shards": 12 })).await;
    let done = plan_when(&second, id, PATIENCE, |plan| plan["state"] == "done").await;
    assert_eq!((left(&second).await, count(&done, "failed")), (0, 0), "{done}");
    assert!(count(&done, "done") + count(&done, "unrecorded") >= MESSAGES as u64, "{done}");
    let outcomes = ["done", "in_flight", "unchanged", "failed", "unrecorded", "open"];
    assert_eq!(outcomes.map(|name| count(&done, name)).iter().sum::<u64>(), count(&done, "total"), "{done}");
    assert!(count(&done, "unrecorded") <= A_SECOND, "no more than the page that was open: {done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_plans_starts_stops_and_forgets() {
    let node = Node::start_embedded(PROGRAM, "[topics.orders]\nshards = 4\n").await;
    fill(&node).await;
    let duetime = |args: &[&str]| run(&node, args);
    let (ok, shown) = duetime(&["list", "orders", "--prefix", "order-1", "--state", "scheduled", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert!(ok && shown["messages"].as_array().unwrap().len() == 50 && shown["more"] == true, "{shown}");
    let (ok, peeked) = duetime(&["peek", "orders"]);
    assert!(ok && peeked.contains("no message is due"), "{peeked}");
    let (ok, planned) = duetime(&["bulk", "cancel", "orders", "--prefix", "order-1", "--rate", "5", "--json"]);
    let plan: Value = serde_json::from_str(&planned).unwrap();
    assert!(ok && plan["state"] == "planned" && plan["expected"] == 111, "{planned}");
    let id = plan["id"].as_str().unwrap();
    let (ok, refused) = duetime(&["bulk", "start", "orders", id]);
    assert!(!ok && refused.contains("give at_most"), "{refused}");
    assert!(duetime(&["bulk", "list", "orders"]).1.contains("no bulk plans"), "nobody agreed to it yet");
    done(&node, Method::POST, &format!("orders/plans/{id}/start"), &json!({ "at_most": 111 })).await;
    plan_when(&node, id, PATIENCE, |plan| count(plan, "done") > 0).await;
    let (ok, stopped) = duetime(&["bulk", "stop", "orders", id, "--json"]);
    let stopped: Value = serde_json::from_str(&stopped).unwrap();
    assert!(ok && stopped["state"] == "stopped", "{stopped}");
    let there = listed(&node, "orders", "&prefix=order-1").await;
    assert_eq!(count(&stopped, "done") + there.len() as u64, 111);
    let (ok, all) = duetime(&["bulk", "start", "orders", id, "--rate", "10000"]);
    assert!(ok && all.contains("done"), "{all}");
    let (ok, plans) = duetime(&["bulk", "list", "orders"]);
    assert!(ok && plans.contains(id) && plans.contains("cancel"), "{plans}");
    assert!(duetime(&["bulk", "delete", "orders", id]).0);
    assert!(duetime(&["bulk", "list", "orders"]).1.contains("no bulk plans"));
}
