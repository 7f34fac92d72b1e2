//! The engine of one node: follows the topics and the owned shards, runs each topic, drains.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use duetime_core::ownership::Demand;
use duetime_core::tracer::Tracer;
use duetime_core::{
    ClaimStore, Clock, Consumers, OwnedShards, Ownership, ScheduleStore, SinkBinder, SinkStates, TopicName,
    TopicRecord, Topics,
};
use duetime_metrics::Meters;
use duetime_supervisor::{Policy, Supervisor};
use futures::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::alarm::Alarm;
use crate::budget::{NodeBudget, TopicBudget};
use crate::config::DispatchConfig;
use crate::consumers::{EngineConsumers, Open, OpenTopic};
use crate::gauges::{self, Gauges};
use crate::health::Health;
use crate::rate::Rate;
use crate::runner::Runner;
use crate::schedule::TopicSchedule;
use crate::scheduler::Scheduler;
use crate::sink_states::{BoundSink, EngineSinks};
use crate::wheel::Wheel;
use crate::work::{Shutdown, Work};

/// Longest part of the grace period that is kept for settling after the calls.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// What an engine is made of.
#[derive(Clone, Debug)]
pub struct EngineParts {
    /// Where messages are claimed and settled.
    pub store: Arc<dyn ClaimStore>,
    /// When they are due.
    pub schedule: Arc<dyn ScheduleStore>,
    /// The topics, now and as they change.
    pub topics: watch::Receiver<Arc<Topics>>,
    /// What says which shards this node scans, and learns which there are to share.
    pub ownership: Arc<dyn Ownership>,
    /// Makes sinks ready.
    pub sinks: Arc<dyn SinkBinder>,
    /// This node's clock.
    pub clock: Arc<dyn Clock>,
    /// Where everything is counted.
    pub meters: Arc<Meters>,
    /// Bounds.
    pub config: DispatchConfig,
    /// Watches the engine's loops.
    pub supervisor: Supervisor,
    /// Records deliveries to sinks; `None`: nobody does.
    pub tracer: Option<Arc<dyn Tracer>>,
}

/// A running engine. Ends with [`Engine::drain`].
#[derive(Debug)]
pub struct Engine {
    consumers: Arc<EngineConsumers>,
    sinks: Arc<EngineSinks>,
    health: Arc<Health>,
    supervisor: Supervisor,
    shutdown: Shutdown,
    polls: Arc<Notify>,
}

/// Gives topics their meters in the order in which they were created, so that nodes that know the same topics name the
/// same ones: only so many have series of their own, and what nodes have of one is summed up.
fn know_by_age<'a>(meters: &Meters, topics: impl Iterator<Item = &'a Arc<TopicRecord>>) {
    let mut topics: Vec<_> = topics.collect();
    topics.sort_by_key(|record| (record.created_at_ms, &record.name));
    topics.iter().for_each(|record| drop(meters.topic(&record.name)));
}

impl Engine {
    /// Notified, it looks at all shards before their time: the clock was moved.
    #[must_use]
    pub fn polls(&self) -> Arc<Notify> {
        self.polls.clone()
    }

