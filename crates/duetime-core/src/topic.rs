//! A topic: a named family of messages with one retry policy, one sink, one shard count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::memory::Memory;
use crate::names::TopicName;
use crate::pause::PauseNote;
use crate::routing::{ChangeId, EarlierCount, Routing, RoutingRecord, Shard};
use crate::shard_count::AutoShards;
use crate::store_error::StoreError;
use crate::time::Timestamp;
use crate::topic_config::TopicConfig;

/// How long an earlier shard count is looked at beyond the time that is remembered: for clocks that are apart.
const EARLIER_MARGIN: Duration = Duration::from_secs(60);

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Routing {
    /// The same, with what the topic's settings say of it.
    #[must_use]
    pub fn under(self, config: &TopicConfig) -> Self {
        Self { watermark: config.watermark, max_in_flight: config.max_in_flight, ..self }
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
    /// Shard counts it had before; see [`RoutingRecord::earlier`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<EarlierCount>,
    /// The version since which it remembers what becomes of its messages, where it does.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub remembers_since: u64,
    /// Grows by one with every change; changes name the version they saw.
    pub version: u64,
    /// When it was created, milliseconds since the Unix epoch.
    pub created_at_ms: i64,
}

impl TopicRecord {
    /// A new topic for so many nodes, where `"auto"` has its default meaning. `change_id` is random.
    #[must_use]
    pub fn new(name: TopicName, config: TopicConfig, nodes: u32, change_id: ChangeId, now: Timestamp) -> Self {
        let shards = config.bounded_shards(config.shards.resolve(nodes, AutoShards::default()));
        Self::with_shards(name, config, shards, change_id, now)
    }

    /// A new topic with so many shards, whatever its settings ask for.
    #[must_use]
    pub fn with_shards(name: TopicName, config: TopicConfig, shards: u32, change_id: ChangeId, now: Timestamp) -> Self {
        let routing = Routing::first(shards, change_id).under(&config);
        let max_shards_ever = routing.shards;
        Self {
            name,
            config,
            routing,
            desired: None,
            max_shards_ever,
            pause: None,
            earlier: Vec::new(),
            remembers_since: 0,
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

    /// Refuses a bound of what is in flight that its shards cannot keep: each needs a part, and while their number
    /// changes the parts stay.
    ///
    /// # Errors
    ///
    /// A sentence that names the fields and the fix.
    pub fn check_in_flight(&self, config: &TopicConfig) -> Result<(), String> {
        let Routing { previous, shards, .. } = self.routing;
        if self.routing.is_moving() && self.config.max_in_flight != config.max_in_flight {
            let why = "max_in_flight cannot be changed while the number of shards changes";
            return Err(format!("{why}, from {previous} to {shards}: try again when it has"));
        }
        match config.max_in_flight {
            Some(max) if max < self.routing.reach() => Err(format!(
                "max_in_flight = {max} is less than the {} shards that the topic has, over which it is divided; set \
                 shards to {max} or fewer first",
                self.routing.reach()
            )),
            _ => Ok(()),
        }
    }

    /// The part the authority of its routing decides on.
    #[must_use]
    pub fn routing_record(&self) -> RoutingRecord {
        RoutingRecord { routing: self.routing.clone(), desired: self.desired, earlier: self.earlier.clone() }
    }

    /// Takes over what the authority decided.
    pub fn set_routing(&mut self, new: &RoutingRecord) {
        self.routing = new.routing.clone().under(&self.config);
        self.desired = new.desired;
        self.earlier.clone_from(&new.earlier);
        self.max_shards_ever = self.max_shards_ever();
    }

    /// A change by users takes over the routing of what is there, and goes on with what it remembers.
    pub fn keep_routing_of(&mut self, there: &Self) {
        self.remembers_since = match (self.config.remember.is_zero(), there.config.remember.is_zero()) {
            (true, _) => 0,
            (false, true) => self.version,
            (false, false) => there.remembers_since,
        };
        self.max_shards_ever = there.max_shards_ever();
        self.set_routing(&there.routing_record());
    }

    /// What it has its shards remember.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let watermark = self.config.watermark;
        if self.config.remember.is_zero() {
            return Memory { watermark, ..Memory::default() };
        }
        Memory { window: self.config.remember, since: self.remembers_since, watermark }
    }

    /// Shard `index` as calls on messages name it.
    #[must_use]
    pub fn shard(&self, index: u32) -> Shard {
        self.routing.shard(&self.name, index).remembering(self.memory())
    }

    /// Earlier shard counts whose homes remember what ended there, as of `now`.
    pub fn remembered_counts(&self, now: Timestamp) -> impl Iterator<Item = u32> {
        let window = self.memory().window;
        let counts = self.earlier.iter().filter(move |_| !window.is_zero());
        let since =
            move |count: &&EarlierCount| now.since(Timestamp::from_millis(count.until_ms)) <= window + EARLIER_MARGIN;
        counts.filter(since).map(|count| count.shards)
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
