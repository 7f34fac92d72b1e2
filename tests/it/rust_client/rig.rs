//! A node, a proxy with faults before it, and a client of each: what the tests of the client for Rust share.

use std::sync::Arc;
use std::time::Duration;

use duetime_client::{
    ClaimedMessage, Client, ClientError, ConsumeOptions, ConsumerEvent, Due, Handled, NewMessage, Topic,
};
use duetime_testkit::servers::{Fault, HttpProxy, Node, Seen};
use duetime_testkit::wait::{Because, let_pass};
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::PATIENCE;
use crate::test_node::done;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
pub(super) const LATER: Due = Due::In(Duration::from_secs(3600));
pub(super) const TOPIC: &str = "orders";

/// What a list of a test is kept in, which its handlers fill.
pub(super) type List<T> = Arc<Mutex<Vec<T>>>;

/// A node without proxy, for what needs none.
pub(super) async fn node() -> Node {
    // So that a test need not wait for the end of a resize.
    Node::start_embedded(PROGRAM, "[resize]\nleave_due_within = \"0s\"\n").await
}

pub(super) fn message(id: impl Into<String>) -> NewMessage {
    NewMessage::new("x").id(id)
}

/// An answer of a node that is busy.
pub(super) fn busy() -> Fault {
    let body = json!({"code": "busy", "detail": "come back", "status": 503, "retryable": true});
    answer(503, &[("content-type", "application/problem+json"), ("retry-after", "0")], body)
}

pub(super) fn answer(status: u16, headers: &[(&str, &str)], body: Value) -> Fault {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Fault::Answer { status, headers, body }
}

pub(super) struct Rig {
    pub(super) node: Node,
    pub(super) proxy: HttpProxy,
    /// Behind the proxy, with retries.
    pub(super) client: Client,
    /// Past the proxy.
    pub(super) beside: Client,
}

impl Rig {
    pub(super) async fn new() -> Self {
        let node = node().await;
        let proxy = HttpProxy::before(&node.url()).await;
        let client = |url: &str| Client::new(url, None).unwrap().retrying(PATIENCE);
        let (client, beside) = (client(&proxy.url()), client(&node.url()));
        Self { node, proxy, client, beside }
    }

    /// The same with a topic, and with so many messages that are due.
    pub(super) async fn made(count: usize, settings: Value) -> Self {
        let rig = Self::new().await;
        let mut topic = json!({"shards": 2, "retry": {"initial": "100ms", "jitter": 0}});
        topic.as_object_mut().unwrap().extend(settings.as_object().cloned().unwrap_or_default());
        done(&rig.node, Method::PUT, TOPIC, &topic).await;
        let messages: Vec<NewMessage> = (0..count).map(|n| message(format!("m-{n}"))).collect();
        if count > 0 {
            rig.beside.enqueue_many(TOPIC, &messages).await.unwrap();
        }
        rig
    }

    /// Does something to the next POST whose path has this in it.
    pub(super) fn fault(&self, path: &str, fault: Fault) {
        self.proxy.fault(Method::POST, path, fault, 1);
    }

    pub(super) fn requests(&self, path: &str) -> Vec<Seen> {
        self.proxy.seen(path)
    }

    /// Waits until the proxy saw so many requests whose path has this in it, for handlers.
    pub(super) async fn until_sent(&self, path: &str, count: usize) {
        while self.requests(path).len() < count {
            let_pass(Duration::from_millis(20), Because::AskedAgain).await;
        }
    }

    /// The receipts in the requests that the proxy saw.
    pub(super) fn receipts(&self, path: &str) -> Vec<String> {
        self.requests(path).iter().flat_map(receipts_of).collect()
    }

    pub(super) async fn topic(&self) -> Topic {
        self.beside.topic(TOPIC).await.unwrap()
    }

    pub(super) async fn is_empty(&self) -> bool {
        let topic = self.topic().await;
        topic.scheduled + topic.in_flight + topic.dead == 0
    }

    /// The message, past the proxy.
    pub(super) async fn find(&self, id: &str) -> Option<duetime_client::Message> {
        self.beside.message(TOPIC, id).await.ok()
    }

    /// A worker behind the proxy.
    pub(super) fn consume<F, R>(
        &self,
        options: ConsumeOptions,
        handler: impl Fn(ClaimedMessage) -> F + Send + Sync + 'static,
    ) -> Running
    where
        F: Future<Output = R> + Send + 'static,
        R: Into<Handled> + Send + 'static,
    {
        let (stop, events) = (Arc::new(Notify::new()), List::default());
        let (client, stopped, told) = (self.client.clone(), stop.clone(), events.clone());
        let options = ConsumeOptions { on_event: Some(Arc::new(move |event| told.lock().push(event))), ..options };
        let task = tokio::spawn(async move { client.consume(TOPIC, options, stopped.notified(), handler).await });
        Running { stop, events, task }
    }
}

pub(super) fn receipts_of(seen: &Seen) -> Vec<String> {
    let body = seen.json();
    let all = ["receipts", "ack"].map(|name| body[name].as_array().cloned().unwrap_or_default());
    all.concat().iter().filter_map(|one| Some(one.as_str()?.to_owned())).collect()
}

/// A worker whose claims wait for a second.
pub(super) fn quick() -> ConsumeOptions {
    ConsumeOptions { wait: Duration::from_secs(1), ..ConsumeOptions::default() }
}

pub(super) struct Running {
    pub(super) stop: Arc<Notify>,
    pub(super) events: List<ConsumerEvent>,
    pub(super) task: JoinHandle<Result<(), ClientError>>,
}

impl Running {
    pub(super) async fn stop(self) {
        self.stop.notify_one();
        self.end().await;
    }

    /// Waits for the end of one that is stopped.
    pub(super) async fn end(self) {
        tokio::time::timeout(PATIENCE, self.task).await.expect("it ends").unwrap().unwrap();
    }

    /// How messages were lost, in order.
    pub(super) fn lost(&self) -> Vec<String> {
        let outcome = |event: &ConsumerEvent| match event {
            ConsumerEvent::Lost { outcome, .. } => Some(outcome.clone()),
            ConsumerEvent::Failed { .. } => None,
        };
        self.events.lock().iter().filter_map(outcome).collect()
    }
}
