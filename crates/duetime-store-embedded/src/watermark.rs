//! What of a shard is not done, and the watermark that is kept with a topic's first shard.

use duetime_core::resize_store::FrozenState;
use duetime_core::{Score, Timestamp, Undone, UndoneMessage, UndoneState};
use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::fault::Fault;
use crate::shard::ShardState;
use crate::{body, moves};

/// See [`duetime_core::MessageStore::undone`].
pub fn undone(conn: &Connection, state: &ShardState, now: Timestamp) -> Result<Undone, Fault> {
    // With an entry first, which says more of a message that is the first one too.
    let mut found: Vec<UndoneMessage> = Vec::with_capacity(3);
    for sql in [
        "SELECT key, id, score, undone FROM message WHERE shard = ?1 AND undone IS NOT NULL ORDER BY undone LIMIT 1",
        "SELECT key, id, score, NULL FROM message WHERE shard = ?1 AND score IS NOT NULL ORDER BY score LIMIT 1",
    ] {
        let one = conn.prepare_cached(sql)?.query_row([state.key], |row| Ok(message(row))).optional()?;
        found.extend(one.transpose()?);
    }
    for frozen in moves::frozen_of(conn, state.key)? {
        let FrozenState::Live(score) = frozen.state else { continue };
        let due_at = frozen.body.as_deref().and_then(body::head).map_or(score.visible_at(), |(due_at, _)| due_at);
        let due_at = due_at.min(score.visible_at());
        found.push(UndoneMessage { id: Some(frozen.id), due_at, state: UndoneState::Moving });
    }
    Ok(Undone { now, oldest: found.into_iter().min_by_key(|one| one.due_at) })
}

fn message(row: &Row<'_>) -> Result<UndoneMessage, Fault> {
    let id = moves::read_id(row.get::<_, i64>(0)?, row.get(1))?;
    let (score, since) = (Score::from_raw(row.get(2)?), row.get::<_, Option<i64>>(3)?);
    let due_at = since.map_or(score.visible_at(), Timestamp::from_millis);
    Ok(UndoneMessage { id: Some(id), due_at, state: UndoneState::of(score, since.is_some()) })
}

/// See [`duetime_core::MessageStore::keep_watermark`].
pub fn keep(state: &mut ShardState, at: Timestamp) -> Timestamp {
    let kept = at.as_millis().max(state.meta.watermark.unwrap_or(0));
    state.meta.watermark = Some(kept);
    state.changed = true;
    Timestamp::from_millis(kept)
}
