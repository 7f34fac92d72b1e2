//! One page of a bulk plan: which messages it means, and what is done to them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::resize_store::Frozen;
use duetime_core::smear::offset;
use duetime_core::store::{DeadAction, Edit, Edited};
use duetime_core::{Due, ListPlace, MessageId, StoreError, StoredMessage, Timestamp, TopicName, TopicRecord};
use tokio::time::{Instant, timeout};

use crate::bulk::plan::{BulkAction, BulkPlan, ItemOutcome, PlanCursor};
use crate::bulk::undo_bin::TakenMessage;
use crate::error::RouteError;
use crate::queries::dead::DeadCursor;
use crate::queries::dead_groups::normalised;
use crate::queries::list::{Listed, ListedState, MessageCursor, MessageFilter};
use crate::router::{Changed, Router};

/// The last moment a message can be due.
const LAST_MS: i64 = 9_000_000_000_000;
/// Bytes of messages that are read before they are removed, to be kept.
const READ_BYTES: usize = 8 << 20;
/// Why a message is left alone that changed and was not read again: it may be another than the one that was agreed to.
const UNREAD: &str = "it changed meanwhile, and was not read again";

/// Messages of one page, and where the next one begins; `None`: this was the last.
pub(crate) struct PlanPage {
    pub ids: Vec<MessageId>,
    /// Of these, dead letters that were redriven before.
    pub redriven_before: u64,
    /// When the last of these died, of dead letters.
    pub last_death: Option<i64>,
    pub next: Option<PlanCursor>,
    /// Of dead letters that are kept, these with all that they have.
    pub letters: Vec<StoredMessage>,
}

/// Which live messages a plan means.
fn wanted_by(plan: &BulkPlan) -> MessageFilter {
    let filter = &plan.filter;
    MessageFilter {
        state: filter.state,
        from: Timestamp::from_millis(filter.due_from.unwrap_or(0)),
        till: Timestamp::from_millis(filter.due_to.unwrap_or(LAST_MS).min(LAST_MS)),
        prefix: filter.prefix.clone(),
    }
}

/// Whether a plan means this dead letter.
fn means_letter(plan: &BulkPlan, letter: &StoredMessage) -> bool {
    let (filter, Some(death)) = (&plan.filter, &letter.death) else { return false };
    death.at.as_millis() <= plan.died_until()
        && letter.id.as_str().starts_with(&filter.prefix)
        && filter.reason.as_ref().is_none_or(|reason| normalised(&death.reason) == *reason)
}

/// Messages that a plan means, from `cursor` on.
pub(crate) async fn page(
    router: &Router,
    plan: &BulkPlan,
    cursor: Option<PlanCursor>,
    limit: usize,
) -> Result<PlanPage, RouteError> {
    let topic = TopicName::new(&plan.topic).map_err(|error| StoreError::Damaged(error.to_string()))?;
    if plan.action.is_of_dead() {
        let from = cursor.map(|at| DeadCursor { shard: at.shard, from: at.score });
        let page = router.dead.page(&topic, from, limit).await?;
        let letters = page.messages.into_iter().map(|(_, one)| one);
        let meant: Vec<StoredMessage> = letters.filter(|letter| means_letter(plan, letter)).collect();
        return Ok(PlanPage {
            redriven_before: meant.iter().filter(|message| message.redrives > 0).count() as u64,
            last_death: meant.iter().filter_map(|message| Some(message.death.as_ref()?.at.as_millis())).max(),
            ids: meant.iter().map(|message| message.id.clone()).collect(),
            letters: if plan.keeps() { meant } else { Vec::new() },
            next: page.next.map(|at| PlanCursor { shard: at.shard, score: at.from, tie: None }),
        });
    }
    let from = cursor.map(|at| MessageCursor {
        shard: at.shard,
        epoch: plan.epoch,
        after: at.score.zip(at.tie).map(|(score, tie)| ListPlace { score, tie }),
    });
    let page = router.live.page(&topic, &wanted_by(plan), from, limit).await?;
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
    Ok(PlanPage { ids, redriven_before: 0, last_death: None, next, letters: Vec::new() })
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

/// Reads live messages with all that they have, until these are `most` bytes: as many at a time as fit into [`READ_BYTES`],
/// if they are of the topic's largest. The ids that it did not come to stay in `ids`. The last set: ids that were asked
/// for, and had no answer.
async fn read_whole(
    router: &Router,
    record: &TopicRecord,
    ids: &mut Vec<MessageId>,
    (most, within): (usize, Duration),
) -> (Vec<MessageId>, HashMap<MessageId, StoredMessage>, HashSet<MessageId>) {
    let largest = usize::try_from(record.config.max_payload).unwrap_or(usize::MAX).max(1);
    let at_once = (READ_BYTES / largest).clamp(1, BATCH_ITEMS_MAX);
    let (mut found, mut bytes, begun) = (HashMap::new(), 0, Instant::now());
    let (mut asked, mut unread) = (Vec::new(), HashSet::new());
    while !ids.is_empty() && bytes < most {
        let some: Vec<MessageId> = ids.drain(..at_once.min(ids.len())).collect();
        let left = within.saturating_sub(begun.elapsed());
        let answers = timeout(left, router.get(&record.name, some.clone())).await.unwrap_or_default();
        let mut answers = answers.into_iter();
        for id in some {
            match answers.next() {
                Some(Ok((_, Some(message)))) => {
                    bytes += message.payload.len();
                    found.insert(id.clone(), message);
                }
                Some(Ok((_, None))) => {}
                Some(Err(_)) | None => {
                    unread.insert(id.clone());
                }
            }
            asked.push(id);
        }
    }
    (asked, found, unread)
}

/// How much may be kept of a part of a page, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakeOut {
    /// About so many bytes.
    pub room: usize,
    /// What is not removed by then counts as failed.
    pub within: Duration,
    /// For how long the store may go on with a removal that its caller has given up.
    pub late_for: Duration,
}

