//! What the writer has to know when a folder is opened, read from the tables.
//!
//! Messages are counted, over the index, so that what is served is what is there; the stored count shows
//! whether some are missing. A damaged place harms its own shard: the others are opened.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use duetime_core::{Routing, RoutingState, TopicName, stored};
use rusqlite::{Connection, OptionalExtension as _};
use tracing::{error, info, warn};

use crate::damage::Damages;
use crate::fault::{Fault, is_corrupt};
use crate::shard::{Meta, ShardState, TopicState};

/// Rebuilds the index of due times. To drop a damaged one would read it: it is taken out of the schema, and
/// its pages stay unused.
const NEW_INDEX: &str = "
    BEGIN IMMEDIATE;
    PRAGMA writable_schema = ON;
    DELETE FROM sqlite_schema WHERE type = 'index' AND name = 'message_by_score';
    PRAGMA writable_schema = RESET;
    CREATE INDEX message_by_score ON message (shard, score);
    COMMIT";

/// What was found.
#[derive(Debug, Default)]
pub struct Loaded {
    pub topics: HashMap<TopicName, TopicState>,
    /// Shards of deleted topics whose messages may still be there, by their key.
    pub deleted: VecDeque<i64>,
    /// The number of the last transaction that touched a shard.
    pub number: i64,
}

/// What the tables say does not fit together.
fn torn(what: String) -> Fault {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    Fault::Sql(rusqlite::Error::SqliteFailure(code, Some(what)))
}

/// So many shards must be there; while their number changes, new ones may not have been made yet.
fn made(topic: &TopicState) -> u32 {
    let routing = &topic.record.routing;
    if routing.state == RoutingState::Moving { routing.previous } else { routing.shards }
}

/// All topics with their shards. O(messages), about a second for five million. `synced`: the number of the last
/// transaction that is known to have been on the disk.
pub fn load(conn: &Connection, synced: i64, damages: &Damages) -> Result<Loaded, Fault> {
    let (mut topics, unreadable) = read_topics(conn)?;
    let mut select = conn.prepare("SELECT shard FROM gone")?;
    let deleted: VecDeque<i64> = select.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let (mut known, mut numbers): (HashSet<i64>, Vec<Option<i64>>) = (deleted.iter().copied().collect(), Vec::new());
    let sql = "SELECT s.topic, s.key, s.meta, s.idx, f.routing FROM shard s LEFT JOIN fence f ON f.shard = s.key";
    let mut select = conn.prepare(sql)?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (topic, key): (String, i64) = (row.get(0)?, row.get(1)?);
        known.insert(key);
        if unreadable.contains(&topic) {
            numbers.push(parse::<Meta>(&row.get::<_, String>(2)?).ok().and_then(|meta| meta.transaction));
            continue;
        }
        let owner = TopicName::new(&topic).ok().and_then(|name| topics.get_mut(&name));
        let topic = owner.ok_or_else(|| torn(format!("a shard of topic {topic:?} is out of place")))?;
        let routing: Option<String> = row.get(4)?;
        let routing = routing.ok_or_else(|| torn(format!("shard {key} lacks its routing record")))?;
        let routing = Arc::new(parse::<Routing>(&routing)?);
        let index = row.get(3)?;
        let state = ShardState::new(key, index, parse::<Meta>(&row.get::<_, String>(2)?)?, routing);
        numbers.push(state.meta.transaction);
        topic.shards.insert(index, state);
    }
    drop(rows);
    if let Some(topic) = topics.values().find(|topic| (0..made(topic)).any(|index| !topic.shards.contains_key(&index)))
    {
        return Err(torn(format!("topic {:?} lacks shards", topic.record.name)));
    }
    count_all(conn, &mut topics, damages)?;
    if let Some(key) = unknown_shard(conn, &known)? {
        return Err(torn(format!("there are messages of shard {key}, which is not known")));
    }
    let number = last_number(conn, &numbers, synced, damages)?;
    Ok(Loaded { topics, deleted, number })
}

/// The number of the last transaction, and whether some that were on the disk are missing.
fn last_number(conn: &Connection, numbers: &[Option<i64>], synced: i64, damages: &Damages) -> rusqlite::Result<i64> {
    let sql = "SELECT last FROM deleted_transaction";
    let deleted: i64 = conn.query_row(sql, [], |row| row.get(0)).optional()?.unwrap_or(0);
    let there = numbers.iter().flatten().copied().max().unwrap_or(0).max(deleted);
    // An older version that wrote to it in between kept no numbers.
    if there < synced && numbers.iter().all(Option::is_some) {
        damages.lost(synced - there);
    }
    Ok(there.max(synced))
}

