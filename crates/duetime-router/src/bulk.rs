//! Bulk actions: first a draft with a count and samples; then, once somebody agreed to a number, a plan that some node
//! carries out page by page, until it acted on so many or is stopped.
//!
//! A plan is a record in the store ([`RecordStore`]) that only who saw its present text changes. Each page is announced
//! there before it is carried out, so a node that finds another record (the plan was stopped, or another node took it
//! over) does nothing more. A page may be carried out twice: messages are found anew, and acting on one again changes
//! nothing. Upstream: the API. Downstream: [`Router`].

mod carry_out;
pub(crate) mod error;
pub(crate) mod page;
pub(crate) mod plan;
mod put_back;
pub(crate) mod space;
pub(crate) mod undo_bin;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::records::{PLAN_BYTES_MAX, RecordKind, RecordStore, Records};
use duetime_core::{Clock, Draw, StoreError, Timestamp, TopicName};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::bulk::error::PlanError;
use crate::bulk::plan::undo::{UNDO_LOST_MS, UNDO_MS};
use crate::bulk::plan::{BulkPlan, HELD_MS, PlanAsk, PlanCounts, PlanStart, PlanState, cut};
use crate::bulk::space::{Space, space_for};
use crate::bulk::undo_bin::UndoBin;
use crate::error::RouteError;
use crate::router::Router;

/// Messages a second that a plan may have.
pub const PER_SECOND_MAX: u32 = 10_000;
/// Ids that are shown of a plan.
const SAMPLES: usize = 5;
/// A count of what matches ends after this time, or this many messages.
const COUNT_FOR: Duration = Duration::from_secs(2);
const COUNT_MAX: u64 = 20_000;
/// Nodes look for plans that nobody carries out so often; one that is started says so to its own.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A page that was announced longer ago is not carried out: the plan may have been stopped and be taken for ended.
const ACT_WITHIN: Duration = Duration::from_secs(3);
/// A page takes this long at most; what is left of it is counted as failed.
const PAGE_FOR: Duration = Duration::from_millis(HELD_MS.unsigned_abs() * 2 / 3);
/// After an error, and before another pass while the shard count changes.
const REST: Duration = Duration::from_secs(2);
/// A page of which nothing could be carried out is tried so often, then counted as failed and left behind.
const FAILING_MAX: u32 = 30;
/// Between two pages at least: one in which nothing matches costs the store a look all the same.
const LOOK_REST: Duration = Duration::from_millis(20);
/// For how long the store may go on with a removal that its caller has given up, at the defaults of the store: see
/// [`late_for`].
pub const LATE_FOR: Duration = late_for(Duration::from_secs(15), Duration::from_secs(5));
/// How far the clocks of a node and of the store may be apart, so that a call ends that much later.
const CLOCKS_APART: Duration = Duration::from_secs(5);
/// How often a change of a record is tried again because the node that carries it out writes to it.
const CHANGES_MAX: u32 = 20;

/// For how long the store may go on with a removal that its caller has given up: two calls, one behind the other, each
/// of which is repeated for `retry_for` and waits `response_timeout` for the last answer; and the clocks' difference.
#[must_use]
pub const fn late_for(retry_for: Duration, response_timeout: Duration) -> Duration {
    let call = retry_for.saturating_add(response_timeout);
    call.saturating_add(call).saturating_add(CLOCKS_APART)
}

/// What receives the messages that an action failed on.
pub trait PlanWatcher: Send + Sync + std::fmt::Debug + 'static {
    /// The action of `plan` failed on message `id`.
    fn failed(&self, plan: &BulkPlan, id: &str, reason: &str);
}

/// A plan that this node carries out, and its text in the store.
struct HeldPlan {
    seen: String,
    plan: BulkPlan,
    /// Pages in a row of which nothing could be carried out.
    failing: u32,
}

