//! A small load that goes on through a fault, and the check of every message at its end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use duetime_core::store::{ClaimRequest, Enqueue, EnqueueOutcome, Settle, Settled, Settlement, StoreError};
use duetime_core::{
    DeliveryMode, Due, Headers, LeaseClass, MessageId, Nonce, OnConflict, RetryPolicy, Shard, ShardCount, Store,
    Timestamp, TopicConfig, TopicName, TopicRecord,
};
use duetime_testkit::wait::{Because, let_pass};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const SHARDS: u32 = 4;
const PRODUCERS: u64 = 2;
const BATCH: u64 = 8;
/// Longer than any fault here, so that a claim never ends without a verdict.
const VISIBILITY: Duration = Duration::from_secs(60);
/// Long enough that the repetition of an enqueue whose answer was lost comes before the message is
/// delivered: an id is only recognised while it lives.
const DELAY: Duration = Duration::from_millis(3500);
/// Everything is delivered this long after its fault is over.
const DRAINED_WITHIN: Duration = Duration::from_secs(30);

pub fn now() -> Timestamp {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap())
}

#[derive(Default)]
struct Seen {
    /// Acknowledged enqueues: due times.
    scheduled: HashMap<MessageId, Timestamp>,
    /// Deliveries: attempt and moment.
    delivered: HashMap<MessageId, Vec<(u8, Timestamp)>>,
}

/// A small load that goes on through a fault, and the check of every message at its end.
pub struct Load {
    store: Arc<dyn Store>,
    pub shards: Vec<Shard>,
    seen: Arc<Mutex<Seen>>,
    refused_full: Arc<AtomicU64>,
    acked: Arc<AtomicU64>,
    producing: CancellationToken,
    consuming: CancellationToken,
    tasks: JoinSet<()>,
}

/// The same request again, with the store's own patience behind it, until it is answered.
async fn until_answered<T, F: Future<Output = Result<T, StoreError>>>(mut call: impl FnMut() -> F) -> T {
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) if error.is_transient() || matches!(error, StoreError::Full(_)) => {
                let_pass(Duration::from_millis(20), Because::AskedAgain).await;
            }
            Err(error) => panic!("not transient: {error}"),
        }
    }
}

impl Load {
    pub async fn start(store: Arc<dyn Store>) -> Self {
        let topic = TopicName::new("orders").unwrap();
        let config = TopicConfig { shards: ShardCount::Fixed(SHARDS), ..TopicConfig::default() };
        let record = TopicRecord::new(topic.clone(), config, 1, "0123456789abcdef".into(), now());
        let record = store.put_topic(&record, None).await.unwrap();
        let mut load = Self {
            store,
            shards: record.routing.all(&topic).collect(),
            seen: Arc::default(),
            refused_full: Arc::default(),
            acked: Arc::default(),
            producing: CancellationToken::new(),
            consuming: CancellationToken::new(),
            tasks: JoinSet::new(),
        };
        for producer in 0..PRODUCERS {
            let work = load.produce(producer);
            load.tasks.spawn(work);
        }
        for shard in load.shards.clone() {
            let work = load.consume(shard);
            load.tasks.spawn(work);
        }
        // Half a second of load before any fault.
        let_pass(Duration::from_millis(500), Because::Rate).await;
        load
    }

    /// Enqueues refused because the server was full.
    pub fn refused_full(&self) -> u64 {
        self.refused_full.load(Ordering::Relaxed)
    }

    /// Messages acknowledged so far.
    pub fn acked(&self) -> u64 {
        self.acked.load(Ordering::Relaxed)
    }

