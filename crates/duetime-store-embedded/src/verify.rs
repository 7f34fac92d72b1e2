//! Reads all messages once after the folder was opened, slowly, so that a damaged body is reported before it is due.
//!
//! Upstream: the store, which starts it on a thread of its own. Downstream: the damages. It reads beside the writer
//! and changes nothing: what becomes of a damaged message is decided when its turn comes.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use duetime_core::TopicName;
use rusqlite::{Connection, OptionalExtension, params};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::damage::Damages;
use crate::fault::is_corrupt;
use crate::folder::open_reader;
use crate::{body, fault};

/// A node that starts has other work first.
const BEGINS_AFTER: Duration = Duration::from_secs(10);
/// Messages of one step.
const ROWS_MAX: i64 = 64;
/// Bytes of bodies of one step, unless a single one is longer.
const STEP_BYTES: usize = 1 << 20;
/// After each step so many times as long as it took: a tenth of one processor at most.
const PAUSE_FACTOR: u32 = 9;
/// And this long for each [`STEP_BYTES`] that were read: 8 MiB a second at most.
const PAUSE_FOR_BYTES: Duration = Duration::from_millis(125);

/// A shard as it was when the folder was opened.
#[derive(Clone, Debug)]
pub struct ShardRows {
    pub topic: TopicName,
    pub index: u32,
    pub key: i64,
}

/// Where a step ended: the last id that it checked, and how many bytes it read.
struct VerifyStep {
    last: Option<String>,
    bytes: usize,
}

/// Waits, then looks through `places` until the other end of `ended` is dropped.
pub fn run(folder: &Path, places: &[ShardRows], damages: &Damages, ended: &Receiver<()>) {
    let pause = |wait| matches!(ended.recv_timeout(wait), Err(RecvTimeoutError::Timeout));
    if !pause(BEGINS_AFTER) {
        return;
    }
    match look_through(folder, places, damages, pause) {
        Ok(true) => debug!(shards = places.len(), "all messages of before the start were read"),
        Ok(false) => {}
        Err(error) => warn!(%error, file = fault::DATABASE, "messages cannot be looked through for damage"),
    }
}

/// Reads every message of these shards, up to the first damaged one of each; `pause` answers whether to go on.
pub fn look_through(
    folder: &Path,
    places: &[ShardRows],
    damages: &Damages,
    pause: impl Fn(Duration) -> bool,
) -> rusqlite::Result<bool> {
    let conn = open_reader(folder)?;
    for place in places {
        let mut last = String::new();
        loop {
            let began = Instant::now();
            let step = match step(&conn, place.key, &last) {
                Ok(Ok(step)) => step,
                Ok(Err(what)) => {
                    damages.shard(&place.topic, place.index, &what);
                    break;
                }
                Err(error) if is_corrupt(&error) => {
                    damages.shard(&place.topic, place.index, &error.to_string());
                    break;
                }
                Err(error) => return Err(error),
            };
            let for_bytes = PAUSE_FOR_BYTES.mul_f64(step.bytes as f64 / STEP_BYTES as f64);
            if !pause((began.elapsed() * PAUSE_FACTOR).max(for_bytes)) {
                return Ok(false);
            }
            let Some(next) = step.last else { break };
            last = next;
        }
    }
    Ok(true)
}

/// Reads the messages behind `last`; the inner error: what is damaged.
fn step(conn: &Connection, key: i64, last: &str) -> rusqlite::Result<Result<VerifyStep, String>> {
    // The index alone, for a damaged page of the table must not hide which message is on it.
    let mut ids = conn.prepare_cached(
        "SELECT key, id FROM message INDEXED BY message_by_id WHERE shard = ?1 AND id > ?2 ORDER BY id LIMIT ?3",
    )?;
    let mut one = conn.prepare_cached("SELECT body FROM message WHERE key = ?1 AND id = ?2")?;
    let mut step = VerifyStep { last: None, bytes: 0 };
    let mut rows = ids.query(params![key, last, ROWS_MAX])?;
    while step.bytes < STEP_BYTES
        && let Some(row) = rows.next()?
    {
        let (row, id): (i64, String) = (row.get(0)?, row.get(1)?);
        // It may be gone since.
        let read: Option<Vec<u8>> = one.query_row(params![row, id], |row| row.get(0)).optional()?;
        if let Some(read) = read {
            step.bytes += read.len();
            if let Err(why) = body::check(&id, &read) {
                return Ok(Err(format!("message {id:?}: {why}")));
            }
        }
        step.last = Some(id);
    }
    Ok(Ok(step))
}
