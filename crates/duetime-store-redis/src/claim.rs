//! Claim: takes what is due.

use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_BYTES_MAX};
use duetime_core::receipt::Receipt;
use duetime_core::store::{AckWait, Claim, ClaimRequest, ClaimedMessage, Settle, Settlement, StoreError};
use duetime_core::{DeliveryMode, InFlightBound, RetryPolicy, Score, Shard, Timestamp, envelope};
use duetime_redis::Sending;
use redis::{Cmd, Value};
use tracing::error;

use crate::abandoned::{Abandoned, OnItsWay};
use crate::caller_time::{CallerTime, millis};
use crate::calls::Calls;
use crate::reply::{array, as_many, bytes, count, id, int, ints, score, tuple, unexpected_reply};
use crate::settle;

pub(crate) async fn take(
    calls: &Calls,
    abandoned: &Abandoned,
    shard: &Shard,
    now: Timestamp,
    ask: &ClaimRequest,
) -> Result<Claim, StoreError> {
    let once = ask.delivery == DeliveryMode::AtMostOnce;
    let present = CallerTime::new(now);
    let earlier = abandoned.earlier(shard, ask);
    let request = earlier.unwrap_or(ask.request);
    let ask_again = ClaimRequest { request, ..ask.clone() };
    let mut on_its_way = OnItsWay::new(abandoned, shard, ask_again);
    let fill = |cmd: &mut Cmd, sending: &Sending| {
        cmd.arg(present.millis()).arg(ask.limit.min(BATCH_ITEMS_MAX)).arg(millis(ask.visibility));
        cmd.arg(ask.class.digit()).arg(ask.retry.max_attempts).arg(&request.to_be_bytes()[..]);
        cmd.arg(CLAIM_BYTES_MAX);
        name_retry(cmd, &ask.retry);
        cmd.arg(u8::from(once)).arg(u8::from(sending.repeated || earlier.is_some()));
        match shard.in_flight {
            InFlightBound::None => cmd,
            InFlightBound::Most(most) => cmd.arg(most),
            InFlightBound::HandedOver(most) => cmd.arg(most).arg(1),
        };
    };
    let reply = match calls.on_shard("claim messages", &calls.scripts.claim, shard, present, None, fill).await {
        Err(error @ StoreError::Unavailable { .. }) => return Err(error),
        other => {
            on_its_way.answered();
            other?
        }
    };
    let (mut claim, unreadable) = read(reply, once)?;
    if !unreadable.is_empty() {
        claim.buried += unreadable.len() as u64;
        bury_unreadable(calls, shard, now, unreadable, once).await?;
    }
    Ok(claim)
}

/// Adds the three arguments of `backoff.lua`.
fn name_retry(cmd: &mut Cmd, retry: &RetryPolicy) {
    if retry.waits.is_empty() {
        cmd.arg(millis(retry.initial)).arg(retry.factor).arg(millis(retry.max));
    } else {
        let waits: Vec<String> = retry.waits.iter().map(|wait| millis(*wait).to_string()).collect();
        cmd.arg(waits.join(" ")).arg("").arg("");
    }
}

async fn bury_unreadable(
    calls: &Calls,
    shard: &Shard,
    now: Timestamp,
    batch: Vec<Settle>,
    once: bool,
) -> Result<(), StoreError> {
    for item in &batch {
        error!(%shard, id = %item.id, reason = ?item.action, "stored body cannot be read");
    }
    if !once {
        settle::settle_claims(calls, shard, now, &batch, AckWait::No).await?;
    }
    Ok(())
}

/// The claim, and what was claimed but cannot be read.
pub(crate) fn read(reply: Value, once: bool) -> Result<(Claim, Vec<Settle>), StoreError> {
    let [now, next, left, buried, expired, alone, base, attempts, ids, bodies, later] = tuple(reply)?;
    let base = int(&base)?;
    let alone = int(&alone)?;
    let (suspect, again, is_full) = (alone & 1 == 1, alone & 2 == 2, alone & 4 == 4);
    let (ids, bodies) = (array(ids)?, array(bodies)?);
    if ids.len() != bodies.len() {
        return Err(unexpected_reply("another number of bodies than of ids"));
    }
    let attempts = match attempts {
        Value::Int(same) => vec![same; ids.len()],
        list => as_many(ids.len(), ints(list)?)?,
    };
    let mut messages = Vec::with_capacity(ids.len());
    let mut unreadable = Vec::new();
    for ((name, body), tries) in ids.iter().zip(bodies).zip(attempts) {
        let id = id(name)?;
        let claimed = if once { Receipt::SETTLED } else { Score::from_raw(base.saturating_add(tries)) };
        let decoded = bytes(body).ok_or_else(|| "it is gone".to_owned());
        match decoded.and_then(|body| envelope::decode(&body).map_err(|error| error.to_string())) {
            Ok(body) => messages.push(ClaimedMessage {
                id,
                score: claimed,
                attempt: u8::try_from(tries).unwrap_or(u8::MAX),
                due_at: body.due_at,
                nonce: body.nonce,
                headers: body.headers,
                payload: body.payload,
                suspect,
            }),
            Err(reason) => unreadable.push(Settle { id, score: claimed, action: Settlement::Bury(reason) }),
        }
    }
    if again {
        // All have one score by now; what is left of their order is the due time.
        messages.sort_by_key(|message| message.due_at);
    }
    let claim = Claim {
        messages,
        now: Timestamp::from_millis(int(&now)?),
        later: Timestamp::from_millis(int(&later)?),
        next_due: score(&next)?.map(Score::visible_at),
        due_left: count(&left)?,
        buried: count(&buried)?,
        expired: count(&expired)?,
        is_full,
    };
    Ok((claim, unreadable))
}
