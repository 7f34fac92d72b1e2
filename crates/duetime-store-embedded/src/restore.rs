//! Puts back what a bulk action removed.
//!
//! Upstream: the store. Downstream: `moves`, which brings messages with all that they have.

use duetime_core::resize_store::{Frozen, FrozenState};
use duetime_core::{End, Timestamp};
use rusqlite::{Connection, params};

use crate::body;
use crate::fault::Fault;
use crate::moves::bring_all;
use crate::past;
use crate::shard::ShardState;

/// See [`duetime_core::MessageStore::restore`].
pub fn restore(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    taken: &[Frozen],
) -> Result<Vec<bool>, Fault> {
    taken.iter().map(|one| restore_one(conn, state, now, one)).collect()
}

fn restore_one(conn: &Connection, state: &mut ShardState, now: Timestamp, one: &Frozen) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM message WHERE shard = ?1 AND id = ?2";
    if conn.prepare_cached(sql)?.exists(params![state.key, one.id.as_str()])? {
        return Ok(false);
    }
    let end = if matches!(one.state, FrozenState::Dead { .. }) { End::Dead } else { End::Cancelled };
    let nonce = one.body.as_deref().and_then(body::head).map_or(0, |(_, nonce)| nonce);
    if !past::is_taken_out(conn, state, now, &one.id, (end, nonce))? {
        return Ok(false);
    }
    // The next removal of it is another one.
    past::unmark(conn, state, &one.id)?;
    Ok(bring_all(conn, state, std::slice::from_ref(one))? == 1)
}
