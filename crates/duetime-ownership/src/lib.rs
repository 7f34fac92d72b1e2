//! Who holds the keys: which shards this node scans.
//!
//! One file per strategy. Upstream: `duetime-dispatch` tells what there is to share and follows what
//! is owned. Safety never depends on it. Knows nothing of messages.

mod solo;

pub use solo::Solo;