/// What the plans of a node are carried out with.
#[derive(Clone, Debug)]
pub struct PlanDeps {
    /// Finds the messages, and acts on them.
    pub router: Arc<Router>,
    /// Where the plans are.
    pub store: Arc<dyn RecordStore>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Receives what an action failed on.
    pub watcher: Arc<dyn PlanWatcher>,
    /// The name of the node.
    pub node: String,
    /// For how long the store may go on with a removal that its caller has given up. Default [`LATE_FOR`].
    pub late_for: Duration,
    /// Where random numbers come from. Default: the machine.
    pub draw: Draw,
}

impl PlanDeps {
    /// With the defaults.
    #[must_use]
    pub fn new(
        router: Arc<Router>,
        store: Arc<dyn RecordStore>,
        clock: Arc<dyn Clock>,
        watcher: Arc<dyn PlanWatcher>,
        node: &str,
    ) -> Self {
        let draw = Draw::new(rand::random::<u64>);
        Self { router, store, clock, watcher, node: node.to_owned(), late_for: LATE_FOR, draw }
    }
}

/// The plans of an installation, at one node.
#[derive(Debug)]
pub struct Plans {
    router: Arc<Router>,
    store: Arc<dyn RecordStore>,
    clock: Arc<dyn Clock>,
    watcher: Arc<dyn PlanWatcher>,
    late_for: Duration,
    draw: Draw,
    /// This life of this node: after a restart it is another.
    node: String,
    started: Notify,
    /// What was removed here and can be put back.
    bin: UndoBin,
}

/// A random number that is written in eight characters.
fn short(draw: &Draw) -> u64 {
    draw.next() >> 32
}

fn written(plan: &BulkPlan) -> String {
    let text = |plan: &BulkPlan| serde_json::to_string(plan).expect("plain data");
    let whole = text(plan);
    if whole.len() <= PLAN_BYTES_MAX { whole } else { text(&plan.clone().unmarked()) }
}

impl Plans {
    /// Plans that are kept in a store and carried out by a router.
    #[must_use]
    pub fn new(deps: PlanDeps) -> Arc<Self> {
        let PlanDeps { router, store, clock, watcher, node, late_for, draw } = deps;
        let node = format!("{node}/{:08x}", short(&draw));
        let (started, bin) = (Notify::new(), UndoBin::default());
        Arc::new(Self { router, store, clock, watcher, late_for, draw, node, started, bin })
    }

    fn now(&self) -> i64 {
        self.clock.now().as_millis()
    }

    /// The plans of a topic that somebody agreed to, the newest first; none of a former life of it.
    ///
    /// # Errors
    ///
    /// [`RouteError::UnknownTopic`], or the store's.
    pub async fn of_topic(&self, topic: &TopicName) -> Result<Vec<BulkPlan>, PlanError> {
        let life = self.router.topic(topic).await?.routing.life();
        let is_one = |p: &BulkPlan| p.topic == topic.as_str() && p.life == life && p.state != PlanState::Planned;
        let read = |text: String| serde_json::from_str::<BulkPlan>(&text).ok().filter(is_one);
        let mut plans: Vec<BulkPlan> =
            self.store.records(RecordKind::Plan).await?.by_name.into_values().filter_map(read).collect();
        plans.sort_by(|a, b| b.created_at.cmp(&a.created_at).then(a.id.cmp(&b.id)));
        Ok(plans)
    }

    async fn read(&self, id: &str) -> Result<Option<HeldPlan>, StoreError> {
        let Some(seen) = self.store.records(RecordKind::Plan).await?.by_name.remove(id) else { return Ok(None) };
        let plan = serde_json::from_str(&seen);
        let plan = plan.map_err(|error| StoreError::Damaged(format!("plan {id}: {error}")))?;
        Ok(Some(HeldPlan { plan, seen, failing: 0 }))
    }

