//! Which shards an id is looked for in, and in which order.

use duetime_core::routing::shard_of;
use duetime_core::{MessageId, Role, TopicRecord};

/// The shards that may have an id, or remember it, in the order in which they are asked. The last is the id's home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidates {
    /// Most ids have none, and nothing is allocated for them.
    before: Vec<u32>,
    /// Where it was before the change under way.
    old: Option<u32>,
    home: u32,
}

impl Candidates {
    /// In this order; `earlier`: the shard counts under which ids had other homes that remember what ended there.
    pub fn of(record: &TopicRecord, seed: u32, id: &MessageId, claimed: Option<u32>, earlier: &[u32]) -> Self {
        let routing = &record.routing;
        let home = shard_of(id, seed, routing.shards);
        let old = routing.is_moving().then(|| shard_of(id, seed, routing.previous)).filter(|old| *old != home);
        let mut before = Vec::new();
        let at_that_time = earlier.iter().map(|shards| shard_of(id, seed, *shards));
        for index in claimed.into_iter().chain(at_that_time).filter(|index| *index < record.max_shards_ever()) {
            if index != home && Some(index) != old && !before.contains(&index) {
                before.push(index);
            }
        }
        Self { before, old, home }
    }

    /// How many there are.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.before.len() + usize::from(self.old.is_some()) + 1
    }

    pub fn at(&self, candidate: usize) -> (u32, Role) {
        match self.before.iter().copied().chain(self.old).nth(candidate) {
            Some(index) => (index, Role::Source),
            None => (self.home, Role::Home),
        }
    }
}
