//! A target that is a store, with the engine in this process and a sink that only counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use duetime_core::layer::Layered;
use duetime_core::ownership::Demand;
use duetime_core::store::{Edit, Edited, Enqueue, EnqueueOutcome, ShardCounts};
use duetime_core::{
    BindError, ChangeId, Clock, ClusterNodes, Delivery, Due, Headers, Lookup, MessageId, Nonce, OnConflict,
    OwnedShards, Ownership, Role, Shard, ShardCount, Sink, SinkBinder, SinkRef, Store, Timestamp, TopicConfig,
    TopicName, TopicRecord, TopicStore as _, Topics, Verdict,
};
use duetime_dispatch::{DispatchConfig, Engine, EngineParts};
use duetime_metrics::Meters;
use duetime_supervisor::Supervisor;
use hdrhistogram::Histogram;
use tokio::sync::watch;

use crate::args::Common;
use crate::target::{CancelOutcome, Consuming, Item, LoadTarget, Recorder};
use crate::timed::Stopwatch;

/// The engine is given this long to settle what is in flight.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// A target that is a store, with the engine in this process and a sink that only counts.
pub struct Straight {
    store: Arc<dyn Store>,
    watch: Arc<Stopwatch>,
    record: Arc<TopicRecord>,
    shards: Vec<Shard>,
    clock: Arc<dyn Clock>,
    meters: Arc<Meters>,
}

impl Straight {
    /// Makes the topic.
    pub async fn create(
        inner: Arc<dyn Store>,
        common: &Common,
        clock: Arc<dyn Clock>,
        meters: Arc<Meters>,
    ) -> anyhow::Result<Self> {
        let name = TopicName::new(&format!("bench-{:08x}", rand::random::<u32>())).context("naming the topic")?;
        let config = TopicConfig {
            shards: ShardCount::Fixed(common.shards),
            sink: Some(SinkRef { name: "counting".to_owned(), settings: serde_json::Map::new() }),
            delivery: common.delivery(),
            ..TopicConfig::default()
        };
        config.check().map_err(anyhow::Error::msg)?;
        let change_id = ChangeId(rand::random());
        let record = TopicRecord::new(name, config, 1, change_id, clock.now());
        let watch = Arc::new(Stopwatch::new());
        let store = Layered::new(inner, watch.clone());
        let record = Arc::new(store.put_topic(&record, None).await.context("making the bench's topic")?);
        let shards = record.routing.all(&record.name).collect();
        Ok(Self { store, watch, record, shards, clock, meters })
    }
}

#[async_trait]
impl LoadTarget for Straight {
    fn groups(&self) -> usize {
        self.shards.len()
    }

    fn group_of(&self, id: &MessageId) -> usize {
        self.record.routing.home(&self.record.name, id).index as usize
    }

    async fn enqueue(&self, batch: Vec<Item>) -> anyhow::Result<u64> {
        let Some(first) = batch.first() else { return Ok(0) };
        let shard = &self.shards[self.group_of(&first.id)];
        let made = |item: Item| Enqueue {
            id: item.id,
            due: Due::At(item.due_at),
            headers: Headers::default(),
            payload: item.payload,
            on_conflict: OnConflict::Reject,
            nonce: Nonce(rand::random()),
        };
        let batch: Vec<Enqueue> = batch.into_iter().map(made).collect();
        let answers = self.store.enqueue_at(shard, Role::Home, self.clock.now(), &batch).await?;
        let answers = Lookup::finals(answers)?;
        Ok(answers.iter().filter(|answer| answer.outcome == EnqueueOutcome::Scheduled).count() as u64)
    }

    async fn cancel(&self, batch: Vec<MessageId>) -> anyhow::Result<Vec<CancelOutcome>> {
        let Some(first) = batch.first() else { return Ok(Vec::new()) };
        let shard = &self.shards[self.group_of(first)];
        let edits: Vec<Edit> = batch.into_iter().map(Edit::Cancel).collect();
        let answers = self.store.edit_at(shard, Role::Home, self.clock.now(), &edits).await?.finals()?.answers;
        let outcome = |answer| match answer {
            Edited::Cancelled => CancelOutcome::Cancelled,
            Edited::InFlight => CancelOutcome::InFlight,
            Edited::Rescheduled(_)
            | Edited::Dead
            | Edited::Unknown
            | Edited::Changed
            | Edited::Gone(_)
            | Edited::Full => CancelOutcome::Unknown,
        };
        Ok(answers.into_iter().map(|answer| answer.with_room().map(outcome)).collect::<Result<_, _>>()?)
    }

