//! Settles claims, and dead letters.

use duetime_core::limits::{BATCH_ITEMS_MAX, ENQUEUE_BYTES_MAX, REASON_BYTES_MAX};
use duetime_core::store::{AckWait, BatchReply, DeadAction, DeadKept, Settle, Settled, Settlement, StoreError};
use duetime_core::{End, LeaseClass, MessageId, Score, Shard, Timestamp, envelope};
use duetime_redis::{Script, Sending};
use redis::{Cmd, Value};

use crate::caller_time::{CallerTime, millis};
use crate::calls::Calls;
use crate::keys::wake_stem;
use crate::replicas::fewest;
use crate::reply::{int, ints, proves, unexpected_reply};
use crate::reply_cache::{CachedCall, Named};

/// Adds one settlement's arguments.
pub(crate) fn name(cmd: &mut Cmd, item: &Settle) {
    cmd.arg(item.id.as_str()).arg(item.score.raw());
    match &item.action {
        Settlement::Ack => cmd.arg("a").arg("").arg(""),
        Settlement::Remove => cmd.arg("t").arg("").arg(""),
        Settlement::Nack(delay) => cmd.arg("n").arg(millis(*delay)).arg(""),
        Settlement::Defer(delay) => cmd.arg("d").arg(millis(*delay)).arg(""),
        Settlement::Unanswered { wait, charged } => {
            cmd.arg(if *charged { "n" } else { "d" }).arg(millis(*wait)).arg(LeaseClass::SUSPECT.digit())
        }
        Settlement::Release => cmd.arg("r").arg("").arg(""),
        Settlement::Extend(visibility, class) => cmd.arg("e").arg(millis(*visibility)).arg(class.digit()),
        Settlement::Expire => cmd.arg("x").arg("").arg(""),
        Settlement::Bury(reason) => cmd.arg("b").arg(&reason[..reason.floor_char_boundary(REASON_BYTES_MAX)]).arg(""),
        Settlement::Repeat(next) => {
            let body = envelope::encode(next.due_at, next.nonce, &next.headers, &next.payload);
            let kind = if next.end == End::Expired { "y" } else { "s" };
            cmd.arg(kind).arg(&body[..]).arg(next.due_at.as_millis())
        }
    };
}

/// Reads one outcome of the settle script.
pub(crate) fn read(outcome: i64) -> Settled {
    match outcome {
        0 => Settled::Expired,
        1 => Settled::Ok,
        2 => Settled::Already,
        score => Settled::Extended(Score::from_raw(score)),
    }
}

/// A batch in parts of as many items, and as many bytes of bodies, as one script is given; one body may be larger by
/// itself.
fn parts<'a>(places: &'a [usize], batch: &[Settle]) -> Vec<&'a [usize]> {
    let (mut parts, mut from, mut bytes) = (Vec::new(), 0, 0);
    for (at, place) in places.iter().enumerate() {
        bytes += batch[*place].body_bytes();
        if at > from && (at - from == BATCH_ITEMS_MAX || bytes > ENQUEUE_BYTES_MAX) {
            parts.push(&places[from..at]);
            (from, bytes) = (at, batch[*place].body_bytes());
        }
    }
    parts.extend((from < places.len()).then(|| &places[from..]));
    parts
}

pub(crate) async fn settle_claims(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    batch: &[Settle],
    waits: AckWait,
) -> Result<BatchReply<Settled>, StoreError> {
    let (mut answers, mut replicas) = (vec![Settled::Expired; batch.len()], None);
    let present = CallerTime::new(now);
    // A score that no claim can have proves nothing, whatever message happens to have it.
    let proofs: Vec<usize> = (0..batch.len()).filter(|at| proves(batch[*at].score)).collect();
    for part in parts(&proofs, batch) {
        if part.iter().all(|at| batch[*at].action == Settlement::Ack) {
            replicas = fewest(replicas, ack(calls, shard, present, batch, part, waits, &mut answers).await?);
        } else {
            let reached = settle_mixed(calls, shard, present, batch, part, waits, &mut answers).await?;
            replicas = fewest(replicas, reached);
        }
    }
    Ok(BatchReply { answers, replicas })
}

async fn ack(
    calls: &Calls,
    shard: &Shard,
    present: CallerTime,
    batch: &[Settle],
    part: &[usize],
    waits: AckWait,
    answers: &mut [Settled],
) -> Result<Option<u32>, StoreError> {
    let mut order = part.to_vec();
    order.sort_by_key(|at| (batch[*at].score, batch[*at].id.as_str().as_bytes()));
    let claims: Vec<&[usize]> = order.chunk_by(|a, b| batch[*a].score == batch[*b].score).collect();
    let fill = |cmd: &mut Cmd, sending: &Sending| {
        cmd.arg(u8::from(sending.repeated)).arg(claims.len());
        for claim in &claims {
            cmd.arg(batch[claim[0]].score.raw()).arg(claim.len());
            for at in *claim {
                cmd.arg(batch[*at].id.as_str());
            }
        }
    };
    let run = settling(calls, ("ack messages", &calls.scripts.ack), shard, present, waits, None, fill);
    let (reply, reached) = run.await?;
    match reply {
        Value::Int(1) => order.iter().for_each(|at| answers[*at] = Settled::Ok),
        list => read_outcomes(list, &order, answers)?,
    }
    Ok(reached)
}

