//! The breaker of one topic's sink: while the target as a whole is down, nothing is claimed.
//!
//! Closed: claims go. Open: nothing goes until the wait is over. Then a probe, one small claim, and
//! its verdicts decide. A probe has several messages, and more after each that failed though the target
//! answered, so that messages whose own destinations are down cannot keep the breaker open. Upstream:
//! `deliverer` reports the verdicts. Downstream: `claimer` asks what may go.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::{Clock, OutageEnd, SinkDown, Timestamp, TopicName, Tried};
use duetime_metrics::TopicMeters;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::outages::{OutageId, Outages};

/// First wait before a probe; each failed probe doubles it, up to what the sink sets.
pub(crate) const PROBE_WAIT_MIN: Duration = Duration::from_millis(100);
/// While a breaker is open, the log says so this often.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// A target that asks for a longer pause than this is probed after this.
pub(crate) const ASKED_WAIT_MAX: Duration = Duration::from_secs(3600);
/// Most messages of the first probe.
pub(crate) const PROBE_MESSAGES: usize = 8;
/// A try at once finds no message if none was claimed for it within this.
const CLAIMED_WITHIN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq)]
enum BreakerState {
    Closed,
    Open { until: Instant },
    Probing,
}

#[derive(Debug)]
struct BreakerInner {
    state: BreakerState,
    wait: Duration,
    /// Most messages of the next probe.
    probe: usize,
    /// Probes that ended with a verdict.
    probes: u64,
    /// The deliverer has messages to probe with, so that none are claimed.
    kept: bool,
    outage: Option<Outage>,
}

/// That a sink is down.
#[derive(Debug)]
struct Outage {
    since: Instant,
    since_at: Timestamp,
    /// What was said last.
    reason: String,
    /// When the log last said so.
    logged: Instant,
    /// Until when its time is counted.
    counted: Instant,
    /// As it is kept beyond this breaker.
    kept: OutageId,
}

/// What the claimer may claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    /// Most messages.
    pub(crate) limit: usize,
    /// It is the probe.
    pub(crate) probe: bool,
}

/// The breaker of one topic's sink: while the target as a whole is down, nothing is claimed.
#[derive(Debug)]
pub(crate) struct Breaker {
    inner: Mutex<BreakerInner>,
    changed: Notify,
    topic: TopicName,
    /// As the topic names it.
    sink: String,
    outages: Arc<Outages>,
    meters: Arc<TopicMeters>,
    clock: Arc<dyn Clock>,
    wait_max: Duration,
}

impl Breaker {
    /// `sink`: its name; `outages`: notified when it is down; `wait_max`: longest wait before a probe.
    pub(crate) fn new(
        (topic, sink): (TopicName, String),
        outages: Arc<Outages>,
        meters: Arc<TopicMeters>,
        clock: Arc<dyn Clock>,
        wait_max: Duration,
    ) -> Self {
        meters.breaker_open.set(0);
        let (wait, probe) = (PROBE_WAIT_MIN, PROBE_MESSAGES);
        let inner = BreakerInner { state: BreakerState::Closed, wait, probe, probes: 0, kept: false, outage: None };
        Self { inner: Mutex::new(inner), changed: Notify::new(), topic, sink, outages, meters, clock, wait_max }
    }

    /// How long the next probe is waited for, where one is.
    pub(crate) fn wait(&self) -> Duration {
        self.inner.lock().wait
    }

    /// Whether messages may be sent that are no probe.
    pub(crate) fn is_closed(&self) -> bool {
        self.inner.lock().state == BreakerState::Closed
    }

    /// What is to be said of a sink that is down.
    pub(crate) fn down(&self) -> Option<SinkDown> {
        let inner = self.inner.lock();
        let outage = inner.outage.as_ref()?;
        let next_try = match inner.state {
            BreakerState::Open { until } => {
                Some(self.clock.now().plus(until.saturating_duration_since(Instant::now())))
            }
            BreakerState::Probing | BreakerState::Closed => None,
        };
        Some(SinkDown { since: outage.since_at, reason: outage.reason.clone(), next_try })
    }

    /// Waits until something may be claimed.
    pub(crate) async fn passable(&self) {
        self.passable_for(false).await;
    }

    /// Waits until something may be sent of what is kept.
    pub(crate) async fn passable_for_kept(&self) {
        self.passable_for(true).await;
    }

