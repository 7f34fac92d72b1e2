//! The calls on ids at their source shard. One script looks where each id is and acts on those that are
//! there; its answer is replicated.

use duetime_core::limits::{BATCH_ITEMS_MAX, OLD_ITEMS_MAX};
use duetime_core::resize_store::Lookup;
use duetime_core::store::{DeadAction, Edit, Edited, Enqueue, Enqueued, Settle, Settled, StoreError};
use duetime_core::{MessageId, Score, Shard, StoredMessage, Timestamp};
use duetime_redis::{Script, Sending};
use redis::{Cmd, Value};

use crate::caller_time::CallerTime;
use crate::calls::Calls;
use crate::edit::{cancels, name_ids, read_cancelled, read_rescheduled};
use crate::enqueue::Summary;
use crate::reply::{ints, proves, tuple, unexpected_reply};
use crate::reply_cache::Named;
use crate::{edit, enqueue, read, settle};

/// A score that no message has.
const NOBODYS: Score = Score::from_raw(-1);

/// Puts the answers to what was there into their places.
fn place<A>(found: &[i64], answers: Vec<A>) -> Result<Vec<Lookup<A>>, StoreError> {
    let mut answers = answers.into_iter();
    let placed = found.iter().map(|place| match place {
        0 => answers
            .next()
            .map(Lookup::Found)
            .ok_or_else(|| unexpected_reply("an answer at the source shard is missing")),
        1 => Ok(Lookup::Absent),
        _ => Ok(Lookup::Frozen),
    });
    placed.collect()
}

/// Where each of `count` ids is, and what the script answered to those that are there.
async fn at_source<F>(
    calls: &Calls,
    doing: &'static str,
    script: &Script,
    shard: &Shard,
    now: CallerTime,
    count: usize,
    fill: F,
) -> Result<(Vec<i64>, Value), StoreError>
where
    F: Fn(&mut Cmd, &Named) + Send + Sync,
{
    let call = calls.replies.call(shard);
    let fill = |cmd: &mut Cmd, sending: &Sending| {
        let named = call.named(sending);
        named.add(cmd);
        cmd.arg(count);
        fill(cmd, &named.inner());
    };
    let (reply, _) = calls.on_shard_replicated(doing, script, shard, now, Some(&call), fill).await?;
    let [found, answer] = tuple(reply)?;
    let found = ints(found)?;
    if found.len() != count {
        return Err(unexpected_reply("another number of places than of ids"));
    }
    Ok((found, answer))
}

pub(crate) async fn schedule_at_source(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    batch: &[Enqueue],
) -> Result<Vec<Lookup<Enqueued>>, StoreError> {
    let mut all = Vec::with_capacity(batch.len());
    for part in batch.chunks(BATCH_ITEMS_MAX) {
        let summary = Summary::of(part);
        let fill = |cmd: &mut Cmd, named: &Named| enqueue::name_batch(calls, cmd, shard, part, &summary, named);
        let script = &calls.scripts.source.enqueue;
        let (found, reply) =
            at_source(calls, "enqueue at the source shard", script, shard, CallerTime::new(now), part.len(), fill)
                .await?;
        let there: Vec<&Enqueue> =
            part.iter().zip(&found).filter(|(_, place)| **place == 0).map(|(item, _)| item).collect();
        let mut answers = Vec::with_capacity(there.len());
        if !there.is_empty() {
            // A replica has it if there is one; how many is not counted here.
            enqueue::read(there.into_iter(), reply, None, &mut answers)?;
        }
        all.extend(place(&found, answers)?);
    }
    Ok(all)
}

pub(crate) async fn change_at_source(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    batch: &[Edit],
) -> Result<Vec<Lookup<Edited>>, StoreError> {
    let mut all = Vec::with_capacity(batch.len());
    for run in batch.chunk_by(|a, b| cancels(a) == cancels(b)) {
        for part in run.chunks(OLD_ITEMS_MAX) {
            let mut answers = Vec::new();
            let found = if cancels(&part[0]) {
                cancel_at_source(calls, shard, now, part, &mut answers).await?
            } else {
                let fill = |cmd: &mut Cmd, named: &Named| edit::name_moments(calls, cmd, shard, part, named);
                let script = &calls.scripts.source.reschedule;
                let doing = "reschedule at the source shard";
                let (found, reply) =
                    at_source(calls, doing, script, shard, CallerTime::new(now), part.len(), fill).await?;
                let there = found.iter().filter(|place| **place == 0).count();
                if there > 0 {
                    read_rescheduled(there, reply, &mut answers)?;
                }
                found
            };
            // Removed earlier in this very batch.
            let gone = |answer| if answer == Lookup::Found(Edited::Unknown) { Lookup::Absent } else { answer };
            all.extend(place(&found, answers)?.into_iter().map(gone));
        }
    }
    Ok(all)
}