    /// Starts the loops. Must be called on a tokio runtime.
    #[must_use]
    pub fn start(parts: EngineParts) -> Self {
        know_by_age(&parts.meters, parts.topics.borrow().values());
        let (shutdown, supervisor) = (Shutdown::default(), parts.supervisor.scope());
        let health = Arc::new(Health::default());
        let alarm = if parts.config.precise_timer { Alarm::precise() } else { Alarm::Runtime };
        let scheduler = Scheduler {
            store: parts.schedule.clone(),
            schedules: Arc::default(),
            wheel: Arc::new(Wheel::new(alarm)),
            clock: parts.clock.clone(),
            health: health.clone(),
            meters: parts.meters.clone(),
            reported: parts.ownership.reported(),
            in_turns: parts.ownership.takes_turns(),
            unanswered: Arc::default(),
            poll_now: Arc::default(),
        };
        let polls = scheduler.poll_now.clone();
        let (taken_in, gauges_every) = (watch::Sender::<()>::default(), parts.config.gauges_every);
        let consumers = Arc::new(EngineConsumers {
            open: Arc::default(),
            scheduler: scheduler.clone(),
            topics: parts.topics.clone(),
            taken_in: taken_in.subscribe(),
            stop: shutdown.stop.clone(),
            tracker: supervisor.tracker().clone(),
        });
        let sinks = Arc::new(EngineSinks::default());
        let stop = shutdown.stop.clone();
        let needed = |name, run: fn(Scheduler, CancellationToken) -> BoxFuture<'static, ()>| {
            let (scheduler, stopped) = (scheduler.clone(), stop.clone());
            supervisor.start(name, Policy::RestartOrEnd, &stop, move || run(scheduler.clone(), stopped.clone()));
        };
        needed("timer", |scheduler, stop| Box::pin(scheduler.run_timer(stop)));
        needed("poll", |scheduler, stop| Box::pin(scheduler.poll(stop)));
        let (surveyor, states, stopped) = (scheduler.clone(), sinks.clone(), stop.clone());
        supervisor.start("gauges", Policy::RestartOrEnd, &stop, move || {
            surveyor.clone().survey(Gauges::new(gauges_every, states.clone()), stopped.clone())
        });
        let (states, stopped) = (sinks.clone(), stop.clone());
        supervisor.start("sink states", Policy::RestartOrEnd, &stop, move || states.clone().watch(stopped.clone()));
        let fresh = {
            let (sinks, open, supervisor) = (sinks.clone(), consumers.open.clone(), supervisor.clone());
            let (budget, config) = (NodeBudget::new(&parts.config, &parts.meters), Arc::new(parts.config.clone()));
            move |shutdown: Shutdown| Reconciler {
                parts: parts.clone(),
                sinks: sinks.clone(),
                config: config.clone(),
                budget: budget.clone(),
                open: open.clone(),
                taken_in: taken_in.clone(),
                scheduler: scheduler.clone(),
                supervisor: supervisor.clone(),
                shutdown,
                emptied: Arc::default(),
                running: HashMap::new(),
                demand: None,
                owned_now: parts.ownership.owned(),
                owned: Arc::default(),
            }
        };
        let (whole, mut of_run) = (shutdown.clone(), shutdown.child());
        supervisor.start("topics", Policy::RestartOrEnd, &stop, move || {
            // What a run that failed has left may be half done: all its loops end, and the next begins with nothing.
            of_run.stop.cancel();
            of_run = whole.child();
            fresh(of_run.clone()).run()
        });
        Self { consumers, sinks, health, supervisor, shutdown, polls }
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

    /// The catalog waits on this. It is notified when a shard refused this node's picture of the topics.
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
        self.shutdown.stop.cancel();
        let tracker = self.supervisor.tracker();
        tracker.close();
        let flush = (grace / 4).min(FLUSH_MAX);
        if tokio::time::timeout(grace - flush, tracker.wait()).await.is_err() {
            self.shutdown.abandon.cancel();
            if tokio::time::timeout(flush, tracker.wait()).await.is_err() {
                self.shutdown.abort.cancel();
                warn!("grace period is over, some work was cut off");
                return;
            }
        }
        info!(took_ms = started.elapsed().as_millis() as u64, "engine is drained");
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shutdown.stop.cancel();
        self.shutdown.abandon.cancel();
        self.shutdown.abort.cancel();
    }
}

/// One topic as it is being run.
#[derive(Debug)]
struct RunningTopic {
    record: Arc<TopicRecord>,
    schedule: Arc<TopicSchedule>,
    /// `None`: consumers claim, the topic is paused, or the sink could not be bound.
    runner: Option<Runner>,
    /// Why the sink could not be bound.
    refused: Option<String>,
    /// Of the sink as it was bound.
    generation: u64,
}

