//! A consumer at the command line: claim, settle, dead letters.

use duetime_testkit::servers::Node;

use super::{PROGRAM, node, to, to_with_input};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_is_claimed_and_settled_by_its_receipt() {
    let node = node().await;
    to(&node, &["topic", "create", "t"]).done();
    assert!(to(&node, &["claim", "t"]).done().out.contains("nothing is due"));
    for id in ["a", "b", "c"] {
        to(&node, &["enqueue", "t", "--id", id, "--payload", "pay"]).done();
    }
    let mut receipts = Vec::new();
    while receipts.len() < 3 {
        let claimed = to(&node, &["claim", "t", "--max", "10", "--wait", "10s", "--json"]).done().json();
        for message in claimed["messages"].as_array().unwrap() {
            assert_eq!((&message["payload"], &message["attempt"]), (&"pay".into(), &1.into()));
            receipts.push(message["receipt"].as_str().unwrap().to_owned());
        }
    }
    let extended = to(&node, &["extend", "t", &receipts[0], "--visibility-timeout", "1m", "--json"]).done().json();
    let fresh = extended["results"][0]["receipt"].as_str().unwrap();
    to_with_input(&node, &["ack", "t", "--stdin"], &format!("{fresh}\n")).done();
    let said = to(&node, &["ack", "t", &receipts[0]]).done();
    assert!(said.out.contains("already (an earlier request did it)"), "{}", said.out);
    to(&node, &["nack", "t", &receipts[1], "--delay", "1h", "--dead"]).refused(2, &["--dead"]);
    to(&node, &["nack", "t", &receipts[1], "--delay", "1h"]).done();
    to(&node, &["release", "t", &receipts[2]]).done();
    let again = to(&node, &["claim", "t", "--wait", "10s", "--json"]).done().json();
    assert_eq!(again["messages"][0]["attempt"], 1, "a claim that was released costs no attempt: {again}");
    to(&node, &["ack", "t", again["messages"][0]["receipt"].as_str().unwrap()]).done();
    to(&node, &["ack", "t", "rubbish"]).refused(1, &["rubbish"]);
    let counts = to(&node, &["topic", "get", "t", "--json"]).done().json();
    assert_eq!((&counts["scheduled"], &counts["in_flight"]), (&1.into(), &0.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_acks_first_what_it_is_given_and_says_what_became_of_it() {
    let node = Node::start_embedded(PROGRAM, "[sinks.out]\ntype = \"log\"\n").await;
    to(&node, &["topic", "create", "t"]).done();
    to(&node, &["enqueue", "t", "--id", "a"]).done();
    let first = to(&node, &["claim", "t", "--wait", "10s", "--json"]).done().json();
    let receipt = first["messages"][0]["receipt"].as_str().unwrap();
    to(&node, &["enqueue", "t", "--id", "b"]).done();
    let next = to(&node, &["claim", "t", "--wait", "10s", "--ack", receipt, "--json"]).done().json();
    assert_eq!((&next["results"][0]["outcome"], &next["messages"][0]["id"]), (&"ok".into(), &"b".into()), "{next}");
    let said = to(&node, &["claim", "t", "--ack", receipt]).done();
    assert!(said.out.contains("a already") && said.out.contains("nothing is due"), "{}", said.out);
    to(&node, &["claim", "t", "--ack", receipt, "--ack", "rubbish"]).refused(1, &["rubbish"]);
    to(&node, &["topic", "create", "u"]).done();
    let said = to(&node, &["claim", "t", "u", "--ack", receipt]).done();
    assert!(said.out.contains("a already") && said.out.contains("nothing is due"), "{}", said.out);
    to(&node, &["topic", "set", "t", "--sink", "out"]).done();
    let said = to(&node, &["claim", "t", "--ack", receipt]);
    assert!(
        said.status == 1 && said.out.contains("a already") && said.err.contains("sink"),
        "{} {}",
        said.out,
        said.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_listed_redriven_and_purged() {
    let node = node().await;
    to(&node, &["topic", "create", "t", "--max-attempts", "1"]).done();
    assert!(to(&node, &["dead", "list", "t"]).done().out.contains("no dead letters"));
    let die = |count: usize| {
        let mut died = 0;
        while died < count {
            let claimed = to(&node, &["claim", "t", "--max", "10", "--wait", "10s", "--json"]).done().json();
            for message in claimed["messages"].as_array().unwrap() {
                to(&node, &["nack", "t", message["receipt"].as_str().unwrap()]).done();
                died += 1;
            }
        }
    };
    for id in ["a", "b", "c"] {
        to(&node, &["enqueue", "t", "--id", id]).done();
    }
    die(3);
    let list = to(&node, &["dead", "list", "t", "--json"]).done().json();
    assert_eq!(list["messages"].as_array().unwrap().len(), 3);
    assert!(list["messages"].as_array().unwrap().iter().all(|letter| letter["redrives"] == 0), "{list}");
    let list = to(&node, &["dead", "list", "t", "--limit", "1"]).done();
    assert!(
        list.out.contains("ATTEMPTS") && list.out.contains("REDRIVES") && list.out.contains("there are more"),
        "{}",
        list.out
    );
    to(&node, &["dead", "redrive", "t", "a"]).done();
    let said = to(&node, &["dead", "purge", "t", "a", "b"]);
    assert!(said.status == 1 && said.out.contains("a unknown") && said.out.contains("b purged"), "{}", said.out);
    assert_eq!(to(&node, &["dead", "redrive", "t", "--all", "--json"]).done().json()["done"], 1);
    die(2);
    let list = to(&node, &["dead", "list", "t", "--json"]).done().json();
    assert!(list["messages"].as_array().unwrap().iter().all(|letter| letter["redrives"] == 1), "{list}");
    assert!(to(&node, &["dead", "groups", "t"]).done().out.contains("REDRIVEN BEFORE"));
    assert!(to(&node, &["bulk", "redrive", "t"]).done().out.contains("redriven before"));
    assert!(to(&node, &["get", "t", "a"]).done().out.contains("redrives"));
    to(&node, &["dead", "purge", "t", "--all"]).refused(1, &["2 dead letters", "--yes"]);
    assert!(to(&node, &["dead", "purge", "t", "--all", "--yes"]).done().out.contains("2 purged"));
    assert_eq!(to(&node, &["dead", "purge", "t"]).status, 2);
}
