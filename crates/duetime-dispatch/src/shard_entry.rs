//! What a topic's schedule knows of one shard.

use std::time::Duration;

use duetime_core::store::{Claim, ClaimRequest};
use duetime_core::{ServerId, Shard, Streamed, Timestamp};

use crate::config::{EMPTY_PAUSE, full_pause};

/// Where a shard is on its way, see `schedule`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Idle,
    Queued,
    Claiming,
    Resting,
}

/// What a topic's schedule knows of one shard.
#[derive(Debug)]
pub(crate) struct ShardEntry {
    pub(crate) owned: bool,
    pub(crate) phase: Phase,
    /// When its first message is visible, as far as known.
    pub(crate) next: Option<Timestamp>,
    /// So many of its messages are known to be due while it is queued; 0: one at least.
    pub(crate) left: usize,
    /// By how much the store's time is behind this node's clock.
    pub(crate) lag: Duration,
    /// Grows whenever something was learnt, so that the answer of an older poll is not believed.
    pub(crate) learnt: u64,
    pub(crate) failures: u32,
    /// So many answers on end brought nothing and said that as many messages are in flight as may be.
    pub(crate) full: u32,
    /// Since the claim in progress was sent, a message was settled: it may answer that the shard is full, and it is
    /// not.
    pub(crate) has_room: bool,
    /// A claim whose answer was lost: to be repeated as it was.
    pub(crate) repeat: Option<ClaimRequest>,
    /// Messages claimed by this node and not settled.
    pub(crate) held: usize,
    /// The server of the claim in progress, and the permits that the claim holds.
    pub(crate) claiming_at: Option<(ServerId, usize)>,
}

impl Default for ShardEntry {
    fn default() -> Self {
        Self {
            owned: false,
            phase: Phase::Idle,
            next: None,
            left: 0,
            lag: Duration::ZERO,
            learnt: 0,
            failures: 0,
            full: 0,
            has_room: false,
            repeat: None,
            held: 0,
            claiming_at: None,
        }
    }
}

/// What the answer to a claim, or to a step of delivery in place, says of its shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Learnt {
    /// Messages this node holds by it.
    pub(crate) messages: usize,
    /// It changed something, so that asking again at once is no idle turn.
    pub(crate) progress: bool,
    pub(crate) now: Timestamp,
    pub(crate) next_due: Option<Timestamp>,
    pub(crate) due_left: u64,
    /// What is left waits for one of those that are in flight.
    pub(crate) is_full: bool,
}

impl Learnt {
    /// `had_expired`: it also brought messages that had expired.
    pub(crate) fn of_claim(claim: &Claim, had_expired: bool) -> Self {
        let Claim { now, next_due, due_left, is_full, .. } = *claim;
        let messages = claim.messages.len();
        let progress = messages > 0 || claim.buried > 0 || claim.expired > 0 || had_expired;
        Self { messages, progress, now, next_due, due_left, is_full }
    }

    pub(crate) fn of_step(step: &Streamed) -> Self {
        let Streamed { now, next_due, due_left, .. } = *step;
        let progress = step.count > 0 || step.buried > 0 || step.expired > 0;
        Self { messages: 0, progress, now, next_due, due_left, is_full: false }
    }
}

/// One idle shard, for a poll: what was known when the poll began. A server without an idle shard is asked about
/// another shard, which shows whether the server answers.
#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) shard: Shard,
    pub(crate) server: ServerId,
    pub(crate) learnt: u64,
}

/// When a shard is asked again after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    AtOnce,
    After(Duration),
    /// Once this is visible; `None`: once something is known to be.
    WhenDue(Option<Timestamp>),
}

impl ShardEntry {
    /// Takes in the answer to a claim that was sent at `sent_at`.
    pub(crate) fn learns(&mut self, sent_at: Timestamp, learnt: &Learnt) -> Again {
        self.failures = 0;
        self.learnt += 1;
        self.lag = sent_at.since(learnt.now);
        self.held += learnt.messages;
        self.phase = Phase::Idle;
        let more = learnt.due_left > 0 || learnt.next_due.is_some_and(|next| next <= learnt.now);
        let waits = more && learnt.is_full && !self.has_room;
        self.full = if !waits {
            0
        } else if learnt.messages > 0 {
            1
        } else {
            self.full.saturating_add(1)
        };
        if waits {
            Again::After(full_pause(self.full))
        } else if more && (learnt.progress || learnt.is_full) {
            self.left = usize::try_from(learnt.due_left).unwrap_or(usize::MAX);
            Again::AtOnce
        } else if more {
            Again::After(EMPTY_PAUSE)
        } else {
            Again::WhenDue([learnt.next_due, self.next.take()].into_iter().flatten().min())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FULL_PAUSE_MAX, FULL_PAUSE_MIN};

    #[test]
    fn a_full_shard_is_asked_less_and_less_often_until_one_is_settled() {
        let now = Timestamp::from_millis(1_000);
        let full = Learnt { messages: 0, progress: false, now, next_due: Some(now), due_left: 3, is_full: true };
        let mut shard = ShardEntry::default();
        let pauses: Vec<Again> = (0..6).map(|_| shard.learns(now, &full)).collect();
        let expected = [1, 2, 4, 8, 16, 16].map(|times| Again::After(FULL_PAUSE_MIN * times));
        assert_eq!(pauses, expected);
        assert_eq!(pauses[5], Again::After(FULL_PAUSE_MAX));
        let some = Learnt { messages: 2, progress: true, ..full };
        assert_eq!(shard.learns(now, &some), Again::After(FULL_PAUSE_MIN), "what brought some is asked soon");
        // One was settled while the claim was on its way.
        shard.has_room = true;
        assert_eq!(shard.learns(now, &Learnt { is_full: true, ..some }), Again::AtOnce);
        assert_eq!((shard.full, shard.left), (0, 3));
    }
}
