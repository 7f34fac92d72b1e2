//! Which shard a message id lives in, and the record that says how many shards there are.

use std::borrow::Cow;
use std::fmt;
use std::io::Cursor;
use std::num::ParseIntError;
use std::ops::Range;
use std::str::FromStr;

use crate::in_flight_bound::InFlightBound;
use crate::limits::EARLIER_COUNTS_MAX;
use crate::memory::Memory;
use crate::names::{MessageId, TopicName};
use crate::time::Timestamp;

/// Random name of one change of a topic's routing, written as 16 hex digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChangeId(pub u64);

impl fmt::Display for ChangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for ChangeId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

impl serde::Serialize for ChangeId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for ChangeId {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str> as serde::Deserialize>::deserialize(from)?;
        text.parse().map_err(|_| serde::de::Error::custom(format!("{text:?} is no name of a change: 16 hex digits")))
    }
}

/// Names one routing record: no other has both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RoutingId {
    /// Its epoch.
    pub epoch: u64,
    /// Its change id.
    pub change_id: ChangeId,
}

/// Whether the shard count is changing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoutingState {
    /// Every id is in its one home.
    Stable,
    /// Ids are moving from their source shard (of `previous` shards) to the new one.
    Moving,
}

/// Which milliseconds a shard gives as deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parity {
    /// All.
    #[default]
    Any,
    /// Even ones.
    Even,
    /// Odd ones.
    Odd,
}

impl Parity {
    /// The first moment of this parity that is not before `at`.
    #[must_use]
    pub fn from(self, at: Timestamp) -> Timestamp {
        let fits = match self {
            Self::Any => true,
            Self::Even => at.as_millis() % 2 == 0,
            Self::Odd => at.as_millis() % 2 != 0,
        };
        if fits { at } else { Timestamp::from_millis(at.as_millis() + 1) }
    }
}

/// How many shards a topic has, and since which epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Routing {
    /// The topic's life times [`LIFE`], plus one for every change of the shard count since it was created.
    ///
    /// So one number orders all records of a name: those of a later life are above all of an earlier one.
    pub epoch: u64,
    /// Random name of this change. Epochs are counted by what the store remembers, so a store that went back counts
    /// some of them again: only both together name a record.
    #[serde(rename = "rid")]
    pub change_id: ChangeId,
    /// M.
    pub shards: u32,
    /// M before the last change.
    pub previous: u32,
    /// Stable or moving.
    pub state: RoutingState,
    /// Seed of the hash of ids. Absent: [`topic_seed`] of the topic's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u32>,
    /// Whether the topic has a watermark, as its settings say: who moves messages has the routing alone. A record that a
    /// shard of Redis answers does not say it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub watermark: bool,
    /// How many messages of the topic may be in flight, in the same way: it is part of the settings, and stored there.
    #[serde(skip)]
    pub max_in_flight: Option<u32>,
}

/// What the one authority of a topic's routing keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutingRecord {
    /// The record everybody has copies of.
    pub routing: Routing,
    /// The last request for another number of shards, kept while one resize runs; the next starts from
    /// it after the commit.
    pub desired: Option<u32>,
    /// Shard counts the topic had before, each once, the one that ended last at the end: what ended under them is
    /// remembered in the homes of that time.
    pub earlier: Vec<EarlierCount>,
}

/// A number of shards that a topic had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EarlierCount {
    /// How many.
    pub shards: u32,
    /// When the change to another number was done, milliseconds since the Unix epoch, by the clock of who did it.
    pub until_ms: i64,
}

impl RoutingRecord {
    /// The record when the change under way is done at `now`. Of the counts before,
    /// [`EARLIER_COUNTS_MAX`](crate::limits::EARLIER_COUNTS_MAX) are kept.
    #[must_use]
    pub fn committed(&self, now: Timestamp) -> Self {
        let routing = Routing { state: RoutingState::Stable, ..self.routing.clone() };
        let ended = EarlierCount { shards: routing.previous, until_ms: now.as_millis() };
        let mut earlier = self.earlier.clone();
        earlier.retain(|one| one.shards != ended.shards);
        earlier.push(ended);
        earlier.drain(..earlier.len().saturating_sub(EARLIER_COUNTS_MAX));
        Self { routing, desired: self.desired, earlier }
    }
}

