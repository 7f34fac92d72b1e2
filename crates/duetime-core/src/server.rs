//! Which server of a store holds a shard: what a silent one delays, and nothing else.

use serde::{Deserialize, Serialize};

/// One server of a store. The number says nothing but that shards of one place are silent together;
/// it is the same on every node that names the server by the same address. 0: the only one, or none known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Place(pub u64);

impl Place {
    /// The place of the server of this address: FNV-1a (Fowler, Noll, Vo), stable in every version.
    #[must_use]
    pub fn of_address(address: &str) -> Self {
        let fnv = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(address.bytes().fold(0xcbf2_9ce4_8422_2325, fnv))
    }
}

/// Where a store keeps a shard, as its own tools name it: for people who look there by hand. What a store has no
/// such thing for is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whereabouts {
    /// The key it is under.
    pub key: Option<String>,
    /// The key of the stream that its messages go to where they are handed over in place.
    pub stream: Option<String>,
    /// The slot of that key, and the tag in it that puts it there.
    pub slot: Option<(u16, u32)>,
    /// The file it is in.
    pub file: Option<String>,
}
