//! One page of a bulk plan: which messages it means, and what is done to them.

use std::time::Duration;

use duetime_core::smear::offset;
use duetime_core::store::{DeadAction, Edit};
use duetime_core::{Due, ListPlace, MessageId, StoreError, StoredMessage, Timestamp, TopicName};
use tokio::time::timeout;

use crate::bulk::plan::{BulkAction, BulkPlan, ItemOutcome, PlanCursor};
use crate::error::RouteError;
use crate::queries::dead::DeadCursor;
use crate::queries::dead_groups::normalised;
use crate::queries::list::{Listed, ListedState, MessageCursor, MessageFilter};
use crate::router::{Changed, Router};

/// The last moment a message can be due.
const LAST_MS: i64 = 9_000_000_000_000;

/// Messages of one page, and where the next one begins; `None`: this was the last.
pub(crate) struct PlanPage {
    pub ids: Vec<MessageId>,
    /// Of these, dead letters that were redriven before.
    pub redriven_before: u64,
    /// When the last of these died, of dead letters.
    pub last_death: Option<i64>,
    pub next: Option<PlanCursor>,
}

/// Messages that a plan means, from `cursor` on.
pub(crate) async fn page(
    router: &Router,
    plan: &BulkPlan,
    cursor: Option<PlanCursor>,
    limit: usize,
) -> Result<PlanPage, RouteError> {
    let topic = TopicName::new(&plan.topic).map_err(|error| StoreError::Damaged(error.to_string()))?;
    let filter = &plan.filter;
    if plan.action.is_of_dead() {
        let from = cursor.map(|at| DeadCursor { shard: at.shard, from: at.score });
        let page = router.dead.page(&topic, from, limit).await?;
        let is_meant = |message: &StoredMessage| {
            let Some(death) = &message.death else { return false };
            death.at.as_millis() <= plan.died_until()
                && message.id.as_str().starts_with(&filter.prefix)
                && filter.reason.as_ref().is_none_or(|reason| normalised(&death.reason) == *reason)
        };
        let meant: Vec<StoredMessage> = page.messages.into_iter().map(|(_, one)| one).filter(is_meant).collect();
        return Ok(PlanPage {
            redriven_before: meant.iter().filter(|message| message.redrives > 0).count() as u64,
            last_death: meant.iter().filter_map(|message| Some(message.death.as_ref()?.at.as_millis())).max(),
            ids: meant.into_iter().map(|message| message.id).collect(),
            next: page.next.map(|at| PlanCursor { shard: at.shard, score: at.from, tie: None }),
        });
    }
    let wanted = MessageFilter {
        state: filter.state,
        from: Timestamp::from_millis(filter.due_from.unwrap_or(0)),
        till: Timestamp::from_millis(filter.due_to.unwrap_or(LAST_MS).min(LAST_MS)),
        prefix: filter.prefix.clone(),
    };
    let from = cursor.map(|at| MessageCursor {
        shard: at.shard,
        epoch: plan.epoch,
        after: at.score.zip(at.tie).map(|(score, tie)| ListPlace { score, tie }),
    });
    let page = router.live.page(&topic, &wanted, from, limit).await?;
    let smear = router.topic(&topic).await?.config.smear;
    // What a page put later is met again by a page behind it, and what is in flight in each pass.
    let is_there = |one: &Listed| plan.due().is_some_and(|due| one.visible_at == due.plus(offset(&one.id, smear)));
    let is_meant = |one: &Listed| match plan.action {
        BulkAction::DueNow => !matches!(one.state, ListedState::Due | ListedState::InFlight) && !is_there(one),
        BulkAction::Reschedule => !is_there(one) && (plan.passes == 0 || one.state != ListedState::InFlight),
        _ => true,
    };
    let ids = page.messages.into_iter().filter(is_meant).map(|one| one.id).collect();
    let next = page.next.map(|at| {
        let (score, tie) = at.after.map(|after| (after.score, after.tie)).unzip();
        PlanCursor { shard: at.shard, score, tie }
    });
    Ok(PlanPage { ids, redriven_before: 0, last_death: None, next })
}

/// Does what the plan says to these messages, for this long at most, in the life of the topic that the plan was made
/// for. Doing it again changes nothing.
pub(crate) async fn act(
    router: &Router,
    plan: &BulkPlan,
    topic: &TopicName,
    ids: Vec<MessageId>,
    within: Duration,
) -> Vec<(MessageId, ItemOutcome)> {
    let life = Some(plan.life);
    let failed = |error: &dyn std::fmt::Display| ItemOutcome::Failed(error.to_string());
    if plan.action.is_of_dead() {
        let action = if plan.action == BulkAction::Purge { DeadAction::Purge } else { DeadAction::Redrive };
        return match timeout(within, router.dead.settle_in(topic, life, &ids, action)).await {
            Ok(settled) => {
                let outcome = |done: Result<bool, RouteError>| match done {
                    Ok(true) => ItemOutcome::Done,
                    Ok(false) => ItemOutcome::Unchanged,
                    Err(error) => failed(&error),
                };
                ids.into_iter().zip(settled.done.into_iter().map(outcome)).collect()
            }
            Err(late) => ids.into_iter().map(|id| (id, failed(&late))).collect(),
        };
    }
    let due = plan.due();
    let edit = |id: &MessageId| match due {
        None => Edit::Cancel(id.clone()),
        Some(at) => Edit::Reschedule(id.clone(), Due::At(at)),
    };
    match timeout(within, router.edit_in(topic, life, ids.iter().map(edit).collect())).await {
        Ok(answers) => {
            let outcome = |answer: Result<Changed, RouteError>| match answer {
                Ok(changed) => ItemOutcome::of(changed.edited),
                Err(error) => failed(&error),
            };
            ids.into_iter().zip(answers.into_iter().map(outcome)).collect()
        }
        Err(late) => ids.into_iter().map(|id| (id, failed(&late))).collect(),
    }
}
