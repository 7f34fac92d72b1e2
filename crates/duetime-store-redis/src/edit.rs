//! Cancels and reschedules.

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::message::Due;
use duetime_core::store::{BatchReply, Edit, Edited, StoreError};
use duetime_core::{Shard, Timestamp};
use duetime_redis::Sending;
use redis::{Cmd, Value};

use crate::caller_time::{CallerTime, millis};
use crate::calls::Calls;
use crate::keys::wake_stem;
use crate::replicas::fewest;
use crate::reply::{as_many, ints, unexpected_reply};
use crate::reply_cache::Named;

pub(crate) fn cancels(edit: &Edit) -> bool {
    matches!(edit, Edit::Cancel(_))
}

pub(crate) fn id_of(edit: &Edit) -> &str {
    let (Edit::Cancel(id) | Edit::Reschedule(id, _)) = edit;
    id.as_str()
}

/// One script for each run of edits of one kind, in order.
pub(crate) async fn change(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    batch: &[Edit],
) -> Result<BatchReply<Edited>, StoreError> {
    let (mut answers, mut replicas) = (Vec::with_capacity(batch.len()), None);
    for run in batch.chunk_by(|a, b| cancels(a) == cancels(b)) {
        for part in run.chunks(BATCH_ITEMS_MAX) {
            let before = answers.len();
            let reached = if cancels(&part[0]) {
                cancel(calls, shard, now, part, &mut answers).await?
            } else {
                reschedule(calls, shard, now, part, &mut answers).await?
            };
            replicas = fewest(replicas, reached);
            if answers.len() != before + part.len() {
                return Err(unexpected_reply("another number of outcomes than of edits"));
            }
        }
    }
    Ok(BatchReply { answers, replicas })
}

async fn cancel(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    part: &[Edit],
    answers: &mut Vec<Edited>,
) -> Result<Option<u32>, StoreError> {
    let call = calls.replies.call(shard);
    let fill = |cmd: &mut Cmd, sending: &Sending| name_ids(cmd, part, &call.named(sending));
    let (script, present) = (&calls.scripts.home.cancel, CallerTime::new(now));
    let run = calls.on_shard_confirmed("cancel messages", script, shard, present, Some(&call), fill);
    let (reply, reached) = run.await?;
    read_cancelled(part.len(), reply, answers)?;
    Ok(reached)
}

async fn reschedule(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    part: &[Edit],
    answers: &mut Vec<Edited>,
) -> Result<Option<u32>, StoreError> {
    let call = calls.replies.call(shard);
    let fill = |cmd: &mut Cmd, sending: &Sending| name_moments(calls, cmd, shard, part, &call.named(sending));
    let (script, present) = (&calls.scripts.home.reschedule, CallerTime::new(now));
    let run = calls.on_shard_confirmed("reschedule messages", script, shard, present, Some(&call), fill);
    let (reply, reached) = run.await?;
    read_rescheduled(part.len(), reply, answers)?;
    Ok(reached)
}

/// Adds the arguments of the reschedule script behind the epoch.
pub(crate) fn name_moments(calls: &Calls, cmd: &mut Cmd, shard: &Shard, part: &[Edit], named: &Named) {
    named.add(cmd);
    cmd.arg(calls.keys.wake_channel()).arg(wake_stem(shard)).arg(part.len());
    for edit in part {
        let Edit::Reschedule(id, due) = edit else { unreachable!("runs are of one kind") };
        cmd.arg(id.as_str());
        match due {
            Due::At(at) => cmd.arg("a").arg(at.as_millis()),
            Due::In(delay) => cmd.arg("d").arg(millis(*delay)),
        };
    }
}

/// Adds the arguments of the cancel script behind the epoch.
pub(crate) fn name_ids(cmd: &mut Cmd, part: &[Edit], named: &Named) {
    named.add(cmd);
    for edit in part {
        cmd.arg(id_of(edit));
    }
}

/// Reads the answer of the cancel script to so many ids.
pub(crate) fn read_cancelled(count: usize, reply: Value, answers: &mut Vec<Edited>) -> Result<(), StoreError> {
    match reply {
        Value::Int(0) => answers.extend(std::iter::repeat_n(Edited::Cancelled, count)),
        list => answers.extend(as_many(count, ints(list)?)?.into_iter().map(|outcome| match outcome {
            0 => Edited::Cancelled,
            1 => Edited::InFlight,
            _ => Edited::Unknown,
        })),
    }
    Ok(())
}

/// Reads the answer of the reschedule script to so many ids.
pub(crate) fn read_rescheduled(count: usize, reply: Value, answers: &mut Vec<Edited>) -> Result<(), StoreError> {
    answers.extend(as_many(count, ints(reply)?)?.into_iter().map(|outcome| match outcome {
        -1 => Edited::InFlight,
        -2 => Edited::Dead,
        -3 => Edited::Unknown,
        due => Edited::Rescheduled(Timestamp::from_millis(due)),
    }));
    Ok(())
}
