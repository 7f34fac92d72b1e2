//! The kinds of operation that go through lanes, and what each counts.

use duetime_core::limits::OLD_ITEMS_MAX;
use duetime_core::reshard::AtOld;
use duetime_core::store::{DeadAction, Edit, Edited, Enqueue, EnqueueOutcome, Enqueued, Settle, Settled, Settlement};
use duetime_core::{MessageId, Shard, StoredMessage};
use duetime_metrics::Event;

use crate::lane::{Called, Kit, Op, Role};

/// Bytes an item weighs beside what users gave.
const ITEM_BYTES: usize = 64;

/// At home what there is to say is said.
fn said<A>(answers: Vec<A>) -> Vec<AtOld<A>> {
    answers.into_iter().map(AtOld::There).collect()
}

/// A batch in parts that are one step of the store each, so that an error loses no answer: items of one
/// kind, as many as a shard in that role takes at once.
fn steps<I>(role: Role, items: &[I], alike: impl Fn(&I, &I) -> bool) -> impl Iterator<Item = &[I]> {
    let most = if role == Role::Old { OLD_ITEMS_MAX } else { items.len().max(1) };
    items.chunk_by(alike).flat_map(move |run| run.chunks(most))
}

/// The items that an answer is about, with it.
fn acted<'a, I, A>(items: &'a [I], answers: &'a [AtOld<A>]) -> impl Iterator<Item = (&'a I, &'a A)> {
    items.iter().zip(answers).filter_map(|(item, answer)| match answer {
        AtOld::There(answer) => Some((item, answer)),
        AtOld::Absent | AtOld::Frozen => None,
    })
}

/// Counts what happened to a batch: once a batch, not once an item.
fn count(kit: &Kit, shard: &Shard, events: impl Iterator<Item = Event>) {
    let mut tally = [0u64; Event::ALL.len()];
    for event in events {
        tally[event as usize] += 1;
    }
    let meters = kit.meters.topic(&shard.topic);
    for (event, _) in Event::ALL {
        meters.count(event, tally[event as usize]);
    }
}

pub(crate) struct EnqueueOp;

impl Op for EnqueueOp {
    type Item = Enqueue;
    type Answer = Enqueued;

    fn weight(item: &Enqueue) -> usize {
        let headers: usize = item.headers.iter().map(|(n, v)| n.len() + v.len()).sum();
        item.payload.len() + headers + item.id.as_str().len() + ITEM_BYTES
    }

    async fn call(kit: &Kit, shard: &Shard, role: Role, items: &[Enqueue]) -> Called<Enqueued> {
        let mut called = Called::new(items.len());
        let done = match role {
            Role::Home => kit.tools.store.enqueue(shard, kit.clock.now(), items).await.map(said),
            Role::Old => kit.tools.store.enqueue_old(shard, kit.clock.now(), items).await,
        };
        called.add(items.len(), done);
        count(
            kit,
            shard,
            acted(items, &called.answers).map(|(_, answer)| match answer.outcome {
                EnqueueOutcome::Scheduled => Event::Scheduled,
                EnqueueOutcome::Replaced => Event::Replaced,
                EnqueueOutcome::Duplicate => Event::Duplicate,
            }),
        );
        called
    }
}

pub(crate) struct EditOp;

impl Op for EditOp {
    type Item = Edit;
    type Answer = Edited;

    fn weight(item: &Edit) -> usize {
        let (Edit::Cancel(id) | Edit::Reschedule(id, _)) = item;
        id.as_str().len() + ITEM_BYTES
    }

    async fn call(kit: &Kit, shard: &Shard, role: Role, items: &[Edit]) -> Called<Edited> {
        let mut called = Called::new(items.len());
        for step in steps(role, items, |a, b| matches!(a, Edit::Cancel(_)) == matches!(b, Edit::Cancel(_))) {
            let done = match role {
                Role::Home => kit.tools.store.edit(shard, kit.clock.now(), step).await.map(said),
                Role::Old => kit.tools.store.edit_old(shard, kit.clock.now(), step).await,
            };
            if !called.add(step.len(), done) {
                break;
            }
        }
        let happened = acted(items, &called.answers).filter_map(|(edit, answer)| match (edit, answer) {
            // A cancel removes a message in flight too: it will not be tried again.
            (Edit::Cancel(_), Edited::Cancelled | Edited::InFlight) => Some(Event::Cancelled),
            (Edit::Reschedule(..), Edited::Rescheduled(_)) => Some(Event::Rescheduled),
            _ => None,
        });
        count(kit, shard, happened);
        called
    }
}

