//! How much a target is given at once, calls and messages in flight and calls a second, shared by its topics in turn.
//!
//! Upstream: sinks whose target has no window of its own; a call of `http` is a request with one message, one of a
//! broker is a batch. One gate per named sink. Whose turn it is goes by topic, so
//! that one with many or slow requests leaves the others their share, and part of what is in flight is kept for
//! topics that have little of it, and some of that for topics whose requests are quick: however many slow ones there
//! are, they do not take it all.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use duetime_core::Verdict;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::in_flight_limit::InFlightLimit;

/// Of the requests in flight this part is kept for topics that have less than their share.
const RESERVED: usize = 4;
/// Requests of a topic are quick if the latest took no longer than this.
const QUICK: Duration = Duration::from_millis(250);
/// How much of what is known of a topic's requests goes by the last one.
const LAST_COUNTS: u32 = 4;
/// Turns that timers let pass are made up for, as far as this.
const CATCH_UP: Duration = Duration::from_millis(5);

/// How much a target is given at once, calls and messages in flight and calls a second, shared by its topics in turn.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<GateState>,
    calls_max: usize,
    interval: Option<Duration>,
    wait_max: Duration,
}

#[derive(Debug)]
struct GateState {
    members: BTreeMap<u64, GateQueue>,
    joined: u64,
    /// Whose turn was last.
    last: u64,
    /// Calls waiting, over all members.
    waiting: usize,
    in_flight: GateLoad,
    /// How many messages may be in flight.
    limit: InFlightLimit,
    /// When the next request may go.
    next: Option<Instant>,
    /// A task waits for that moment.
    paced: bool,
}

/// What is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct GateLoad {
    calls: usize,
    messages: usize,
}

impl GateLoad {
    fn add(&mut self, messages: usize) {
        self.calls += 1;
        self.messages += messages;
    }

    fn remove(&mut self, messages: usize) {
        self.calls -= 1;
        self.messages -= messages;
    }
}

/// A call that waits for its turn.
#[derive(Debug)]
struct GateWaiter {
    grant: oneshot::Sender<()>,
    messages: usize,
}

/// What waits for one topic, and how much of it is in flight.
#[derive(Debug, Default)]
struct GateQueue {
    waiting: VecDeque<GateWaiter>,
    in_flight: GateLoad,
    /// How long its latest requests took; `None`: nothing is known of them.
    usual: Option<Duration>,
}

/// The turn would come only after this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// When to ask again.
    pub after: Duration,
}

impl Full {
    /// What is said of a message of a broker that has so much unconfirmed that this one is not sent.
    #[must_use]
    pub fn not_sent(self) -> Verdict {
        let reason = "the broker has not confirmed what it was sent before; messages of all topics wait their turn";
        Verdict::NotSent { reason: reason.to_owned(), after: self.after }
    }
}

/// One topic at a gate; it leaves when this is dropped.
#[derive(Debug)]
pub struct GateMember {
    gate: Arc<Gate>,
    number: u64,
}

/// A call's turn; it ends when this is dropped.
#[derive(Debug)]
pub struct GateTurn {
    gate: Arc<Gate>,
    number: u64,
    messages: usize,
    confirmed: usize,
    /// When its call began, if it did.
    began: Option<Instant>,
}

impl GateTurn {
    /// So many of its messages were confirmed by the target.
    pub fn confirmed(&mut self, messages: usize) {
        self.confirmed = messages;
    }
}

impl Gate {
    /// At most `concurrency` calls at once and `per_second` a second; whoever would wait longer than
    /// `wait_max` is sent away.
    #[must_use]
    pub fn new(concurrency: usize, per_second: Option<f64>, wait_max: Duration) -> Arc<Self> {
        let interval = per_second.map(|rate| Duration::from_secs_f64(1.0 / rate));
        Self::with(InFlightLimit::Fixed(usize::MAX), concurrency, interval, wait_max)
    }