    async fn read_of(&self, topic: &TopicName, id: &str) -> Result<HeldPlan, PlanError> {
        let is_there = |held: &HeldPlan| held.plan.topic == topic.as_str() && !held.plan.is_forgotten(self.now());
        self.read(id).await?.filter(is_there).ok_or(PlanError::Unknown)
    }

    /// One plan of a topic.
    ///
    /// # Errors
    ///
    /// [`PlanError::Unknown`], or the store's.
    pub async fn get(&self, topic: &TopicName, id: &str) -> Result<BulkPlan, PlanError> {
        Ok(self.read_of(topic, id).await?.plan)
    }

    /// Counts what matches and keeps a draft, which [`Self::start`] begins.
    ///
    /// # Errors
    ///
    /// [`PlanError::TooMany`], where the topic or the token has as many as may be and all are running;
    /// [`RouteError::UnknownTopic`], or the store's.
    pub async fn create(&self, topic: &TopicName, ask: PlanAsk) -> Result<BulkPlan, PlanError> {
        let record = self.router.current_topic(topic).await?;
        let now = self.now();
        let mut plan = BulkPlan {
            id: format!("{:x}-{:08x}", now, short(&self.draw)),
            topic: topic.to_string(),
            life: record.routing.life(),
            action: ask.action,
            to: ask.to.map(Timestamp::as_millis),
            filter: ask.filter,
            per_second: ask.per_second.clamp(1, PER_SECOND_MAX),
            created_at: now,
            by: ask.by,
            state: PlanState::Planned,
            number: 1,
            node: None,
            held_until: 0,
            cursor: None,
            epoch: record.routing.epoch,
            passes: 0,
            expected: 0,
            redriven_before: 0,
            counted_all: true,
            at_most: None,
            samples: Vec::new(),
            open: 0,
            open_marks: String::new(),
            lost_marks: String::new(),
            counts: PlanCounts::default(),
            failures: Vec::new(),
            last_death: None,
            trouble: None,
            started_at: None,
            ended_at: None,
            undo: None,
        };
        if ask.undoable {
            plan.make_undoable(record.memory());
        }
        self.count(&mut plan).await?;
        self.make_way(topic, plan.by.as_deref()).await?;
        self.store.swap_record(RecordKind::Plan, &plan.id, None, Some(&written(&plan))).await?;
        Ok(plan)
    }

    async fn count(&self, plan: &mut BulkPlan) -> Result<(), RouteError> {
        let (begun, mut cursor, mut last_death) = (Instant::now(), None, None);
        plan.last_death = Some(i64::MAX);
        loop {
            let page = page::page(&self.router, plan, cursor, BATCH_ITEMS_MAX).await?;
            last_death = last_death.max(page.last_death);
            plan.expected += page.ids.len() as u64;
            plan.redriven_before += page.redriven_before;
            let missing = SAMPLES - plan.samples.len();
            plan.samples.extend(page.ids.iter().take(missing).map(|id| cut(id.as_str())));
            cursor = page.next;
            plan.counted_all = cursor.is_none();
            if plan.counted_all || plan.expected >= COUNT_MAX || begun.elapsed() >= COUNT_FOR {
                plan.last_death = last_death;
                return Ok(());
            }
        }
    }

    /// Makes space for one more plan of `topic` by the token `by`, where there are as many as may be.
    async fn make_way(&self, topic: &TopicName, by: Option<&str>) -> Result<(), PlanError> {
        let all = self.store.records(RecordKind::Plan).await?.by_name;
        let plans: Vec<BulkPlan> = all.values().filter_map(|text| serde_json::from_str(text).ok()).collect();
        let forgotten = match space_for(topic.as_str(), by, &plans, all.len(), self.now()) {
            Space::There => return Ok(()),
            Space::Instead(plan) => plan,
            Space::None(why) => return Err(PlanError::TooMany(why)),
        };
        let seen = all.get(&forgotten.id).map(String::as_str);
        match self.store.swap_record(RecordKind::Plan, &forgotten.id, seen, None).await {
            Err(StoreError::Conflict) => Ok(()),
            other => Ok(other?),
        }
    }