    async fn consume(&self, recorder: Arc<dyn Recorder>) -> anyhow::Result<Box<dyn Consuming>> {
        let topics = Topics::from([(self.record.name.clone(), self.record.clone())]);
        let owned = self.shards.iter().map(|shard| (shard.topic.clone(), shard.index)).collect();
        let ownership = Arc::new(OwnsAll(watch::Sender::new(Arc::new(OwnedShards(owned)))));
        let topics = watch::Sender::new(Arc::new(topics));
        let engine = Engine::start(EngineParts {
            store: self.store.clone(),
            schedule: self.store.clone(),
            topics: topics.subscribe(),
            ownership: ownership.clone(),
            sinks: Arc::new(OneSink(recorder)),
            clock: self.clock.clone(),
            meters: self.meters.clone(),
            config: DispatchConfig::default(),
            supervisor: Supervisor::new(self.meters.clone()),
            tracer: None,
        });
        Ok(Box::new(RunningEngine { engine, _topics: topics }))
    }

    async fn survey(&self) -> anyhow::Result<ShardCounts> {
        let all = self.store.counts(&self.shards, self.clock.now()).await?;
        Ok(all.into_iter().flatten().fold(ShardCounts::default(), |sum, one| ShardCounts {
            scheduled: sum.scheduled + one.scheduled,
            due: sum.due + one.due,
            in_flight: sum.in_flight + one.in_flight,
            dead: sum.dead + one.dead,
            moving: sum.moving + one.moving,
            head: None,
        }))
    }

    async fn memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
    }

    async fn notes(&self) -> BTreeMap<String, serde_json::Value> {
        BTreeMap::new()
    }

    fn store_calls(&self) -> Vec<(&'static str, Histogram<u64>)> {
        self.watch.calls()
    }

    async fn delete(&self) -> anyhow::Result<()> {
        self.store.delete_topic(&self.record.name, duetime_core::Deletion::Force).await?;
        Ok(())
    }
}

struct RunningEngine {
    engine: Engine,
    /// The engine hears of topics as long as somebody could change them.
    _topics: watch::Sender<Arc<Topics>>,
}

#[async_trait]
impl Consuming for RunningEngine {
    async fn stop(self: Box<Self>) -> anyhow::Result<()> {
        self.engine.drain(STOP_WITHIN).await;
        Ok(())
    }
}

/// One process has all shards.
#[derive(Debug)]
struct OwnsAll(watch::Sender<Arc<OwnedShards>>);

#[async_trait]
impl Ownership for OwnsAll {
    fn mode(&self) -> &'static str {
        "solo"
    }

    async fn demand(&self, _demand: Demand) {}

    fn owned(&self) -> watch::Receiver<Arc<OwnedShards>> {
        self.0.subscribe()
    }

    fn cluster(&self) -> watch::Receiver<Arc<ClusterNodes>> {
        watch::Sender::default().subscribe()
    }

    async fn settled(&self, _topic: &TopicName, _index: u32) {}

    async fn set_unhealthy(&self, _why: Option<String>) {}

    async fn drain(&self, _member: &str, _drain: Option<duetime_core::Drain>) -> Result<(), String> {
        Ok(())
    }

    async fn leave(&self) {}
}

/// Accepts everything and notifies the recorder.
#[derive(Debug)]
struct CountingSink(Arc<dyn Recorder>);

#[async_trait]
impl Sink for CountingSink {
    fn kind(&self) -> &'static str {
        "counting"
    }

    fn batch_max(&self) -> usize {
        duetime_core::limits::BATCH_ITEMS_MAX
    }

    fn calls_max(&self) -> usize {
        64
    }

    async fn deliver(&self, batch: &[Delivery]) -> Vec<Verdict> {
        let seen: Vec<(MessageId, Timestamp)> = batch.iter().map(|one| (one.id.clone(), one.due_at)).collect();
        self.0.delivered(&seen);
        vec![Verdict::Accepted; batch.len()]
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

#[derive(Debug)]
struct OneSink(Arc<dyn Recorder>);

impl SinkBinder for OneSink {
    fn bind(&self, _topic: &TopicName, _sink: &SinkRef) -> Result<Arc<dyn Sink>, BindError> {
        Ok(Arc::new(CountingSink(self.0.clone())))
    }
}
