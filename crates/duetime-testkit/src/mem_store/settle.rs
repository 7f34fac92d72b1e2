//! Settlements of claims, and of dead letters.

use std::collections::BTreeMap;
use std::time::Duration;

use duetime_core::limits::REDRIVES_MAX;
use duetime_core::resize_store::Frozen;
use duetime_core::store::{DeadAction, DeadPage, Settle, Settled, Settlement};
use duetime_core::{End, LeaseClass, ListEntry, ListPage, ListRange, MessageId, Score, Timestamp};

use super::shard::ShardState;

/// Deadlines given in one batch of settlements: equal extensions share one, as a claim's messages do.
type Given = BTreeMap<(LeaseClass, Duration), (Timestamp, LeaseClass)>;

impl ShardState {
    pub(super) fn settle(&mut self, (earlier, later): (Timestamp, Timestamp), batch: &[Settle]) -> Vec<Settled> {
        let mut given = Given::new();
        batch.iter().map(|item| self.settle_one(earlier, later, item, &mut given)).collect()
    }

    fn settle_one(&mut self, now: Timestamp, later: Timestamp, item: &Settle, given: &mut Given) -> Settled {
        let id = &item.id;
        if self.live.get(id) != Some(&item.score) || !item.score.class().is_held() {
            let is_done = self.became(id).is_some_and(|outcome| outcome.is_ack_of(item.score));
            return if item.action == Settlement::Ack && is_done { Settled::Already } else { Settled::Expired };
        }
        let attempts = item.score.attempts();
        match &item.action {
            Settlement::Ack => self.end(id, End::Delivered, item.score),
            Settlement::Expire => self.end(id, End::Expired, item.score),
            Settlement::Nack(delay) => {
                self.live.insert(id.clone(), Score::new(later.plus(*delay), LeaseClass::FREE, attempts));
            }
            Settlement::Unanswered { wait, charged } => {
                let attempts = attempts - u8::from(!charged);
                self.live.insert(id.clone(), Score::new(later.plus(*wait), LeaseClass::SUSPECT, attempts));
            }
            Settlement::Defer(delay) => {
                self.live.insert(id.clone(), Score::new(later.plus(*delay), LeaseClass::FREE, attempts - 1));
            }
            Settlement::Release => {
                let due_at = self.bodies.get(id).map_or(now, |body| body.due_at);
                self.live.insert(id.clone(), Score::new(due_at, LeaseClass::FREE, attempts - 1));
            }
            Settlement::Extend(by, class) => {
                let (deadline, class) =
                    *given.entry((*class, *by)).or_insert_with(|| self.unique_deadline(later, *by, *class));
                let score = Score::new(deadline, class, attempts);
                self.live.insert(id.clone(), score);
                return Settled::Extended(score);
            }
            Settlement::Bury(reason) => self.bury(id, attempts, now, reason),
        }
        Settled::Ok
    }

    pub(super) fn dead_page(&self, from: Option<i64>, limit: usize) -> DeadPage {
        let here = |at: &i64| *at >= from.unwrap_or(0);
        let own = self.dead_in_order().into_iter().filter(|(at, _)| here(at));
        let own = own.filter_map(|(at, id)| Some((at, self.read(&id)?))).collect();
        let frozen = self.frozen().filter_map(Frozen::dead_letter).filter(|(at, _)| here(at));
        DeadPage::merged(own, None, frozen, limit)
    }

    pub(super) fn list(&self, range: &ListRange, limit: usize) -> ListPage {
        let after = |score: Score, id: &MessageId| {
            range.after.as_ref().is_none_or(|last| (score.raw(), id.as_str()) > (last.score, last.tie.as_str()))
        };
        let inside = |score: Score| (range.lowest()..range.end()).contains(&score.raw());
        let own = self.in_order().into_iter().map(|(score, id)| ListEntry { tie: id.to_string(), id, score });
        let all = own.chain(self.frozen().filter_map(Frozen::listed));
        let mut all: Vec<_> = all.filter(|one| inside(one.score) && after(one.score, &one.id)).collect();
        all.sort_by(|a, b| (a.score, &a.id).cmp(&(b.score, &b.id)));
        all.truncate(limit);
        ListPage { more: all.len() == limit, found: all }
    }

    pub(super) fn resolve_dead_letters(&mut self, now: Timestamp, id: &MessageId, action: DeadAction) -> bool {
        let Some(attempts) = self.dead.get(id).map(|info| info.attempts) else { return false };
        match action {
            DeadAction::Purge => self.end(id, End::Dead, Score::from_raw(i64::from(attempts))),
            DeadAction::Redrive => {
                self.dead.remove(id);
                if let Some(body) = self.bodies.get_mut(id) {
                    body.redrives = (body.redrives + 1).min(REDRIVES_MAX);
                }
                self.live.insert(id.clone(), Score::new(now, LeaseClass::FREE, 0));
            }
        }
        true
    }
}
