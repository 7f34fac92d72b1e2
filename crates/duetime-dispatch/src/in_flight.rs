//! What this node keeps account of for a message it has claimed: its part of the budget and its place in the
//! shard's count. Both are given back when it is dropped, whatever became of the message.

use std::sync::Arc;

use crate::budget::Permit;
use crate::schedule::TopicSchedule;

/// What this node keeps account of for a message it has claimed: its part of the budget and its place in the shard's
/// count.
#[derive(Debug)]
pub(crate) struct InFlightGuard {
    schedule: Arc<TopicSchedule>,
    index: u32,
    permit: Permit,
}

impl InFlightGuard {
    /// For as many messages of shard `index` as `permit` is for. The schedule has counted them.
    pub(crate) fn new(schedule: Arc<TopicSchedule>, index: u32, permit: Permit) -> Self {
        Self { schedule, index, permit }
    }

    /// Takes the bytes out of it: the body is no longer held.
    #[must_use]
    pub(crate) fn split_bytes(&mut self) -> Permit {
        self.permit.split_bytes()
    }

    /// Takes a part out of it.
    #[must_use]
    pub(crate) fn split(&mut self, messages: usize, bytes: usize) -> Self {
        Self { schedule: self.schedule.clone(), index: self.index, permit: self.permit.split(messages, bytes) }
    }

    /// The shard counts its messages no longer; what is held of the budget is the caller's to drop.
    #[must_use]
    pub(crate) fn into_permit(mut self) -> Permit {
        let permit = std::mem::take(&mut self.permit);
        self.schedule.settled(self.index, permit.messages());
        permit
    }

    /// Takes in another one, so that both are given back at once. Of another shard: that is given back now.
    pub(crate) fn absorb(&mut self, mut other: Self) {
        if self.index == other.index && Arc::ptr_eq(&self.schedule, &other.schedule) {
            self.permit.absorb(std::mem::take(&mut other.permit));
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        if self.permit.messages() > 0 {
            self.schedule.settled(self.index, self.permit.messages());
        }
    }
}
