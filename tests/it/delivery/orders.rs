//! A shop's orders: enqueued, mostly paid (cancelled), some given more time, the rest delivered; all
//! that is seen of it goes into a history.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_client::{Answer as Item, Claim, Client, Nack, Outcome as Answered, Placed};
use duetime_core::{Clock, Due, Timestamp};
use duetime_testkit::history::{Change, FinalState, Left, Outcome, Recorder, Rules, Verdict, What, check, digest};
use duetime_testkit::servers::Node;
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::Answer;
use duetime_testkit::{WallClock, Webhook, in_time};
use parking_lot::Mutex;

/// Orders of each topic.
const ORDERS: usize = 1_500;
/// Items of one request.
const BATCH: usize = 50;
/// One of so many is not paid.
const UNPAID: usize = 20;
/// One of so many unpaid ones is given more time.
const GIVEN_TIME: usize = 5;
/// The first of them is due this long after its enqueue, the last so much later.
const FIRST_DUE_MS: i64 = 1_200;
const SPREAD_MS: i64 = 2_500;
const MORE_TIME_MS: i64 = 1_500;
const VISIBILITY: Duration = Duration::from_secs(5);
const ATTEMPTS: u8 = 8;
const CONSUMERS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(90);

/// Delivered to the webhook, and claimed by consumers.
const TOPICS: [&str; 2] = ["to-webhook", "to-consumers"];

pub(super) fn config(hook: &Webhook) -> String {
    let topic = |name: &str, sink: &str| {
        format!(
            "[topics.{name}]\nshards = 4\nvisibility_timeout = \"{}s\"\n{sink}\
             retry = {{ max_attempts = {ATTEMPTS}, initial = \"50ms\", max = \"500ms\" }}\n\n",
            VISIBILITY.as_secs()
        )
    };
    let sink = format!("[sinks.hook]\ntype = \"http\"\nurl = \"{}\"\nallow = [\"127.0.0.1\"]\n\n", hook.url("/in"));
    sink + &topic(TOPICS[0], "sink = { name = \"hook\" }\n") + &topic(TOPICS[1], "")
}

fn payload_of(topic: &str, id: &str) -> String {
    format!("{{\"close\": \"{id}\", \"of\": \"{topic}\", \"ütf\": \"\\u0000\"}}")
}

/// Fails at first, so that it is tried again.
fn is_stubborn(id: &str) -> bool {
    id.ends_with("00")
}

#[derive(Clone)]
pub(super) struct Run {
    pub recorder: Arc<Recorder>,
    client: Client,
    ended: Arc<AtomicBool>,
}

impl Run {
    /// Has the webhook and the consumers ready.
    pub async fn start(node: &Node, hook: &Webhook) -> Self {
        let recorder = Recorder::new(Arc::new(WallClock));
        let client = Client::new(&node.url(), None).unwrap();
        let at_hook = recorder.clone();
        let failed_once = Mutex::new(HashSet::new());
        hook.answer(move |hit| {
            let (topic, id) = (hit.header("duetime-topic"), hit.header("duetime-id"));
            let attempt: u8 = hit.header("duetime-attempt").parse().unwrap();
            at_hook.note(topic, id, What::Handed { attempt, payload: digest(&hit.body), until_ms: None });
            // By call and not by attempt: the last message of all, which no other follows, is offered again as the
            // same attempt.
            let retry = is_stubborn(id) && failed_once.lock().insert(id.to_owned());
            let outcome = if retry { Outcome::Retry } else { Outcome::Accepted };
            at_hook.note(topic, id, What::Settled { attempt, outcome });
            Answer::status(if retry { 409 } else { 200 })
        });
        let run = Self { recorder, client, ended: Arc::default() };
        for _ in 0..CONSUMERS {
            tokio::spawn(run.clone().consume());
        }
        run
    }

    /// A consumer that outlives the node.
    async fn consume(self) {
        let topic = TOPICS[1];
        let mut done = Vec::new();
        while !self.ended.load(Ordering::Relaxed) {
            let until_ms = Some(WallClock.now().plus(VISIBILITY).as_millis());
            // An ack that is lost with its node is made up for by another delivery.
            let ack = std::mem::take(&mut done);
            let ask = Claim { max: 8, wait: Duration::from_millis(400), ack, ..Claim::default() };
            let Ok(claimed) = self.client.claim(topic, &ask).await else {
                let_pass(Duration::from_millis(50), Because::AskedAgain).await;
                continue;
            };
            let mut failed = Vec::new();
            for message in claimed.messages {
                let (id, attempt) = (message.id.as_str(), message.attempt);
                let payload = digest(&message.payload());
                self.recorder.note(topic, id, What::Handed { attempt, payload, until_ms });
                let retry = attempt == 1 && is_stubborn(id);
                let outcome = if retry { Outcome::Retry } else { Outcome::Accepted };
                self.recorder.note(topic, id, What::Settled { attempt, outcome });
                if retry { failed.push(message.receipt) } else { done.push(message.receipt) }
            }
            if !failed.is_empty() {
                let again = Nack { delay: Some(Duration::from_millis(20)), ..Nack::default() };
                let _ = self.client.nack(topic, &failed, &again).await;
            }
        }
        let _ = self.client.ack(topic, &done).await;
    }

