//! How many bytes the bodies of shards have, estimated: no script and no counter knows it.
//!
//! Some bodies of each shard are drawn at random and asked for their length, so that the estimate costs the
//! same however many messages there are, and enqueues and acks cost nothing more.

use duetime_core::Shard;
use duetime_core::store::StoreError;
use redis::{Pipeline, Value};

use crate::calls::Calls;
use crate::held::{HELD, ask_held, held};
use crate::read;
use crate::reply::{array, count, unexpected_reply};

/// Bodies of one shard that are drawn; one may be drawn twice.
const DRAWN: usize = 16;
/// Shards asked in one pipeline.
const SHARDS_PER_PIPELINE: usize = 128;
const DOING: &str = "count bytes";

/// Whether a field of the bodies is no body: it begins with byte 0, which no id has.
fn is_no_body(field: &[u8]) -> bool {
    field.first() == Some(&0)
}

/// Bytes of the bodies in these shards, about. Shards whose master is silent while others answer are left out.
pub(crate) async fn estimate_bytes(calls: &Calls, shards: &[Shard]) -> Result<u64, StoreError> {
    let mut total = 0;
    for part in shards.chunks(SHARDS_PER_PIPELINE) {
        let mut pipeline = Pipeline::with_capacity(part.len() * (HELD + 1));
        for shard in part {
            let bodies = calls.keys.bodies(shard);
            // Beside the bodies lie the slots of the reply cache, so they are not counted there.
            ask_held(&mut pipeline, &calls.keys, shard);
            pipeline.cmd("HRANDFIELD").arg(&bodies).arg(-(DRAWN as i64));
        }
        let mut known = Vec::new();
        let mut lengths = Pipeline::with_capacity(part.len() * DRAWN);
        for (shard, answers) in part.iter().zip(read::look_each(calls, DOING, &[pipeline], HELD + 1).await?) {
            let Some(answers) = answers else { continue };
            let [messages, dead, frozen, drawn] = <[Value; HELD + 1]>::try_from(answers)
                .map_err(|_| unexpected_reply("another number of answers than asked for"))?;
            let drawn = array(drawn)?;
            // A shard that was never made has none to draw.
            if drawn.len() == DRAWN {
                known.push(held([&messages, &dead, &frozen])?.all());
                let bodies = calls.keys.bodies(shard);
                for id in drawn {
                    let id = crate::reply::bytes(id).unwrap_or_default();
                    // A slot of the reply cache has no body: the length of no field is 0.
                    let id = if is_no_body(&id) { &[][..] } else { id.as_ref() };
                    lengths.cmd("HSTRLEN").arg(&bodies).arg(id);
                }
            }
        }
        if known.is_empty() {
            continue;
        }
        for (messages, lengths) in known.into_iter().zip(read::look_each(calls, DOING, &[lengths], DRAWN).await?) {
            let lengths = lengths.unwrap_or_default();
            let lengths = lengths.iter().map(count).collect::<Result<Vec<u64>, StoreError>>()?;
            // That entry has no bytes, and no body has none.
            let (sum, bodies) = lengths
                .iter()
                .filter(|length| **length > 0)
                .fold((0, 0), |(sum, bodies), length| (sum + u128::from(*length), bodies + 1));
            // Without a body there is nothing to estimate from.
            let estimate = (u128::from(messages) * sum).checked_div(bodies).unwrap_or(0);
            total += u64::try_from(estimate).unwrap_or(u64::MAX);
        }
    }
    Ok(total)
}
