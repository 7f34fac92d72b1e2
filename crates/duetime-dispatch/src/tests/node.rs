//! A node in a test: a store on a small Redis, engine, one sink, and time that is moved.

use duetime_testkit::at_home::{AllCounted as _, MessagesAtHome as _};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::store::{DeadPage, Edit, Enqueue, ShardCounts};
use duetime_core::{
    ChangeId, Clock, Due, Headers, Member, MessageId, MessageStore as _, Ownership, SinkRef, StoredMessage, Timestamp,
    TopicConfig, TopicName, TopicRecord, TopicStore as _, Topics,
};
use duetime_metrics::{Meters, TopicMeters};
use duetime_ownership::Solo;
use duetime_supervisor::Supervisor;
use duetime_testkit::{TokioClock, plain_message};
use tokio::sync::watch;

use super::doubles::{TestBinder, TestSink, WiredStore};
use crate::{DispatchConfig, Engine, EngineParts};

pub const TOPIC: &str = "orders";

pub struct TestNode {
    pub store: Arc<WiredStore>,
    pub sink: Arc<TestSink>,
    pub binder: Arc<TestBinder>,
    pub clock: Arc<TokioClock>,
    pub meters: Arc<Meters>,
    pub topics: watch::Sender<Arc<Topics>>,
    pub engine: Engine,
    pub supervisor: Supervisor,
}

/// A topic that hands over to the test's sink.
pub fn with_sink() -> TopicConfig {
    let sink = SinkRef { name: "test".to_owned(), settings: serde_json::Map::default() };
    let shards = duetime_core::ShardCount::Fixed(2);
    TopicConfig { sink: Some(sink), shards, ..TopicConfig::default() }
}

/// A topic that consumers claim from.
pub fn without_sink() -> TopicConfig {
    TopicConfig { sink: None, ..with_sink() }
}

pub fn name() -> TopicName {
    TopicName::new(TOPIC).unwrap()
}

impl TestNode {
    pub async fn new(config: TopicConfig) -> Self {
        Self::with(config, TestSink::new(4, 16), DispatchConfig::default()).await
    }

    pub async fn with(config: TopicConfig, sink: Arc<TestSink>, dispatch: DispatchConfig) -> Self {
        let store = WiredStore::new().await;
        let node = Self::on(store, sink, dispatch);
        node.set_topic(config).await;
        node.pass(Duration::from_millis(1)).await;
        node
    }

    pub fn on(store: Arc<WiredStore>, sink: Arc<TestSink>, config: DispatchConfig) -> Self {
        let meters = Arc::new(Meters::new());
        let solo = Solo::new(Member::default(), meters.clone());
        Self::owning(store, sink, config, meters, solo)
    }

    pub fn owning(
        store: Arc<WiredStore>,
        sink: Arc<TestSink>,
        config: DispatchConfig,
        meters: Arc<Meters>,
        ownership: Arc<dyn Ownership>,
    ) -> Self {
        let clock = store.clock.clone();
        let binder = Arc::new(TestBinder::default());
        binder.0.lock().insert("test".to_owned(), sink.clone());
        let (topics, watched) = watch::channel(Arc::new(Topics::new()));
        let supervisor = Supervisor::new(meters.clone());
        let engine = Engine::start(EngineParts {
            store: store.clone(),
            schedule: store.clone(),
            topics: watched,
            ownership,
            sinks: binder.clone(),
            clock: clock.clone(),
            meters: meters.clone(),
            config,
            supervisor: supervisor.clone(),
            tracer: None,
        });
        Self { store, sink, binder, clock, meters, topics, engine, supervisor }
    }

    /// Creates or changes the topic and informs the engine.
    pub async fn set_topic(&self, config: TopicConfig) {
        let there = self.store.inner.topics().await.unwrap().into_iter().find(|record| record.name == name());
        let record = match there.clone() {
            Some(there) => TopicRecord { config, version: there.version + 1, ..there },
            None => TopicRecord::new(name(), config, 1, ChangeId(1), self.clock.now()),
        };
        self.store.inner.put_topic(&record, there.map(|there| there.version)).await.unwrap();
        self.tell().await;
    }

    pub async fn add_topic(&self, topic: &TopicName, config: TopicConfig) -> TopicRecord {
        let record = TopicRecord::new(topic.clone(), config, 1, ChangeId(1), self.clock.now());
        let record = self.store.inner.put_topic(&record, None).await.unwrap();
        self.tell().await;
        record
    }

