//! Takes a bulk plan back: the node that keeps what it removed puts each message back, where nothing else happened to it.
//!
//! It is asked for in the plan's record, so at any node. The store decides of each message, by what it remembers of its id:
//! one that is put back is not put back again, whoever asks, so a step whose answer was lost is repeated. What the store may
//! still be removing waits until that is over: else it would be gone after all.

use std::time::Duration;

use duetime_core::resize_store::Frozen;
use duetime_core::{RecordKind, StoreError, TopicName};
use duetime_metrics::Event;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::error::PlanError;
use super::plan::undo::{UNDO_MS, UndoState};
use super::plan::{BulkPlan, cut};
use super::undo_bin::TakenMessage;
use super::{FAILING_MAX, HeldPlan, LOOK_REST, Plans, REST};
use crate::error::{RouteError, is_misrouted};

/// For so long it is tried to put back what a plan removed; the rest is counted as unknown.
const UNDO_FOR: Duration = Duration::from_millis(UNDO_MS.unsigned_abs());

/// What became of one step.
#[derive(Default)]
struct Step {
    restored: u64,
    left: u64,
    unknown: u64,
}

impl Step {
    /// Counts what the store answered of one message.
    fn count(&mut self, one: &TakenMessage, is_back: bool) {
        match (is_back, one.tried || one.unsure_until.is_some()) {
            (true, _) => self.restored += 1,
            // It was put back by the step without an answer, or left alone; or it was never removed.
            (false, true) => self.unknown += 1,
            (false, false) => self.left += 1,
        }
    }

    /// Nothing was put back, as far as is known.
    fn none_of(taken: &[TakenMessage]) -> Self {
        let mut step = Self::default();
        taken.iter().for_each(|one| step.count(one, false));
        step
    }
}

/// Why a step put nothing back, as far as is known.
enum Unrestored {
    /// Nothing was done; it can be tried again.
    NotYet(RouteError),
    /// The topic is another, or its shard count was changed.
    Never,
    /// The store did not answer; it can be tried again.
    Unknown(StoreError),
}

impl Plans {
    /// Asks for what a plan removed to be put back; `by`: the token that asks.
    ///
    /// # Errors
    ///
    /// [`PlanError`].
    pub async fn undo(&self, topic: &TopicName, id: &str, by: Option<&str>) -> Result<BulkPlan, PlanError> {
        let plan = self.change(topic, id, |plan, now| plan.ask_undo(now, by)).await?;
        self.started.notify_one();
        Ok(plan)
    }

    /// Whether this node has to put back what the plan removed.
    pub(super) fn is_to_undo(&self, plan: &BulkPlan) -> bool {
        plan.is_undoing() && plan.undo.as_ref().is_some_and(|undo| undo.node == self.node)
    }

    /// Writes to a plan that can be taken back, or is to be, that its node has ended.
    pub(super) async fn give_up_undo(&self, plan: &BulkPlan, text: &str) {
        let now = self.now();
        let is_abandoned = plan.undo.as_ref().is_some_and(|undo| undo.is_abandoned(&self.node, now));
        if !is_abandoned || self.is_to_undo(plan) {
            return;
        }
        let mut lost = plan.clone();
        lost.undo.as_mut().expect("it has one").state = UndoState::Lost;
        lost.number += 1;
        let _ = self.store.swap_record(RecordKind::Plan, &plan.id, Some(text), Some(&super::written(&lost))).await;
    }

