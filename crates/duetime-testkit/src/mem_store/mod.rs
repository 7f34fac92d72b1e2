//! The reference model: the whole `Store` contract in the obvious, slow way, in memory.
//!
//! Upstream: the conformance suite and the property tests, which hold every other store against
//! it, and unit tests that want a store without a server. One lock, plain maps, no cleverness:
//! where model and contract differ, one of the two is wrong and must be mended.

mod claim;
mod enqueue;
mod settle;
mod shard;
mod store;

use std::collections::BTreeMap;
use std::sync::Arc;

use duetime_core::store::Wakeup;
use duetime_core::{Clock, MessageId, Shard, StoreError, Timestamp, TopicName, TopicRecord};
use parking_lot::Mutex;
use tokio::sync::broadcast;

use shard::ShardState;

/// Hints kept for a slow listener.
const WAKEUPS_KEPT: usize = 1024;

/// The model. See the module.
#[derive(Debug)]
pub struct MemStore {
    inside: Mutex<Inside>,
    own_clock: Mutex<Option<Arc<dyn Clock>>>,
    wakeups: broadcast::Sender<Wakeup>,
}

#[derive(Debug, Default)]
struct Inside {
    topics: BTreeMap<TopicName, TopicRecord>,
    shards: BTreeMap<(TopicName, u32), ShardState>,
}

impl MemStore {
    /// An empty store whose own time is whatever its callers say.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let (wakeups, _) = broadcast::channel(WAKEUPS_KEPT);
        Arc::new(Self { inside: Mutex::default(), own_clock: Mutex::default(), wakeups })
    }

    /// Gives the store a clock of its own, which may be apart from the callers'; `None`: theirs.
    pub fn set_clock(&self, clock: Option<Arc<dyn Clock>>) {
        *self.own_clock.lock() = clock;
    }

    /// Loses the body of a message, as an evicting server would.
    pub fn lose_body(&self, shard: &Shard, id: &MessageId) {
        if let Some(state) = self.inside.lock().shards.get_mut(&(shard.topic.clone(), shard.index)) {
            state.bodies.remove(id);
        }
    }

    fn own(&self, caller: Timestamp) -> Timestamp {
        self.own_clock.lock().as_ref().map_or(caller, |clock| clock.now())
    }

    /// Runs one operation on one shard, as one atomic step, and tells of a sooner head.
    fn on_shard<A>(
        &self,
        shard: &Shard,
        act: impl FnOnce(&mut ShardState) -> Result<A, StoreError>,
    ) -> Result<A, StoreError> {
        let mut inside = self.inside.lock();
        let state = inside
            .shards
            .get_mut(&(shard.topic.clone(), shard.index))
            .ok_or_else(|| StoreError::UnknownShard(shard.to_string()))?;
        state.check_epoch(shard)?;
        let before = state.head();
        let answer = act(state)?;
        if let Some(visible_at) = state.head()
            && before.is_none_or(|before| visible_at < before)
        {
            // Nobody listening is fine: it is a hint.
            let _ = self.wakeups.send(Wakeup { topic: shard.topic.clone(), index: shard.index, visible_at });
        }
        Ok(answer)
    }
}
