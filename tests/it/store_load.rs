//! A load on a store that goes on through a fault, and the history checker's verdict at its end.

use duetime_testkit::at_home::{AllCounted as _, MessagesAtHome as _, SettledAtHome as _};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duetime_core::store::{
    ClaimRequest, Edit, Edited, Enqueue, EnqueueOutcome, Settle, Settled, Settlement, StoreError,
};
use duetime_core::{Clock, Due, RetryPolicy, Role, Shard, Store, Timestamp, TopicRecord};
use duetime_metrics::Meters;
use duetime_store_redis::{RedisStore, RedisStoreConfig};
use duetime_testkit::history::{Change, FaultKind, Outcome, Recorder, Rules, What, check, digest};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::{WallClock, claim_request, plain_message, topic_record};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::left::left;

#[derive(Debug)]
pub struct LoadSettings {
    pub shards: u32,
    /// Between two batches of a shard.
    pub pace: Duration,
    /// From the enqueue to the due time.
    pub delay: Duration,
    /// Longer than any fault, so that a claim ends without a verdict only when it is lost.
    pub visibility: Duration,
    /// Everything is delivered this long after its fault is over.
    pub drained_within: Duration,
    /// Nothing that is answered can be lost: each message is claimed once, and each ack is one.
    pub is_durable: bool,
}

/// Of one server that keeps what it answers.
pub const ONE_SERVER: LoadSettings = LoadSettings {
    shards: 4,
    pace: Duration::from_millis(10),
    // Long enough that the repetition of an enqueue whose answer was lost comes before the message is delivered: an id is
    // only recognised while it lives.
    delay: Duration::from_millis(3500),
    visibility: Duration::from_secs(60),
    drained_within: Duration::from_secs(30),
    is_durable: true,
};

/// One batch in so many is cancelled as soon as it is scheduled.
const CANCELLED: u64 = 4;
const BATCH: u64 = 8;
pub const TOPIC: &str = "orders";

pub fn now() -> Timestamp {
    WallClock.now()
}

/// What an enqueue must have reached for its answer to count.
const REPLICAS: u32 = 1;

/// A load that goes on through a fault, and the history checker's verdict at its end.
pub struct StoreLoad {
    store: Arc<dyn Store>,
    settings: &'static LoadSettings,
    pub shards: Vec<Shard>,
    pub history: Arc<Recorder>,
    /// The longest that a message of each shard came after its due time.
    latest: Arc<Mutex<HashMap<u32, Duration>>>,
    refused_full: Arc<AtomicU64>,
    acked: Arc<AtomicU64>,
    producing: CancellationToken,
    consuming: CancellationToken,
    producer: JoinSet<()>,
    consumers: JoinSet<()>,
}

/// The same request again until it is answered.
pub async fn until_answered<T, F: Future<Output = Result<T, StoreError>>>(mut call: impl FnMut() -> F) -> T {
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) if error.is_transient() => let_pass(Duration::from_millis(20), Because::AskedAgain).await,
            Err(error) => panic!("not transient: {error}"),
        }
    }
}

pub fn record(topic: &str, shards: u32) -> TopicRecord {
    topic_record(topic, shards, now())
}

/// A store on the Redis at this address, with what it has by default.
pub async fn connect(url: String) -> Arc<RedisStore> {
    let config = RedisStoreConfig { url: url.into(), ..RedisStoreConfig::default() };
    RedisStore::connect(config, Arc::new(Meters::new())).await.unwrap()
}

pub fn message(name: &str, delay: Duration) -> Enqueue {
    Enqueue {
        payload: format!("payload of {name}").into_bytes().into(),
        ..plain_message(name, Due::At(now().plus(delay)))
    }
}

