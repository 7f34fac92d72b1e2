//! What a sentence of the suite stands in: a fresh topic, a clock and short words for the calls.

use crate::at_home::{AllCounted as _, MessagesAtHome as _, SettledAtHome as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use duetime_core::store::{
    Claim, ClaimRequest, ClaimedMessage, Edit, Edited, Enqueue, Enqueued, Settle, Settled, Settlement, ShardCounts,
};
use duetime_core::{
    ChangeId, Clock, DeliveryMode, Due, Headers, LeaseClass, ListRange, MessageId, Nonce, OnConflict, RetryPolicy,
    Routing, Shard, ShardCount, Store, StoredMessage, Timestamp, TopicConfig, TopicName, TopicRecord,
};

use crate::ManualClock;
use crate::conformance::StoreFactory;
use crate::wait::{Because, let_pass};

/// Where moved time starts: a moment in 2033.
pub(crate) const MOVED_TIME_START: Timestamp = Timestamp::from_millis(2_000_000_000_000);
/// Shards of the fresh topic.
const SHARDS: u32 = 3;
/// Long enough that no claim of a test ends by itself.
pub(super) const LONG: Duration = Duration::from_secs(30);
/// How long a claim holds that a test lets run out.
pub(super) const SHORT: Duration = Duration::from_millis(60);
/// Wait after the first attempt, under the suite's retry policy.
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Attempts under the suite's retry policy.
pub(super) const ATTEMPTS: u8 = 3;

/// The files with sentences, for the test that none is forgotten.
#[cfg(test)]
pub(super) const SOURCES: [(&str, &str); 23] = [
    ("attempts", include_str!("attempts.rs")),
    ("claim", include_str!("claim.rs")),
    ("conflict", include_str!("conflict.rs")),
    ("content", include_str!("content.rs")),
    ("dead", include_str!("dead.rs")),
    ("dead_edit", include_str!("dead_edit.rs")),
    ("edit", include_str!("edit.rs")),
    ("enqueue", include_str!("enqueue.rs")),
    ("epoch", include_str!("epoch.rs")),
    ("in_flight", include_str!("in_flight.rs")),
    ("list", include_str!("list.rs")),
    ("look", include_str!("look.rs")),
    ("moved", include_str!("moved.rs")),
    ("past", include_str!("past.rs")),
    ("receipt", include_str!("receipt.rs")),
    ("records", include_str!("records.rs")),
    ("repeat", include_str!("repeat.rs")),
    ("restore", include_str!("restore.rs")),
    ("series", include_str!("series.rs")),
    ("settle", include_str!("settle.rs")),
    ("suspect", include_str!("suspect.rs")),
    ("topics", include_str!("topics.rs")),
    ("watermark", include_str!("watermark.rs")),
];

/// Everything there is, however late.
pub(in crate::conformance) fn all_time() -> ListRange {
    ListRange { from: Timestamp::ZERO, till: Timestamp::from_millis(9_000_000_000_000), after: None }
}

/// What a sentence of the suite stands in: a fresh topic, a clock and short words for the calls.
#[derive(Debug)]
pub(crate) struct World {
    /// Under test.
    pub store: Arc<dyn Store>,
    /// Made for this test alone.
    pub record: TopicRecord,
    clock: Arc<dyn Clock>,
    moved: Option<Arc<ManualClock>>,
}

pub(crate) fn id(text: &str) -> MessageId {
    MessageId::new(text).expect("tests use good ids")
}

pub(super) fn fresh_name() -> TopicName {
    TopicName::new(&format!("conform-{:016x}", rand::random::<u64>())).expect("letters and digits")
}

pub(crate) fn fresh_record(now: Timestamp) -> TopicRecord {
    let config = TopicConfig { shards: ShardCount::Fixed(SHARDS), ..TopicConfig::default() };
    let change_id = ChangeId(rand::random());
    TopicRecord::new(fresh_name(), config, 1, change_id, now)
}

/// A message with a payload of its own, refused if the id lives.
pub(crate) fn message(text: &str, due: Due) -> Enqueue {
    Enqueue {
        id: id(text),
        due,
        headers: Headers::default(),
        payload: Bytes::from(format!("payload of {text}")),
        on_conflict: OnConflict::Reject,
        nonce: Nonce(rand::random()),
    }
}

/// The same, put in place of what lives.
pub(crate) fn replacement(text: &str, due: Due) -> Enqueue {
    Enqueue {
        payload: Bytes::from(format!("second payload of {text}")),
        on_conflict: OnConflict::Replace,
        ..message(text, due)
    }
}

pub(super) fn ids(claim: &Claim) -> Vec<&str> {
    claim.messages.iter().map(|message| message.id.as_str()).collect()
}

impl World {
    /// A fresh topic of three shards on a store of the factory.
    pub async fn new(factory: &dyn StoreFactory) -> Self {
        Self::of(factory, fresh_record).await
    }

    /// The same, of a topic with a watermark.
    pub async fn with_watermark(factory: &dyn StoreFactory) -> Self {
        Self::with(factory, |config| TopicConfig { watermark: true, ..config }).await
    }

    /// The same, of a topic that has a bound of what is in flight.
    pub async fn with_max_in_flight(factory: &dyn StoreFactory, max: u32) -> Self {
        Self::with(factory, |config| TopicConfig { max_in_flight: Some(max), ..config }).await
    }

    async fn with(factory: &dyn StoreFactory, settings: impl Fn(TopicConfig) -> TopicConfig) -> Self {
        let record = |now| {
            let plain = fresh_record(now);
            TopicRecord::new(plain.name, settings(plain.config), 1, plain.routing.change_id, now)
        };
        Self::of(factory, record).await
    }

    async fn of(factory: &dyn StoreFactory, record: impl Fn(Timestamp) -> TopicRecord) -> Self {
        let store = factory.store().await;
        let moved = factory.can_move_time().then(|| ManualClock::at(MOVED_TIME_START));
        let clock = moved.clone().map_or_else(|| factory.clock(), |moved| moved as Arc<dyn Clock>);
        let now = clock.now();
        let record = store.put_topic(&record(now), None).await.expect("a fresh topic is created");
        Self { store, record, clock, moved }
    }

    /// The present moment.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whether time is moved and not waited for.
    pub fn moves_time(&self) -> bool {
        self.moved.is_some()
    }

    /// Lets time pass: at least so much.
    pub async fn pass(&self, by: Duration) {
        match &self.moved {
            Some(clock) => clock.advance(by),
            None => let_pass(by + Duration::from_millis(2), Because::Time).await,
        }
    }

    /// So many milliseconds ago.
    pub fn ago(&self, millis: i64) -> Due {
        Due::At(self.moment(-millis))
    }

    /// So many milliseconds from now; negative: ago.
    pub fn moment(&self, millis: i64) -> Timestamp {
        Timestamp::from_millis(self.now().as_millis() + millis)
    }

    pub fn routing(&self) -> &Routing {
        &self.record.routing
    }

    /// The shard the test works on.
    pub fn shard(&self) -> Shard {
        self.shard_at(0)
    }

    pub fn shard_at(&self, index: u32) -> Shard {
        self.record.routing.shard(&self.record.name, index)
    }

    pub fn shards(&self) -> Vec<Shard> {
        self.record.routing.all(&self.record.name).collect()
    }

    pub async fn enqueue(&self, batch: &[Enqueue]) -> Vec<Enqueued> {
        self.store.enqueue(&self.shard(), self.now(), batch).await.expect("enqueue is answered")
    }

    /// Schedules one new message.
    pub async fn put(&self, text: &str, due: Due) {
        let answers = self.enqueue(&[message(text, due)]).await;
        assert_eq!(answers[0].outcome, duetime_core::store::EnqueueOutcome::Scheduled, "{text} is new");
    }

    pub async fn edit(&self, batch: &[Edit]) -> Vec<Edited> {
        self.store.edit(&self.shard(), self.now(), batch).await.expect("edit is answered")
    }

    pub async fn cancel(&self, text: &str) -> Edited {
        self.edit(&[Edit::Cancel(id(text))]).await[0]
    }

    pub async fn reschedule(&self, text: &str, due: Due) -> Edited {
        self.edit(&[Edit::Reschedule(id(text), due)]).await[0]
    }

    pub async fn get(&self, text: &str) -> Option<StoredMessage> {
        let mut found = self.store.get(&self.shard(), &[id(text)]).await.expect("get is answered");
        assert_eq!(found.len(), 1);
        found.remove(0)
    }

    /// The usual request: long visibility, the topic's class, three attempts.
    pub fn request(&self, limit: usize) -> ClaimRequest {
        ClaimRequest {
            request: rand::random(),
            limit,
            visibility: LONG,
            class: LeaseClass::TOPIC,
            retry: RetryPolicy {
                max_attempts: ATTEMPTS,
                initial: FIRST_WAIT,
                max: Duration::from_secs(60),
                factor: 2.0,
                jitter: 0.5,
                waits: Vec::new(),
            },
            delivery: DeliveryMode::AtLeastOnce,
        }
    }

    /// The same for a claim that is to run out.
    pub fn short_request(&self, limit: usize) -> ClaimRequest {
        ClaimRequest { visibility: SHORT, ..self.request(limit) }
    }

    pub async fn claim_as(&self, request: &ClaimRequest) -> Claim {
        self.store.claim(&self.shard(), self.now(), request).await.expect("claim is answered")
    }

    pub async fn claim(&self, limit: usize) -> Claim {
        self.claim_as(&self.request(limit)).await
    }

    /// Claims exactly one message, which must be due.
    pub async fn claim_one(&self) -> ClaimedMessage {
        let mut claim = self.claim(1).await;
        assert_eq!(claim.messages.len(), 1, "one message is due: {claim:?}");
        claim.messages.remove(0)
    }

    /// Claims every message that is due, in as many claims as it takes.
    pub async fn claim_all(&self) -> Vec<ClaimedMessage> {
        let mut all = Vec::new();
        loop {
            let claim = self.claim(256).await;
            all.extend(claim.messages);
            if claim.due_left == 0 {
                return all;
            }
        }
    }

    pub async fn settle_all(&self, batch: &[Settle]) -> Vec<Settled> {
        self.store.settle(&self.shard(), self.now(), batch).await.expect("settle is answered")
    }

    pub async fn settle(&self, claimed: &ClaimedMessage, how: Settlement) -> Settled {
        self.settle_all(&[settle(claimed, how)]).await[0]
    }

    /// Puts a message and claims and buries it.
    pub async fn put_dead(&self, text: &str) {
        self.put(text, self.ago(1000)).await;
        let claimed = self.claim_one().await;
        assert_eq!(claimed.id.as_str(), text, "nothing else is due while a test makes dead letters");
        assert_eq!(self.settle(&claimed, Settlement::Bury(format!("{text} was refused"))).await, Settled::Ok);
    }

    pub async fn survey(&self) -> ShardCounts {
        self.store.all_counts(&[self.shard()], self.now()).await.expect("survey is answered")[0]
    }
}

pub(super) fn settle(claimed: &ClaimedMessage, how: Settlement) -> Settle {
    Settle { id: claimed.id.clone(), score: claimed.score, action: how }
}

/// Each way to settle a claim.
pub(super) fn every_settlement() -> [Settlement; 6] {
    [
        Settlement::Ack,
        Settlement::Nack(Duration::ZERO),
        Settlement::Release,
        Settlement::Unanswered { wait: Duration::ZERO, charged: false },
        Settlement::Extend(LONG, LeaseClass::TOPIC),
        Settlement::Bury("refused".to_owned()),
    ]
}
