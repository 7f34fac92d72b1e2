//! The number of shards of a topic, fixed or by the number of nodes.

use serde::{Deserialize, Serialize};

use crate::limits::SHARDS_MAX;

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
