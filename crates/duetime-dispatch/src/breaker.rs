//! The breaker of one topic's sink: while the target as a whole is down, nothing is claimed.
//!
//! Closed: claims go. Open: nothing goes until the wait is over. Then a probe, one small claim, and
//! its verdicts decide. A probe has several messages, and more after each that failed though the target
//! answered, so that messages whose own destinations are down cannot keep the breaker open. Upstream:
//! `deliverer` tells the verdicts. Downstream: `claimer` asks what may go.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::TopicName;
use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_metrics::TopicMeters;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{info, warn};

/// First wait before a probe; each failed probe doubles it, up to what the sink sets.
pub(crate) const PROBE_WAIT_MIN: Duration = Duration::from_millis(100);
/// A breaker that stays open is told in the log this often.
const TOLD_EVERY: Duration = Duration::from_secs(60);
/// A target that asks for a longer pause than this is probed after this.
pub(crate) const ASKED_WAIT_MAX: Duration = Duration::from_secs(3600);
/// Most messages of the first probe.
pub(crate) const PROBE_MESSAGES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Closed,
    Open { until: Instant },
    Probing,
}

#[derive(Debug)]
struct Inner {
    state: State,
    wait: Duration,
    /// Most messages of the next probe.
    probe: usize,
    down: Option<Down>,
}

/// That a sink is down, for the log.
#[derive(Debug)]
struct Down {
    since: Instant,
    /// When the log was last told.
    told: Instant,
}

/// What the claimer may claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    /// Most messages.
    pub(crate) limit: usize,
    /// It is the probe.
    pub(crate) probe: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Breaker {
    inner: Mutex<Inner>,
    changed: Notify,
    topic: TopicName,
    meters: Arc<TopicMeters>,
    wait_max: Duration,
}

impl Breaker {
    /// `wait_max`: longest wait before a probe.
    pub(crate) fn new(topic: TopicName, meters: Arc<TopicMeters>, wait_max: Duration) -> Self {
        meters.breaker_open.set(0);
        let inner = Inner { state: State::Closed, wait: PROBE_WAIT_MIN, probe: PROBE_MESSAGES, down: None };
        Self { inner: Mutex::new(inner), changed: Notify::new(), topic, meters, wait_max }
    }

    /// How long the next probe is waited for, where one is.
    pub(crate) fn wait(&self) -> Duration {
        self.inner.lock().wait
    }

    /// Whether messages may be sent that are no probe.
    pub(crate) fn is_closed(&self) -> bool {
        self.inner.lock().state == State::Closed
    }

