//! Doubles named after their fault.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::contract::no_streams;
use duetime_core::ownership::Demand;
use duetime_core::store::{AckWait, BatchReply, Claim, ClaimRequest, Settle, Settled, ShardCounts, Wakeup};
use duetime_core::{
    BindError, ClaimStore, ClusterNodes, Delivery, Lookup, OwnedShards, Ownership, Role, ScheduleStore, ServerId,
    Shard, Sink, SinkBinder, SinkRef, StoreError, StreamTransfer, Streamed, Timestamp, TopicName, Verdict,
};
use duetime_small_store::SmallStore;
use duetime_testkit::TokioClock;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};

const START: Timestamp = Timestamp::from_millis(1_763_700_000_000);

type Behaviour = Box<dyn Fn(Vec<Delivery>) -> BoxFuture<'static, Vec<Verdict>> + Send + Sync>;

/// A sink that remembers what it was given and answers what the test has set.
pub struct TestSink {
    pub batch_max: usize,
    pub calls_max: usize,
    pub calls: Mutex<Vec<Vec<Delivery>>>,
    pub at_once: AtomicUsize,
    pub most_at_once: AtomicUsize,
    behaviour: Mutex<Arc<Behaviour>>,
}

impl fmt::Debug for TestSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestSink")
    }
}

impl TestSink {
    pub fn new(calls_max: usize, batch_max: usize) -> Arc<Self> {
        Arc::new(Self {
            batch_max,
            calls_max,
            calls: Mutex::default(),
            at_once: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
            behaviour: Mutex::new(Arc::new(each(|_| Verdict::Accepted))),
        })
    }

    pub fn behave(&self, behaviour: Behaviour) {
        *self.behaviour.lock() = Arc::new(behaviour);
    }

    /// Ids in the order they were handed over.
    pub fn ids(&self) -> Vec<String> {
        self.calls.lock().iter().flatten().map(|delivery| delivery.id.to_string()).collect()
    }

    /// How often each id was handed over.
    pub fn times(&self) -> HashMap<String, usize> {
        let mut times = HashMap::new();
        for id in self.ids() {
            *times.entry(id).or_default() += 1;
        }
        times
    }
}

/// Says the same of each message of a call, whatever its company.
pub fn each(verdict: impl Fn(&Delivery) -> Verdict + Send + Sync + 'static) -> Behaviour {
    Box::new(move |batch| {
        let verdicts = batch.iter().map(&verdict).collect();
        Box::pin(async move { verdicts })
    })
}

/// Accepts after a while.
pub fn slow(by: Duration) -> Behaviour {
    Box::new(move |batch| {
        Box::pin(async move {
            tokio::time::sleep(by).await;
            vec![Verdict::Accepted; batch.len()]
        })
    })
}

/// Never answers.
pub fn silent() -> Behaviour {
    Box::new(|_| Box::pin(std::future::pending()))
}

/// Panics in the call.
pub fn panicking() -> Behaviour {
    Box::new(|_| Box::pin(async { panic!("a sink may have a bug") }))
}

pub fn unavailable() -> Verdict {
    Verdict::Unavailable { reason: "connection refused".to_owned() }
}

pub fn no_answer() -> Verdict {
    Verdict::NoAnswer { reason: "connection lost".to_owned() }
}

pub fn refused() -> Verdict {
    Verdict::Refused { reason: "400".to_owned() }
}

pub fn retry() -> Verdict {
    Verdict::Retry { reason: "500".to_owned(), after: None }
}

#[async_trait]
impl Sink for TestSink {
    fn kind(&self) -> &'static str {
        "test"
    }
    fn batch_max(&self) -> usize {
        self.batch_max
    }
    fn calls_max(&self) -> usize {
        self.calls_max
    }
    async fn deliver(&self, batch: &[Delivery]) -> Vec<Verdict> {
        self.calls.lock().push(batch.to_vec());
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        let behaviour = self.behaviour.lock().clone();
        let verdicts = behaviour(batch.to_vec()).await;
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        verdicts
    }
    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Binds names to the sinks it was given, and panics at this one.
#[derive(Debug, Default)]
pub struct TestBinder(pub Mutex<HashMap<String, Arc<TestSink>>>);

/// A sink that cannot be made ready without a panic.
pub const PANICS: &str = "panics";

