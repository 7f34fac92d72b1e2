//! Messages that come in while something happens to the nodes, and what was answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use duetime_client::{Client, NewMessage};
use duetime_core::{Clock, Due, MessageId, Timestamp, routing};
use duetime_testkit::WallClock;
use duetime_testkit::history::{Change, Recorder, What, digest};
use duetime_testkit::wait::{Because, let_pass};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::cluster::{Arrivals, SHARDS, TOPIC};

/// Items of one request.
const BATCH: usize = 8;
/// The pause between two requests of one producer for all shards, and of one for each.
const EVERY: Duration = Duration::from_millis(40);
const EVERY_SHARD: Duration = Duration::from_millis(400);
/// Messages fall due this long after their enqueue, at least and at most.
const DUE_IN_MS: std::ops::Range<i64> = 300..1_500;
/// A producer waits no longer for one answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Messages that come in while something happens to the nodes, and what was answered.
#[derive(Default)]
pub struct Load {
    /// Each shard has its own producer.
    pub by_shard: bool,
    ended: Arc<AtomicBool>,
    producers: JoinSet<usize>,
}

/// The seed of the topic's hash, which is drawn when it is created. One test is one process.
static SEED: AtomicU32 = AtomicU32::new(0);

/// Learns the seed from a node.
pub async fn learn_seed(client: &Client) {
    SEED.store(client.shards(TOPIC).await.unwrap().seed.expect("an admin sees it"), Ordering::Relaxed);
}

/// The shard of a message of these tests.
pub fn shard_of(id: &str) -> u32 {
    shard_in(SEED.load(Ordering::Relaxed), id)
}

/// The shard of a message of a topic whose hash has this seed, if it has as many.
pub fn shard_in(seed: u32, id: &str) -> u32 {
    routing::shard_of(&MessageId::new(id).unwrap(), seed, SHARDS)
}

impl Load {
    pub fn begin(
        &mut self,
        clients: &[Client],
        up: &Arc<Mutex<Vec<bool>>>,
        recorder: Arc<Recorder>,
        arrivals: Arc<Mutex<Arrivals>>,
        replicas: u32,
    ) {
        let parts: Vec<Option<u32>> = if self.by_shard { (0..SHARDS).map(Some).collect() } else { vec![None] };
        for part in parts {
            let producer = Producer {
                part,
                clients: clients.to_vec(),
                up: up.clone(),
                ended: self.ended.clone(),
                recorder: recorder.clone(),
                arrivals: arrivals.clone(),
                replicas,
            };
            self.producers.spawn(producer.run());
        }
    }

    /// Ends it; answers how many messages there were.
    pub async fn end(&mut self) -> usize {
        self.ended.store(true, Ordering::Relaxed);
        let mut sent = 0;
        while let Some(done) = self.producers.join_next().await {
            sent += done.unwrap();
        }
        sent
    }
}

struct Producer {
    /// The only shard it sends to.
    part: Option<u32>,
    clients: Vec<Client>,
    up: Arc<Mutex<Vec<bool>>>,
    ended: Arc<AtomicBool>,
    recorder: Arc<Recorder>,
    arrivals: Arc<Mutex<Arrivals>>,
    /// With fewer that have it, a message may be lost with its server.
    replicas: u32,
}

impl Producer {
    async fn run(self) -> usize {
        let name = self.part.map_or("all".to_owned(), |shard| shard.to_string());
        let wanted = |id: &String| self.part.is_none_or(|shard| shard_of(id) == shard);
        let mut names = (0..).map(|n| format!("o-{name}-{n}")).filter(wanted);
        let every = if self.part.is_some() { EVERY_SHARD } else { EVERY };
        let mut sent = 0;
        for turn in 0_usize.. {
            if self.ended.load(Ordering::Relaxed) {
                break;
            }
            let_pass(every, Because::Rate).await;
            let live: Vec<usize> = (0..self.clients.len()).filter(|n| self.up.lock()[*n]).collect();
            if live.is_empty() {
                continue;
            }
            let ids: Vec<String> = names.by_ref().take(BATCH).collect();
            sent += ids.len();
            self.send(&self.clients[live[turn % live.len()]], &ids).await;
        }
        sent
    }

    async fn send(&self, client: &Client, ids: &[String]) {
        let mut messages = Vec::new();
        for id in ids {
            let payload = format!("close order {id}");
            let due_at_ms = WallClock.now().as_millis() + rand::random_range(DUE_IN_MS);
            let change = Change::Enqueue { due_at_ms, payload: digest(payload.as_bytes()) };
            self.recorder.note(TOPIC, id, What::Invoked(change));
            self.arrivals.lock().due_at.insert(id.clone(), due_at_ms);
            let due = Due::At(Timestamp::from_millis(due_at_ms));
            messages.push(NewMessage::new(payload).id(id.as_str()).due(due));
        }
        let call = client.enqueue_many(TOPIC, &messages);
        let answers = tokio::time::timeout(ANSWER_WITHIN, call).await.ok().and_then(Result::ok);
        for (n, id) in ids.iter().enumerate() {
            let placed = answers.as_ref().and_then(|answers| answers.get(n)?.done());
            let safe = placed.filter(|placed| placed.replicas.unwrap_or(0) >= self.replicas);
            let outcome = safe.map(|placed| placed.outcome.clone());
            if outcome.is_none() {
                // Nobody waits for what may never have been written.
                self.arrivals.lock().due_at.remove(id);
            }
            let what = outcome.map_or(What::Unanswered, |outcome| What::Answered { outcome });
            self.recorder.note(TOPIC, id, what);
        }
    }
}