/// Epochs of one life of a topic: so often its shard count can change. Lives times this stay below 2^53, which
/// scripts count exactly.
pub const LIFE: u64 = 1 << 20;

/// The number of a topic's life that an epoch belongs to; 0 for a record that was made before lives were numbered.
#[must_use]
pub fn life_of(epoch: u64) -> u64 {
    epoch / LIFE
}

/// Counts the records of one life, from 1, by an epoch of one of them.
#[must_use]
pub fn change_of(epoch: u64) -> u32 {
    u32::try_from(epoch % LIFE).unwrap_or(u32::MAX)
}

impl Routing {
    /// The first record of a new topic, in life 0: the store gives it its number.
    #[must_use]
    pub fn first(shards: u32, change_id: ChangeId) -> Self {
        Self {
            epoch: 1,
            change_id,
            shards,
            previous: shards,
            state: RoutingState::Stable,
            seed: None,
            watermark: false,
            max_in_flight: None,
        }
    }

    /// The number of the topic's life.
    #[must_use]
    pub fn life(&self) -> u64 {
        life_of(self.epoch)
    }

    /// The same record in another life of the topic.
    #[must_use]
    pub fn in_life(self, life: u64) -> Self {
        Self { epoch: life * LIFE + self.change(), ..self }
    }

    /// Counts the records of one life, from 1: the epoch without the life.
    #[must_use]
    pub fn change(&self) -> u64 {
        self.epoch % LIFE
    }

    /// Whether shard `index` may be missing under this record although nothing was lost: ids are about to move
    /// into it for the first time, or it is retired.
    #[must_use]
    pub fn may_lack(&self, index: u32) -> bool {
        index >= if self.is_moving() { self.previous } else { self.shards }
    }

    /// The seed under which ids of `topic` are hashed.
    #[must_use]
    pub fn seed(&self, topic: &TopicName) -> u32 {
        self.seed.unwrap_or_else(|| topic_seed(topic))
    }

    /// The home of `id` in `topic` under this record.
    #[must_use]
    pub fn home(&self, topic: &TopicName, id: &MessageId) -> Shard {
        self.shard(topic, shard_of(id, self.seed(topic), self.shards))
    }

    /// Whether ids are on their way.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.state == RoutingState::Moving
    }

    /// Which deadlines shard `index` gives under this record. While ids move, a message may be claimed at its source
    /// shard, cancelled, enqueued anew and claimed at its new home: what the two give is never equal. Ids move only
    /// between shards below and above the lower of the two counts.
    #[must_use]
    pub fn deadlines(&self, index: u32) -> Parity {
        match self.state {
            RoutingState::Stable => Parity::Any,
            RoutingState::Moving if index < self.shards.min(self.previous) => Parity::Even,
            RoutingState::Moving => Parity::Odd,
        }
    }

    /// The shards that ids leave under this record, and those that they go to.
    #[must_use]
    pub fn sources_and_destinations(&self) -> (Range<u32>, Range<u32>) {
        if self.shards > self.previous {
            (0..self.previous, self.previous..self.shards)
        } else {
            (self.shards..self.previous, 0..self.shards)
        }
    }

    /// How many shards may hold messages: while ids move, those of both counts.
    #[must_use]
    pub fn reach(&self) -> u32 {
        if self.is_moving() { self.shards.max(self.previous) } else { self.shards }
    }

    /// Shard `index` of `topic` as this record names it.
    #[must_use]
    pub fn shard(&self, topic: &TopicName, index: u32) -> Shard {
        let memory = Memory { watermark: self.watermark, ..Memory::default() };
        let in_flight = self.in_flight_bound(index);
        Shard { topic: topic.clone(), index, epoch: self.epoch, change_id: self.change_id, memory, in_flight }
    }

    /// What distinguishes it from every other record.
    #[must_use]
    pub fn id(&self) -> RoutingId {
        RoutingId { epoch: self.epoch, change_id: self.change_id }
    }

    /// Whether it is of another change than `other` although their epochs are equal: one of them was forgotten by a
    /// store that went back.
    #[must_use]
    pub fn is_rival(&self, other: &Self) -> bool {
        self.epoch == other.epoch && self.change_id != other.change_id
    }

    /// All shards of `topic` under this record, in order; while ids move, those of both counts.
    pub fn all<'a>(&'a self, topic: &'a TopicName) -> impl Iterator<Item = Shard> + 'a {
        (0..self.reach()).map(move |index| self.shard(topic, index))
    }
}

