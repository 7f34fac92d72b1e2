//! Turns the timing wheel: says which shard is due, at the millisecond, and sleeps in between.
//!
//! What it knows of due times comes with the answers to claims, with hints of the store, and from
//! the safety poll of every idle shard once a second, which is the only one correctness rests on. Each server
//! is polled by itself, and one that is silent keeps no poll waiting for longer than a second.
//! Downstream: the schedules. Never claims anything.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_core::limits::SAFETY_POLL_EVERY;
use duetime_core::store::Wakeup;
use duetime_core::{Clock, OwnedShards, ScheduleStore, ServerId, Shard, StoreError, TopicName};
use duetime_metrics::Meters;
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use parking_lot::RwLock;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::config::POLL_GAP;
use crate::gauges::{self, Gauges, Survey};
use crate::health::Health;
use crate::schedule::TopicSchedule;
use crate::shard_entry::Idle;
use crate::wheel::Wheel;

/// The schedules of all topics.
pub(crate) type TopicSchedules = RwLock<HashMap<TopicName, Arc<TopicSchedule>>>;

/// A poll that takes longer is not waited for, whatever the store promises.
const POLL_WITHIN: Duration = Duration::from_millis(1_500);

/// The idle shards of one server, each with its schedule.
type IdleShards = Vec<(Arc<TopicSchedule>, Idle)>;

/// What the loops of this file share.
#[derive(Clone, Debug)]
pub(crate) struct Scheduler {
    pub(crate) store: Arc<dyn ScheduleStore>,
    pub(crate) schedules: Arc<TopicSchedules>,
    pub(crate) wheel: Arc<Wheel<TopicSchedule>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
    pub(crate) meters: Arc<Meters>,
    /// The shards whose messages this node counts.
    pub(crate) reported: watch::Receiver<Arc<OwnedShards>>,
    /// Nodes take turns, by the store: one that the store does not answer loses its shards to nobody.
    pub(crate) in_turns: bool,
    /// The store answered no survey since: the gauges stay, whatever this node scans.
    pub(crate) unanswered: Arc<AtomicBool>,
    /// Notified when a poll is needed before its time.
    pub(crate) poll_now: Arc<tokio::sync::Notify>,
}

