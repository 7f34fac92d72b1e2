//! What the writer has to know when a folder is opened, read from the tables.
//!
//! Counts are not stored: they are counted, over the index, and so cannot be wrong.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use duetime_core::{Routing, RoutingState, TopicName, stored};
use rusqlite::{Connection, params};
use tracing::error;

use crate::fault::Fault;
use crate::shard::{Meta, ShardState, TopicState};

/// Rows of a deleted topic taken away in one transaction.
pub const SWEEP_ROWS: i64 = 2048;

struct Counts {
    live: i64,
    held: i64,
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

/// All topics with their shards. O(messages), about a second for five million.
pub fn load(conn: &Connection) -> Result<HashMap<TopicName, TopicState>, Fault> {
    let mut counts = HashMap::new();
    // The class is the third digit from the right.
    let sql = "SELECT shard, count(score), sum(score / 100 % 10 BETWEEN 1 AND 8) FROM message GROUP BY shard";
    let mut select = conn.prepare(sql)?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let held: Option<i64> = row.get(2)?;
        counts.insert(row.get::<_, i64>(0)?, Counts { live: row.get(1)?, held: held.unwrap_or(0) });
    }
    let mut dead: HashMap<i64, i64> = HashMap::new();
    let mut select = conn.prepare("SELECT shard, count(*) FROM dead GROUP BY shard")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        dead.insert(row.get(0)?, row.get(1)?);
    }
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
    let sql = "SELECT s.topic, s.key, s.meta, s.idx, f.routing FROM shard s LEFT JOIN fence f ON f.shard = s.key";
    let mut select = conn.prepare(sql)?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (topic, key): (String, i64) = (row.get(0)?, row.get(1)?);
        if unreadable.contains(&topic) {
            counts.remove(&key);
            dead.remove(&key);
            continue;
        }
        let owner = TopicName::new(&topic).ok().and_then(|name| topics.get_mut(&name));
        let topic = owner.ok_or_else(|| torn(format!("a shard of topic {topic:?} is out of place")))?;
        let routing: Option<String> = row.get(4)?;
        let routing = routing.ok_or_else(|| torn(format!("shard {key} lacks its routing record")))?;
        let routing = Arc::new(parse::<Routing>(&routing)?);
        let mut state = ShardState::new(key, parse::<Meta>(&row.get::<_, String>(2)?)?, routing);
        if let Some(counted) = counts.remove(&key) {
            (state.live, state.held) = (counted.live.unsigned_abs(), counted.held.unsigned_abs());
        }
        state.dead = dead.remove(&key).unwrap_or(0).unsigned_abs();
        state.head(conn)?;
        state.publish();
        topic.shards.insert(row.get(3)?, state);
    }
    if let Some(topic) = topics.values().find(|topic| (0..made(topic)).any(|index| !topic.shards.contains_key(&index)))
    {
        return Err(torn(format!("topic {:?} lacks shards", topic.record.name)));
    }
    let mut select = conn.prepare("SELECT shard FROM gone")?;
    let gone = select.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<i64>>>()?;
    if let Some(key) = counts.keys().chain(dead.keys()).find(|key| !gone.contains(key)) {
        return Err(torn(format!("there are messages of shard {key}, which is not known")));
    }
    while !sweep(conn, &gone)? {}
    Ok(topics)
}

fn parse<T: serde::de::DeserializeOwned>(text: &str) -> rusqlite::Result<T> {
    serde_json::from_str(text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error)))
}

/// Takes away some of what deleted shards left; true: all of it is gone.
pub fn sweep(conn: &Connection, keys: &[i64]) -> rusqlite::Result<bool> {
    for key in keys {
        for sql in [
            "DELETE FROM message WHERE key IN (SELECT key FROM message WHERE shard = ?1 LIMIT ?2)",
            "DELETE FROM dead WHERE shard = ?1 AND cursor IN (SELECT cursor FROM dead WHERE shard = ?1 LIMIT ?2)",
        ] {
            if conn.execute(sql, params![key, SWEEP_ROWS])? > 0 {
                return Ok(false);
            }
        }
        conn.execute("DELETE FROM gone WHERE shard = ?1", [key])?;
    }
    Ok(true)
}
