//! The client for Rust: what it sends again, and how its workers keep, lose and give back messages.

mod retries;
mod rig;
mod traces;
mod vectors;
mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use duetime_client::{ClaimedMessage, Client, ConsumeOptions, ConsumerEvent, Due, Handled, NewMessage};
use duetime_testkit::servers::Node;
use duetime_testkit::wait::{Because, let_pass};
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

use crate::test_node::done;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const PATIENCE: Duration = Duration::from_secs(60);
const VISIBILITY: Duration = Duration::from_secs(2);
/// Messages of a worker whose node is killed and whose topic is resized meanwhile.
const MESSAGES: usize = 300;
const CONCURRENCY: usize = 16;

fn client(node: &Node) -> Client {
    Client::new(&node.url(), None).unwrap().retrying(PATIENCE)
}

async fn seen(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_so().await {
            let_pass(Duration::from_millis(20), Because::AskedAgain).await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, wait).await;
    duetime_testkit::in_time!(in_time.is_ok(), "not seen: {what}");
}

/// Sees to it that it is known when a handler is dropped.
struct OnDrop(Option<oneshot::Sender<()>>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.take().map(|to| to.send(()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lost_its_node_is_sent_again_and_done_once() {
    let mut node = Node::start_embedded(PROGRAM, "").await;
    done(&node, Method::PUT, "orders", &json!({"shards": 2})).await;
    let client = client(&node);
    node.kill();
    let asked = tokio::spawn({
        let client = client.clone();
        async move {
            let nameless = NewMessage::new("x").due(Due::In(Duration::from_secs(1800)));
            let one = client.enqueue("orders", &nameless).await.unwrap();
            let bad = NewMessage::new("x").id("a".repeat(5_000));
            let many = client.enqueue_many("orders", &[nameless.clone().id("a"), bad, nameless.id("a")]).await.unwrap();
            let many: Vec<String> = many.iter().map(|one| serde_json::to_string(one).unwrap()).collect();
            (one, many, client.cancel("orders", "a").await.unwrap())
        }
    });
    node.start_again().await;
    let (one, many, cancelled) = asked.await.unwrap();
    assert_eq!((&*one.outcome, one.id.len(), &*cancelled.outcome), ("scheduled", 32, "cancelled"));
    assert!(many[0].contains("scheduled") && many[2].contains("duplicate"), "{many:?}");
    assert!(many[1].contains("\"field\":\"id\"") && many[1].contains("\"index\":1"), "{many:?}");
    assert_eq!(done(&node, Method::GET, "orders", &Value::Null).await["scheduled"], 1);

    let impatient = Client::new("http://127.0.0.1:1", None).unwrap();
    assert!(impatient.cancel("orders", "a").await.unwrap_err().is_passing());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_handles_all_messages_through_the_end_of_its_node_and_a_resize() {
    let mut node = Node::start_embedded(PROGRAM, "").await;
    let topic = json!({"shards": 3, "retry": {"max_attempts": 5, "initial": "20ms"}});
    done(&node, Method::PUT, "orders", &topic).await;
    let client = client(&node);
    let message = |n: usize| {
        let due = Due::In(Duration::from_millis(10 * n as u64));
        NewMessage::new("x").id(format!("m{n}")).due(due)
    };
    let messages: Vec<NewMessage> = (0..MESSAGES).map(message).collect();
    client.enqueue_many("orders", &messages).await.unwrap();
    let (handled, stop) = (Arc::new(Mutex::new(BTreeMap::<String, usize>::new())), Arc::new(Notify::new()));
    let worker = tokio::spawn({
        let (client, handled, stop) = (client.clone(), handled.clone(), stop.clone());
        async move {
            let options =
                ConsumeOptions { concurrency: CONCURRENCY, visibility: VISIBILITY, ..ConsumeOptions::default() };
            let handle = |message: ClaimedMessage| {
                let handled = handled.clone();
                async move {
                    let id = message.id.clone();
                    match (&*id, message.attempt) {
                        // Longer than its claim lasts.
                        ("m7", _) => let_pass(VISIBILITY * 2, Because::Rate).await,
                        ("m8", 1) => return Handled::Again { delay: None, reason: None },
                        ("m9", _) => return Handled::Dead { reason: "no such order".to_owned() },
                        ("m10", 1) => panic!("a handler may panic"),
                        _ => let_pass(Duration::from_millis(20), Because::Rate).await,
                    }
                    *handled.lock().entry(id).or_default() += 1;
                    Handled::Done
                }
            };
            client.consume("orders", options, stop.notified(), handle).await
        }
    });
    seen("half of them", async || handled.lock().len() > MESSAGES / 3).await;
    node.kill();
    node.start_again().await;
    done(&node, Method::PUT, "orders", &json!({"shards": 7})).await;
    seen("all of them", async || handled.lock().len() == MESSAGES - 1).await;
    stop.notify_one();
    worker.await.unwrap().unwrap();
    let topic = done(&node, Method::GET, "orders", &Value::Null).await;
    assert_eq!(
        (&topic["scheduled"], &topic["in_flight"], &topic["dead"]),
        (&json!(0), &json!(0), &json!(1)),
        "{topic}"
    );
    let twice = handled.lock().values().filter(|times| **times > 1).count();
    // What was claimed by a request whose answer the end of the node took.
    assert!(twice <= CONCURRENCY, "{twice}");
    assert_eq!(handled.lock()["m7"], 1, "its claim was kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_whose_message_is_cancelled_is_dropped_and_a_stop_gives_back_what_it_held() {
    let node = Node::start_embedded(PROGRAM, "").await;
    done(&node, Method::PUT, "orders", &json!({"shards": 1})).await;
    let client = client(&node);
    for id in ["cancelled", "held"] {
        client.enqueue("orders", &NewMessage::new("x").id(id).due(Due::In(Duration::ZERO))).await.unwrap();
    }
    let (stop, begun, events) =
        (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (dropped, when_dropped) = oneshot::channel();
    let dropped = Arc::new(Mutex::new(Some(dropped)));
    let worker = tokio::spawn({
        let (client, stop, begun, events) = (client.clone(), stop.clone(), begun.clone(), events.clone());
        async move {
            let options = ConsumeOptions {
                visibility: VISIBILITY,
                wait: Duration::from_millis(200),
                grace: Duration::from_millis(300),
                on_event: Some(Arc::new(move |event| events.lock().push(event))),
                ..ConsumeOptions::default()
            };
            let handle = |message: ClaimedMessage| {
                let (begun, dropped) = (begun.clone(), dropped.clone());
                async move {
                    let _tells = OnDrop(if message.id == "cancelled" { dropped.lock().take() } else { None });
                    begun.fetch_add(1, Ordering::Relaxed);
                    std::future::pending::<()>().await;
                }
            };
            client.consume("orders", options, stop.notified(), handle).await
        }
    });
    seen("both begun", async || begun.load(Ordering::Relaxed) == 2).await;
    assert_eq!(client.cancel("orders", "cancelled").await.unwrap().outcome, "in_flight");
    tokio::time::timeout(PATIENCE, when_dropped).await.expect("the handler is dropped").unwrap();
    let lost = |event: &ConsumerEvent| matches!(event, ConsumerEvent::Lost { id, outcome } if id == "cancelled" && outcome == "cancelled");
    seen("the loss is told", async || events.lock().iter().any(lost)).await;
    stop.notify_one();
    worker.await.unwrap().unwrap();
    let topic = done(&node, Method::GET, "orders", &Value::Null).await;
    assert_eq!((&topic["due"], &topic["in_flight"]), (&json!(1), &json!(0)), "it is due at once: {topic}");
    assert_eq!(done(&node, Method::GET, "orders/messages/held", &Value::Null).await["attempts"], 0);
    let gone = client.consume("nope", ConsumeOptions::default(), std::future::pending(), |_| async {}).await;
    assert_eq!(gone.unwrap_err().problem().unwrap().code, "unknown_topic");
}
