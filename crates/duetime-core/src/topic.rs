//! A topic: a named family of messages with one retry policy, one sink, one shard count.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::limits::SHARDS_MAX;
use crate::names::TopicName;
use crate::pause::PauseNote;
use crate::routing::{ChangeId, Routing, RoutingRecord};
use crate::store_error::StoreError;
use crate::time::Timestamp;
use crate::topic_config::TopicConfig;

/// Shards of a topic: a number, or `"auto"` to follow the number of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShardCount {
    /// As many as [`AutoShards`] says.
    #[default]
    Auto,
    /// This many.
    Fixed(u32),
}

impl ShardCount {
    /// The number of shards for so many nodes.
    #[must_use]
    pub fn resolve(self, nodes: u32, auto: AutoShards) -> u32 {
        match self {
            Self::Fixed(count) => count,
            Self::Auto => auto.shards(nodes),
        }
    }
}

/// What `"auto"` means: the smallest power of two that is at least factor × nodes, within bounds. The one rule, for
/// topics that are created and for those that follow the number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoShards {
    /// Shards for each node. Default 4.
    pub factor: u32,
    /// Fewest shards. Default 1.
    pub min: u32,
    /// Most shards. Default [`SHARDS_MAX`].
    pub max: u32,
}

impl Default for AutoShards {
    fn default() -> Self {
        Self { factor: 4, min: 1, max: SHARDS_MAX }
    }
}

impl AutoShards {
    /// The number of shards for so many nodes.
    #[must_use]
    pub fn shards(self, nodes: u32) -> u32 {
        let wanted = nodes.max(1).saturating_mul(self.factor).min(SHARDS_MAX).next_power_of_two();
        wanted.min(self.max).max(self.min)
    }
}

impl Serialize for ShardCount {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => to.serialize_str("auto"),
            Self::Fixed(count) => to.serialize_u32(*count),
        }
    }
}

impl<'de> Deserialize<'de> for ShardCount {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Number(i64),
            Text(String),
        }
        let help = format!("shards must be 1 to {SHARDS_MAX} or \"auto\"");
        let raw = Raw::deserialize(from).map_err(|_| serde::de::Error::custom(&help))?;
        match raw {
            Raw::Text(word) if word == "auto" => Ok(Self::Auto),
            Raw::Number(count) if (1..=i64::from(SHARDS_MAX)).contains(&count) => {
                Ok(Self::Fixed(u32::try_from(count).expect("checked")))
            }
            _ => Err(serde::de::Error::custom(help)),
        }
    }
}

/// A topic as the store keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopicRecord {
    /// Its name.
    pub name: TopicName,
    /// What users set.
    pub config: TopicConfig,
    /// How many shards it has.
    pub routing: Routing,
    /// The last request for another number of shards, while one resize runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<u32>,
    /// The most shards it ever had: retired ones keep their record until the topic is deleted.
    #[serde(default, rename = "widest")]
    pub max_shards_ever: u32,
    /// Why it is paused, as it was written; [`TopicRecord::pause`] says what of it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<PauseNote>,
    /// Grows by one with every change; changes name the version they saw.
    pub version: u64,
    /// When it was created, milliseconds since the Unix epoch.
    pub created_at_ms: i64,
}

impl TopicRecord {
    /// A new topic for so many nodes, where `"auto"` has its default meaning. `change_id` is random.
    #[must_use]
    pub fn new(name: TopicName, config: TopicConfig, nodes: u32, change_id: ChangeId, now: Timestamp) -> Self {
        let shards = config.shards.resolve(nodes, AutoShards::default());
        Self::with_shards(name, config, shards, change_id, now)
    }

    /// A new topic with so many shards, whatever its settings ask for.
    #[must_use]
    pub fn with_shards(name: TopicName, config: TopicConfig, shards: u32, change_id: ChangeId, now: Timestamp) -> Self {
        let routing = Routing::first(shards, change_id);
        let max_shards_ever = routing.shards;
        Self {
            name,
            config,
            routing,
            desired: None,
            max_shards_ever,
            pause: None,
            version: 1,
            created_at_ms: now.as_millis(),
        }
    }

    /// The same topic in life `life` of its name.
    #[must_use]
    pub fn in_life(self, life: u64) -> Self {
        Self { routing: self.routing.in_life(life), ..self }
    }

    /// Why it is paused, where it is and that is known.
    #[must_use]
    pub fn pause(&self) -> Option<&PauseNote> {
        self.pause.as_ref().filter(|note| self.config.paused && note.version == self.version)
    }

    /// Refuses a deletion that is to take nothing with it, where the shards hold so many messages.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotEmpty`].
    pub fn check_deletable(&self, messages: u64) -> Result<(), StoreError> {
        let why = if self.routing.is_moving() {
            "changes its shard count, and messages may be on their way between its shards".to_owned()
        } else if messages > 0 {
            format!("holds {messages} messages")
        } else {
            return Ok(());
        };
        Err(StoreError::NotEmpty { topic: self.name.to_string(), why })
    }

    /// The part the authority of its routing decides on.
    #[must_use]
    pub fn routing_record(&self) -> RoutingRecord {
        RoutingRecord { routing: self.routing.clone(), desired: self.desired }
    }

    /// Takes over what the authority decided.
    pub fn set_routing(&mut self, new: &RoutingRecord) {
        self.routing = new.routing.clone();
        self.desired = new.desired;
        self.max_shards_ever = self.max_shards_ever();
    }

    /// A change by users takes over the routing of what is there.
    pub fn keep_routing_of(&mut self, there: &Self) {
        self.max_shards_ever = there.max_shards_ever();
        self.set_routing(&there.routing_record());
    }

    /// Whether it is of an earlier change of the shard count than what is `known`, in the same life of the topic.
    #[must_use]
    pub fn is_older(&self, known: &Self) -> bool {
        known.routing.life() == self.routing.life() && known.routing.epoch > self.routing.epoch
    }

    /// Highest shard count the topic ever had.
    #[must_use]
    pub fn max_shards_ever(&self) -> u32 {
        self.max_shards_ever.max(self.routing.shards).max(self.routing.previous)
    }
}

/// All topics this node knows of, in the order of their names: what is done to all of them is done in the same order
/// every time.
pub type Topics = BTreeMap<TopicName, Arc<TopicRecord>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_the_next_power_of_two_within_its_bounds() {
        let auto = AutoShards { min: 8, max: 64, ..AutoShards::default() };
        let shards = [1, 2, 3, 9, 100_000, u32::MAX].map(|nodes| ShardCount::Auto.resolve(nodes, auto));
        assert_eq!(shards, [8, 8, 16, 64, 64, 64]);
        assert_eq!(ShardCount::Auto.resolve(3, AutoShards::default()), 16);
        assert_eq!(ShardCount::Fixed(3).resolve(9, auto), 3);
    }
}