type LoadedTopics = HashMap<TopicName, TopicState>;

/// The topics without their shards, and the names of those whose record cannot be read.
fn read_topics(conn: &Connection) -> Result<(LoadedTopics, HashSet<String>), Fault> {
    let (mut topics, mut unreadable) = (HashMap::new(), HashSet::new());
    let mut select = conn.prepare("SELECT name, record FROM topic")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        let record = match stored::read(&row.get::<_, String>(1)?) {
            Ok(record) => record,
            // It harms its own topic alone, whose messages stay where they are.
            Err(error) => {
                error!(topic = %name, %error, "record of a topic cannot be read, the topic is left out");
                unreadable.insert(name);
                continue;
            }
        };
        topics.insert(record.name.clone(), TopicState { record, shards: BTreeMap::new() });
    }
    Ok((topics, unreadable))
}

/// Counts the messages of all shards. An index with a damaged page is rebuilt from the messages, once.
fn count_all(conn: &Connection, topics: &mut LoadedTopics, damages: &Damages) -> Result<(), Fault> {
    let mut index_is_new = false;
    for topic in topics.values_mut() {
        for (index, state) in &mut topic.shards {
            let mut counted = count(conn, state);
            if counted.as_ref().is_err_and(is_corrupt) && !std::mem::replace(&mut index_is_new, true) {
                warn!(topic = %topic.record.name, shard = index, "the index of due times is damaged, it is made anew");
                match conn.execute_batch(NEW_INDEX) {
                    Ok(()) => info!("the index of due times was made anew from the messages"),
                    Err(error) => {
                        error!(%error, "the index of due times could not be made anew from the messages");
                        // Not every error of a statement ends its transaction.
                        let _ = conn.execute_batch("ROLLBACK; PRAGMA writable_schema = RESET");
                    }
                }
                counted = count(conn, state);
            }
            let what = match counted {
                Ok(None) => continue,
                Ok(Some(what)) => what,
                Err(error) if is_corrupt(&error) => format!("its messages cannot be counted: {error}"),
                Err(error) => return Err(error.into()),
            };
            state.damage.find();
            damages.shard(&topic.record.name, *index, &what);
        }
    }
    Ok(())
}

/// Counts the messages of a shard; how many more or less there are than there should be, if so.
fn count(conn: &Connection, state: &mut ShardState) -> rusqlite::Result<Option<String>> {
    // The class is the third digit from the right.
    let sql = "SELECT count(*), count(score), sum(score / 100 % 10 BETWEEN 1 AND 8) FROM message WHERE shard = ?1";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get::<_, Option<i64>>(2)?));
    let (all, live, held): (i64, i64, _) = conn.prepare_cached(sql)?.query_row([state.key], read)?;
    let sql = "SELECT count(*) FROM dead WHERE shard = ?1";
    let dead: i64 = conn.prepare_cached(sql)?.query_row([state.key], |row| row.get(0))?;
    (state.live, state.held) = (live.unsigned_abs(), held.unwrap_or(0).unsigned_abs());
    state.dead = dead.unsigned_abs();
    state.bytes = match state.meta.bytes {
        Some(bytes) => bytes,
        // An older version kept no sum.
        None => {
            let sql = "SELECT total(length(body)) FROM message WHERE shard = ?1";
            conn.prepare_cached(sql)?.query_row([state.key], |row| row.get::<_, f64>(0))? as u64
        }
    };
    state.forget_head();
    state.head(conn)?;
    state.publish();
    let should = state.meta.messages.unwrap_or(state.live + state.dead);
    Ok((should != all.unsigned_abs()).then(|| format!("it has {all} messages and should have {should}")))
}

/// A shard with messages that is not among `known`. A seek for each shard there is.
fn unknown_shard(conn: &Connection, known: &HashSet<i64>) -> rusqlite::Result<Option<i64>> {
    for table in ["message", "dead"] {
        let mut next = conn.prepare(&format!("SELECT min(shard) FROM {table} WHERE shard > ?1"))?;
        let mut at = i64::MIN;
        loop {
            match next.query_row([at], |row| row.get::<_, Option<i64>>(0)) {
                Ok(Some(key)) if known.contains(&key) => at = key,
                // What a damaged page hides belongs to a shard that was found damaged.
                Err(error) if is_corrupt(&error) => break,
                found => match found? {
                    None => break,
                    unknown => return Ok(unknown),
                },
            }
        }
    }
    Ok(None)
}

fn parse<T: serde::de::DeserializeOwned>(text: &str) -> rusqlite::Result<T> {
    serde_json::from_str(text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error)))
}
