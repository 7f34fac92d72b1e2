//! Which Redis Cluster slot a shard lives in, and the hash tag that puts it there.
//!
//! Shards 0, 1, 2, … of a topic fall on slots in van der Corput (bit-reversed) order, moved by an
//! offset of the topic's own: every prefix 0..M spreads evenly over contiguous slot ranges, for any
//! number of masters, and a shard's slot never depends on M.

use std::sync::OnceLock;

use duetime_core::TopicName;

/// Slots of a Redis Cluster.
pub const SLOTS: u16 = 16_384;

/// CRC16-CCITT (XMODEM), as the Redis Cluster specification has it.
#[must_use]
pub fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0u16, |crc, byte| {
        (0..8).fold(
            crc ^ (u16::from(*byte) << 8),
            |crc, _| {
                if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 }
            },
        )
    })
}

/// The slot of a key: that of its hash tag, where it has one.
#[must_use]
pub fn slot_of_key(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|byte| *byte == b'}').filter(|close| *close > 0).map(|close| &rest[..close])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// The slot of shard `index` of `topic`.
#[must_use]
pub fn slot_of(topic: &TopicName, index: u32) -> u16 {
    let offset = duetime_core::routing::topic_seed(topic) % u32::from(SLOTS);
    let reversed = (index % u32::from(SLOTS)).reverse_bits() >> (32 - 14);
    u16::try_from((offset + reversed) % u32::from(SLOTS)).expect("below 16384")
}

/// The hash tag of a slot: the smallest whole number, written in decimal, whose CRC16 falls on it.
#[must_use]
pub fn tag_of(slot: u16) -> u32 {
    static TAGS: OnceLock<Vec<u32>> = OnceLock::new();
    TAGS.get_or_init(|| {
        let mut tags = vec![u32::MAX; usize::from(SLOTS)];
        let mut missing = tags.len();
        for number in 0u32.. {
            let at = usize::from(crc16(number.to_string().as_bytes()) % SLOTS);
            if tags[at] == u32::MAX {
                tags[at] = number;
                missing -= 1;
                if missing == 0 {
                    break;
                }
            }
        }
        tags
    })[usize::from(slot % SLOTS)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_falls_on_the_slot_of_its_tag() {
        assert_eq!(slot_of_key(b"123456789"), 0x31c3);
        assert_eq!(slot_of_key(b"x{123456789}y}"), 0x31c3);
        // The first brace counts, and nothing in it is no tag.
        assert_eq!(slot_of_key(b"{}{123456789}"), crc16(b"{}{123456789}") % SLOTS);
        assert_eq!(slot_of_key(b"{{a}b}"), crc16(b"{a") % SLOTS);
    }

    #[test]
    fn every_slot_has_a_tag_and_the_checksum_is_the_published_one() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for slot in 0..SLOTS {
            assert_eq!(crc16(tag_of(slot).to_string().as_bytes()) % SLOTS, slot);
        }
    }

    /// First slots of `masters` masters, as `redis-cli --cluster create` gives them out.
    fn firsts(masters: usize) -> Vec<u16> {
        let each = f64::from(SLOTS) / masters as f64;
        (0..masters).map(|master| (each * master as f64).round() as u16).collect()
    }

    /// Shards on each master.
    fn loads(firsts: &[u16], slots: impl Iterator<Item = u16>) -> Vec<u32> {
        let mut loads = vec![0; firsts.len()];
        for slot in slots {
            loads[firsts.partition_point(|first| *first <= slot) - 1] += 1;
        }
        loads
    }

    #[test]
    fn no_master_is_empty_or_carries_much_more_than_its_part() {
        for masters in [3usize, 5, 8, 16] {
            let firsts = firsts(masters);
            for name in (0..200).map(|n| format!("topic-{n}")) {
                let topic = TopicName::new(&name).unwrap();
                let of = |shards: usize| {
                    loads(&firsts, (0..u32::try_from(shards).unwrap()).map(|index| slot_of(&topic, index)))
                };
                assert!(of(2 * masters).iter().all(|load| *load > 0), "{name} leaves one of {masters} empty");
                for (shards, most) in [(4 * masters, 1.25), (256, 1.05)] {
                    let heaviest = f64::from(*of(shards).iter().max().unwrap());
                    let mean = shards as f64 / masters as f64;
                    assert!(heaviest <= most * mean, "{name}: {heaviest} of {shards} on one of {masters}");
                }
            }
        }
    }

    #[test]
    fn topics_of_one_shard_spread_too() {
        for masters in [3usize, 5, 8, 16] {
            let slots = (0..1000 * masters).map(|n| slot_of(&TopicName::new(&format!("topic-{n}")).unwrap(), 0));
            let loads = loads(&firsts(masters), slots);
            assert!(loads.iter().all(|load| (850..1150).contains(load)), "{loads:?}");
        }
    }

    #[test]
    fn every_prefix_of_shards_is_spread_evenly() {
        let topic = TopicName::new("orders").unwrap();
        for (masters, shards) in [(3u32, 64u32), (5, 256), (8, 16), (16, 256)] {
            let mut load = vec![0u32; masters as usize];
            for index in 0..shards {
                load[(u32::from(slot_of(&topic, index)) * masters / u32::from(SLOTS)) as usize] += 1;
            }
            let most = f64::from(*load.iter().max().unwrap()) * f64::from(masters) / f64::from(shards);
            assert!(most < 1.25, "{masters} masters, {shards} shards: {load:?}");
        }
    }
}
