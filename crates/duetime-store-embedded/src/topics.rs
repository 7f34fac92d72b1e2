//! Topics: made, changed and deleted, each in a transaction of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use duetime_core::resize_store::{DeadlineFloor, Fenced};
use duetime_core::store::Deletion;
use duetime_core::{Routing, RoutingRecord, StoreError, TopicName, TopicRecord, stored};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::fault::Fault;
use crate::shard::{Meta, ShardState, TopicState};
use crate::write_context::WriteContext;

pub fn text<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("plain data")
}

/// Creates or changes a topic.
pub fn put(ctx: &mut WriteContext, record: &TopicRecord, seen: Option<u64>) -> Result<TopicRecord, Fault> {
    let there = ctx.topics.get(&record.name).map(|topic| topic.record.clone());
    if there.as_ref().map(|there| there.version) != seen || record.version != seen.unwrap_or(0) + 1 {
        return Err(StoreError::Conflict.into());
    }
    if there.as_ref().is_some_and(|there| there.check_in_flight(&record.config).is_err()) {
        return Err(StoreError::Conflict.into());
    }
    let mut record = record.clone();
    let (conn, name) = (&ctx.conn, record.name.to_string());
    let old = kept(conn, &name)?;
    conn.execute_batch("BEGIN")?;
    let mut made = BTreeMap::new();
    if let Some(there) = &there {
        record.keep_routing_of(there);
        conn.execute(
            "UPDATE topic SET record = ?2 WHERE name = ?1",
            params![name, stored::write(&record, old.as_deref())],
        )?;
    } else if old.is_some() {
        conn.execute_batch("ROLLBACK")?;
        return Err(StoreError::Damaged(format!("record of topic {name:?} cannot be read")).into());
    } else {
        record = record.in_life(next_life(conn)?);
        conn.execute("INSERT INTO topic (name, record) VALUES (?1, ?2)", params![name, text(&record)])?;
        let mut insert = conn.prepare("INSERT INTO shard (topic, idx, meta) VALUES (?1, ?2, ?3)")?;
        let mut fence = conn.prepare("INSERT INTO fence (shard, routing) VALUES (?1, ?2)")?;
        let routing = Arc::new(record.routing.clone());
        for index in 0..record.routing.shards {
            let meta = Meta::fresh(ctx.number);
            insert.execute(params![name, index, text(&meta)])?;
            let key = conn.last_insert_rowid();
            fence.execute(params![key, text(&*routing)])?;
            made.insert(index, ShardState::new(key, index, meta, routing.clone()));
        }
    }
    ctx.files.commit(conn)?;
    let stored = record.clone();
    match ctx.topics.get_mut(&record.name) {
        Some(topic) => topic.record = record,
        None => {
            let topic = TopicState { record, shards: made };
            ctx.directory.show(&topic);
            ctx.topics.insert(topic.record.name.clone(), topic);
        }
    }
    Ok(stored)
}

/// The record as it is in the table.
fn kept(conn: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    conn.query_row("SELECT record FROM topic WHERE name = ?1", [name], |row| row.get(0)).optional()
}

/// The number of a new life, above that of every life before.
fn next_life(conn: &Connection) -> rusqlite::Result<u64> {
    let last: Option<i64> = conn.query_row("SELECT last FROM life", [], |row| row.get(0)).optional()?;
    let next = last.unwrap_or(0) + 1;
    let sql = if last.is_some() { "UPDATE life SET last = ?1" } else { "INSERT INTO life (last) VALUES (?1)" };
    conn.execute(sql, [next])?;
    Ok(next.unsigned_abs())
}

/// Replaces a topic's routing, if it is still what was seen.
pub fn swap(ctx: &mut WriteContext, name: &TopicName, seen: &RoutingRecord, new: &RoutingRecord) -> Result<(), Fault> {
    let there = ctx.topics.get_mut(name).filter(|topic| topic.record.routing_record() == *seen);
    let topic = there.ok_or(StoreError::Conflict)?;
    let mut record = topic.record.clone();
    record.set_routing(new);
    let old = kept(&ctx.conn, name.as_str())?;
    let written = stored::write(&record, old.as_deref());
    ctx.conn.execute_batch("BEGIN")?;
    ctx.conn.execute("UPDATE topic SET record = ?2 WHERE name = ?1", params![name.as_str(), written])?;
    ctx.files.commit(&ctx.conn)?;
    topic.record = record;
    Ok(())
}

