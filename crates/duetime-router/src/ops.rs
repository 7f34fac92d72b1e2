//! The kinds of operation that go through lanes, and what each counts.

use duetime_core::store::{Edit, Edited, Enqueue, EnqueueOutcome, Enqueued, Settle, Settled, Settlement, StoreError};
use duetime_core::{MessageId, Shard, StoredMessage};
use duetime_metrics::Event;

use crate::lane::{Kit, Op};

/// Bytes an item weighs beside what users gave.
const ITEM_BYTES: usize = 64;

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

    async fn call(kit: &Kit, shard: &Shard, items: &[Enqueue]) -> Result<Vec<Enqueued>, StoreError> {
        let answers = kit.store.enqueue(shard, kit.clock.now(), items).await?;
        count(
            kit,
            shard,
            answers.iter().map(|answer| match answer.outcome {
                EnqueueOutcome::Scheduled => Event::Scheduled,
                EnqueueOutcome::Replaced => Event::Replaced,
                EnqueueOutcome::Duplicate => Event::Duplicate,
            }),
        );
        Ok(answers)
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

    async fn call(kit: &Kit, shard: &Shard, items: &[Edit]) -> Result<Vec<Edited>, StoreError> {
        let answers = kit.store.edit(shard, kit.clock.now(), items).await?;
        let happened = items.iter().zip(&answers).filter_map(|(edit, answer)| match (edit, answer) {
            // A cancel removes a message in flight too: it will not be tried again.
            (Edit::Cancel(_), Edited::Cancelled | Edited::InFlight) => Some(Event::Cancelled),
            (Edit::Reschedule(..), Edited::Rescheduled(_)) => Some(Event::Rescheduled),
            _ => None,
        });
        count(kit, shard, happened);
        Ok(answers)
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

    async fn call(kit: &Kit, shard: &Shard, items: &[MessageId]) -> Result<Vec<Option<StoredMessage>>, StoreError> {
        kit.store.get(shard, items).await
    }
}

pub(crate) struct SettleOp;

impl Op for SettleOp {
    type Item = Settle;
    type Answer = Settled;

    fn weight(item: &Settle) -> usize {
        item.id.as_str().len() + ITEM_BYTES
    }

    async fn call(kit: &Kit, shard: &Shard, items: &[Settle]) -> Result<Vec<Settled>, StoreError> {
        let answers = kit.store.settle(shard, kit.clock.now(), items).await?;
        let happened = items.iter().zip(&answers).filter_map(|(settle, answer)| match (&settle.how, answer) {
            (_, Settled::Expired) => None,
            (Settlement::Ack, _) => Some(Event::Delivered),
            (Settlement::Nack(_), _) => Some(Event::Retried),
            (Settlement::Bury(_), _) => Some(Event::Dead),
            (Settlement::Release | Settlement::Extend(..), _) => None,
        });
        count(kit, shard, happened);
        Ok(answers)
    }
}
