//! Every key and channel, spelled here and nowhere else.
//!
//! `NS:{TAG}:TOPIC:INDEX` and its companions `:body :dead :deadinfo :meta :outbox :moved`, and `:stream` where
//! messages are delivered in place, and `:past0` to `:past3` where a shard remembers what became of its messages, and
//! `:undone` where its topic has a watermark; TAG puts the shard into its cluster slot. `NS:topics` has the topics, `NS:{NS:topics}:pending` their unfinished work,
//! `NS:{NS:topics}:lives` the numbers of their lives, `NS:{NS:topics}:plans` the bulk plans, `NS:{NS:topics}:sinks` the
//! sinks that were put by the API: all in one slot.

use duetime_core::{Memory, Namespace, Shard, ShardLocation, TopicName};
use duetime_redis::slots;
use redis::Cmd;

/// Suffixes of a shard's keys, in the order in which every script takes them.
const SUFFIXES: [&str; 7] = ["", ":body", ":dead", ":deadinfo", ":meta", ":outbox", ":moved"];
/// So many of them are named by the scripts on messages; the others by those of the resize.
const OF_MESSAGES: usize = 5;
/// Suffixes of what a shard remembers of messages that are gone, where it does: behind all others in every script.
const PAST: [&str; 4] = [":past0", ":past1", ":past2", ":past3"];
/// Suffix of the stream of a shard whose messages are delivered in place.
const STREAM: &str = ":stream";
/// Suffix of when what was claimed and is not done was due, where the topic has a watermark: the last key of all.
const UNDONE: &str = ":undone";

/// The keys of one installation.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    namespace: Namespace,
}

impl Keys {
    pub(crate) fn new(namespace: Namespace) -> Self {
        Self { namespace }
    }

    /// The ZSET of a shard; its companions add a suffix.
    pub(crate) fn messages(&self, shard: &Shard) -> String {
        let tag = slots::tag_of(slots::slot_of(&shard.topic, shard.index));
        format!("{}:{{{tag}}}:{}:{}", self.namespace, shard.topic, shard.index)
    }

    /// Where a shard is, for who looks with Redis's own tools.
    pub(crate) fn locate(&self, shard: &Shard) -> ShardLocation {
        let slot = slots::slot_of(&shard.topic, shard.index);
        ShardLocation {
            key: Some(self.messages(shard)),
            stream: Some(self.stream(shard)),
            slot: Some((slot, slots::tag_of(slot))),
            file: None,
        }
    }

    /// The stream of a shard, where messages are delivered in place.
    pub(crate) fn stream(&self, shard: &Shard) -> String {
        self.messages(shard) + STREAM
    }

    pub(crate) fn bodies(&self, shard: &Shard) -> String {
        self.messages(shard) + SUFFIXES[1]
    }

    pub(crate) fn dead(&self, shard: &Shard) -> String {
        self.messages(shard) + SUFFIXES[2]
    }

    pub(crate) fn meta(&self, shard: &Shard) -> String {
        self.messages(shard) + SUFFIXES[4]
    }

    pub(crate) fn outbox(&self, shard: &Shard) -> String {
        self.messages(shard) + SUFFIXES[5]
    }

    /// Adds the number of keys and the keys of a shard that scripts on messages name.
    pub(crate) fn fill(&self, cmd: &mut Cmd, shard: &Shard) {
        self.fill_with(cmd, shard, &SUFFIXES[..OF_MESSAGES]);
    }

    /// Adds the number of keys and all keys of a shard.
    pub(crate) fn fill_all(&self, cmd: &mut Cmd, shard: &Shard) {
        self.fill_with(cmd, shard, &SUFFIXES);
    }

    /// Adds the number of keys, those that scripts on messages name, and the shard's stream.
    pub(crate) fn fill_with_stream(&self, cmd: &mut Cmd, shard: &Shard) {
        let [a, b, c, d, e, ..] = SUFFIXES;
        self.fill_with(cmd, shard, &[a, b, c, d, e, STREAM]);
    }

