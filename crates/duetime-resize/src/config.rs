//! The section `[resize]`.

use std::time::Duration;

use duetime_core::AutoShards;
use duetime_core::limits::SHARDS_MAX;
use serde::Deserialize;

/// How shard counts change. The defaults suit nearly everybody.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResizeConfig {
    /// Messages a second this node moves at most, over all topics. Default 20000.
    ///
    /// Lower it where deliveries are late while shards move, raise it where a change takes too long.
    pub messages_per_second: u32,
    /// Shards that one change moves messages out of at once, on this node, 1 to 64. Default 4.
    pub shards_at_once: usize,
    /// Messages that fall due within this time of now are left to be delivered where they are. Default `3s`.
    #[serde(with = "duetime_core::units::duration")]
    pub leave_due_within: Duration,
    /// Fewest shards of a topic with `shards = "auto"`. Default 1.
    pub auto_min: u32,
    /// Most shards of a topic with `shards = "auto"`. Default 4096.
    pub auto_max: u32,
    /// Shards for each node of a topic with `shards = "auto"`, before rounding up to a power of two. Default 4.
    pub auto_factor: u32,
    /// How long there must be more nodes before `"auto"` grows. Default `10s`.
    #[serde(with = "duetime_core::units::duration")]
    pub auto_grow_after: Duration,
    /// How long there must be fewer nodes before `"auto"` shrinks. Default `10m`, so that restarts move nothing.
    #[serde(with = "duetime_core::units::duration")]
    pub auto_shrink_after: Duration,
    /// Ids a second that are checked for being in a wrong shard, for ever. Default 500; 0: none.
    pub scrub_per_second: u32,
}

impl Default for ResizeConfig {
    fn default() -> Self {
        let auto = AutoShards::default();
        Self {
            messages_per_second: 20_000,
            shards_at_once: 4,
            leave_due_within: Duration::from_secs(3),
            auto_min: auto.min,
            auto_max: auto.max,
            auto_factor: auto.factor,
            auto_grow_after: Duration::from_secs(10),
            auto_shrink_after: Duration::from_secs(600),
            scrub_per_second: 500,
        }
    }
}

impl ResizeConfig {
    /// All values that make no sense: the field, and the fix.
    #[must_use]
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let mut rule = |is_right: bool, key, fix: &str| {
            if !is_right {
                found.push((key, fix.to_owned()));
            }
        };
        let shards = format!("must be 1 to {SHARDS_MAX}");
        rule(self.messages_per_second > 0, "messages_per_second", "must be 1 or more");
        rule((1..=64).contains(&self.shards_at_once), "shards_at_once", "must be 1 to 64");
        rule(self.leave_due_within <= Duration::from_secs(60), "leave_due_within", "must be 60s or less");
        rule((1..=SHARDS_MAX).contains(&self.auto_factor), "auto_factor", &shards);
        rule((1..=SHARDS_MAX).contains(&self.auto_min), "auto_min", &shards);
        rule((1..=SHARDS_MAX).contains(&self.auto_max), "auto_max", &shards);
        rule(self.auto_min <= self.auto_max, "auto_max", "must be auto_min or more");
        found
    }

    /// What `"auto"` means.
    #[must_use]
    pub fn auto(&self) -> AutoShards {
        AutoShards { factor: self.auto_factor, min: self.auto_min, max: self.auto_max }
    }
}
