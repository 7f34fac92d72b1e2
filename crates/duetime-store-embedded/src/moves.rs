//! One shard's part in a resize: fence, scan, its outbox, and what was put into it.

use std::cmp::Ordering;
use std::fmt::Display;

use bytes::Bytes;
use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_BYTES_MAX};
use duetime_core::resize_store::{
    ApplyOutcome, Batch, BatchId, Cursor, DeadlineFloor, Frozen, FrozenState, Replication, ScanPage, Scanned,
};
use duetime_core::routing::RoutingState;
use duetime_core::{MessageId, MessageState, Routing, Score, StoreError, Timestamp, TopicName};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::body;
use crate::enqueue::forget_dead;
use crate::fault::Fault;
use crate::shard::ShardState;

/// The record a shard has after a fence.
pub fn raised(before: &Routing, topic: &TopicName, index: u32, new: &Routing) -> Result<Routing, StoreError> {
    match before.epoch.cmp(&new.epoch) {
        Ordering::Greater => Err(StoreError::Stale(Box::new(before.clone()))),
        Ordering::Less => Ok(new.clone()),
        Ordering::Equal if before.change_id != new.change_id => Err(StoreError::Damaged(format!(
            "two changes of the number of shards were begun at once: shard {topic}:{index} has epoch and name {} {}",
            before.epoch, before.change_id
        ))),
        Ordering::Equal if new.state == RoutingState::Stable => {
            Ok(Routing { state: RoutingState::Stable, ..before.clone() })
        }
        Ordering::Equal => Ok(before.clone()),
    }
}

/// The id that a row has.
pub fn read_id(row: impl Display, text: rusqlite::Result<String>) -> Result<MessageId, Fault> {
    let text = text.map_err(|_| Fault::Unreadable(format!("row {row} has no text for an id")))?;
    MessageId::new(&text).map_err(|_| Fault::Unreadable(format!("row {row} has {text:?} for an id")))
}

/// One page of ids, in their order.
pub fn scan(conn: &Connection, state: &ShardState, from: Option<&Cursor>, limit: usize) -> Result<ScanPage, Fault> {
    let sql = "SELECT m.key, m.id, m.score, d.cursor FROM message m \
               LEFT JOIN dead d ON m.score IS NULL AND d.shard = m.shard AND d.id = m.id \
               WHERE m.shard = ?1 AND m.id > ?2 ORDER BY m.id LIMIT ?3";
    let limit = limit.clamp(1, BATCH_ITEMS_MAX);
    let asked = i64::try_from(limit).expect("a small number");
    let start = from.map_or("", |from| from.0.as_str());
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query(params![state.key, start, asked])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let score: Option<i64> = row.get(2)?;
        let (state, visible_at) = match score.map(Score::from_raw) {
            Some(score) if score.class().is_held() => (MessageState::InFlight, score.visible_at()),
            Some(score) => (MessageState::Scheduled, score.visible_at()),
            None => {
                let cursor = row.get::<_, Option<i64>>(3)?.unwrap_or(0);
                (MessageState::Dead, Timestamp::from_millis(cursor / 1000))
            }
        };
        found.push(Scanned { id: read_id(row.get::<_, i64>(0)?, row.get(1))?, state, visible_at });
    }
    let next = (found.len() == limit).then(|| found.last().map(|last| Cursor(last.id.to_string()))).flatten();
    // The living and the dead are rows of one table, by id: what lives again keeps its place.
    Ok(ScanPage { first: from.is_none(), found, next, revived: 0 })
}

/// The batch in the outbox.
pub fn outbox(conn: &Connection, state: &ShardState, from: u32) -> Result<Option<Batch>, Fault> {
    let Some((name, to, _)) = named(conn, state)? else { return Ok(None) };
    Ok(Some(Batch { name, from, to, messages: frozen_of(conn, state.key)? }))
}

/// What is in the outbox of the shard with this key, by id.
pub fn frozen_of(conn: &Connection, key: i64) -> Result<Vec<Frozen>, Fault> {
    let sql = "SELECT id, score, cursor, attempts, reason, body FROM frozen WHERE shard = ?1 ORDER BY id";
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query([key])?;
    let mut messages = Vec::new();
    while let Some(row) = rows.next()? {
        messages.push(frozen(row)?);
    }
    Ok(messages)
}