    fn fill_with(&self, cmd: &mut Cmd, shard: &Shard, suffixes: &[&str]) {
        let past: &[&str] = if shard.memory.is_on() { &PAST } else { &[] };
        let undone: &[&str] = if shard.memory.watermark { &[UNDONE] } else { &[] };
        let mut key = self.messages(shard);
        let stem = key.len();
        cmd.arg(suffixes.len() + past.len() + undone.len());
        for suffix in suffixes.iter().chain(past).chain(undone) {
            key.truncate(stem);
            key.push_str(suffix);
            cmd.arg(key.as_str());
        }
    }

    /// Adds the number of keys and all keys of a shard, its stream and what it remembers too.
    pub(crate) fn fill_whole(&self, cmd: &mut Cmd, shard: &Shard) {
        let ([a, b, c, d, e, f, g], [p, q, r, s]) = (SUFFIXES, PAST);
        let forgetting = shard.clone().remembering(Memory::default());
        self.fill_with(cmd, &forgetting, &[a, b, c, d, e, f, g, STREAM, p, q, r, s, UNDONE]);
    }

    pub(crate) fn moved(&self, shard: &Shard) -> String {
        self.messages(shard) + SUFFIXES[6]
    }

    pub(crate) fn topics(&self) -> String {
        format!("{}:topics", self.namespace)
    }

    pub(crate) fn pending(&self) -> String {
        format!("{0}:{{{0}:topics}}:pending", self.namespace)
    }

    /// The last number of a life, and the deleted life of each name.
    pub(crate) fn lives(&self) -> String {
        format!("{0}:{{{0}:topics}}:lives", self.namespace)
    }

    /// The bulk plans.
    pub(crate) fn plans(&self) -> String {
        format!("{0}:{{{0}:topics}}:plans", self.namespace)
    }

    /// The sinks that were put by the API.
    pub(crate) fn sinks(&self) -> String {
        format!("{0}:{{{0}:topics}}:sinks", self.namespace)
    }

    /// The channel of the hints about new heads.
    pub(crate) fn wake_channel(&self) -> String {
        format!("{}:wake", self.namespace)
    }
}

/// A hint up to its time; the script adds the milliseconds.
pub(crate) fn wake_stem(shard: &Shard) -> String {
    format!("{}:{}:", shard.topic, shard.index)
}

/// Reads a hint: topic, shard, milliseconds.
pub(crate) fn read_wake(message: &[u8]) -> Option<(TopicName, u32, i64)> {
    let mut parts = std::str::from_utf8(message).ok()?.split(':');
    let topic = TopicName::new(parts.next()?).ok()?;
    Some((topic, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use duetime_core::{ChangeId, RoutingId};

    use super::*;

    fn slot(key: &str) -> u16 {
        let open = key.find('{').unwrap();
        let inner = &key[open + 1..open + key[open..].find('}').unwrap()];
        slots::crc16(inner.as_bytes()) % slots::SLOTS
    }

    #[test]
    fn a_shards_keys_share_the_slot_it_was_given() {
        let topic = TopicName::new("orders").unwrap();
        let keys = Keys::new(Namespace::default());
        for index in 0..64 {
            let shard = Shard::new(topic.clone(), index, RoutingId { epoch: 1, change_id: ChangeId::default() });
            let key = keys.messages(&shard);
            assert!(key.starts_with("duetime:{") && key.ends_with(&format!("}}:orders:{index}")), "{key}");
            assert_eq!(slot(&key), slots::slot_of(&topic, index));
        }
        assert_eq!(slot(&keys.pending()), slots::crc16(keys.topics().as_bytes()) % slots::SLOTS);
    }

    #[test]
    fn a_hint_is_read_as_the_script_writes_it() {
        let topic = TopicName::new("a.b_c-1").unwrap();
        let stem = wake_stem(&Shard::new(topic.clone(), 7, RoutingId { epoch: 1, change_id: ChangeId::default() }));
        assert_eq!(read_wake(format!("{stem}1763700000123").as_bytes()), Some((topic, 7, 1_763_700_000_123)));
        assert_eq!(read_wake(b"x"), None);
    }
}
