//! Changes to what is scheduled: cancel and reschedule.

use duetime_core::store::{Edit, Edited, Notes, TakenState};
use duetime_core::{Due, End, MessageId, Nonce, Outcome, Score, Timestamp, Version};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::body;
use crate::edit_dead::find;
use crate::enqueue::{forget_dead, moment_of};
use crate::past;
use crate::shard::ShardState;

/// Carries out the batch, item by item. `notes`: what is done of a cancel that finds nothing.
pub fn edit(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    (batch, notes): (&[Edit], Notes),
) -> rusqlite::Result<Vec<Edited>> {
    let one = |item: &Edit, state: &mut ShardState| match item {
        Edit::Cancel(id) => cancel(conn, state, now, id, notes),
        Edit::CancelGone(id) => cancel(conn, state, now, id, Notes::None),
        Edit::CancelIf { id, version, moved } => {
            let end = if *moved { End::Moved } else { End::Cancelled };
            cancel_if(conn, state, now, id, (*version, end, None))
        }
        Edit::TakeOut { id, nonce, was: TakenState::Scheduled(score), by } => {
            let version = Version { nonce: *nonce, score: *score };
            cancel_if(conn, state, now, id, (version, End::Cancelled, Some(*by)))
        }
        Edit::TakeOut { id, nonce, was: TakenState::Dead(died), by } => {
            take_dead(conn, state, now, id, (*nonce, *died, *by))
        }
        Edit::Reschedule(id, due) => reschedule(conn, state, now, id, *due),
    };
    batch.iter().map(|item| one(item, state)).collect()
}

fn cancel(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    id: &MessageId,
    notes: Notes,
) -> rusqlite::Result<Edited> {
    let sql = "DELETE FROM message WHERE shard = ?1 AND id = ?2 RETURNING score, length(body), substr(body, 1, 17)";
    let read = |row: &Row<'_>| Ok((row.get::<_, Option<i64>>(0)?, row.get(1)?, row.get::<_, Vec<u8>>(2)?));
    let was = conn.prepare_cached(sql)?.query_row(params![state.key, id.as_str()], read).optional()?;
    let Some((was, bytes, head)) = was else {
        let became = past::became(conn, state.key, state.memory, now, id)?;
        let is_noted = notes != Notes::None && state.memory.is_on() && became.is_none_or(|became| became.takes_note());
        if is_noted && (notes == Notes::Refused || !past::note(conn, state, now, id)?) {
            return Ok(Edited::Full);
        }
        if became.is_some() {
            past::unmark(conn, state, id)?;
        }
        return Ok(became.filter(Outcome::was_there).map_or(Edited::Unknown, Edited::Gone));
    };
    state.freed(bytes);
    let Some(score) = was.map(Score::from_raw) else {
        let attempts = forget_dead(conn, state, id)?;
        past::ended(conn, state, now, id, (End::Cancelled, attempts), &head)?;
        return Ok(Edited::Cancelled);
    };
    state.removed(score);
    if score.class().is_held() {
        state.cancelled(id, score);
    }
    let (end, answer) = if score.class().may_arrive() {
        (End::CancelledInFlight, Edited::InFlight)
    } else {
        (End::Cancelled, Edited::Cancelled)
    };
    past::ended(conn, state, now, id, (end, score), &head)?;
    Ok(answer)
}

/// Removes the message if it is this version. `by`: who may put it back, if anybody.
fn cancel_if(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    id: &MessageId,
    (version, end, by): (Version, End, Option<u64>),
) -> rusqlite::Result<Edited> {
    let sql = "SELECT key, score, length(body), substr(body, 1, 17) FROM message WHERE shard = ?1 AND id = ?2";
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let found: Option<(i64, Option<i64>, i64, Vec<u8>)> =
        conn.prepare_cached(sql)?.query_row(params![state.key, id.as_str()], read).optional()?;
    let Some((key, score, bytes, head)) = found else {
        let became = past::became(conn, state.key, state.memory, now, id)?;
        if became.is_some() && by.is_none() {
            past::unmark(conn, state, id)?;
        }
        return Ok(became.map_or(Edited::Unknown, Edited::Gone));
    };
    let is_same = score == Some(version.score.raw()) && body::head(&head).is_some_and(|(_, n)| n == version.nonce.0);
    if !is_same || version.score.class().may_arrive() {
        return Ok(Edited::Changed);
    }
    conn.prepare_cached("DELETE FROM message WHERE key = ?1")?.execute(params![key])?;
    state.freed(bytes);
    state.removed(version.score);
    match by {
        None => past::ended(conn, state, now, id, (end, version.score), &head)?,
        Some(by) => past::taken_out(conn, state, now, id, (end, version.score), (&head, by))?,
    }
    Ok(Edited::Cancelled)
}

/// Removes a dead letter that may be put back, if it died then.
fn take_dead(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    id: &MessageId,
    (nonce, died, by): (Nonce, Timestamp, u64),
) -> rusqlite::Result<Edited> {
    let Some(found) = find(conn, state, id)? else {
        let became = past::became(conn, state.key, state.memory, now, id)?;
        return Ok(became.map_or(Edited::Unknown, Edited::Gone));
    };
    if !found.is_letter(nonce, died) {
        return Ok(Edited::Changed);
    }
    conn.prepare_cached("DELETE FROM message WHERE key = ?1")?.execute(params![found.key])?;
    state.freed(found.bytes);
    let attempts = forget_dead(conn, state, id)?;
    past::taken_out(conn, state, now, id, (End::Dead, attempts), (&found.head, by))?;
    Ok(Edited::Cancelled)
}

fn reschedule(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    id: &MessageId,
    due: Due,
) -> rusqlite::Result<Edited> {
    let sql = "SELECT key, score, body FROM message WHERE shard = ?1 AND id = ?2";
    let found: Option<(i64, Option<i64>, Vec<u8>)> = conn
        .prepare_cached(sql)?
        .query_row(params![state.key, id.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((key, was, mut body)) = found else { return Ok(Edited::Unknown) };
    let Some(was) = was.map(Score::from_raw) else { return Ok(Edited::Dead) };
    if was.class().is_held() {
        return Ok(Edited::InFlight);
    }
    let due_at = moment_of(due, now);
    let score = Score::new(due_at, was.class(), 0);
    if body.len() >= duetime_core::envelope::PREFIX_LEN {
        body::set_due(&mut body, due_at);
    }
    let sql = "UPDATE message SET score = ?2, body = ?3, undone = NULL WHERE key = ?1";
    conn.prepare_cached(sql)?.execute(params![key, score.raw(), body])?;
    state.removed(was);
    state.added(score);
    Ok(Edited::Rescheduled(due_at))
}