/// Name, destination and size of the batch in the outbox.
pub fn named(conn: &Connection, state: &ShardState) -> rusqlite::Result<Option<(BatchId, u32, u64)>> {
    let sql = "SELECT number, nonce, dest, (SELECT count(*) FROM frozen f WHERE f.shard = o.shard) \
               FROM outbox o WHERE shard = ?1 AND nonce IS NOT NULL";
    let read = |row: &Row<'_>| {
        let name =
            BatchId { number: row.get::<_, i64>(0)?.cast_unsigned(), nonce: row.get::<_, i64>(1)?.cast_unsigned() };
        Ok((name, row.get(2)?, row.get::<_, i64>(3)?.cast_unsigned()))
    };
    conn.prepare_cached(sql)?.query_row([state.key], read).optional()
}

/// A message from its six columns.
fn frozen(row: &Row<'_>) -> Result<Frozen, Fault> {
    let id: String = row.get(0)?;
    let state = match row.get::<_, Option<i64>>(1)? {
        Some(score) => FrozenState::Live(Score::from_raw(score)),
        None => FrozenState::Dead {
            at: row.get::<_, Option<i64>>(2)?.unwrap_or(0),
            attempts: row.get::<_, Option<u8>>(3)?.unwrap_or(0),
            reason: row.get::<_, Option<String>>(4)?.unwrap_or_default(),
        },
    };
    let body = body::bare(&id, &row.get::<_, Vec<u8>>(5)?);
    Ok(Frozen { id: read_id("frozen", Ok(id))?, state, body })
}

/// Freezes what is there of `ids`; where the shard has a bound of what is in flight, not what is claimed and has not
/// run out at `now`.
pub fn take(
    conn: &Connection,
    state: &mut ShardState,
    (from, to): (u32, u32),
    ids: &[MessageId],
    nonce: u64,
    now: Timestamp,
) -> Result<Option<Batch>, Fault> {
    if named(conn, state)?.is_some() {
        return outbox(conn, state, from);
    }
    let sql = "SELECT m.id, m.score, d.cursor, d.attempts, d.reason, m.body, length(m.body) FROM message m \
               LEFT JOIN dead d ON m.score IS NULL AND d.shard = m.shard AND d.id = m.id \
               WHERE m.shard = ?1 AND m.id = ?2";
    let mut select = conn.prepare_cached(sql)?;
    let mut insert = conn.prepare_cached(
        "INSERT INTO frozen (shard, id, score, cursor, attempts, reason, body) \
         SELECT m.shard, m.id, m.score, d.cursor, d.attempts, d.reason, m.body FROM message m \
         LEFT JOIN dead d ON m.score IS NULL AND d.shard = m.shard AND d.id = m.id \
         WHERE m.shard = ?1 AND m.id = ?2",
    )?;
    let mut delete = conn.prepare_cached("DELETE FROM message WHERE shard = ?1 AND id = ?2")?;
    let (mut messages, mut bytes) = (Vec::new(), 0);
    for id in ids.iter().take(BATCH_ITEMS_MAX) {
        let at = params![state.key, id.as_str()];
        let mut rows = select.query(at)?;
        let Some(row) = rows.next()? else { continue };
        let (one, stored) = (frozen(row)?, row.get(6)?);
        let is_held = |score: Score| score.class().is_held() && score > Score::due_at_most(now);
        if state.in_flight.is_some() && matches!(one.state, FrozenState::Live(score) if is_held(score)) {
            continue;
        }
        bytes += one.body.as_ref().map_or(0, Bytes::len);
        if bytes > CLAIM_BYTES_MAX && !messages.is_empty() {
            break;
        }
        insert.execute(params![state.key, id.as_str()])?;
        delete.execute(params![state.key, id.as_str()])?;
        state.freed(stored);
        match one.state {
            FrozenState::Live(score) => state.removed(score),
            FrozenState::Dead { .. } => drop(forget_dead(conn, state, id)?),
        }
        messages.push(one);
    }
    if messages.is_empty() {
        return Ok(None);
    }
    messages.sort_by(|a, b| a.id.cmp(&b.id));
    let sql = "INSERT INTO outbox (shard, number, nonce, dest) VALUES (?1, 1, ?2, ?3) \
               ON CONFLICT (shard) DO UPDATE SET number = number + 1, nonce = ?2, dest = ?3 RETURNING number";
    let number: i64 =
        conn.prepare_cached(sql)?.query_row(params![state.key, nonce.cast_signed(), to], |row| row.get(0))?;
    Ok(Some(Batch { name: BatchId { number: number.cast_unsigned(), nonce }, from, to, messages }))
}

