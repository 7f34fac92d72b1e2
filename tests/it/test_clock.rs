//! A node for tests of users: its clock is moved, and its store is nobody else's.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::test_node::{advance, claim_one as claim, done, with_test_clock};

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const TOPIC: &str =
    "[topics.orders]\nvisibility_timeout = \"1m\"\nretry = { initial = \"10m\", max = \"1h\", jitter = 0.0 }\n";

#[tokio::test]
async fn what_a_move_of_the_clock_makes_due_is_delivered_at_once() {
    let node = with_test_clock(TOPIC).await;
    done(&node, Method::POST, "orders/messages", &json!({"id": "a", "delay": "30m"})).await;
    advance(&node, "29m").await;
    assert_eq!(claim(&node, "0s").await, Value::Null);
    // A claim that waits is answered by the move.
    let (first, ()) = tokio::join!(claim(&node, "30s"), advance(&node, "1m"));
    assert_eq!((&first["id"], &first["attempt"]), (&json!("a"), &json!(1)));
    // The visibility timeout, and what follows a claim that ran out.
    advance(&node, "2m").await;
    assert_eq!(claim(&node, "0s").await, Value::Null, "it is due again after the first backoff");
    advance(&node, "10m").await;
    let second = claim(&node, "30s").await;
    assert_eq!(second["attempt"], 2);
    // A retry.
    let nack = json!({"receipts": [second["receipt"]], "reason": "not now"});
    done(&node, Method::POST, "orders/nack", &nack).await;
    advance(&node, "3h").await;
    assert_eq!(claim(&node, "30s").await["attempt"], 3);
    let counts = done(&node, Method::GET, "orders", &Value::Null).await;
    assert_eq!(counts["in_flight"], 1, "{counts}");
}

#[tokio::test]
async fn a_store_goes_by_one_kind_of_clock() {
    let mut node = with_test_clock(TOPIC).await;
    node.sigterm(Duration::from_secs(30)).await;
    let folder = node.folder().to_owned();
    let serve = |args: &[&str]| {
        let mut command = std::process::Command::new(PROGRAM);
        let said = command.current_dir(&folder).arg("serve").args(["--listen", "127.0.0.1:0"]).args(args).output();
        let said = said.unwrap();
        (said.status.code(), String::from_utf8(said.stderr).unwrap())
    };
    for (args, fix) in [
        (&["--store", "embedded:data"][..], "Remove it, or choose another folder"),
        (&["--test-clock", "--store", "embedded:data"], "Give another one, remove it, or leave --store away"),
        (&["--test-clock", "--store", "redis://127.0.0.1:1/0"], "give --store embedded:FOLDER with a new folder"),
    ] {
        let (status, said) = serve(args);
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains(fix), "{said}");
    }
}
