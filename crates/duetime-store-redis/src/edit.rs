//! Cancels and reschedules.

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::message::Due;
use duetime_core::store::{BatchReply, Edit, Edited, Notes, StoreError, TakenState};
use duetime_core::{Shard, Timestamp};
use duetime_redis::Sending;
use redis::{Cmd, Value};

use crate::caller_time::{CallerTime, millis};
use crate::calls::Calls;
use crate::keys::wake_stem;
use crate::replicas::fewest;
use crate::reply::{array, as_many, ints, outcome, unexpected_reply};
use crate::reply_cache::Named;

/// One script for each run of edits of one kind, in order.
pub(crate) async fn change(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    batch: &[Edit],
) -> Result<BatchReply<Edited>, StoreError> {
    let (mut answers, mut replicas) = (Vec::with_capacity(batch.len()), None);
    let present = CallerTime::new(now);
    for run in batch.chunk_by(Edit::is_one_step) {
        for part in run.chunks(BATCH_ITEMS_MAX) {
            let before = answers.len();
            let reached = match part[0] {
                Edit::Cancel(_) | Edit::CancelGone(_) => cancel(calls, shard, present, part, &mut answers).await?,
                Edit::CancelIf { .. } | Edit::TakeOut { .. } => {
                    cancel_if(calls, shard, present, part, &mut answers).await?
                }
                Edit::Reschedule(..) => reschedule(calls, shard, present, part, &mut answers).await?,
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
    present: CallerTime,
    part: &[Edit],
    answers: &mut Vec<Edited>,
) -> Result<Option<u32>, StoreError> {
    let call = calls.replies.call(shard);
    let run = |script, notes| {
        let call = &call;
        let fill = move |cmd: &mut Cmd, sending: &Sending| name_ids(cmd, part, notes, &call.named(sending));
        calls.on_shard_confirmed("cancel messages", script, shard, present, Some(call), fill)
    };
    let is_noted = matches!(part[0], Edit::Cancel(_)) && shard.memory.is_on();
    let (reply, reached) = if is_noted {
        match run(&calls.scripts.cancel_noting, Notes::Written).await {
            // What is there is cancelled all the same; whether an earlier sending was carried out is asked first.
            Err(StoreError::Full(_)) => run(&calls.scripts.home.cancel, Notes::Refused).await?,
            done => done?,
        }
    } else {
        run(&calls.scripts.home.cancel, Notes::None).await?
    };
    read_cancelled(part.len(), reply, answers)?;
    Ok(reached)
}

async fn cancel_if(
    calls: &Calls,
    shard: &Shard,
    present: CallerTime,
    part: &[Edit],
    answers: &mut Vec<Edited>,
) -> Result<Option<u32>, StoreError> {
    let call = calls.replies.call(shard);
    let fill = |cmd: &mut Cmd, sending: &Sending| name_versions(cmd, part, &call.named(sending));
    let script = &calls.scripts.home.cancel_if;
    let doing = "cancel messages that did not change";
    let (reply, reached) = calls.on_shard_confirmed(doing, script, shard, present, Some(&call), fill).await?;
    read_cancelled_if(part.len(), reply, answers)?;
    Ok(reached)
}

async fn reschedule(
    calls: &Calls,
    shard: &Shard,
    present: CallerTime,
    part: &[Edit],
    answers: &mut Vec<Edited>,
) -> Result<Option<u32>, StoreError> {
    let call = calls.replies.call(shard);
    let fill = |cmd: &mut Cmd, sending: &Sending| name_moments(calls, cmd, shard, part, &call.named(sending));
    let script = &calls.scripts.home.reschedule;
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
pub(crate) fn name_ids(cmd: &mut Cmd, part: &[Edit], notes: Notes, named: &Named) {
    named.add(cmd);
    cmd.arg(match notes {
        Notes::None => "",
        Notes::Written => "1",
        Notes::Refused => "f",
    });
    for edit in part {
        cmd.arg(edit.id().as_str());
    }
}

/// Adds the arguments of the script that cancels by condition behind the epoch.
pub(crate) fn name_versions(cmd: &mut Cmd, part: &[Edit], named: &Named) {
    named.add(cmd);
    let by = |how: u8, by: u64| [&[how][..], &by.to_be_bytes()].concat();
    cmd.arg(match part[0] {
        Edit::CancelIf { moved: true, .. } => b"m".to_vec(),
        Edit::TakeOut { was: TakenState::Scheduled(_), by: whose, .. } => by(b'u', whose),
        Edit::TakeOut { was: TakenState::Dead(_), by: whose, .. } => by(b'p', whose),
        _ => Vec::new(),
    });
    for edit in part {
        let (id, nonce, place) = match edit {
            Edit::CancelIf { id, version, .. } => (id, version.nonce, version.score.raw()),
            Edit::TakeOut { id, nonce, was: TakenState::Scheduled(score), .. } => (id, *nonce, score.raw()),
            Edit::TakeOut { id, nonce, was: TakenState::Dead(died), .. } => (id, *nonce, died.as_millis()),
            _ => unreachable!("runs are of one kind"),
        };
        cmd.arg(id.as_str()).arg(place).arg(&nonce.0.to_be_bytes()[..]);
    }
}

/// Reads the answer of the script that cancels by condition to so many ids.
pub(crate) fn read_cancelled_if(count: usize, reply: Value, answers: &mut Vec<Edited>) -> Result<(), StoreError> {
    for one in as_many(count, array(reply)?)? {
        answers.push(match one {
            Value::Int(0) => Edited::Cancelled,
            Value::Int(1) => Edited::Changed,
            Value::Int(_) => Edited::Unknown,
            became => outcome(&became)?.map_or(Edited::Unknown, Edited::Gone),
        });
    }
    Ok(())
}

/// Reads the answer of the cancel script to so many ids.
pub(crate) fn read_cancelled(count: usize, reply: Value, answers: &mut Vec<Edited>) -> Result<(), StoreError> {
    match reply {
        Value::Int(0) => answers.extend(std::iter::repeat_n(Edited::Cancelled, count)),
        list => {
            for one in as_many(count, array(list)?)? {
                answers.push(match one {
                    Value::Int(0) => Edited::Cancelled,
                    Value::Int(1) => Edited::InFlight,
                    Value::Int(3) => Edited::Full,
                    Value::Int(_) => Edited::Unknown,
                    became => outcome(&became)?.map_or(Edited::Unknown, Edited::Gone),
                });
            }
        }
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