async fn cancel_at_source(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    part: &[Edit],
    answers: &mut Vec<Edited>,
) -> Result<Vec<i64>, StoreError> {
    let fill = |cmd: &mut Cmd, named: &Named| name_ids(cmd, part, named);
    let script = &calls.scripts.source.cancel;
    let (found, reply) =
        at_source(calls, "cancel at the source shard", script, shard, CallerTime::new(now), part.len(), fill).await?;
    let there = found.iter().filter(|place| **place == 0).count();
    if there > 0 {
        read_cancelled(there, reply, answers)?;
    }
    Ok(found)
}

pub(crate) async fn read_at_source(
    calls: &Calls,
    shard: &Shard,
    ids: &[MessageId],
) -> Result<Vec<Lookup<StoredMessage>>, StoreError> {
    let mut all = Vec::with_capacity(ids.len());
    for part in ids.chunks(BATCH_ITEMS_MAX) {
        let fill = |cmd: &mut Cmd, _: &Named| {
            for id in part {
                cmd.arg(id.as_str());
            }
        };
        let script = &calls.scripts.source.get;
        let (found, reply) =
            at_source(calls, "read at the source shard", script, shard, CallerTime::none(), part.len(), fill).await?;
        let there = part.iter().zip(&found).filter(|(_, place)| **place == 0).map(|(id, _)| id);
        let messages = if found.contains(&0) { read::messages(there, reply)? } else { Vec::new() };
        let read = place(&found, messages)?;
        all.extend(read.into_iter().map(|read| match read {
            Lookup::Found(Some(message)) => Lookup::Found(message),
            Lookup::Frozen => Lookup::Frozen,
            Lookup::Found(None) | Lookup::Absent => Lookup::Absent,
        }));
    }
    Ok(all)
}

pub(crate) async fn settle_claims_at_source(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    batch: &[Settle],
) -> Result<Vec<Lookup<Settled>>, StoreError> {
    let mut all = Vec::with_capacity(batch.len());
    for part in batch.chunks(OLD_ITEMS_MAX) {
        let present = CallerTime::new(now);
        let fill = |cmd: &mut Cmd, named: &Named| {
            named.add(cmd);
            cmd.arg(part.len());
            for item in part {
                // A score that no claim can have proves nothing, whatever message happens to have it.
                let score = if proves(item.score) { item.score } else { NOBODYS };
                settle::name(cmd, &Settle { score, ..item.clone() });
            }
        };
        let script = &calls.scripts.source.settle;
        let (found, reply) =
            at_source(calls, "settle at the source shard", script, shard, present, part.len(), fill).await?;
        let outcomes = if found.contains(&0) { ints(reply)? } else { Vec::new() };
        all.extend(place(&found, outcomes.into_iter().map(settle::read).collect())?);
    }
    Ok(all)
}

pub(crate) async fn settle_dead_letters_at_source(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    ids: &[MessageId],
    action: DeadAction,
) -> Result<Vec<Lookup<bool>>, StoreError> {
    let mut all = Vec::with_capacity(ids.len());
    for part in ids.chunks(OLD_ITEMS_MAX) {
        let fill = |cmd: &mut Cmd, named: &Named| settle::name_dead(calls, cmd, shard, part, action, named);
        let script = &calls.scripts.source.settle_dead;
        let doing = "settle dead letters at the source shard";
        let (found, reply) = at_source(calls, doing, script, shard, CallerTime::new(now), part.len(), fill).await?;
        let done = if found.contains(&0) { ints(reply)? } else { Vec::new() };
        all.extend(place(&found, done.into_iter().map(|done| done == 1).collect())?);
    }
    Ok(all)
}
