//! Turns the timing wheel: says which shard is due, at the millisecond, and sleeps in between.
//!
//! What it knows of due times comes with the answers to claims, with hints of the store, and from
//! the look at every idle shard once a second, which is the only one correctness rests on. Each server
//! is looked at by itself, and one that is silent keeps no look waiting for longer than a second.
//! Downstream: the lanes. Never claims anything.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use duetime_core::limits::LOOK_EVERY;
use duetime_core::store::Wakeup;
use duetime_core::{Clock, OwnedShards, Place, ScheduleStore, Shard, StoreError, TopicName};
use duetime_metrics::Meters;
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use parking_lot::RwLock;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::gauges::Gauges;
use crate::health::Health;
use crate::lane::{Idle, Lane};
use crate::wheel::Wheel;

/// However often a look is wanted before its time, two are at least this far apart.
const LOOK_GAP: Duration = Duration::from_millis(20);

/// The lanes of all topics.
pub(crate) type Lanes = RwLock<HashMap<TopicName, Arc<Lane>>>;

/// A look that takes longer is not waited for, whatever the store promises.
const LOOK_WITHIN: Duration = Duration::from_millis(1_500);

/// The idle shards of one server, each with its lane.
type Seats = Vec<(Arc<Lane>, Idle)>;

/// What the loops of this file share.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    pub(crate) store: Arc<dyn ScheduleStore>,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) wheel: Arc<Wheel<Lane>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) health: Arc<Health>,
    pub(crate) meters: Arc<Meters>,
    /// What this node reports on.
    pub(crate) owned: watch::Receiver<Arc<OwnedShards>>,
    /// Told when a look is wanted before its time.
    pub(crate) look: Arc<tokio::sync::Notify>,
}

