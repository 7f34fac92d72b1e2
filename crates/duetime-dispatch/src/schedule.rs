//! One topic's shards as this node sees them: which rest, which are due, which are being claimed.
//!
//! ```text
//! idle ──due──▶ queued ──take──▶ claiming ──answer──▶ idle, or queued when more is due
//!                  ▲                 └──failure──▶ resting ──backoff over──┐
//!                  └───────────────────────────────────────────────────────┘
//! ```
//! Upstream: `scheduler` (due times, hints, polls). Downstream: `claimer` and `consumers`, which take the shards that
//! are due, in turn, one claim per shard at a time, and no more of one server than `server_load` allows.

mod full;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duetime_core::store::{Claim, ClaimRequest};
use duetime_core::{Clock, RoutingId, ScheduleStore, ServerId, Shard, Streamed, Timestamp, TopicName};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::warn;

use crate::config::{GIVES_BACK_AFTER, STALLED_AFTER, store_backoff};
use crate::server_load::{Bounds, ServerLoads, ServerReadiness};
use crate::shard_entry::{Again, Idle, Learnt, Phase, ShardEntry};
use crate::shared_poll::SharedPolls;
use crate::wheel::Wheel;

/// A due time further ahead than this is not put on the wheel: polls report it again in time.
const WHEEL_AHEAD_MAX: Duration = Duration::from_secs(3600);

static NUMBERS: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, Default)]
struct ScheduleState {
    record: RoutingId,
    shards: BTreeMap<u32, ShardEntry>,
    queue: VecDeque<u32>,
    loads: ServerLoads,
}

/// A shard that is due, taken to be claimed from. One that is dropped without an answer is claimed from again
/// after a pause.
#[derive(Debug)]
pub(crate) struct Taken {
    schedule: Arc<TopicSchedule>,
    is_open: bool,
    pub(crate) shard: Shard,
    /// The claim to repeat, if the answer to the last one was lost, or the one that was sent.
    pub(crate) repeat: Option<ClaimRequest>,
    /// Most permits that its claim may reserve.
    pub(crate) permits: usize,
    /// Its server hesitates or is silent.
    pub(crate) is_doubtful: bool,
    /// The last claim left messages that were due.
    pub(crate) has_left: bool,
    /// Something was due, and nothing of it can be handed out: it had expired, or had used up its attempts.
    pub(crate) was_unfit: bool,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.is_open {
            let repeat = self.repeat.take();
            self.schedule.clone().failed(self, repeat);
        }
    }
}

/// One topic's shards as this node sees them: which rest, which are due, which are being claimed.
#[derive(Debug)]
pub(crate) struct TopicSchedule {
    pub(crate) topic: TopicName,
    pub(crate) number: u64,
    state: Mutex<ScheduleState>,
    due: Notify,
    /// Who waits for a shard to fall due holds this: waiters are served in the order they came.
    pub(crate) turn: tokio::sync::Mutex<()>,
    pub(crate) shared_polls: SharedPolls,
    wheel: Arc<Wheel<TopicSchedule>>,
    clock: Arc<dyn Clock>,
    emptied: Arc<Notify>,
    /// The store, which is asked where shards are and nothing else.
    store: Arc<dyn ScheduleStore>,
}

impl TopicSchedule {
    /// `emptied` is notified when a shard that is no longer owned has nothing in flight any more.
    pub(crate) fn new(
        topic: TopicName,
        wheel: Arc<Wheel<TopicSchedule>>,
        clock: Arc<dyn Clock>,
        emptied: Arc<Notify>,
        store: Arc<dyn ScheduleStore>,
    ) -> Arc<Self> {
        Arc::new(Self {
            topic,
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            state: Mutex::default(),
            due: Notify::new(),
            turn: tokio::sync::Mutex::default(),
            shared_polls: SharedPolls::default(),
            wheel,
            clock,
            emptied,
            store,
        })
    }

