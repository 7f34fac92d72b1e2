//! How many bytes the bodies of shards have, estimated: no script and no counter knows it.
//!
//! Some bodies of each shard are drawn at random and asked for their length, so that the estimate costs the
//! same however many messages there are, and enqueues and acks cost nothing more.

use duetime_core::Shard;
use duetime_core::store::StoreError;
use redis::{Pipeline, Value};

use crate::reply::{array, count, odd};
use crate::store::RedisStore;

/// Bodies of one shard that are drawn; one may be drawn twice.
const DRAWN: usize = 16;
/// Shards asked in one pipeline.
const SHARDS_PER_PIPELINE: usize = 128;
const DOING: &str = "count bytes";

impl RedisStore {
    /// Bytes of the bodies in these shards, about. Shards whose master is silent while others answer are left out.
    pub(crate) async fn estimate_bytes(&self, shards: &[Shard]) -> Result<u64, StoreError> {
        let mut total = 0;
        for part in shards.chunks(SHARDS_PER_PIPELINE) {
            let mut pipeline = Pipeline::with_capacity(part.len() * 2);
            for shard in part {
                let bodies = self.keys.bodies(shard);
                pipeline.cmd("HLEN").arg(&bodies);
                pipeline.cmd("HRANDFIELD").arg(&bodies).arg(-(DRAWN as i64));
            }
            let mut known = Vec::new();
            let mut lengths = Pipeline::with_capacity(part.len() * DRAWN);
            for (shard, answers) in part.iter().zip(self.look_each(DOING, &[pipeline], 2).await?) {
                let Some(answers) = answers else { continue };
                let [messages, drawn] =
                    <[Value; 2]>::try_from(answers).map_err(|_| odd("two answers were asked for"))?;
                let drawn = array(drawn)?;
                // A shard that was never made has none to draw.
                if drawn.len() == DRAWN {
                    // The entry that holds the place of an empty shard is in the number.
                    known.push(count(&messages)?.saturating_sub(1));
                    let bodies = self.keys.bodies(shard);
                    for id in drawn {
                        lengths.cmd("HSTRLEN").arg(&bodies).arg(crate::reply::bytes(id).unwrap_or_default().as_ref());
                    }
                }
            }
            if known.is_empty() {
                continue;
            }
            for (messages, lengths) in known.into_iter().zip(self.look_each(DOING, &[lengths], DRAWN).await?) {
                let lengths = lengths.unwrap_or_default();
                let lengths = lengths.iter().map(count).collect::<Result<Vec<u64>, StoreError>>()?;
                // That entry has no bytes, and no body has none.
                let (sum, bodies) = lengths
                    .iter()
                    .filter(|length| **length > 0)
                    .fold((0, 0), |(sum, bodies), length| (sum + u128::from(*length), bodies + 1));
                if bodies > 0 {
                    total += u64::try_from(u128::from(messages) * sum / bodies).unwrap_or(u64::MAX);
                }
            }
        }
        Ok(total)
    }
}
