//! What a shard remembers of messages that are gone: a row for each, the oldest dropped as new ones are written.
//!
//! Upstream: `enqueue`, `edit`, `settle`, `claim` and `read`, whichever ends a message or looks for one that is gone.

use duetime_core::limits::NOTES_MAX;
use duetime_core::memory::{OUTCOME_BYTES, undo_mark};
use duetime_core::{End, Memory, MessageId, Nonce, Outcome, Score, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::body;
use crate::shard::ShardState;

/// Rows that are looked at for each that is written: those that are too old go. So there are never many more than were
/// written within the window, and no call does more for what others left.
const DROPPED_AT_ONCE: i64 = 2;

/// How far ahead of the present the end of a message may be, in milliseconds: as clocks differ.
const AHEAD_MAX_MS: i64 = 2_000;

/// Rows that are looked at for each that is written, once the oldest ones are of a clock that was ahead: more than are
/// written meanwhile, so that all are put right.
const HEALED_AT_ONCE: i64 = 16;

/// Remembers how a message ended, where its shard is to. `head`: the first bytes of its body.
pub fn ended(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    id: &MessageId,
    how: (End, Score),
    head: &[u8],
) -> rusqlite::Result<()> {
    ended_as(conn, state, now, id, how, (head, &[]))
}

/// [`ended`] of what `by` may put back, until its id is cancelled again.
pub fn taken_out(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    id: &MessageId,
    how: (End, Score),
    (head, by): (&[u8], u64),
) -> rusqlite::Result<()> {
    ended_as(conn, state, now, id, how, (head, &undo_mark(by)))
}

/// Somebody cancelled what was taken out: it is not put back any more.
pub fn unmark(conn: &Connection, state: &ShardState, id: &MessageId) -> rusqlite::Result<()> {
    let sql = "UPDATE past SET outcome = substr(outcome, 1, ?3) WHERE shard = ?1 AND id = ?2 AND length(outcome) > ?3";
    conn.prepare_cached(sql)?.execute(params![state.key, id.as_str(), OUTCOME_BYTES as i64])?;
    Ok(())
}

/// What is remembered of the id, where that is that `by` took it out.
pub fn taken_out_by(
    conn: &Connection,
    state: &ShardState,
    now: Timestamp,
    id: &MessageId,
    by: u64,
) -> rusqlite::Result<Option<Outcome>> {
    let was = kept(conn, state.key, state.memory, now, id)?;
    let was = was.filter(|was| was.get(OUTCOME_BYTES..) == Some(&undo_mark(by)[..]));
    Ok(was.as_deref().and_then(Outcome::decode))
}

fn ended_as(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    id: &MessageId,
    how: (End, Score),
    (head, mark): (&[u8], &[u8]),
) -> rusqlite::Result<()> {
    let since = state.memory.since;
    if !state.memory.is_on() {
        return Ok(());
    }
    let (due_at, nonce) = body::head(head).unwrap_or((Timestamp::ZERO, 0));
    let (end, score) = how;
    let change = duetime_core::routing::change_of(state.routing.epoch);
    let outcome = Outcome { end, change, at: now, due_at, nonce: Nonce(nonce), score };
    // A row that takes the place of a note.
    if state.meta.notes > 0 && is_note(conn, state.key, id)? {
        state.noted(-1);
    }
    // Rows are in the order in which they were written: one that takes another's place is the newest.
    let sql = "INSERT OR REPLACE INTO past (shard, since, at, id, outcome) VALUES (?1, ?2, ?3, ?4, ?5)";
    let outcome = [&outcome.encode()[..], mark].concat();
    let row = params![state.key, since.cast_signed(), now.as_millis(), id.as_str(), outcome];
    conn.prepare_cached(sql)?.execute(row)?;
    heal(conn, state, now)?;
    drop_oldest(conn, state, now)
}

/// Remembers a cancel of an id that does not live; false: there is no room for it.
pub fn note(conn: &Connection, state: &mut ShardState, now: Timestamp, id: &MessageId) -> rusqlite::Result<bool> {
    if state.meta.notes >= NOTES_MAX {
        // Else what is there would stay for as long as nothing else ends.
        heal(conn, state, now)?;
        drop_oldest(conn, state, now)?;
        if state.meta.notes >= NOTES_MAX {
            return Ok(false);
        }
    }
    ended(conn, state, now, id, (End::CancelledBefore, Score::from_raw(0)), &[])?;
    state.noted(1);
    Ok(true)
}

/// Whether the row of this id is a note, however old.
fn is_note(conn: &Connection, key: i64, id: &MessageId) -> rusqlite::Result<bool> {
    let sql = "SELECT outcome FROM past WHERE shard = ?1 AND id = ?2";
    let at = params![key, id.as_str()];
    let found: Option<Vec<u8>> = conn.prepare_cached(sql)?.query_row(at, |row| row.get(0)).optional()?;
    Ok(found.is_some_and(|outcome| is_of_note(&outcome)))
}

fn is_of_note(outcome: &[u8]) -> bool {
    outcome.first() == Some(&End::CancelledBefore.code())
}

/// Drops the shard's oldest rows, where they are too old.
fn drop_oldest(conn: &Connection, state: &mut ShardState, now: Timestamp) -> rusqlite::Result<()> {
    let sql = "DELETE FROM past WHERE key IN (SELECT key FROM past WHERE shard = ?1 ORDER BY key LIMIT ?2) \
               AND (at <= ?3 OR since <> ?4) RETURNING outcome";
    let oldest = now.as_millis().saturating_sub(state.memory.window_ms());
    let which = params![state.key, DROPPED_AT_ONCE, oldest, state.memory.since.cast_signed()];
    let mut dropped = conn.prepare_cached(sql)?;
    let mut rows = dropped.query(which)?;
    while let Some(row) = rows.next()? {
        if is_of_note(row.get_ref(0)?.as_blob()?) {
            state.noted(-1);
        }
    }
    Ok(())
}

/// What a clock wrote that was ahead and was put right must not stand before all others for as long as it was ahead,
/// and must not be forgotten either: such rows count as written at `now`, and last one window more. Goes over all rows
/// from the oldest on, [`HEALED_AT_ONCE`] with each call.
fn heal(conn: &Connection, state: &mut ShardState, now: Timestamp) -> rusqlite::Result<()> {
    let latest = now.as_millis().saturating_add(AHEAD_MAX_MS);
    let from = if let Some(from) = state.healed_to {
        from
    } else {
        let sql = "SELECT 1 FROM (SELECT at FROM past WHERE shard = ?1 ORDER BY key LIMIT ?2) WHERE at > ?3";
        if !conn.prepare_cached(sql)?.exists(params![state.key, DROPPED_AT_ONCE, latest])? {
            return Ok(());
        }
        i64::MIN
    };
    let sql = "SELECT count(*), max(key) FROM \
               (SELECT key FROM past WHERE shard = ?1 AND key > ?2 ORDER BY key LIMIT ?3)";
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let (seen, to): (i64, Option<i64>) =
        conn.prepare_cached(sql)?.query_row(params![state.key, from, HEALED_AT_ONCE], read)?;
    if let Some(to) = to {
        let sql = "UPDATE past SET at = ?4 WHERE shard = ?1 AND key > ?2 AND key <= ?3 AND at > ?5";
        conn.prepare_cached(sql)?.execute(params![state.key, from, to, now.as_millis(), latest])?;
    }
    state.healed_to = to.filter(|_| seen == HEALED_AT_ONCE);
    Ok(())
}

/// What is remembered of `id` in the shard with this key.
pub fn became(
    conn: &Connection,
    key: i64,
    memory: Memory,
    now: Timestamp,
    id: &MessageId,
) -> rusqlite::Result<Option<Outcome>> {
    Ok(kept(conn, key, memory, now, id)?.as_deref().and_then(Outcome::decode))
}

/// The same, as it is stored.
fn kept(
    conn: &Connection,
    key: i64,
    memory: Memory,
    now: Timestamp,
    id: &MessageId,
) -> rusqlite::Result<Option<Vec<u8>>> {
    if !memory.is_on() {
        return Ok(None);
    }
    let oldest = now.as_millis().saturating_sub(memory.window_ms());
    let sql = "SELECT outcome FROM past WHERE shard = ?1 AND id = ?2 AND since = ?3 AND at > ?4";
    let at = params![key, id.as_str(), memory.since.cast_signed(), oldest];
    conn.prepare_cached(sql)?.query_row(at, |row| row.get(0)).optional()
}