    /// Sets the shards to scan and the record to name them by. New ones are polled next.
    pub(crate) fn own(self: &Arc<Self>, record: RoutingId, indices: impl IntoIterator<Item = u32>) {
        let mut state = self.state.lock();
        state.record = record;
        for known in state.shards.values_mut() {
            known.owned = false;
        }
        for index in indices {
            state.shards.entry(index).or_default().owned = true;
        }
        let ScheduleState { shards, queue, .. } = &mut *state;
        queue.retain(|index| shards[index].owned);
        for (index, known) in shards.iter_mut().filter(|(_, known)| !known.owned) {
            self.wheel.unset(self.number, *index);
            if known.phase != Phase::Claiming {
                known.phase = Phase::Idle;
            }
            known.next = None;
        }
        let servers = self.servers_of(&state);
        state.loads.keep(&servers);
        drop(state);
        self.emptied.notify_one();
    }

    /// The servers of the owned shards.
    fn servers_of(&self, state: &ScheduleState) -> BTreeSet<ServerId> {
        let owned = state.shards.iter().filter(|(_, known)| known.owned);
        owned.map(|(index, _)| self.store.server_of(&self.shard_at(state.record, *index))).collect()
    }

    /// How many servers hold the owned shards.
    pub(crate) fn servers(&self) -> usize {
        self.state.lock().loads.count()
    }

    /// Whether [`Self::own`] would change anything.
    pub(crate) fn differs(&self, record: RoutingId, indices: &[u32]) -> bool {
        let state = self.state.lock();
        let owned = state.shards.iter().filter(|(_, known)| known.owned).map(|(index, _)| index);
        state.record != record || !owned.eq(indices)
    }

    /// Shards that are no longer owned and have nothing in flight; each is returned once.
    pub(crate) fn take_emptied(&self) -> Vec<u32> {
        let gone = |known: &ShardEntry| !known.owned && known.held == 0 && known.phase != Phase::Claiming;
        let mut state = self.state.lock();
        state.shards.extract_if(.., |_, known| gone(known)).map(|(index, _)| index).collect()
    }

    /// The owned shards.
    pub(crate) fn shards(&self) -> Vec<Shard> {
        let state = self.state.lock();
        let owned = state.shards.iter().filter(|(_, known)| known.owned);
        owned.map(|(index, _)| self.shard_at(state.record, *index)).collect()
    }

    /// Shard `index`, named by the present record.
    pub(crate) fn shard(&self, index: u32) -> Shard {
        self.shard_at(self.state.lock().record, index)
    }

    fn shard_at(&self, record: RoutingId, index: u32) -> Shard {
        Shard::new(self.topic.clone(), index, record)
    }

    /// Whether a shard is due at a server that answers.
    pub(crate) fn has_due(&self, bounds: Bounds) -> bool {
        let state = self.state.lock();
        self.first(&state, bounds).is_some_and(|(_, _, turn)| turn == ServerReadiness::Now)
    }

    /// Waits until a shard is due and may be claimed from. One waiter at a time: see [`TopicSchedule::turn`].
    /// `bounds` are asked for anew each time something has changed.
    pub(crate) async fn due(&self, bounds: impl Fn() -> Bounds) {
        loop {
            let due = self.first(&self.state.lock(), bounds()).is_some();
            if due {
                return;
            }
            self.due.notified().await;
        }
    }

    /// The shards that are due, each with its server and that server's readiness.
    fn queued(&self, state: &ScheduleState, bounds: Bounds) -> impl Iterator<Item = (u32, ServerId, ServerReadiness)> {
        state.queue.iter().map(move |index| {
            let server = self.store.server_of(&self.shard_at(state.record, *index));
            (*index, server, state.loads.readiness(server, bounds))
        })
    }

    /// How many shards are due at servers that answer, and whether the last claim left messages in one.
    pub(crate) fn due_now(&self, bounds: Bounds) -> (usize, bool) {
        let state = self.state.lock();
        let now = self.queued(&state, bounds).filter(|(_, _, readiness)| *readiness == ServerReadiness::Now);
        now.fold((0, false), |(count, left), (index, ..)| (count + 1, left || state.shards[&index].left > 0))
    }

