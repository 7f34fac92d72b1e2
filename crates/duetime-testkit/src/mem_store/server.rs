//! The model as one of several servers, with a replica of its own: for simulations that put a network
//! between callers and shards, and keep the topics' records elsewhere.

use duetime_core::{Routing, TopicName, TopicRecord};

use super::MemStore;
use super::shard::ShardState;

impl MemStore {
    /// Takes in that the topic exists, as a fence asks; its shards are made one by one.
    pub fn know_topic(&self, record: &TopicRecord) {
        self.inside.lock().topics.insert(record.name.clone(), record.clone());
    }

    /// Makes one shard, empty, whatever was there.
    pub fn make_shard(&self, topic: &TopicName, index: u32, routing: &Routing) {
        self.inside.lock().shards.insert((topic.clone(), index), ShardState::new(index, routing.clone()));
    }

    /// Removes one shard; false: it was not there.
    pub fn remove_shard(&self, topic: &TopicName, index: u32) -> bool {
        self.inside.lock().shards.remove(&(topic.clone(), index)).is_some()
    }

    /// The routing record of a shard and how many messages it holds, dead and frozen ones too.
    #[must_use]
    pub fn shard_holds(&self, topic: &TopicName, index: u32) -> Option<(Routing, usize)> {
        let inside = self.inside.lock();
        let state = inside.shards.get(&(topic.clone(), index))?;
        let frozen = state.outbox.as_ref().map_or(0, |batch| batch.messages.len());
        Some((state.routing.clone(), state.live.len() + state.dead.len() + frozen))
    }

    /// Brings the replica of a shard up to date, also where the shard is gone.
    pub fn mirror(&self, topic: &TopicName, index: u32) {
        let mut inside = self.inside.lock();
        let seat = (topic.clone(), index);
        match inside.shards.get(&seat).cloned() {
            Some(state) => inside.replicas.insert(seat, state),
            None => inside.replicas.remove(&seat),
        };
    }

    /// Brings the replica of every shard up to date.
    pub fn mirror_all(&self) {
        let mut inside = self.inside.lock();
        inside.replicas = inside.shards.clone();
    }

    /// Puts the replica in place of the server: what it had not heard of is lost.
    pub fn fail_over_all(&self) {
        let mut inside = self.inside.lock();
        inside.shards = inside.replicas.clone();
    }
}