/// One of a topic's M shards, as a routing record of `epoch` names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shard {
    /// The topic.
    pub topic: TopicName,
    /// 0 to M-1.
    pub index: u32,
    /// The epoch of the record the caller knows.
    pub epoch: u64,
    /// The change id of that record.
    pub change_id: ChangeId,
    /// What the caller has it remember of messages that end.
    pub memory: Memory,
    /// How many of its messages may be claimed and not settled at one time.
    pub in_flight: InFlightBound,
}

impl Shard {
    /// A shard by the record that the caller knows, which is to remember nothing.
    #[must_use]
    pub fn new(topic: TopicName, index: u32, record: RoutingId) -> Self {
        let RoutingId { epoch, change_id } = record;
        Self { topic, index, epoch, change_id, memory: Memory::default(), in_flight: InFlightBound::None }
    }

    /// The same shard, which is to remember what becomes of its messages.
    #[must_use]
    pub fn remembering(self, memory: Memory) -> Self {
        Self { memory, ..self }
    }

    /// The record the caller knows.
    #[must_use]
    pub fn record(&self) -> RoutingId {
        RoutingId { epoch: self.epoch, change_id: self.change_id }
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.topic, self.index)
    }
}

/// The seed of a topic's hash, unless its routing record names another: murmur3 (x86, 32 bit, seed 0) of its name.
#[must_use]
pub fn topic_seed(topic: &TopicName) -> u32 {
    murmur3::murmur3_32(&mut Cursor::new(topic.as_str()), 0).expect("memory can be read")
}

/// The hash of an id: the first 64 bits of murmur3 (x64, 128 bit) under the topic's seed.
#[must_use]
pub fn hash_of(id: &MessageId, seed: u32) -> u64 {
    let whole = murmur3::murmur3_x64_128(&mut Cursor::new(id.as_str()), seed).expect("memory can be read");
    whole as u64
}

/// The shard of an id among `shards`: jump consistent hash (Lamping and Veach, 2014).
///
/// Going from M to M+1 moves 1/(M+1) of the ids, all of them into the new shard.
#[must_use]
pub fn shard_of(id: &MessageId, seed: u32, shards: u32) -> u32 {
    jump(hash_of(id, seed), shards)
}

fn jump(mut key: u64, buckets: u32) -> u32 {
    let (mut at, mut next) = (0i64, 0i64);
    while next < i64::from(buckets) {
        at = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let draw = ((key >> 33) + 1) as f64;
        next = ((at + 1) as f64 * ((1u64 << 31) as f64 / draw)) as i64;
    }
    u32::try_from(at).expect("below the number of buckets")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> MessageId {
        MessageId::new(text).unwrap()
    }

    #[test]
    fn the_hash_is_the_published_one() {
        let whole = murmur3::murmur3_x64_128(&mut Cursor::new("hello"), 0).unwrap();
        assert_eq!(whole, 0x5b1e_906a_48ae_1d19_cbd8_a7b3_41bd_9b02);
        assert_eq!(murmur3::murmur3_32(&mut Cursor::new("hello"), 0).unwrap(), 0x248b_fa47);
        assert_eq!(hash_of(&id("hello"), 0), 0xcbd8_a7b3_41bd_9b02);
    }

    #[test]
    fn growing_moves_ids_only_into_new_shards() {
        let ids: Vec<MessageId> = (0..20_000).map(|n| id(&format!("order-{n}"))).collect();
        let moved = |from: u32, to: u32| {
            ids.iter()
                .filter(|id| {
                    let (a, b) = (shard_of(id, 7, from), shard_of(id, 7, to));
                    assert!(a == b || b >= from, "an id moved between old shards");
                    a != b
                })
                .count() as f64
                / ids.len() as f64
        };
        assert!((moved(8, 9) - 1.0 / 9.0).abs() < 0.01);
        assert!((moved(8, 16) - 0.5).abs() < 0.02);
    }
}