impl Pace {
    /// Turns the wheel and takes in hints until `stop`.
    pub(crate) async fn turn(self, stop: CancellationToken) {
        let mut hints = Some(self.store.wakeups());
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                (lane, index) = self.wheel.next() => lane.came_up(index),
                hint = next_hint(&mut hints) => match hint {
                    Ok(hint) => self.take_hint(&hint),
                    Err(broadcast::error::RecvError::Lagged(_)) => self.look.notify_one(),
                    Err(broadcast::error::RecvError::Closed) => hints = None,
                },
            }
        }
    }

    fn take_hint(&self, hint: &Wakeup) {
        let lane = self.lanes.read().get(&hint.topic).cloned();
        if let Some(lane) = lane {
            lane.hint(hint.index, hint.visible_at);
        }
    }

    /// Looks at all idle shards once a second, in one call to each server, until `stop`.
    pub(crate) async fn look(self, stop: CancellationToken) {
        let mut next = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.look.notified() => {}
                () = tokio::time::sleep_until(next) => {}
            }
            next = Instant::now() + LOOK_EVERY;
            let look = async {
                self.look_once().await;
                tokio::time::sleep(LOOK_GAP).await;
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = look => {}
            }
        }
    }

    /// Takes the gauges every few seconds until `stop`. Nothing that is due waits for it.
    pub(crate) async fn survey(self, mut gauges: Gauges, stop: CancellationToken) {
        loop {
            let survey = async {
                tokio::time::sleep_until(gauges.next()).await;
                let looked = self.survey_once(&gauges).await;
                self.note(looked);
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = survey => {}
            }
            gauges.taken();
        }
    }

    async fn look_once(&self) {
        let lanes: Vec<Arc<Lane>> = self.lanes.read().values().cloned().collect();
        let looked = self.heads(&lanes).await;
        self.note(looked);
    }

    fn note(&self, looked: Result<(), StoreError>) {
        match looked {
            Ok(()) => self.health.ok(),
            Err(error) => self.health.failed(&error),
        };
    }

    /// Looks at the idle shards of these lanes, at all servers at once. Fails when none answers.
    async fn heads(&self, lanes: &[Arc<Lane>]) -> Result<(), StoreError> {
        let mut places = BTreeMap::<Place, Seats>::new();
        for lane in lanes {
            for idle in lane.idle() {
                places.entry(idle.place).or_default().push((lane.clone(), idle));
            }
        }
        let mut looks: FuturesUnordered<_> = places.into_iter().map(|(at, seats)| self.heads_at(at, seats)).collect();
        let (mut answered, mut failed, mut silent) = (false, None, Vec::new());
        while let Some((place, seats, looked)) = looks.next().await {
            match looked {
                Ok(()) => {
                    answered = true;
                    self.hear(place, &seats, false);
                }
                Err(error) => {
                    if matches!(error, StoreError::Unavailable { .. }) {
                        silent.push((place, seats));
                    }
                    failed = Some(error);
                }
            }
        }
        if answered {
            for (place, seats) in silent {
                self.hear(place, &seats, true);
            }
        }
        match failed {
            Some(error) if !answered || !matches!(error, StoreError::Unavailable { .. }) => Err(error),
            _ => Ok(()),
        }
    }

    /// Tells the lanes of these shards whether their server is silent.
    fn hear(&self, place: Place, seats: &Seats, silent: bool) {
        let mut news = false;
        for (lane, _) in seats {
            news |= lane.hear(place, silent);
        }
        let shards = seats.len();
        if news && silent {
            warn!(shards, "a server of the store does not answer, its shards wait and the others go on");
        } else if news {
            info!(shards, "a server of the store that was silent answers again");
        }
    }

    /// Looks at the idle shards of one server.
    async fn heads_at(&self, place: Place, seats: Seats) -> (Place, Seats, Result<(), StoreError>) {
        let looked = match self.heads_of(&seats).await {
            // One topic that was deleted a moment ago must not blind the others.
            Err(StoreError::UnknownShard(_) | StoreError::Stale(_) | StoreError::NotReady(_)) => {
                let each = seats.chunk_by(|(a, _), (b, _)| Arc::ptr_eq(a, b)).map(|seats| self.heads_of(seats));
                join_all(each).await.into_iter().filter(Result::is_err).last().unwrap_or(Ok(()))
            }
            other => other,
        };
        (place, seats, looked)
    }

    async fn heads_of(&self, seats: &[(Arc<Lane>, Idle)]) -> Result<(), StoreError> {
        let shards: Vec<Shard> = seats.iter().map(|(_, idle)| idle.shard.clone()).collect();
        let heads = tokio::time::timeout(LOOK_WITHIN, self.store.heads(&shards)).await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable { doing: "look at the heads", source: "no answer in time".into() })
        })?;
        for ((lane, idle), head) in seats.iter().zip(heads) {
            lane.looked(idle, head);
        }
        Ok(())
    }

    async fn survey_once(&self, gauges: &Gauges) -> Result<(), StoreError> {
        let now = self.clock.now();
        self.meters.retries_due(now);
        let lanes: Vec<Arc<Lane>> = self.lanes.read().values().cloned().collect();
        // Shards that are only looked at for consumers are another node's to report.
        let owned = self.owned.borrow().clone();
        let shards = lanes.iter().flat_map(|lane| lane.shards()).filter(|s| owned.has(&s.topic, s.index));
        let shards: Vec<Shard> = shards.collect();
        if shards.is_empty() {
            return Ok(());
        }
        let surveys = self.store.survey_known(&shards, now).await?;
        // Of a silent server's shards nothing is known: what was told before stays.
        let known = shards.into_iter().zip(surveys).filter_map(|(shard, survey)| Some((shard, survey?)));
        let (shards, surveys): (Vec<_>, Vec<_>) = known.unzip();
        gauges.set(&self.meters, &shards, &surveys, now);
        Ok(())
    }

    /// Looks at the idle shards of one topic now, because somebody asks what is due.
    pub(crate) async fn look_at(&self, lane: &Arc<Lane>) -> Result<(), StoreError> {
        self.heads(std::slice::from_ref(lane)).await
    }
}

async fn next_hint(hints: &mut Option<broadcast::Receiver<Wakeup>>) -> Result<Wakeup, broadcast::error::RecvError> {
    match hints {
        Some(hints) => hints.recv().await,
        None => std::future::pending().await,
    }
}
