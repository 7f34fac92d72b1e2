//! Claims: what is due, oldest first, hidden from others until its deadline.

use bytes::Bytes;
use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_BYTES_MAX};
use duetime_core::store::{Claim, ClaimRequest, ClaimedMessage};
use duetime_core::{DeliveryMode, LeaseClass, MessageId, Receipt, Score, StoreError, Timestamp};
use rusqlite::{Connection, Row, params};

use crate::body;
use crate::fault::Fault;
use crate::settle::bury;
use crate::shard::{Answered, ShardState};

/// No message has such a score: the base of a claim that holds nothing.
const NOTHING_HELD: i64 = -1000;

/// A claimed message whose body is still to be decoded, by the caller.
#[derive(Debug)]
pub struct Taken {
    id: String,
    score: Score,
    attempt: u8,
    suspect: bool,
    body: Bytes,
}

impl Taken {
    pub fn message(self) -> Result<ClaimedMessage, StoreError> {
        body::check(&self.id, &self.body).map_err(|e| StoreError::Damaged(format!("message {:?}: {e}", self.id)))?;
        let id = MessageId::new(&self.id).map_err(|e| StoreError::Damaged(format!("id {:?}: {e}", self.id)))?;
        let body = body::decode(&self.body).map_err(|e| StoreError::Damaged(format!("message {id}: {e}")))?;
        Ok(ClaimedMessage {
            id,
            score: self.score,
            attempt: self.attempt,
            due_at: body.due_at,
            nonce: body.nonce,
            headers: body.headers,
            payload: body.payload,
            suspect: self.suspect,
        })
    }
}

struct Found {
    key: i64,
    id: String,
    score: Score,
    body: Vec<u8>,
}

fn found(row: &Row<'_>) -> rusqlite::Result<Found> {
    Ok(Found { key: row.get(0)?, id: row.get(1)?, score: Score::from_raw(row.get(2)?), body: row.get(3)? })
}

/// Takes what is due. The claim comes without its messages, which are beside it.
pub fn claim(
    conn: &Connection,
    state: &mut ShardState,
    caller: Timestamp,
    request: &ClaimRequest,
) -> Result<(Claim, Vec<Taken>), Fault> {
    let now = caller;
    if let Some(back) = state.note(now) {
        crate::clock::was_put_back(back);
    }
    let mut claim = Claim { now, ..Claim::default() };
    let taken = match state.meta.answered.iter().find(|a| a.request == request.request).copied() {
        Some(answered) => held(conn, state, answered)?,
        None => take(conn, state, now, request, &mut claim)?,
    };
    claim.next_due = state.head(conn)?.map(|raw| Score::from_raw(raw).visible_at());
    claim.due_left = state.due(conn, now)?;
    Ok((claim, taken))
}

/// What an answered claim still holds.
fn held(conn: &Connection, state: &ShardState, answered: Answered) -> rusqlite::Result<Vec<Taken>> {
    let sql = "SELECT key, id, score, body FROM message WHERE shard = ?1 AND score BETWEEN ?2 AND ?3 ORDER BY key";
    let mut select = conn.prepare_cached(sql)?;
    let rows = select.query_map(params![state.key, answered.base, answered.base + 99], found)?;
    rows.map(|row| {
        let Found { id, score, body, .. } = row?;
        Ok(Taken { id, score, attempt: score.attempts(), suspect: answered.suspect, body: body.into() })
    })
    .collect()
}

fn take(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    request: &ClaimRequest,
    claim: &mut Claim,
) -> rusqlite::Result<Vec<Taken>> {
    let last = Score::due_at_most(now).raw();
    if state.head(conn)?.is_none_or(|head| head > last) {
        return Ok(Vec::new());
    }
    let (picked, suspect) = pick(conn, state, now, request, claim)?;
    if picked.is_empty() {
        return Ok(Vec::new());
    }
    let once = request.delivery == DeliveryMode::AtMostOnce;
    let (deadline, class) =
        if once { (now, request.class) } else { state.unique_deadline(now, request.visibility, request.class) };
    let mut hide = conn.prepare_cached("UPDATE message SET score = ?2 WHERE key = ?1")?;
    let mut remove = conn.prepare_cached("DELETE FROM message WHERE key = ?1")?;
    let mut taken = Vec::with_capacity(picked.len());
    for Found { key, id, score: was, body } in picked {
        let attempt = was.attempts() + 1;
        state.removed(was);
        let score = if once {
            remove.execute([key])?;
            Receipt::SETTLED
        } else {
            let score = Score::new(deadline, class, attempt);
            hide.execute([key, score.raw()])?;
            state.added(score);
            score
        };
        taken.push(Taken { id, score, attempt, suspect, body: body.into() });
    }
    let base = if once { NOTHING_HELD } else { Score::new(deadline, class, 0).raw() };
    state.remember(Answered { request: request.request, base, suspect });
    Ok(taken)
}

/// Which messages this claim takes: the longest run of ordinary ones, or one suspect alone.
fn pick(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    request: &ClaimRequest,
    claim: &mut Claim,
) -> rusqlite::Result<(Vec<Found>, bool)> {
    let last = Score::due_at_most(now);
    let (mut picked, mut to_bury, mut to_wait) = (Vec::new(), Vec::new(), Vec::new());
    let (mut bytes, mut suspect) = (0, false);
    let sql = "SELECT key, id, score, body FROM message WHERE shard = ?1 AND score <= ?2 ORDER BY score LIMIT ?3";
    let mut select = conn.prepare_cached(sql)?;
    let limit = request.limit.min(BATCH_ITEMS_MAX) as i64;
    let mut rows = select.query(params![state.key, last.raw(), limit])?;
    while let Some(row) = rows.next()? {
        let score = Score::from_raw(row.get(2)?);
        let ran_out = score.class().is_held();
        let lonely = ran_out || score.class() == LeaseClass::SUSPECT;
        if lonely && !picked.is_empty() {
            break;
        }
        claim.expired += u64::from(ran_out);
        let attempts = score.attempts();
        let found = found(row)?;
        if attempts >= request.retry.max_attempts {
            let how = if lonely { "; the last claim ended without a verdict" } else { "" };
            to_bury.push((found, format!("used up its {attempts} attempts{how}")));
        } else if let Err(reason) = body::check(&found.id, &found.body) {
            to_bury.push((found, reason.to_owned()));
        } else if lonely {
            let visible_at = score.visible_at().plus(request.retry.backoff(attempts, 0.0));
            let waits = Score::new(visible_at, LeaseClass::SUSPECT, attempts);
            if ran_out && waits > last {
                to_wait.push((found, waits));
                continue;
            }
            picked.push(found);
            suspect = true;
            break;
        } else {
            bytes += found.body.len();
            if bytes > CLAIM_BYTES_MAX && !picked.is_empty() {
                break;
            }
            picked.push(found);
        }
    }
    drop(rows);
    claim.buried = to_bury.len() as u64;
    for (found, reason) in to_bury {
        bury(conn, state, now, found.key, &found.id, found.score, &reason)?;
    }
    for (found, waits) in to_wait {
        conn.prepare_cached("UPDATE message SET score = ?2 WHERE key = ?1")?.execute([found.key, waits.raw()])?;
        state.removed(found.score);
        state.added(waits);
    }
    Ok((picked, suspect))
}
