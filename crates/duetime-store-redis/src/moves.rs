//! Moves between shards: fence, scan, take, put, memory, rename_batch, drop.

use std::ops::Range;

use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_BYTES_MAX};
use duetime_core::resize_store::{
    ApplyOutcome, Batch, BatchId, Cursor, DeadlineFloor, Fenced, FrozenState, Inspected, Replication, ScanPage, Scanned,
};
use duetime_core::store::StoreError;
use duetime_core::{MessageId, MessageState, Routing, Shard, TopicName};
use duetime_redis::{Backing, Sending};
use redis::{Cmd, Value};
use tracing::error;

use crate::caller_time::{CallerTime, HINT_WITHIN, millis};
use crate::calls::Calls;
use crate::keys::{Keys, wake_stem};
use crate::record::{name, nonce_text, outbox};
use crate::reply::{array, count, id, int, score, text, tuple, unexpected_reply};
use crate::retry::run_until_answered;
use crate::shard_creation::FenceMode;
use crate::{catalog, look, seal, shard_creation};

pub(crate) async fn fence_shard(
    calls: &Calls,
    topic: &TopicName,
    index: u32,
    record: &Routing,
    above: &DeadlineFloor,
) -> Result<Fenced, StoreError> {
    let making = if record.may_lack(index) { FenceMode::New } else { FenceMode::Never };
    let shard = record.shard(topic, index);
    if catalog::life(calls, topic).await? != Some(record.life()) {
        return Err(StoreError::UnknownShard(shard.to_string()));
    }
    let fenced = match fence_once(calls, &shard, record, above, making, 0).await {
        // What a failover brought back of a topic that was deleted may go.
        Err(StoreError::Occupied { .. }) => {
            let deleted = catalog::deleted_life(calls, topic).await?;
            fence_once(calls, &shard, record, above, making, deleted).await
        }
        fenced => fenced,
    };
    if let Err(StoreError::NotReady(_)) = fenced {
        return Err(StoreError::Stale(Box::new(seal::lift(calls, topic, record).await?)));
    }
    let fenced = fenced.inspect_err(|error| calls.refused(error))?;
    if fenced.before.as_ref().is_some_and(|before| has_gone_back(before, record, index)) {
        error!(
            %shard,
            "a shard came back as it was before a change of the shard count; what was moved since may be twice, and a \
             cancel may be undone until all of it is home: see an empty master in docs/OPERATIONS.md"
        );
    }
    // The topic may have been deleted between the look above and the script. Where its record is gone without
    // that, the shard may hold messages by now, and stays for whoever adopts them.
    if fenced.before.is_none() && catalog::life(calls, topic).await? != Some(record.life()) {
        if catalog::deleted_life(calls, topic).await? >= record.life() {
            shard_creation::delete_shard(calls, &shard, record.life()).await?;
        }
        return Err(StoreError::UnknownShard(shard.to_string()));
    }
    Ok(fenced)
}

/// Whether shard `index`, whose last record was `before`, has come back as it was before a change to `present` ended:
/// until then every shard of the topic hears of the change.
fn has_gone_back(before: &Routing, present: &Routing, index: u32) -> bool {
    !present.is_moving() && index < present.shards && before.life() == present.life() && before.shards != present.shards
}

/// A shard that ids are to move into for the first time is noted before it takes any.
async fn fence_once(
    calls: &Calls,
    shard: &Shard,
    record: &Routing,
    above: &DeadlineFloor,
    mut making: FenceMode,
    deleted: u64,
) -> Result<Fenced, StoreError> {
    if making == FenceMode::New && record.is_moving() {
        shard_creation::create_recorded(calls, shard, record, deleted).await?;
        making = FenceMode::Never;
    }
    let fenced = shard_creation::fence_making(calls, shard, record, above, making, deleted).await?;
    // One that was closed until then is new to whoever asks.
    Ok(Fenced { before: fenced.before.filter(|before| before.change() > 0), ..fenced })
}

pub(crate) async fn inspect_shards(
    calls: &Calls,
    topic: &TopicName,
    indexes: Range<u32>,
) -> Result<Vec<Option<Inspected>>, StoreError> {
    Ok(look::look_at_shards(calls, topic, indexes).await?.into_iter().map(|found| found.inspected).collect())
}

