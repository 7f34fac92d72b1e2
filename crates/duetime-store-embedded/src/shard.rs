//! What the writer remembers of one shard: its clock, deadlines, recent claims, and counts.
//!
//! Counts and the head are a cache of the tables, made when the folder is opened and kept in step
//! with every write. The rest ([`Meta`]) is stored with the messages, in the same transaction.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use duetime_core::limits::{CANCELS_KEPT, CLOCK_SKEW_MAX};
use duetime_core::resize_store::DeadlineFloor;
use duetime_core::store::ShardCounts;
use duetime_core::{InFlightBound, LeaseClass, Memory, MessageId, Routing, Score, Timestamp, TopicRecord, deadlines};
use parking_lot::{Mutex, RwLock};
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::damage::ShardDamage;

/// Claims whose request is remembered.
const REQUESTS_KEPT: usize = 16;
/// Calls that were given the time this much apart are counted for both times.
const OVERTAKEN_MS: i64 = 100;
/// No head, as it is directory.
const EMPTY: i64 = i64::MIN;

/// What readers see without asking the writer.
#[derive(Debug)]
pub struct LiveShard {
    /// The shard in the tables.
    pub key: i64,
    routing: RwLock<Arc<Routing>>,
    head: AtomicI64,
    /// Claims that a cancel ended since the store was opened, the oldest first.
    cancelled: Mutex<VecDeque<(MessageId, Score)>>,
}

impl LiveShard {
    fn new(key: i64, routing: Arc<Routing>) -> Self {
        Self { key, routing: RwLock::new(routing), head: AtomicI64::new(EMPTY), cancelled: Mutex::default() }
    }

    /// Its copy of the routing record.
    pub fn routing(&self) -> Arc<Routing> {
        self.routing.read().clone()
    }

    /// Cancels ended these claims.
    fn show_cancelled(&self, claims: impl Iterator<Item = (MessageId, Score)>) {
        let mut cancelled = self.cancelled.lock();
        cancelled.extend(claims);
        let more = cancelled.len().saturating_sub(CANCELS_KEPT);
        cancelled.drain(..more);
    }

    /// Claims that a cancel ended, the oldest first.
    pub fn cancelled_claims(&self) -> Vec<(MessageId, Score)> {
        self.cancelled.lock().iter().cloned().collect()
    }

    /// Visible time of the first message.
    pub fn head(&self) -> Option<Timestamp> {
        let raw = self.head.load(Ordering::Acquire);
        (raw != EMPTY).then(|| Score::from_raw(raw).visible_at())
    }
}

/// A claim that was answered: all it holds have scores from `base` to `base + 99`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Answered {
    pub request: u64,
    pub base: i64,
    pub suspect: bool,
}

/// The stored part.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Meta {
    /// The moment of the last claim, to notice a clock that was put back.
    pub high_water_ms: i64,
    /// Cursor of the last dead letter. Only versions of before read it.
    #[serde(default)]
    pub last_dead: i64,
    /// Last deadline of each class.
    pub deadlines_ms: [i64; 10],
    /// The last claims, oldest first.
    pub answered: VecDeque<Answered>,
    /// The transaction that wrote this. `None` in what an older version wrote, as below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transaction: Option<i64>,
    /// Messages there are, dead letters too: what the tables have to hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// Bytes of their bodies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Rows of `past` that note a cancel of an unknown id; those of a version of before are not counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub notes: u32,
    /// In milliseconds: the watermark of the topic that was given last, in its first shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watermark: Option<i64>,
    /// How many of its messages may be in flight, where it is new under a record under which ids move.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub places: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Meta {
    /// Of an empty shard, made after this transaction.
    pub fn fresh(transaction: i64) -> Self {
        Self { transaction: Some(transaction), messages: Some(0), bytes: Some(0), ..Self::default() }
    }
}

