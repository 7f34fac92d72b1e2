//! Scheduling.

use duetime_core::store::{Enqueue, EnqueueOutcome, Enqueued};
use duetime_core::{Due, LeaseClass, MessageId, Nonce, OnConflict, Outcome, Score, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::body;
use crate::past;
use crate::shard::ShardState;

/// One message, made ready by the caller so that the writer has less to do.
#[derive(Debug)]
pub struct Ready {
    id: MessageId,
    due: Due,
    pub on_conflict: OnConflict,
    nonce: Nonce,
    body: Vec<u8>,
}

impl Ready {
    pub fn new(item: &Enqueue) -> Self {
        let body = body::encode(item);
        Self { id: item.id.clone(), due: item.due, on_conflict: item.on_conflict, nonce: item.nonce, body }
    }

    /// Bytes to be written.
    pub fn len(&self) -> usize {
        self.body.len()
    }
}

/// The moment a due time means at `now`.
pub fn moment_of(due: Due, now: Timestamp) -> Timestamp {
    match due {
        Due::In(delay) => now.plus(delay),
        Due::At(at) => at,
    }
}

/// Schedules the batch. Two to three trees are written per message.
pub fn enqueue(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    batch: &mut [Ready],
) -> rusqlite::Result<Vec<Enqueued>> {
    let sql = "INSERT INTO message (shard, id, score, body) VALUES (?1, ?2, ?3, ?4) \
               ON CONFLICT (shard, id) DO NOTHING";
    let mut insert = conn.prepare_cached(sql)?;
    let mut answers = Vec::with_capacity(batch.len());
    for item in batch {
        if state.memory.is_on()
            && let Some(became) = refusal(conn, state, now, item)?
        {
            answers.push(Enqueued::remembered(became, item.nonce));
            continue;
        }
        let due_at = moment_of(item.due, now);
        let score = Score::new(due_at, LeaseClass::FREE, 0);
        body::set_due(&mut item.body, due_at);
        let added = insert.execute(params![state.key, item.id.as_str(), score.raw(), item.body])?;
        answers.push(if added == 1 {
            state.added(score);
            state.stored(item.body.len());
            Enqueued { outcome: EnqueueOutcome::Scheduled, due_at, replicas: None, became: None }
        } else {
            meet(conn, state, item, due_at, score)?
        });
    }
    Ok(answers)
}

/// For what is remembered of its id the message is refused, where that does not live.
fn refusal(conn: &Connection, state: &ShardState, now: Timestamp, item: &Ready) -> rusqlite::Result<Option<Outcome>> {
    let here = past::became(conn, state.key, state.memory, now, &item.id)?;
    let Some(became) = item.on_conflict.refusal(here) else { return Ok(None) };
    let sql = "SELECT 1 FROM message WHERE shard = ?1 AND id = ?2";
    let lives = conn.prepare_cached(sql)?.exists(params![state.key, item.id.as_str()])?;
    Ok((!lives).then_some(became))
}

/// The id lives already.
fn meet(
    conn: &Connection,
    state: &mut ShardState,
    item: &Ready,
    due_at: Timestamp,
    score: Score,
) -> rusqlite::Result<Enqueued> {
    let sql = "SELECT key, score, substr(body, 1, 17), length(body) FROM message WHERE shard = ?1 AND id = ?2";
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let (key, was, head, bytes): (i64, Option<i64>, Vec<u8>, i64) =
        conn.prepare_cached(sql)?.query_row(params![state.key, item.id.as_str()], read)?;
    let there = body::head(&head);
    let there_due = there.map_or(Timestamp::ZERO, |(due_at, _)| due_at);
    // The first answer was lost; acting again would end claims of this very message.
    if there.is_some_and(|(_, nonce)| nonce == item.nonce.0) {
        return Ok(Enqueued { outcome: EnqueueOutcome::Scheduled, due_at: there_due, replicas: None, became: None });
    }
    let was = was.map(Score::from_raw);
    let may_arrive = was.is_some_and(|was| was.class().may_arrive());
    let waits = there.filter(|_| was.is_some() && !may_arrive).map(|(due_at, _)| due_at);
    if item.on_conflict.keeps(waits, due_at) {
        let outcome = EnqueueOutcome::of_one_that_stays(item.on_conflict);
        return Ok(Enqueued { outcome, due_at: there_due, replicas: None, became: None });
    }
    match was {
        Some(was) => state.removed(was),
        None => drop(forget_dead(conn, state, &item.id)?),
    }
    let sql = "UPDATE message SET score = ?2, body = ?3, undone = NULL WHERE key = ?1";
    conn.prepare_cached(sql)?.execute(params![key, score.raw(), item.body])?;
    state.added(score);
    state.freed(bytes);
    state.stored(item.body.len());
    let outcome = if may_arrive { EnqueueOutcome::ReplacedInFlight } else { EnqueueOutcome::Replaced };
    Ok(Enqueued { outcome, due_at, replicas: None, became: None })
}

/// Takes a dead letter out of the list of the dead; its row stays. Answers its attempts, as a score has them.
pub fn forget_dead(conn: &Connection, state: &mut ShardState, id: &MessageId) -> rusqlite::Result<Score> {
    let sql = "DELETE FROM dead WHERE shard = ?1 AND id = ?2 RETURNING attempts";
    let at = params![state.key, id.as_str()];
    let gone: Option<i64> = conn.prepare_cached(sql)?.query_row(at, |row| row.get(0)).optional()?;
    state.dead = state.dead.saturating_sub(u64::from(gone.is_some()));
    state.changed = true;
    Ok(Score::from_raw(gone.unwrap_or(0)))
}
