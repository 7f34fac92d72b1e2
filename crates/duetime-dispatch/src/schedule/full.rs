//! Shards that are full: as many of their messages are in flight as `max_in_flight` of the topic allows.
//!
//! Upstream: `scheduler`, which learns that a message was settled, and shows how many are full.

use super::TopicSchedule;
use crate::shard_entry::Phase;

impl TopicSchedule {
    /// A message of shard `index` was settled, so that another may be in flight.
    pub(crate) fn has_room(&self, index: u32) {
        let mut state = self.state.lock();
        let Some(known) = state.shards.get_mut(&index) else { return };
        known.has_room = true;
        if known.phase == Phase::Resting && known.full > 0 {
            self.queue(&mut state, index);
        }
    }

    /// How many of the owned shards are full, as they answered: those that nobody asks any more are none.
    pub(crate) fn full_shards(&self) -> usize {
        let is_asked = |phase| matches!(phase, Phase::Resting | Phase::Claiming);
        let state = self.state.lock();
        state.shards.values().filter(|known| known.owned && known.full > 0 && is_asked(known.phase)).count()
    }
}