/// What the writer remembers of one shard: its clock, deadlines, recent claims, and counts.
#[derive(Clone, Debug)]
pub struct ShardState {
    pub key: i64,
    index: u32,
    pub routing: Arc<Routing>,
    pub meta: Meta,
    /// Messages with a score.
    pub live: u64,
    /// Of these, claimed ones.
    pub held: u64,
    pub dead: u64,
    /// Bytes of the bodies of all of them.
    pub bytes: u64,
    /// Of the live ones, those with a score of at most `counted_to`.
    due: u64,
    counted_to: i64,
    /// `None`: to be looked up.
    head: Option<Option<i64>>,
    /// Whether the meta must be written.
    pub changed: bool,
    /// What the operation under way has it remember.
    pub memory: Memory,
    /// How many may be in flight, in the same way.
    pub in_flight: InFlightBound,
    /// No message with a score up to this is claimed: the next look for claims that ran out begins behind it.
    pub looked_to: i64,
    /// While what a clock that was ahead remembered is put right: the last row that is.
    pub healed_to: Option<i64>,
    /// Claims that a cancel ended in the transaction under way, the oldest first; readers see them once it is
    /// committed.
    cancelled: Vec<(MessageId, Score)>,
    pub view: Arc<LiveShard>,
    pub damage: Arc<ShardDamage>,
}

impl ShardState {
    pub fn new(key: i64, index: u32, meta: Meta, routing: Arc<Routing>) -> Self {
        Self {
            key,
            index,
            routing: routing.clone(),
            meta,
            live: 0,
            held: 0,
            dead: 0,
            bytes: 0,
            due: 0,
            counted_to: i64::MIN,
            head: None,
            changed: false,
            memory: Memory::default(),
            in_flight: InFlightBound::None,
            looked_to: i64::MIN,
            healed_to: None,
            cancelled: Vec::new(),
            view: Arc::new(LiveShard::new(key, routing)),
            damage: Arc::default(),
        }
    }

    /// Notes the moment of a claim; by how much the last one was ahead of it, if that is more than
    /// clocks may be apart. Decides nothing: only the present clock says what is due.
    pub fn note(&mut self, now: Timestamp) -> Option<Duration> {
        let back = Timestamp::from_millis(self.meta.high_water_ms).since(now);
        self.meta.high_water_ms = now.as_millis();
        self.changed |= back > CLOCK_SKEW_MAX;
        (back > CLOCK_SKEW_MAX).then_some(back)
    }

    /// A body of so many bytes is there.
    pub fn stored(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.changed = true;
    }

    /// There are so many more notes of cancels, or fewer.
    pub fn noted(&mut self, more: i32) {
        self.meta.notes = self.meta.notes.saturating_add_signed(more);
        self.changed = true;
    }

    /// A body of so many bytes is gone.
    pub fn freed(&mut self, bytes: i64) {
        self.bytes = self.bytes.saturating_sub(bytes.unsigned_abs());
        self.changed = true;
    }

    /// A message has this score.
    pub fn added(&mut self, score: Score) {
        let raw = score.raw();
        self.live += 1;
        if score.class().is_held() {
            self.held += 1;
            // What moved here may have run out, and a clock may have gone back.
            self.looked_to = self.looked_to.min(raw - 1);
        }
        self.due += u64::from(raw <= self.counted_to);
        if let Some(head) = &mut self.head
            && head.is_none_or(|head| raw < head)
        {
            *head = Some(raw);
        }
        self.changed = true;
    }

    /// A message has this score no more.
    pub fn removed(&mut self, score: Score) {
        let raw = score.raw();
        self.live = self.live.saturating_sub(1);
        self.held = self.held.saturating_sub(u64::from(score.class().is_held()));
        self.due = self.due.saturating_sub(u64::from(raw <= self.counted_to));
        if self.head.flatten().is_none_or(|head| raw <= head) {
            self.head = None;
        }
        self.changed = true;
    }

    /// Score of the first message that is not passed over. One seek, if it is not known.
    pub fn head(&mut self, conn: &Connection) -> rusqlite::Result<Option<i64>> {
        if let Some(head) = self.head {
            return Ok(head);
        }
        let sql = "SELECT score, key FROM message WHERE shard = ?1 AND score IS NOT NULL ORDER BY score";
        let mut select = conn.prepare_cached(sql)?;
        let mut rows = select.query([self.key])?;
        let mut head = None;
        while let Some(row) = rows.next()? {
            if !self.damage.is_found() || !self.damage.passes(row.get(1)?) {
                head = Some(row.get(0)?);
                break;
            }
        }
        self.head = Some(head);
        Ok(head)
    }

