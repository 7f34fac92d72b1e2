//! What a node has answered about topics holds from then on, at it and at every other node.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use duetime_testkit::servers::RedisServer;
use duetime_testkit::{in_time, promised, violation};
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::test_node::TestNode;

/// Clients at once.
const CLIENTS: usize = 8;
/// Bytes of a payload that the topic takes only after its change.
const LARGER: usize = 300 << 10;

/// Sets another number of rounds, over all clients.
const ROUNDS_VARIABLE: &str = "DUETIME_TEST_ROUNDS";

fn rounds() -> usize {
    let usual = if violation::is_long() { 10_000 } else { 32 };
    std::env::var(ROUNDS_VARIABLE).map_or(usual, |rounds| rounds.parse().expect("a number of rounds"))
}

/// Nodes of one store, asked in turn.
struct Nodes {
    _redis: Option<RedisServer>,
    nodes: Vec<TestNode>,
    turn: AtomicUsize,
}

impl Nodes {
    async fn embedded() -> Arc<Self> {
        Arc::new(Self { _redis: None, nodes: vec![TestNode::new("").await], turn: AtomicUsize::new(0) })
    }

    async fn of_one_redis() -> Arc<Self> {
        let redis = RedisServer::start().await;
        let nodes = TestNode::sharing(2, &redis, "").await;
        Arc::new(Self { _redis: Some(redis), nodes, turn: AtomicUsize::new(0) })
    }

    async fn ask_node(&self, node: usize, method: &Method, path: &str, body: &Value) -> (u16, Value) {
        let node = &self.nodes[node];
        let (status, answer) = match *method {
            Method::GET => node.get(path).await,
            _ => node.call(method.clone(), path, body.clone()).await,
        };
        (status.as_u16(), answer)
    }

    /// Asks whichever node comes next: requests of one client mostly go to different ones.
    async fn ask(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        // Neither strictly in turn, for then each step of a round would always meet the same node.
        let node = (turn + turn / 7) % self.nodes.len();
        self.ask_node(node, &method, path, &body).await
    }

    /// The whole life of a topic, each step held against the answers before it.
    async fn life_of(&self, topic: &str, round: usize) {
        let path = format!("/v1/topics/{topic}");
        let (messages, forced) = (format!("{path}/messages"), format!("{path}?force=true"));
        let (attempts, fewer) = (json!(2 + round % 90), json!(1 + round % 90));
        let attempts_of = |topic: &Value| topic["retry"]["max_attempts"].clone();
        let step = |what: &str, answer: &(u16, Value), status: u16| {
            // A store that does not answer in time contradicts nobody.
            in_time!(answer.0 != 503, "{topic}, round {round}, {what}: {}", answer.1);
            promised!(answer.0 == status, "{topic}, round {round}, {what}: {} {}, not {status}", answer.0, answer.1);
        };

        let made = self.ask(Method::PUT, &path, json!({"shards": 1, "retry": {"max_attempts": attempts}})).await;
        step("PUT of what is not there", &made, 201);
        let seen = self.ask(Method::GET, &path, json!({})).await;
        step("GET after PUT", &seen, 200);
        promised!(attempts_of(&seen.1) == attempts, "{topic}, round {round}: made with {attempts}, read {}", seen.1);
        step("message after PUT", &self.ask(Method::POST, &messages, json!({"id": "a", "delay": "1h"})).await, 201);

        let change = json!({"retry": {"max_attempts": fewer}, "max_payload": "1MiB"});
        let changed = self.ask(Method::PUT, &path, change).await;
        step("PUT of what is there", &changed, 200);
        promised!(attempts_of(&changed.1) == fewer, "{topic}, round {round}: set {fewer}, answered {}", changed.1);
        let seen = self.ask(Method::GET, &path, json!({})).await;
        step("GET after a change", &seen, 200);
        promised!(attempts_of(&seen.1) == fewer, "{topic}, round {round}: set {fewer}, read {}", seen.1);
        if round.is_multiple_of(8) {
            let larger = json!({"id": "b", "delay": "1h", "payload": "x".repeat(LARGER)});
            step("a larger message after the change", &self.ask(Method::POST, &messages, larger).await, 201);
        }

        step("DELETE of what holds messages", &self.ask(Method::DELETE, &path, json!({})).await, 409);
        step("forced DELETE", &self.ask(Method::DELETE, &forced, json!({})).await, 200);
        step("GET after DELETE", &self.ask(Method::GET, &path, json!({})).await, 404);
        step("message after DELETE", &self.ask(Method::POST, &messages, json!({"id": "c"})).await, 404);
        if round.is_multiple_of(8) {
            step("DELETE after DELETE", &self.ask(Method::DELETE, &path, json!({})).await, 404);
        }
    }
}