/// Follows the watches: starts and ends what each topic needs.
#[derive(Debug)]
struct Reconciler {
    parts: EngineParts,
    sinks: Arc<EngineSinks>,
    config: Arc<DispatchConfig>,
    budget: Arc<NodeBudget>,
    open: Arc<Open>,
    taken_in: watch::Sender<()>,
    scheduler: Scheduler,
    supervisor: Supervisor,
    /// Ends with this run of the reconciler: what it started does too.
    shutdown: Shutdown,
    emptied: Arc<Notify>,
    running: HashMap<TopicName, RunningTopic>,
    demand: Option<Demand>,
    /// The shards this node scans, now and as they change.
    owned_now: watch::Receiver<Arc<OwnedShards>>,
    /// As it was at the last reconciliation.
    owned: Arc<OwnedShards>,
}

impl Reconciler {
    async fn run(mut self) {
        self.forget_the_run_before();
        loop {
            self.reconcile().await;
            // A watch may end before the engine does: what it said last holds on.
            tokio::select! {
                biased;
                () = self.shutdown.stop.cancelled() => return,
                Ok(()) = self.parts.topics.changed() => {}
                Ok(()) = self.owned_now.changed() => {}
                () = self.emptied.notified() => {}
            }
        }
    }

    /// Takes out what an earlier run has left where others see it.
    fn forget_the_run_before(&self) {
        let there = self.parts.topics.borrow().clone();
        let schedules: Vec<_> = self.scheduler.schedules.write().drain().collect();
        for (name, schedule) in schedules {
            schedule.close();
            self.sinks.set(&name, None);
            if !there.contains_key(&name) {
                self.parts.meters.forget_topic(&name);
            }
        }
        self.open.write().drain().for_each(|(_, open)| open.closed.cancel());
    }

    async fn reconcile(&mut self) {
        let topics = self.parts.topics.borrow_and_update().clone();
        let owned = self.owned_now.borrow_and_update().clone();
        let gone: Vec<TopicName> = self.running.keys().filter(|name| !topics.contains_key(*name)).cloned().collect();
        for name in gone {
            self.end(&name);
        }
        let mut shards: BTreeMap<&TopicName, Vec<u32>> = BTreeMap::new();
        for (topic, index) in &owned.0 {
            shards.entry(topic).or_default().push(*index);
        }
        let mut unscanned = Vec::new();
        know_by_age(&self.parts.meters, topics.values().filter(|record| !self.running.contains_key(&record.name)));
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
        self.scheduler.poll_now.notify_one();
    }

    fn end(&mut self, name: &TopicName) {
        let Some(running) = self.running.remove(name) else { return };
        self.close(name);
        self.scheduler.schedules.write().remove(name);
        self.sinks.set(name, None);
        if let Some(runner) = running.runner {
            runner.stop();
        }
        running.schedule.close();
        self.parts.meters.forget_topic(name);
        info!(topic = %name, "topic is gone, its loops end");
    }

    /// Ends the waits of consumers that claim from the topic as it was: they read it again.
    fn close(&self, name: &TopicName) {
        if let Some(open) = self.open.write().remove(name) {
            open.closed.cancel();
        }
    }