pub(crate) async fn scan_shard(
    calls: &Calls,
    shard: &Shard,
    from: Option<&Cursor>,
    limit: usize,
) -> Result<ScanPage, StoreError> {
    let start = ("", "l".to_owned(), "0".to_owned());
    let asked = from.and_then(|cursor| {
        let mut words = cursor.0.split(' ');
        Some((words.next()?, words.next()?.to_owned(), words.next()?.to_owned()))
    });
    let mut first = asked.is_none();
    let (of, mut part, mut at) = asked.unwrap_or(start);
    loop {
        let fill = |cmd: &mut Cmd, _: &Sending| {
            cmd.arg(&part).arg(&at).arg(limit.clamp(1, BATCH_ITEMS_MAX));
        };
        let doing = "scan a shard";
        let (reply, backing) =
            calls.on_shard_replicated(doing, &calls.scripts.scan, shard, CallerTime::none(), None, fill).await?;
        if !first && backing.server != of {
            // The cursor is another server's: this page means nothing.
            (first, part, at) = (true, "l".to_owned(), "0".to_owned());
            continue;
        }
        let [next, pairs, revived] = tuple(reply)?;
        let next = text(next).ok_or_else(|| unexpected_reply("a cursor was expected"))?;
        let mut found = Vec::new();
        for pair in array(pairs)?.chunks_exact(2) {
            // The entry that is never claimed has no score.
            let Some(score) = score(&pair[1])? else { continue };
            let state = match part.as_str() {
                "d" => MessageState::Dead,
                _ if score.class().is_held() => MessageState::InFlight,
                _ => MessageState::Scheduled,
            };
            found.push(Scanned { id: id(&pair[0])?, state, visible_at: score.visible_at() });
        }
        let next = match (next.as_str(), part.as_str()) {
            ("0", "l") => Some(format!("{} d 0", backing.server)),
            ("0", _) => None,
            (next, part) => Some(format!("{} {part} {next}", backing.server)),
        };
        return Ok(ScanPage { first, found, next: next.map(Cursor), revived: count(&revived)? });
    }
}

pub(crate) async fn take_messages(
    calls: &Calls,
    shard: &Shard,
    to: u32,
    ids: &[MessageId],
    nonce: u64,
) -> Result<Option<Batch>, StoreError> {
    let ids = &ids[..ids.len().min(BATCH_ITEMS_MAX)];
    if ids.is_empty() {
        return read_outbox(calls, shard).await;
    }
    let fill = |cmd: &mut Cmd, _: &Sending| {
        cmd.arg(to).arg(nonce_text(nonce)).arg(CLAIM_BYTES_MAX).arg(u8::from(shard.in_flight.is_some()));
        for id in ids {
            cmd.arg(id.as_str());
        }
    };
    let (reply, _) =
        calls.on_shard_replicated("take messages", &calls.scripts.take, shard, CallerTime::none(), None, fill).await?;
    outbox(shard.index, reply)
}

pub(crate) async fn read_outbox(calls: &Calls, shard: &Shard) -> Result<Option<Batch>, StoreError> {
    let run =
        calls.on_shard_replicated("read an outbox", &calls.scripts.outbox, shard, CallerTime::none(), None, |_, _| {});
    outbox(shard.index, run.await?.0)
}

pub(crate) async fn check_room(calls: &Calls, shard: &Shard) -> Result<(), StoreError> {
    let (key, none) = (calls.keys.messages(shard), |_: &mut Cmd, _: &Sending| {});
    let arguments = |record| calls.arguments(Keys::fill_all, shard, record, CallerTime::none(), &none);
    let run = |record| calls.link.script(&calls.scripts.room, &key, arguments(record));
    run_until_answered("look whether a shard takes messages", shard, None, run).await.map(drop)
}

pub(crate) async fn put_batch(calls: &Calls, shard: &Shard, batch: &Batch) -> Result<ApplyOutcome, StoreError> {
    let (reply, backing) = run_put(calls, shard, &batch.from.to_string(), batch).await?;
    let kept = if backing.replicas > 0 { Replication::Replicated } else { Replication::Unreplicated };
    match reply {
        Value::Int(fresh) => Ok(ApplyOutcome::Done { fresh: u64::try_from(fresh).unwrap_or(0), kept }),
        other => {
            let last =
                text(other).and_then(|text| name(&text)).ok_or_else(|| unexpected_reply("the name of a batch"))?;
            Ok(ApplyOutcome::Conflict { last: last.0 })
        }
    }
}

