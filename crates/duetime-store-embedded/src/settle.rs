//! Settlements of claims, and of dead letters.

use std::time::Duration;

use duetime_core::limits::{BATCH_ITEMS_MAX, REASON_BYTES_MAX};
use duetime_core::store::{DeadAction, DeadKept, Settle, Settled, Settlement};
use duetime_core::{End, LeaseClass, MessageId, Score, Successor, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::body;
use crate::enqueue::forget_dead;
use crate::fault::is_corrupt;
use crate::past;
use crate::shard::ShardState;

/// What an extension of a batch asked for, and the deadline it was given.
type GivenDeadline = ((Duration, LeaseClass), (Timestamp, LeaseClass));

/// Settles the batch, item by item.
pub fn settle(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    batch: &[Settle],
) -> rusqlite::Result<Vec<Settled>> {
    // Extensions of one batch share a deadline, like the messages of one claim.
    let mut deadlines: Vec<GivenDeadline> = Vec::new();
    let mut settle = |item: &Settle| {
        if state.damage.passes_id(&item.id) {
            return Ok(Settled::Expired);
        }
        let settled = one(conn, state, now, item, &mut deadlines);
        // Its place is damaged: the batch is tried again without it.
        if settled.as_ref().is_err_and(is_corrupt) {
            state.damage.pass_over_id(&item.id);
        }
        settled
    };
    batch.iter().map(&mut settle).collect()
}

fn one(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    item: &Settle,
    deadlines: &mut Vec<GivenDeadline>,
) -> rusqlite::Result<Settled> {
    let (claimed, attempts) = (item.score, item.score.attempts());
    if !claimed.class().is_held() {
        return Ok(Settled::Expired);
    }
    if let Settlement::Repeat(next) = &item.action {
        return repeat(conn, state, now, item, next);
    }
    if let Some(end) = item.action.end() {
        let sql = "DELETE FROM message WHERE shard = ?1 AND id = ?2 AND score = ?3 RETURNING length(body), substr(body, 1, 17)";
        let at = params![state.key, item.id.as_str(), claimed.raw()];
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get::<_, Vec<u8>>(1)?));
        let Some((bytes, head)) = conn.prepare_cached(sql)?.query_row(at, read).optional()? else {
            let became = past::became(conn, state.key, state.memory, now, &item.id)?;
            let is_done = became.is_some_and(|became| became.is_ack_of(claimed));
            return Ok(if is_done && item.action == Settlement::Ack { Settled::Already } else { Settled::Expired });
        };
        past::ended(conn, state, now, &item.id, (end, claimed), &head)?;
        state.removed(claimed);
        state.freed(bytes);
        return Ok(Settled::Ok);
    }
    let sql = "SELECT key, substr(body, 1, 17) FROM message WHERE shard = ?1 AND id = ?2 AND score = ?3";
    let found: Option<(i64, Vec<u8>)> = conn
        .prepare_cached(sql)?
        .query_row(params![state.key, item.id.as_str(), claimed.raw()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((key, head)) = found else { return Ok(Settled::Expired) };
    let (score, answer) = match &item.action {
        Settlement::Ack | Settlement::Remove | Settlement::Expire | Settlement::Repeat(_) => {
            unreachable!("settled above")
        }
        Settlement::Bury(reason) => {
            bury(conn, state, now, key, item.id.as_str(), claimed, reason)?;
            return Ok(Settled::Ok);
        }
        Settlement::Nack(delay) => (Score::new(now.plus(*delay), LeaseClass::FREE, attempts), Settled::Ok),
        Settlement::Unanswered { wait, charged } => {
            let attempts = attempts.saturating_sub(u8::from(!charged));
            (Score::new(now.plus(*wait), LeaseClass::SUSPECT, attempts), Settled::Ok)
        }
        Settlement::Defer(delay) => {
            (Score::new(now.plus(*delay), LeaseClass::FREE, attempts.saturating_sub(1)), Settled::Ok)
        }
        Settlement::Release => {
            let due_at = body::head(&head).map_or(now, |(due_at, _)| due_at);
            (Score::new(due_at, LeaseClass::FREE, attempts.saturating_sub(1)), Settled::Ok)
        }
        Settlement::Extend(by, class) => {
            let asked = (*by, *class);
            let known = deadlines.iter().find(|(of, _)| *of == asked).map(|(_, deadline)| *deadline);
            let (deadline, class) = known.unwrap_or_else(|| {
                let given = state.unique_deadline(now, *by, *class);
                deadlines.push((asked, given));
                given
            });
            let score = Score::new(deadline, class, attempts);
            (score, Settled::Extended(score))
        }
    };
    conn.prepare_cached("UPDATE message SET score = ?2 WHERE key = ?1")?.execute([key, score.raw()])?;
    state.removed(claimed);
    state.added(score);
    Ok(answer)
}

/// Ends a message of a series and writes the next one in its place.
fn repeat(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    item: &Settle,
    next: &Successor,
) -> rusqlite::Result<Settled> {
    let (claimed, id) = (item.score, &item.id);
    let sql = "SELECT key, length(body), substr(body, 1, 17) FROM message WHERE shard = ?1 AND id = ?2 AND score = ?3";
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let at = params![state.key, id.as_str(), claimed.raw()];
    let found: Option<(i64, i64, Vec<u8>)> = conn.prepare_cached(sql)?.query_row(at, read).optional()?;
    let Some((key, bytes, head)) = found else {
        let became = past::became(conn, state.key, state.memory, now, id)?;
        let is_done = next.end == End::Delivered && became.is_some_and(|became| became.is_ack_of(claimed));
        return Ok(if is_done { Settled::Already } else { Settled::Expired });
    };
    past::ended(conn, state, now, id, (next.end, claimed), &head)?;
    let mut body = body::encode_parts(id.as_str(), next.nonce, &next.headers, &next.payload);
    body::set_due(&mut body, next.due_at);
    let score = Score::new(next.due_at, LeaseClass::FREE, 0);
    let sql = "UPDATE message SET score = ?2, body = ?3, undone = NULL WHERE key = ?1";
    conn.prepare_cached(sql)?.execute(params![key, score.raw(), body])?;
    state.removed(claimed);
    state.added(score);
    state.freed(bytes);
    state.stored(body.len());
    Ok(Settled::Ok)
}

/// Moves a live message to the dead letters; its body stays.
pub fn bury(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    key: i64,
    id: &str,
    was: Score,
    reason: &str,
) -> rusqlite::Result<()> {
    conn.prepare_cached("UPDATE message SET score = NULL, undone = NULL WHERE key = ?1")?.execute([key])?;
    state.removed(was);
    // Behind the last one that is there: a clock that was ahead leaves nothing behind once its dead letters are gone.
    let mut last = conn.prepare_cached("SELECT max(cursor) FROM dead WHERE shard = ?1")?;
    let last: Option<i64> = last.query_row([state.key], |row| row.get(0))?;
    let cursor = (now.as_millis() * 1000).max(last.map_or(0, |last| last + 1));
    (state.dead, state.meta.last_dead, state.changed) = (state.dead + 1, cursor, true);
    let sql = "INSERT INTO dead (shard, cursor, id, attempts, reason) VALUES (?1, ?2, ?3, ?4, ?5)";
    let kept = &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)];
    conn.prepare_cached(sql)?.execute(params![state.key, cursor, id, was.attempts(), kept])?;
    Ok(())
}

