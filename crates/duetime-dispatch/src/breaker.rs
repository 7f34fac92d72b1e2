//! The breaker of one topic's sink: while the target as a whole is down, nothing is claimed.
//!
//! Closed: claims go. Open: nothing goes until the wait is over. Then a probe, one small claim, and
//! its verdicts decide. A probe has several messages so that one poison message cannot keep the
//! breaker open. Upstream: `deliverer` tells the verdicts. Downstream: `claimer` asks what may go.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::TopicName;
use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_metrics::TopicMeters;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{info, warn};

/// First and longest wait before a probe; each failed probe doubles it.
pub(crate) const PROBE_WAIT_MIN: Duration = Duration::from_millis(100);
/// See [`PROBE_WAIT_MIN`].
pub(crate) const PROBE_WAIT_MAX: Duration = Duration::from_secs(30);
/// A target that asks for a longer pause than this is probed after this.
pub(crate) const ASKED_WAIT_MAX: Duration = Duration::from_secs(3600);
/// Most messages of a probe.
pub(crate) const PROBE_MESSAGES: usize = 8;
/// So many calls in a row that were not answered in time open the breaker.
pub(crate) const TIMEOUTS_IN_A_ROW: u32 = 3;

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
    timeouts: u32,
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
}

impl Breaker {
    pub(crate) fn new(topic: TopicName, meters: Arc<TopicMeters>) -> Self {
        meters.breaker_open.set(0);
        let inner = Inner { state: State::Closed, wait: PROBE_WAIT_MIN, timeouts: 0 };
        Self { inner: Mutex::new(inner), changed: Notify::new(), topic, meters }
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
                Some(Admission { limit: PROBE_MESSAGES, probe: true })
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

    /// The target answered for its messages.
    pub(crate) fn answered(&self) {
        let mut inner = self.inner.lock();
        inner.timeouts = 0;
        inner.wait = PROBE_WAIT_MIN;
        if inner.state != State::Closed {
            inner.state = State::Closed;
            self.meters.breaker_open.set(0);
            self.changed.notify_waiters();
            info!(topic = %self.topic, "sink answers again, claims go on");
        }
    }

    /// A call was not answered in time; true: once too often, the target is taken to be down.
    pub(crate) fn timed_out(&self) -> bool {
        let mut inner = self.inner.lock();
        inner.timeouts += 1;
        inner.timeouts >= TIMEOUTS_IN_A_ROW
    }

    /// The target as a whole is down, or asks for a pause of `after`.
    pub(crate) fn unavailable(&self, reason: &str, after: Option<Duration>) {
        let mut inner = self.inner.lock();
        match inner.state {
            State::Closed => {
                inner.wait = PROBE_WAIT_MIN;
                self.meters.breaker_open.set(1);
                warn!(topic = %self.topic, reason, "sink is down, claims stop until it answers");
            }
            State::Probing => inner.wait = (inner.wait * 2).min(PROBE_WAIT_MAX),
            // Calls that were under way when it opened say nothing new, except a longer pause.
            State::Open { until } => {
                let asked = Instant::now() + after.unwrap_or_default().min(ASKED_WAIT_MAX);
                inner.state = State::Open { until: until.max(asked) };
                return;
            }
        }
        let wait = inner.wait.max(after.unwrap_or_default().min(ASKED_WAIT_MAX));
        inner.state = State::Open { until: Instant::now() + wait };
        self.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> Breaker {
        let topic = TopicName::new("orders").unwrap();
        let meters = duetime_metrics::Meters::new().topic(&topic);
        Breaker::new(topic, meters)
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_breaker_lets_one_probe_through_after_a_wait_that_doubles() {
        let breaker = breaker();
        assert_eq!(breaker.admit(), Some(Admission { limit: BATCH_ITEMS_MAX, probe: false }));
        breaker.unavailable("connection refused", None);
        assert_eq!(breaker.meters.breaker_open.get(), 1);
        for wait_ms in [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000] {
            assert_eq!(breaker.admit(), None);
            let opened = Instant::now();
            breaker.passable().await;
            assert_eq!(opened.elapsed().as_millis(), wait_ms);
            assert_eq!(breaker.admit(), Some(Admission { limit: PROBE_MESSAGES, probe: true }));
            assert_eq!(breaker.admit(), None, "one probe at a time");
            breaker.unavailable("connection refused", None);
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
        breaker.unavailable("429", Some(Duration::from_secs(120)));
        let opened = Instant::now();
        breaker.passable().await;
        assert_eq!(opened.elapsed(), Duration::from_secs(120));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_in_a_row_without_an_answer_are_counted_until_one_is_answered() {
        let breaker = breaker();
        assert!(!breaker.timed_out() && !breaker.timed_out());
        breaker.answered();
        assert!(!breaker.timed_out() && !breaker.timed_out() && breaker.timed_out());
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
}
