//! Which shards there are and what they begin with, for readers that do not wait for the writer.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use duetime_core::{Routing, Shard, StoreError, TopicName};
use parking_lot::RwLock;

use crate::shard::{LiveShard, TopicState};

type TopicShards = BTreeMap<u32, Arc<LiveShard>>;

/// Which shards there are and what they begin with, for everybody.
#[derive(Clone, Debug, Default)]
pub struct ShardDirectory(Arc<RwLock<HashMap<TopicName, TopicShards>>>);

/// Refuses a caller whose routing record is another one than the shard's.
pub fn check_epoch(routing: &Routing, shard: &Shard) -> Result<(), StoreError> {
    StoreError::unless_present(routing, shard)
}

impl ShardDirectory {
    pub fn show(&self, topic: &TopicState) {
        let view = topic.shards.iter().map(|(index, state)| (*index, state.view.clone())).collect();
        self.0.write().insert(topic.record.name.clone(), view);
    }

    /// Shows these and no others.
    pub fn replace<'a>(&self, topics: impl Iterator<Item = &'a TopicState>) {
        self.0.write().clear();
        topics.for_each(|topic| self.show(topic));
    }

    pub fn hide(&self, topic: &TopicName) {
        self.0.write().remove(topic);
    }

    /// The shard for a look, which never refuses.
    pub fn look(&self, shard: &Shard) -> Option<Arc<LiveShard>> {
        self.0.read().get(&shard.topic)?.get(&shard.index).cloned()
    }

    /// The shard in the tables.
    pub fn key(&self, shard: &Shard) -> Result<i64, StoreError> {
        let view = self.look(shard).ok_or_else(|| StoreError::UnknownShard(shard.to_string()))?;
        check_epoch(&view.routing(), shard)?;
        Ok(view.key)
    }
}