impl StoreLoad {
    pub async fn start(store: Arc<dyn Store>, settings: &'static LoadSettings) -> Self {
        let record = record(TOPIC, settings.shards);
        let record = store.put_topic(&record, None).await.unwrap();
        let mut load = Self {
            store,
            settings,
            shards: record.routing.all(&record.name).collect(),
            history: Recorder::new(Arc::new(WallClock)),
            latest: Arc::default(),
            refused_full: Arc::default(),
            acked: Arc::default(),
            producing: CancellationToken::new(),
            consuming: CancellationToken::new(),
            producer: JoinSet::new(),
            consumers: JoinSet::new(),
        };
        for shard in load.shards.clone() {
            load.producer.spawn(load.produce(shard.clone()));
            load.consumers.spawn(load.consume(shard));
        }
        let_pass(Duration::from_millis(500), Because::Rate).await;
        load
    }

    /// Enqueues refused because the server was full.
    pub fn refused_full(&self) -> u64 {
        self.refused_full.load(Ordering::Relaxed)
    }

    pub fn acked(&self) -> u64 {
        self.acked.load(Ordering::Relaxed)
    }

    /// Each shard has a producer of its own: one that waits for its master stops no other.
    fn produce(&self, shard: Shard) -> impl Future<Output = ()> + Send + 'static {
        let (store, history, stop) = (self.store.clone(), self.history.clone(), self.producing.clone());
        let (settings, refused) = (self.settings, self.refused_full.clone());
        async move {
            for round in 0u64.. {
                if stop.is_cancelled() {
                    return;
                }
                let names = (0..BATCH).map(|n| format!("order-{}-{round}-{n}", shard.index));
                let mut batch: Vec<Enqueue> = names.map(|name| message(&name, settings.delay)).collect();
                for (n, item) in batch.iter_mut().enumerate() {
                    let Due::At(at) = item.due else { unreachable!("made above") };
                    if n % 2 == 0 {
                        // By the server's clock, which is ours: a little later.
                        item.due = Due::In(settings.delay);
                    }
                    let payload = digest(&item.payload);
                    let change = Change::Enqueue { due_at_ms: at.as_millis(), payload };
                    history.note(TOPIC, item.id.as_str(), What::Invoked(change));
                }
                let answers = until_answered(|| async {
                    match store.enqueue(&shard, now(), &batch).await {
                        Err(full @ StoreError::Full(_)) if settings.is_durable => {
                            refused.fetch_add(1, Ordering::Relaxed);
                            Err(StoreError::Unavailable { doing: "wait for space", source: full.into() })
                        }
                        answer => answer,
                    }
                })
                .await;
                for (item, answer) in batch.iter().zip(answers) {
                    assert_ne!(answer.outcome, EnqueueOutcome::Duplicate, "a repetition is no duplicate");
                    assert!(
                        answer.outcome == EnqueueOutcome::Scheduled || !settings.is_durable,
                        "{:?}",
                        answer.outcome
                    );
                    // Without a replica that has it, it may be lost with its master.
                    let safe = answer.replicas.is_none_or(|reached| reached >= REPLICAS);
                    let answered = What::Answered { outcome: "scheduled".to_owned() };
                    history.note(TOPIC, item.id.as_str(), if safe { answered } else { What::Unanswered });
                }
                if round % CANCELLED == 0 {
                    let edits: Vec<Edit> = batch.iter().map(|item| Edit::Cancel(item.id.clone())).collect();
                    for item in &batch {
                        history.note(TOPIC, item.id.as_str(), What::Invoked(Change::Cancel));
                    }
                    let mut calls = 0;
                    let kept = until_answered(|| {
                        calls += 1;
                        store.edit_at(&shard, Role::Home, now(), &edits)
                    })
                    .await
                    .finals()
                    .unwrap();
                    let safe = calls == 1 && kept.replicas.is_none_or(|reached| reached >= REPLICAS);
                    for (item, answer) in batch.iter().zip(kept.answers) {
                        let outcome = match answer {
                            Edited::Cancelled => "cancelled",
                            Edited::InFlight => "in_flight",
                            Edited::Unknown => "unknown",
                            other => panic!("{other:?}"),
                        };
                        // A second call may find what the first did, and what no replica has may be lost.
                        let answered = What::Answered { outcome: outcome.to_owned() };
                        history.note(TOPIC, item.id.as_str(), if safe { answered } else { What::Unanswered });
                    }
                }
                let_pass(settings.pace, Because::Rate).await;
            }
        }
    }

    fn consume(&self, shard: Shard) -> impl Future<Output = ()> + Send + 'static {
        let (store, history, stop) = (self.store.clone(), self.history.clone(), self.consuming.clone());
        let (settings, latest, acked) = (self.settings, self.latest.clone(), self.acked.clone());
        async move {
            while !stop.is_cancelled() {
                let ask = ClaimRequest { visibility: settings.visibility, ..claim_request(16) };
                let claim = until_answered(|| store.claim(&shard, now(), &ask)).await;
                if settings.is_durable {
                    assert_eq!((claim.buried, claim.expired), (0, 0), "no claim ends without a verdict");
                }
                let mut batch = Vec::with_capacity(claim.messages.len());
                for message in &claim.messages {
                    assert!(now() >= message.due_at, "{} is early", message.id);
                    assert!(
                        message.attempt == 1 || !settings.is_durable,
                        "the fault took an attempt of {}",
                        message.id
                    );
                    let late = Duration::from_millis(
                        u64::try_from(now().as_millis() - message.due_at.as_millis()).unwrap_or(0),
                    );
                    let mut latest = latest.lock();
                    let known = latest.entry(shard.index).or_default();
                    *known = late.max(*known);
                    // How long a claim holds is not known: a failover may lose it.
                    let (attempt, payload) = (message.attempt, digest(&message.payload));
                    history.note(TOPIC, message.id.as_str(), What::Handed { attempt, payload, until_ms: None });
                    let taken = What::Settled { attempt, outcome: Outcome::Accepted };
                    history.note(TOPIC, message.id.as_str(), taken);
                    batch.push(Settle { id: message.id.clone(), score: message.score, action: Settlement::Ack });
                }
                let settled = until_answered(|| store.settle(&shard, now(), &batch)).await;
                if settings.is_durable {
                    assert!(settled.iter().all(|one| *one == Settled::Ok), "an ack whose answer was lost is ok");
                }
                acked.fetch_add(batch.len() as u64, Ordering::Relaxed);
                let_pass(Duration::from_millis(20), Because::Rate).await;
            }
        }
    }

    pub fn forget_lateness(&self) {
        self.latest.lock().clear();
    }

    /// How late the latest message of these shards was.
    pub fn latest(&self, is: impl Fn(u32) -> bool) -> Option<Duration> {
        self.latest.lock().iter().filter(|(index, _)| is(**index)).map(|(_, late)| *late).max()
    }

    /// Runs a fault that may lose a claim or an ack, so that it explains a duplicate.
    pub async fn through(&self, fault: impl Future<Output = ()>) {
        self.history.fault_begins(FaultKind::StoreStopped);
        fault.await;
        self.history.fault_ends(FaultKind::StoreStopped);
    }

    /// Ends the load once everything is delivered, and has the history judged.
    pub async fn check(mut self) {
        // The fault is over: a while of load after it.
        let_pass(Duration::from_secs(1), Because::Rate).await;
        self.producing.cancel();
        let drained = async {
            while let Some(done) = self.producer.join_next().await {
                done.expect("no producer panics");
            }
            loop {
                let surveys = until_answered(|| self.store.all_counts(&self.shards, now())).await;
                if surveys.iter().all(|survey| survey.scheduled + survey.in_flight + survey.dead == 0) {
                    return;
                }
                let_pass(Duration::from_millis(50), Because::AskedAgain).await;
            }
        };
        tokio::time::timeout(self.settings.drained_within, drained).await.expect("everything is delivered");
        self.consuming.cancel();
        while let Some(done) = self.consumers.join_next().await {
            done.expect("no consumer panics");
        }
        let state = left(&*self.store).await;
        let aftermath_ms = i64::try_from(self.settings.visibility.as_millis()).unwrap() + 5000;
        let attempts_max = RetryPolicy::default().max_attempts;
        let verdict = check(&self.history.events(), &state, Rules { attempts_max, aftermath_ms });
        verdict.assert_good();
        // Where no replica is left each answer waits a second for one.
        let least = if self.settings.is_durable { 100 } else { 50 };
        duetime_testkit::in_time!(verdict.accepted > least, "there was a load: {verdict}");
    }
}
