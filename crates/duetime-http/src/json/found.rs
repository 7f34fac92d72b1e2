//! What a node found of the things that it depends on.

use serde::Serialize;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

/// What was found of what the node needs for its work, in a few words each.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ReadyFound {
    /// The store, and whether it takes writes where one node alone writes to it.
    pub store: &'static str,
    /// How many of the store's servers that have shards answered when one shard of each was asked.
    pub servers: String,
    /// How far the store's clock and the node's are apart.
    pub clock: String,
    /// That the clock is moved by hand, which is for tests alone, and how far it is ahead; absent: it is the machine's.
    pub test_clock: Option<String>,
    /// What nodes share the shards by.
    pub sharing: String,
    /// Which sinks take nothing, as far as this node knows: ten by name, and how many more; without a token for all
    /// topics only that there are some. That makes no node unready: the others are served.
    pub sinks: String,
}
