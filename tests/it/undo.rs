//! Bulk actions that are taken back, on real servers: by the API at any node, and by the command line.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use reqwest::Method;
use serde_json::{Value, json};

use crate::bulk::plan_when;
use crate::test_node::{advance, ask, client, done, run, with_test_clock};

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
/// A node looks for plans every 5 s.
const PATIENCE: Duration = Duration::from_secs(60);
const MESSAGES: usize = 1_000;

/// What must be the same of a message that is put back.
fn whole(message: &Value) -> Value {
    let of = |field: &str| message[field].clone();
    json!([of("state"), of("due_at"), of("visible_at"), of("attempts"), of("headers"), of("payload"), of("death")])
}

/// All live messages with their payloads.
async fn all(node: &Node) -> BTreeMap<String, Value> {
    let (mut messages, mut cursor): (Vec<Value>, String) = (Vec::new(), String::new());
    loop {
        let url = format!("{}/v1/topics/orders/messages?limit=500{cursor}", node.url());
        let page = client().get(url).header("accept", "application/x-ndjson").send().await.unwrap();
        let next = page.headers().get("duetime-next").map(|next| next.to_str().unwrap().to_owned());
        messages.extend(page.text().await.unwrap().lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        let Some(next) = next else { break };
        cursor = format!("&cursor={next}");
    }
    let count = messages.len();
    let by_id: BTreeMap<String, Value> =
        messages.iter().map(|one| (one["id"].as_str().unwrap().to_owned(), whole(one))).collect();
    assert_eq!(by_id.len(), count, "an id is there twice");
    by_id
}

/// Claims so many of what is due, and has them tried again in an hour, or buries them.
async fn tried(node: &Node, count: usize, how: &Value) {
    let mut left = count;
    while left > 0 {
        let claimed = done(node, Method::POST, "orders/claim", &json!({ "max": left.min(100), "wait": "10s" })).await;
        let claimed = claimed["messages"].as_array().unwrap();
        let receipts: Vec<&Value> = claimed.iter().map(|one| &one["receipt"]).collect();
        assert!(!receipts.is_empty(), "{left} are not due");
        let mut nack = how.clone();
        nack["receipts"] = json!(receipts);
        done(node, Method::POST, "orders/nack", &nack).await;
        left -= receipts.len();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_cancel_of_a_thousand_is_taken_back_at_any_node_and_what_is_newer_stays() {
    let redis = RedisServer::start().await;
    let config = |id: &str| {
        format!(
            "[node]\nid = \"{id}\"\n[ownership]\nmode = \"round-robin\"\n\
             [topics.orders]\nshards = 8\nremember = \"1h\"\n"
        )
    };
    let first = Node::start(PROGRAM, &redis.url(), &config("first")).await;
    let second = Node::start(PROGRAM, &redis.url(), &config("second")).await;
    let new = |n: usize| {
        let delay = if n < 100 { "0s".to_owned() } else { format!("{}m", 60 + n) };
        json!({ "id": format!("order-{n}"), "delay": delay, "payload": format!("of {n}"), "headers": { "n": n.to_string() } })
    };
    done(&first, Method::POST, "orders/messages", &json!((0..MESSAGES).map(new).collect::<Vec<_>>())).await;
    tried(&first, 100, &json!({ "delay": "2h" })).await;
    let before = all(&first).await;
    assert_eq!(before.len(), MESSAGES);
    let asked = json!({ "action": "cancel", "prefix": "order-", "per_second": 10_000, "undoable": true });
    let plan = done(&first, Method::POST, "orders/plans", &asked).await;
    assert_eq!((&plan["expected"], &plan["undo"]["state"]), (&json!(MESSAGES), &json!("keeping")), "{plan}");
    let id = plan["id"].as_str().unwrap();
    done(&first, Method::POST, &format!("orders/plans/{id}/start"), &json!({ "at_most": MESSAGES })).await;
    let plan = plan_when(&second, id, PATIENCE, |plan| plan["state"] == "done").await;
    assert_eq!((&plan["counts"]["done"], &plan["undo"]["kept"]), (&json!(MESSAGES), &json!(MESSAGES)), "{plan}");
    assert!(all(&second).await.is_empty());
    // Three are enqueued anew, one of them at the very time at which the others are put back, and one is cancelled.
    let anew =
        |n: usize| json!({ "id": format!("order-{n}"), "delay": "9h", "payload": "anew", "on_conflict": "replace" });
    done(&second, Method::POST, "orders/messages", &json!([anew(0), anew(500)])).await;
    let (status, cancelled) = ask(&second, Method::DELETE, "/v1/topics/orders/messages/order-7", &Value::Null).await;
    assert!(status == 200 || status == 404 || status == 409 || status == 410, "{status} {cancelled}");
    let newer = all(&second).await;
    let other = if plan["undo"]["node"] == "first" { &second } else { &first };
    let undo = format!("orders/plans/{id}/undo");
    let (nothing, late) = (json!({}), json!([anew(900)]));
    tokio::join!(done(other, Method::POST, &undo, &nothing), done(&first, Method::POST, "orders/messages", &late));
    let plan = plan_when(&second, id, PATIENCE, |plan| plan["undo"]["state"] == "done").await;
    let counted = ["restored", "left", "unknown"].map(|name| plan["undo"][name].as_u64().unwrap());
    assert_eq!((counted.iter().sum::<u64>(), counted[2]), (MESSAGES as u64, 0), "{plan}");
    let after = all(&second).await;
    assert_eq!(after.len(), MESSAGES - 1, "order-7 was cancelled for good: {plan}");
    for (id, was) in &before {
        match id.as_str() {
            "order-0" | "order-500" => assert_eq!(after.get(id), newer.get(id), "the new one stays"),
            "order-7" => assert_eq!(after.get(id), None, "who cancels it since was promised that it does not come"),
            "order-900" => assert_eq!(after[id][5], "anew", "it took the other's place, or came before"),
            _ => assert_eq!(after.get(id), Some(was), "{id}"),
        }
    }
    let attempts: BTreeSet<u64> = after.values().filter_map(|one| one[3].as_u64()).collect();
    assert_eq!(attempts, BTreeSet::from([0, 1]));
    // Asked again, nothing changes, and nothing is put back that ended since.
    done(&first, Method::DELETE, "orders/messages/order-600", &Value::Null).await;
    let again = done(&first, Method::POST, &undo, &json!({})).await;
    assert_eq!(again["undo"], plan["undo"]);
    let_pass(Duration::from_secs(6), Because::Quiet).await;
    assert_eq!(all(&second).await.len(), MESSAGES - 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_takes_a_cancel_and_a_purge_back_for_ten_minutes() {
    let topics = "[topics.orders]\nshards = 4\nremember = \"1h\"\n[topics.short]\nshards = 1\n";
    let node = with_test_clock(topics).await;
    let duetime = |args: &[&str]| run(&node, args);
    let newest = async || {
        let plans = done(&node, Method::GET, "orders/plans", &json!({})).await;
        plans["plans"][0]["id"].as_str().unwrap().to_owned()
    };
    let later = (0..MESSAGES).map(|n| json!({ "id": format!("order-{n}"), "delay": format!("{}m", 60 + n % 50) }));
    done(&node, Method::POST, "orders/messages", &json!(later.collect::<Vec<_>>())).await;
    let before = all(&node).await;
    let (ok, said) = duetime(&["bulk", "cancel", "orders", "--rate", "10000", "--start"]);
    let id = newest().await;
    assert!(
        ok && said.contains(&format!("{MESSAGES} of {MESSAGES} can be put back: duetime bulk undo orders {id}")),
        "{said}"
    );
    assert!(all(&node).await.is_empty());
    advance(&node, "9m").await;
    let (ok, said) = duetime(&["bulk", "undo", "orders", &id]);
    assert!(ok && said.contains(&format!("done: {MESSAGES} put back, 0 left alone, 0 not known")), "{said}");
    assert_eq!(all(&node).await, before);
    // Dead letters.
    let due = (0..50).map(|n| json!({ "id": format!("dead-{n}"), "payload": n }));
    done(&node, Method::POST, "orders/messages", &json!(due.collect::<Vec<_>>())).await;
    tried(&node, 50, &json!({ "dead": true, "reason": "no such customer" })).await;
    let dead = async || {
        let page = done(&node, Method::GET, "orders/dead?limit=256", &json!({})).await;
        let letters = page["messages"].as_array().unwrap().iter();
        letters.map(|one| (one["id"].to_string(), whole(one))).collect::<BTreeMap<_, _>>()
    };
    let letters = dead().await;
    assert_eq!(letters.len(), 50);
    let (ok, said) = duetime(&["bulk", "purge", "orders", "--rate", "10000", "--start", "--json"]);
    let plan: Value = serde_json::from_str(&said).unwrap();
    assert!(ok && plan["undo"]["state"] == "possible" && dead().await.is_empty(), "{said}");
    let (ok, said) = duetime(&["bulk", "undo", "orders", plan["id"].as_str().unwrap(), "--json"]);
    let undone: Value = serde_json::from_str(&said).unwrap();
    assert!(ok && undone["undo"]["restored"] == 50, "{said}");
    assert_eq!(dead().await, letters);
    // Once the ten minutes are over, or the node has ended.
    assert!(duetime(&["bulk", "cancel", "orders", "--prefix", "order-1", "--rate", "10000", "--start"]).0);
    advance(&node, "10m").await;
    let id = newest().await;
    let (ok, said) = duetime(&["bulk", "undo", "orders", &id]);
    assert!(!ok && said.contains("it ended more than ten minutes ago"), "{said}");
    assert!(duetime(&["bulk", "get", "orders", &id]).1.contains("no: it ended more than ten minutes ago"));
    // Where it cannot be taken back, that is said before anything is done.
    let (ok, said) = duetime(&["bulk", "cancel", "short"]);
    assert!(ok && said.contains("no: its topic did not remember"), "{said}");
    let (ok, said) = duetime(&["bulk", "cancel", "orders", "--no-undo", "--json"]);
    assert!(ok && serde_json::from_str::<Value>(&said).unwrap()["undo"].is_null(), "{said}");
}