/// The last batch of a source.
pub fn last_applied_batch(conn: &Connection, state: &ShardState, from: u32) -> rusqlite::Result<Option<BatchId>> {
    let sql = "SELECT number, nonce FROM moved WHERE shard = ?1 AND source = ?2";
    let read = |row: &Row<'_>| {
        let (number, nonce): (i64, i64) = (row.get(0)?, row.get(1)?);
        Ok(BatchId { number: number.cast_unsigned(), nonce: nonce.cast_unsigned() })
    };
    conn.prepare_cached(sql)?.query_row(params![state.key, from], read).optional()
}

/// Inserts a batch, once.
pub fn put(conn: &Connection, state: &mut ShardState, batch: &Batch) -> Result<ApplyOutcome, Fault> {
    let last = last_applied_batch(conn, state, batch.from)?;
    if last == Some(batch.name) {
        return Ok(ApplyOutcome::Done { fresh: 0, kept: Replication::Replicated });
    }
    if let Some(last) = last.filter(|last| last.number >= batch.name.number) {
        return Ok(ApplyOutcome::Conflict { last });
    }
    let fresh = bring_all(conn, state, &batch.messages)?;
    let sql = "INSERT OR REPLACE INTO moved (shard, source, number, nonce) VALUES (?1, ?2, ?3, ?4)";
    let name = batch.name;
    let row = params![state.key, batch.from, name.number.cast_signed(), name.nonce.cast_signed()];
    conn.prepare_cached(sql)?.execute(row)?;
    Ok(ApplyOutcome::Done { fresh, kept: Replication::Replicated })
}

/// Puts a batch back from the outbox, which is emptied.
pub fn restore_batch(conn: &Connection, state: &mut ShardState, batch: &Batch) -> Result<bool, Fault> {
    let Some(there) = outbox(conn, state, batch.from)?.filter(|there| there.name.nonce == batch.name.nonce) else {
        return Ok(false);
    };
    bring_all(conn, state, &there.messages)?;
    Ok(discard_batch(conn, state, there.name.nonce)?)
}

/// Inserts messages as they were frozen; what lives here stays as it is. How many were inserted.
pub fn bring_all(conn: &Connection, state: &mut ShardState, messages: &[Frozen]) -> Result<u64, Fault> {
    let sql = "INSERT INTO message (shard, id, score, body, undone) VALUES (?1, ?2, ?3, ?4, ?5) \
               ON CONFLICT (shard, id) DO NOTHING";
    let mut insert = conn.prepare_cached(sql)?;
    let (mut fresh, mut brought, mut full) = (0, DeadlineFloor::default(), 0..0);
    for message in messages {
        let stored = body::stored(message.id.as_str(), message.body.as_ref());
        let score = if let FrozenState::Live(score) = &message.state { Some(*score) } else { None };
        // What was claimed, or put off: its score does not say when it was due.
        let undone = score.filter(|_| state.memory.watermark).and_then(|score| {
            let (due_at, _) = body::head(&stored)?;
            (due_at != score.visible_at()).then(|| due_at.as_millis())
        });
        let at = params![state.key, message.id.as_str(), score.map(Score::raw), stored, undone];
        if insert.execute(at)? == 0 {
            continue;
        }
        fresh += 1;
        state.stored(stored.len());
        match &message.state {
            FrozenState::Live(score) => {
                state.added(*score);
                brought.raise(score.class(), score.visible_at());
                let base = Score::new(score.visible_at(), score.class(), 0).raw();
                if score.class().is_held() {
                    // A claim here has the same deadline by chance: repeated, it must not answer this one.
                    state.meta.answered.retain(|answered| answered.base != base);
                }
            }
            FrozenState::Dead { at, attempts, reason } => {
                let from = if full.contains(at) { full.clone() } else { *at..*at };
                let cursor = bring_dead(conn, state, &message.id, from.end, *attempts, reason)?;
                full = from.start..cursor + 1;
            }
        }
    }
    state.raise(&brought);
    Ok(fresh)
}

