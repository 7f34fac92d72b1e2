//! The kinds of operation that go through queues, and what each counts.

use std::collections::HashSet;

use duetime_core::limits::OLD_ITEMS_MAX;
use duetime_core::store::{
    AckWait, BatchReply, DeadAction, DeadEdit, DeadEdited, Edit, Edited, Enqueue, EnqueueOutcome, Enqueued, Settle,
    Settled, Settlement, StoreError,
};
use duetime_core::{End, Lookup, MessageId, Outcome, Role, Shard, StoredMessage};
use duetime_metrics::{CancelVerdict, Event};

use crate::calls::batch_queue::{BatchOutcome, Op, OpContext};

/// Bytes an item weighs beside what users gave.
const ITEM_BYTES: usize = 64;

/// Bytes that a body weighs whose length is not known.
const BODY_BYTES: usize = 64 << 10;

/// A batch in parts that are one step of the store each, so that an error loses no answer: items of one
/// kind, as many as a shard in that role takes at once.
fn steps<I>(role: Role, items: &[I], alike: impl Fn(&I, &I) -> bool) -> impl Iterator<Item = &[I]> {
    let most = if role == Role::Source { OLD_ITEMS_MAX } else { items.len().max(1) };
    items.chunk_by(alike).flat_map(move |run| run.chunks(most))
}

/// An answer, and how many replicas have what it reports.
pub(crate) type WithReplicas<A> = (A, Option<u32>);

/// Each answer with the replicas of the call, which counts none at a source.
fn kept<A>(kept: BatchReply<Lookup<A>>) -> Vec<Lookup<WithReplicas<A>>> {
    let replicas = kept.replicas;
    kept.answers.into_iter().map(|answer| answer.map(|answer| (answer, replicas))).collect()
}

/// The items that an answer is about, with it.
fn acted<'a, I, A>(items: &'a [I], answers: &'a [Lookup<A>]) -> impl Iterator<Item = (&'a I, &'a A)> {
    items.iter().zip(answers).filter_map(|(item, answer)| match answer {
        Lookup::Found(answer) => Some((item, answer)),
        Lookup::Absent(_) | Lookup::Frozen => None,
    })
}

/// The same without those that were refused.
fn done<'a, I, A>(items: &'a [I], answers: &'a [Lookup<Result<A, i64>>]) -> impl Iterator<Item = (&'a I, &'a A)> {
    acted(items, answers).filter_map(|(item, answer)| Some((item, answer.as_ref().ok()?)))
}

/// A kind of operation whose items may have relative times in them.
trait Timed: Op<Item: Clone> {
    type Said: Send;

    fn id(item: &Self::Item) -> &MessageId;
    fn is_relative(item: &Self::Item) -> bool;
    fn ask(
        self,
        context: &OpContext,
        shard: &Shard,
        role: Role,
        items: &[Self::Item],
    ) -> impl Future<Output = Result<Vec<Lookup<Self::Said>>, StoreError>> + Send;
}

/// Makes a call; where the clocks are too far apart for the relative times in it, makes it for the other
/// items alone. What is left out is answered with how many milliseconds the clocks are apart.
///
/// Items of one id keep their order: behind one that is left out, the others of its id are left out too.
async fn without_skewed<O: Timed>(
    op: O,
    context: &OpContext,
    shard: &Shard,
    role: Role,
    items: &[O::Item],
) -> Result<Vec<Lookup<Result<O::Said, i64>>>, StoreError> {
    let apart_ms = match op.ask(context, shard, role, items).await {
        Err(StoreError::ClockSkew(apart_ms)) => apart_ms,
        answers => return Ok(answers?.into_iter().map(|answer| answer.map(Ok)).collect()),
    };
    let mut left_out: HashSet<&MessageId> = HashSet::new();
    let mut goes_on = Vec::with_capacity(items.len());
    for item in items {
        goes_on.push(!O::is_relative(item) && !left_out.contains(O::id(item)));
        if goes_on.last() == Some(&false) {
            left_out.insert(O::id(item));
        }
    }
    let rest: Vec<O::Item> =
        items.iter().zip(&goes_on).filter(|(_, goes_on)| **goes_on).map(|(item, _)| item.clone()).collect();
    let answers = if rest.is_empty() { Vec::new() } else { op.ask(context, shard, role, &rest).await? };
    let mut answers = answers.into_iter().map(|answer| answer.map(Ok));
    let refused = || Lookup::Found(Err(apart_ms));
    let each =
        goes_on.into_iter().map(|goes_on| if goes_on { answers.next().unwrap_or_else(refused) } else { refused() });
    Ok(each.collect())
}