/// Redrives or purges dead letters.
pub fn resolve_dead_letters(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    ids: &[MessageId],
    action: DeadAction,
) -> rusqlite::Result<Vec<bool>> {
    let score = Score::new(now, LeaseClass::FREE, 0);
    let mut answers = Vec::with_capacity(ids.len());
    for id in ids {
        let mut head: Option<(i64, Vec<u8>)> = None;
        let changed = match action {
            DeadAction::Purge => {
                let sql = "DELETE FROM message WHERE shard = ?1 AND id = ?2 AND score IS NULL \
                           RETURNING length(body), substr(body, 1, 17)";
                let at = params![state.key, id.as_str()];
                let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
                head = conn.prepare_cached(sql)?.query_row(at, read).optional()?;
                head.as_ref().inspect(|(bytes, _)| state.freed(*bytes)).is_some()
            }
            DeadAction::Redrive => redrive(conn, state, id, score)?,
        };
        if changed {
            let attempts = forget_dead(conn, state, id)?;
            if let Some((_, head)) = &head {
                past::ended(conn, state, now, id, (End::Dead, attempts), head)?;
            }
            if action == DeadAction::Redrive {
                state.added(score);
            }
        } else if action == DeadAction::Purge {
            past::unmark(conn, state, id)?;
        }
        answers.push(changed);
    }
    Ok(answers)
}

/// Removes the oldest dead letters, those that are not kept; how many.
pub fn expire_dead_letters(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    kept: DeadKept,
) -> rusqlite::Result<u64> {
    let sql = "SELECT id, cursor FROM dead WHERE shard = ?1 ORDER BY cursor LIMIT ?2";
    let read = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, Score::from_raw(row.get(1)?).visible_at()));
    let mut found = conn.prepare_cached(sql)?;
    let oldest = found.query_map(params![state.key, BATCH_ITEMS_MAX as i64], read)?;
    let oldest = oldest.collect::<rusqlite::Result<Vec<(String, Timestamp)>>>()?;
    let ends =
        |(older, (_, died_at)): &(usize, &(String, Timestamp))| kept.removes(*older as u64, state.dead, *died_at, now);
    let ends = oldest.iter().enumerate().take_while(ends);
    let ids: Vec<MessageId> = ends.filter_map(|(_, (id, _))| MessageId::new(id).ok()).collect();
    let removed = resolve_dead_letters(conn, state, now, &ids, DeadAction::Purge)?;
    Ok(removed.into_iter().filter(|removed| *removed).count() as u64)
}

/// Schedules a dead letter and counts that in its body; false: it is not one.
fn redrive(conn: &Connection, state: &mut ShardState, id: &MessageId, score: Score) -> rusqlite::Result<bool> {
    let sql = "SELECT key, body FROM message WHERE shard = ?1 AND id = ?2 AND score IS NULL";
    let at = params![state.key, id.as_str()];
    let found = conn.prepare_cached(sql)?.query_row(at, |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((key, body)): Option<(i64, Vec<u8>)> = found else { return Ok(false) };
    match body::redriven(id.as_str(), &body) {
        Some(counted) => {
            let sql = "UPDATE message SET score = ?2, body = ?3, undone = NULL WHERE key = ?1";
            conn.prepare_cached(sql)?.execute(params![key, score.raw(), counted])?;
            state.freed(i64::try_from(body.len()).unwrap_or(i64::MAX));
            state.stored(counted.len());
        }
        None => {
            conn.prepare_cached("UPDATE message SET score = ?2 WHERE key = ?1")?.execute([key, score.raw()])?;
        }
    }
    Ok(true)
}
