//! Bulk plans as they are shown.

use duetime_core::Timestamp;
use duetime_router::{
    BulkAction, BulkFilter, BulkPlan, ListedState, PlanCounts, PlanFailure, PlanState, PlanUndo, UndoState, node_name,
};
use serde::Serialize;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::json::schema;

/// What became of the messages.
#[derive(Serialize, ToSchema)]
pub(crate) struct PlanCountsView {
    /// The action took effect.
    done: u64,
    /// Somebody held a claim. Cancelled all the same, but perhaps delivered; not moved.
    in_flight: u64,
    /// Not there any more, or in another state by then.
    unchanged: u64,
    /// Each is named in the audit log of the node that carried it out.
    failed: u64,
    /// Of a page whose outcome is not known, as its node ended or the store did not answer: those that were not met again
    /// when it was carried out anew. As a rule the action took effect.
    unrecorded: u64,
    /// In the page that is carried out at present.
    open: u64,
    /// All of these together.
    total: u64,
}

/// What can be put back of what a plan removed, or what was.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct PlanUndoView {
    /// `impossible`: the topic remembered for less than ten minutes, or not at all, when it was planned. `keeping`: it was not
    /// started, or runs, and what it removes is kept. `possible`: it can be asked for, until `until`. `asked`, `running`,
    /// `done`: how far it is. `over`: its time is over. `lost`: the node that kept the messages has ended.
    #[schema(value_type = schema::UndoState)]
    state: &'static str,
    /// Why it would be refused at present.
    why_not: Option<String>,
    /// The node that keeps the messages, once one has begun.
    node: Option<String>,
    /// Messages that it keeps, or kept until they were put back. What was claimed is not among them, nor what did not fit
    /// into its memory.
    kept: u64,
    /// Of these at most so many are due by now, or will be within the minute: they are delivered at once.
    due_at_once: u64,
    /// Until when it can be asked for.
    until: Option<i64>,
    /// There again, as they were.
    restored: u64,
    /// Left alone: something else happened to the id since, or the topic's shard count was changed.
    left: u64,
    /// The store did not answer: there again or not.
    unknown: u64,
    /// The token that asked for it, for a token with the scope `admin`.
    by: Option<String>,
}

impl PlanUndoView {
    fn of(undo: PlanUndo, why_not: Option<String>, now: i64) -> Self {
        let state = match undo.state {
            UndoState::Impossible => "impossible",
            UndoState::Keeping => "keeping",
            UndoState::Possible if undo.until <= now => "over",
            UndoState::Possible => "possible",
            UndoState::Asked => "asked",
            UndoState::Running => "running",
            UndoState::Done => "done",
            UndoState::Lost => "lost",
        };
        Self {
            state,
            why_not,
            kept: undo.kept,
            due_at_once: undo.due_at_once(now),
            until: Some(undo.until).filter(|until| *until > 0),
            node: Some(node_name(&undo.node)).filter(|node| !node.is_empty()).map(str::to_owned),
            restored: undo.restored,
            left: undo.left,
            unknown: undo.unknown,
            by: undo.by,
        }
    }
}

/// A message that the action failed on.
#[derive(Serialize, ToSchema)]
pub(crate) struct PlanFailureView {
    id: String,
    reason: String,
}

/// A bulk action.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct PlanView {
    id: String,
    topic: String,
    #[schema(value_type = schema::BulkAction)]
    action: BulkAction,
    /// `planned`: counted, and nobody agreed to it yet. `stopping`: its last page may still be under way; `stopped`:
    /// nothing is done any more, and it can be started again.
    #[schema(value_type = schema::PlanState)]
    state: PlanState,
    #[schema(value_type = Option<schema::ListedState>)]
    only_state: Option<ListedState>,
    due_from: Option<i64>,
    due_to: Option<i64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schema(required = false)]
    prefix: String,
    reason: Option<String>,
    /// The new due time of a `reschedule`.
    due_at: Option<i64>,
    per_second: u32,
    /// Messages that matched when it was planned.
    expected: u64,
    /// Of a `redrive` or `purge`: how many of these were redriven before.
    redriven_before: Option<u64>,
    /// True if `expected` counts all that matched: a count ends after two seconds, or 20,000 messages.
    count_complete: bool,
    /// The most messages that it may act on, as who started it agreed to.
    at_most: Option<u64>,
    /// Some of their ids.
    samples: Vec<String>,
    counts: PlanCountsView,
    /// The first that it failed on.
    failures: Vec<PlanFailureView>,
    /// How often it began again because the shard count changed.
    passes: u32,
    /// Why it does not get on at present, or why it failed.
    issue: Option<String>,
    /// The node that carries it out.
    node: Option<String>,
    /// The token that planned it, for a token with the scope `admin`.
    by: Option<String>,
    created_at: i64,
    started_at: Option<i64>,
    ended_at: Option<i64>,
    /// Of a plan that is `undoable`.
    undo: Option<PlanUndoView>,
}

impl PlanView {
    /// The part of it that `caller` may see.
    pub(crate) fn for_caller(mut self, caller: &Caller) -> Self {
        self.by = self.by.filter(|_| caller.may_change_topics());
        if let Some(undo) = &mut self.undo {
            undo.by = undo.by.take().filter(|_| caller.may_change_topics());
        }
        self
    }

    /// As it is at `now`.
    pub(crate) fn of(plan: BulkPlan, now: Timestamp) -> Self {
        let (total, why_not) = (plan.acted_on(), plan.why_not_undo(now.as_millis()));
        let BulkFilter { state: only_state, due_from, due_to, prefix, reason } = plan.filter;
        let (PlanCounts { done, in_flight, unchanged, failed, unrecorded }, open) = (plan.counts, plan.open);
        let failure = |PlanFailure { id, reason }| PlanFailureView { id, reason };
        Self {
            id: plan.id,
            topic: plan.topic,
            action: plan.action,
            state: plan.state,
            only_state,
            due_from,
            due_to,
            prefix,
            reason,
            due_at: plan.to,
            per_second: plan.per_second,
            expected: plan.expected,
            redriven_before: plan.action.is_of_dead().then_some(plan.redriven_before),
            count_complete: plan.counted_all,
            at_most: plan.at_most,
            samples: plan.samples,
            counts: PlanCountsView { done, in_flight, unchanged, failed, unrecorded, open, total },
            failures: plan.failures.into_iter().map(failure).collect(),
            passes: plan.passes,
            issue: plan.trouble,
            node: plan.node.as_deref().map(node_name).map(str::to_owned),
            by: plan.by,
            created_at: plan.created_at,
            started_at: plan.started_at,
            ended_at: plan.ended_at,
            undo: plan.undo.map(|undo| PlanUndoView::of(undo, why_not, now.as_millis())),
        }
    }
}

/// The plans of a topic.
#[derive(Serialize, ToSchema)]
pub(crate) struct PlanViews {
    /// The newest first.
    pub(crate) plans: Vec<PlanView>,
}
