//! The client for Rust: what it sends again, and how its workers keep, lose and give back messages.

mod retries;
mod rig;
mod traces;
mod vectors;
mod workers;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use duetime_client::{Claim, ClaimedMessage, Client, ConsumeOptions, ConsumerEvent, Due, NewMessage};
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

/// The node answers a watermark that is waited for later than anything else.
#[tokio::test(flavor = "multi_thread")]
async fn a_watermark_is_waited_for_longer_than_another_answer() {
    let node = Node::start_embedded(PROGRAM, "").await;
    done(&node, Method::PUT, "bills", &json!({"shards": 1, "watermark": true})).await;
    let client = Client::new(&node.url(), None).unwrap();
    let placed = client.enqueue("bills", &NewMessage::new("x").due(Due::In(Duration::ZERO))).await.unwrap();
    let due_at = placed.due_at.unwrap();
    let hurried = client.clone().timeout(Duration::from_millis(500));
    let held = hurried.watermark("bills", Some(due_at + 1), VISIBILITY).await.expect("it is not cut short");
    assert_eq!((held.watermark, held.reached), (due_at, Some(false)), "the message is not done: {held:?}");
    let waiting = tokio::spawn(async move { hurried.watermark("bills", Some(due_at + 1), PATIENCE).await });
    let claimed = client.claim("bills", &Claim { wait: PATIENCE, ..Claim::default() }).await.unwrap();
    client.ack("bills", &[claimed.messages[0].receipt.clone()]).await.unwrap();
    let reached = waiting.await.unwrap().unwrap();
    assert_eq!(reached.reached, Some(true), "{reached:?}");
}