    /// What the next shard is asked for, of `room` messages: all that are known to be due there, at least its part if
    /// up to `others` shards share them.
    pub(crate) fn part(&self, bounds: Bounds, room: usize, others: usize) -> usize {
        let state = self.state.lock();
        let left = self.first(&state, bounds).map_or(0, |(at, ..)| state.shards[&state.queue[at]].left);
        let open = self.queued(&state, bounds).filter(|(.., turn)| *turn != ServerReadiness::Wait).take(others).count();
        room.div_ceil(open.max(1)).max(left.min(room))
    }

    /// The first shard of the queue that may be claimed from: its position, its server and that server's readiness.
    fn first(&self, state: &ScheduleState, bounds: Bounds) -> Option<(usize, ServerId, ServerReadiness)> {
        let of = |wanted| {
            let mut all = self.queued(state, bounds).enumerate();
            all.find_map(|(at, (_, server, readiness))| (readiness == wanted).then_some((at, server, readiness)))
        };
        of(ServerReadiness::Now).or_else(|| of(ServerReadiness::AfterOthers))
    }

    /// Takes the next shard that is due.
    pub(crate) fn take(self: &Arc<Self>, bounds: Bounds) -> Option<Taken> {
        let mut state = self.state.lock();
        let (at, server, readiness) = self.first(&state, bounds)?;
        let index = state.queue.remove(at).expect("it was found there");
        let shard = self.shard_at(state.record, index);
        let permits = state.loads.permits_left(server, bounds);
        state.loads.begins(server);
        let known = state.shards.get_mut(&index).expect("queued shards are known");
        known.phase = Phase::Claiming;
        known.next = None;
        let has_left = std::mem::take(&mut known.left) > 0;
        known.claiming_at = Some((server, 0));
        known.has_room = false;
        let repeat = known.repeat.take();
        if !state.queue.is_empty() {
            self.due.notify_one();
        }
        let (schedule, is_doubtful) = (self.clone(), readiness != ServerReadiness::Now);
        Some(Taken { schedule, is_open: true, shard, repeat, permits, is_doubtful, has_left, was_unfit: false })
    }

    /// Sets how many permits the claim on shard `index` holds.
    pub(crate) fn reserved(&self, index: u32, permits: usize) {
        let mut state = self.state.lock();
        let Some(known) = state.shards.get_mut(&index) else { return };
        let Some((server, held)) = &mut known.claiming_at else { return };
        let (server, before) = (*server, std::mem::replace(held, permits));
        state.loads.reserves(server, before, permits);
        self.due.notify_one();
    }

    /// Waits for the claim on shard `index`. If it gets no answer for long, and there are other servers, its server counts
    /// as unresponsive, and `stalled` releases what the claim reserved. Returns the answer and whether it stalled.
    pub(crate) async fn unless_stalled<T>(
        &self,
        index: u32,
        asked: impl Future<Output = T>,
        stalled: impl FnOnce(),
    ) -> (T, bool) {
        tokio::pin!(asked);
        if let Ok(answer) = tokio::time::timeout(GIVES_BACK_AFTER, &mut asked).await {
            return (answer, false);
        }
        if self.servers() == 1 {
            return (asked.await, false);
        }
        let has_changed = self.gives_back(index);
        stalled();
        if let Ok(answer) = tokio::time::timeout(STALLED_AFTER - GIVES_BACK_AFTER, &mut asked).await {
            return (answer, true);
        }
        if has_changed {
            warn!(topic = %self.topic, "a server of the store does not answer, its shards wait and the others go on");
        }
        (asked.await, true)
    }

    /// Releases what the claim on shard `index` reserved, and records its server as unresponsive. Returns true on change.
    fn gives_back(&self, index: u32) -> bool {
        self.reserved(index, 0);
        let claim = self.state.lock().shards.get(&index).and_then(|known| known.claiming_at);
        claim.is_some_and(|(server, _)| self.set_unresponsive(server, true))
    }