async fn settle_mixed(
    calls: &Calls,
    shard: &Shard,
    present: CallerTime,
    batch: &[Settle],
    part: &[usize],
    waits: AckWait,
    answers: &mut [Settled],
) -> Result<Option<u32>, StoreError> {
    let call = calls.replies.call(shard);
    let fill = |cmd: &mut Cmd, sending: &Sending| {
        call.named(sending).add(cmd);
        cmd.arg(part.len());
        part.iter().for_each(|at| name(cmd, &batch[*at]));
    };
    let script = &calls.scripts.home.settle;
    let (reply, reached) = settling(calls, ("settle claims", script), shard, present, waits, Some(&call), fill).await?;
    read_outcomes(reply, part, answers)?;
    Ok(reached)
}

/// Takes in what became of the receipts at these places of a batch, in order.
fn read_outcomes(reply: Value, places: &[usize], answers: &mut [Settled]) -> Result<(), StoreError> {
    let outcomes = ints(reply)?;
    if outcomes.len() != places.len() {
        return Err(unexpected_reply("another number of outcomes than of receipts"));
    }
    for (at, outcome) in places.iter().zip(outcomes) {
        answers[*at] = read(outcome);
    }
    Ok(())
}

async fn settling(
    calls: &Calls,
    (doing, script): (&'static str, &Script),
    shard: &Shard,
    present: CallerTime,
    waits: AckWait,
    call: Option<&CachedCall<'_>>,
    fill: impl Fn(&mut Cmd, &Sending) + Send + Sync,
) -> Result<(Value, Option<u32>), StoreError> {
    match waits {
        AckWait::No => Ok((calls.on_shard(doing, script, shard, present, call, fill).await?, None)),
        AckWait::ForReplicas => calls.on_shard_confirmed(doing, script, shard, present, call, fill).await,
    }
}

pub(crate) async fn settle_dead_letters(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    ids: &[MessageId],
    action: DeadAction,
) -> Result<BatchReply<bool>, StoreError> {
    let (mut answers, mut replicas) = (Vec::with_capacity(ids.len()), None);
    let present = CallerTime::new(now);
    for part in ids.chunks(BATCH_ITEMS_MAX) {
        let call = calls.replies.call(shard);
        let fill = |cmd: &mut Cmd, sending: &Sending| name_dead(calls, cmd, shard, part, action, &call.named(sending));
        let script = &calls.scripts.home.settle_dead;
        let run = calls.on_shard_confirmed("settle dead letters", script, shard, present, Some(&call), fill);
        let (done, reached) = run.await?;
        replicas = fewest(replicas, reached);
        for outcome in crate::reply::array(done)? {
            answers.push(int(&outcome)? == 1);
        }
    }
    Ok(BatchReply { answers, replicas })
}

/// Removes the oldest dead letters, those that are not kept, in one script; how many.
pub(crate) async fn expire_dead_letters(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    kept: DeadKept,
) -> Result<u64, StoreError> {
    let call = calls.replies.call(shard);
    let fill = |cmd: &mut Cmd, sending: &Sending| {
        call.named(sending).add(cmd);
        cmd.arg("x").arg(calls.keys.wake_channel()).arg(wake_stem(shard));
        cmd.arg(kept.age.map(millis).map_or_else(String::new, |age| age.to_string()));
        cmd.arg(kept.newest).arg(kept.beyond);
    };
    let (script, present) = (&calls.scripts.home.settle_dead, CallerTime::new(now));
    let run = calls.on_shard_confirmed("expire dead letters", script, shard, present, Some(&call), fill);
    Ok(crate::reply::array(run.await?.0)?.len() as u64)
}

/// Adds the arguments of the settle_dead script behind the epoch.
pub(crate) fn name_dead(
    calls: &Calls,
    cmd: &mut Cmd,
    shard: &Shard,
    part: &[MessageId],
    action: DeadAction,
    named: &Named,
) {
    named.add(cmd);
    cmd.arg(match action {
        DeadAction::Redrive => "r",
        DeadAction::Purge => "p",
    });
    cmd.arg(calls.keys.wake_channel()).arg(wake_stem(shard));
    for id in part {
        cmd.arg(id.as_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_goes_in_parts_of_as_many_items_and_bytes_as_a_script_is_given() {
        let item = |bytes: usize| {
            let mut next = None;
            if bytes > 0 {
                next = Some(Box::new(duetime_core::Successor {
                    end: End::Delivered,
                    due_at: Timestamp::ZERO,
                    nonce: duetime_core::Nonce(1),
                    headers: duetime_core::Headers::default(),
                    payload: vec![0; bytes].into(),
                }));
            }
            let action = next.map_or(Settlement::Ack, Settlement::Repeat);
            Settle { id: MessageId::new("a").unwrap(), score: Score::from_raw(1), action }
        };
        let lens = |sizes: &[usize]| {
            let batch: Vec<Settle> = sizes.iter().map(|bytes| item(*bytes)).collect();
            let places: Vec<usize> = (0..batch.len()).collect();
            parts(&places, &batch).iter().map(|part| part.len()).collect::<Vec<_>>()
        };
        assert_eq!(lens(&[]), [0; 0]);
        assert_eq!(lens(&[0; 600]), [256, 256, 88]);
        let (most, half) = (ENQUEUE_BYTES_MAX, ENQUEUE_BYTES_MAX / 2);
        assert_eq!(lens(&[half, 0, half, half, most + 1, 0]), [3, 1, 1, 1]);
    }
}