    fn run_topic(&mut self, name: &TopicName, record: &Arc<TopicRecord>, indices: &[u32]) {
        // Another topic of the same name: nothing of the old one goes on.
        if self.running.get(name).is_some_and(|running| running.record.routing.life() != record.routing.life()) {
            self.end(name);
        }
        let parts = &self.parts;
        let new = || {
            let (wheel, clock) = (self.scheduler.wheel.clone(), parts.clock.clone());
            let schedule = TopicSchedule::new(name.clone(), wheel, clock, self.emptied.clone(), parts.schedule.clone());
            RunningTopic { record: record.clone(), schedule, runner: None, refused: None, generation: 0 }
        };
        let fresh = !self.running.contains_key(name);
        let running = self.running.entry(name.clone()).or_insert_with(new);
        // A consumer gets what is due from whatever node it asks, so each polls all shards of a
        // topic that consumers claim from.
        let all: Vec<u32>;
        let polled = if record.config.sink.is_none() {
            all = (0..record.routing.shards.max(record.routing.previous)).collect();
            &all
        } else {
            indices
        };
        if fresh || running.schedule.differs(record.routing.id(), polled) {
            running.schedule.own(record.routing.id(), polled.iter().copied());
        }
        let topic_meters = parts.meters.topic(name);
        topic_meters.shards.set(i64::from(record.routing.shards));
        topic_meters.paused.set(i64::from(record.config.paused));
        topic_meters.set_claimed_by_consumers(record.config.sink.is_none());
        topic_meters.set_sink(record.config.sink.as_ref().map(|sink| sink.name.as_str()));
        topic_meters.shards_owned.set(i64::try_from(indices.len()).unwrap_or(i64::MAX));
        let unanswered = self.scheduler.unanswered.load(Ordering::Relaxed);
        if !unanswered && !self.scheduler.reported.borrow().has_any(name) {
            gauges::clear(&parts.meters, name);
        }
        // Before it is bound: one that changes meanwhile is bound once more.
        let generation = record.config.sink.as_ref().map_or(0, |sink| parts.sinks.generation(&sink.name));
        let changed = running.record.config != record.config || running.generation != generation;
        running.generation = generation;
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
            schedule: running.schedule.clone(),
            budget: TopicBudget::new(self.budget.clone(), &self.config, usize::MAX),
            rate: Arc::new(Rate::new(record.config.rate_limit)),
            health: self.scheduler.health.clone(),
            clock: parts.clock.clone(),
            meters: parts.meters.clone(),
            topic_meters,
            config: self.config.clone(),
            tracer: parts.tracer.clone(),
        };
        self.scheduler.schedules.write().insert(name.clone(), running.schedule.clone());
        let Some(sink) = &record.config.sink else {
            running.refused = None;
            self.sinks.set(name, None);
            parts.meters.topic(name).breaker_open.set(0);
            let open = OpenTopic { work, closed: CancellationToken::new() };
            if let Some(before) = self.open.write().insert(name.clone(), open) {
                before.closed.cancel();
            }
            return;
        };
        if let Some(before) = self.open.write().remove(name) {
            before.closed.cancel();
        }
        if record.config.paused {
            running.refused = None;
            self.sinks.set(name, None);
            parts.meters.topic(name).breaker_open.set(0);
            return;
        }
        match Runner::start(work, &self.budget, &*parts.sinks, &self.sinks, &self.supervisor, self.shutdown.child()) {
            Ok(runner) => {
                running.refused = None;
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
            .flat_map(|(name, running)| {
                running.schedule.take_emptied().into_iter().map(move |index| (name.clone(), index))
            })
            .collect();
        for (topic, index) in emptied {
            self.parts.ownership.settled(&topic, index).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use duetime_core::{ChangeId, Timestamp, TopicConfig};
    use duetime_metrics::TOPIC_SERIES_MAX;

    use super::*;

    #[test]
    fn nodes_that_know_the_same_topics_name_the_same_ones() {
        // The older, the later its name.
        let record = |n: usize| {
            let name = TopicName::new(&format!("topic-{:04}", 9_999 - n)).unwrap();
            let at = Timestamp::from_millis(i64::try_from(n).unwrap());
            Arc::new(TopicRecord::new(name, TopicConfig::default(), 1, ChangeId(1), at))
        };
        let all: Vec<Arc<TopicRecord>> = (0..TOPIC_SERIES_MAX + 64).map(record).collect();
        let named = |meters: &Meters| {
            let text = meters.render();
            all.iter().map(|record| text.contains(&format!("topic=\"{}\"", record.name))).collect::<Vec<_>>()
        };
        // One saw each come, the other starts and reads them all.
        let (old, new) = (Meters::new(), Meters::new());
        all.iter().for_each(|record| know_by_age(&old, std::iter::once(record)));
        know_by_age(&new, all.iter().rev());
        assert_eq!(named(&old), named(&new));
        assert_eq!(named(&new).iter().filter(|is_named| **is_named).count(), TOPIC_SERIES_MAX);
    }
}
