//! How much a target is given at once, requests in flight and requests a second, shared by its topics in turn.
//!
//! Upstream: sinks whose target has no window of its own. One gate per named sink. Whose turn it is goes by topic, so
//! that one with many or slow requests leaves the others their share, and part of what is in flight is kept for
//! topics that have little of it, and some of that for topics whose requests are quick: however many slow ones there
//! are, they do not take it all.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Of the requests in flight this part is kept for topics that have less than their share.
const RESERVED: usize = 4;
/// Requests of a topic are quick if the latest took no longer than this.
const QUICK: Duration = Duration::from_millis(250);
/// How much of what is known of a topic's requests goes by the last one.
const LAST_COUNTS: u32 = 4;
/// Turns that timers let pass are made up for, as far as this.
const CATCH_UP: Duration = Duration::from_millis(5);

/// How much a target is given at once, requests in flight and requests a second, shared by its topics in turn.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<GateState>,
    concurrency: usize,
    interval: Option<Duration>,
    wait_max: Duration,
}

#[derive(Debug, Default)]
struct GateState {
    members: BTreeMap<u64, GateQueue>,
    joined: u64,
    /// Whose turn was last.
    last: u64,
    /// Requests waiting, over all members.
    waiting: usize,
    in_flight: usize,
    /// When the next request may go.
    next: Option<Instant>,
    /// A task waits for that moment.
    paced: bool,
}

/// What waits for one topic, and how much of it is in flight.
#[derive(Debug, Default)]
struct GateQueue {
    waiting: VecDeque<oneshot::Sender<()>>,
    in_flight: usize,
    /// How long its latest requests took; `None`: nothing is known of them.
    usual: Option<Duration>,
}

/// The turn would come only after this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// When to ask again.
    pub after: Duration,
}

/// One topic at a gate; it leaves when this is dropped.
#[derive(Debug)]
pub struct GateMember {
    gate: Arc<Gate>,
    number: u64,
}

/// A request's turn; it ends when this is dropped.
#[derive(Debug)]
pub struct GateTurn {
    gate: Arc<Gate>,
    number: u64,
    /// When its request began, if it did.
    began: Option<Instant>,
}