    /// The head has to be looked up: what is passed over may have changed.
    pub fn forget_head(&mut self) {
        self.head = None;
    }

    /// How many are visible at `now`. Each message is counted once as its time comes: O(newly due).
    pub fn due(&mut self, conn: &Connection, now: Timestamp) -> rusqlite::Result<u64> {
        let due = self.due_in_index(conn, now)?;
        let passed = if self.damage.is_found() { self.damage.count(Score::due_at_most(now).raw()).1 } else { 0 };
        Ok(due.saturating_sub(passed as u64))
    }

    fn due_in_index(&mut self, conn: &Connection, now: Timestamp) -> rusqlite::Result<u64> {
        let to = Score::due_at_most(now).raw();
        if to < self.counted_to {
            let earlier = self.due.saturating_sub(self.count(conn, to, self.counted_to)?);
            // Calls that overtake each other are some milliseconds apart; more than that is a clock that was put back,
            // and what it had counted too early is counted again when its time comes.
            if self.counted_to.saturating_sub(to) > OVERTAKEN_MS * 1000 {
                (self.due, self.counted_to) = (earlier, to);
            }
            return Ok(earlier);
        }
        if to > self.counted_to {
            if self.head(conn)?.is_some_and(|head| head <= to) {
                self.due += self.count(conn, self.counted_to, to)?;
            }
            self.counted_to = to;
        }
        Ok(self.due)
    }

    /// The counts at `now`.
    pub fn counts(&mut self, conn: &Connection, now: Timestamp) -> rusqlite::Result<ShardCounts> {
        let head = self.head(conn)?.map(|raw| Score::from_raw(raw).visible_at());
        let due = self.due(conn, now)?;
        let moving = self.frozen(conn)?;
        Ok(ShardCounts { scheduled: self.live - self.held, due, in_flight: self.held, dead: self.dead, moving, head })
    }

    /// How many messages are in its outbox.
    pub fn frozen(&self, conn: &Connection) -> rusqlite::Result<u64> {
        let sql = "SELECT count(*) FROM frozen WHERE shard = ?1";
        let count: i64 = conn.prepare_cached(sql)?.query_row([self.key], |row| row.get(0))?;
        Ok(count.unsigned_abs())
    }

    fn count(&self, conn: &Connection, above: i64, to: i64) -> rusqlite::Result<u64> {
        let sql = "SELECT count(*) FROM message WHERE shard = ?1 AND score > ?2 AND score <= ?3";
        let count: i64 = conn.prepare_cached(sql)?.query_row(params![self.key, above, to], |row| row.get(0))?;
        Ok(count.unsigned_abs())
    }

    /// How many more messages may be claimed; `None`: any number.
    pub fn room(&self) -> Option<u64> {
        let most = self.in_flight.most(self.meta.places)?;
        Some(u64::from(most).saturating_sub(self.held))
    }

    /// A deadline for a claim that nobody in this shard and class had before, and the class.
    pub fn unique_deadline(
        &mut self,
        now: Timestamp,
        visibility: Duration,
        home: LeaseClass,
    ) -> (Timestamp, LeaseClass) {
        let (mut last, parity) = (self.floor(), self.routing.deadlines(self.index));
        let (deadline, class) = deadlines::give(&mut last, now.plus(visibility), visibility, home, parity);
        self.meta.deadlines_ms[usize::from(class.digit())] = deadline.as_millis();
        self.changed = true;
        (deadline, class)
    }

    /// The last deadlines.
    pub fn floor(&self) -> DeadlineFloor {
        let mut floor = DeadlineFloor::default();
        for class in LeaseClass::held() {
            floor.raise(class, Timestamp::from_millis(self.meta.deadlines_ms[usize::from(class.digit())]));
        }
        floor
    }

