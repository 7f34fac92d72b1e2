//! One shard's part in a resize: its outbox, what was put into it, and who is at home in it.

use bytes::Bytes;
use duetime_core::envelope::{self, Envelope};
use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_BYTES_MAX};
use duetime_core::resize_store::{
    ApplyOutcome, Batch, BatchId, Cursor, DeadlineFloor, Frozen, FrozenState, Lookup, Replication, ScanPage, Scanned,
};
use duetime_core::{MessageId, MessageState, Score, Timestamp};

use super::shard::{DeadInfo, ShardState};

impl ShardState {
    pub(super) fn floor(&self) -> DeadlineFloor {
        self.last_deadlines
    }

    pub(super) fn raise(&mut self, floor: &DeadlineFloor) {
        self.last_deadlines.raise_all(floor);
    }

    /// Where an id is, to a caller who knows this as its source shard. What is frozen comes first: after
    /// a failover a copy may stand beside it.
    pub(super) fn at_source(&self, id: &MessageId) -> Lookup<()> {
        if self.outbox.as_ref().is_some_and(|batch| batch.messages.iter().any(|frozen| frozen.id == *id)) {
            Lookup::Frozen
        } else if self.live.contains_key(id) || self.dead.contains_key(id) {
            Lookup::Found(())
        } else {
            Lookup::Absent(self.became(id))
        }
    }

    pub(super) fn scan(&self, from: Option<&Cursor>, limit: usize) -> ScanPage {
        let live = self.live.iter().map(|(id, score)| {
            let state = if score.class().is_held() { MessageState::InFlight } else { MessageState::Scheduled };
            (format!("live {id}"), Scanned { id: id.clone(), state, visible_at: score.visible_at() })
        });
        let dead = self.dead.iter().map(|(id, info)| {
            let visible_at = Timestamp::from_millis(info.cursor / 1000);
            (format!("dead {id}"), Scanned { id: id.clone(), state: MessageState::Dead, visible_at })
        });
        let mut all: Vec<(String, Scanned)> = live.chain(dead).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        let start = from.map_or(0, |from| all.partition_point(|(at, _)| *at <= from.0));
        let end = (start + limit.max(1)).min(all.len());
        let next = (end < all.len()).then(|| Cursor(all[end - 1].0.clone()));
        let found = all.drain(start..end).map(|(_, scanned)| scanned).collect();
        ScanPage { first: from.is_none(), found, next }
    }

    pub(super) fn take(&mut self, from: u32, to: u32, ids: &[MessageId], nonce: u64) -> Option<Batch> {
        if self.outbox.is_some() {
            return self.outbox.clone();
        }
        let mut messages: Vec<Frozen> = Vec::new();
        let mut bytes = 0;
        for id in ids.iter().take(BATCH_ITEMS_MAX) {
            let state = if let Some(score) = self.live.get(id) {
                FrozenState::Live(*score)
            } else if let Some(info) = self.dead.get(id) {
                FrozenState::Dead { at: info.cursor, attempts: info.attempts, reason: info.reason.clone() }
            } else {
                continue;
            };
            let body = self.bodies.get(id).map(Envelope::encode);
            bytes += body.as_ref().map_or(0, Bytes::len);
            if bytes > CLAIM_BYTES_MAX && !messages.is_empty() {
                break;
            }
            messages.push(Frozen { id: id.clone(), state, body });
            self.forget(id);
        }
        if messages.is_empty() {
            return None;
        }
        messages.sort_by(|a, b| a.id.cmp(&b.id));
        self.last_number += 1;
        self.outbox = Some(Batch { name: BatchId { number: self.last_number, nonce }, from, to, messages });
        self.outbox.clone()
    }

    pub(super) fn put(&mut self, batch: &Batch) -> ApplyOutcome {
        let last = self.applied.get(&batch.from).copied();
        if last == Some(batch.name) {
            return ApplyOutcome::Done { fresh: 0, kept: Replication::Replicated };
        }
        if let Some(last) = last.filter(|last| last.number >= batch.name.number) {
            return ApplyOutcome::Conflict { last };
        }
        let fresh = self.bring_all(&batch.messages);
        self.applied.insert(batch.from, batch.name);
        ApplyOutcome::Done { fresh, kept: Replication::Replicated }
    }

    /// What lives here stays as it is; how many were brought.
    fn bring_all(&mut self, messages: &[Frozen]) -> u64 {
        let mut fresh = 0;
        for frozen in messages {
            if self.live.contains_key(&frozen.id) || self.dead.contains_key(&frozen.id) {
                continue;
            }
            fresh += 1;
            self.bring(frozen);
        }
        fresh
    }

    fn bring(&mut self, frozen: &Frozen) {
        let id = &frozen.id;
        match &frozen.state {
            FrozenState::Live(score) => {
                self.live.insert(id.clone(), *score);
                self.raise_to(*score);
            }
            FrozenState::Dead { at, attempts, reason } => {
                let mut cursor = *at;
                while self.dead.values().any(|info| info.cursor == cursor) {
                    cursor += 1;
                }
                self.last_dead = self.last_dead.max(cursor);
                self.dead.insert(id.clone(), DeadInfo { cursor, attempts: *attempts, reason: reason.clone() });
            }
        }
        match frozen.body.as_ref().and_then(|stored| envelope::decode(stored).ok()) {
            Some(body) => self.bodies.insert(id.clone(), body),
            None => self.bodies.remove(id),
        };
    }

    fn raise_to(&mut self, score: Score) {
        let mut brought = DeadlineFloor::default();
        brought.raise(score.class(), score.visible_at());
        self.raise(&brought);
    }

    pub(super) fn rename_batch(&mut self, seen: u64, new: BatchId) -> bool {
        let may = |name: BatchId| name.nonce == seen && name.number <= new.number;
        if let Some(batch) = self.outbox.as_mut().filter(|batch| may(batch.name)) {
            batch.name = new;
            self.last_number = new.number;
        }
        self.outbox.as_ref().is_some_and(|batch| batch.name == new)
    }

    pub(super) fn discard_batch(&mut self, nonce: u64) -> bool {
        let is_it = self.outbox.as_ref().is_some_and(|batch| batch.name.nonce == nonce);
        if is_it {
            self.outbox = None;
        }
        is_it
    }

    pub(super) fn restore_batch(&mut self, nonce: u64) -> bool {
        let is_it = self.outbox.as_ref().is_some_and(|batch| batch.name.nonce == nonce);
        if let Some(batch) = self.outbox.take_if(|_| is_it) {
            self.bring_all(&batch.messages);
        }
        is_it
    }
}
