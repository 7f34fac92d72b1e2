//! The engine of one node: follows the topics and the owned shards, runs each topic, drains.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use duetime_core::ownership::Demand;
use duetime_core::{
    ClaimStore, Clock, Consumers, OwnedShards, Ownership, ScheduleStore, SinkBinder, SinkStates, TopicName,
    TopicRecord, Topics,
};
use duetime_metrics::Meters;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::config::DispatchConfig;
use crate::consumers::{EngineConsumers, Open};
use crate::gauges::{self, Gauges};
use crate::health::Health;
use crate::lane::Lane;
use crate::pace::Pace;
use crate::permits::{Permits, Room};
use crate::rate::Rate;
use crate::runner::Runner;
use crate::sink_states::{BoundSink, EngineSinks};
use crate::work::{Ends, Work};

/// Longest part of the grace period that is kept for settling after the calls.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// What an engine is made of.
#[derive(Debug)]
pub struct EngineParts {
    /// Where messages are claimed and settled.
    pub store: Arc<dyn ClaimStore>,
    /// When they are due.
    pub schedule: Arc<dyn ScheduleStore>,
    /// The topics, now and as they change.
    pub topics: watch::Receiver<Arc<Topics>>,
    /// The shards this node scans, now and as they change.
    pub owned: watch::Receiver<Arc<OwnedShards>>,
    /// Who is told what there is to share.
    pub ownership: Arc<dyn Ownership>,
    /// Makes sinks ready.
    pub sinks: Arc<dyn SinkBinder>,
    /// This node's clock.
    pub clock: Arc<dyn Clock>,
    /// Where everything is counted.
    pub meters: Arc<Meters>,
    /// Bounds.
    pub config: DispatchConfig,
}

/// A running engine. Ends with [`Engine::drain`].
#[derive(Debug)]
pub struct Engine {
    consumers: Arc<EngineConsumers>,
    sinks: Arc<EngineSinks>,
    health: Arc<Health>,
    tracker: TaskTracker,
    ends: Ends,
}

impl Engine {
    /// Starts the loops. Must be called on a tokio runtime.
    #[must_use]
    pub fn start(parts: EngineParts) -> Self {
        let (ends, tracker) = (Ends::default(), TaskTracker::new());
        let health = Arc::new(Health::default());
        let pace = Pace {
            store: parts.schedule.clone(),
            lanes: Arc::default(),
            wheel: Arc::default(),
            clock: parts.clock.clone(),
            health: health.clone(),
            meters: parts.meters.clone(),
            owned: parts.owned.clone(),
            look: Arc::default(),
        };
        let taken_in = watch::Sender::default();
        let consumers = Arc::new(EngineConsumers {
            open: Arc::default(),
            pace: pace.clone(),
            topics: parts.topics.clone(),
            taken_in: taken_in.subscribe(),
            stop: ends.stop.clone(),
            tracker: tracker.clone(),
        });
        let sinks = Arc::new(EngineSinks::default());
        let supervisor = Supervisor {
            sinks: sinks.clone(),
            permits: Permits::new(&parts.config),
            config: Arc::new(parts.config.clone()),
            open: consumers.open.clone(),
            taken_in,
            pace: pace.clone(),
            tracker: tracker.clone(),
            ends: ends.clone(),
            emptied: Arc::default(),
            running: HashMap::new(),
            demand: None,
            owned: Arc::default(),
            parts,
        };
        tracker.spawn(pace.clone().turn(ends.stop.clone()));
        tracker.spawn(pace.clone().look(ends.stop.clone()));
        tracker.spawn(pace.survey(Gauges::new(supervisor.config.gauges_every), ends.stop.clone()));
        tracker.spawn(sinks.clone().watch(ends.stop.clone()));
        tracker.spawn(supervisor.run());
        Self { consumers, sinks, health, tracker, ends }
    }

    /// Hands messages of topics without a sink to consumers.
    #[must_use]
    pub fn consumers(&self) -> Arc<dyn Consumers> {
        self.consumers.clone()
    }