    async fn passable_for(&self, kept: bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let (state, probe_is_kept) = {
                let inner = self.inner.lock();
                (inner.state, inner.kept)
            };
            match state {
                BreakerState::Closed => return,
                BreakerState::Open { .. } if probe_is_kept && !kept => changed.await,
                BreakerState::Open { until } if until <= Instant::now() => return,
                BreakerState::Open { until } => {
                    tokio::select! { () = changed => {}, () = tokio::time::sleep_until(until) => {} }
                }
                BreakerState::Probing => changed.await,
            }
        }
    }

    /// Whether there are messages to probe with that were claimed already.
    pub(crate) fn probe_is_kept(&self, kept: bool) {
        if std::mem::replace(&mut self.inner.lock().kept, kept) != kept {
            self.changed.notify_waiters();
        }
    }

    /// What may be claimed now. A probe is admitted once; [`Self::probe_was_empty`] gives it back.
    pub(crate) fn admit(&self) -> Option<Admission> {
        self.admit_for(false)
    }

    /// What may be sent now of what is kept.
    pub(crate) fn admit_kept(&self) -> Option<Admission> {
        self.admit_for(true)
    }

    fn admit_for(&self, kept: bool) -> Option<Admission> {
        let mut inner = self.inner.lock();
        match inner.state {
            BreakerState::Closed => Some(Admission { limit: BATCH_ITEMS_MAX, probe: false }),
            BreakerState::Open { .. } if inner.kept && !kept => None,
            BreakerState::Open { until } if until <= Instant::now() => {
                inner.state = BreakerState::Probing;
                Some(Admission { limit: inner.probe, probe: true })
            }
            BreakerState::Open { .. } | BreakerState::Probing => None,
        }
    }

    /// Ends the wait before the next probe, whoever asked for it, and says what the probe brought, within `within`.
    pub(crate) async fn try_now(&self, within: Duration) -> Tried {
        let now = Instant::now();
        let probes = {
            let mut inner = self.inner.lock();
            match inner.state {
                BreakerState::Closed => return Tried::WasUp,
                BreakerState::Open { .. } => {
                    inner.state = BreakerState::Open { until: now };
                    self.changed.notify_waiters();
                }
                BreakerState::Probing => {}
            }
            inner.probes
        };
        let (claimed_by, until) = (now + CLAIMED_WITHIN.min(within), now + within);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let state = {
                let inner = self.inner.lock();
                match inner.state {
                    BreakerState::Closed => return Tried::Up,
                    _ if inner.probes > probes => return Tried::Down,
                    state => state,
                }
            };
            let patience = if state == BreakerState::Probing { until } else { claimed_by };
            if tokio::time::timeout_at(patience, changed).await.is_err() {
                let inner = self.inner.lock();
                match inner.state {
                    BreakerState::Closed => return Tried::Up,
                    _ if inner.probes > probes => return Tried::Down,
                    BreakerState::Probing if Instant::now() < until => {}
                    BreakerState::Probing => return Tried::UnderWay,
                    BreakerState::Open { .. } => return Tried::NothingDue,
                }
            }
        }
    }

    /// The probe brought nothing to send: another may go at once.
    pub(crate) fn probe_was_empty(&self) {
        let mut inner = self.inner.lock();
        if inner.state == BreakerState::Probing {
            inner.state = BreakerState::Open { until: Instant::now() };
            self.changed.notify_waiters();
        }
    }

    /// A limit of the sink's own kept the probe back: another goes after the same wait.
    pub(crate) fn probe_was_kept_back(&self) {
        let mut inner = self.inner.lock();
        if inner.state == BreakerState::Probing {
            let until = Instant::now() + inner.wait;
            inner.state = BreakerState::Open { until };
            self.changed.notify_waiters();
        }
    }

    /// The target answered for its messages.
    pub(crate) fn answered(&self) {
        let mut inner = self.inner.lock();
        inner.wait = PROBE_WAIT_MIN;
        inner.probe = PROBE_MESSAGES;
        if inner.state != BreakerState::Closed {
            inner.state = BreakerState::Closed;
            self.count_open(&mut inner);
            let seconds = self.outage_ends(&mut inner, OutageEnd::Accepted).as_secs();
            self.meters.breaker_open.set(0);
            self.changed.notify_waiters();
            info!(topic = %self.topic, seconds, "sink answers again, claims go on");
        }
    }

    /// A call that was no probe says that the target as a whole is down, or asks for a pause of `after`.
    pub(crate) fn unavailable(&self, reason: &str, after: Option<Duration>) {
        let mut inner = self.inner.lock();
        let now = Instant::now();
        let asked = after.unwrap_or_default().min(ASKED_WAIT_MAX);
        match inner.state {
            BreakerState::Closed => {
                inner.wait = PROBE_WAIT_MIN.min(self.wait_max);
                inner.probe = PROBE_MESSAGES;
                inner.state = BreakerState::Open { until: now + inner.wait.max(asked) };
                let since_at = self.clock.now();
                inner.outage = Some(Outage {
                    since: now,
                    since_at,
                    reason: reason.to_owned(),
                    logged: now,
                    counted: now,
                    kept: self.outages.began(&self.topic, &self.sink, since_at, reason),
                });
                self.meters.breaker_open.set(1);
                self.meters.breaker_opens.inc();
                warn!(topic = %self.topic, reason, "sink is down, claims stop until it answers");
                self.changed.notify_waiters();
            }
            // Calls that were under way when it opened say nothing new, except a longer pause.
            BreakerState::Open { until } => inner.state = BreakerState::Open { until: until.max(now + asked) },
            BreakerState::Probing => {}
        }
    }

    /// The probe found the target down, or it asks for a pause of `after`. `answered`: it said so itself, message by
    /// message, so that the next probe may ask about more of them.
    pub(crate) fn probe_failed(&self, reason: &str, after: Option<Duration>, answered: bool) {
        let mut inner = self.inner.lock();
        if inner.state != BreakerState::Probing {
            return;
        }
        let asked = after.unwrap_or_default().min(ASKED_WAIT_MAX);
        inner.wait = (inner.wait * 2).min(self.wait_max);
        inner.probe = if answered { (inner.probe * 2).min(BATCH_ITEMS_MAX) } else { PROBE_MESSAGES };
        inner.probes += 1;
        inner.state = BreakerState::Open { until: Instant::now() + inner.wait.max(asked) };
        if let Some(outage) = &mut inner.outage {
            reason.clone_into(&mut outage.reason);
            self.outages.tried(outage.kept, reason);
        }
        self.changed.notify_waiters();
    }

    /// Counts the time that it is open, and says in the log once in a while that it still is.
    pub(crate) fn tick(&self) {
        let mut inner = self.inner.lock();
        self.count_open(&mut inner);
        let now = Instant::now();
        let next_try = match inner.state {
            BreakerState::Open { until } => until.saturating_duration_since(now),
            BreakerState::Probing | BreakerState::Closed => Duration::ZERO,
        };
        if let Some(outage) = &mut inner.outage
            && now.duration_since(outage.logged) >= LOG_EVERY
        {
            outage.logged = now;
            let (reason, seconds) = (&outage.reason, now.duration_since(outage.since).as_secs());
            let (due, next_try_ms) = (self.meters.due.get(), next_try.as_millis() as u64);
            warn!(topic = %self.topic, reason, seconds, due, next_try_ms, "sink is still down");
        }
    }

    /// How long it was.
    fn outage_ends(&self, inner: &mut BreakerInner, how: OutageEnd) -> Duration {
        let Some(outage) = inner.outage.take() else { return Duration::ZERO };
        self.outages.ended(outage.kept, self.clock.now(), how);
        outage.since.elapsed()
    }

    fn count_open(&self, inner: &mut BreakerInner) {
        if let Some(outage) = &mut inner.outage {
            let now = Instant::now();
            self.meters.breaker_open_seconds.inc_by(now.duration_since(outage.counted).as_secs_f64());
            outage.counted = now;
        }
    }
}