    /// For a broker that is waited for `timeout` long: at most `calls_max` calls at once, and as many messages as it
    /// confirms in a part of that time. Whoever would wait longer than half of it is sent away, so that a message is
    /// with the sink for twice `timeout` at most: its confirm is waited for one and a half times that.
    #[must_use]
    pub fn of_broker(calls_max: usize, timeout: Duration) -> Arc<Self> {
        Self::with(InFlightLimit::adaptive(timeout), calls_max, None, timeout / 2)
    }

    fn with(limit: InFlightLimit, calls_max: usize, interval: Option<Duration>, wait_max: Duration) -> Arc<Self> {
        let state = GateState {
            members: BTreeMap::new(),
            joined: 0,
            last: 0,
            waiting: 0,
            in_flight: GateLoad::default(),
            limit,
            next: None,
            paced: false,
        };
        Arc::new(Self { state: Mutex::new(state), calls_max, interval, wait_max })
    }

    /// A topic that shares the gate from now on.
    #[must_use]
    pub fn join(self: &Arc<Self>) -> GateMember {
        let mut state = self.state.lock();
        state.joined += 1;
        let number = state.joined;
        state.members.insert(number, GateQueue::default());
        GateMember { gate: self.clone(), number }
    }

    /// Gives turns for as long as there are any to give.
    fn advance(self: &Arc<Self>, state: &mut GateState) {
        while state.waiting > 0 {
            let now = Instant::now();
            if let Some(next) = state.next.filter(|next| *next > now) {
                return self.advance_at(state, next);
            }
            let Some(number) = self.next_member(state) else { return };
            let queue = state.members.get_mut(&number).expect("it was found");
            let waiter = queue.waiting.pop_front().expect("it has one");
            state.waiting -= 1;
            // Who has gone meanwhile takes no turn.
            if waiter.grant.send(()).is_ok() {
                queue.in_flight.add(waiter.messages);
                state.in_flight.add(waiter.messages);
                state.last = number;
                state.next = self.interval.map(|interval| {
                    let earliest = now.checked_sub(CATCH_UP).unwrap_or(now);
                    state.next.unwrap_or(now).max(earliest) + interval
                });
            }
        }
    }

    /// Whose turn it is: of those that wait and may have one more in flight, the next after the last.
    fn next_member(&self, state: &GateState) -> Option<u64> {
        let topics = state.members.len();
        let calls = Allowance::new(self.calls_max, state.in_flight.calls, topics);
        let messages = Allowance::new(state.limit.messages(), state.in_flight.messages, topics);
        let may = |queue: &GateQueue, batch: usize| {
            calls.allows(queue.in_flight.calls, 1, queue.usual)
                && messages.allows(queue.in_flight.messages, batch, queue.usual)
        };
        let mut after = state.members.range(state.last + 1..).chain(state.members.range(..=state.last));
        let next = after.find(|(_, queue)| queue.waiting.front().is_some_and(|first| may(queue, first.messages)));
        next.map(|(number, _)| *number)
    }

    /// Advances at `next`, by one task at a time.
    fn advance_at(self: &Arc<Self>, state: &mut GateState, next: Instant) {
        if std::mem::replace(&mut state.paced, true) {
            return;
        }
        let gate = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(next).await;
            let mut state = gate.state.lock();
            state.paced = false;
            gate.advance(&mut state);
        });
    }

    /// How long a request of this member would wait at least, going by the requests a second alone.
    fn wait_of(&self, state: &GateState, number: u64) -> Duration {
        let Some(interval) = self.interval else { return Duration::ZERO };
        let before = state.members[&number].waiting.len();
        // Each turn of this member's is one of all the others' too, as far as they have as many waiting.
        let turns: usize = state.members.values().map(|queue| queue.waiting.len().min(before + 1)).sum();
        let until = state.next.map_or(Duration::ZERO, |next| next.saturating_duration_since(Instant::now()));
        until + interval.saturating_mul(u32::try_from(turns).unwrap_or(u32::MAX))
    }
}

/// How much more of something may be in flight, and what of it is kept for topics that have little.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    free: usize,
    reserved: usize,
    share: usize,
    /// A batch that is larger waits for no more place than this, so that none waits for ever.
    largest: usize,
}