pub(crate) async fn restore_batch(calls: &Calls, shard: &Shard, batch: &Batch) -> Result<bool, StoreError> {
    let (reply, _) = run_put(calls, shard, "", batch).await?;
    Ok(matches!(reply, Value::Int(_)))
}

/// `source`: where the batch comes from, empty: it goes back there.
async fn run_put(calls: &Calls, shard: &Shard, source: &str, batch: &Batch) -> Result<(Value, Backing), StoreError> {
    if batch.messages.len() > BATCH_ITEMS_MAX {
        return Err(StoreError::Setup(format!("a batch has at most {BATCH_ITEMS_MAX} messages")));
    }
    let fill = |cmd: &mut Cmd, _: &Sending| {
        cmd.arg(source).arg(batch.name.number).arg(nonce_text(batch.name.nonce));
        cmd.arg(calls.keys.wake_channel()).arg(wake_stem(shard)).arg(millis(HINT_WITHIN));
        cmd.arg(batch.messages.len());
        for message in &batch.messages {
            cmd.arg(message.id.as_str());
        }
        for message in &batch.messages {
            let there = message.body.is_some();
            match &message.state {
                FrozenState::Live(score) => cmd.arg(if there { "l" } else { "L" }).arg(score.raw()).arg(""),
                FrozenState::Dead { at, attempts, reason } => {
                    cmd.arg(if there { "d" } else { "D" }).arg(at).arg(format!("{attempts} {reason}"))
                }
            };
            cmd.arg(message.body.as_deref().unwrap_or_default());
        }
    };
    calls.on_shard_replicated("put a batch", &calls.scripts.put, shard, CallerTime::none(), None, fill).await
}

pub(crate) async fn remembered(calls: &Calls, shard: &Shard, from: u32) -> Result<Option<BatchId>, StoreError> {
    let fill = |cmd: &mut Cmd, _: &Sending| {
        cmd.arg(from);
    };
    let doing = "look up a batch";
    match calls.on_shard_replicated(doing, &calls.scripts.memory, shard, CallerTime::none(), None, fill).await?.0 {
        Value::Nil => Ok(None),
        value => {
            let named =
                text(value).and_then(|text| name(&text)).ok_or_else(|| unexpected_reply("the name of a batch"))?;
            Ok(Some(named.0))
        }
    }
}

pub(crate) async fn hand_over_places(calls: &Calls, shard: &Shard, places: u32) -> Result<u64, StoreError> {
    let fill = |cmd: &mut Cmd, _: &Sending| {
        cmd.arg(places);
    };
    let (doing, script) = ("hand over places", &calls.scripts.places);
    let (in_flight, _) = calls.on_shard_replicated(doing, script, shard, CallerTime::none(), None, fill).await?;
    count(&in_flight)
}

/// Another name for the batch in the outbox, or, without one, the end of it.
pub(crate) async fn rename_batch(
    calls: &Calls,
    shard: &Shard,
    seen: u64,
    new: Option<BatchId>,
) -> Result<bool, StoreError> {
    let fill = |cmd: &mut Cmd, _: &Sending| {
        cmd.arg(nonce_text(seen));
        match new {
            Some(new) => cmd.arg(new.number).arg(nonce_text(new.nonce)),
            None => cmd.arg("").arg(""),
        };
    };
    let doing = if new.is_some() { "rename_batch a batch" } else { "drop a batch" };
    let (reply, _) =
        calls.on_shard_replicated(doing, &calls.scripts.renumber, shard, CallerTime::none(), None, fill).await?;
    Ok(int(&reply)? == 1)
}

#[cfg(test)]
mod tests {
    use duetime_core::ChangeId;
    use duetime_core::routing::RoutingState;

    use super::*;

    #[test]
    fn a_shard_that_missed_a_whole_change_has_gone_back() {
        let first = Routing::first(4, ChangeId(1));
        let moving = Routing { epoch: 2, previous: 4, shards: 8, state: RoutingState::Moving, ..first.clone() };
        let stable = Routing { state: RoutingState::Stable, ..moving.clone() };
        assert!(has_gone_back(&first, &stable, 3));
        assert!(!has_gone_back(&first, &moving, 3), "it hears of the change now");
        assert!(!has_gone_back(&moving, &stable, 3), "it heard of the change, and not yet of its end");
        let fewer = Routing { epoch: 4, previous: 8, shards: 2, ..stable.clone() };
        assert!(!has_gone_back(&stable, &fewer, 3), "nobody tells a retired shard");
    }
}