impl Scheduler {
    /// Runs the timer and takes in hints until `stop`.
    pub(crate) async fn run_timer(self, stop: CancellationToken) {
        let mut hints = Some(self.store.wakeups());
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                (schedule, index) = self.wheel.next() => schedule.timer_fired(index),
                hint = next_hint(&mut hints) => match hint {
                    Ok(hint) => self.take_hint(&hint),
                    Err(broadcast::error::RecvError::Lagged(_)) => self.poll_now.notify_one(),
                    Err(broadcast::error::RecvError::Closed) => hints = None,
                },
            }
        }
    }

    fn take_hint(&self, hint: &Wakeup) {
        let schedule = self.schedules.read().get(&hint.topic).cloned();
        if let Some(schedule) = schedule {
            match hint.visible_at {
                Some(at) => schedule.hint(hint.index, at),
                None => schedule.has_room(hint.index),
            }
        }
    }

    /// Polls all idle shards once a second, in one call to each server, until `stop`.
    pub(crate) async fn poll(self, stop: CancellationToken) {
        let mut next = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.poll_now.notified() => {}
                () = tokio::time::sleep_until(next) => {}
            }
            next = Instant::now() + SAFETY_POLL_EVERY;
            let poll = async {
                self.poll_once().await;
                tokio::time::sleep(POLL_GAP).await;
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = poll => {}
            }
        }
    }

    /// Takes the gauges every few seconds until `stop`. Nothing that is due waits for it.
    pub(crate) async fn survey(self, mut gauges: Gauges, stop: CancellationToken) {
        loop {
            let survey = async {
                tokio::time::sleep_until(gauges.next()).await;
                let polled = self.survey_once(&mut gauges).await;
                self.note(polled);
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = survey => {}
            }
            gauges.taken();
        }
    }

    async fn poll_once(&self) {
        let schedules: Vec<Arc<TopicSchedule>> = self.schedules.read().values().cloned().collect();
        let polled = self.next_due(&schedules).await;
        self.note(polled);
    }

    fn note(&self, polled: Result<(), StoreError>) {
        match polled {
            Ok(()) => self.health.ok(),
            Err(error) => self.health.failed(&error),
        };
    }

    /// Polls the idle shards of these schedules, at all servers at once. Fails when none answers.
    async fn next_due(&self, schedules: &[Arc<TopicSchedule>]) -> Result<(), StoreError> {
        let mut servers = BTreeMap::<ServerId, IdleShards>::new();
        for schedule in schedules {
            for idle in schedule.idle() {
                servers.entry(idle.server).or_default().push((schedule.clone(), idle));
            }
        }
        let mut polls: FuturesUnordered<_> = servers.into_iter().map(|(at, idle)| self.next_due_at(at, idle)).collect();
        let (mut answered, mut failed, mut unresponsive) = (false, None, Vec::new());
        while let Some((server, idle, polled)) = polls.next().await {
            match polled {
                Ok(()) => {
                    answered = true;
                    self.set_unresponsive(server, &idle, false);
                }
                Err(error) => {
                    if matches!(error, StoreError::Unavailable { .. }) {
                        unresponsive.push((server, idle));
                    }
                    failed = Some(error);
                }
            }
        }
        if answered {
            for (server, idle) in unresponsive {
                self.set_unresponsive(server, &idle, true);
            }
        }
        match failed {
            Some(error) if !answered || !matches!(error, StoreError::Unavailable { .. }) => Err(error),
            _ => Ok(()),
        }
    }

    /// Records in the schedules of these shards whether their server is unresponsive.
    fn set_unresponsive(&self, server: ServerId, idle: &IdleShards, unresponsive: bool) {
        let mut has_changed = false;
        for (schedule, _) in idle {
            has_changed |= schedule.set_unresponsive(server, unresponsive);
        }
        let shards = idle.len();
        if has_changed && unresponsive {
            warn!(shards, "a server of the store does not answer, its shards wait and the others go on");
        } else if has_changed {
            info!(shards, "a server of the store that was unresponsive answers again");
        }
    }

    /// Polls the idle shards of one server.
    async fn next_due_at(&self, server: ServerId, idle: IdleShards) -> (ServerId, IdleShards, Result<(), StoreError>) {
        let polled = match self.heads_of(&idle).await {
            // One topic that was deleted a moment ago must not blind the others.
            Err(StoreError::UnknownShard(_) | StoreError::Stale(_) | StoreError::NotReady(_)) => {
                let each = idle.chunk_by(|(a, _), (b, _)| Arc::ptr_eq(a, b)).map(|idle| self.heads_of(idle));
                join_all(each).await.into_iter().filter(Result::is_err).last().unwrap_or(Ok(()))
            }
            other => other,
        };
        (server, idle, polled)
    }

    async fn heads_of(&self, idle: &[(Arc<TopicSchedule>, Idle)]) -> Result<(), StoreError> {
        let shards: Vec<Shard> = idle.iter().map(|(_, idle)| idle.shard.clone()).collect();
        let heads = tokio::time::timeout(POLL_WITHIN, self.store.next_due(&shards)).await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable { doing: "look at the heads", source: "no answer in time".into() })
        })?;
        for ((schedule, idle), head) in idle.iter().zip(heads) {
            schedule.polled(idle, head);
        }
        Ok(())
    }

    async fn survey_once(&self, gauges: &mut Gauges) -> Result<(), StoreError> {
        let (now, began) = (self.clock.now(), Instant::now());
        self.meters.retries_due(now);
        let schedules = self.schedules.read().clone();
        for (topic, schedule) in &schedules {
            // One that has just ended gets no series again.
            if let Some(meters) = self.meters.known_topic(topic) {
                meters.shards_full.set(i64::try_from(schedule.full_shards()).unwrap_or(i64::MAX));
            }
        }
        for schedule in schedules.values().filter(|schedule| schedule.shards().is_empty()) {
            gauges.has_no_shard(&schedule.topic, began);
        }
        let reported = self.reported.borrow().clone();
        let shard = |(topic, index): &(TopicName, u32)| Some(schedules.get(topic)?.shard(*index));
        let shards: Vec<Shard> = reported.0.iter().filter_map(shard).collect();
        if shards.is_empty() {
            // Its shards may be gone because the store does not answer this node: that ends with an answer.
            let last: Vec<_> = gauges.last().into_iter().filter(|shard| schedules.contains_key(&shard.topic)).collect();
            if !last.is_empty()
                && let Err(error @ StoreError::Unavailable { .. }) = self.store.counts(&last, now).await
            {
                if self.in_turns {
                    // No other node counts them either.
                    self.unanswered.store(true, Ordering::Relaxed);
                    let counts = vec![None; last.len()];
                    gauges.set(&self.meters, &Survey { shards: &last, counts: &counts, began }, now);
                }
                return Err(error);
            }
            self.meters.surveyed();
            if self.unanswered.swap(false, Ordering::Relaxed) {
                schedules.keys().for_each(|topic| gauges::clear(&self.meters, topic));
            }
            gauges.forget();
            return Ok(());
        }
        let answer = self.store.counts(&shards, now).await;
        let is_silent = matches!(answer, Err(StoreError::Unavailable { .. }));
        self.unanswered.store(self.in_turns && is_silent, Ordering::Relaxed);
        let counts = match &answer {
            Err(StoreError::Unavailable { .. }) => vec![None; shards.len()],
            answered => {
                self.meters.surveyed();
                // Else it says that a topic changes; the next survey asks it as it is then.
                let Ok(counts) = answered else { return answer.map(drop) };
                counts.clone()
            }
        };
        let known = shards.iter().zip(&counts).filter_map(|(shard, counts)| Some((shard, counts.as_ref()?)));
        self.meters.surveys.keep(now, known);
        gauges.set(&self.meters, &Survey { shards: &shards, counts: &counts, began }, now);
        answer.map(drop)
    }

    /// Polls the idle shards of one topic now, because somebody asks what is due.
    pub(crate) async fn poll_topic(&self, schedule: &Arc<TopicSchedule>) -> Result<(), StoreError> {
        self.next_due(std::slice::from_ref(schedule)).await
    }
}

async fn next_hint(hints: &mut Option<broadcast::Receiver<Wakeup>>) -> Result<Wakeup, broadcast::error::RecvError> {
    match hints {
        Some(hints) => hints.recv().await,
        None => std::future::pending().await,
    }
}
