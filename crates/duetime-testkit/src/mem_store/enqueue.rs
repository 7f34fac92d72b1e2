//! Scheduling, and changes to what is scheduled: enqueue, cancel, reschedule.

use duetime_core::envelope::Envelope;
use duetime_core::limits::CANCELS_KEPT;
use duetime_core::store::{Edit, Edited, Enqueue, EnqueueOutcome, Enqueued};
use duetime_core::{Due, LeaseClass, OnConflict, Score, Timestamp};

use super::shard::ShardState;

fn moment_of(due: Due, now: Timestamp) -> Timestamp {
    match due {
        Due::In(delay) => now.plus(delay),
        Due::At(at) => at,
    }
}

impl ShardState {
    pub(super) fn enqueue(&mut self, now: Timestamp, item: &Enqueue) -> Enqueued {
        let lives = self.live.contains_key(&item.id) || self.dead.contains_key(&item.id);
        if lives {
            let there = self.bodies.get(&item.id).map(|body| (body.nonce, body.due_at));
            let there_due = there.map_or(Timestamp::ZERO, |(_, due_at)| due_at);
            // The first answer was lost; acting again would end claims of this very message.
            if there.is_some_and(|(nonce, _)| nonce == item.nonce) {
                return Enqueued { outcome: EnqueueOutcome::Scheduled, due_at: there_due, replicas: None };
            }
            if item.on_conflict == OnConflict::Reject {
                return Enqueued { outcome: EnqueueOutcome::Duplicate, due_at: there_due, replicas: None };
            }
        }
        let due_at = moment_of(item.due, now);
        let may_arrive = self.live.get(&item.id).is_some_and(|score| score.class().may_arrive());
        self.forget(&item.id);
        self.live.insert(item.id.clone(), Score::new(due_at, LeaseClass::FREE, 0));
        let (headers, payload) = (item.headers.clone(), item.payload.clone());
        let body = Envelope { due_at, nonce: item.nonce, redrives: 0, headers, payload };
        self.bodies.insert(item.id.clone(), body);
        let outcome = match (lives, may_arrive) {
            (true, true) => EnqueueOutcome::ReplacedInFlight,
            (true, false) => EnqueueOutcome::Replaced,
            (false, _) => EnqueueOutcome::Scheduled,
        };
        Enqueued { outcome, due_at, replicas: None }
    }

    pub(super) fn edit(&mut self, now: Timestamp, edit: &Edit) -> Edited {
        match edit {
            Edit::Cancel(id) => {
                let may_arrive = self.live.get(id).map(|score| score.class().may_arrive());
                if let Some(score) = self.live.get(id).filter(|score| score.class().is_held()) {
                    self.cancelled.push_back((id.clone(), *score));
                    self.cancelled.drain(..self.cancelled.len().saturating_sub(CANCELS_KEPT));
                }
                let dead = self.dead.contains_key(id);
                self.forget(id);
                match may_arrive {
                    Some(true) => Edited::InFlight,
                    Some(false) => Edited::Cancelled,
                    None if dead => Edited::Cancelled,
                    None => Edited::Unknown,
                }
            }
            Edit::Reschedule(id, due) => match self.live.get(id) {
                Some(score) if score.class().is_held() => Edited::InFlight,
                Some(score) => {
                    let due_at = moment_of(*due, now);
                    self.live.insert(id.clone(), Score::new(due_at, score.class(), 0));
                    if let Some(body) = self.bodies.get_mut(id) {
                        body.due_at = due_at;
                    }
                    Edited::Rescheduled(due_at)
                }
                None if self.dead.contains_key(id) => Edited::Dead,
                None => Edited::Unknown,
            },
        }
    }
}
