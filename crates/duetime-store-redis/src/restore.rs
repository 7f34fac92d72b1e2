//! Puts back what a bulk action removed.

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::resize_store::{Frozen, FrozenState};
use duetime_core::store::{BatchReply, StoreError};
use duetime_core::{Shard, Timestamp};
use duetime_redis::Sending;
use redis::Cmd;

use crate::caller_time::CallerTime;
use crate::calls::Calls;
use crate::keys::wake_stem;
use crate::replicas::fewest;
use crate::reply::{array, as_many, int};

/// One script for each batch; see [`duetime_core::MessageStore::restore`].
pub(crate) async fn restore_taken(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    by: u64,
    taken: &[Frozen],
) -> Result<BatchReply<bool>, StoreError> {
    let (mut answers, mut replicas) = (Vec::with_capacity(taken.len()), None);
    let present = CallerTime::new(now);
    for part in taken.chunks(BATCH_ITEMS_MAX) {
        let call = calls.replies.call(shard);
        let fill = |cmd: &mut Cmd, sending: &Sending| {
            call.named(sending).add(cmd);
            let largest = part.iter().filter_map(|one| one.body.as_ref()).map(|body| body.len()).max();
            cmd.arg(calls.keys.wake_channel()).arg(wake_stem(shard)).arg(largest.unwrap_or(0));
            cmd.arg(&by.to_be_bytes()[..]);
            for one in part {
                cmd.arg(one.id.as_str());
                match &one.state {
                    FrozenState::Live(score) => cmd.arg("l").arg(score.raw()).arg(""),
                    FrozenState::Dead { at, attempts, reason } => {
                        cmd.arg("d").arg(at).arg(format!("{attempts} {reason}"))
                    }
                };
                cmd.arg(one.body.as_deref().unwrap_or_default());
            }
        };
        let script = &calls.scripts.restore;
        let doing = "put messages back";
        let put = calls.on_shard_confirmed(doing, script, shard, present, Some(&call), fill).await;
        let (reply, reached) = put.map_err(|error| call.judged(doing, error))?;
        for one in as_many(part.len(), array(reply)?)? {
            answers.push(int(&one)? == 1);
        }
        replicas = fewest(replicas, reached);
    }
    Ok(BatchReply { answers, replicas })
}