    fn note_all<T>(&self, topic: &str, ids: &[String], answers: Option<&[Item<T>]>, word: impl Fn(&T) -> String) {
        for (n, id) in ids.iter().enumerate() {
            let done = answers.and_then(|answers| answers.get(n)?.done());
            let what = done.map_or(What::Unanswered, |done| What::Answered { outcome: word(done) });
            self.recorder.note(topic, id, what);
        }
    }

    /// All orders of both topics.
    pub async fn enqueue(&self) {
        for from in (0..ORDERS).step_by(BATCH) {
            for topic in TOPICS {
                let ids: Vec<String> = (from..from + BATCH).map(|n| format!("order-{n}")).collect();
                let now = WallClock.now().as_millis();
                let mut messages = Vec::new();
                for id in &ids {
                    let due_at_ms = now + FIRST_DUE_MS + rand::random_range(0..SPREAD_MS);
                    let payload = payload_of(topic, id);
                    let change = Change::Enqueue { due_at_ms, payload: digest(payload.as_bytes()) };
                    self.recorder.note(topic, id, What::Invoked(change));
                    let due = Due::At(Timestamp::from_millis(due_at_ms));
                    messages.push(duetime_client::NewMessage::new(payload).id(id.as_str()).due(due));
                }
                let answers = self.client.enqueue_many(topic, &messages).await.unwrap();
                self.note_all(topic, &ids, Some(&answers), |placed: &Placed| placed.outcome.clone());
            }
        }
    }

    /// Cancels what is paid, and gives a few of the others more time.
    pub async fn change_most(&self) {
        self.clone().change_most_of().await;
    }

    pub async fn change_most_of(self) {
        for from in (0..ORDERS).step_by(BATCH) {
            for topic in TOPICS {
                let (unpaid, paid): (Vec<usize>, Vec<usize>) = (from..from + BATCH).partition(|n| n % UNPAID == 0);
                let ids: Vec<String> = paid.iter().map(|n| format!("order-{n}")).collect();
                for id in &ids {
                    self.recorder.note(topic, id, What::Invoked(Change::Cancel));
                }
                let answers = self.client.cancel_many(topic, &ids).await.ok();
                self.note_all(topic, &ids, answers.as_deref(), |answer: &Answered| answer.outcome.clone());
                for n in unpaid.into_iter().filter(|n| n / UNPAID % GIVEN_TIME == 1) {
                    self.give_time(topic, format!("order-{n}")).await;
                }
            }
            // Payments come in until the first orders are due, and a little longer.
            let_pass(Duration::from_millis(60), Because::Rate).await;
        }
    }

    async fn give_time(&self, topic: &str, id: String) {
        let due_at_ms = WallClock.now().as_millis() + MORE_TIME_MS;
        self.recorder.note(topic, &id, What::Invoked(Change::Reschedule { due_at_ms }));
        let answer = self.client.reschedule(topic, &id, Due::At(Timestamp::from_millis(due_at_ms))).await.ok();
        let what = answer.map_or(What::Unanswered, |answer| What::Answered { outcome: answer.outcome });
        self.recorder.note(topic, &id, what);
    }

    /// Waits until nothing is left to be delivered, and judges.
    pub async fn finish(&self, node: &Node) -> Verdict {
        let end = tokio::time::Instant::now() + PATIENCE;
        for topic in TOPICS {
            loop {
                let told = self.client.topic(topic).await.unwrap();
                if told.scheduled + told.in_flight == 0 {
                    break;
                }
                let output = node.output();
                in_time!(tokio::time::Instant::now() < end, "{topic}: not all is delivered: {told:?}\n{output}");
                let_pass(Duration::from_millis(50), Because::AskedAgain).await;
            }
        }
        self.ended.store(true, Ordering::Relaxed);
        let (mut state, mut counts) = (FinalState::default(), (0, 0, 0));
        for topic in TOPICS {
            let told = self.client.topic(topic).await.unwrap();
            counts = (counts.0 + told.scheduled, counts.1 + told.in_flight, counts.2 + told.dead);
            let page = self.client.dead(topic, None, 100).await.unwrap();
            for message in page.messages {
                state.left.push(Left {
                    topic: topic.to_owned(),
                    id: message.id.clone(),
                    state: "dead".to_owned(),
                    payload: digest(&message.payload()),
                    reason: message.death.map(|death| death.reason),
                });
            }
        }
        state.counts = Some(counts);
        let aftermath_ms = i64::try_from((VISIBILITY * 2).as_millis()).unwrap();
        let history = self.recorder.events();
        let verdict = check(&history, &state, Rules { attempts_max: ATTEMPTS, aftermath_ms });
        assert_eq!(verdict.messages, 2 * ORDERS);
        assert!(verdict.accepted >= 2 * ORDERS / UNPAID, "the unpaid ones are delivered: {verdict}");
        assert_eq!(state.left.len(), 0, "nothing died: {:?}", state.left);
        verdict
    }
}
