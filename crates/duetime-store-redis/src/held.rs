//! How many messages and dead letters a shard holds.

use duetime_core::Shard;
use duetime_core::store::StoreError;
use redis::{Pipeline, Value};

use crate::keys::Keys;
use crate::reply::count;

/// Commands of [`ask_held`].
pub(crate) const HELD: usize = 3;

/// Messages of a shard, scheduled or in flight, its dead letters, and what is on its way to another shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldCounts {
    pub(crate) live: u64,
    pub(crate) dead: u64,
    pub(crate) frozen: u64,
}

impl HeldCounts {
    pub(crate) fn all(self) -> u64 {
        self.live + self.dead + self.frozen
    }
}

/// Adds the commands whose answers [`held`] reads.
pub(crate) fn ask_held(pipeline: &mut Pipeline, keys: &Keys, shard: &Shard) {
    pipeline.cmd("ZCARD").arg(keys.messages(shard));
    pipeline.cmd("ZCARD").arg(keys.dead(shard));
    pipeline.cmd("HLEN").arg(keys.outbox(shard));
}

/// Each key of a shard that is there has one entry that is never claimed, which is not counted.
pub(crate) fn held(counted: [&Value; HELD]) -> Result<HeldCounts, StoreError> {
    let without = |one: &Value| Ok::<_, StoreError>(count(one)?.saturating_sub(1));
    let [live, dead, frozen] = counted;
    Ok(HeldCounts { live: without(live)?, dead: without(dead)?, frozen: without(frozen)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_that_is_never_claimed_is_not_counted() {
        let of = |counted: [i64; HELD]| held(counted.map(Value::Int).each_ref()).unwrap();
        assert_eq!(of([1, 1, 1]), HeldCounts { live: 0, dead: 0, frozen: 0 });
        assert_eq!(of([4, 3, 2]), HeldCounts { live: 3, dead: 2, frozen: 1 });
        assert_eq!(of([0, 0, 0]), HeldCounts { live: 0, dead: 0, frozen: 0 }, "it was never made");
    }
}
