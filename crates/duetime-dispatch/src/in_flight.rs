//! What this node keeps account of for a message it has claimed: its part of the budget and its place in the
//! shard's count. Both are given back when it is dropped, whatever became of the message.

use std::sync::Arc;

use crate::budget::Permit;
use crate::lane::Lane;

/// See the module.
#[derive(Debug)]
pub(crate) struct InFlightGuard {
    lane: Arc<Lane>,
    index: u32,
    permit: Permit,
}

impl InFlightGuard {
    /// For as many messages of shard `index` as `permit` is for. The lane has counted them.
    pub(crate) fn new(lane: Arc<Lane>, index: u32, permit: Permit) -> Self {
        Self { lane, index, permit }
    }

    /// Takes the bytes out of it: the body is no longer held.
    #[must_use]
    pub(crate) fn split_bytes(&mut self) -> Permit {
        self.permit.split_bytes()
    }

    /// Takes a part out of it.
    #[must_use]
    pub(crate) fn split(&mut self, messages: usize, bytes: usize) -> Self {
        Self { lane: self.lane.clone(), index: self.index, permit: self.permit.split(messages, bytes) }
    }

    /// The shard counts its messages no longer; what is held of the budget is the caller's to drop.
    #[must_use]
    pub(crate) fn into_permit(mut self) -> Permit {
        let permit = std::mem::take(&mut self.permit);
        self.lane.settled(self.index, permit.messages());
        permit
    }

    /// Takes in another one, so that both are given back at once. Of another shard: that is given back now.
    pub(crate) fn absorb(&mut self, mut other: Self) {
        if self.index == other.index && Arc::ptr_eq(&self.lane, &other.lane) {
            self.permit.absorb(std::mem::take(&mut other.permit));
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        if self.permit.messages() > 0 {
            self.lane.settled(self.index, self.permit.messages());
        }
    }
}