/// Counts what happened to a batch: once a batch, not once an item.
fn count(context: &OpContext, shard: &Shard, events: impl Iterator<Item = Event>) {
    let mut tally = [0u64; Event::ALL.len()];
    for event in events {
        tally[event as usize] += 1;
    }
    let meters = context.meters.topic(&shard.topic);
    for (event, _) in Event::ALL {
        meters.count(event, tally[event as usize]);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct EnqueueOp;

impl Timed for EnqueueOp {
    type Said = Enqueued;

    fn id(item: &Enqueue) -> &MessageId {
        &item.id
    }

    fn is_relative(item: &Enqueue) -> bool {
        item.is_relative()
    }

    async fn ask(
        self,
        context: &OpContext,
        shard: &Shard,
        role: Role,
        items: &[Enqueue],
    ) -> Result<Vec<Lookup<Enqueued>>, StoreError> {
        context.messages.enqueue_at(shard, role, context.clock.now(), items).await
    }
}

impl Op for EnqueueOp {
    type Item = Enqueue;
    type Answer = Result<Enqueued, i64>;

    fn weight(item: &Enqueue) -> usize {
        let headers: usize = item.headers.iter().map(|(n, v)| n.len() + v.len()).sum();
        item.payload.len() + headers + item.id.as_str().len() + ITEM_BYTES
    }

    fn looks_back(&self) -> bool {
        true
    }

    fn knowing(item: Enqueue, became: Option<Outcome>) -> Enqueue {
        Enqueue { on_conflict: item.on_conflict.knowing(became), ..item }
    }

    async fn call(
        self,
        context: &OpContext,
        shard: &Shard,
        role: Role,
        items: &[Enqueue],
    ) -> BatchOutcome<Self::Answer> {
        let mut called = BatchOutcome::new(items.len());
        called.add(items.len(), without_skewed(self, context, shard, role, items).await);
        count(
            context,
            shard,
            done(items, &called.answers).map(|(_, answer)| match answer.outcome {
                EnqueueOutcome::Scheduled => Event::Scheduled,
                EnqueueOutcome::Replaced | EnqueueOutcome::ReplacedInFlight => Event::Replaced,
                EnqueueOutcome::Kept | EnqueueOutcome::Duplicate | EnqueueOutcome::CancelledBefore => Event::Duplicate,
            }),
        );
        called
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct EditOp;

impl Timed for EditOp {
    type Said = WithReplicas<Edited>;

    fn id(item: &Edit) -> &MessageId {
        item.id()
    }

    fn is_relative(item: &Edit) -> bool {
        item.is_relative()
    }

    async fn ask(
        self,
        context: &OpContext,
        shard: &Shard,
        role: Role,
        items: &[Edit],
    ) -> Result<Vec<Lookup<WithReplicas<Edited>>>, StoreError> {
        Ok(kept(context.messages.edit_at(shard, role, context.clock.now(), items).await?))
    }
}

impl Op for EditOp {
    type Item = Edit;
    type Answer = Result<WithReplicas<Edited>, i64>;

    fn weight(item: &Edit) -> usize {
        item.id().as_str().len() + ITEM_BYTES
    }

    fn looks_back(&self) -> bool {
        true
    }

    fn knowing(item: Edit, became: Option<Outcome>) -> Edit {
        match item {
            Edit::Cancel(id) if became.is_some_and(|outcome| !outcome.takes_note()) => Edit::CancelGone(id),
            item => item,
        }
    }

    fn with_past(answer: Self::Answer, became: Option<Outcome>) -> Self::Answer {
        let with_past = |edited| match edited {
            Edited::Unknown => became.filter(Outcome::was_there).map_or(Edited::Unknown, Edited::Gone),
            Edited::Gone(here) => Edited::Gone(Outcome::latest(became, Some(here)).unwrap_or(here)),
            edited => edited,
        };
        answer.map(|(edited, replicas)| (with_past(edited), replicas))
    }

    async fn call(self, context: &OpContext, shard: &Shard, role: Role, items: &[Edit]) -> BatchOutcome<Self::Answer> {
        let mut called = BatchOutcome::new(items.len());
        for step in steps(role, items, Edit::is_one_step) {
            if !called.add(step.len(), without_skewed(self, context, shard, role, step).await) {
                break;
            }
        }
        let happened = done(items, &called.answers).filter_map(|(edit, (answer, _))| match (edit, answer) {
            // A cancel removes a message in flight too: it will not be tried again.
            (edit, Edited::Cancelled | Edited::InFlight) if edit.is_cancel() => Some(Event::Cancelled),
            (Edit::Reschedule(..), Edited::Rescheduled(_)) => Some(Event::Rescheduled),
            _ => None,
        });
        count(context, shard, happened);
        let mut verdicts = [0; CancelVerdict::ALL.len()];
        for (_, (answer, _)) in done(items, &called.answers).filter(|(edit, _)| edit.is_cancel()) {
            let verdict = match answer {
                Edited::Cancelled => CancelVerdict::Cancelled,
                Edited::InFlight => CancelVerdict::InFlight,
                Edited::Unknown | Edited::Gone(_) => CancelVerdict::Unknown,
                Edited::Changed | Edited::Dead | Edited::Rescheduled(_) | Edited::Full => continue,
            };
            verdicts[verdict as usize] += 1;
        }
        let meters = context.meters.topic(&shard.topic);
        CancelVerdict::ALL.iter().for_each(|(verdict, _)| meters.cancels(*verdict, verdicts[*verdict as usize]));
        called
    }
}

/// A message, or else what is remembered of it.
pub type FoundMessage = Result<StoredMessage, Option<Outcome>>;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct GetOp;

impl Op for GetOp {
    type Item = MessageId;
    type Answer = FoundMessage;

    /// Bodies come back: what is read at once is bounded as what is written at once is.
    fn weight(item: &MessageId) -> usize {
        item.as_str().len() + BODY_BYTES
    }

    fn looks_back(&self) -> bool {
        true
    }

    fn with_past(answer: FoundMessage, became: Option<Outcome>) -> FoundMessage {
        answer.map_err(|here| Outcome::latest(became, here))
    }

    async fn call(
        self,
        context: &OpContext,
        shard: &Shard,
        role: Role,
        items: &[MessageId],
    ) -> BatchOutcome<FoundMessage> {
        let mut called = BatchOutcome::new(items.len());
        let final_at_home = |found: Lookup<StoredMessage>| match found.map(Ok) {
            Lookup::Absent(became) if role == Role::Home => Lookup::Found(Err(became)),
            found => found,
        };
        let found = context.messages.get_at(shard, role, items).await;
        let done = found.map(|found| found.into_iter().map(final_at_home).collect());
        called.add(items.len(), done);
        called
    }
}

/// Settles claims.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SettleOp {
    /// Whether it is answered once replicas have it.
    pub wait: AckWait,
    /// Whether it is counted here; the engine counts by itself.
    pub is_counted: bool,
    /// Whether the earlier homes are asked what they remember.
    pub looks_back: bool,
}

impl Timed for SettleOp {
    type Said = WithReplicas<Settled>;

    fn id(item: &Settle) -> &MessageId {
        &item.id
    }

    fn is_relative(item: &Settle) -> bool {
        item.is_relative()
    }

    async fn ask(
        self,
        context: &OpContext,
        shard: &Shard,
        role: Role,
        items: &[Settle],
    ) -> Result<Vec<Lookup<WithReplicas<Settled>>>, StoreError> {
        Ok(kept(context.claims.settle_at(shard, role, context.clock.now(), items, self.wait).await?))
    }
}

impl Op for SettleOp {
    type Item = Settle;
    type Answer = Result<WithReplicas<Settled>, i64>;

    fn weight(item: &Settle) -> usize {
        item.id.as_str().len() + ITEM_BYTES + item.body_bytes()
    }

    fn looks_back(&self) -> bool {
        self.looks_back
    }

    async fn call(
        self,
        context: &OpContext,
        shard: &Shard,
        role: Role,
        items: &[Settle],
    ) -> BatchOutcome<Self::Answer> {
        let mut called = BatchOutcome::new(items.len());
        for step in steps(role, items, |_, _| true) {
            if !called.add(step.len(), without_skewed(self, context, shard, role, step).await) {
                break;
            }
        }
        if !self.is_counted {
            return called;
        }
        // Here and not where it is answered: a client that has hung up asks again.
        let settled = done(items, &called.answers).map(|(settle, (answer, _))| (settle, answer));
        context.endings.note(&shard.topic, settled);
        let (meters, now) = (context.meters.topic(&shard.topic), context.clock.now());
        let happened =
            done(items, &called.answers).filter_map(|(settle, (answer, _))| match (&settle.action, answer) {
                (_, Settled::Expired | Settled::Already) => None,
                (Settlement::Ack | Settlement::Remove, _) => Some(Event::Delivered),
                (Settlement::Nack(wait), _) => {
                    meters.retry_later(now, *wait, 1);
                    Some(Event::Retried)
                }
                (Settlement::Bury(_), _) => Some(Event::Dead),
                (Settlement::Expire, _) => Some(Event::Expired),
                (Settlement::Repeat(next), _) if next.end == End::Expired => Some(Event::Expired),
                (Settlement::Repeat(_), _) => Some(Event::Delivered),
                (
                    Settlement::Release | Settlement::Defer(_) | Settlement::Unanswered { .. } | Settlement::Extend(..),
                    _,
                ) => None,
            });
        count(context, shard, happened);
        let follows = |(settle, (answer, _)): &(&Settle, &WithReplicas<Settled>)| {
            matches!(settle.action, Settlement::Repeat(_)) && *answer == Settled::Ok
        };
        let followed = done(items, &called.answers).filter(follows);
        count(context, shard, followed.map(|_| Event::Scheduled));
        called
    }
}

/// Dead letters: one action for a whole batch. What needs the clocks to agree, a redrive, keeps no purge from going on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct DeadOp {
    pub redrives: bool,
}

impl DeadOp {
    pub fn new(action: DeadAction) -> Self {
        Self { redrives: action == DeadAction::Redrive }
    }
}

impl Op for DeadOp {
    type Item = (MessageId, DeadAction);
    type Answer = WithReplicas<bool>;

    /// A redrive writes the body anew: what is written at once is bounded as in an enqueue, a body for the size of many.
    fn weight(item: &Self::Item) -> usize {
        let body = if item.1 == DeadAction::Redrive { BODY_BYTES } else { 0 };
        item.0.as_str().len() + ITEM_BYTES + body
    }

    async fn call(
        self,
        context: &OpContext,
        shard: &Shard,
        role: Role,
        items: &[Self::Item],
    ) -> BatchOutcome<Self::Answer> {
        let mut called = BatchOutcome::new(items.len());
        // Requests with different actions may share a queue: runs of one action go together.
        for step in steps(role, items, |a, b| a.1 == b.1) {
            let ids: Vec<MessageId> = step.iter().map(|(id, _)| id.clone()).collect();
            let (now, action) = (context.clock.now(), step[0].1);
            let done = context.messages.resolve_dead_letters_at(shard, role, now, &ids, action).await.map(kept);
            if !called.add(step.len(), done) {
                break;
            }
        }
        let redriven = acted(items, &called.answers).filter(|(item, (done, _))| item.1 == DeadAction::Redrive && *done);
        count(context, shard, redriven.map(|_| Event::Redriven));
        called
    }
}

/// Changes of dead letters that are still what was read. What needs the clocks to agree, a rewrite, keeps no removal from
/// going on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct DeadEditOp {
    pub rewrites: bool,
}

impl Op for DeadEditOp {
    type Item = DeadEdit;
    type Answer = WithReplicas<DeadEdited>;

    fn weight(item: &DeadEdit) -> usize {
        item.id.as_str().len() + ITEM_BYTES + item.bytes()
    }

    async fn call(
        self,
        context: &OpContext,
        shard: &Shard,
        role: Role,
        items: &[DeadEdit],
    ) -> BatchOutcome<Self::Answer> {
        let mut called = BatchOutcome::new(items.len());
        for step in steps(role, items, DeadEdit::is_one_step) {
            let now = context.clock.now();
            let done = context.messages.edit_dead_letters_at(shard, role, now, step).await.map(kept);
            if !called.add(step.len(), done) {
                break;
            }
        }
        let is_redriven =
            |(item, (done, _)): &(&DeadEdit, &Self::Answer)| item.rewritten().is_some() && *done == DeadEdited::Done;
        let redriven = acted(items, &called.answers).filter(is_redriven);
        count(context, shard, redriven.map(|_| Event::Redriven));
        called
    }
}
