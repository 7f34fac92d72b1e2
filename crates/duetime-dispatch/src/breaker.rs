//! The breaker of one topic's sink: while the target as a whole is down, nothing is claimed.
//!
//! Closed: claims go. Open: nothing goes until the wait is over. Then a probe, one small claim, and its verdicts decide.
//! Where nothing has waited for a while, the outage is over, and what is due next is the probe. A probe has several
//! messages, and more after each that failed though the target answered, so that messages whose own destinations are
//! down cannot keep the breaker open. Upstream: `deliverer` reports the verdicts, `gauges` that nothing waits.
//! Downstream: `claimer` asks what may go.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use duetime_core::limits::{BATCH_ITEMS_MAX, CLOCK_SKEW_MAX};
use duetime_core::{Clock, OutageEnd, ProbeOutcome, SinkDown, Timestamp, TopicName};
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
/// Most messages of the first probe.
pub(crate) const PROBE_MESSAGES: usize = 8;
/// An outage of which nothing was seen for this long is over, once a survey finds nothing that waits: in round-robin the
/// shard of the one message that waits may be another node's for some turns.
pub(crate) const NOTHING_FOR: Duration = Duration::from_secs(60);
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

/// State of an ongoing outage of a sink.
#[derive(Debug)]
struct Outage {
    since: Instant,
    since_at: Timestamp,
    /// Latest time to which messages were deferred during the outage.
    deferred_until: Timestamp,
    /// What was said last.
    reason: String,
    /// When the log last said so.
    logged: Instant,
    /// Until when its time is counted.
    counted: Instant,
    /// When the outage was last observed, or a message deferred because of it.
    changed: Instant,
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
        let (since, deferred_until) = (outage.since_at, outage.deferred_until);
        Some(SinkDown { since, deferred_until, reason: outage.reason.clone(), next_try })
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

    /// Admits unsent at-most-once messages.
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
    pub(crate) async fn probe_now(&self, within: Duration) -> ProbeOutcome {
        let now = Instant::now();
        let probes = {
            let mut inner = self.inner.lock();
            match inner.state {
                BreakerState::Closed => return ProbeOutcome::WasUp,
                BreakerState::Open { .. } if inner.outage.is_none() => return ProbeOutcome::WasUp,
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
                    BreakerState::Closed => return ProbeOutcome::Up,
                    _ if inner.probes > probes => return ProbeOutcome::Down,
                    state => state,
                }
            };
            let patience = if state == BreakerState::Probing { until } else { claimed_by };
            if tokio::time::timeout_at(patience, changed).await.is_err() {
                let inner = self.inner.lock();
                match inner.state {
                    BreakerState::Closed => return ProbeOutcome::Up,
                    _ if inner.probes > probes => return ProbeOutcome::Down,
                    BreakerState::Probing if Instant::now() < until => {}
                    BreakerState::Probing => return ProbeOutcome::InProgress,
                    BreakerState::Open { .. } => return ProbeOutcome::NothingDue,
                }
            }
        }
    }

    /// Ends a probe that found no message; the next may start at once.
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
            let seconds = self.outage_is_over(&mut inner, OutageEnd::Accepted).as_secs();
            self.changed.notify_waiters();
            info!(topic = %self.topic, seconds, "sink answers again, claims go on");
        }
    }

    /// The target as a whole is down, as calls found that were no probe.
    pub(crate) fn unavailable(&self, reason: &str) {
        let mut inner = self.inner.lock();
        // Calls that were under way when it opened say nothing new.
        if inner.state == BreakerState::Closed {
            inner.wait = PROBE_WAIT_MIN.min(self.wait_max);
            inner.probe = PROBE_MESSAGES;
            inner.state = BreakerState::Open { until: Instant::now() + inner.wait };
            self.outage_begins(&mut inner, reason);
            self.changed.notify_waiters();
        }
    }

    /// The probe found the target down. `taken`: its messages were sent, so that the next probe may ask about more.
    pub(crate) fn probe_failed(&self, reason: &str, taken: bool) {
        let mut inner = self.inner.lock();
        if inner.state != BreakerState::Probing {
            return;
        }
        inner.wait = (inner.wait * 2).min(self.wait_max);
        inner.probe = if taken { (inner.probe * 2).min(BATCH_ITEMS_MAX) } else { PROBE_MESSAGES };
        inner.probes += 1;
        let now = Instant::now();
        inner.state = BreakerState::Open { until: now + inner.wait };
        match &mut inner.outage {
            Some(outage) => {
                outage.changed = now;
                reason.clone_into(&mut outage.reason);
                self.outages.tried(outage.kept, reason);
            }
            None => self.outage_begins(&mut inner, reason),
        }
        self.changed.notify_waiters();
    }

    /// A survey that began at `surveyed` found nothing on this node that waits for the sink: another node delivered it,
    /// or it was cancelled. The outage is over then, for it could not end before something is due; what is due next is
    /// still claimed as a probe.
    pub(crate) fn nothing_waits(&self, surveyed: Instant) {
        let mut inner = self.inner.lock();
        let BreakerState::Open { until } = inner.state else { return };
        let is_recent = |outage: &Outage| surveyed.saturating_duration_since(outage.changed) < NOTHING_FOR;
        // What is claimed at most once waits here.
        if inner.outage.as_ref().is_none_or(is_recent) || inner.kept || until > Instant::now() {
            return;
        }
        (inner.wait, inner.probe) = (PROBE_WAIT_MIN, PROBE_MESSAGES);
        let seconds = self.outage_is_over(&mut inner, OutageEnd::NothingDue).as_secs();
        info!(topic = %self.topic, seconds, "nothing waits for the sink any more, it is tried with what is due next");
    }

    /// A message is given back and not visible for this long: it waits all the same.
    pub(crate) fn defer(&self, wait: Duration) {
        if let Some(outage) = &mut self.inner.lock().outage {
            outage.changed = Instant::now();
            // The store counts from the later of its clock and this one.
            outage.deferred_until = outage.deferred_until.max(self.clock.now().plus(wait + CLOCK_SKEW_MAX));
        }
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

    fn outage_begins(&self, inner: &mut BreakerInner, reason: &str) {
        let (now, since_at) = (Instant::now(), self.clock.now());
        inner.outage = Some(Outage {
            since: now,
            since_at,
            deferred_until: since_at,
            reason: reason.to_owned(),
            logged: now,
            counted: now,
            changed: now,
            kept: self.outages.began(&self.topic, &self.sink, since_at, reason),
        });
        self.meters.breaker_open.set(1);
        self.meters.breaker_opens.inc();
        warn!(topic = %self.topic, reason, "sink is down, claims stop until it answers");
    }

    /// How long it was.
    fn outage_is_over(&self, inner: &mut BreakerInner, how: OutageEnd) -> Duration {
        self.count_open(inner);
        self.meters.breaker_open.set(0);
        self.outage_ends(inner, how)
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
