//! Of many dead letters ten are redriven first.

use std::process::Stdio;

use duetime_testkit::servers::Node;

use super::{PROGRAM, command, said, to};

/// Letters that wait: more than go first.
const LETTERS: usize = 12;
/// The command under test.
const REDRIVE: [&str; 5] = ["bulk", "redrive", "t", "--start", "--ten-first"];

/// A node whose topic `t`, with this setting, has dead letters.
async fn with_letters(remember: &str) -> Node {
    let node = Node::start_embedded(PROGRAM, "[sinks.out]\ntype = \"log\"\n").await;
    to(&node, &["topic", "create", "t", "--max-attempts", "1", "--remember", remember]).done();
    for n in 0..LETTERS {
        to(&node, &["enqueue", "t", "--id", &format!("m-{n}")]).done();
    }
    settle(&node, LETTERS, |_| "nack");
    node
}

/// Claims so many one after the other, and does with each what is said of its place.
fn settle(node: &Node, count: usize, how: impl Fn(usize) -> &'static str) {
    let mut settled = 0;
    while settled < count {
        let claimed = to(node, &["claim", "t", "--max", "10", "--wait", "30s", "--json"]).done().json();
        let messages = claimed["messages"].as_array().unwrap();
        assert!(!messages.is_empty(), "{settled} of {count} came");
        for message in messages {
            to(node, &[how(settled), "t", message["receipt"].as_str().unwrap()]).done();
            settled += 1;
        }
    }
}

fn dead(node: &Node) -> u64 {
    to(node, &["topic", "get", "t", "--json"]).done().json()["dead"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_others_follow_ten_that_the_topic_remembers_as_delivered() {
    let node = with_letters("1h").await;
    to(&node, &["topic", "set", "t", "--sink", "out"]).done();
    let redriven = to(&node, &REDRIVE).done();
    assert!(redriven.out.contains("10 were redriven first, and the others follow"), "{}", redriven.out);
    let plans = to(&node, &["bulk", "list", "t", "--json"]).done().json();
    let plans = plans["plans"].as_array().unwrap();
    assert_eq!(
        (plans.len(), &plans[0]["at_most"], &plans[0]["counts"]["done"]),
        (1, &2.into(), &2.into()),
        "{plans:?}"
    );
    assert_eq!(dead(&node), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_others_stay_where_one_of_the_ten_died_again() {
    let node = with_letters("1h").await;
    let child = command(Some(&node), &REDRIVE).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    settle(&node, 10, |place| if place == 3 { "nack" } else { "ack" });
    let stopped = said(child.wait_with_output().unwrap());
    stopped.refused(1, &["1 of the first 10 died again", "the others stay dead letters"]);
    assert_eq!(dead(&node), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_others_stay_where_the_ten_wait_still_at_the_end_of_first_within() {
    let node = with_letters("1h").await;
    let args = [&REDRIVE[..], &["--first-within", "3s", "--json"]].concat();
    to(&node, &args).refused(
        1,
        &[
            "waiting at most 3s for what becomes of the first 10",
            "10 of the first 10 wait still when --first-within is over: the others stay dead letters",
            "given to the next consumer that claims",
        ],
    );
    assert_eq!(dead(&node), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_nothing_is_redriven_of_a_topic_that_does_not_remember() {
    let node = with_letters("0s").await;
    to(&node, &REDRIVE).refused(1, &["nothing is done", "does not remember", "--ten-first"]);
    to(&node, &REDRIVE[..4]).done();
    assert_eq!(dead(&node), 0);
}
