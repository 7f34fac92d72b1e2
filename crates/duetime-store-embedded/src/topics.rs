//! Topics: made, changed and deleted, each in a transaction of its own.

use duetime_core::{StoreError, TopicName, TopicRecord};
use rusqlite::params;

use crate::fault::Fault;
use crate::shard::{Meta, ShardState};
use crate::writer::{Desk, TopicState};

fn text<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("plain data")
}

/// Creates or changes a topic.
pub fn put(desk: &mut Desk, record: &TopicRecord, seen: Option<u64>) -> Result<(), Fault> {
    let there = desk.topics.get(&record.name).map(|topic| topic.record.clone());
    if there.as_ref().map(|there| there.version) != seen || record.version != seen.unwrap_or(0) + 1 {
        return Err(StoreError::Conflict.into());
    }
    let mut record = record.clone();
    let (conn, name) = (&desk.conn, record.name.to_string());
    conn.execute_batch("BEGIN")?;
    let mut made = Vec::new();
    if let Some(there) = &there {
        record.keep_routing_of(there);
        conn.execute("UPDATE topic SET record = ?2 WHERE name = ?1", params![name, text(&record)])?;
    } else {
        conn.execute("INSERT INTO topic (name, record) VALUES (?1, ?2)", params![name, text(&record)])?;
        let mut insert = conn.prepare("INSERT INTO shard (topic, idx, meta) VALUES (?1, ?2, ?3)")?;
        for index in 0..record.routing.shards {
            let meta = Meta::default();
            insert.execute(params![name, index, text(&meta)])?;
            made.push(ShardState::new(conn.last_insert_rowid(), meta));
        }
    }
    conn.execute_batch("COMMIT")?;
    match desk.topics.get_mut(&record.name) {
        Some(topic) => topic.record = record,
        None => {
            let topic = TopicState { record, shards: made };
            desk.published.show(&topic);
            desk.topics.insert(topic.record.name.clone(), topic);
        }
    }
    Ok(())
}

/// Deletes a topic; what it held is nobody's from then on and has to be swept. `None`: it was not there.
pub fn delete(desk: &mut Desk, name: &TopicName) -> Result<Option<Vec<i64>>, Fault> {
    let Some(topic) = desk.topics.get(name) else { return Ok(None) };
    let keys = topic.shards.iter().map(|state| state.key).collect();
    desk.conn.execute_batch("BEGIN")?;
    desk.conn.execute("DELETE FROM topic WHERE name = ?1", [name.as_str()])?;
    desk.conn.execute("INSERT INTO gone (shard) SELECT key FROM shard WHERE topic = ?1", [name.as_str()])?;
    desk.conn.execute("DELETE FROM shard WHERE topic = ?1", [name.as_str()])?;
    desk.conn.execute_batch("COMMIT")?;
    desk.topics.remove(name);
    desk.published.hide(name);
    Ok(Some(keys))
}
