//! Changes of dead letters that are still what their caller read.
//!
//! Upstream: the store. Downstream: `past`, which remembers what moved.

use duetime_core::store::{DeadChange, DeadEdit, DeadEdited};
use duetime_core::{End, LeaseClass, MessageId, Nonce, Score, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::body;
use crate::enqueue::forget_dead;
use crate::past;
use crate::shard::ShardState;

/// A message as its row has it.
pub struct Found {
    pub key: i64,
    died_at: Option<Timestamp>,
    pub bytes: i64,
    pub head: Vec<u8>,
}

impl Found {
    fn nonce(&self) -> Option<Nonce> {
        body::head(&self.head).map(|(_, nonce)| Nonce(nonce))
    }

    /// Whether it is the letter of this enqueue that died then.
    pub fn is_letter(&self, nonce: Nonce, died_at: Timestamp) -> bool {
        self.died_at == Some(died_at) && self.nonce() == Some(nonce)
    }
}

/// Carries out the batch, item by item; see [`duetime_core::MessageStore::edit_dead_letters_at`].
pub fn edit_dead(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    edits: &[DeadEdit],
) -> rusqlite::Result<Vec<DeadEdited>> {
    edits.iter().map(|edit| edit_one(conn, state, now, edit)).collect()
}

fn edit_one(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    edit: &DeadEdit,
) -> rusqlite::Result<DeadEdited> {
    let Some(found) = find(conn, state, &edit.id)? else {
        let is_that = match edit.rewritten() {
            Some(nonce) => {
                past::became(conn, state.key, state.memory, now, &edit.id)?.is_some_and(|one| one.nonce == nonce)
            }
            None => false,
        };
        return Ok(if is_that { DeadEdited::Already } else { DeadEdited::Unknown });
    };
    if !found.is_letter(edit.nonce, edit.died_at) {
        let is_that = edit.rewritten().is_some_and(|nonce| found.nonce() == Some(nonce));
        return Ok(if is_that { DeadEdited::Already } else { DeadEdited::Changed });
    }
    let attempts = forget_dead(conn, state, &edit.id)?;
    state.freed(found.bytes);
    match &edit.change {
        DeadChange::Rewrite { nonce, headers, payload } => {
            let mut body = body::encode_parts(edit.id.as_str(), *nonce, headers, payload);
            body::set_due(&mut body, now);
            let score = Score::new(now, LeaseClass::FREE, 0);
            let sql = "UPDATE message SET score = ?2, body = ?3 WHERE key = ?1";
            conn.prepare_cached(sql)?.execute(params![found.key, score.raw(), body])?;
            state.added(score);
            state.stored(body.len());
        }
        DeadChange::MoveOut => {
            conn.prepare_cached("DELETE FROM message WHERE key = ?1")?.execute(params![found.key])?;
            past::ended(conn, state, now, &edit.id, (End::Moved, attempts), &found.head)?;
        }
    }
    Ok(DeadEdited::Done)
}

/// The message of this id, live or dead.
pub fn find(conn: &Connection, state: &ShardState, id: &MessageId) -> rusqlite::Result<Option<Found>> {
    let sql = "SELECT m.key, d.cursor, length(m.body), substr(m.body, 1, 17) FROM message m \
               LEFT JOIN dead d ON m.score IS NULL AND d.shard = m.shard AND d.id = m.id \
               WHERE m.shard = ?1 AND m.id = ?2";
    let read = |row: &Row<'_>| {
        let cursor: Option<i64> = row.get(1)?;
        let died_at = cursor.map(|cursor| Score::from_raw(cursor).visible_at());
        Ok(Found { key: row.get(0)?, died_at, bytes: row.get(2)?, head: row.get(3)? })
    };
    conn.prepare_cached(sql)?.query_row(params![state.key, id.as_str()], read).optional()
}