    async fn change(
        &self,
        topic: &TopicName,
        id: &str,
        change: impl Fn(&mut BulkPlan, i64) -> Result<(), String>,
    ) -> Result<BulkPlan, PlanError> {
        for _ in 0..CHANGES_MAX {
            let HeldPlan { seen, mut plan, .. } = self.read_of(topic, id).await?;
            change(&mut plan, self.now()).map_err(PlanError::Refused)?;
            match self.store.swap_record(RecordKind::Plan, id, Some(&seen), Some(&written(&plan))).await {
                Err(StoreError::Conflict) => {}
                Err(error) => return Err(error.into()),
                Ok(()) => return Ok(plan),
            }
        }
        Err(PlanError::Refused("others keep changing it; try again".to_owned()))
    }

    /// Begins a draft that somebody agreed to, or goes on with a plan that was stopped.
    ///
    /// # Errors
    ///
    /// [`PlanError`].
    pub async fn start(&self, topic: &TopicName, id: &str, how: PlanStart) -> Result<BulkPlan, PlanError> {
        let how = PlanStart { per_second: how.per_second.map(|rate| rate.clamp(1, PER_SECOND_MAX)), ..how };
        let plan = self.change(topic, id, |plan, now| plan.start(now, how)).await?;
        self.started.notify_one();
        Ok(plan)
    }

    /// Stops a plan: no page is announced any more. The one that is under way may still be carried out, and the plan is
    /// `stopping` until it was.
    ///
    /// # Errors
    ///
    /// [`PlanError`].
    pub async fn stop(&self, topic: &TopicName, id: &str) -> Result<BulkPlan, PlanError> {
        self.change(topic, id, BulkPlan::stop).await
    }

    /// Forgets a plan that does not run.
    ///
    /// # Errors
    ///
    /// [`PlanError`].
    pub async fn delete(&self, topic: &TopicName, id: &str) -> Result<BulkPlan, PlanError> {
        let held = self.read_of(topic, id).await?;
        if matches!(held.plan.state, PlanState::Running | PlanState::Stopping) {
            return Err(PlanError::Refused("it is running; stop it first".to_owned()));
        }
        if held.plan.is_undoing() {
            return Err(PlanError::Refused("it is being taken back; wait for that to end".to_owned()));
        }
        match self.store.swap_record(RecordKind::Plan, id, Some(&held.seen), None).await {
            Err(StoreError::Conflict) => {
                Err(PlanError::Refused("it was changed just now; look at it again".to_owned()))
            }
            other => Ok(other.map(|()| held.plan)?),
        }
    }

    /// Forgets drafts that nobody agreed to in time; what fails is tried again at the next look.
    async fn forget_drafts(&self, all: &BTreeMap<String, String>) {
        for (id, text) in all {
            if serde_json::from_str(text).is_ok_and(|plan: BulkPlan| plan.is_forgotten(self.now())) {
                let _ = self.store.swap_record(RecordKind::Plan, id, Some(text), None).await;
            }
        }
    }

