//! One shard of the model: plain maps, one per Redis key of the protocol.
//!
//! Everything here is the obvious way to keep it; whole maps are walked wherever that is clearer.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use duetime_core::envelope::Envelope;
use duetime_core::limits::REASON_BYTES_MAX;
use duetime_core::message::Death;
use duetime_core::resize_store::{Batch, BatchId, DeadlineFloor, Frozen};
use duetime_core::store::ShardCounts;
use duetime_core::{
    End, LeaseClass, Memory, MessageId, MessageState, Nonce, Outcome, Routing, Score, Shard, StoreError, StoredMessage,
    Timestamp, deadlines,
};

/// Claims whose request is remembered.
pub(super) const REQUESTS_KEPT: usize = 16;

/// What is known of a dead letter beside its body.
#[derive(Clone, Debug)]
pub(super) struct DeadInfo {
    pub cursor: i64,
    pub attempts: u8,
    pub reason: String,
}

/// A claim that was answered.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub request: u64,
    pub suspect: bool,
    pub held: Vec<(MessageId, Score)>,
}

/// One shard.
#[derive(Clone, Debug)]
pub(super) struct ShardState {
    index: u32,
    pub routing: Routing,
    pub live: BTreeMap<MessageId, Score>,
    pub bodies: BTreeMap<MessageId, Envelope>,
    pub dead: BTreeMap<MessageId, DeadInfo>,
    pub last_deadlines: DeadlineFloor,
    pub answered: VecDeque<Answered>,
    /// Frozen for a move.
    pub outbox: Option<Batch>,
    /// Of the last batch taken.
    pub last_number: u64,
    /// The last batch put here, by source.
    pub applied: BTreeMap<u32, BatchId>,
    pub last_dead: i64,
    /// Claims that a cancel ended, the oldest first.
    pub cancelled: VecDeque<(MessageId, Score)>,
    /// What became of messages that are gone.
    past: BTreeMap<MessageId, Outcome>,
    /// The memory that `past` is of.
    past_since: u64,
    /// What the call under way has it remember, and the store's present.
    memory: Memory,
    now: Timestamp,
}

impl ShardState {
    pub fn new(index: u32, routing: Routing) -> Self {
        Self {
            index,
            routing,
            live: BTreeMap::new(),
            bodies: BTreeMap::new(),
            dead: BTreeMap::new(),
            last_deadlines: DeadlineFloor::default(),
            answered: VecDeque::new(),
            outbox: None,
            last_number: 0,
            applied: BTreeMap::new(),
            last_dead: 0,
            cancelled: VecDeque::new(),
            past: BTreeMap::new(),
            past_since: 0,
            memory: Memory::default(),
            now: Timestamp::ZERO,
        }
    }

    /// A call begins that has it remember what ends.
    pub fn begin(&mut self, memory: Memory, now: Timestamp) {
        (self.memory, self.now) = (memory, now);
        if memory.is_on() && self.past_since != memory.since {
            self.past.clear();
            self.past_since = memory.since;
        }
    }

    /// What is remembered of a message that ended here.
    pub fn became(&self, id: &MessageId) -> Option<Outcome> {
        let within = |outcome: &&Outcome| self.memory.is_on() && self.now.since(outcome.at) < self.memory.window;
        self.past.get(id).filter(within).copied()
    }

    /// Takes away a message that ended thus, and remembers it.
    pub fn end(&mut self, id: &MessageId, end: End, score: Score) {
        let body = self.bodies.get(id).map(|body| (body.due_at, body.nonce));
        self.note(id, end, score, body.unwrap_or((Timestamp::ZERO, Nonce(0))));
        self.forget(id);
    }

    /// Remembers an end.
    pub fn note(&mut self, id: &MessageId, end: End, score: Score, (due_at, nonce): (Timestamp, Nonce)) {
        if self.memory.is_on() {
            let change = duetime_core::routing::change_of(self.routing.epoch);
            self.past.insert(id.clone(), Outcome { end, change, at: self.now, due_at, nonce, score });
        }
    }

