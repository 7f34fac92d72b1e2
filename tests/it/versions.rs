//! The program of the release before and this one, in turn on one folder of the embedded store.
//!
//! The program of the release before is named by `DUETIME_TEST_OLDER`; `./test --long` builds it from the commit in
//! `tests/release-before`. Nodes of both on one Redis are in `resize/versions.rs`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use duetime_testkit::in_time;
use duetime_testkit::servers::Node;
use duetime_testkit::violation::{cannot_run, is_long, only_in_long};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::test_node::{ask, done};

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
/// Longest wait for messages that are due.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest wait for a node that ends in good order.
const ENDED_WITHIN: Duration = Duration::from_secs(20);
/// Messages of each kind; a multiple of four.
const MANY: usize = 40;

/// The program of the release before, if there is one.
pub(crate) fn older() -> Option<PathBuf> {
    let named = std::env::var_os("DUETIME_TEST_OLDER").map(PathBuf::from);
    match (&named, is_long()) {
        (Some(_), _) => {}
        (None, true) => {
            cannot_run(
                "DUETIME_TEST_OLDER names no program of the release before; ./test --long builds one and names it",
            );
        }
        (None, false) => only_in_long("./test --long builds the program of the release before"),
    }
    named
}

/// Claims `many` messages, from whatever shards they are in.
pub(crate) async fn claim(node: &Node, topic: &str, many: usize) -> Vec<Value> {
    let (mut claimed, end) = (Vec::new(), Instant::now() + PATIENCE);
    while claimed.len() < many {
        in_time!(Instant::now() < end, "{} of {many} are claimed:\n{}", claimed.len(), node.output());
        let body = json!({"max": many - claimed.len(), "wait": "1s"});
        let answer = done(node, Method::POST, &format!("{topic}/claim"), &body).await;
        claimed.extend(answer["messages"].as_array().unwrap().clone());
    }
    claimed
}

pub(crate) async fn settle(node: &Node, topic: &str, how: &str, claimed: &[Value]) {
    let receipts: Vec<&Value> = claimed.iter().map(|message| &message["receipt"]).collect();
    let answer = done(node, Method::POST, &format!("{topic}/{how}"), &json!({ "receipts": receipts })).await;
    let results = answer["results"].as_array().unwrap();
    assert!(results.iter().all(|result| result["outcome"] == "ok"), "{answer}");
}

fn ids(messages: &[Value]) -> BTreeSet<String> {
    messages.iter().map(|message| message["id"].as_str().unwrap().to_owned()).collect()
}

async fn enqueue(node: &Node, topic: &str, names: impl Iterator<Item = String>, delay: &str) {
    let item = |id: String| json!({"id": id, "delay": delay, "payload": {"of": id}, "headers": {"of": id}});
    done(node, Method::POST, &format!("{topic}/messages"), &json!(names.map(item).collect::<Vec<_>>())).await;
}

async fn counts(node: &Node, topic: &str) -> [u64; 3] {
    let topic = done(node, Method::GET, topic, &json!(null)).await;
    ["scheduled", "in_flight", "dead"].map(|count| topic[count].as_u64().unwrap())
}

/// What one version leaves in a folder for the other.
struct LeftBehind {
    topic: String,
    held: Vec<Value>,
    dead: BTreeSet<String>,
    /// Where the version knows bulk plans.
    plan: Option<String>,
}

impl LeftBehind {
    /// Messages in each state, a topic in its second life, and a plan.
    async fn by(node: &Node, topic: &str) -> Self {
        let settings = json!({"shards": 4, "visibility_timeout": "1h", "retry": {"max_attempts": 1}});
        done(node, Method::PUT, topic, &settings).await;
        enqueue(node, topic, (0..MANY).map(|n| format!("later-{n}")), "1h").await;
        enqueue(node, topic, (0..MANY).map(|n| format!("due-{n}")), "0s").await;
        let claimed = claim(node, topic, MANY / 2).await;
        let (held, given_up) = claimed.split_at(MANY / 4);
        settle(node, topic, "nack", given_up).await;
        let slow = format!("{topic}-slow");
        let retry = json!({"max_attempts": 3, "initial": "1h", "max": "1h", "jitter": 0});
        done(node, Method::PUT, &slow, &json!({"shards": 1, "retry": retry})).await;
        enqueue(node, &slow, std::iter::once("tried".to_owned()), "0s").await;
        settle(node, &slow, "nack", &claim(node, &slow, 1).await).await;
        let again = format!("{topic}-again");
        for life in ["first", "second"] {
            done(node, Method::PUT, &again, &json!({"shards": 2})).await;
            enqueue(node, &again, std::iter::once(life.to_owned()), "0s").await;
            if life == "first" {
                done(node, Method::DELETE, &format!("{again}?force=true"), &json!({})).await;
            }
        }
        let plan = json!({"action": "cancel", "prefix": "later-1"});
        let (status, plan) = ask(node, Method::POST, &format!("/v1/topics/{topic}/plans"), &plan).await;
        assert!(status == 201 || plan["code"] == "unknown_route", "{status} {plan}");
        let plan = plan["id"].as_str().map(str::to_owned);
        Self { topic: topic.to_owned(), held: held.to_vec(), dead: ids(given_up), plan }
    }