    /// Records whether a server is unresponsive, as a poll found. Returns true on change.
    pub(crate) fn set_unresponsive(&self, server: ServerId, unresponsive: bool) -> bool {
        let has_changed = self.state.lock().loads.set_unresponsive(server, unresponsive);
        if has_changed {
            self.due.notify_one();
        }
        has_changed
    }

    /// The claim, sent at `sent_at` by this node's clock, was answered.
    /// `had_expired`: it also brought messages that had expired.
    pub(crate) fn answered(self: &Arc<Self>, taken: &mut Taken, sent_at: Timestamp, claim: &Claim, had_expired: bool) {
        let learnt = Learnt::of_claim(claim, had_expired);
        taken.was_unfit = learnt.progress && learnt.messages == 0;
        self.learn(taken, sent_at, &learnt);
    }

    /// A step of delivery in place, sent at `sent_at` by this node's clock, was answered.
    pub(crate) fn streamed(self: &Arc<Self>, taken: &mut Taken, sent_at: Timestamp, step: &Streamed) {
        self.learn(taken, sent_at, &Learnt::of_step(step));
    }

    fn learn(self: &Arc<Self>, taken: &mut Taken, sent_at: Timestamp, learnt: &Learnt) {
        taken.is_open = false;
        let index = taken.shard.index;
        let mut state = self.state.lock();
        self.ends(&mut state, index, true);
        let Some(known) = state.shards.get_mut(&index) else { return };
        let again = known.learns(sent_at, learnt);
        if !known.owned {
            return self.emptied.notify_one();
        }
        match again {
            Again::AtOnce => self.queue(&mut state, index),
            Again::After(pause) => {
                known.phase = Phase::Resting;
                self.wheel.set(self.number, self, index, Instant::now() + pause);
            }
            Again::WhenDue(next) => self.set_next(&mut state, index, next),
        }
    }

    /// The claim failed. `repeat`: its answer was lost, so the same is to be asked again.
    pub(crate) fn failed(self: &Arc<Self>, taken: &mut Taken, repeat: Option<ClaimRequest>) {
        taken.is_open = false;
        let index = taken.shard.index;
        let mut state = self.state.lock();
        self.ends(&mut state, index, false);
        let Some(known) = state.shards.get_mut(&index) else { return };
        known.failures = known.failures.saturating_add(1);
        known.full = 0;
        known.repeat = repeat;
        known.phase = if known.owned { Phase::Resting } else { Phase::Idle };
        if known.owned {
            self.wheel.set(self.number, self, index, Instant::now() + store_backoff(known.failures));
        } else {
            self.emptied.notify_one();
        }
    }

    /// Nothing was asked after all: the shard is due as before.
    pub(crate) fn put_back(&self, mut taken: Taken) {
        taken.is_open = false;
        let mut state = self.state.lock();
        self.ends(&mut state, taken.shard.index, false);
        let Some(known) = state.shards.get_mut(&taken.shard.index) else { return };
        known.repeat = taken.repeat.take();
        known.phase = Phase::Idle;
        if known.owned {
            self.queue(&mut state, taken.shard.index);
        } else {
            // The shard was given up meanwhile: whoever is to have it next waits for this.
            self.emptied.notify_one();
        }
    }

    /// Lowers the in-flight count of shard `index` by the messages that were settled.
    pub(crate) fn settled(&self, index: u32, messages: usize) {
        let mut state = self.state.lock();
        let Some(known) = state.shards.get_mut(&index) else { return };
        known.held = known.held.saturating_sub(messages);
        if !known.owned && known.held == 0 {
            self.emptied.notify_one();
        }
    }

    /// Shard `index` may have a message visible at `at`.
    pub(crate) fn hint(self: &Arc<Self>, index: u32, at: Timestamp) {
        let mut state = self.state.lock();
        let Some(known) = state.shards.get_mut(&index) else { return };
        if !known.owned {
            return;
        }
        known.learnt += 1;
        if known.next.is_some_and(|next| next <= at) {
            return;
        }
        match known.phase {
            Phase::Idle => self.set_next(&mut state, index, Some(at)),
            Phase::Claiming => known.next = Some(at),
            Phase::Queued | Phase::Resting => {}
        }
    }