    /// What this node knows of its topics' sinks.
    #[must_use]
    pub fn sinks(&self) -> Arc<dyn SinkStates> {
        self.sinks.clone()
    }

    /// Told when a shard refused this node's picture of the topics: they must be read again.
    #[must_use]
    pub fn stale_topics(&self) -> Arc<Notify> {
        self.health.stale()
    }

    /// Claims no more, lets calls under way finish, gives back at once what was not sent, settles
    /// all verdicts, and returns within `grace`. Consumers that wait are answered at once.
    ///
    /// What a call still holds when the grace is nearly over stays claimed until its deadline, for
    /// nobody knows whether it was delivered.
    pub async fn drain(&self, grace: Duration) {
        let started = Instant::now();
        self.ends.stop.cancel();
        self.tracker.close();
        let flush = (grace / 4).min(FLUSH_MAX);
        if tokio::time::timeout(grace - flush, self.tracker.wait()).await.is_err() {
            self.ends.abandon.cancel();
            if tokio::time::timeout(flush, self.tracker.wait()).await.is_err() {
                self.ends.abort.cancel();
                warn!("grace period is over, some work was cut off");
                return;
            }
        }
        info!(took_ms = started.elapsed().as_millis() as u64, "engine is drained");
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.ends.stop.cancel();
        self.ends.abandon.cancel();
        self.ends.abort.cancel();
    }
}

/// One topic as it is being run.
#[derive(Debug)]
struct Running {
    record: Arc<TopicRecord>,
    lane: Arc<Lane>,
    /// `None`: consumers claim, or the sink could not be bound.
    runner: Option<Runner>,
    /// Why the sink could not be bound.
    refused: Option<String>,
}

/// Follows the watches.
#[derive(Debug)]
struct Supervisor {
    parts: EngineParts,
    sinks: Arc<EngineSinks>,
    config: Arc<DispatchConfig>,
    permits: Arc<Permits>,
    open: Arc<Open>,
    taken_in: watch::Sender<()>,
    pace: Pace,
    tracker: TaskTracker,
    ends: Ends,
    emptied: Arc<Notify>,
    running: HashMap<TopicName, Running>,
    demand: Option<Demand>,
    /// As it was at the last reconciliation.
    owned: Arc<OwnedShards>,
}

impl Supervisor {
    async fn run(mut self) {
        loop {
            self.reconcile().await;
            // A watch may end before the engine does: what it said last holds on.
            tokio::select! {
                biased;
                () = self.ends.stop.cancelled() => return,
                Ok(()) = self.parts.topics.changed() => {}
                Ok(()) = self.parts.owned.changed() => {}
                () = self.emptied.notified() => {}
            }
        }
    }

    async fn reconcile(&mut self) {
        let topics = self.parts.topics.borrow_and_update().clone();
        let owned = self.parts.owned.borrow_and_update().clone();
        let gone: Vec<TopicName> = self.running.keys().filter(|name| !topics.contains_key(*name)).cloned().collect();
        for name in gone {
            self.end(&name);
        }
        let mut shards: BTreeMap<&TopicName, Vec<u32>> = BTreeMap::new();
        for (topic, index) in &owned.0 {
            shards.entry(topic).or_default().push(*index);
        }
        let mut unscanned = Vec::new();
        for (name, record) in topics.iter() {
            let indices = shards.remove(name).unwrap_or_default();
            self.run_topic(name, record, &indices);
            // Nothing waits for what consumers hold: each of them settles at whatever node it likes.
            if record.config.sink.is_none() {
                let given_up = self.owned.0.iter().filter(|(topic, index)| topic == name && !owned.has(topic, *index));
                unscanned.extend(given_up.cloned());
            }
        }
        self.owned = owned.clone();
        for (topic, index) in unscanned {
            self.parts.ownership.settled(&topic, index).await;
        }
        self.taken_in.send_replace(());
        self.tell_ownership(&topics).await;
        self.pace.look.notify_one();
    }