/// A dead letter's time of death is a page's cursor too: unique in its shard. Answers the place it got, which is the
/// first that is free from `at` on.
fn bring_dead(
    conn: &Connection,
    state: &mut ShardState,
    id: &MessageId,
    at: i64,
    attempts: u8,
    reason: &str,
) -> rusqlite::Result<i64> {
    let sql = "INSERT INTO dead (shard, cursor, id, attempts, reason) VALUES (?1, ?2, ?3, ?4, ?5) \
               ON CONFLICT (shard, cursor) DO NOTHING";
    let mut insert = conn.prepare_cached(sql)?;
    let mut cursor = at;
    while insert.execute(params![state.key, cursor, id.as_str(), attempts, reason])? == 0 {
        cursor = behind_run(conn, state, cursor)?;
    }
    (state.dead, state.meta.last_dead, state.changed) = (state.dead + 1, cursor, true);
    Ok(cursor)
}

/// The first free place behind the unbroken run of dead letters that `cursor` is in. O(run).
fn behind_run(conn: &Connection, state: &ShardState, cursor: i64) -> rusqlite::Result<i64> {
    let sql = "SELECT cursor + 1 FROM dead d WHERE shard = ?1 AND cursor >= ?2 AND NOT EXISTS \
               (SELECT 1 FROM dead n WHERE n.shard = d.shard AND n.cursor = d.cursor + 1) ORDER BY cursor LIMIT 1";
    conn.prepare_cached(sql)?.query_row(params![state.key, cursor], |row| row.get(0))
}

/// Renames the batch in the outbox.
pub fn rename_batch(conn: &Connection, state: &ShardState, seen: u64, new: BatchId) -> rusqlite::Result<bool> {
    let sql = "UPDATE outbox SET number = ?3, nonce = ?4 WHERE shard = ?1 AND nonce = ?2 AND number <= ?3";
    let row = params![state.key, seen.cast_signed(), new.number.cast_signed(), new.nonce.cast_signed()];
    conn.prepare_cached(sql)?.execute(row)?;
    Ok(named(conn, state)?.is_some_and(|(name, ..)| name == new))
}

/// Empties the outbox.
pub fn discard_batch(conn: &Connection, state: &ShardState, nonce: u64) -> rusqlite::Result<bool> {
    let sql = "UPDATE outbox SET nonce = NULL, dest = NULL WHERE shard = ?1 AND nonce = ?2";
    if conn.prepare_cached(sql)?.execute(params![state.key, nonce.cast_signed()])? == 0 {
        return Ok(false);
    }
    conn.prepare_cached("DELETE FROM frozen WHERE shard = ?1")?.execute([state.key])?;
    Ok(true)
}

/// Where an id is, to a caller who knows this as its source shard.
pub fn place(conn: &Connection, state: &ShardState, id: &MessageId) -> rusqlite::Result<IdLocation> {
    let is = |sql: &str| conn.prepare_cached(sql)?.exists(params![state.key, id.as_str()]);
    Ok(if is("SELECT 1 FROM frozen WHERE shard = ?1 AND id = ?2")? {
        IdLocation::Frozen
    } else if is("SELECT 1 FROM message WHERE shard = ?1 AND id = ?2")? {
        IdLocation::There
    } else {
        IdLocation::Absent
    })
}

/// See [`place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdLocation {
    /// It lives here.
    There,
    /// It is not here.
    Absent,
    /// It is in the outbox.
    Frozen,
}
