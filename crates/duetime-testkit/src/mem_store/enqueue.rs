//! Scheduling, and changes to what is scheduled: enqueue, cancel, reschedule.

use duetime_core::envelope::Envelope;
use duetime_core::limits::CANCELS_KEPT;
use duetime_core::store::{Edit, Edited, Enqueue, EnqueueOutcome, Enqueued};
use duetime_core::{Due, End, LeaseClass, Nonce, OnConflict, Outcome, Score, Timestamp};

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
                return Enqueued {
                    outcome: EnqueueOutcome::Scheduled,
                    due_at: there_due,
                    replicas: None,
                    became: None,
                };
            }
            if item.on_conflict != OnConflict::Replace {
                return Enqueued {
                    outcome: EnqueueOutcome::Duplicate,
                    due_at: there_due,
                    replicas: None,
                    became: None,
                };
            }
        }
        if !lives && let Some(outcome) = item.on_conflict.refusal(self.became(&item.id)) {
            return Enqueued::remembered(outcome, item.nonce);
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
        Enqueued { outcome, due_at, replicas: None, became: None }
    }

    pub(super) fn edit(&mut self, now: Timestamp, edit: &Edit) -> Edited {
        match edit {
            Edit::Cancel(id) | Edit::CancelGone(id) => {
                let score = self.live.get(id).copied();
                let may_arrive = self.live.get(id).map(|score| score.class().may_arrive());
                if let Some(score) = self.live.get(id).filter(|score| score.class().is_held()) {
                    self.cancelled.push_back((id.clone(), *score));
                    self.cancelled.drain(..self.cancelled.len().saturating_sub(CANCELS_KEPT));
                }
                let end = if may_arrive == Some(true) { End::CancelledInFlight } else { End::Cancelled };
                let dead = self.dead.get(id).map(|info| Score::from_raw(i64::from(info.attempts)));
                if let Some(score) = score.or(dead) {
                    self.end(id, end, score);
                    return if end == End::Cancelled { Edited::Cancelled } else { Edited::InFlight };
                }
                let became = self.became(id);
                if matches!(edit, Edit::Cancel(_)) && became.is_none_or(|outcome| outcome.takes_note()) {
                    self.note(id, End::CancelledBefore, Score::from_raw(0), (Timestamp::ZERO, Nonce(0)));
                }
                became.filter(Outcome::was_there).map_or(Edited::Unknown, Edited::Gone)
            }
            Edit::CancelIf { id, version, moved } => {
                let nonce = self.bodies.get(id).map(|body| body.nonce);
                match self.live.get(id).copied() {
                    Some(score)
                        if score == version.score && nonce == Some(version.nonce) && !score.class().may_arrive() =>
                    {
                        self.end(id, if *moved { End::Moved } else { End::Cancelled }, score);
                        Edited::Cancelled
                    }
                    Some(_) => Edited::Changed,
                    None if self.dead.contains_key(id) => Edited::Changed,
                    None => self.became(id).map_or(Edited::Unknown, Edited::Gone),
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