async fn lives_of_topics(nodes: Arc<Nodes>) {
    let clients = (0..CLIENTS).map(|client| {
        let nodes = nodes.clone();
        tokio::spawn(async move {
            let topic = format!("topic-{client}");
            for round in 0..rounds().div_ceil(CLIENTS) {
                nodes.life_of(&topic, round).await;
            }
        })
    });
    for client in join_all(clients).await {
        client.unwrap();
    }
}

#[tokio::test]
async fn a_node_never_contradicts_its_answers_about_topics() {
    lives_of_topics(Nodes::embedded().await).await;
}

#[tokio::test]
async fn two_nodes_of_one_redis_never_contradict_each_other_about_topics() {
    lives_of_topics(Nodes::of_one_redis().await).await;
}

/// An acknowledged request: its kind and its status.
type Done = (Method, u16);

/// Whether the requests, all made at once, can have been done in some order that ends so.
fn is_explained(there: bool, done: &[Done], there_after: bool) -> bool {
    let deleted = done.iter().filter(|(method, status)| *method == Method::DELETE && *status == 200).count();
    explained_from(there, done, deleted, there_after)
}

fn explained_from(there: bool, left: &[Done], deleted: usize, there_after: bool) -> bool {
    if left.is_empty() {
        return there == there_after;
    }
    (0..left.len()).any(|at| {
        let mut rest = left.to_vec();
        let (method, status) = rest.remove(at);
        let next = match (method, status) {
            (Method::PUT, 201) if !there => true,
            (Method::PUT, 200) if there => true,
            (Method::DELETE, 200) if there => false,
            // One that finishes what another one has begun says the same.
            (Method::DELETE, 200) if deleted > 1 => there,
            (Method::DELETE, 404) if !there => there,
            // Refused, because others keep changing it.
            (_, 409) => there,
            // Nobody knows whether it was done.
            (Method::PUT, 503) if explained_from(true, &rest, deleted, there_after) => return true,
            (Method::DELETE, 503) if explained_from(false, &rest, deleted, there_after) => return true,
            (_, 503) => there,
            _ => return false,
        };
        explained_from(next, &rest, deleted, there_after)
    })
}

async fn creations_meet_deletions(nodes: Arc<Nodes>) {
    let topics = (0..CLIENTS / 2).map(|number| {
        let nodes = nodes.clone();
        tokio::spawn(async move {
            let (path, mut there) = (format!("/v1/topics/met-{number}"), false);
            let forced = format!("{path}?force=true");
            for round in 0..rounds().div_ceil(CLIENTS / 2) {
                let last = nodes.nodes.len() - 1;
                let asks = [(Method::PUT, 0), (Method::DELETE, last), (Method::PUT, last), (Method::DELETE, 0)];
                let asks = &asks[..2 + round % 3];
                let done = join_all(asks.iter().map(|(method, node)| {
                    let path = if *method == Method::DELETE { &forced } else { &path };
                    let (nodes, body) = (&nodes, json!({"shards": 2, "retry": {"max_attempts": 2 + round % 90}}));
                    async move { (method.clone(), nodes.ask_node(*node, method, path, &body).await.0) }
                }));
                let done = done.await;
                let mut after = Vec::new();
                for node in 0..nodes.nodes.len() {
                    let seen = nodes.ask_node(node, &Method::GET, &path, &json!({})).await.0;
                    let message = json!({"id": format!("{round}-{node}"), "delay": "1h"});
                    let sent = nodes.ask_node(node, &Method::POST, &format!("{path}/messages"), &message).await.0;
                    after.push((seen, sent));
                }
                // A store that does not answer in time contradicts nobody.
                let are_answered = after.iter().all(|(seen, sent)| *seen != 503 && *sent != 503);
                in_time!(are_answered, "{path}, round {round}: {done:?}, then {after:?}");
                let there_after = after[0] == (200, 201);
                let agreed = if there_after { (200, 201) } else { (404, 404) };
                promised!(after.iter().all(|seen| *seen == agreed), "{path}, round {round}: {done:?}, then {after:?}");
                promised!(
                    is_explained(there, &done, there_after),
                    "{path}, round {round}: there before: {there}; {done:?}; there after: {there_after}"
                );
                there = there_after;
            }
        })
    });
    for topic in join_all(topics).await {
        topic.unwrap();
    }
}

#[tokio::test]
async fn creations_and_deletions_of_one_name_at_once_end_as_they_were_answered() {
    creations_meet_deletions(Nodes::embedded().await).await;
}

#[tokio::test]
async fn creations_and_deletions_of_one_name_at_two_nodes_end_as_they_were_answered() {
    creations_meet_deletions(Nodes::of_one_redis().await).await;
}
