//! Turns the timing wheel: says which shard is due, at the millisecond, and sleeps in between.
//!
//! What it knows of due times comes with the answers to claims, with hints of the store, and from
//! the look at every idle shard once a second, which is the only one correctness rests on.
//! Downstream: the lanes. Never claims anything.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::limits::LOOK_EVERY;
use duetime_core::store::Wakeup;
use duetime_core::{Clock, OwnedShards, Store, StoreError, Timestamp, TopicName};
use duetime_metrics::Meters;
use parking_lot::RwLock;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::gauges::Gauges;
use crate::health::Health;
use crate::lane::{Idle, Lane};
use crate::wheel::Wheel;

/// However often a look is wanted before its time, two are at least this far apart.
const LOOK_GAP: Duration = Duration::from_millis(20);

/// The lanes of all topics.
pub(crate) type Lanes = RwLock<HashMap<TopicName, Arc<Lane>>>;

/// What the two loops of this file share.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) wheel: Arc<Wheel>,
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

    /// Looks at all idle shards once a second, in one call, until `stop`. Every few seconds the
    /// look is a survey, which tells the heads too.
    pub(crate) async fn look(self, mut gauges: Gauges, stop: CancellationToken) {
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
                self.look_once(&mut gauges).await;
                tokio::time::sleep(LOOK_GAP).await;
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = look => {}
            }
        }
    }

    async fn look_once(&self, gauges: &mut Gauges) {
        let lanes: Vec<Arc<Lane>> = self.lanes.read().values().cloned().collect();
        if gauges.are_due() {
            gauges.taken();
            let looked = self.survey(&lanes, gauges).await;
            return self.note(looked);
        }
        let idle: Vec<(Arc<Lane>, Vec<Idle>)> = lanes.iter().map(|lane| (lane.clone(), lane.idle())).collect();
        let looked = match self.heads(&idle).await {
            // One topic that was deleted a moment ago must not blind the others.
            Err(StoreError::UnknownShard(_) | StoreError::Stale(_) | StoreError::NotReady(_)) => {
                let mut last = Ok(());
                for lane in idle {
                    if let Err(error) = self.heads(&[lane]).await {
                        last = Err(error);
                    }
                }
                last
            }
            other => other,
        };
        self.note(looked);
    }

    fn note(&self, looked: Result<(), StoreError>) {
        match looked {
            Ok(()) => self.health.ok(),
            Err(error) => self.health.failed(&error),
        };
    }

    async fn heads(&self, idle: &[(Arc<Lane>, Vec<Idle>)]) -> Result<(), StoreError> {
        let shards: Vec<_> = idle.iter().flat_map(|(_, idle)| idle).map(|idle| idle.shard.clone()).collect();
        if shards.is_empty() {
            return Ok(());
        }
        let heads = self.store.heads(&shards).await?;
        let seats = idle.iter().flat_map(|(lane, idle)| idle.iter().map(move |idle| (lane, idle)));
        for ((lane, idle), head) in seats.zip(heads) {
            lane.looked(idle, head);
        }
        Ok(())
    }

    async fn survey(&self, lanes: &[Arc<Lane>], gauges: &Gauges) -> Result<(), StoreError> {
        let now = self.clock.now();
        let all: Vec<(Arc<Lane>, Vec<Idle>)> = lanes.iter().map(|lane| (lane.clone(), lane.idle())).collect();
        let shards: Vec<_> = lanes.iter().flat_map(|lane| lane.shards()).collect();
        if shards.is_empty() {
            return Ok(());
        }
        let surveys = self.store.survey(&shards, now).await?;
        let mut heads: HashMap<_, Option<Timestamp>> = HashMap::with_capacity(shards.len());
        // Shards that are only looked at for consumers are another node's to report.
        let owned = self.owned.borrow().clone();
        let (own, of_own): (Vec<_>, Vec<_>) =
            shards.iter().cloned().zip(surveys.iter().copied()).filter(|(s, _)| owned.has(&s.topic, s.index)).unzip();
        gauges.set(&self.meters, &own, &of_own, now);
        for (shard, survey) in shards.into_iter().zip(surveys) {
            heads.insert(shard, survey.head);
        }
        for (lane, idle) in all.iter().flat_map(|(lane, idle)| idle.iter().map(move |idle| (lane, idle))) {
            if let Some(head) = heads.get(&idle.shard) {
                lane.looked(idle, *head);
            }
        }
        Ok(())
    }

    /// Looks at the idle shards of one topic now, because somebody asks what is due.
    pub(crate) async fn look_at(&self, lane: &Arc<Lane>) -> Result<(), StoreError> {
        self.heads(&[(lane.clone(), lane.idle())]).await
    }
}

async fn next_hint(hints: &mut Option<broadcast::Receiver<Wakeup>>) -> Result<Wakeup, broadcast::error::RecvError> {
    match hints {
        Some(hints) => hints.recv().await,
        None => std::future::pending().await,
    }
}
