//! Messages whose failure may be their destination's or the whole target's: kept until it is known.
//!
//! Upstream: `deliverer`. A failure is the message's own matter where the target accepted another one meanwhile,
//! and the target's where it accepts none for a while: then the breaker opens and nobody has paid. Silence that
//! ended in time with an acceptance may have been the target's; who is met by it again pays. What waits here stays
//! claimed and keeps its permit, so it is bounded by the permits.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use duetime_core::MessageId;
use tokio::time::Instant;

use crate::verdicts::{Said, reason};
use crate::work::Hold;

/// Longest time that a target may accept nothing before it is taken to be down.
const ACCEPTS_NOTHING_MAX: Duration = Duration::from_secs(2);
/// So many messages that failed, without one accepted between them, mean the same.
const FAILURES_MAX: usize = 4_096;
/// A failure that took less time is an answer, and not silence.
const ANSWER_WITHIN: Duration = Duration::from_millis(100);
/// Calls that were accepted, as far as they are remembered.
const ACCEPTED_MAX: usize = 64;
/// Messages that were excused once, as far as they are remembered.
const EXCUSED_MAX: usize = 65_536;

/// Whose matter a failure is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Matter {
    /// The message's own.
    Own,
    /// Perhaps the target's, which is well again.
    Excused,
}

/// One message that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) id: MessageId,
    pub(crate) attempt: u8,
    pub(crate) hold: Hold,
    pub(crate) said: Said,
    /// When its call began.
    pub(crate) began: Instant,
    /// When its call ended.
    pub(crate) ended: Instant,
}

/// See the module. Oldest first.
#[derive(Debug)]
pub(crate) struct Undecided {
    waiting: VecDeque<Waiting>,
    longest: Duration,
    /// Begin and end of calls in which the target accepted something, the latest last.
    accepted: VecDeque<(Instant, Instant)>,
    excused: HashSet<MessageId>,
}

impl Undecided {
    /// `visibility`: of the topic. A message waits no longer than a quarter of it, for it has to be settled
    /// while its claim holds.
    pub(crate) fn new(visibility: Duration) -> Self {
        let longest = ACCEPTS_NOTHING_MAX.min(visibility / 4);
        Self { waiting: VecDeque::new(), longest, accepted: VecDeque::new(), excused: HashSet::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes a message whose failure is not decided on.
    pub(crate) fn add(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    /// The target accepted something in a call.
    pub(crate) fn accepted(&mut self, began: Instant, ended: Instant) {
        if self.accepted.len() >= ACCEPTED_MAX {
            self.accepted.pop_front();
        }
        self.accepted.push_back((began, ended));
    }

    /// Takes those about which something is known by now.
    pub(crate) fn decided(&mut self) -> Vec<(Waiting, Matter)> {
        let (mut decided, mut left) = (Vec::new(), VecDeque::new());
        for waiting in std::mem::take(&mut self.waiting) {
            match self.matter(&waiting) {
                Some(matter) => decided.push((waiting, matter)),
                None => left.push_back(waiting),
            }
        }
        self.waiting = left;
        decided
    }

    fn matter(&mut self, one: &Waiting) -> Option<Matter> {
        let is_answer = one.ended.duration_since(one.began) < ANSWER_WITHIN;
        let since = |accepted: &&(Instant, Instant)| accepted.1 >= one.began;
        let within = |accepted: &(Instant, Instant)| accepted.0 >= one.began && accepted.1 < one.ended;
        let mut later = self.accepted.iter().filter(since).peekable();
        later.peek()?;
        if is_answer || later.any(within) || self.excused.remove(&one.id) {
            return Some(Matter::Own);
        }
        // Whoever was accepted before the target fell silent says nothing of the silence.
        let ended_since = self.accepted.back().is_some_and(|accepted| accepted.1 >= one.ended);
        ended_since.then(|| {
            if self.excused.len() >= EXCUSED_MAX {
                self.excused.clear();
            }
            self.excused.insert(one.id.clone());
            Matter::Excused
        })
    }

    /// When the target is taken to be down if it accepts nothing until then; `margin`: how long before its
    /// deadline a message has to be settled.
    pub(crate) fn decided_at(&self, margin: Duration) -> Option<Instant> {
        let first = self.waiting.front()?.ended;
        if self.waiting.len() >= FAILURES_MAX {
            return Some(first);
        }
        let nearest = self.waiting.iter().map(|waiting| waiting.hold.deadline).min()?;
        let settled_by = nearest.checked_sub(margin).unwrap_or(first);
        Some((first + self.longest).min(settled_by))
    }

    /// Takes all, as the target is down, and why.
    pub(crate) fn take(&mut self) -> (String, Vec<Waiting>) {
        let all: Vec<Waiting> = std::mem::take(&mut self.waiting).into();
        let why = all.last().map(|last| reason(&last.said)).unwrap_or_default();
        (why, all)
    }
}
