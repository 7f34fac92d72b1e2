//! Messages whose failure may be their destination's or the whole target's: kept until it is known.
//!
//! Upstream: `deliverer`. It becomes the message's own matter as soon as the target accepts another message at
//! the same time or later, and the target's when it accepts none for a while: then the breaker opens and nobody
//! has paid. What waits here stays claimed and keeps its permit, so it is bounded by the permits.

use std::collections::VecDeque;
use std::time::Duration;

use duetime_core::MessageId;
use tokio::time::Instant;

use crate::verdicts::{Said, reason};
use crate::work::Hold;

/// Longest time that a target may accept nothing before it is taken to be down.
const ACCEPTS_NOTHING_MAX: Duration = Duration::from_secs(2);
/// So many messages that failed, without one accepted between them, mean the same.
const FAILURES_MAX: usize = 4_096;

/// One message that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) id: MessageId,
    pub(crate) attempt: u8,
    pub(crate) hold: Hold,
    pub(crate) said: Said,
    /// When its call ended.
    pub(crate) ended: Instant,
}

/// See the module. Oldest first.
#[derive(Debug)]
pub(crate) struct Undecided {
    waiting: VecDeque<Waiting>,
    longest: Duration,
}

impl Undecided {
    /// `visibility`: of the topic. A message waits no longer than a quarter of it, for it has to be settled
    /// while its claim holds.
    pub(crate) fn new(visibility: Duration) -> Self {
        Self { waiting: VecDeque::new(), longest: ACCEPTS_NOTHING_MAX.min(visibility / 4) }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes a message whose failure is not decided on.
    pub(crate) fn add(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    /// The target accepted a message at `at`: those that failed by then failed by themselves.
    pub(crate) fn accepted(&mut self, at: Instant) -> Vec<Waiting> {
        let (own, rest): (Vec<Waiting>, Vec<Waiting>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|waiting| waiting.ended <= at);
        self.waiting = rest.into();
        own
    }

    /// When the target is taken to be down if it accepts nothing until then; `settle_margin`: how long before
    /// its deadline a message has to be settled.
    pub(crate) fn decided_at(&self, settle_margin: Duration) -> Option<Instant> {
        let first = self.waiting.front()?.ended;
        if self.waiting.len() >= FAILURES_MAX {
            return Some(first);
        }
        let nearest = self.waiting.iter().map(|waiting| waiting.hold.deadline).min()?;
        let settled_by = nearest.checked_sub(settle_margin).unwrap_or(first);
        Some((first + self.longest).min(settled_by))
    }

    /// Takes all, as the target is down, and why.
    pub(crate) fn take(&mut self) -> (String, Vec<Waiting>) {
        let all: Vec<Waiting> = std::mem::take(&mut self.waiting).into();
        let why = all.last().map(|last| reason(&last.said)).unwrap_or_default();
        (why, all)
    }
}
