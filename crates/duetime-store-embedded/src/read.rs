//! Reads on connections of their own, so that nobody waits for the writer: messages, dead letters,
//! the forecast.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::message::Death;
use duetime_core::resize_store::Frozen;
use duetime_core::store::DeadPage;
use duetime_core::{
    ListEntry, ListPage, ListRange, Lookup, Memory, MessageId, MessageState, Score, Shard, StoreError, StoredMessage,
    Timestamp, TopicRecord, stored,
};
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::damage::{Damages, PASSED_OVER_MAX};
use crate::fault::Fault;
use crate::files::StoreFiles;
use crate::folder::open_reader;
use crate::{body, moves, past};

/// Idle reading connections that are kept.
const IDLE_MAX: usize = 4;

/// Connections that only read.
#[derive(Debug)]
pub struct Readers {
    folder: PathBuf,
    /// Closed after the connections.
    _files: Arc<StoreFiles>,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub fn new(folder: PathBuf, files: Arc<StoreFiles>) -> Self {
        Self { folder, _files: files, idle: Mutex::default() }
    }

    /// Closes what is idle.
    pub fn close(&self) {
        self.idle.lock().clear();
    }

    /// Reads of one shard: what is damaged there is reported, and passed over where `act` can.
    pub async fn read_shard<A: Send + 'static>(
        self: &Arc<Self>,
        doing: &'static str,
        (shard, damages): (&Shard, &Arc<Damages>),
        act: impl FnOnce(&Connection) -> Result<ReadablePart<A>, Fault> + Send + 'static,
    ) -> Result<A, StoreError> {
        let (shard, damages) = (shard.clone(), damages.clone());
        let act = move |conn: &Connection| {
            let read = act(conn);
            let damaged = read.as_ref().map_or_else(Fault::damage, |read| read.damaged.clone());
            if let Some(what) = damaged {
                damages.shard(&shard.topic, shard.index, &what);
            }
            Ok(read?.part)
        };
        self.read(doing, act).await
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

/// What could be read of a shard.
pub struct ReadablePart<A> {
    part: A,
    /// What could not: the first of it.
    damaged: Option<String>,
}

impl<A> From<A> for ReadablePart<A> {
    fn from(all: A) -> Self {
        Self { part: all, damaged: None }
    }
}

impl<A> ReadablePart<A> {
    /// Takes what was read of one row, unless it is damaged or gone.
    fn readable<T>(&mut self, row: Result<Option<T>, Fault>) -> Result<Option<T>, Fault> {
        let fault = match row {
            Ok(read) => return Ok(read),
            Err(fault) => fault,
        };
        let what = fault.damage();
        if what.is_none() {
            return Err(fault);
        }
        self.damaged = self.damaged.take().or(what);
        Ok(None)
    }
}

const MESSAGE: &str = "SELECT m.id, m.score, m.body, d.cursor, d.attempts, d.reason FROM message m \
    LEFT JOIN dead d ON m.score IS NULL AND d.shard = m.shard AND d.id = m.id";

fn message(row: &Row<'_>) -> Result<StoredMessage, Fault> {
    let id: String = row.get(0)?;
    let damaged = |what: String| Fault::Unreadable(format!("message {id:?}: {what}"));
    let stored: Vec<u8> = row.get(2)?;
    body::check(&id, &stored).map_err(|reason| damaged(reason.to_owned()))?;
    let body = body::decode(&Bytes::from(stored)).map_err(|error| damaged(error.to_string()))?;
    let score: Option<i64> = row.get(1)?;
    let (state, visible_at, attempts, death) = if let Some(score) = score.map(Score::from_raw) {
        let state = if score.class().is_held() { MessageState::InFlight } else { MessageState::Scheduled };
        (state, score.visible_at(), score.tries(), None)
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

/// Reads messages at their home, and what is remembered by `now` of those that are gone. Both as one moment has them:
/// in one transaction, without which each message would cost a lock and an unlock of the file.
pub fn find(
    conn: &Connection,
    key: i64,
    ids: &[MessageId],
    (memory, now): (Memory, Timestamp),
) -> Result<Vec<Lookup<StoredMessage>>, Fault> {
    let is_many = memory.is_on() || ids.len() > 1;
    let snapshot = is_many.then(|| conn.unchecked_transaction()).transpose()?;
    let found = get(conn, key, ids)?.into_iter().zip(ids).map(|(found, id)| {
        Ok(match found {
            Some(found) => Lookup::Found(found),
            None => Lookup::Absent(past::became(conn, key, memory, now, id)?),
        })
    });
    let found = found.collect();
    drop(snapshot);
    found
}

/// One page of dead letters. Those that are damaged are passed over.
pub fn dead(conn: &Connection, key: i64, from: Option<i64>, limit: usize) -> Result<ReadablePart<DeadPage>, Fault> {
    let sql = "SELECT id, cursor FROM dead WHERE shard = ?1 AND cursor >= ?2 ORDER BY cursor LIMIT ?3";
    let mut select = conn.prepare_cached(sql)?;
    let asked = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
    let rows = select.query_map(params![key, from.unwrap_or(0), asked], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut found = rows.collect::<rusqlite::Result<Vec<(String, i64)>>>()?;
    let next = (found.len() > limit).then(|| found.pop().expect("one more than the limit").1);
    let mut one = conn.prepare_cached(&format!("{MESSAGE} WHERE m.shard = ?1 AND m.id = ?2"))?;
    let mut page = ReadablePart::from(Vec::with_capacity(found.len()));
    for (id, cursor) in found {
        let mut rows = one.query(params![key, id])?;
        let read = rows.next().map_err(Fault::Sql).and_then(|row| row.map(message).transpose());
        let read = page.readable(read)?;
        page.part.extend(read.map(|message| (cursor, message)));
    }
    let frozen = moves::frozen_of(conn, key)?;
    let frozen = frozen.iter().filter_map(Frozen::dead_letter).filter(|(at, _)| *at >= from.unwrap_or(0));
    Ok(ReadablePart { part: DeadPage::merged(page.part, next, frozen, limit), damaged: page.damaged })
}

/// Rows of the index of due times: score and key.
type Rows = Vec<(i64, i64)>;

/// One page of live messages, by score and, among equal ones, by the key of their row. Those that are damaged are passed
/// over, also where that leaves none of a page.
pub fn list(conn: &Connection, key: i64, range: &ListRange, limit: usize) -> Result<ReadablePart<ListPage>, Fault> {
    let mut page = ReadablePart::from(ListPage { found: Vec::new(), more: false });
    let mut after = range.after.as_ref().map(|after| (after.score, after.tie.parse().unwrap_or(i64::MAX)));
    // By itself, so that a damaged page of the table hides only what is on it.
    let mut one = conn.prepare_cached("SELECT id FROM message WHERE key = ?1")?;
    let mut looked_at = 0;
    loop {
        let rows = indexed(conn, key, range, after, limit)?;
        looked_at += rows.len();
        page.part.more = rows.len() == limit.clamp(1, BATCH_ITEMS_MAX);
        after = rows.last().copied();
        for (score, key) in rows {
            let read = one.query_row([key], |row| row.get::<_, String>(0)).optional().map_err(Fault::Sql);
            let named = |text: String| moves::read_id(key, Ok(text)).map(Some);
            if let Some(id) = page.readable(read.and_then(|text| text.map_or(Ok(None), named)))? {
                page.part.found.push(ListEntry { id, score: Score::from_raw(score), tie: key.to_string() });
            }
        }
        if !page.part.found.is_empty() || !page.part.more {
            let frozen =
                moves::frozen_of(conn, key)?.iter().filter_map(|one| frozen_in(one, range)).collect::<Vec<_>>();
            page.part.merge(frozen, limit.clamp(1, BATCH_ITEMS_MAX), order);
            return Ok(page);
        }
        if looked_at > PASSED_OVER_MAX {
            return Err(Fault::Unreadable(page.damaged.unwrap_or_else(|| "what the index names".to_owned())));
        }
    }
}

/// What distinguishes the tie of a message on its way to another shard, an id, from that of a row, a number.
const FROZEN_TIE: char = '~';

/// Where an entry stands: among equal scores rows by their keys, and behind them what is on its way, by id.
fn order(entry: &ListEntry) -> (i64, i64, String) {
    let frozen = || (i64::MAX, entry.tie.clone());
    let (key, id) = entry.tie.parse().map_or_else(|_| frozen(), |key| (key, String::new()));
    (entry.score.raw(), key, id)
}

/// A message on its way to another shard, as a page of `range` has it.
fn frozen_in(one: &Frozen, range: &ListRange) -> Option<ListEntry> {
    let one = one.listed().filter(|one| (range.lowest()..range.end()).contains(&one.score.raw()))?;
    let entry = ListEntry { tie: format!("{FROZEN_TIE}{}", one.id), ..one };
    let after = range
        .after
        .clone()
        .map(|after| order(&ListEntry { id: entry.id.clone(), score: Score::from_raw(after.score), tie: after.tie }));
    after.is_none_or(|after| order(&entry) > after).then_some(entry)
}

/// One page of the index, behind `after`.
fn indexed(
    conn: &Connection,
    key: i64,
    range: &ListRange,
    after: Option<(i64, i64)>,
    limit: usize,
) -> Result<Rows, Fault> {
    let asked = i64::try_from(limit.clamp(1, BATCH_ITEMS_MAX)).expect("a small number");
    let mut rows = Rows::new();
    let mut read = |sql: &str, score: i64, bound: i64, left: i64| -> Result<i64, Fault> {
        let mut select = conn.prepare_cached(sql)?;
        let found = select.query_map(params![key, score, bound, left], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.extend(found.collect::<rusqlite::Result<Rows>>()?);
        Ok(asked - i64::try_from(rows.len()).expect("a small number"))
    };
    let (mut lowest, mut left) = (range.lowest(), asked);
    if let Some((score, tie)) = after {
        let same = "SELECT score, key FROM message WHERE shard = ?1 AND score = ?2 AND key > ?3 \
                    ORDER BY key LIMIT ?4";
        left = read(same, score, tie, asked)?;
        lowest = score.saturating_add(1);
    }
    let later = "SELECT score, key FROM message WHERE shard = ?1 AND score >= ?2 AND score < ?3 \
                 ORDER BY score, key LIMIT ?4";
    read(later, lowest, range.end(), left)?;
    Ok(rows)
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