/// Whether the plan means this message, as it was read by itself at `now`.
fn means(plan: &BulkPlan, message: &StoredMessage, now: Timestamp) -> bool {
    if plan.action.is_of_dead() || message.death.is_some() {
        return plan.action.is_of_dead() && means_letter(plan, message);
    }
    let state = match message.version() {
        Some(version) => ListedState::of(version.score, now),
        None => ListedState::InFlight,
    };
    wanted_by(plan).means(&message.id, state, message.visible_at)
}

/// [`act`] of a cancel or purge that can be taken back; with what was removed so, or perhaps was: the store did not answer,
/// and whoever puts it back finds out. What changed since it was read is read once more, and left alone if the plan
/// does not mean it any more, or it could not be read. What is claimed, or changes again, is removed all the same, for
/// good. Keeps about `room` bytes, and [`READ_BYTES`] at most: the ids for which there was none
/// stay in `ids`.
pub(crate) async fn take_out(
    router: &Router,
    plan: &BulkPlan,
    record: &TopicRecord,
    (ids, letters): (&mut Vec<MessageId>, Vec<StoredMessage>),
    TakeOut { room, within, late_for }: TakeOut,
) -> (Vec<(MessageId, ItemOutcome)>, Vec<TakenMessage>) {
    let (begun, topic) = (Instant::now(), &record.name);
    let part = || within.saturating_sub(begun.elapsed()) / 3;
    let (mut asked, mut found) = match plan.action.is_of_dead() {
        true => (std::mem::take(ids), letters.into_iter().map(|letter| (letter.id.clone(), letter)).collect()),
        false => {
            let (asked, found, _) = read_whole(router, record, ids, (room.min(READ_BYTES), part())).await;
            (asked, found)
        }
    };
    let (mut plain, mut outcomes, mut taken) = (Vec::new(), Vec::new(), Vec::new());
    for is_last in [false, true] {
        let (mut edits, mut removed, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        for id in asked {
            match found.remove(&id).and_then(|message| Frozen::taken_out(message, plan.removes_as())) {
                Some((edit, message)) => {
                    edits.push(edit);
                    removed.push(message);
                }
                None => plain.push(id),
            }
        }
        let answers = match timeout(part(), router.edit_in(topic, Some(plan.life), edits)).await {
            Ok(answers) => answers.into_iter().map(|answer| answer.map_err(|error| error.to_string())).collect(),
            Err(late) => vec![Err(late.to_string()); removed.len()],
        };
        for (message, answer) in removed.into_iter().zip(answers) {
            let id = message.id.clone();
            let outcome = match answer.map(|changed| changed.edited) {
                Ok(Edited::Changed) if is_last => {
                    plain.push(id);
                    continue;
                }
                Ok(Edited::Changed) => {
                    changed.push(id);
                    continue;
                }
                Ok(edited) => ItemOutcome::of(edited),
                Err(error) => ItemOutcome::Failed(error),
            };
            if outcome != ItemOutcome::Unchanged {
                let (shard, epoch) = (record.routing.home(topic, &id).index, record.routing.epoch);
                let unsure_until = matches!(outcome, ItemOutcome::Failed(_)).then(|| Instant::now() + late_for);
                taken.push(TakenMessage { shard, epoch, tried: false, unsure_until, message });
            }
            outcomes.push((id, outcome));
        }
        if changed.is_empty() {
            break;
        }
        let unread;
        (asked, found, unread) = read_whole(router, record, &mut changed, (READ_BYTES, part())).await;
        // They may be much larger by now.
        outcomes.extend(changed.into_iter().map(|id| (id, ItemOutcome::Failed(UNREAD.to_owned()))));
        let now = router.dispatcher.context.clock.now();
        asked.retain(|id| {
            let outcome = match found.get(id) {
                None if unread.contains(id) => ItemOutcome::Failed(UNREAD.to_owned()),
                Some(message) if !means(plan, message, now) => ItemOutcome::Unchanged,
                _ => return true,
            };
            outcomes.push((id.clone(), outcome));
            false
        });
    }
    if !plain.is_empty() {
        outcomes.extend(act(router, plan, topic, plain, within.saturating_sub(begun.elapsed())).await);
    }
    (outcomes, taken)
}