    /// Whether the plan is there, for a node that knows plans.
    async fn has_its_plan(&self, node: &Node) -> bool {
        let Some(plan) = &self.plan else { return true };
        let (status, answer) =
            ask(node, Method::GET, &format!("/v1/topics/{}/plans/{plan}", self.topic), &json!(null)).await;
        status == 200 && answer["state"] == "planned" || answer["code"] == "unknown_route"
    }

    /// All is there for this node, and each message can be cancelled, moved, claimed, settled and redriven; nothing is left.
    async fn is_whole_for(&self, node: &Node) {
        let topic = self.topic.as_str();
        let quarter = (MANY / 4) as u64;
        assert_eq!(counts(node, topic).await, [6 * quarter, quarter, quarter], "{}", node.output());
        assert!(self.has_its_plan(node).await);
        for n in 0..MANY {
            let path = format!("{topic}/messages/later-{n}");
            let found = done(node, Method::GET, &path, &json!(null)).await;
            assert_eq!(found["payload"], json!({"of": format!("later-{n}")}).to_string(), "{found}");
            let (how, body, outcome) = match n % 2 {
                0 => (Method::DELETE, json!({}), "cancelled"),
                _ => (Method::PATCH, json!({"delay": 0}), "rescheduled"),
            };
            assert_eq!(done(node, how, &path, &body).await["outcome"], outcome);
        }
        let listed = done(node, Method::GET, &format!("{topic}/dead?limit=500"), &json!(null)).await;
        let listed = listed["messages"].as_array().unwrap();
        assert_eq!(ids(listed), self.dead);
        assert!(listed.iter().all(|message| message["death"]["reason"].is_string()), "{listed:?}");
        done(node, Method::POST, &format!("{topic}/dead/redrive"), &json!({"all": true})).await;
        settle(node, topic, "ack", &self.held).await;
        let claimed = claim(node, topic, MANY + MANY / 4).await;
        for message in &claimed {
            let (id, payload) = (&message["id"], message["payload"].as_str().unwrap());
            assert_eq!((payload, &message["headers"]["of"]), (json!({"of": id}).to_string().as_str(), id));
        }
        let held = ids(&self.held);
        let due = (0..MANY).map(|n| format!("due-{n}")).filter(|id| !held.contains(id));
        let moved = (0..MANY).filter(|n| n % 2 == 1).map(|n| format!("later-{n}"));
        assert_eq!(ids(&claimed), due.chain(moved).collect());
        settle(node, topic, "ack", &claimed).await;
        let tried = done(node, Method::GET, &format!("{topic}-slow/messages/tried"), &json!(null)).await;
        assert_eq!(tried["attempts"], 1, "{tried}");
        done(node, Method::PATCH, &format!("{topic}-slow/messages/tried"), &json!({"delay": 0})).await;
        for (below, id) in [("slow", "tried"), ("again", "second")] {
            let below = format!("{topic}-{below}");
            let claimed = claim(node, &below, 1).await;
            assert_eq!(claimed[0]["id"], id);
            settle(node, &below, "ack", &claimed).await;
            assert_eq!(counts(node, &below).await, [0; 3]);
        }
        assert_eq!(counts(node, topic).await, [0; 3]);
    }
}

async fn becomes(node: &mut Node, program: &Path) {
    node.set_program(program);
    node.start_again().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_opened_by_the_release_before_and_by_this_one_in_turn_and_all_in_it_is_there() {
    let Some(older) = older() else { return };
    let mut node = Node::start_embedded(&older, "").await;
    let of_the_older = LeftBehind::by(&node, "by-old").await;
    assert!(node.sigterm(ENDED_WITHIN).await.success(), "{}", node.output());
    becomes(&mut node, Path::new(PROGRAM)).await;
    of_the_older.is_whole_for(&node).await;
    let of_the_newer = LeftBehind::by(&node, "by-new").await;
    assert!(of_the_newer.plan.is_some());
    // As after a crash: the older one reads the newer one's log too.
    node.kill();
    becomes(&mut node, &older).await;
    of_the_newer.is_whole_for(&node).await;
    let by_older_again = LeftBehind::by(&node, "by-old-again").await;
    node.kill();
    becomes(&mut node, Path::new(PROGRAM)).await;
    assert!(of_the_newer.has_its_plan(&node).await);
    by_older_again.is_whole_for(&node).await;
    let ready = ask(&node, Method::GET, "/readyz", &json!(null)).await;
    assert_eq!((ready.0, &ready.1["status"]), (200, &json!("ready")), "{}", node.output());
}