impl SinkBinder for TestBinder {
    fn bind(&self, _: &TopicName, sink: &SinkRef) -> Result<Arc<dyn Sink>, BindError> {
        assert_ne!(sink.name, PANICS, "a fault in bind");
        match self.0.lock().get(&sink.name) {
            Some(found) => Ok(found.clone()),
            None => Err(BindError::UnknownSink { name: sink.name.clone(), configured: Vec::new() }),
        }
    }
}

/// A call on a shard of a silent server, or a poll, takes this long to fail.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(15);
const LOOK_GIVEN_UP_AFTER: Duration = Duration::from_secs(1);

/// A store behind a wire that can be cut, slowed and counted.
#[derive(Debug)]
pub struct WiredStore {
    pub inner: SmallStore,
    /// The clock of the store and of the nodes on it.
    pub clock: Arc<TokioClock>,
    pub calls: Mutex<HashMap<&'static str, usize>>,
    /// Every call fails before it reaches the store.
    pub away: AtomicBool,
    /// So many claims are done and their answers are lost.
    pub lose_claim_answers: AtomicUsize,
    /// So many settlements are done and their answers are lost.
    pub lose_settle_answers: AtomicUsize,
    /// Every call takes this long.
    pub delay: Mutex<Duration>,
    /// The answer of every claim takes this long to come back.
    pub claim_answer_delay: Mutex<Duration>,
    /// Every claim waits this long before it is carried out.
    pub claim_delay: Mutex<Duration>,
    /// The next so many of these calls panic.
    pub panics: Mutex<HashMap<&'static str, usize>>,
    /// Calls on one shard take this long.
    pub slow_shard: Mutex<Option<(u32, Duration)>>,
    /// Gives no hints.
    pub deaf: AtomicBool,
    /// Shards are on so many servers in turn.
    pub servers: AtomicUsize,
    /// Servers that answer nothing at present.
    pub silent: Mutex<HashSet<ServerId>>,
}

impl WiredStore {
    pub async fn new() -> Arc<Self> {
        let clock = TokioClock::at(START);
        Arc::new(Self {
            inner: SmallStore::new(clock.clone()).await,
            clock,
            calls: Mutex::default(),
            away: AtomicBool::new(false),
            lose_claim_answers: AtomicUsize::new(0),
            lose_settle_answers: AtomicUsize::new(0),
            delay: Mutex::default(),
            claim_answer_delay: Mutex::default(),
            claim_delay: Mutex::default(),
            panics: Mutex::default(),
            slow_shard: Mutex::default(),
            deaf: AtomicBool::new(false),
            servers: AtomicUsize::new(1),
            silent: Mutex::default(),
        })
    }

    /// Calls since the last time this was asked.
    pub fn take_calls(&self) -> HashMap<&'static str, usize> {
        std::mem::take(&mut *self.calls.lock())
    }

    pub fn server_of_index(&self, index: u32) -> ServerId {
        ServerId(u64::from(index) % self.servers.load(Ordering::SeqCst) as u64)
    }

    fn is_silent(&self, shard: &Shard) -> bool {
        self.silent.lock().contains(&self.server_of(shard))
    }

    /// Nothing is answered by a silent server before the call is given up.
    async fn reach(&self, doing: &'static str, shards: &[Shard], given_up_after: Duration) -> Result<(), StoreError> {
        if !shards.iter().any(|shard| self.is_silent(shard)) {
            return Ok(());
        }
        let answers = async {
            while shards.iter().any(|shard| self.is_silent(shard)) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(given_up_after, answers).await.map_err(|_| lost(doing))
    }

    async fn wire(&self, doing: &'static str) -> Result<(), StoreError> {
        *self.calls.lock().entry(doing).or_default() += 1;
        if let Some(left) = self.panics.lock().get_mut(doing).filter(|left| **left > 0) {
            *left -= 1;
            panic!("a fault in {doing}");
        }
        let delay = *self.delay.lock();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if self.away.load(Ordering::SeqCst) { Err(lost(doing)) } else { Ok(()) }
    }
}

fn lost(doing: &'static str) -> StoreError {
    StoreError::Unavailable { doing, source: "the wire is cut".into() }
}

