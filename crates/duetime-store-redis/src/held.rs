//! How many messages and dead letters a shard holds.

use duetime_core::Shard;
use duetime_core::store::StoreError;
use redis::{Pipeline, Value};

use crate::keys::Keys;
use crate::reply::count;

/// Commands of [`ask_held`].
pub(crate) const HELD: usize = 2;

/// Messages of a shard, scheduled or in flight, and its dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldCounts {
    pub(crate) live: u64,
    pub(crate) dead: u64,
}

/// Adds the commands whose answers [`held`] reads.
pub(crate) fn ask_held(pipeline: &mut Pipeline, keys: &Keys, shard: &Shard) {
    pipeline.cmd("ZCARD").arg(keys.messages(shard));
    pipeline.cmd("ZCARD").arg(keys.dead(shard));
}

/// Each key of a shard that is there has one entry that is never claimed, which is not counted.
pub(crate) fn held([live, dead]: [&Value; HELD]) -> Result<HeldCounts, StoreError> {
    Ok(HeldCounts { live: count(live)?.saturating_sub(1), dead: count(dead)?.saturating_sub(1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_that_is_never_claimed_is_not_counted() {
        assert_eq!(held([&Value::Int(1), &Value::Int(1)]).unwrap(), HeldCounts { live: 0, dead: 0 });
        assert_eq!(held([&Value::Int(4), &Value::Int(3)]).unwrap(), HeldCounts { live: 3, dead: 2 });
        assert_eq!(
            held([&Value::Int(0), &Value::Int(0)]).unwrap(),
            HeldCounts { live: 0, dead: 0 },
            "it was never made"
        );
    }
}