    /// The shards that neither are due nor being claimed from, for a poll; and one of each server that has none.
    pub(crate) fn idle(&self) -> Vec<Idle> {
        let mut state = self.state.lock();
        let (mut idle, mut busy) = (Vec::new(), BTreeMap::new());
        for (index, known) in state.shards.iter().filter(|(_, known)| known.owned) {
            let shard = self.shard_at(state.record, *index);
            let server = self.store.server_of(&shard);
            let asked = Idle { shard, server, learnt: known.learnt };
            if known.phase == Phase::Idle {
                idle.push(asked);
            } else {
                busy.entry(server).or_insert(asked);
            }
        }
        let asked: BTreeSet<ServerId> = idle.iter().map(|idle| idle.server).collect();
        let servers = busy.keys().copied().chain(asked.iter().copied()).collect();
        state.loads.keep(&servers);
        idle.extend(busy.into_values().filter(|busy| !asked.contains(&busy.server)));
        idle
    }

    /// A poll of a shard found its first message visible at `head`.
    pub(crate) fn polled(self: &Arc<Self>, idle: &Idle, head: Option<Timestamp>) {
        let mut state = self.state.lock();
        let index = idle.shard.index;
        let Some(known) = state.shards.get_mut(&index) else { return };
        if !known.owned || known.phase != Phase::Idle {
            return;
        }
        let next = if known.learnt == idle.learnt { head } else { [head, known.next].into_iter().flatten().min() };
        self.set_next(&mut state, index, next);
    }

    /// The wheel says that it is time.
    pub(crate) fn timer_fired(self: &Arc<Self>, index: u32) {
        let mut state = self.state.lock();
        let Some(known) = state.shards.get_mut(&index) else { return };
        match known.phase {
            Phase::Resting => self.queue(&mut state, index),
            Phase::Idle => match known.next.map(|next| self.wait_for(next, known.lag)) {
                Some(Duration::ZERO) => self.queue(&mut state, index),
                Some(wait) => self.wheel.set(self.number, self, index, Instant::now() + wait),
                None => {}
            },
            Phase::Queued | Phase::Claiming => {}
        }
    }

    /// Takes every shard off the wheel: the topic is gone.
    pub(crate) fn close(self: &Arc<Self>) {
        self.own(RoutingId::default(), []);
    }

    /// Ends the claim on shard `index`; `answered`: its server replied.
    fn ends(&self, state: &mut ScheduleState, index: u32, answered: bool) {
        if let Some((server, permits)) = state.shards.get_mut(&index).and_then(|known| known.claiming_at.take()) {
            state.loads.ends(server, permits, answered);
        }
        if !state.queue.is_empty() {
            self.due.notify_one();
        }
    }

    fn queue(&self, state: &mut ScheduleState, index: u32) {
        let known = state.shards.get_mut(&index).expect("the caller has seen it");
        debug_assert!(known.phase != Phase::Queued, "a shard is queued once");
        known.phase = Phase::Queued;
        known.next = None;
        state.queue.push_back(index);
        self.due.notify_one();
    }

    /// Queues shard `index` if its time has come by both clocks, as far as they are known; else sets the wheel.
    fn set_next(self: &Arc<Self>, state: &mut ScheduleState, index: u32, next: Option<Timestamp>) {
        let known = state.shards.get_mut(&index).expect("the caller has seen it");
        known.next = next;
        let Some(next) = next else {
            self.wheel.unset(self.number, index);
            return;
        };
        let wait = self.wait_for(next, known.lag);
        if wait.is_zero() {
            self.wheel.unset(self.number, index);
            self.queue(state, index);
        } else {
            self.wheel.set(self.number, self, index, Instant::now() + wait);
        }
    }

    /// How long until `next` by this node's clock and the store's, as far as known.
    fn wait_for(&self, next: Timestamp, lag: Duration) -> Duration {
        let (now, into) = self.clock.precise_now();
        self.wheel.fires_at(next.plus(lag)).since(now).saturating_sub(into).min(WHEEL_AHEAD_MAX)
    }
}