impl Gate {
    /// At most `concurrency` at once and `per_second` a second; whoever would wait longer than
    /// `wait_max` is sent away.
    #[must_use]
    pub fn new(concurrency: usize, per_second: Option<f64>, wait_max: Duration) -> Arc<Self> {
        let interval = per_second.map(|rate| Duration::from_secs_f64(1.0 / rate));
        Arc::new(Self { state: Mutex::default(), concurrency, interval, wait_max })
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
            if waiter.send(()).is_ok() {
                queue.in_flight += 1;
                state.in_flight += 1;
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
        let free = self.concurrency.saturating_sub(state.in_flight);
        let topics = state.members.len();
        let reserved = if topics > 1 && self.concurrency > 1 { (self.concurrency / RESERVED).max(1) } else { 0 };
        let share = (reserved / topics.max(1)).max(1);
        let may = |queue: &GateQueue| free > reserved || (queue.in_flight < share && free > left(queue, reserved));
        let after = state.members.range(state.last + 1..).chain(state.members.range(..=state.last));
        after.into_iter().find(|(_, queue)| !queue.waiting.is_empty() && may(queue)).map(|(number, _)| *number)
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

/// How much of the reserve a topic with little in flight leaves alone: many slow ones, each with little, would hold
/// all of it.
fn left(queue: &GateQueue, reserved: usize) -> usize {
    match queue.usual {
        Some(usual) if usual <= QUICK => 0,
        None => reserved / 4,
        Some(_) => reserved / 2,
    }
}

impl GateMember {
    /// Waits for the turn.
    ///
    /// # Errors
    ///
    /// [`Full`]: the wait would be too long.
    pub async fn enter(&self) -> Result<GateTurn, Full> {
        let gate = &self.gate;
        let granted = {
            let mut state = gate.state.lock();
            let wait = gate.wait_of(&state, self.number);
            if wait > gate.wait_max {
                return Err(Full { after: wait });
            }
            let (grant, granted) = oneshot::channel();
            state.members.get_mut(&self.number).expect("it has joined").waiting.push_back(grant);
            state.waiting += 1;
            gate.advance(&mut state);
            granted
        };
        let mut waiting = WaitingCall { member: self, granted: Some(granted) };
        let granted = waiting.granted.as_mut().expect("it is there until its turn");
        let came = tokio::time::timeout(gate.wait_max, granted).await.is_ok();
        if came {
            waiting.granted = None;
            return Ok(GateTurn { gate: gate.clone(), number: self.number, began: Some(Instant::now()) });
        }
        Err(Full { after: gate.wait_max })
    }
}

/// A request that waits: if it goes before its turn, its place is free.
struct WaitingCall<'a> {
    member: &'a GateMember,
    granted: Option<oneshot::Receiver<()>>,
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        let Some(mut granted) = self.granted.take() else { return };
        let gate = &self.member.gate;
        let mut state = gate.state.lock();
        // Under the lock, so that no turn can be given after this look.
        if granted.try_recv().is_ok() {
            drop(state);
            return drop(GateTurn { gate: gate.clone(), number: self.member.number, began: None });
        }
        drop(granted);
        let queue = state.members.get_mut(&self.member.number).expect("it has joined");
        let before = queue.waiting.len();
        queue.waiting.retain(|waiter| !waiter.is_closed());
        let gone = before - queue.waiting.len();
        state.waiting -= gone;
    }
}

impl Drop for GateTurn {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        state.in_flight -= 1;
        if let Some(queue) = state.members.get_mut(&self.number) {
            queue.in_flight -= 1;
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
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Requests of `member` that take `takes` each, one after the other, for `span`; how long each waited for its turn.
    async fn requests(member: Arc<GateMember>, takes: Duration, span: Duration) -> Vec<Duration> {
        let until = Instant::now() + span;
        let mut waits = Vec::new();
        while Instant::now() < until {
            let asked = Instant::now();
            let turn = member.enter().await;
            match turn {
                Ok(_turn) => {
                    waits.push(asked.elapsed());
                    tokio::time::sleep(takes).await;
                }
                Err(_) => tokio::time::sleep(SECOND).await,
            }
        }
        waits
    }

    #[tokio::test(start_paused = true)]
    async fn requests_keep_their_rate_and_whoever_would_wait_too_long_is_sent_away() {
        let member = Gate::new(100, Some(10.0), SECOND).join();
        let start = Instant::now();
        for _ in 0..11 {
            drop(member.enter().await.unwrap());
        }
        assert_eq!(start.elapsed().as_millis() / 10, 100);
        let crowd = futures::future::join_all((0..20).map(|_| member.enter())).await;
        let entered = crowd.iter().filter(|turn| turn.is_ok()).count();
        assert!((9..=10).contains(&entered), "{entered}");
        assert!(crowd.into_iter().filter_map(Result::err).all(|full| full.after >= SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fast_rate_is_reached_although_timers_tick_in_milliseconds() {
        let member = Gate::new(64, Some(10_000.0), SECOND).join();
        let start = Instant::now();
        for _ in 0..10_000 {
            drop(member.enter().await.unwrap());
        }
        assert!((980..=1_020).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_the_slots_are_given_at_once_and_who_leaves_the_queue_takes_none() {
        let member = Gate::new(1, None, SECOND).join();
        let held = member.enter().await.unwrap();
        assert_eq!(member.enter().await.err(), Some(Full { after: SECOND }));
        assert!(tokio::time::timeout(SECOND / 2, member.enter()).await.is_err());
        drop(held);
        let left = {
            let state = member.gate.state.lock();
            (state.waiting, state.in_flight)
        };
        assert_eq!(left, (0, 0));
        assert!(member.enter().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn topics_that_share_a_rate_have_the_same_share_of_it() {
        let gate = Gate::new(64, Some(20.0), 10 * SECOND);
        let topics: Vec<Arc<GateMember>> = (0..6).map(|_| Arc::new(gate.join())).collect();
        let crowds = topics.iter().map(|member| {
            let crowd = (0..64).map(|_| requests(member.clone(), Duration::from_millis(5), 60 * SECOND));
            futures::future::join_all(crowd)
        });
        let counts: Vec<usize> =
            futures::future::join_all(crowds).await.iter().map(|crowd| crowd.iter().map(Vec::len).sum()).collect();
        assert!(counts.iter().all(|count| (180..=240).contains(count)), "60 s at 20 a second over 6: {counts:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_topic_beside_slow_ones_has_its_turn_at_once() {
        let gate = Gate::new(64, None, 10 * SECOND);
        let slow: Vec<Arc<GateMember>> = (0..2).map(|_| Arc::new(gate.join())).collect();
        let quick = Arc::new(gate.join());
        let crowd = slow.iter().flat_map(|member| (0..64).map(|_| requests(member.clone(), 9 * SECOND, 60 * SECOND)));
        let (_, mut waits) =
            futures::join!(futures::future::join_all(crowd), requests(quick, Duration::from_millis(10), 60 * SECOND));
        waits.sort();
        assert!(waits.len() > 5_000, "{} requests", waits.len());
        assert!(waits[waits.len() / 2] < Duration::from_millis(1) && *waits.last().unwrap() < SECOND, "{waits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_quick_topic_has_its_turn_at_once_beside_more_slow_ones_than_there_are_slots() {
        let gate = Gate::new(64, None, 10 * SECOND);
        let slow: Vec<Arc<GateMember>> = (0..200).map(|_| Arc::new(gate.join())).collect();
        let quick = Arc::new(gate.join());
        let took = Duration::from_millis(10);
        requests(quick.clone(), took, SECOND).await;
        let crowd = slow.iter().flat_map(|member| (0..4).map(|_| requests(member.clone(), 9 * SECOND, 120 * SECOND)));
        let (crowd, mut waits) = futures::join!(futures::future::join_all(crowd), requests(quick, took, 120 * SECOND));
        waits.sort();
        assert!(waits.len() > 10_000, "{} requests", waits.len());
        assert!(waits[waits.len() * 99 / 100] < Duration::from_millis(1), "{waits:?}");
        let others: usize = crowd.iter().map(Vec::len).sum();
        assert!(others > 64 * 120 / 9 / 2, "{others} requests of the slow ones");
    }

    #[tokio::test(start_paused = true)]
    async fn a_topic_alone_has_all_slots() {
        let gate = Gate::new(8, None, SECOND);
        let member = gate.join();
        let turns = futures::future::join_all((0..8).map(|_| member.enter())).await;
        assert!(turns.iter().all(Result::is_ok));
        let other = gate.join();
        assert!(other.enter().await.is_err(), "all are taken");
        drop(turns);
        let turns = futures::future::join_all((0..8).map(|_| member.enter())).await;
        assert_eq!(turns.iter().filter(|turn| turn.is_ok()).count(), 6, "two are kept for the other");
        assert!(other.enter().await.is_ok());
    }
}
