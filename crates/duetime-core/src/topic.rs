//! A topic: a named family of messages with one retry policy, one sink, one shard count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::{PAYLOAD_BYTES_DEFAULT, PAYLOAD_BYTES_MAX, SHARDS_MAX, SMEAR_MAX, VISIBILITY_MAX, VISIBILITY_MIN};
use crate::names::TopicName;
use crate::pause::PauseNote;
use crate::retry::RetryPolicy;
use crate::routing::{ChangeId, Routing, RoutingRecord};
use crate::store_error::StoreError;
use crate::time::Timestamp;

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

/// Which configured sink a topic hands over to, with the topic's own settings for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "an object with the name of a sink, such as {\"name\": \"hook\"}")]
pub struct SinkRef {
    /// The name under `[sinks.NAME]` in the node's configuration.
    pub name: String,
    /// What that type of sink wants to know per topic (an exchange, a routing key, a path …).
    #[serde(flatten)]
    pub settings: serde_json::Map<String, serde_json::Value>,
}

/// At most so many messages of a topic are handed over per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// Messages per second, more than 0.
    pub per_second: f64,
    /// How many may go at once after a pause, 1 or more. Default 1.
    #[serde(default = "one")]
    pub burst: u32,
}

fn one() -> u32 {
    1
}

/// What is promised about a hand-over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeliveryMode {
    /// Nothing is lost; a fault can make a duplicate.
    #[default]
    AtLeastOnce,
    /// Removed before it is handed over: never twice, and a fault can lose it.
    AtMostOnce,
}

/// Everything a user sets on a topic. Absent fields have their defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TopicConfig {
    /// Shard count. Default `"auto"`.
    pub shards: ShardCount,
    /// Where due messages go. Absent: consumers claim them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sink: Option<SinkRef>,
    /// How long a claimed message stays hidden from others, 100 ms to 24 h. Default `30s`.
    ///
    /// Set it above the slowest hand-over: too low means duplicates, too high means that a crashed
    /// node's messages are late by that much.
    #[serde(with = "crate::units::duration")]
    pub visibility_timeout: Duration,
    /// When failed messages are tried again.
    pub retry: RetryPolicy,
    /// Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    /// Messages fall due up to so much later than asked for, each by a share that its id decides, at most 1 h.
    /// Default `0s`: all of them when they were asked for.
    ///
    /// Set it where many messages fall due at one moment and their target is better asked over some seconds.
    #[serde(skip_serializing_if = "Duration::is_zero", with = "crate::units::duration")]
    pub smear: Duration,
    /// Default `at-least-once`.
    pub delivery: DeliveryMode,
    /// Largest payload, up to 16 MiB. Default 256 KiB.
    #[serde(with = "crate::units::size")]
    pub max_payload: u64,
    /// Most messages, dead letters too; more are refused. Absent: no limit.
    ///
    /// Set it so that a producer without consumers fills its own topic and not the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_messages: Option<u64>,
    /// Most bytes of their bodies. Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::units::maybe_size")]
    pub max_bytes: Option<u64>,
    /// Acks, nacks and extensions too are answered once replicas have them, as `store.durability` asks for.
    /// Default `false`.
    ///
    /// Set it where a duplicate after a failover costs more than the wait for a replica.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub confirm_acks: bool,
    /// Nothing is claimed, whether for a sink or by consumers; what falls due waits. Default `false`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self {
            shards: ShardCount::Auto,
            sink: None,
            visibility_timeout: Duration::from_secs(30),
            retry: RetryPolicy::default(),
            rate_limit: None,
            smear: Duration::ZERO,
            delivery: DeliveryMode::AtLeastOnce,
            max_payload: PAYLOAD_BYTES_DEFAULT,
            max_messages: None,
            max_bytes: None,
            confirm_acks: false,
            paused: false,
        }
    }
}

