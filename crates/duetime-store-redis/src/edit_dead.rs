//! Changes of dead letters that are still what their caller read, at their home and at their source shard.

use duetime_core::limits::{BATCH_ITEMS_MAX, OLD_ITEMS_MAX};
use duetime_core::store::{BatchReply, DeadChange, DeadEdit, DeadEdited, StoreError};
use duetime_core::{Lookup, Shard, Timestamp, envelope};
use duetime_redis::{Script, Sending};
use redis::{Cmd, Value};

use crate::caller_time::CallerTime;
use crate::calls::Calls;
use crate::keys::wake_stem;
use crate::replicas::fewest;
use crate::reply::{as_many, ints, unexpected_reply};
use crate::reply_cache::Named;
use crate::scripts::IdScripts;
use crate::source::at_source;

/// Bytes of payloads and headers that one script writes, unless one message has more.
const BYTES_MAX: usize = 1 << 20;

/// One script for each batch of one kind; see [`duetime_core::MessageStore::edit_dead_letters_at`].
pub(crate) async fn edit_dead(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    edits: &[DeadEdit],
) -> Result<BatchReply<DeadEdited>, StoreError> {
    let (mut answers, mut replicas) = (Vec::with_capacity(edits.len()), None);
    let present = CallerTime::new(now);
    for part in parts(edits, BATCH_ITEMS_MAX) {
        let call = calls.replies.call(shard);
        let tails = tails(part);
        let fill = |cmd: &mut Cmd, sending: &Sending| name(calls, cmd, shard, (part, &tails), &call.named(sending));
        let script = script_of(&calls.scripts.home, part);
        let doing = "change dead letters";
        let run = calls.on_shard_confirmed(doing, script, shard, present, Some(&call), fill);
        let (reply, reached) = run.await.map_err(|error| call.judged(doing, error))?;
        answers.extend(as_many(part.len(), read_all(reply)?)?);
        replicas = fewest(replicas, reached);
    }
    Ok(BatchReply { answers, replicas })
}

/// The same of those that are still at their source shard.
pub(crate) async fn edit_dead_at_source(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    edits: &[DeadEdit],
) -> Result<Vec<Lookup<DeadEdited>>, StoreError> {
    let (mut all, present) = (Vec::with_capacity(edits.len()), CallerTime::new(now));
    for part in parts(edits, OLD_ITEMS_MAX) {
        let tails = tails(part);
        let fill = |cmd: &mut Cmd, named: &Named| name(calls, cmd, shard, (part, &tails), named);
        let script = script_of(&calls.scripts.source, part);
        let doing = "change dead letters at the source shard";
        let (found, reply) = at_source(calls, doing, script, shard, present, part.len(), fill).await?;
        let done = if found.is_any_there() { read_all(reply)? } else { Vec::new() };
        all.extend(found.fill(done)?);
    }
    Ok(all)
}

/// Parts of one kind, of at most so many items, and with more than [`BYTES_MAX`] only where one item has them.
fn parts(edits: &[DeadEdit], items_max: usize) -> impl Iterator<Item = &[DeadEdit]> {
    edits.chunk_by(DeadEdit::is_one_step).flat_map(move |mut run| {
        std::iter::from_fn(move || {
            let mut bytes = 0;
            let fits = |edit: &&DeadEdit| {
                bytes += edit.bytes();
                bytes <= BYTES_MAX
            };
            let count = run.iter().take(items_max).take_while(fits).count().max(1);
            let (part, rest) = run.split_at_checked(count)?;
            run = rest;
            Some(part)
        })
    })
}

fn script_of<'a>(scripts: &'a IdScripts, part: &[DeadEdit]) -> &'a Script {
    if part[0].rewritten().is_some() { &scripts.edit_dead } else { &scripts.move_dead_out }
}

fn tails(part: &[DeadEdit]) -> Vec<bytes::Bytes> {
    let tail = |edit: &DeadEdit| match &edit.change {
        DeadChange::Rewrite { nonce, headers, payload } => envelope::encode_tail(*nonce, headers, payload),
        DeadChange::MoveOut => bytes::Bytes::new(),
    };
    part.iter().map(tail).collect()
}

/// Adds the arguments of the script behind the epoch.
fn name(calls: &Calls, cmd: &mut Cmd, shard: &Shard, (part, tails): (&[DeadEdit], &[bytes::Bytes]), named: &Named) {
    named.add(cmd);
    cmd.arg(if part[0].rewritten().is_some() { "e" } else { "m" });
    cmd.arg(calls.keys.wake_channel()).arg(wake_stem(shard));
    for (edit, tail) in part.iter().zip(tails) {
        cmd.arg(edit.id.as_str()).arg(edit.died_at.as_millis()).arg(&edit.nonce.0.to_be_bytes()[..]).arg(&**tail);
    }
}

fn read_all(reply: Value) -> Result<Vec<DeadEdited>, StoreError> {
    ints(reply)?.into_iter().map(read).collect()
}

fn read(outcome: i64) -> Result<DeadEdited, StoreError> {
    match outcome {
        0 => Ok(DeadEdited::Done),
        1 => Ok(DeadEdited::Changed),
        2 => Ok(DeadEdited::Unknown),
        3 => Ok(DeadEdited::Already),
        _ => Err(unexpected_reply("a changed dead letter is answered by 0 to 3")),
    }
}

#[cfg(test)]
mod tests {
    use duetime_core::{Headers, MessageId, Nonce};

    use super::*;

    fn edit(bytes: Option<usize>) -> DeadEdit {
        let change = match bytes {
            Some(bytes) => {
                DeadChange::Rewrite { nonce: Nonce(1), headers: Headers::default(), payload: vec![b'x'; bytes].into() }
            }
            None => DeadChange::MoveOut,
        };
        DeadEdit { id: MessageId::new("a").unwrap(), nonce: Nonce(0), died_at: Timestamp::ZERO, change }
    }

    #[test]
    fn a_script_has_items_of_one_kind_and_no_more_bytes_than_its_bound_unless_one_item_has_them() {
        let sizes = [Some(BYTES_MAX / 2), Some(BYTES_MAX / 2), Some(1), None, None, Some(2 * BYTES_MAX), Some(1)];
        let edits = sizes.map(edit);
        let lengths = |items_max| parts(&edits, items_max).map(<[DeadEdit]>::len).collect::<Vec<_>>();
        assert_eq!(lengths(256), [2, 1, 2, 1, 1]);
        assert_eq!(lengths(1), [1; 7]);
        assert_eq!(parts(&[], 256).count(), 0);
    }
}
