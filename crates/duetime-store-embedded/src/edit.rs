//! Changes to what is scheduled: cancel and reschedule.

use duetime_core::store::{Edit, Edited};
use duetime_core::{Due, MessageId, Score, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::body;
use crate::enqueue::{forget_dead, moment_of};
use crate::shard::ShardState;

/// Carries out the batch, item by item.
pub fn edit(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    batch: &[Edit],
) -> rusqlite::Result<Vec<Edited>> {
    let one = |item: &Edit, state: &mut ShardState| match item {
        Edit::Cancel(id) => cancel(conn, state, id),
        Edit::Reschedule(id, due) => reschedule(conn, state, now, id, *due),
    };
    batch.iter().map(|item| one(item, state)).collect()
}

fn cancel(conn: &Connection, state: &mut ShardState, id: &MessageId) -> rusqlite::Result<Edited> {
    let sql = "DELETE FROM message WHERE shard = ?1 AND id = ?2 RETURNING score, length(body)";
    let read = |row: &Row<'_>| Ok((row.get::<_, Option<i64>>(0)?, row.get(1)?));
    let was = conn.prepare_cached(sql)?.query_row(params![state.key, id.as_str()], read).optional()?;
    let Some((was, bytes)) = was else { return Ok(Edited::Unknown) };
    state.freed(bytes);
    Ok(match was {
        None => {
            forget_dead(conn, state, id)?;
            Edited::Cancelled
        }
        Some(raw) => {
            let score = Score::from_raw(raw);
            state.removed(score);
            if score.class().is_held() {
                state.view.cancelled(id, score);
            }
            if score.class().may_arrive() { Edited::InFlight } else { Edited::Cancelled }
        }
    })
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
    let sql = "UPDATE message SET score = ?2, body = ?3 WHERE key = ?1";
    conn.prepare_cached(sql)?.execute(params![key, score.raw(), body])?;
    state.removed(was);
    state.added(score);
    Ok(Edited::Rescheduled(due_at))
}
