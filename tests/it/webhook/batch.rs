//! A topic whose webhook takes several messages in one request.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use duetime_testkit::Webhook;
use duetime_testkit::webhook::{Answer, Hit};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::node;

const MANY: usize = 300;

fn items(hit: &Hit) -> Vec<Value> {
    serde_json::from_slice(&hit.body).unwrap()
}

fn id_of(item: &Value) -> String {
    item["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_is_due_together_goes_together_and_each_message_is_judged_by_itself() {
    let hook = Webhook::start();
    // Every tenth is to come again, and two are given up; one of these has each request refused that it shares.
    let seen = Mutex::new(BTreeSet::new());
    hook.answer(move |hit| {
        let items = items(hit);
        if items.len() > 1 && items.iter().any(|item| item["id"] == "order-7") {
            return Answer::status(422).body("no such order");
        }
        let result = |item: &Value| match id_of(item).as_str() {
            id @ ("order-7" | "order-8") => json!({"id": id, "status": "dead", "reason": "closed"}),
            id if id.ends_with('0') && seen.lock().insert(id.to_owned()) => json!({"id": id, "status": "retry"}),
            id => json!({"id": id, "status": "ack"}),
        };
        Answer::status(207).body(json!({"results": items.iter().map(result).collect::<Vec<_>>()}).to_string())
    });
    let node = node(&hook, "batch = 50", json!({"initial": "50ms", "max": "1s"})).await;
    let messages = (0..MANY).map(|n| json!({"id": format!("order-{n}"), "delay": "1s", "payload": n}));
    node.enqueue_all("orders", messages.collect()).await;
    node.drained("orders", Duration::from_secs(60)).await;
    let dead = node.dead("orders").await;
    let why: BTreeMap<String, &str> =
        dead.iter().map(|one| (id_of(one), one["death"]["reason"].as_str().unwrap())).collect();
    assert_eq!(why.keys().collect::<Vec<_>>(), ["order-7", "order-8"], "{why:?}");
    assert!(why.values().all(|why| why.contains("gave it up: closed")), "{why:?}");
    let mut came: BTreeMap<String, usize> = BTreeMap::new();
    let hits = hook.hits();
    let with_bad = |hit: &&Hit| items(hit).iter().any(|item| item["id"] == "order-7");
    let requests: Vec<Vec<Value>> = hits.iter().filter(|hit| !with_bad(hit)).map(items).collect();
    requests.iter().flatten().for_each(|item| *came.entry(id_of(item)).or_default() += 1);
    for n in (0..MANY).filter(|n| *n != 7) {
        let times = if n % 10 == 0 { 2 } else { 1 };
        assert_eq!(came[&format!("order-{n}")], times, "order-{n}");
    }
    assert!(requests.iter().map(Vec::len).max() > Some(10), "what was due together went one by one");
    assert!(requests.iter().all(|items| items.len() == 1 || items.iter().all(|item| item["attempt"] == 1)));
}
