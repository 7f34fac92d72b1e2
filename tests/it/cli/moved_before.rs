//! `duetime move` where an id, or a copy, is of a message that one of the two sides knew before.

use std::time::Duration;

use duetime_core::Clock as _;
use duetime_testkit::WallClock;
use duetime_testkit::servers::Node;
use duetime_testkit::wait::{Because, let_pass};
use reqwest::Method;
use serde_json::{Value, json};

use super::moving::{HOUR_MS, live, moved, mover};
use super::{PROGRAM, Said, node, said, to};
use crate::test_node;

async fn two_sides() -> (Node, Node) {
    let (first, second) = (node().await, node().await);
    for side in [&first, &second] {
        to(side, &["topic", "create", "orders", "--remember", "1h"]).done();
    }
    (first, second)
}

async fn enqueue(node: &Node, id: &str, on_conflict: &str) {
    let body = json!({"id": id, "delay": "2h", "payload": id, "on_conflict": on_conflict});
    let (status, answer) = test_node::ask(node, Method::POST, "/v1/topics/orders/messages", &body).await;
    assert!(matches!(status, 200 | 201), "{answer}");
}

/// A move, however it ends.
async fn tried(from: &Node, to: &Node) -> Said {
    let child = mover(from, to, &[]);
    said(tokio::task::spawn_blocking(|| child.wait_with_output().unwrap()).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_the_destination_knows_of_an_earlier_message_stays_at_the_source() {
    let (first, second) = two_sides().await;
    enqueue(&first, "cancelled-there", "reject").await;
    assert_eq!(moved(&first, &second, &[]).await["tally"]["moved"], 1);
    to(&first, &["cancel", "orders", "cancelled-there"]).refused(1, &[]);
    to(&second, &["cancel", "orders", "cancelled-there"]).done();
    for side in [&first, &second] {
        to(side, &["cancel", "orders", "noted-there"]).refused(1, &[]);
    }
    enqueue(&second, "lives-there", "reject").await;
    for id in ["cancelled-there", "noted-there", "lives-there", "new"] {
        enqueue(&first, id, "replace").await;
    }
    let told = tried(&first, &second).await.refused(1, &["cancelled-there: the destination knows this id"]);
    let report = told.json();
    assert_eq!((&report["tally"]["moved"], &report["tally"]["refused"]), (&1.into(), &3.into()), "{report}");
    let left: Vec<String> = live(&first).into_keys().collect();
    assert_eq!(left, ["cancelled-there", "lives-there", "noted-there"]);
    let there: Vec<String> = live(&second).into_keys().collect();
    assert_eq!(there, ["lives-there", "new"]);
}

/// Begins a move of a message as a mover does that is killed: a copy aside, made then.
async fn copy_aside(from: &Node, to_node: &Node, id: &str, copied_at: &str) -> String {
    let (_, message) =
        test_node::ask(from, Method::GET, &format!("/v1/topics/orders/messages/{id}"), &Value::Null).await;
    let version = message["version"].as_str().unwrap().to_owned();
    let headers = json!({"duetime-move-at": copied_at});
    let copy = json!({
        "id": format!("{version}:{id}"), "due_at": message["due_at"], "payload": message["payload"], "headers": headers,
    });
    let (status, answer) = test_node::ask(to_node, Method::POST, "/v1/topics/orders.moving/messages", &copy).await;
    assert_eq!(status, 201, "{answer}");
    version
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_kept_whose_message_the_source_may_have_given_away_and_forgotten() {
    let (first, second) = two_sides().await;
    to(&second, &["topic", "create", "orders.moving"]).done();
    let just_now = WallClock.now().as_millis().to_string();
    let long_ago = (WallClock.now().as_millis() - HOUR_MS).to_string();
    for (id, copied_at) in [("new", &just_now), ("old", &long_ago), ("ended", &long_ago)] {
        enqueue(&first, id, "reject").await;
        copy_aside(&first, &second, id, copied_at).await;
        enqueue(&first, id, "replace").await;
    }
    to(&first, &["cancel", "orders", "ended"]).done();
    let told = tried(&first, &second).await.refused(1, &[]).json();
    let tally = &told["tally"];
    assert_eq!((&tally["moved"], &tally["unclear"], &told["copies_left"]), (&2.into(), &2.into(), &2.into()), "{told}");
    let there: Vec<String> = live(&second).into_keys().collect();
    assert_eq!(there, ["new", "old"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_not_scheduled_once_the_destination_may_have_forgotten_what_became_of_its_message() {
    let (first, second) = two_sides().await;
    to(&second, &["topic", "create", "orders.moving"]).done();
    let just_now = WallClock.now().as_millis().to_string();
    let give_away = async |id: &str| {
        enqueue(&first, id, "reject").await;
        let version = copy_aside(&first, &second, id, &just_now).await;
        let ask = json!({"ids": [id], "if_versions": [version], "moved": true});
        let (status, given) = test_node::ask(&first, Method::POST, "/v1/topics/orders/cancel", &ask).await;
        assert_eq!((status, &given["results"][0]["outcome"]), (200, &json!("cancelled")), "{given}");
    };
    give_away("in-time").await;
    assert_eq!(moved(&first, &second, &[]).await["copies_left"], 0);
    assert!(live(&second).contains_key("in-time"));

    to(&second, &["topic", "create", "orders.moving"]).done();
    give_away("late").await;
    to(&second, &["topic", "set", "orders", "--remember", "1s"]).done();
    let_pass(Duration::from_secs(1), Because::Time).await;
    let told = tried(&first, &second).await.refused(1, &[]).json();
    assert_eq!((&told["tally"]["unclear"], &told["copies_left"]), (&1.into(), &1.into()), "{told}");
    assert!(!live(&second).contains_key("late"), "it may have been delivered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_is_refused_where_its_copies_would_be_delivered_or_an_earlier_move_has_left_some() {
    let first = node().await;
    let second = Node::start_embedded(PROGRAM, "[sinks.shop]\ntype = \"log\"\n").await;
    to(&first, &["topic", "create", "orders", "--remember", "1h"]).done();
    to(&second, &["topic", "create", "orders.moving", "--sink", "shop"]).done();
    tried(&first, &second).await.refused(1, &["has the sink shop", "duetime topic set orders.moving --sink none"]);
    to(&second, &["topic", "set", "orders.moving", "--sink", "none"]).done();
    enqueue(&first, "a", "reject").await;
    copy_aside(&first, &second, "a", "0").await;
    tried(&second, &first).await.refused(1, &["1 message in orders.moving at the source"]);
    assert_eq!(moved(&first, &second, &[]).await["tally"]["moved"], 1);
    assert_eq!(moved(&second, &first, &[]).await["tally"]["moved"], 1);
}
