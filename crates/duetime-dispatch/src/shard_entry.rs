//! What a topic's schedule knows of one shard.

use std::time::Duration;

use duetime_core::store::ClaimRequest;
use duetime_core::{ServerId, Shard, Timestamp};

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
            repeat: None,
            held: 0,
            claiming_at: None,
        }
    }
}

/// What the answer to a claim, or to a step of delivery in place, says of its shard.
#[derive(Debug)]
pub(crate) struct Learnt {
    /// Messages this node holds by it.
    pub(crate) messages: usize,
    /// It changed something, so that asking again at once is no idle turn.
    pub(crate) progress: bool,
    pub(crate) now: Timestamp,
    pub(crate) next_due: Option<Timestamp>,
    pub(crate) due_left: u64,
}

/// One idle shard, for a poll: what was known when the poll began. A server without an idle shard is asked about
/// another shard, which shows whether the server answers.
#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) shard: Shard,
    pub(crate) server: ServerId,
    pub(crate) learnt: u64,
}