    fn produce(&self, producer: u64) -> impl Future<Output = ()> + Send + 'static {
        let (store, seen, stop) = (self.store.clone(), self.seen.clone(), self.producing.clone());
        let (shards, refused) = (self.shards.clone(), self.refused_full.clone());
        async move {
            let mut next = 0u64;
            while !stop.is_cancelled() {
                let shard = &shards[usize::try_from(next / BATCH).unwrap() % shards.len()];
                let batch: Vec<Enqueue> = (next..next + BATCH)
                    .map(|number| {
                        let id = format!("order-{producer}-{number}");
                        Enqueue {
                            payload: Bytes::from(format!("payload of {id}")),
                            id: MessageId::new(&id).unwrap(),
                            due: if number % 2 == 0 { Due::In(DELAY) } else { Due::At(now().plus(DELAY)) },
                            headers: Headers::default(),
                            on_conflict: OnConflict::Reject,
                            nonce: Nonce(rand::random()),
                        }
                    })
                    .collect();
                next += BATCH;
                let answers = until_answered(|| async {
                    let answer = store.enqueue(shard, now(), &batch).await;
                    if matches!(answer, Err(StoreError::Full(_))) {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                    answer
                })
                .await;
                for (item, answer) in batch.iter().zip(answers) {
                    assert_eq!(answer.outcome, EnqueueOutcome::Scheduled, "a repetition is no duplicate");
                    seen.lock().scheduled.insert(item.id.clone(), answer.due_at);
                }
                let_pass(Duration::from_millis(5), Because::Rate).await;
            }
        }
    }

    fn consume(&self, shard: Shard) -> impl Future<Output = ()> + Send + 'static {
        let (store, seen, stop) = (self.store.clone(), self.seen.clone(), self.consuming.clone());
        let acked = self.acked.clone();
        async move {
            while !stop.is_cancelled() {
                let ask = ClaimRequest {
                    request: rand::random(),
                    limit: 16,
                    visibility: VISIBILITY,
                    class: LeaseClass::TOPIC,
                    retry: RetryPolicy::default(),
                    delivery: DeliveryMode::AtLeastOnce,
                };
                let claim = until_answered(|| store.claim(&shard, now(), &ask)).await;
                assert_eq!((claim.buried, claim.expired), (0, 0), "no claim ends without a verdict");
                for message in &claim.messages {
                    assert_eq!(message.payload, format!("payload of {}", message.id), "bit for bit");
                    let mut seen = seen.lock();
                    seen.delivered.entry(message.id.clone()).or_default().push((message.attempt, now()));
                }
                let batch: Vec<Settle> = claim
                    .messages
                    .iter()
                    .map(|m| Settle { id: m.id.clone(), score: m.score, how: Settlement::Ack })
                    .collect();
                let outcomes = until_answered(|| store.settle(&shard, now(), &batch)).await;
                assert!(outcomes.iter().all(|outcome| *outcome == Settled::Ok), "an ack whose answer was lost is ok");
                acked.fetch_add(batch.len() as u64, Ordering::Relaxed);
                let_pass(Duration::from_millis(20), Because::Rate).await;
            }
        }
    }

    /// Ends the load once everything is delivered, and checks every message.
    pub async fn check(mut self) {
        // The fault is over: half a second of load after it.
        let_pass(Duration::from_millis(500), Because::Rate).await;
        self.producing.cancel();
        let drained = async {
            loop {
                let surveys = until_answered(|| self.store.counts(&self.shards, now())).await;
                let enqueued = self.tasks.len() <= self.shards.len();
                if enqueued && surveys.iter().all(|s| s.scheduled + s.in_flight + s.dead == 0) {
                    return;
                }
                while self.tasks.try_join_next().is_some_and(|done| {
                    done.expect("no task panics");
                    true
                }) {}
                let_pass(Duration::from_millis(50), Because::AskedAgain).await;
            }
        };
        tokio::time::timeout(DRAINED_WITHIN, drained).await.expect("everything is delivered");
        self.consuming.cancel();
        while let Some(done) = self.tasks.join_next().await {
            done.expect("no task panics");
        }
        let seen = self.seen.lock();
        duetime_testkit::in_time!(seen.scheduled.len() > 100, "there was a load: {}", seen.scheduled.len());
        for (id, due_at) in &seen.scheduled {
            let deliveries = seen.delivered.get(id).unwrap_or_else(|| panic!("{id} was lost"));
            assert_eq!(deliveries.len(), 1, "{id} was delivered {deliveries:?}");
            assert_eq!(deliveries[0].0, 1, "the fault burnt an attempt of {id}");
            assert!(deliveries[0].1 >= *due_at, "{id} was early");
        }
        assert_eq!(seen.delivered.len(), seen.scheduled.len(), "nothing is delivered that was not scheduled");
    }
}