    /// Waits until something may be claimed.
    pub(crate) async fn passable(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let state = self.inner.lock().state;
            match state {
                State::Closed => return,
                State::Open { until } if until <= Instant::now() => return,
                State::Open { until } => {
                    tokio::select! { () = changed => {}, () = tokio::time::sleep_until(until) => {} }
                }
                State::Probing => changed.await,
            }
        }
    }

    /// What may be claimed now. A probe is admitted once; [`Self::probe_was_empty`] gives it back.
    pub(crate) fn admit(&self) -> Option<Admission> {
        let mut inner = self.inner.lock();
        match inner.state {
            State::Closed => Some(Admission { limit: BATCH_ITEMS_MAX, probe: false }),
            State::Open { until } if until <= Instant::now() => {
                inner.state = State::Probing;
                Some(Admission { limit: inner.probe, probe: true })
            }
            State::Open { .. } | State::Probing => None,
        }
    }

    /// The probe brought nothing to send: another may go at once.
    pub(crate) fn probe_was_empty(&self) {
        let mut inner = self.inner.lock();
        if inner.state == State::Probing {
            inner.state = State::Open { until: Instant::now() };
            self.changed.notify_waiters();
        }
    }

    /// A limit of the sink's own kept the probe back: another goes after the same wait.
    pub(crate) fn probe_was_kept_back(&self) {
        let mut inner = self.inner.lock();
        if inner.state == State::Probing {
            let until = Instant::now() + inner.wait;
            inner.state = State::Open { until };
            self.changed.notify_waiters();
        }
    }

    /// The target answered for its messages.
    pub(crate) fn answered(&self) {
        let mut inner = self.inner.lock();
        inner.wait = PROBE_WAIT_MIN;
        inner.probe = PROBE_MESSAGES;
        if inner.state != State::Closed {
            inner.state = State::Closed;
            let seconds = inner.down.take().map_or(0, |down| down.since.elapsed().as_secs());
            self.meters.breaker_open.set(0);
            self.changed.notify_waiters();
            info!(topic = %self.topic, seconds, "sink answers again, claims go on");
        }
    }

    /// The target as a whole is down, or asks for a pause of `after`. `answered`: it said so itself, message by
    /// message, so that the next probe may ask about more of them.
    pub(crate) fn unavailable(&self, reason: &str, after: Option<Duration>, answered: bool) {
        let mut inner = self.inner.lock();
        let now = Instant::now();
        let asked = after.unwrap_or_default().min(ASKED_WAIT_MAX);
        match inner.state {
            State::Closed => {
                inner.wait = PROBE_WAIT_MIN.min(self.wait_max);
                inner.probe = PROBE_MESSAGES;
                self.meters.breaker_open.set(1);
                inner.down = Some(Down { since: now, told: now });
                warn!(topic = %self.topic, reason, "sink is down, claims stop until it answers");
            }
            State::Probing => {
                inner.wait = (inner.wait * 2).min(self.wait_max);
                inner.probe = if answered { (inner.probe * 2).min(BATCH_ITEMS_MAX) } else { PROBE_MESSAGES };
            }
            // Calls that were under way when it opened say nothing new, except a longer pause.
            State::Open { until } => {
                inner.state = State::Open { until: until.max(now + asked) };
                return;
            }
        }
        let wait = inner.wait.max(asked);
        inner.state = State::Open { until: now + wait };
        if let Some(down) = &mut inner.down
            && now.duration_since(down.told) >= TOLD_EVERY
        {
            down.told = now;
            let seconds = now.duration_since(down.since).as_secs();
            warn!(topic = %self.topic, reason, seconds, next_probe_ms = wait.as_millis(), "sink is still down");
        }
        self.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT_MAX: Duration = Duration::from_secs(5);

    fn breaker() -> Breaker {
        let topic = TopicName::new("orders").unwrap();
        let meters = duetime_metrics::Meters::new().topic(&topic);
        Breaker::new(topic, meters, WAIT_MAX)
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_breaker_lets_one_probe_through_after_a_wait_that_doubles() {
        let breaker = breaker();
        assert_eq!(breaker.admit(), Some(Admission { limit: BATCH_ITEMS_MAX, probe: false }));
        breaker.unavailable("connection refused", None, false);
        assert_eq!(breaker.meters.breaker_open.get(), 1);
        for wait_ms in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            assert_eq!(breaker.admit(), None);
            let opened = Instant::now();
            breaker.passable().await;
            assert_eq!(opened.elapsed().as_millis(), wait_ms);
            assert_eq!(breaker.admit(), Some(Admission { limit: PROBE_MESSAGES, probe: true }));
            assert_eq!(breaker.admit(), None, "one probe at a time");
            breaker.unavailable("connection refused", None, false);
        }
        breaker.passable().await;
        assert!(breaker.admit().is_some_and(|a| a.probe));
        breaker.answered();
        assert!(breaker.is_closed());
        assert_eq!(breaker.meters.breaker_open.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_the_target_asks_for_is_kept() {
        let breaker = breaker();
        breaker.unavailable("429", Some(Duration::from_secs(120)), false);
        let opened = Instant::now();
        breaker.passable().await;
        assert_eq!(opened.elapsed(), Duration::from_secs(120));
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_asks_about_more_messages_each_time_the_target_answers_for_none() {
        let breaker = breaker();
        breaker.unavailable("503", None, true);
        for size in [8, 16, 32, 64, 128, 256, 256] {
            breaker.passable().await;
            assert_eq!(breaker.admit(), Some(Admission { limit: size, probe: true }));
            breaker.unavailable("503", None, true);
        }
        breaker.passable().await;
        breaker.admit();
        breaker.unavailable("connection refused", None, false);
        breaker.passable().await;
        assert_eq!(breaker.admit(), Some(Admission { limit: PROBE_MESSAGES, probe: true }), "it is gone altogether");
    }

    #[tokio::test(start_paused = true)]
    async fn a_longer_pause_that_a_call_under_way_brings_back_is_kept_too() {
        let breaker = breaker();
        breaker.unavailable("connection refused", None, false);
        // It was sent before the breaker opened.
        breaker.unavailable("429", Some(Duration::from_secs(120)), false);
        breaker.unavailable("503", Some(Duration::from_secs(5)), false);
        let opened = Instant::now();
        breaker.passable().await;
        assert_eq!(opened.elapsed(), Duration::from_secs(120));
    }
}
