//! One page of a plan after the other, at the node that carries it out.

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::{MessageId, RecordKind, StoreError, StoredMessage, TopicName, TopicRecord};
use tokio::time::{Instant, sleep};

use super::plan::undo::{UNDO_LOST_MS, UNDO_MS};
use super::plan::undoing::is_remembered;
use super::plan::{BulkPlan, HELD_MS, ItemOutcome, PlanState, cut};
use super::{ACT_WITHIN, FAILING_MAX, HeldPlan, PAGE_FOR, Plans, REST, page};
use crate::error::RouteError;

impl Plans {
    /// The plan was stopped while this node carried it out: writes what became of the last page.
    pub(super) async fn settle_stop(&self, mine: &HeldPlan) -> Result<(), StoreError> {
        let Some(mut there) = self.read(&mine.plan.id).await? else { return Ok(()) };
        if there.plan.state != PlanState::Stopping || there.plan.node.as_ref() != Some(&self.node) {
            return Ok(());
        }
        let BulkPlan { counts, failures, cursor, passes, epoch, lost_marks, undo, .. } = mine.plan.clone();
        there.plan = BulkPlan { counts, failures, cursor, passes, epoch, lost_marks, undo, ..there.plan };
        there.plan.close_page();
        self.offer_undo(&mut there.plan);
        there.plan.end(PlanState::Stopped, self.now());
        self.put(&mut there).await.map(drop)
    }

    /// One page; false: the plan ended, or is not this node's any more.
    pub(super) async fn page(&self, held: &mut HeldPlan) -> Result<bool, RouteError> {
        let limit = (held.plan.per_second as usize).clamp(1, BATCH_ITEMS_MAX);
        let topic = TopicName::new(&held.plan.topic).map_err(|error| StoreError::Damaged(error.to_string()))?;
        let record = match self.router.current_topic(&topic).await {
            Ok(record) if record.routing.life() == held.plan.life => record,
            Ok(_) | Err(RouteError::UnknownTopic(_)) => {
                held.plan.trouble = Some("the topic was deleted".to_owned());
                held.plan.end(PlanState::Failed, self.now());
                self.put(held).await?;
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let found = page::page(&self.router, &held.plan, held.plan.cursor.clone(), limit).await?;
        let ids = held.plan.agreed(found.ids);
        if !ids.is_empty() {
            held.plan.open_page(&ids);
            held.plan.hold(&self.node, self.now());
            let announced = Instant::now();
            let put = self.put(held).await;
            held.plan.close_page();
            if !put? {
                self.settle_stop(held).await?;
                return Ok(false);
            }
            if announced.elapsed() >= ACT_WITHIN {
                return Ok(true);
            }
            let outcomes = self.act_on(held, &record, (ids.clone(), found.letters)).await;
            let reason = outcomes.iter().map(|(_, outcome)| match outcome {
                ItemOutcome::Failed(reason) => Some(reason.clone()),
                _ => None,
            });
            // The store is away, rather than these messages odd. It may have carried out some of it.
            if let Some(reasons) = reason.collect::<Option<Vec<String>>>()
                && held.failing < FAILING_MAX
            {
                held.failing += 1;
                held.plan.lose(&ids);
                held.plan.trouble = reasons.first().map(|reason| cut(reason));
                sleep(REST).await;
                return Ok(true);
            }
            held.failing = 0;
            for (id, outcome) in outcomes {
                if let ItemOutcome::Failed(reason) = &outcome {
                    self.watcher.failed(&held.plan, id.as_str(), reason);
                }
                held.plan.record(id.as_str(), &outcome);
            }
        }
        held.plan.trouble = None;
        let is_used_up = held.plan.is_used_up();
        if found.next.is_some() && !is_used_up {
            held.plan.cursor = found.next;
            return self.keep_hold(held).await;
        }
        let is_moving = record.routing.is_moving();
        if !is_used_up && (is_moving || record.routing.epoch != held.plan.epoch) {
            // What moved from a shard that was not reached yet to one that was is met in another pass.
            (held.plan.cursor, held.plan.epoch) = (None, record.routing.epoch);
            held.plan.passes += 1;
            sleep(REST).await;
            return self.keep_hold(held).await;
        }
        self.offer_undo(&mut held.plan);
        held.plan.end(PlanState::Done, self.now());
        if !self.put(held).await? {
            self.settle_stop(held).await?;
        }
        Ok(false)
    }

    /// Does what the plan says to messages of one page; what it removes is kept where it can be taken back.
    async fn act_on(
        &self,
        held: &mut HeldPlan,
        record: &TopicRecord,
        (mut ids, mut letters): (Vec<MessageId>, Vec<StoredMessage>),
    ) -> Vec<(MessageId, ItemOutcome)> {
        let plan = &held.plan;
        let can_keep = plan.keeps() && is_remembered(record.memory()) && !record.routing.is_moving();
        let (begun, mut outcomes, mut kept) = (Instant::now(), Vec::new(), None);
        // Part by part, as each is in memory; what takes too long is removed for good.
        while can_keep && !ids.is_empty() && begun.elapsed() <= PAGE_FOR / 3 {
            let (room, within) = (self.bin.room(&plan.id), PAGE_FOR.saturating_sub(begun.elapsed()));
            if room == 0 {
                break;
            }
            let how = page::TakeOut { room, within, late_for: self.late_for };
            let part = (&mut ids, std::mem::take(&mut letters));
            let (some, taken) = page::take_out(&self.router, plan, record, part, how).await;
            kept = Some(self.bin.keep(&plan.id, taken));
            outcomes.extend(some);
        }
        if !ids.is_empty() {
            let left = PAGE_FOR.saturating_sub(begun.elapsed());
            outcomes.extend(page::act(&self.router, plan, &record.name, ids, left).await);
        }
        if let (Some(undo), Some(kept)) = (&mut held.plan.undo, kept) {
            undo.kept = kept;
        }
        outcomes
    }

    /// The plan ends: what is kept of it can be put back.
    pub(super) fn offer_undo(&self, plan: &mut BulkPlan) {
        let now = self.now();
        let visible = self.bin.close(&plan.id, now + UNDO_MS + UNDO_LOST_MS);
        plan.offer_undo(&self.node, now, &visible);
    }

    /// Offers it of a plan that ended while this node did not see it, and was carried out here.
    pub(super) async fn offer_late(&self, plan: &BulkPlan, text: &str) {
        let is_own = plan.undo.as_ref().is_some_and(|undo| undo.node == self.node);
        if !(is_own && plan.keeps() && matches!(plan.state, PlanState::Stopped | PlanState::Done)) {
            return;
        }
        let mut late = plan.clone();
        self.offer_undo(&mut late);
        late.number += 1;
        // Tried again at the next look.
        let _ = self.store.swap_record(RecordKind::Plan, &plan.id, Some(text), Some(&super::written(&late))).await;
    }

    /// Holds the plan for longer, where nothing was announced for a while.
    pub(super) async fn keep_hold(&self, held: &mut HeldPlan) -> Result<bool, RouteError> {
        let now = self.now();
        if held.plan.held_until - now > HELD_MS * 2 / 3 {
            return Ok(true);
        }
        held.plan.hold(&self.node, now);
        let is_mine = self.put(held).await?;
        if !is_mine {
            self.settle_stop(held).await?;
        }
        Ok(is_mine)
    }
}
