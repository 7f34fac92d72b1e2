//! Figures of all nodes, asked of any of them: real nodes, of which one falls silent and goes.

use std::process::Command;
use std::time::Duration;

use duetime_testkit::in_time;
use duetime_testkit::servers::RedisServer;
use duetime_testkit::wait::{Because, let_pass};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::test_node::TestNode;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(200);
const ORDERS: &str = "/v1/rates?topic=orders&scope=cluster";

/// Each node's name, and whether its figures are in it.
fn nodes(answer: &Value) -> Vec<(&str, bool)> {
    let all = answer["nodes"].as_array().unwrap().iter();
    all.map(|node| (node["name"].as_str().unwrap(), node["answered"].as_bool().unwrap())).collect()
}

/// Waits until `node` has in its answer the nodes `wanted`; the answer.
async fn until(node: &TestNode, path: &str, wanted: &[(&str, bool)]) -> Value {
    let begun = Instant::now();
    loop {
        let (status, answer) = node.get(path).await;
        assert_eq!(status, 200, "{answer}");
        if nodes(&answer) == wanted {
            return answer;
        }
        in_time!(begun.elapsed() < PATIENCE, "{wanted:?} are the nodes: {}", answer["nodes"]);
        let_pass(LOOK_EVERY, Because::AskedAgain).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_answers_for_all_and_says_which_are_missing() {
    let redis = RedisServer::start().await;
    let mut both = TestNode::sharing(2, &redis, "").await;
    assert_eq!(both[0].topic("orders", json!({"shards": 4})).await.0, 201);
    for (node, count) in both.iter().zip([5, 7]) {
        until(node, ORDERS, &[("n0", true), ("n1", true)]).await;
        let messages: Vec<Value> = (0..count).map(|_| json!({})).collect();
        assert_eq!(node.post("/v1/topics/orders/messages", json!(messages)).await.0, 200);
    }
    // What was answered a moment ago may be answered once more.
    let_pass(Duration::from_millis(1_100), Because::Time).await;
    let flow = |answer: &Value| answer["topics"][0]["detail"]["flow"]["scheduled"].clone();
    for node in &both {
        assert_eq!(flow(&node.get(ORDERS).await.1), 12, "whichever is asked");
        assert_eq!(flow(&node.get("/v1/rates?topic=orders&node=n1").await.1), 7, "of one of them");
    }
    let (_, audit) = both[1].get("/v1/audit?scope=cluster&operation=put_topic").await;
    assert_eq!((&audit["entries"][0]["node"], nodes(&audit).len()), (&json!("n0"), 2), "{audit}");

    both[1].process.pause();
    let silent = until(&both[0], ORDERS, &[("n0", true), ("n1", false)]).await;
    assert_eq!((flow(&silent), &silent["nodes"][1]["reason"]), (json!(5), &json!("did not answer within 2 s")));
    let printed = Command::new(PROGRAM).args(["rates", "--all-nodes", "--node", &both[0].url()]).output().unwrap();
    let said = String::from_utf8_lossy(&printed.stderr);
    assert_eq!(printed.status.code(), Some(1), "{said}");
    assert!(said.contains("node \"n1\" did not answer within 2 s"), "{said}");
    both[1].process.kill();
    let left = until(&both[0], ORDERS, &[("n0", true)]).await;
    assert_eq!(flow(&left), 5);
    let (status, gone) = both[0].get("/v1/rates?node=n1").await;
    assert_eq!((status.as_u16(), &gone["code"]), (404, &json!("unknown_node")));
}