impl Allowance {
    fn new(most: usize, in_flight: usize, topics: usize) -> Self {
        let reserved = if topics > 1 && most > 1 { (most / RESERVED).max(1) } else { 0 };
        let largest = (most.saturating_sub(reserved) / 2).max(1);
        Self { free: most.saturating_sub(in_flight), reserved, share: (reserved / topics.max(1)).max(1), largest }
    }

    /// Whether a topic that has so much in flight, and whose calls usually take so long, may have a `batch` more. What
    /// is let in whole takes nothing of the reserve.
    fn allows(&self, held: usize, batch: usize, usual: Option<Duration>) -> bool {
        // Many slow topics, each with little, would hold all of the reserve, so they leave part of it alone.
        let left = match usual {
            Some(usual) if usual <= QUICK => return self.free > 0 && (held < self.share || self.has_room(batch)),
            None => self.reserved / 4,
            Some(_) => self.reserved / 2,
        };
        self.has_room(batch) || (held < self.share && self.free >= left + batch && self.free > left)
    }

    fn has_room(&self, batch: usize) -> bool {
        self.free >= self.reserved.saturating_add(batch.min(self.largest)) && self.free > self.reserved
    }
}

impl GateMember {
    fn turn(&self, messages: usize, began: Option<Instant>) -> GateTurn {
        GateTurn { gate: self.gate.clone(), number: self.number, messages, confirmed: 0, began }
    }

    /// Waits for the turn of a call with so many messages.
    ///
    /// # Errors
    ///
    /// [`Full`]: the wait would be too long.
    pub async fn enter(&self, messages: usize) -> Result<GateTurn, Full> {
        let gate = &self.gate;
        let granted = {
            let mut state = gate.state.lock();
            let wait = gate.wait_of(&state, self.number);
            if wait > gate.wait_max {
                return Err(Full { after: wait });
            }
            let (grant, granted) = oneshot::channel();
            state
                .members
                .get_mut(&self.number)
                .expect("it has joined")
                .waiting
                .push_back(GateWaiter { grant, messages });
            state.waiting += 1;
            gate.advance(&mut state);
            granted
        };
        let mut waiting = WaitingCall { member: self, granted: Some(granted), messages };
        let granted = waiting.granted.as_mut().expect("it is there until its turn");
        let came = tokio::time::timeout(gate.wait_max, granted).await.is_ok();
        if came {
            waiting.granted = None;
            return Ok(self.turn(messages, Some(Instant::now())));
        }
        Err(Full { after: gate.wait_max })
    }
}

/// A call that waits: if it goes before its turn, its place is free.
struct WaitingCall<'a> {
    member: &'a GateMember,
    granted: Option<oneshot::Receiver<()>>,
    messages: usize,
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        let Some(mut granted) = self.granted.take() else { return };
        let gate = &self.member.gate;
        let mut state = gate.state.lock();
        // Under the lock, so that no turn can be given after this look.
        if granted.try_recv().is_ok() {
            drop(state);
            return drop(self.member.turn(self.messages, None));
        }
        drop(granted);
        let queue = state.members.get_mut(&self.member.number).expect("it has joined");
        let before = queue.waiting.len();
        queue.waiting.retain(|waiter| !waiter.grant.is_closed());
        let gone = before - queue.waiting.len();
        state.waiting -= gone;
    }
}

impl Drop for GateTurn {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        state.in_flight.remove(self.messages);
        let wanted = state.waiting > 0;
        if let Some(began) = self.began {
            state.limit.measured(began, (self.confirmed, self.messages), wanted);
        }
        if let Some(queue) = state.members.get_mut(&self.number) {
            queue.in_flight.remove(self.messages);
            if let Some(took) = self.began.map(|began| began.elapsed()) {
                queue.usual = Some(queue.usual.map_or(took, |usual| usual - usual / LAST_COUNTS + took / LAST_COUNTS));
            }
        }
        self.gate.advance(&mut state);
    }
}

impl Drop for GateMember {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        let queue = state.members.remove(&self.number).expect("it has joined");
        state.waiting -= queue.waiting.len();
        // With fewer topics less is kept back.
        self.gate.advance(&mut state);
    }
}

#[cfg(test)]
mod tests;