    /// Raises the last deadlines.
    pub fn raise(&mut self, floor: &DeadlineFloor) {
        for (class, deadline) in floor.iter() {
            let last = &mut self.meta.deadlines_ms[usize::from(class.digit())];
            *last = deadline.as_millis().max(*last);
        }
        self.changed = true;
    }

    /// Remembers a claim for a repetition of its request.
    pub fn remember(&mut self, answered: Answered) {
        self.meta.answered.push_back(answered);
        if self.meta.answered.len() > REQUESTS_KEPT {
            self.meta.answered.pop_front();
        }
        self.changed = true;
    }

    /// Writes what must survive, in the transaction under way, which has this number.
    pub fn save(&mut self, conn: &Connection, transaction: i64) -> rusqlite::Result<()> {
        if std::mem::take(&mut self.changed) {
            self.meta.transaction = Some(transaction);
            self.meta.messages = Some(self.live + self.dead);
            self.meta.bytes = Some(self.bytes);
            let meta = serde_json::to_string(&self.meta).expect("plain numbers");
            conn.prepare_cached("UPDATE shard SET meta = ?2 WHERE key = ?1")?.execute(params![self.key, meta])?;
        }
        Ok(())
    }

    /// A cancel ended the claim of `id` under `score`.
    pub fn cancelled(&mut self, id: &MessageId, score: Score) {
        self.cancelled.push((id.clone(), score));
    }

    /// Shows head, record and cancelled claims to readers, after the commit.
    pub fn publish(&mut self) {
        if !self.cancelled.is_empty() {
            self.view.show_cancelled(self.cancelled.drain(..));
        }
        if *self.view.routing.read() != self.routing {
            *self.view.routing.write() = self.routing.clone();
        }
        if let Some(head) = self.head {
            self.view.head.store(head.unwrap_or(EMPTY), Ordering::Release);
        }
    }
}

/// One topic as the writer knows it.
#[derive(Debug)]
pub struct TopicState {
    pub record: TopicRecord,
    /// By index; while their number changes, new ones may not have been made yet.
    pub shards: BTreeMap<u32, ShardState>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_a_cancel_ended_is_shown_once_that_is_committed() {
        let routing = Arc::new(Routing::first(1, duetime_core::ChangeId(1)));
        let mut state = ShardState::new(1, 0, Meta::default(), routing);
        let (id, score) = (MessageId::new("a").unwrap(), Score::from_raw(0));
        let mut before = state.clone();
        state.cancelled(&id, score);
        assert!(state.view.cancelled_claims().is_empty());
        before.publish();
        assert!(before.view.cancelled_claims().is_empty(), "it was rolled back");
        state.publish();
        state.publish();
        assert_eq!(state.view.cancelled_claims(), [(id, score)]);
    }

    #[test]
    fn a_clock_that_was_ahead_is_counted_back_once() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE message (key INTEGER PRIMARY KEY, shard INTEGER, score INTEGER)").unwrap();
        let at = |minutes: i64| Timestamp::from_millis(1_800_000_000_000 + minutes * 60_000);
        let routing = Arc::new(Routing::first(1, duetime_core::ChangeId(1)));
        let mut state = ShardState::new(1, 0, Meta::default(), routing);
        for minutes in 0..10 {
            let score = Score::new(at(minutes), LeaseClass::TOPIC, 0);
            conn.execute("INSERT INTO message (shard, score) VALUES (1, ?1)", [score.raw()]).unwrap();
            state.added(score);
        }
        assert_eq!(state.due(&conn, at(2)).unwrap(), 3);
        assert_eq!(state.due(&conn, at(1440)).unwrap(), 10, "the clock is ahead");
        assert_eq!(state.due(&conn, at(2)).unwrap(), 3);
        assert_eq!(state.counted_to, Score::due_at_most(at(2)).raw(), "the next call has nothing to count");
        assert_eq!(state.due(&conn, at(4)).unwrap(), 5);
        let overtaken = Timestamp::from_millis(at(4).as_millis() - 1);
        assert_eq!(state.due(&conn, overtaken).unwrap(), 4);
        assert_eq!(state.counted_to, Score::due_at_most(at(4)).raw());
    }
}
