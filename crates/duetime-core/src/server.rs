//! Which server of a store holds a shard: shards of one server are delayed together when it does not answer.

use serde::{Deserialize, Serialize};

/// A server of a store, by number. The number is the same on every node that names the server by the same address. 0: the
/// only server, or not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ServerId(pub u64);

impl ServerId {
    /// The number of the server of this address: FNV-1a (Fowler, Noll, Vo), stable in every version.
    #[must_use]
    pub fn of_address(address: &str) -> Self {
        let fnv = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(address.bytes().fold(0xcbf2_9ce4_8422_2325, fnv))
    }
}

/// Where a store keeps a shard, as the store's own tools name it, for people who inspect it by hand. What a store does not
/// have is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardLocation {
    /// The key of the shard.
    pub key: Option<String>,
    /// The key of the stream that takes the shard's messages, where they are delivered in place.
    pub stream: Option<String>,
    /// The slot of that key, and the hash tag in the key that decides it.
    pub slot: Option<(u16, u32)>,
    /// The file of the store.
    pub file: Option<String>,
}
