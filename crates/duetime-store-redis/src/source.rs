//! The calls on ids at their source shard. One script looks where each id is and acts on those that are
//! there; its answer is replicated.

use duetime_core::limits::{BATCH_ITEMS_MAX, OLD_ITEMS_MAX};
use duetime_core::resize_store::Lookup;
use duetime_core::store::{DeadAction, Edit, Edited, Enqueue, Enqueued, Notes, Settle, Settled, StoreError};
use duetime_core::{MessageId, Score, Shard, StoredMessage, Timestamp};
use duetime_redis::{Script, Sending};
use redis::{Cmd, Value};

use crate::caller_time::CallerTime;
use crate::calls::Calls;
use crate::enqueue::Summary;
use crate::reply::{array, ints, outcome, proves, unexpected_reply};
use crate::reply_cache::Named;
use crate::{edit, enqueue, read, settle};

/// A score that no message has.
const NOBODYS: Score = Score::from_raw(-1);

/// Where the ids of a call are: there, absent with what is remembered of them, or frozen.
pub(crate) struct Places(Vec<Lookup<()>>);

impl Places {
    fn read(count: usize, found: Value, became: Option<Value>) -> Result<Self, StoreError> {
        let found = ints(found)?;
        let became = became.map(array).transpose()?.unwrap_or_default();
        if found.len() != count || ![0, count].contains(&became.len()) {
            return Err(unexpected_reply("another number of places than of ids"));
        }
        let place = |(at, place)| match place {
            0 => Ok(Lookup::Found(())),
            1 => Ok(Lookup::Absent(became.get(at).map_or(Ok(None), outcome)?)),
            _ => Ok(Lookup::Frozen),
        };
        Ok(Self(found.into_iter().enumerate().map(place).collect::<Result<_, _>>()?))
    }

    /// Those items that are there.
    fn there<'a, I>(&self, items: &'a [I]) -> Vec<&'a I> {
        items.iter().zip(&self.0).filter(|(_, place)| **place == Lookup::Found(())).map(|(item, _)| item).collect()
    }

    pub(crate) fn is_any_there(&self) -> bool {
        self.0.contains(&Lookup::Found(()))
    }

    /// Puts the answers to what was there into their places.
    pub(crate) fn fill<A>(self, answers: Vec<A>) -> Result<Vec<Lookup<A>>, StoreError> {
        if answers.len() != self.0.iter().filter(|place| **place == Lookup::Found(())).count() {
            return Err(unexpected_reply("another number of answers at the source shard than of messages"));
        }
        let mut answers = answers.into_iter();
        Ok(self.0.into_iter().map(|place| place.map(|()| answers.next().expect("they were counted"))).collect())
    }
}

/// Where each of `count` ids is, and what the script answered to those that are there.
pub(crate) async fn at_source<F>(
    calls: &Calls,
    doing: &'static str,
    script: &Script,
    shard: &Shard,
    now: CallerTime,
    count: usize,
    fill: F,
) -> Result<(Places, Value), StoreError>
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
    let run = calls.on_shard_replicated(doing, script, shard, now, Some(&call), fill);
    let (reply, _) = run.await.map_err(|error| call.judged(doing, error))?;
    let mut parts = array(reply)?.into_iter();
    let (Some(found), Some(answer)) = (parts.next(), parts.next()) else {
        return Err(unexpected_reply("a source shard answers places and answers"));
    };
    Ok((Places::read(count, found, parts.next())?, answer))
}