    /// Bytes of all bodies, as they are stored.
    pub fn bytes(&self) -> u64 {
        self.bodies.values().map(|body| body.encode().len() as u64).sum()
    }

    /// Refuses a caller whose routing record is another one than this shard's.
    pub fn check_epoch(&self, shard: &Shard) -> Result<(), StoreError> {
        StoreError::unless_present(&self.routing, shard)
    }

    /// Live messages by visible time; equal scores by id, as in a ZSET.
    pub fn in_order(&self) -> Vec<(Score, MessageId)> {
        let mut all: Vec<(Score, MessageId)> = self.live.iter().map(|(id, score)| (*score, id.clone())).collect();
        all.sort();
        all
    }

    /// Visible time of the first message.
    pub fn head(&self) -> Option<Timestamp> {
        self.live.values().min().map(|score| score.visible_at())
    }

    /// How many are visible at `now`, ran-out claims among them.
    pub fn due(&self, now: Timestamp) -> u64 {
        let last = Score::due_at_most(now);
        self.live.values().filter(|score| **score <= last).count() as u64
    }

    /// What is in its outbox.
    pub fn frozen(&self) -> impl Iterator<Item = &Frozen> {
        self.outbox.iter().flat_map(|batch| &batch.messages)
    }

    /// What is in it at `now`.
    pub fn counts(&self, now: Timestamp) -> ShardCounts {
        let held = self.live.values().filter(|score| score.class().is_held()).count() as u64;
        ShardCounts {
            scheduled: self.live.len() as u64 - held,
            due: self.due(now),
            in_flight: held,
            dead: self.dead.len() as u64,
            moving: self.frozen().count() as u64,
            head: self.head(),
        }
    }

    /// A deadline for a claim that nobody in this shard and class had before, and the class.
    pub fn unique_deadline(
        &mut self,
        now: Timestamp,
        visibility: Duration,
        home: LeaseClass,
    ) -> (Timestamp, LeaseClass) {
        let parity = self.routing.deadlines(self.index);
        deadlines::give(&mut self.last_deadlines, now.plus(visibility), visibility, home, parity)
    }

    /// Takes a message away, dead or alive.
    pub fn forget(&mut self, id: &MessageId) {
        self.live.remove(id);
        self.bodies.remove(id);
        self.dead.remove(id);
    }

    /// Moves a live message to the dead letters; its body stays.
    pub fn bury(&mut self, id: &MessageId, attempts: u8, now: Timestamp, reason: &str) {
        self.live.remove(id);
        self.last_dead = (now.as_millis() * 1000).max(self.last_dead + 1);
        let reason = cut(reason).to_owned();
        self.dead.insert(id.clone(), DeadInfo { cursor: self.last_dead, attempts, reason });
    }

    /// Dead letters, oldest first.
    pub fn dead_in_order(&self) -> Vec<(i64, MessageId)> {
        let mut all: Vec<(i64, MessageId)> = self.dead.iter().map(|(id, info)| (info.cursor, id.clone())).collect();
        all.sort();
        all
    }

    /// A message as readers see it, dead or alive.
    pub fn read(&self, id: &MessageId) -> Option<StoredMessage> {
        let body = self.bodies.get(id).cloned().unwrap_or_else(Envelope::lost);
        let (state, visible_at, attempts, death) = if let Some(score) = self.live.get(id) {
            let state = if score.class().is_held() { MessageState::InFlight } else { MessageState::Scheduled };
            (state, score.visible_at(), score.tries(), None)
        } else {
            let info = self.dead.get(id)?;
            let at = Timestamp::from_millis(info.cursor / 1000);
            (MessageState::Dead, at, info.attempts, Some(Death { at, reason: info.reason.clone() }))
        };
        Some(StoredMessage {
            id: id.clone(),
            state,
            due_at: body.due_at,
            visible_at,
            attempts,
            redrives: body.redrives,
            nonce: body.nonce,
            headers: body.headers,
            payload: body.payload,
            death,
        })
    }
}

/// A reason no longer than is kept.
fn cut(reason: &str) -> &str {
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}
