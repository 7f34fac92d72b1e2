//! Claims: what is due, oldest first, hidden from others until its deadline.

use bytes::Bytes;
use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_BYTES_MAX};
use duetime_core::store::{Claim, ClaimRequest, ClaimedMessage};
use duetime_core::{
    DeliveryMode, End, LeaseClass, MessageId, Receipt, RetryPolicy, Score, StoreError, Timestamp, envelope,
};
use rusqlite::{Connection, Row, params};

use crate::body;
use crate::fault::{Fault, is_corrupt};
use crate::past;
use crate::settle::bury;
use crate::shard::{Answered, ShardState};

/// No message has such a score: the base of a claim that holds nothing.
const NOTHING_HELD: i64 = -1000;

/// A claimed message whose body is still to be decoded, by the caller.
#[derive(Debug)]
pub struct ClaimedRow {
    id: String,
    score: Score,
    attempt: u8,
    suspect: bool,
    body: Bytes,
}

impl ClaimedRow {
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

struct FoundRow {
    key: i64,
    id: String,
    score: Score,
    body: Vec<u8>,
}

fn read_row(row: &Row<'_>) -> rusqlite::Result<FoundRow> {
    Ok(FoundRow { key: row.get(0)?, id: row.get(1)?, score: Score::from_raw(row.get(2)?), body: row.get(3)? })
}

/// Takes what is due. The claim comes without its messages, which are beside it.
pub fn claim(
    conn: &Connection,
    state: &mut ShardState,
    caller: Timestamp,
    request: &ClaimRequest,
) -> Result<(Claim, Vec<ClaimedRow>), Fault> {
    let now = caller;
    if let Some(back) = state.note(now) {
        crate::clock::was_put_back(back);
    }
    let mut claim = Claim { now, later: now, ..Claim::default() };
    let taken = match state.meta.answered.iter().find(|a| a.request == request.request).copied() {
        Some(answered) => held(conn, state, answered)?,
        None => take(conn, state, now, request, &mut claim)?,
    };
    if state.damage.is_found() {
        state.forget_head();
    }
    claim.next_due = state.head(conn)?.map(|raw| Score::from_raw(raw).visible_at());
    claim.due_left = state.due(conn, now)?;
    claim.is_full &= state.room() == Some(0);
    Ok((claim, taken))
}

/// What an answered claim still holds.
fn held(conn: &Connection, state: &ShardState, answered: Answered) -> rusqlite::Result<Vec<ClaimedRow>> {
    let sql = "SELECT key, id, score, body FROM message WHERE shard = ?1 AND score BETWEEN ?2 AND ?3 ORDER BY key";
    let mut select = conn.prepare_cached(sql)?;
    let rows = select.query_map(params![state.key, answered.base, answered.base + 99], read_row)?;
    rows.map(|row| {
        let FoundRow { id, score, body, .. } = row?;
        Ok(ClaimedRow { id, score, attempt: score.attempts(), suspect: answered.suspect, body: body.into() })
    })
    .collect()
}

fn take(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    request: &ClaimRequest,
    claim: &mut Claim,
) -> rusqlite::Result<Vec<ClaimedRow>> {
    let last = Score::due_at_most(now).raw();
    if state.head(conn)?.is_none_or(|head| head > last) {
        return Ok(Vec::new());
    }
    let limit = room(conn, state, last, request, claim)?;
    if limit == 0 {
        return Ok(Vec::new());
    }
    let (picked, suspect) = pick(conn, state, now, (request, limit), claim)?;
    if picked.is_empty() {
        return Ok(Vec::new());
    }
    let once = request.delivery == DeliveryMode::AtMostOnce;
    let (deadline, class) =
        if once { (now, request.class) } else { state.unique_deadline(now, request.visibility, request.class) };
    // The first claim keeps when the message was due: until then its score says it.
    let mut hide = conn.prepare_cached(if state.memory.watermark {
        "UPDATE message SET score = ?2, undone = coalesce(undone, score / 1000) WHERE key = ?1"
    } else {
        "UPDATE message SET score = ?2 WHERE key = ?1"
    })?;
    let mut remove = conn.prepare_cached("DELETE FROM message WHERE key = ?1")?;
    let mut taken = Vec::with_capacity(picked.len());
    for FoundRow { key, id, score: was, body } in picked {
        let attempt = was.attempts() + 1;
        let score = if once {
            around(state, key, was, remove.execute([key]))?;
            state.removed(was);
            state.freed(body.len() as i64);
            if let Ok(id) = MessageId::new(&id) {
                past::ended(conn, state, now, &id, (End::Delivered, Score::from_raw(i64::from(attempt))), &body)?;
            }
            Receipt::SETTLED
        } else {
            let score = Score::new(deadline, class, attempt);
            around(state, key, was, hide.execute([key, score.raw()]))?;
            state.removed(was);
            state.added(score);
            score
        };
        taken.push(ClaimedRow { id, score, attempt, suspect, body: body.into() });
    }
    let base = if once { NOTHING_HELD } else { Score::new(deadline, class, 0).raw() };
    state.remember(Answered { request: request.request, base, suspect });
    Ok(taken)
}

/// How many messages this claim may take. Where there is a bound of what may be in flight and it leaves fewer than are
/// asked for, claims that ran out since the last look get the score that a claim gives to those it meets: they hold no
/// place, and may stand behind any number of messages that were due before them. O(what has fallen due since).
fn room(
    conn: &Connection,
    state: &mut ShardState,
    last: i64,
    request: &ClaimRequest,
    claim: &mut Claim,
) -> rusqlite::Result<usize> {
    let wanted = request.limit.min(BATCH_ITEMS_MAX);
    claim.is_full = true;
    let left = |state: &ShardState| {
        state.room().map_or(wanted, |room| usize::try_from(room).unwrap_or(usize::MAX).min(wanted))
    };
    if left(state) == wanted {
        return Ok(wanted);
    }
    let sql = "SELECT key, score FROM message WHERE shard = ?1 AND score > ?2 AND score <= ?3 \
               AND score / 100 % 10 BETWEEN 1 AND 8 ORDER BY score LIMIT ?4";
    let mut select = conn.prepare_cached(sql)?;
    let at = params![state.key, state.looked_to, last, BATCH_ITEMS_MAX as i64];
    let found: Vec<(i64, i64)> =
        select.query_map(at, |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?;
    for (key, raw) in &found {
        if state.damage.is_found() && state.damage.passes(*key) {
            continue;
        }
        let score = Score::from_raw(*raw);
        let wait = request.retry.backoff(score.attempts(), 0.0);
        let waits = Score::new(score.visible_at().plus(wait), LeaseClass::SUSPECT, score.attempts());
        hide_until(conn, state, *key, (score, waits))?;
        claim.expired += 1;
    }
    // Others may have the score of the last one.
    let is_all = found.len() < BATCH_ITEMS_MAX;
    state.looked_to = if is_all { last } else { found.last().map_or(last, |(_, raw)| raw - 1) };
    claim.is_full = is_all;
    Ok(left(state))
}

/// Gives a message whose claim ran out another score.
fn hide_until(
    conn: &Connection,
    state: &mut ShardState,
    key: i64,
    (was, score): (Score, Score),
) -> rusqlite::Result<()> {
    let moved = conn.prepare_cached("UPDATE message SET score = ?2 WHERE key = ?1")?.execute([key, score.raw()]);
    around(state, key, was, moved)?;
    state.removed(was);
    state.added(score);
    Ok(())
}

/// Which messages this claim takes: the longest run of ordinary ones, or of suspects, or one that is claimed alone.
fn pick(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    (request, limit): (&ClaimRequest, usize),
    claim: &mut Claim,
) -> rusqlite::Result<(Vec<FoundRow>, bool)> {
    let last = Score::due_at_most(now);
    let (mut picked, mut to_bury, mut to_wait) = (Vec::new(), Vec::new(), Vec::new());
    let (mut bytes, mut suspect) = (0, false);
    let mut source = RowSource::new(conn, state, last, limit as i64)?;
    while let Some(found) = source.next(conn, state)? {
        let score = found.score;
        let ran_out = score.class().is_held();
        let is_suspect = ran_out || score.class() == LeaseClass::SUSPECT;
        let attempts = score.attempts();
        // Of what was never tried nothing is to be decided, as the script of the other store has it.
        let own = if is_suspect || attempts > 0 { envelope::max_attempts(&found.body) } else { None };
        let most = own.unwrap_or(request.retry.max_attempts);
        let is_alone = is_suspect && RetryPolicy::suspect_is_alone(attempts, most);
        if !picked.is_empty() && (is_alone || is_suspect != suspect) {
            break;
        }
        let visible_at = score.visible_at().plus(request.retry.backoff(attempts, 0.0));
        let waits = Score::new(visible_at, LeaseClass::SUSPECT, attempts);
        if attempts >= most {
            let how = if is_suspect { "; the last claim ended without a verdict" } else { "" };
            to_bury.push((found, format!("used up its {attempts} attempts{how}")));
        } else if let Err(reason) = body::check(&found.id, &found.body) {
            to_bury.push((found, reason.to_owned()));
        } else if ran_out && waits > last {
            to_wait.push((found, waits));
        } else {
            bytes += found.body.len();
            if bytes > CLAIM_BYTES_MAX && !picked.is_empty() {
                break;
            }
            picked.push(found);
            suspect = is_suspect;
        }
        claim.expired += u64::from(ran_out);
        if is_alone && !picked.is_empty() {
            break;
        }
    }
    claim.buried = to_bury.len() as u64;
    for (found, reason) in to_bury {
        let buried = bury(conn, state, now, found.key, &found.id, found.score, &reason);
        around(state, found.key, found.score, buried)?;
    }
    for (found, waits) in to_wait {
        hide_until(conn, state, found.key, (found.score, waits))?;
    }
    Ok((picked, suspect))
}

/// A message that cannot be changed is left alone from then on; the claim is tried again without it.
fn around<A>(state: &ShardState, key: i64, score: Score, done: rusqlite::Result<A>) -> rusqlite::Result<A> {
    if let Err(error) = &done
        && is_corrupt(error)
    {
        state.damage.pass_over(key, score.raw());
    }
    done
}

/// What is due, in order. Of a damaged shard, the index is read first and then each message by itself, so
/// that one that cannot be read does not stand in the way of the others.
struct RowSource {
    found: std::vec::IntoIter<FoundRow>,
    keys: std::vec::IntoIter<(i64, i64)>,
}

impl RowSource {
    fn new(conn: &Connection, state: &ShardState, last: Score, limit: i64) -> rusqlite::Result<Self> {
        let (mut found, mut keys) = (Vec::new(), Vec::new());
        if state.damage.is_found() {
            let sql = "SELECT key, score FROM message WHERE shard = ?1 AND score <= ?2 ORDER BY score, key LIMIT ?3";
            let mut select = conn.prepare_cached(sql)?;
            let passed = i64::try_from(state.damage.count(last.raw()).1).unwrap_or(i64::MAX - limit);
            let rows = select.query_map(params![state.key, last.raw(), limit + passed], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
            })?;
            for row in rows {
                let row = row?;
                if !state.damage.passes(row.0) {
                    keys.push(row);
                }
            }
        } else {
            let sql = "SELECT key, id, score, body FROM message WHERE shard = ?1 AND score <= ?2 ORDER BY score, key LIMIT ?3";
            let mut bytes = 0;
            let mut select = conn.prepare_cached(sql)?;
            let mut rows = select.query(params![state.key, last.raw(), limit])?;
            while let Some(row) = rows.next()? {
                let one = read_row(row)?;
                bytes += one.body.len();
                found.push(one);
                // The claim ends before this one; no more bodies than that are held.
                if bytes > CLAIM_BYTES_MAX && found.len() > 1 {
                    break;
                }
            }
        }
        Ok(Self { found: found.into_iter(), keys: keys.into_iter() })
    }

    fn next(&mut self, conn: &Connection, state: &ShardState) -> rusqlite::Result<Option<FoundRow>> {
        if let Some(found) = self.found.next() {
            return Ok(Some(found));
        }
        for (key, score) in self.keys.by_ref() {
            let sql = "SELECT key, id, score, body FROM message WHERE key = ?1";
            match conn.prepare_cached(sql)?.query_row([key], read_row) {
                Ok(found) => return Ok(Some(found)),
                // In the index and not in the table, or in a page that cannot be read.
                Err(rusqlite::Error::QueryReturnedNoRows) => state.damage.pass_over(key, score),
                Err(error) if is_corrupt(&error) => state.damage.pass_over(key, score),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}