pub(crate) struct GetOp;

impl Op for GetOp {
    type Item = MessageId;
    type Answer = Option<StoredMessage>;

    /// Bodies come back: what is read at once is bounded as what is written at once is.
    fn weight(item: &MessageId) -> usize {
        item.as_str().len() + (64 << 10)
    }

    async fn call(kit: &Kit, shard: &Shard, role: Role, items: &[MessageId]) -> Called<Option<StoredMessage>> {
        let mut called = Called::new(items.len());
        let done = match role {
            Role::Home => kit.tools.store.get(shard, items).await.map(said),
            Role::Old => kit.tools.store.get_old(shard, items).await.map(|found| {
                let each = found.into_iter().map(|found| match found {
                    AtOld::There(message) => AtOld::There(Some(message)),
                    AtOld::Absent => AtOld::Absent,
                    AtOld::Frozen => AtOld::Frozen,
                });
                each.collect()
            }),
        };
        called.add(items.len(), done);
        called
    }
}

pub(crate) struct SettleOp;

impl Op for SettleOp {
    type Item = Settle;
    type Answer = Settled;

    fn weight(item: &Settle) -> usize {
        item.id.as_str().len() + ITEM_BYTES
    }

    async fn call(kit: &Kit, shard: &Shard, role: Role, items: &[Settle]) -> Called<Settled> {
        let called = QuietSettleOp::call(kit, shard, role, items).await;
        let happened = acted(items, &called.answers).filter_map(|(settle, answer)| match (&settle.how, answer) {
            (_, Settled::Expired) => None,
            (Settlement::Ack, _) => Some(Event::Delivered),
            (Settlement::Nack(_), _) => Some(Event::Retried),
            (Settlement::Bury(_), _) => Some(Event::Dead),
            (Settlement::Release | Settlement::Extend(..), _) => None,
        });
        count(kit, shard, happened);
        called
    }
}

/// Settles for the engine, which counts by itself.
pub(crate) struct QuietSettleOp;

impl Op for QuietSettleOp {
    type Item = Settle;
    type Answer = Settled;

    fn weight(item: &Settle) -> usize {
        SettleOp::weight(item)
    }

    async fn call(kit: &Kit, shard: &Shard, role: Role, items: &[Settle]) -> Called<Settled> {
        let mut called = Called::new(items.len());
        for step in steps(role, items, |_, _| true) {
            let done = match role {
                Role::Home => kit.tools.store.settle(shard, kit.clock.now(), step).await.map(said),
                Role::Old => kit.tools.store.settle_old(shard, kit.clock.now(), step).await,
            };
            if !called.add(step.len(), done) {
                break;
            }
        }
        called
    }
}

/// Dead letters: one action for a whole batch.
pub(crate) struct DeadOp;

impl Op for DeadOp {
    type Item = (MessageId, DeadAction);
    type Answer = bool;

    fn weight(item: &Self::Item) -> usize {
        item.0.as_str().len() + ITEM_BYTES
    }

    async fn call(kit: &Kit, shard: &Shard, role: Role, items: &[Self::Item]) -> Called<bool> {
        let mut called = Called::new(items.len());
        // Requests with different actions may share a lane: runs of one action go together.
        for step in steps(role, items, |a, b| a.1 == b.1) {
            let ids: Vec<MessageId> = step.iter().map(|(id, _)| id.clone()).collect();
            let (now, action) = (kit.clock.now(), step[0].1);
            let done = match role {
                Role::Home => kit.tools.store.settle_dead(shard, now, &ids, action).await.map(said),
                Role::Old => kit.tools.store.settle_dead_old(shard, now, &ids, action).await,
            };
            if !called.add(step.len(), done) {
                break;
            }
        }
        let redriven = acted(items, &called.answers).filter(|(item, done)| item.1 == DeadAction::Redrive && **done);
        count(kit, shard, redriven.map(|_| Event::Redriven));
        called
    }
}