impl Drop for Breaker {
    fn drop(&mut self) {
        let mut inner = self.inner.lock();
        self.outage_ends(&mut inner, OutageEnd::Dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT_MAX: Duration = Duration::from_secs(5);

    fn breaker() -> Breaker {
        let topic = TopicName::new("orders").unwrap();
        let meters = duetime_metrics::Meters::new().topic(&topic);
        let clock = Arc::new(duetime_testkit::WallClock);
        Breaker::new((topic, "shop".to_owned()), Arc::default(), meters, clock, WAIT_MAX)
    }

    /// Lets a probe through and says that it failed.
    async fn probe_fails(breaker: &Breaker, reason: &str, answered: bool) -> Option<Admission> {
        breaker.passable().await;
        let admission = breaker.admit();
        breaker.probe_failed(reason, None, answered);
        admission
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_breaker_lets_one_probe_through_after_a_wait_that_doubles() {
        let breaker = breaker();
        assert_eq!(breaker.admit(), Some(Admission { limit: BATCH_ITEMS_MAX, probe: false }));
        breaker.unavailable("connection refused", None);
        assert_eq!((breaker.meters.breaker_open.get(), breaker.meters.breaker_opens.get()), (1, 1));
        for wait_ms in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            assert_eq!(breaker.admit(), None);
            let opened = Instant::now();
            breaker.passable().await;
            assert_eq!(opened.elapsed().as_millis(), wait_ms);
            assert_eq!(breaker.admit(), Some(Admission { limit: PROBE_MESSAGES, probe: true }));
            assert_eq!(breaker.admit(), None, "one probe at a time");
            breaker.unavailable("from before it opened", None);
            breaker.probe_failed("connection refused", None, false);
        }
        breaker.passable().await;
        assert!(breaker.admit().is_some_and(|a| a.probe));
        breaker.answered();
        assert!(breaker.is_closed());
        assert_eq!(breaker.meters.breaker_open.get(), 0);
        assert!((breaker.meters.breaker_open_seconds.get() - 21.3).abs() < 0.1, "the waits above, and 5 s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_the_target_asks_for_is_kept() {
        let breaker = breaker();
        breaker.unavailable("429", Some(Duration::from_secs(120)));
        let opened = Instant::now();
        breaker.passable().await;
        assert_eq!(opened.elapsed(), Duration::from_secs(120));
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_asks_about_more_messages_each_time_the_target_answers_for_none() {
        let breaker = breaker();
        breaker.unavailable("503", None);
        for size in [8, 16, 32, 64, 128, 256, 256] {
            assert_eq!(probe_fails(&breaker, "503", true).await, Some(Admission { limit: size, probe: true }));
        }
        probe_fails(&breaker, "connection refused", false).await;
        breaker.passable().await;
        assert_eq!(breaker.admit(), Some(Admission { limit: PROBE_MESSAGES, probe: true }), "it is gone altogether");
    }

    #[tokio::test(start_paused = true)]
    async fn a_longer_pause_that_a_call_under_way_brings_back_is_kept_too() {
        let breaker = breaker();
        breaker.unavailable("connection refused", None);
        // It was sent before the breaker opened.
        breaker.unavailable("429", Some(Duration::from_secs(120)));
        breaker.unavailable("503", Some(Duration::from_secs(5)));
        let opened = Instant::now();
        breaker.passable().await;
        assert_eq!(opened.elapsed(), Duration::from_secs(120));
    }

    #[tokio::test(start_paused = true)]
    async fn a_sink_that_is_down_says_since_when_why_and_when_it_is_tried_next() {
        let breaker = breaker();
        assert_eq!(breaker.down(), None);
        breaker.unavailable("connection refused", Some(Duration::from_secs(120)));
        let down = breaker.down().unwrap();
        assert_eq!(down.reason, "connection refused");
        let wait = down.next_try.unwrap().since(down.since);
        assert!((119..=121).contains(&wait.as_secs()), "{wait:?}");
        breaker.passable().await;
        breaker.admit();
        assert_eq!(breaker.down().unwrap().next_try, None, "it is being tried");
        breaker.probe_failed("503", None, true);
        assert_eq!(breaker.down().unwrap().reason, "503");
        breaker.passable().await;
        breaker.admit();
        breaker.answered();
        assert_eq!(breaker.down(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn each_time_that_a_sink_is_down_is_kept_with_its_end_also_when_the_breaker_is_gone() {
        let breaker = breaker();
        let outages = breaker.outages.clone();
        breaker.unavailable("connection refused", None);
        probe_fails(&breaker, "503", true).await;
        probe_fails(&breaker, "503", true).await;
        let known = outages.latest().remove(0);
        assert_eq!((known.topic.as_str(), &*known.sink, &*known.reason), ("orders", "shop", "connection refused"));
        assert_eq!((known.last_reason.as_deref(), known.probes, known.ended), (Some("503"), 2, None));
        breaker.answered();
        assert_eq!(outages.latest()[0].ended.unwrap().1, OutageEnd::Accepted);
        breaker.unavailable("503", None);
        drop(breaker);
        let ends: Vec<_> = outages.latest().iter().map(|outage| outage.ended.unwrap().1).collect();
        assert_eq!(ends, [OutageEnd::Dropped, OutageEnd::Accepted]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_try_at_once_ends_the_wait_and_says_what_it_brought() {
        let breaker = Arc::new(breaker());
        let second = Duration::from_secs(1);
        assert_eq!(breaker.try_now(second).await, Tried::WasUp);
        breaker.unavailable("429", Some(Duration::from_secs(3600)));
        let asked = Instant::now();
        assert_eq!(breaker.try_now(10 * second).await, Tried::NothingDue, "nobody claims");
        assert_eq!(asked.elapsed(), CLAIMED_WITHIN);
        for (ends, expected) in [(Some(false), Tried::Down), (None, Tried::UnderWay), (Some(true), Tried::Up)] {
            let tried = tokio::spawn({
                let breaker = breaker.clone();
                async move { breaker.try_now(10 * second).await }
            });
            tokio::task::yield_now().await;
            if breaker.inner.lock().state != BreakerState::Probing {
                assert!(breaker.admit().is_some_and(|admission| admission.probe), "its wait is over");
            }
            tokio::time::sleep(3 * second).await;
            match ends {
                Some(true) => breaker.answered(),
                Some(false) => breaker.probe_failed("503", None, true),
                None => {}
            }
            assert_eq!(tried.await.unwrap(), expected);
        }
    }
}
