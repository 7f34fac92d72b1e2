//! Who had a shard before, since when and why, as one node saw it.
//!
//! Each [`crate::Ownership`] keeps them, the API answers them. Times are for people: nothing rests on them.

use std::sync::Arc;

use crate::time::Timestamp;

/// Why a shard has its owner, or has none. What is not known is said to be unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerReason {
    /// It had this owner when the node first looked.
    Found,
    /// Nobody had it, as far as the node saw.
    Free,
    /// The lease of the owner before ended: that node stopped, died, or was cut off from etcd.
    LeaseEnded,
    /// Its owner gave it up while an operator drained it.
    Drained,
    /// Its owner gave it up while it could not claim.
    Unhealthy,
    /// Its owner gave it up because the nodes shared the shards anew.
    Balanced,
    /// The turn of the node that answers began, or was over.
    Turn,
    /// Its first message was late, and the node that answers took it besides its turn.
    Late,
    /// There is one node, which scans everything.
    Alone,
    /// It changed while the node did not see it, or nobody said why.
    Unknown,
}

impl OwnerReason {
    /// As in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Found => "found",
            Self::Free => "free",
            Self::LeaseEnded => "lease_ended",
            Self::Drained => "drained",
            Self::Unhealthy => "unhealthy",
            Self::Balanced => "balanced",
            Self::Turn => "turn",
            Self::Late => "late",
            Self::Alone => "alone",
            Self::Unknown => "unknown",
        }
    }
}

/// One change of a shard's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerChange {
    /// When the node saw it, by its own clock.
    pub at: Timestamp,
    /// The node's id; `None`: nobody, or, in round-robin, none that the node knows.
    pub owner: Option<Arc<str>>,
    /// As far as it is known.
    pub reason: OwnerReason,
}

/// What one node knows of the owners of one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastOwners {
    /// Since when it looks; `None`: it keeps nothing.
    pub since: Option<Timestamp>,
    /// The newest first.
    pub changes: Vec<OwnerChange>,
    /// Older ones were forgotten, or may have been.
    pub forgotten: bool,
}