    /// Carries out plans that are started, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut busy = HashSet::new();
        let mut work = FuturesUnordered::new();
        let mut complained = false;
        loop {
            match self.store.records(RecordKind::Plan).await {
                Ok(Records { by_name: all, .. }) => {
                    complained = false;
                    self.forget_drafts(&all).await;
                    self.bin.sweep(self.now(), |plan| all.contains_key(plan));
                    let waits = |plan: &BulkPlan| {
                        matches!(plan.state, PlanState::Running | PlanState::Stopping)
                            && plan.may_be_taken(&self.node, self.now())
                    };
                    for text in all.into_values() {
                        let Ok(plan) = serde_json::from_str::<BulkPlan>(&text) else { continue };
                        if (waits(&plan) || self.is_to_undo(&plan)) && busy.insert(plan.id.clone()) {
                            work.push(self.work_on(plan, stop.clone()));
                        } else if !busy.contains(&plan.id) {
                            self.offer_late(&plan, &text).await;
                            self.give_up_undo(&plan, &text).await;
                        }
                    }
                }
                Err(error) if !complained => {
                    complained = true;
                    warn!(%error, "bulk plans could not be read");
                }
                Err(_) => {}
            }
            let look = sleep(LOOK_EVERY);
            tokio::pin!(look);
            loop {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {
                        // Each gives its plan back, for another node.
                        while work.next().await.is_some() {}
                        return;
                    }
                    Some(id) = work.next(), if !work.is_empty() => {
                        busy.remove(&id);
                    }
                    () = self.started.notified() => break,
                    () = &mut look => break,
                }
            }
        }
    }

    /// Carries a plan out, or takes it back. Answers its id.
    async fn work_on(&self, plan: BulkPlan, stop: CancellationToken) -> String {
        self.bin.open(&plan.id);
        let id = match plan.is_undoing() {
            true => self.put_back(plan.id, stop).await,
            false => self.carry_out(plan.id, stop).await,
        };
        self.bin.close(&id, self.now() + UNDO_MS + UNDO_LOST_MS);
        id
    }

    /// Carries out one plan until it ends, is stopped or taken over. Answers its id.
    async fn carry_out(&self, id: String, stop: CancellationToken) -> String {
        let mut held = match self.take(&id).await {
            Ok(Some(held)) => held,
            Ok(None) => return id,
            Err(error) => {
                warn!(plan = %id, %error, "a bulk plan could not be begun");
                return id;
            }
        };
        info!(plan = %id, topic = %held.plan.topic, action = ?held.plan.action, "bulk plan started");
        while !stop.is_cancelled() {
            let begun = Instant::now();
            let before = held.plan.counts;
            let rest = match self.page(&mut held).await {
                Ok(false) => return id,
                Ok(true) => {
                    let acted = held.plan.counts.known().saturating_sub(before.known());
                    Duration::from_secs_f64(acted as f64 / f64::from(held.plan.per_second.max(1))).max(LOOK_REST)
                }
                Err(error) => {
                    held.plan.trouble = Some(cut(&error.to_string()));
                    // Else another node takes it, and what is kept here is not put back.
                    if matches!(self.keep_hold(&mut held).await, Ok(false)) {
                        return id;
                    }
                    REST
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = sleep(rest.saturating_sub(begun.elapsed())) => {}
            }
        }
        held.plan.hold(&self.node, self.now());
        held.plan.held_until = 0;
        let _ = self.put(&mut held).await;
        id
    }

    /// Takes a plan that nobody holds.
    async fn take(&self, id: &str) -> Result<Option<HeldPlan>, StoreError> {
        let Some(mut held) = self.read(id).await? else { return Ok(None) };
        let now = self.now();
        if !held.plan.may_be_taken(&self.node, now) {
            return Ok(None);
        }
        match held.plan.state {
            PlanState::Running => held.plan.take(&self.node, now),
            PlanState::Stopping => {
                self.offer_undo(&mut held.plan);
                held.plan.end(PlanState::Stopped, now);
            }
            _ => return Ok(None),
        }
        Ok((self.put(&mut held).await? && held.plan.state == PlanState::Running).then_some(held))
    }

    /// Writes the plan if it is as this node saw it; false: it is another by now.
    async fn put(&self, held: &mut HeldPlan) -> Result<bool, StoreError> {
        let text = written(&held.plan);
        let put = match self.store.swap_record(RecordKind::Plan, &held.plan.id, Some(&held.seen), Some(&text)).await {
            // The answer to this very change may have been lost.
            Err(StoreError::Conflict) => self.read(&held.plan.id).await?.is_some_and(|there| there.seen == text),
            other => other.map(|()| true)?,
        };
        if put {
            held.seen = text;
        }
        Ok(put)
    }
}
