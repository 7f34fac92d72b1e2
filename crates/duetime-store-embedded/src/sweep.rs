//! Takes away what deleted topics left, a little at a time, between the requests of others.
//!
//! Upstream: the writer. What is not swept when the process ends is swept after the next start.

use std::time::Duration;

use rusqlite::params;
use tokio::time::Instant;

use crate::write_context::WriteContext;

/// Rows of the first step; further ones take about [`STEP`].
const ROWS_FIRST: i64 = 256;
const ROWS_MIN: i64 = 16;
const ROWS_MAX: i64 = 4096;
/// How long one step should take: a request may wait for this long.
const STEP: Duration = Duration::from_millis(4);
/// While requests wait, the pause between two steps is so many times the last one.
const PAUSE_FACTOR: u32 = 4;
/// The pause after an error.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

/// Takes away what deleted topics left, a little at a time, between the requests of others.
#[derive(Debug)]
pub struct Sweep {
    rows: i64,
    next: Option<Instant>,
}

impl Default for Sweep {
    fn default() -> Self {
        Self { rows: ROWS_FIRST, next: None }
    }
}

impl Sweep {
    /// Whether a step is to be made now. `idle`: no request waits.
    pub fn is_due(&self, ctx: &WriteContext, idle: bool) -> bool {
        !ctx.deleted.is_empty() && (idle && !self.failed() || self.next.is_none_or(|next| Instant::now() >= next))
    }

    fn failed(&self) -> bool {
        self.rows == 0
    }

    /// Makes one step.
    pub fn step(&mut self, ctx: &mut WriteContext) -> rusqlite::Result<()> {
        let Some(&key) = ctx.deleted.front() else { return Ok(()) };
        let (began, rows) = (Instant::now(), if self.failed() { ROWS_FIRST } else { self.rows });
        match sweep(ctx, key, rows) {
            Ok(more) => {
                if !more {
                    ctx.deleted.pop_front();
                }
                let took = began.elapsed().max(Duration::from_micros(100));
                let fitting = rows as f64 * STEP.as_secs_f64() / took.as_secs_f64();
                self.rows = (fitting as i64).clamp(rows / 2, rows * 2).clamp(ROWS_MIN, ROWS_MAX);
                self.next = Some(Instant::now() + took * PAUSE_FACTOR);
                Ok(())
            }
            Err(error) => {
                ctx.undo();
                tracing::warn!(%error, "what a deleted topic left cannot be removed now, it is tried again");
                // Another one may do: a damaged place is in the way of its own shard.
                ctx.deleted.rotate_left(1);
                self.rows = 0;
                self.next = Some(Instant::now() + ERROR_PAUSE);
                Err(error)
            }
        }
    }
}

/// Removes up to `rows` rows of a deleted shard; whether there are more.
fn sweep(ctx: &WriteContext, key: i64, rows: i64) -> rusqlite::Result<bool> {
    let conn = &ctx.conn;
    conn.execute_batch("BEGIN")?;
    let mut left = rows;
    for sql in [
        "DELETE FROM message WHERE key IN (SELECT key FROM message WHERE shard = ?1 ORDER BY score LIMIT ?2)",
        "DELETE FROM dead WHERE shard = ?1 AND cursor IN (SELECT cursor FROM dead WHERE shard = ?1 LIMIT ?2)",
        "DELETE FROM past WHERE key IN (SELECT key FROM past WHERE shard = ?1 ORDER BY key LIMIT ?2)",
    ] {
        if left > 0 {
            left -= i64::try_from(conn.prepare_cached(sql)?.execute(params![key, left])?).unwrap_or(left);
        }
    }
    if left > 0 {
        conn.prepare_cached("DELETE FROM gone WHERE shard = ?1")?.execute([key])?;
    }
    ctx.files.commit(conn)?;
    Ok(left == 0)
}
