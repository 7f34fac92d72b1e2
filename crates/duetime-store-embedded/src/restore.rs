//! Puts back what a bulk action removed.
//!
//! Upstream: the store. Downstream: `moves`, which brings messages with all that they have.

use duetime_core::resize_store::{Frozen, FrozenState};
use duetime_core::{End, Nonce, Outcome, Score, Timestamp};
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
    (by, taken): (u64, &[Frozen]),
) -> Result<Vec<bool>, Fault> {
    taken.iter().map(|one| restore_one(conn, state, now, (by, one))).collect()
}

fn restore_one(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    (by, one): (u64, &Frozen),
) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM message WHERE shard = ?1 AND id = ?2";
    if conn.prepare_cached(sql)?.exists(params![state.key, one.id.as_str()])? {
        return Ok(false);
    }
    let (end, score) = match &one.state {
        FrozenState::Live(score) => (End::Cancelled, *score),
        FrozenState::Dead { attempts, .. } => (End::Dead, Score::from_raw(i64::from(*attempts))),
    };
    let (due_at, nonce) = one.body.as_deref().and_then(body::head).unwrap_or((Timestamp::ZERO, 0));
    let is_removal = |was: &Outcome| (was.end, was.due_at, was.nonce, was.score) == (end, due_at, Nonce(nonce), score);
    if !past::taken_out_by(conn, state, now, &one.id, by)?.is_some_and(|was| is_removal(&was)) {
        return Ok(false);
    }
    // The next removal of it is another one.
    past::unmark(conn, state, &one.id)?;
    Ok(bring_all(conn, state, std::slice::from_ref(one))? == 1)
}
