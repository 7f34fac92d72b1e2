//! Reads on connections of their own, so that nobody waits for the writer: messages, dead letters,
//! the forecast.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::message::Death;
use duetime_core::store::DeadPage;
use duetime_core::{
    ListEntry, ListPage, ListRange, MessageId, MessageState, Score, StoreError, StoredMessage, Timestamp, TopicRecord,
    stored,
};
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::fault::Fault;
use crate::folder::open_reader;
use crate::{body, fault};

/// Idle reading connections that are kept.
const IDLE_MAX: usize = 4;

/// Connections that only read.
#[derive(Debug)]
pub struct Readers {
    folder: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, idle: Mutex::default() }
    }

    /// Closes what is idle.
    pub fn close(&self) {
        self.idle.lock().clear();
    }

    /// Reads, on a thread that may wait.
    pub async fn read<A: Send + 'static>(
        self: &Arc<Self>,
        doing: &'static str,
        act: impl FnOnce(&Connection) -> Result<A, Fault> + Send + 'static,
    ) -> Result<A, StoreError> {
        let readers = self.clone();
        let work = move || {
            let kept = readers.idle.lock().pop();
            let conn = kept.map_or_else(|| open_reader(&readers.folder), Ok).map_err(Fault::Sql)?;
            let answer = act(&conn)?;
            let mut idle = readers.idle.lock();
            if idle.len() < IDLE_MAX {
                idle.push(conn);
            }
            Ok(answer)
        };
        let done = tokio::task::spawn_blocking(work).await;
        let done = done.map_err(|error| StoreError::Unavailable { doing, source: Box::new(error) })?;
        done.map_err(|fault: Fault| fault.into_store_error(doing, &self.folder))
    }
}

const MESSAGE: &str = "SELECT m.id, m.score, m.body, d.cursor, d.attempts, d.reason FROM message m \
    LEFT JOIN dead d ON m.score IS NULL AND d.shard = m.shard AND d.id = m.id";

fn message(row: &Row<'_>) -> Result<StoredMessage, Fault> {
    let id: String = row.get(0)?;
    let damaged = |what: String| StoreError::Damaged(format!("message {id:?} in {}: {what}", fault::DATABASE));
    let stored: Vec<u8> = row.get(2)?;
    body::check(&id, &stored).map_err(|reason| damaged(reason.to_owned()))?;
    let body = body::decode(&Bytes::from(stored)).map_err(|error| damaged(error.to_string()))?;
    let score: Option<i64> = row.get(1)?;
    let (state, visible_at, attempts, death) = if let Some(score) = score.map(Score::from_raw) {
        let state = if score.class().is_held() { MessageState::InFlight } else { MessageState::Scheduled };
        (state, score.visible_at(), score.attempts(), None)
    } else {
        let at = Timestamp::from_millis(row.get::<_, Option<i64>>(3)?.unwrap_or(0) / 1000);
        let reason = row.get::<_, Option<String>>(5)?.unwrap_or_default();
        (MessageState::Dead, at, row.get::<_, Option<u8>>(4)?.unwrap_or(0), Some(Death { at, reason }))
    };
    Ok(StoredMessage {
        id: MessageId::new(&id).map_err(|error| damaged(error.to_string()))?,
        state,
        due_at: body.due_at,
        visible_at,
        attempts,
        redrives: body.redrives,
        nonce: body.nonce,
        headers: body.headers,
        payload: body.payload,
        death,
    })
}

/// Messages by id.
pub fn get(conn: &Connection, key: i64, ids: &[MessageId]) -> Result<Vec<Option<StoredMessage>>, Fault> {
    let mut select = conn.prepare_cached(&format!("{MESSAGE} WHERE m.shard = ?1 AND m.id = ?2"))?;
    let mut answers = Vec::with_capacity(ids.len());
    for id in ids {
        let mut rows = select.query(params![key, id.as_str()])?;
        answers.push(rows.next()?.map(message).transpose()?);
    }
    Ok(answers)
}

