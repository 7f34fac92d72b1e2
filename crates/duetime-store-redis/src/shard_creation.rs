//! Creates the shards of a new routing: each is created closed, then recorded next to the topic's first shard, then
//! opened. So a shard that is gone later is known to have been there, and counts as lost.
//!
//! Upstream: `moves` (fence), `adopt`.

use std::collections::BTreeSet;
use std::time::Duration;

use duetime_core::resize_store::{DeadlineFloor, Fenced};
use duetime_core::store::StoreError;
use duetime_core::{ChangeId, Routing, Shard, TopicName};
use duetime_redis::Sending;
use redis::{Cmd, Pipeline, Value};

use crate::calls::Calls;
use crate::catalog;
use crate::record::{floor, parity_word, routing, seed_word, state_word};
use crate::reply::{array, int, store_error, text, unexpected_reply};

/// How long the keys of a deleted shard remember its incarnation: longer than any call is in flight. It only spares empty
/// shards that are never used; that no messages are removed does not depend on it.
const REMEMBERED_FOR: Duration = Duration::from_secs(86_400);

/// The id of the record of a shard that is not open yet; its epoch is below that of every record of its incarnation.
const CLOSED: ChangeId = ChangeId(0);

/// Whether a fence creates a shard that does not exist; see `fence.lua`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FenceMode {
    /// The shard must exist.
    Never = 0,
    /// Creates the shard if its keys are unused.
    New = 1,
    /// Creates the shard, and deletes what another incarnation left under its keys.
    Anew = 2,
}

/// Creates `shard` for the change to `record`, if it was not created before, and records it. If it is missing afterwards,
/// it is lost.
pub(crate) async fn create_recorded(
    calls: &Calls,
    shard: &Shard,
    record: &Routing,
    deleted: u64,
) -> Result<(), StoreError> {
    if noted_of(calls, &shard.topic, record, shard.index..shard.index + 1).await?.contains(&shard.index) {
        return Ok(());
    }
    let closed = Routing { change_id: CLOSED, ..record.clone() };
    let closed = Routing { epoch: record.epoch - record.change(), ..closed };
    match fence_making(calls, shard, &closed, &DeadlineFloor::default(), FenceMode::New, deleted).await {
        // A retired shard exists, and has a later record.
        Ok(_) | Err(StoreError::Stale(_)) => {}
        Err(error) => return Err(error),
    }
    let first = record.shard(&shard.topic, 0);
    let fill = |cmd: &mut Cmd, sending: &Sending| {
        calls.keys.fill_all(cmd, &first);
        cmd.arg(record.life()).arg(shard.index).arg(record.epoch).arg(sending.not_after_ms);
    };
    let (script, key) = (&calls.scripts.made, calls.keys.messages(&first));
    let run = calls.link.replicated(script, &key, calls.durability.replicas(), fill).await;
    let (kept, _) = run.map_err(|error| store_error("note that a shard is made", Some(&first), error))?;
    if int(&kept)? == 1 { Ok(()) } else { Err(StoreError::UnknownShard(first.to_string())) }
}

/// Returns which of these shards were created for the change to `record`.
pub(crate) async fn noted_of(
    calls: &Calls,
    topic: &TopicName,
    record: &Routing,
    indexes: std::ops::Range<u32>,
) -> Result<BTreeSet<u32>, StoreError> {
    if indexes.is_empty() {
        return Ok(BTreeSet::new());
    }
    let mut looks = Pipeline::with_capacity(1);
    let look = looks.cmd("HMGET").arg(calls.keys.moved(&record.shard(topic, 0)));
    indexes.clone().for_each(|index| {
        look.arg(format!("made:{index}"));
    });
    let doing = "look which shards were made";
    let answer = calls.link.pipeline("made", &looks).await.map_err(|error| store_error(doing, None, error))?;
    let epochs =
        answer.into_iter().next().ok_or_else(|| unexpected_reply("nothing about the shards that were made"))?;
    let epochs = array(epochs)?.into_iter().map(text);
    let of_it = |epoch: Option<String>| epoch.and_then(|epoch| epoch.parse().ok()) == Some(record.epoch);
    Ok(indexes.zip(epochs).filter(|(_, epoch)| of_it(epoch.clone())).map(|(index, _)| index).collect())
}

pub(crate) async fn fence_making(
    calls: &Calls,
    shard: &Shard,
    record: &Routing,
    above: &DeadlineFloor,
    making: FenceMode,
    deleted: u64,
) -> Result<Fenced, StoreError> {
    let fill = |cmd: &mut Cmd, sending: &Sending| {
        calls.keys.fill_all(cmd, shard);
        cmd.arg(record.epoch).arg(record.change_id.to_string()).arg(record.shards).arg(record.previous);
        cmd.arg(state_word(record.state)).arg(seed_word(record)).arg(deleted).arg(making as u8);
        for (_, deadline) in above.iter() {
            cmd.arg(deadline.as_millis());
        }
        cmd.arg(parity_word(record.deadlines(shard.index))).arg(sending.not_after_ms);
    };
    let (script, key) = (&calls.scripts.fence, calls.keys.messages(shard));
    let run = calls.link.replicated(script, &key, calls.durability.replicas(), fill).await;
    let (reply, _) = run.map_err(|error| store_error("fence a shard", Some(shard), error))?;
    let mut fields = array(reply)?;
    if fields.len() != 14 {
        return Err(unexpected_reply("a fence of another length"));
    }
    let floor = floor(&fields.split_off(6))?;
    let before = <[Value; 6]>::try_from(fields).ok().and_then(routing);
    Ok(Fenced { before, floor })
}

/// Deletes a shard of a deleted incarnation, with everything in it, in one step.
pub(crate) async fn delete_shard(calls: &Calls, shard: &Shard, life: u64) -> Result<(), StoreError> {
    let fill = |cmd: &mut Cmd, sending: &Sending| {
        calls.keys.fill_whole(cmd, shard);
        cmd.arg(life).arg(REMEMBERED_FOR.as_millis().to_string()).arg(sending.not_after_ms);
    };
    let removed = catalog::kept(calls, &calls.scripts.unmake, &calls.keys.messages(shard), fill).await;
    removed.map(drop).map_err(|error| store_error("remove a shard of a deleted topic", Some(shard), error))
}
