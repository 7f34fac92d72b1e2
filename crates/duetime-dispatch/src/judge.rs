//! Who pays for a failed delivery. The one rule: **a message pays for a failure once the target has accepted a message
//! that was sent after it.**
//!
//! An outage therefore costs a message at most one attempt: while it lasts nothing is accepted, and what is sent after
//! it does not fail in it. A message that is bad by itself pays for each of its failures, as others are accepted.
//!
//! A failure is held for [`HELD_MAX`], claimed and with its permit, for the proof to come. Then it is given back for
//! nothing and remembered: if the proof comes before the message fails again, it pays then. A call that was under way
//! when the proof was heard may have failed in the same outage as the one before, so the two are paid for once. Where
//! nothing at all was accepted since the failure, the target is down. Upstream: `deliverer`, which says what was sent, accepted and
//! failed, and when. Pure: no clock, no store.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use duetime_core::Nonce;
use tokio::time::Instant;

/// Longest time that a failure is held.
pub(crate) const HELD_MAX: Duration = Duration::from_secs(2);
/// This many failures that are held mean that the target is down, too, if nothing was accepted since the first.
const FAILURES_MAX: usize = 4_096;
/// Failures that are remembered, in each of two generations.
const REMEMBERED_MAX: usize = 32_768;

/// A failure that is held; `what` is the caller's.
#[derive(Debug)]
struct Held<T> {
    nonce: Nonce,
    failed: Instant,
    until: Instant,
    what: T,
}

/// When messages failed last, by the nonce of their enqueue. When one generation is full, the one before it is
/// forgotten.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    young: HashMap<Nonce, Instant>,
    old: HashMap<Nonce, Instant>,
}

impl Failures {
    pub(crate) fn contains(&self, nonce: Nonce) -> bool {
        self.get(nonce).is_some()
    }

    fn get(&self, nonce: Nonce) -> Option<Instant> {
        self.young.get(&nonce).or_else(|| self.old.get(&nonce)).copied()
    }

    pub(crate) fn remove(&mut self, nonce: Nonce) -> Option<Instant> {
        self.young.remove(&nonce).or_else(|| self.old.remove(&nonce))
    }

    pub(crate) fn insert(&mut self, nonce: Nonce, failed: Instant) {
        self.remove(nonce);
        if self.young.len() >= REMEMBERED_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(nonce, failed);
    }
}

/// Decides who pays for a failed delivery, by the one rule of this module.
#[derive(Debug)]
pub(crate) struct Judge<T> {
    /// Oldest first, as calls end.
    held: VecDeque<Held<T>>,
    longest: Duration,
    /// Those that paid nothing yet. One that is forgotten has one more try for nothing.
    unpaid: Failures,
    /// Of those, the ones whose proof had been heard when their message was sent again: it pays if it fails.
    owing: Failures,
    /// When that message was sent which was sent last of all that were accepted.
    accepted_sent: Option<Instant>,
    /// When the target was last heard to accept one.
    accepted: Option<Instant>,
}

impl<T> Judge<T> {
    /// `visibility`: of the topic. A failure is held no longer than a quarter of it, for it has to be settled while
    /// its claim holds.
    pub(crate) fn new(visibility: Duration) -> Self {
        Self {
            held: VecDeque::new(),
            longest: HELD_MAX.min(visibility / 4),
            unpaid: Failures::default(),
            owing: Failures::default(),
            accepted_sent: None,
            accepted: None,
        }
    }

    /// Failures that are held.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// The target was heard at `heard` to have accepted something that was sent at `sent`.
    pub(crate) fn accepted(&mut self, sent: Instant, heard: Instant) {
        self.accepted_sent = self.accepted_sent.max(Some(sent));
        self.accepted = self.accepted.max(Some(heard));
    }

    /// Whether the target was heard to accept something at `moment` or later.
    pub(crate) fn accepted_since(&self, moment: Instant) -> bool {
        self.accepted >= Some(moment)
    }

    fn is_proven(&self, failed: Instant) -> bool {
        self.accepted_sent >= Some(failed)
    }

    /// The message is done with, or was accepted.
    pub(crate) fn forget(&mut self, nonce: Nonce) {
        self.unpaid.remove(nonce);
        self.owing.remove(nonce);
    }

    /// Notes that the message is being sent.
    pub(crate) fn sending(&mut self, nonce: Nonce) {
        if self.unpaid.get(nonce).is_some_and(|before| self.is_proven(before)) {
            let before = self.unpaid.remove(nonce).expect("it was seen");
            self.owing.insert(nonce, before);
        }
    }

    /// Notes that the message failed. True if it pays, for the failure before this one.
    pub(crate) fn failed(&mut self, nonce: Nonce, failed: Instant) -> bool {
        let owes = self.owing.remove(nonce).is_some();
        let is_proven = self.unpaid.remove(nonce).is_some_and(|before| self.is_proven(before));
        if owes || !is_proven {
            self.unpaid.insert(nonce, failed);
        }
        owes || is_proven
    }

    /// Holds a failure that was noted, until `settle_by` at the latest.
    pub(crate) fn hold(&mut self, nonce: Nonce, failed: Instant, settle_by: Instant, what: T) {
        let until = settle_by.min(failed + self.longest);
        self.held.push_back(Held { nonce, failed, until, what });
    }

    /// Takes those that pay, since the target has accepted what was sent after they had failed.
    pub(crate) fn paying(&mut self) -> Vec<T> {
        let mut paying = Vec::new();
        while let Some(first) = self.held.pop_front_if(|first| self.accepted_sent >= Some(first.failed)) {
            self.unpaid.remove(first.nonce);
            paying.push(first.what);
        }
        paying
    }

    /// When [`Self::expired`] has something to say; `None`: nothing is held.
    pub(crate) fn expires_at(&self) -> Option<Instant> {
        let full = self.held.front().filter(|_| self.held.len() >= FAILURES_MAX).map(|first| first.failed);
        full.or_else(|| self.held.iter().map(|held| held.until).min())
    }

    /// Takes those that are held no longer at `now` and pay nothing; true if the target is down: then these are all.
    pub(crate) fn expired(&mut self, now: Instant) -> (Vec<T>, bool) {
        let full = self.held.len() >= FAILURES_MAX;
        let is_over = |held: &Held<T>| full || held.until <= now;
        let Some(first) = self.held.iter().find(|held| is_over(held)).map(|first| first.failed) else {
            return (Vec::new(), false);
        };
        if !self.accepted_since(first) {
            return (self.take(), true);
        }
        let (over, held): (VecDeque<_>, _) = std::mem::take(&mut self.held).into_iter().partition(is_over);
        self.held = held;
        (over.into_iter().map(|held| held.what).collect(), false)
    }

    /// Takes all that are held. They pay nothing now.
    pub(crate) fn take(&mut self) -> Vec<T> {
        std::mem::take(&mut self.held).into_iter().map(|held| held.what).collect()
    }
}