pub(crate) async fn schedule_at_source(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    batch: &[Enqueue],
) -> Result<Vec<Lookup<Enqueued>>, StoreError> {
    let (mut all, present) = (Vec::with_capacity(batch.len()), CallerTime::new(now));
    for part in batch.chunks(BATCH_ITEMS_MAX) {
        let summary = Summary::of(part);
        let fill = |cmd: &mut Cmd, named: &Named| enqueue::name_batch(calls, cmd, shard, part, &summary, named);
        let script = &calls.scripts.source.enqueue;
        let (found, reply) =
            at_source(calls, "enqueue at the source shard", script, shard, present, part.len(), fill).await?;
        let there = found.there(part);
        let mut answers = Vec::with_capacity(there.len());
        if !there.is_empty() {
            // A replica has it if there is one; how many is not counted here.
            enqueue::read(there.into_iter(), reply, None, &mut answers)?;
        }
        all.extend(found.fill(answers)?);
    }
    Ok(all)
}

pub(crate) async fn change_at_source(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    batch: &[Edit],
) -> Result<Vec<Lookup<Edited>>, StoreError> {
    let (mut all, present) = (Vec::with_capacity(batch.len()), CallerTime::new(now));
    for run in batch.chunk_by(Edit::is_one_step) {
        for part in run.chunks(OLD_ITEMS_MAX) {
            let mut answers = Vec::new();
            let (script, doing) = match part[0] {
                Edit::Cancel(_) | Edit::CancelGone(_) => (&calls.scripts.source.cancel, "cancel at the source shard"),
                Edit::CancelIf { .. } | Edit::TakeOut { .. } => {
                    (&calls.scripts.source.cancel_if, "cancel by condition at the source shard")
                }
                Edit::Reschedule(..) => (&calls.scripts.source.reschedule, "reschedule at the source shard"),
            };
            let fill = |cmd: &mut Cmd, named: &Named| match part[0] {
                // A note is for the home.
                Edit::Cancel(_) | Edit::CancelGone(_) => edit::name_ids(cmd, part, Notes::None, named),
                Edit::CancelIf { .. } | Edit::TakeOut { .. } => edit::name_versions(cmd, part, named),
                Edit::Reschedule(..) => edit::name_moments(calls, cmd, shard, part, named),
            };
            let (found, reply) = at_source(calls, doing, script, shard, present, part.len(), fill).await?;
            let there = found.there(part).len();
            if there > 0 {
                match part[0] {
                    Edit::Cancel(_) | Edit::CancelGone(_) => edit::read_cancelled(there, reply, &mut answers)?,
                    Edit::CancelIf { .. } | Edit::TakeOut { .. } => {
                        edit::read_cancelled_if(there, reply, &mut answers)?
                    }
                    Edit::Reschedule(..) => edit::read_rescheduled(there, reply, &mut answers)?,
                }
            }
            all.extend(found.fill(answers)?.into_iter().map(Edited::at_source));
        }
    }
    Ok(all)
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
        let there = found.there(part).into_iter();
        let messages = if found.is_any_there() { read::messages(there, reply)? } else { Vec::new() };
        let read = found.fill(messages)?;
        all.extend(read.into_iter().map(|read| match read {
            Lookup::Found(message) => message,
            Lookup::Frozen => Lookup::Frozen,
            Lookup::Absent(became) => Lookup::Absent(became),
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
    let (mut all, present) = (Vec::with_capacity(batch.len()), CallerTime::new(now));
    for part in batch.chunks(OLD_ITEMS_MAX) {
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
        let outcomes = if found.is_any_there() { ints(reply)? } else { Vec::new() };
        all.extend(found.fill(outcomes.into_iter().map(settle::read).collect())?);
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
    let (mut all, present) = (Vec::with_capacity(ids.len()), CallerTime::new(now));
    for part in ids.chunks(OLD_ITEMS_MAX) {
        let fill = |cmd: &mut Cmd, named: &Named| settle::name_dead(calls, cmd, shard, part, action, named);
        let script = &calls.scripts.source.settle_dead;
        let doing = "settle dead letters at the source shard";
        let (found, reply) = at_source(calls, doing, script, shard, present, part.len(), fill).await?;
        let done = if found.is_any_there() { ints(reply)? } else { Vec::new() };
        all.extend(found.fill(done.into_iter().map(|done| done == 1).collect())?);
    }
    Ok(all)
}