/// One page of dead letters.
pub fn dead(conn: &Connection, key: i64, from: Option<i64>, limit: usize) -> Result<DeadPage, Fault> {
    let sql = "SELECT id, cursor FROM dead WHERE shard = ?1 AND cursor >= ?2 ORDER BY cursor LIMIT ?3";
    let mut select = conn.prepare_cached(sql)?;
    let asked = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
    let rows = select.query_map(params![key, from.unwrap_or(0), asked], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut found = rows.collect::<rusqlite::Result<Vec<(String, i64)>>>()?;
    let next = (found.len() > limit).then(|| found.pop().expect("one more than the limit").1);
    let mut one = conn.prepare_cached(&format!("{MESSAGE} WHERE m.shard = ?1 AND m.id = ?2"))?;
    let mut messages = Vec::with_capacity(found.len());
    for (id, _) in found {
        let mut rows = one.query(params![key, id])?;
        messages.extend(rows.next()?.map(message).transpose()?);
    }
    Ok(DeadPage { messages, next })
}

/// One page of live messages, by score and, among equal ones, by the key of their row.
pub fn list(conn: &Connection, key: i64, range: &ListRange, limit: usize) -> Result<ListPage, Fault> {
    let asked = i64::try_from(limit.clamp(1, BATCH_ITEMS_MAX)).expect("a small number");
    let mut rows: Vec<(i64, i64, String)> = Vec::new();
    let mut read = |sql: &str, score: i64, bound: i64, left: i64| -> Result<i64, Fault> {
        let mut select = conn.prepare_cached(sql)?;
        let found =
            select.query_map(params![key, score, bound, left], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        rows.extend(found.collect::<rusqlite::Result<Vec<_>>>()?);
        Ok(asked - i64::try_from(rows.len()).expect("a small number"))
    };
    let (mut lowest, mut left) = (range.lowest(), asked);
    if let Some(after) = &range.after {
        let same = "SELECT score, key, id FROM message WHERE shard = ?1 AND score = ?2 AND key > ?3 \
                    ORDER BY key LIMIT ?4";
        left = read(same, after.score, after.tie.parse().unwrap_or(0), asked)?;
        lowest = after.score.saturating_add(1);
    }
    let later = "SELECT score, key, id FROM message WHERE shard = ?1 AND score >= ?2 AND score < ?3 \
                 ORDER BY score, key LIMIT ?4";
    left = read(later, lowest, range.end(), left)?;
    let mut found = Vec::with_capacity(rows.len());
    for (score, key, id) in rows {
        let damaged = |error| StoreError::Damaged(format!("id {id:?} in {}: {error}", fault::DATABASE));
        let id = MessageId::new(&id).map_err(damaged)?;
        found.push(ListEntry { id, score: Score::from_raw(score), tie: key.to_string() });
    }
    Ok(ListPage { found, more: left == 0 })
}

/// Messages per bucket, over all shards. One pass over the index.
pub fn forecast(conn: &Connection, keys: &[i64], edges: &[Timestamp]) -> Result<Vec<u64>, Fault> {
    let mut counts = vec![0; edges.len().saturating_sub(1)];
    let (Some(first), Some(last)) = (edges.first(), edges.last()) else { return Ok(counts) };
    let sql = "SELECT score FROM message WHERE shard = ?1 AND score >= ?2 AND score < ?3 ORDER BY score";
    let mut select = conn.prepare_cached(sql)?;
    let limit = |at: &Timestamp| at.as_millis().saturating_mul(1000);
    for key in keys {
        let mut rows = select.query(params![key, limit(first), limit(last)])?;
        while let Some(row) = rows.next()? {
            let at = Score::from_raw(row.get(0)?).visible_at();
            counts[edges.partition_point(|edge| *edge <= at) - 1] += 1;
        }
    }
    Ok(counts)
}

/// All topics whose record can be read, and the names of the others.
pub fn topics(conn: &Connection) -> Result<(Vec<TopicRecord>, Vec<String>), Fault> {
    let mut select = conn.prepare_cached("SELECT name, record FROM topic")?;
    let rows = select.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    let (mut records, mut unreadable) = (Vec::new(), Vec::new());
    for row in rows {
        let (name, record) = row?;
        match stored::read(&record) {
            Ok(record) => records.push(record),
            Err(_) => unreadable.push(name),
        }
    }
    Ok((records, unreadable))
}

/// Asks the database whether it answers at all.
pub fn ready(conn: &Connection) -> Result<(), Fault> {
    let _: Option<i64> = conn.query_row("SELECT 1 FROM topic LIMIT 1", [], |row| row.get(0)).optional()?;
    Ok(())
}