/// Refuses a visibility timeout outside its bounds.
///
/// # Errors
///
/// A sentence that names the bounds.
pub fn check_visibility(asked: Duration) -> Result<Duration, String> {
    if (VISIBILITY_MIN..=VISIBILITY_MAX).contains(&asked) {
        Ok(asked)
    } else {
        Err("visibility_timeout must be 100ms to 24h".to_owned())
    }
}

impl TopicConfig {
    /// Refuses values that make no sense.
    ///
    /// # Errors
    ///
    /// A sentence that names the field and the fix.
    pub fn check(&self) -> Result<(), String> {
        self.faults().into_iter().next().map_or(Ok(()), |(_, fault)| Err(fault))
    }

    /// All values that make no sense: the field, and a sentence that names it and the fix.
    #[must_use]
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        found.extend(self.retry.check().err().map(|fault| ("retry", fault)));
        found.extend(check_visibility(self.visibility_timeout).err().map(|fault| ("visibility_timeout", fault)));
        if self.smear > SMEAR_MAX {
            found.push(("smear", "smear must be 1h or less; 0s for none".to_owned()));
        }
        if !(1..=PAYLOAD_BYTES_MAX).contains(&self.max_payload) {
            found.push(("max_payload", "max_payload must be 1 byte to 16MiB".to_owned()));
        }
        if self.max_messages == Some(0) {
            found.push(("max_messages", "max_messages must be 1 or more; leave it out for no limit".to_owned()));
        }
        if self.max_bytes.is_some_and(|most| most < self.max_payload) {
            let fault = "max_bytes must be at least max_payload; leave it out for no limit".to_owned();
            found.push(("max_bytes", fault));
        }
        if let Some(limit) = self.rate_limit {
            if !(limit.per_second > 0.0 && limit.per_second <= 10_000_000.0) {
                let fault = "rate_limit.per_second must be above 0 and at most 10000000".to_owned();
                found.push(("rate_limit", fault));
            }
            if limit.burst == 0 {
                found.push(("rate_limit", "rate_limit.burst must be 1 or more".to_owned()));
            }
        }
        if let ShardCount::Fixed(count) = self.shards
            && !(1..=SHARDS_MAX).contains(&count)
        {
            found.push(("shards", format!("shards must be 1 to {SHARDS_MAX} or \"auto\"")));
        }
        found
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

    /// So many shards exist, or did.
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
    fn a_topic_is_read_as_users_write_it_and_typos_are_named() {
        let text = r#"{"shards": "auto", "visibility_timeout": "45s", "max_payload": "1MiB",
            "retry": {"max_attempts": 3}, "delivery": "at-most-once",
            "sink": {"name": "mq", "exchange": "orders"}}"#;
        let config: TopicConfig = serde_json::from_str(text).unwrap();
        assert_eq!(config.visibility_timeout, Duration::from_secs(45));
        assert_eq!(config.sink.as_ref().unwrap().settings["exchange"], "orders");
        let back: TopicConfig = serde_json::from_str(&serde_json::to_string(&config).unwrap()).unwrap();
        assert_eq!(back, config);
        let typo = serde_json::from_str::<TopicConfig>(r#"{"visibility_timout": 1}"#).unwrap_err();
        assert!(typo.to_string().contains("visibility_timeout"));
        for bad in ["0", "4097", "-1", "\"many\"", "1.5"] {
            let error = serde_json::from_str::<TopicConfig>(&format!("{{\"shards\": {bad}}}")).unwrap_err();
            assert!(error.to_string().contains("shards must be 1 to 4096"), "{error}");
        }
    }

    #[test]
    fn auto_is_the_next_power_of_two_within_its_bounds() {
        let auto = AutoShards { min: 8, max: 64, ..AutoShards::default() };
        let shards = [1, 2, 3, 9, 100_000, u32::MAX].map(|nodes| ShardCount::Auto.resolve(nodes, auto));
        assert_eq!(shards, [8, 8, 16, 64, 64, 64]);
        assert_eq!(ShardCount::Auto.resolve(3, AutoShards::default()), 16);
        assert_eq!(ShardCount::Fixed(3).resolve(9, auto), 3);
    }
}