    /// Puts back what is kept of a plan. Returns its id.
    pub(super) async fn put_back(&self, id: String, stop: CancellationToken) -> String {
        let mut held = match self.read(&id).await {
            Ok(Some(held)) if self.is_to_undo(&held.plan) => held,
            Ok(_) => return id,
            Err(error) => {
                warn!(plan = %id, %error, "a bulk plan could not be taken back yet");
                return id;
            }
        };
        let Ok(topic) = TopicName::new(&held.plan.topic) else { return id };
        info!(plan = %id, %topic, "bulk plan taken back");
        let was_kept = !self.bin.is_empty(&id);
        self.note_undo(&mut held, UndoState::Running, &Step::default()).await;
        let (begun, mut after) = (Instant::now(), None);
        while !stop.is_cancelled() {
            if begun.elapsed() >= UNDO_FOR {
                let rest = Step { unknown: self.bin.len(&id), ..Step::default() };
                warn!(plan = %id, messages = rest.unknown, "messages of a bulk plan could not be put back");
                self.bin.forget(&id);
                self.note_undo(&mut held, UndoState::Running, &rest).await;
                break;
            }
            let mut taken = self.bin.take(&id, after);
            let Some(place) = taken.first().map(TakenMessage::place) else {
                if self.bin.is_empty(&id) {
                    break;
                }
                self.note_undo(&mut held, UndoState::Running, &Step::default()).await;
                sleep(REST).await;
                continue;
            };
            let error = match self.restore(&topic, &held.plan, &taken).await {
                Ok(step) => {
                    held.plan.trouble = None;
                    self.note_undo(&mut held, UndoState::Running, &step).await;
                    sleep(LOOK_REST).await;
                    continue;
                }
                Err(Unrestored::Never) => {
                    self.note_undo(&mut held, UndoState::Running, &Step::none_of(&taken)).await;
                    continue;
                }
                Err(Unrestored::NotYet(error)) => error.to_string(),
                Err(Unrestored::Unknown(error)) => {
                    taken.iter_mut().for_each(|one| one.tried = true);
                    error.to_string()
                }
            };
            after = Some(place);
            held.plan.trouble = Some(cut(&error));
            self.bin.give_back(&id, taken);
            self.note_undo(&mut held, UndoState::Running, &Step::default()).await;
            sleep(REST).await;
        }
        let end = if was_kept && self.bin.is_empty(&id) { UndoState::Done } else { UndoState::Lost };
        for _ in 0..FAILING_MAX {
            if self.note_undo(&mut held, end, &Step::default()).await || stop.is_cancelled() {
                break;
            }
            sleep(REST).await;
        }
        self.bin.forget(&id);
        id
    }

    /// Puts messages of one shard back. What was removed under another routing of the topic is left alone.
    async fn restore(&self, topic: &TopicName, plan: &BulkPlan, taken: &[TakenMessage]) -> Result<Step, Unrestored> {
        let Some(first) = taken.first() else { return Ok(Step::default()) };
        let record = match self.router.current_topic(topic).await {
            Ok(record) => record,
            Err(RouteError::UnknownTopic(_)) => return Err(Unrestored::Never),
            Err(error) => return Err(Unrestored::NotYet(error)),
        };
        let is_as_then = record.routing.life() == plan.life
            && record.routing.epoch == first.epoch
            && !record.routing.is_moving()
            && record.memory().is_on();
        if !is_as_then {
            return Err(Unrestored::Never);
        }
        let context = &self.router.dispatcher.context;
        let shard = record.shard(first.shard);
        let messages: Vec<Frozen> = taken.iter().map(|one| one.message.clone()).collect();
        match context.messages.restore(&shard, context.clock.now(), plan.removes_as(), &messages).await {
            Ok(answers) => {
                let mut step = Step::default();
                taken.iter().zip(answers.answers).for_each(|(one, is_back)| step.count(one, is_back));
                context.meters.topic(topic).count(Event::Restored, step.restored);
                Ok(step)
            }
            Err(error @ StoreError::Full(_)) => Err(Unrestored::NotYet(error.into())),
            Err(error) if is_misrouted(&error) => Err(Unrestored::Never),
            Err(error) => Err(Unrestored::Unknown(error)),
        }
    }

    /// Writes how far it is; false: that could not be written, or the plan was deleted. It is written with the next step.
    async fn note_undo(&self, held: &mut HeldPlan, state: UndoState, step: &Step) -> bool {
        let now = self.now();
        let Some(undo) = &mut held.plan.undo else { return false };
        (undo.state, undo.touched) = (state, now);
        undo.restored += step.restored;
        undo.left += step.left;
        undo.unknown += step.unknown;
        if state != UndoState::Running {
            held.plan.trouble = None;
        }
        held.plan.number += 1;
        let put = match self.put(held).await {
            // Another node took this one for ended.
            Ok(false) => self.put_over(held).await,
            put => put,
        };
        put.unwrap_or_else(|error| {
            warn!(plan = %held.plan.id, %error, "how far a bulk plan is taken back could not be written");
            false
        })
    }

    /// Writes how far it is into the plan as it is by now.
    async fn put_over(&self, held: &mut HeldPlan) -> Result<bool, StoreError> {
        let is_own = |there: &HeldPlan| there.plan.undo.as_ref().is_some_and(|undo| undo.node == self.node);
        let Some(there) = self.read(&held.plan.id).await?.filter(is_own) else { return Ok(false) };
        held.seen = there.seen;
        held.plan.number = held.plan.number.max(there.plan.number) + 1;
        self.put(held).await
    }
}