fn takes_one(counter: &AtomicUsize) -> bool {
    counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

#[async_trait]
impl ClaimStore for WiredStore {
    async fn claim(&self, shard: &Shard, now: Timestamp, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.wire("claim").await?;
        let waits = *self.claim_delay.lock();
        tokio::time::sleep(waits).await;
        self.reach("claim", std::slice::from_ref(shard), GIVEN_UP_AFTER).await?;
        // What a server refuses as too old after it stood still is sent again, with the time it is by then.
        let claim = self.inner.claim(shard, now.plus(waits), request).await?;
        let slow = self.slow_shard.lock().filter(|(index, _)| *index == shard.index).map(|(_, by)| by);
        let delay = slow.unwrap_or(*self.claim_answer_delay.lock());
        tokio::time::sleep(delay).await;
        if takes_one(&self.lose_claim_answers) { Err(lost("claim")) } else { Ok(claim) }
    }
    async fn settle_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        batch: &[Settle],
        wait: AckWait,
    ) -> Result<BatchReply<Lookup<Settled>>, StoreError> {
        self.wire("settle").await?;
        self.reach("settle", std::slice::from_ref(shard), GIVEN_UP_AFTER).await?;
        let settled = self.inner.settle_at(shard, role, now, batch, wait).await?;
        if takes_one(&self.lose_settle_answers) { Err(lost("settle")) } else { Ok(settled) }
    }

    async fn deliver_in_place(
        &self,
        _shard: &Shard,
        _now: Timestamp,
        _ask: &StreamTransfer,
    ) -> Result<Streamed, StoreError> {
        Err(no_streams())
    }

    fn has_streams(&self) -> bool {
        false
    }
}

#[async_trait]
impl ScheduleStore for WiredStore {
    async fn counts(&self, shards: &[Shard], now: Timestamp) -> Result<Vec<Option<ShardCounts>>, StoreError> {
        self.wire("counts").await?;
        let silent = self.reach("counts", shards, LOOK_GIVEN_UP_AFTER).await;
        let known = self.inner.counts(shards, now).await?.into_iter();
        let known: Vec<_> =
            shards.iter().zip(known).map(|(shard, known)| if self.is_silent(shard) { None } else { known }).collect();
        if known.iter().all(Option::is_none) { silent.map(|()| known) } else { Ok(known) }
    }
    fn server_of(&self, shard: &Shard) -> ServerId {
        let left = self.panics.lock().get_mut("server_of").filter(|left| **left > 0).map(|left| *left -= 1);
        assert!(left.is_none(), "a fault in server_of");
        self.server_of_index(shard.index)
    }
    async fn next_due(&self, shards: &[Shard]) -> Result<Vec<Option<Timestamp>>, StoreError> {
        self.wire("next_due").await?;
        self.reach("next_due", shards, LOOK_GIVEN_UP_AFTER).await?;
        self.inner.next_due(shards).await
    }
    fn wakeups(&self) -> broadcast::Receiver<Wakeup> {
        if self.deaf.load(Ordering::SeqCst) { broadcast::channel(1).1 } else { self.inner.wakeups() }
    }
}

#[derive(Debug, Default)]
pub struct HandedOwnership {
    pub owned: watch::Sender<Arc<OwnedShards>>,
    /// Nodes take turns.
    pub in_turns: bool,
    pub settled: Mutex<Vec<u32>>,
}

impl HandedOwnership {
    /// Owns exactly these shards from now on.
    pub fn hand(&self, topic: &TopicName, indices: &[u32]) {
        let owned = indices.iter().map(|index| (topic.clone(), *index)).collect();
        self.owned.send_replace(Arc::new(OwnedShards(owned)));
    }
}

#[async_trait]
impl Ownership for HandedOwnership {
    fn mode(&self) -> &'static str {
        "handed"
    }
    fn takes_turns(&self) -> bool {
        self.in_turns
    }
    async fn demand(&self, _: Demand) {}
    fn owned(&self) -> watch::Receiver<Arc<OwnedShards>> {
        self.owned.subscribe()
    }
    async fn settled(&self, _: &TopicName, index: u32) {
        self.settled.lock().push(index);
    }
    fn cluster(&self) -> watch::Receiver<Arc<ClusterNodes>> {
        watch::Sender::default().subscribe()
    }
    async fn set_unhealthy(&self, _: Option<String>) {}
    async fn drain(&self, _: &str, _: Option<duetime_core::Drain>) -> Result<(), String> {
        Ok(())
    }
    async fn leave(&self) {}
}
