//! Enqueue: what one batch looks like to its script, and what its answer means.

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::memory::OUTCOME_BYTES;
use duetime_core::message::Due;
use duetime_core::store::{Enqueue, EnqueueOutcome, Enqueued, StoreError};
use duetime_core::{OnConflict, Shard, Timestamp, envelope};
use duetime_redis::Sending;
use redis::{Cmd, RedisWrite, Value};
use std::io::Write as _;
use std::time::Duration;

use crate::caller_time::{CallerTime, NEVER_MS, millis};
use crate::calls::Calls;
use crate::keys::wake_stem;
use crate::reply::{self, array, int, ints, tuple, unexpected_reply};
use crate::reply_cache::Named;

const DOING: &str = "enqueue messages";

/// What the script gets for a whole batch.
pub(crate) struct Summary {
    earliest_ms: i64,
    shortest_ms: i64,
    largest: usize,
    conflicts: String,
    /// What earlier homes remember of each id, zeros where nothing; empty: of none.
    earlier: Vec<u8>,
    kinds: String,
    tails: Vec<bytes::Bytes>,
}

impl Summary {
    pub(crate) fn of(batch: &[Enqueue]) -> Self {
        let mut all = Self {
            earliest_ms: NEVER_MS,
            shortest_ms: NEVER_MS,
            largest: 0,
            conflicts: String::with_capacity(batch.len()),
            earlier: Vec::new(),
            kinds: String::with_capacity(batch.len()),
            tails: Vec::with_capacity(batch.len()),
        };
        let mut absolute = true;
        for (at, item) in batch.iter().enumerate() {
            if let OnConflict::ReturnAfter(outcome) = item.on_conflict {
                all.earlier.resize(batch.len() * OUTCOME_BYTES, 0);
                all.earlier[at * OUTCOME_BYTES..][..OUTCOME_BYTES].copy_from_slice(&outcome.encode());
            }
            match item.due {
                Due::At(at) => all.earliest_ms = all.earliest_ms.min(at.as_millis()),
                Due::In(delay) => {
                    absolute = false;
                    all.shortest_ms = all.shortest_ms.min(millis(delay));
                }
            }
            all.kinds.push(if matches!(item.due, Due::At(_)) { 'a' } else { 'd' });
            all.conflicts.push(match item.on_conflict {
                OnConflict::Reject => 'r',
                OnConflict::Replace => 'p',
                OnConflict::Earliest => 'e',
                OnConflict::Latest => 'l',
                OnConflict::Return | OnConflict::ReturnAfter(_) => 'b',
            });
            let tail = envelope::encode_tail(item.nonce, &item.headers, &item.payload);
            all.largest = all.largest.max(tail.len() + envelope::PREFIX_LEN);
            all.tails.push(tail);
        }
        if absolute {
            all.kinds.clear();
        }
        all
    }
}

pub(crate) async fn schedule(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    batch: &[Enqueue],
) -> Result<Vec<Enqueued>, StoreError> {
    let (mut answers, present) = (Vec::with_capacity(batch.len()), CallerTime::new(now));
    for part in batch.chunks(BATCH_ITEMS_MAX) {
        let all = Summary::of(part);
        let call = calls.replies.call(shard);
        let fill = |cmd: &mut Cmd, sending: &Sending| name_batch(calls, cmd, shard, part, &all, &call.named(sending));
        let script = &calls.scripts.home.enqueue;
        let run = calls.on_shard_confirmed(DOING, script, shard, present, Some(&call), fill);
        let (reply, replicas) = run.await.map_err(|error| call.judged(DOING, error))?;
        read(part.iter(), reply, replicas, &mut answers)?;
    }
    Ok(answers)
}

/// Adds the arguments of the script behind the epoch.
pub(crate) fn name_batch(calls: &Calls, cmd: &mut Cmd, shard: &Shard, part: &[Enqueue], all: &Summary, named: &Named) {
    cmd.arg(&named.since).arg(part.len()).arg(all.earliest_ms).arg(all.shortest_ms).arg(all.largest);
    cmd.arg(&all.conflicts).arg(&all.kinds).arg(calls.keys.wake_channel()).arg(wake_stem(shard));
    named.add_slot(cmd);
    for (item, tail) in part.iter().zip(&all.tails) {
        cmd.arg(item.id.as_str());
        match item.due {
            Due::At(at) => {
                let mut body = cmd.writer_for_next_arg();
                let written = body.write_all(&envelope::prefix(at)).and_then(|()| body.write_all(tail));
                written.expect("memory can be written");
            }
            Due::In(_) => {
                cmd.arg(&**tail);
            }
        }
    }
    for item in part {
        match item.due {
            Due::At(at) => cmd.arg(at.as_millis() * 1000),
            Due::In(delay) => cmd.arg(millis(delay)),
        };
        cmd.arg(item.id.as_str());
    }
    if !all.earlier.is_empty() {
        cmd.arg(&all.earlier);
    }
}

/// Reads the answer of the script to `part`.
pub(crate) fn read<'a>(
    part: impl ExactSizeIterator<Item = &'a Enqueue>,
    reply: Value,
    replicas: Option<u32>,
    answers: &mut Vec<Enqueued>,
) -> Result<(), StoreError> {
    if let Value::Int(now) = reply {
        let now = Timestamp::from_millis(now);
        answers.extend(part.map(|item| Enqueued {
            outcome: EnqueueOutcome::Scheduled,
            due_at: match item.due {
                Due::At(at) => at,
                Due::In(delay) => now.plus(Duration::from_millis(millis(delay).unsigned_abs())),
            },
            replicas,
            became: None,
        }));
        return Ok(());
    }
    let [_, outcomes, dues] = tuple(reply)?;
    let (outcomes, dues) = (ints(outcomes)?, array(dues)?);
    if outcomes.len() != part.len() || dues.len() != part.len() {
        return Err(unexpected_reply("another number of outcomes than of messages"));
    }
    for ((outcome, due), item) in outcomes.into_iter().zip(&dues).zip(part) {
        let outcome = match outcome {
            4 => {
                let refused =
                    Enqueued { outcome: EnqueueOutcome::Duplicate, due_at: Timestamp::ZERO, replicas, became: None };
                let told = reply::outcome(due)?.map(|became| Enqueued::remembered(became, item.nonce));
                answers.push(Enqueued { replicas, ..told.unwrap_or(refused) });
                continue;
            }
            0 => EnqueueOutcome::Scheduled,
            1 => EnqueueOutcome::Replaced,
            2 => EnqueueOutcome::of_one_that_stays(item.on_conflict),
            3 => EnqueueOutcome::ReplacedInFlight,
            other => return Err(unexpected_reply(&format!("outcome {other}"))),
        };
        answers.push(Enqueued { outcome, due_at: Timestamp::from_millis(int(due)?), replicas, became: None });
    }
    Ok(())
}