/// Raises a shard to a routing record, creating it if it is new.
pub fn fence(
    ctx: &mut WriteContext,
    name: &TopicName,
    index: u32,
    routing: &Routing,
    floor: &DeadlineFloor,
) -> Result<Fenced, Fault> {
    let unknown = || StoreError::UnknownShard(routing.shard(name, index).to_string());
    let topic = ctx.topics.get_mut(name).ok_or_else(unknown)?;
    if topic.record.routing.life() != routing.life() {
        return Err(unknown().into());
    }
    if !routing.may_lack(index) && !topic.shards.contains_key(&index) {
        return Err(StoreError::Lost(routing.shard(name, index).to_string()).into());
    }
    let before = topic.shards.get(&index).map(|state| Routing::clone(&state.routing));
    let next = match &before {
        None => routing.clone(),
        Some(before) => crate::moves::raised(before, name, index, routing)?,
    };
    let (conn, number) = (&ctx.conn, ctx.number);
    conn.execute_batch("BEGIN")?;
    let mut state = if let Some(state) = topic.shards.get(&index) {
        state.clone()
    } else {
        let meta = Meta::fresh(number);
        let sql = "INSERT INTO shard (topic, idx, meta) VALUES (?1, ?2, ?3)";
        conn.execute(sql, params![name.as_str(), index, text(&meta)])?;
        ShardState::new(conn.last_insert_rowid(), index, meta, Arc::new(next.clone()))
    };
    if state.routing.epoch < next.epoch {
        state.meta.places = 0;
    }
    state.routing = Arc::new(next);
    state.raise(floor);
    let sql = "INSERT OR REPLACE INTO fence (shard, routing) VALUES (?1, ?2)";
    conn.execute(sql, params![state.key, text(&*state.routing)])?;
    state.save(conn, number)?;
    ctx.files.commit(conn)?;
    state.publish();
    let floor = state.floor();
    topic.shards.insert(index, state);
    ctx.directory.show(topic);
    Ok(Fenced { before, floor })
}

/// Deletes a topic; false: it was not there. What it held is nobody's from then on and is swept later.
pub fn delete(ctx: &mut WriteContext, name: &TopicName, how: Deletion) -> Result<bool, Fault> {
    let Some(topic) = ctx.topics.get(name) else { return Ok(false) };
    if how == Deletion::IfEmpty {
        let mut messages = 0;
        for state in topic.shards.values() {
            messages += state.live + state.dead + state.frozen(&ctx.conn)?;
        }
        topic.record.check_deletable(messages)?;
    }
    let keys: Vec<i64> = topic.shards.values().map(|state| state.key).collect();
    let conn = &ctx.conn;
    conn.execute_batch("BEGIN")?;
    conn.execute("DELETE FROM topic WHERE name = ?1", [name.as_str()])?;
    conn.execute("INSERT INTO gone (shard) SELECT key FROM shard WHERE topic = ?1", [name.as_str()])?;
    for table in ["fence", "outbox", "frozen", "moved"] {
        let sql = format!("DELETE FROM {table} WHERE shard IN (SELECT key FROM shard WHERE topic = ?1)");
        conn.execute(&sql, [name.as_str()])?;
    }
    conn.execute("DELETE FROM shard WHERE topic = ?1", [name.as_str()])?;
    // Its shards may have been the only ones that knew it.
    if conn.execute("UPDATE deleted_transaction SET last = ?1", [ctx.number])? == 0 {
        conn.execute("INSERT INTO deleted_transaction (last) VALUES (?1)", [ctx.number])?;
    }
    ctx.files.commit(conn)?;
    ctx.topics.remove(name);
    ctx.directory.hide(name);
    ctx.damages.forget(name);
    ctx.deleted.extend(keys);
    Ok(true)
}