    fn end(&mut self, name: &TopicName) {
        let Some(running) = self.running.remove(name) else { return };
        self.open.write().remove(name);
        self.pace.lanes.write().remove(name);
        self.sinks.set(name, None);
        if let Some(runner) = running.runner {
            runner.stop();
        }
        running.lane.close();
        self.parts.meters.forget_topic(name);
        info!(topic = %name, "topic is gone, its loops end");
    }

    fn run_topic(&mut self, name: &TopicName, record: &Arc<TopicRecord>, indices: &[u32]) {
        let parts = &self.parts;
        let new = || {
            let (wheel, clock) = (self.pace.wheel.clone(), parts.clock.clone());
            let lane = Lane::new(name.clone(), wheel, clock, self.emptied.clone(), parts.schedule.clone());
            Running { record: record.clone(), lane, runner: None, refused: None }
        };
        let fresh = !self.running.contains_key(name);
        let running = self.running.entry(name.clone()).or_insert_with(new);
        // A consumer gets what is due from whatever node it asks, so each looks at all shards of a
        // topic that consumers claim from.
        let all: Vec<u32>;
        let looked_at = if record.config.sink.is_none() {
            all = (0..record.routing.shards.max(record.routing.previous)).collect();
            &all
        } else {
            indices
        };
        if fresh || running.lane.differs(record.routing.epoch, looked_at) {
            running.lane.own(record.routing.epoch, looked_at.iter().copied());
        }
        let topic_meters = parts.meters.topic(name);
        topic_meters.shards.set(i64::from(record.routing.shards));
        topic_meters.shards_owned.set(i64::try_from(indices.len()).unwrap_or(i64::MAX));
        if indices.is_empty() {
            gauges::clear(&parts.meters, name);
        }
        let changed = running.record.config != record.config || running.record.created_at_ms != record.created_at_ms;
        running.record = record.clone();
        if !(fresh || changed || running.refused.is_some()) {
            return;
        }
        if let Some(runner) = running.runner.take() {
            runner.stop();
        }
        let work = Work {
            record: record.clone(),
            store: parts.store.clone(),
            lane: running.lane.clone(),
            room: Room::new(self.permits.clone(), &self.config, usize::MAX),
            rate: Arc::new(Rate::new(record.config.rate_limit)),
            health: self.pace.health.clone(),
            clock: parts.clock.clone(),
            meters: parts.meters.clone(),
            topic_meters,
            config: self.config.clone(),
        };
        self.pace.lanes.write().insert(name.clone(), running.lane.clone());
        let Some(sink) = &record.config.sink else {
            running.refused = None;
            self.sinks.set(name, None);
            self.open.write().insert(name.clone(), work);
            return;
        };
        self.open.write().remove(name);
        match Runner::start(work, &self.permits, &*parts.sinks, &self.tracker, self.ends.child()) {
            Ok(runner) => {
                running.refused = None;
                self.sinks.set(name, Some(runner.sink.clone()));
                running.runner = Some(runner);
            }
            Err(reason) => {
                if running.refused.as_ref() != Some(&reason) {
                    warn!(topic = %name, reason, "sink cannot be used, the topic's messages wait");
                }
                self.sinks.set(name, Some(BoundSink { name: sink.name.clone(), bound: Err(reason.clone()) }));
                running.refused = Some(reason);
            }
        }
    }

    async fn tell_ownership(&mut self, topics: &Topics) {
        let mut demand: Demand = topics.iter().map(|(name, record)| (name.clone(), record.routing.reach())).collect();
        demand.sort();
        if self.demand.as_ref() != Some(&demand) {
            self.parts.ownership.demand(demand.clone()).await;
            self.demand = Some(demand);
        }
        let emptied: Vec<(TopicName, u32)> = self
            .running
            .iter()
            .flat_map(|(name, running)| running.lane.take_emptied().into_iter().map(move |index| (name.clone(), index)))
            .collect();
        for (topic, index) in emptied {
            self.parts.ownership.settled(&topic, index).await;
        }
    }
}
