//! Messages claimed at most once that were certainly not sent: they cannot go back to the store, and are kept until
//! they can be offered again.
//!
//! Upstream: `deliverer`. While the target is down they are what it is probed with, so that a probe takes no more out
//! of the store. They keep their permits, so they are bounded by the budget.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::breaker::Breaker;
use crate::work::Claimed;

/// Messages claimed at most once that were certainly not sent: they cannot go back to the store, and are kept until
/// they can be offered again. Oldest first.
#[derive(Debug, Default)]
pub(crate) struct Unsent(VecDeque<(Instant, Claimed)>);

impl Unsent {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps `held`, to be offered after `wait`.
    pub(crate) fn keep(&mut self, mut held: Claimed, wait: Duration) {
        held.claim.probe = false;
        self.0.push_back((Instant::now() + wait, held));
    }

    /// Drops what is over, and says how many they were.
    pub(crate) fn drop_where(&mut self, is_over: impl Fn(&Claimed) -> bool) -> u64 {
        let before = self.0.len();
        self.0.retain(|(_, held)| !is_over(held));
        (before - self.0.len()) as u64
    }

    /// What may be offered now: all whose wait is over, or, while the target is down, a probe when it is time for one.
    pub(crate) fn offered(&mut self, breaker: &Breaker) -> Vec<Claimed> {
        breaker.probe_is_kept(!self.0.is_empty());
        if breaker.is_closed() {
            let now = Instant::now();
            let (again, wait) = std::mem::take(&mut self.0).into_iter().partition(|(at, _)| *at <= now);
            self.0 = wait;
            return VecDeque::into_iter(again).map(|(_, held)| held).collect();
        }
        if self.0.is_empty() {
            return Vec::new();
        }
        let Some(admission) = breaker.admit_kept() else { return Vec::new() };
        let count = admission.limit.min(self.0.len());
        let probe = self.0.drain(..count).map(|(_, mut held)| {
            held.claim.probe = admission.probe;
            held
        });
        probe.collect()
    }

    /// Waits until something may be offered.
    pub(crate) async fn ready(&self, breaker: &Breaker) {
        if !breaker.is_closed() {
            return breaker.passable_for_kept().await;
        }
        match self.0.iter().map(|(at, _)| *at).min() {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Takes all.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Claimed> {
        std::mem::take(&mut self.0).into_iter().map(|(_, held)| held)
    }
}