    /// Schedules messages of another topic, due at once.
    pub async fn put_in(&self, record: &TopicRecord, ids: &[String], headers: &Headers, payload: &Bytes) {
        self.schedule(record, ids, self.clock.now(), headers, payload).await;
    }

    /// Schedules messages, those of one shard at once.
    async fn schedule(
        &self,
        record: &TopicRecord,
        ids: &[String],
        due_at: Timestamp,
        headers: &Headers,
        payload: &Bytes,
    ) {
        let mut batches: BTreeMap<u32, Vec<Enqueue>> = BTreeMap::new();
        for id in ids {
            let id = MessageId::new(id).unwrap();
            let index = record.routing.home(&record.name, &id).index;
            batches.entry(index).or_default().push(Enqueue {
                headers: headers.clone(),
                payload: payload.clone(),
                ..plain_message(id.as_str(), Due::At(due_at))
            });
        }
        for (index, items) in batches {
            let shard = record.routing.shard(&record.name, index);
            for batch in items.chunks(BATCH_ITEMS_MAX) {
                self.store.inner.enqueue(&shard, self.clock.now(), batch).await.unwrap();
            }
        }
    }

    /// Messages and bytes that the node counts as in flight.
    pub fn held(&self) -> (i64, i64) {
        let config = DispatchConfig::default();
        self.meters.in_flight_budget(config.messages_max, config.bytes_max).held()
    }

    /// Informs the engine of the topics there are.
    pub async fn tell(&self) {
        let topics = self.store.inner.topics().await.unwrap();
        let topics = topics.into_iter().map(|record| (record.name.clone(), Arc::new(record))).collect();
        self.topics.send_replace(Arc::new(topics));
    }

    pub async fn record(&self) -> TopicRecord {
        self.store.inner.topics().await.unwrap().into_iter().find(|record| record.name == name()).unwrap()
    }

    /// Schedules one message, due after `delay`.
    pub async fn put(&self, id: &str, delay: Duration) {
        self.put_all(&[id.to_owned()], delay).await;
    }

    pub async fn put_all(&self, ids: &[String], delay: Duration) {
        self.put_due(ids, self.clock.now().plus(delay)).await;
    }

    pub async fn put_due(&self, ids: &[String], due_at: Timestamp) {
        let payload = Bytes::from_static(b"hello");
        self.schedule(&self.record().await, ids, due_at, &Headers::default(), &payload).await;
    }

    pub async fn cancel(&self, id: &str) {
        let record = self.record().await;
        let id = MessageId::new(id).unwrap();
        let shard = record.routing.home(&record.name, &id);
        self.store.inner.edit(&shard, self.clock.now(), &[Edit::Cancel(id)]).await.unwrap();
    }

    /// Ids whose home is shard `index`.
    pub async fn ids_of(&self, index: u32, prefix: &str, count: usize) -> Vec<String> {
        let record = self.record().await;
        let home = |id: &String| record.routing.home(&record.name, &MessageId::new(id).unwrap()).index;
        (0..).map(|n| format!("{prefix}-{n}")).filter(|id| home(id) == index).take(count).collect()
    }

    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    pub async fn get(&self, id: &str) -> Option<StoredMessage> {
        let record = self.record().await;
        let id = MessageId::new(id).unwrap();
        let shard = record.routing.home(&record.name, &id);
        self.store.inner.get(&shard, &[id]).await.unwrap().remove(0)
    }

    /// Counts over all shards.
    pub async fn survey(&self) -> ShardCounts {
        let record = self.record().await;
        let shards: Vec<_> = record.routing.all(&record.name).collect();
        let mut sum = ShardCounts::default();
        for survey in self.store.inner.all_counts(&shards, self.clock.now()).await.unwrap() {
            sum.scheduled += survey.scheduled;
            sum.due += survey.due;
            sum.in_flight += survey.in_flight;
            sum.dead += survey.dead;
        }
        sum
    }

    pub async fn dead(&self) -> Vec<(String, u8, String)> {
        let record = self.record().await;
        let mut all = Vec::new();
        for shard in record.routing.all(&record.name) {
            let DeadPage { messages, .. } = self.store.inner.dead_letters(&shard, None, 256).await.unwrap();
            all.extend(messages.into_iter().map(|m| (m.id.to_string(), m.attempts, m.death.unwrap().reason)));
        }
        all
    }

    pub fn counts(&self) -> Arc<TopicMeters> {
        self.meters.topic(&name())
    }
}

pub fn ids(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}-{n}")).collect()
}

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
