//! The contract of the resize: each call becomes a job for the writer, answered once it is on the disk,
//! looks too: what was seen may not come undone either.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use duetime_core::resize_store::{
    ApplyOutcome, Batch, BatchId, Cursor, DeadlineFloor, Fenced, Inspected, Lookup, ResizeStore, RoutingAuthority,
    ScanPage,
};
use duetime_core::store::{
    DeadAction, DeadEdit, DeadEdited, Edit, Edited, Enqueue, Enqueued, Notes, Settle, Settled, Settlement,
};
use duetime_core::{
    MessageId, Outcome, Routing, RoutingRecord, Shard, StoreError, StoredMessage, Timestamp, TopicName, TopicRecord,
    TopicStore as _,
};
use rusqlite::Connection;

use crate::enqueue::Ready;
use crate::fault::Fault;
use crate::job::CommitMode;
use crate::moves::IdLocation;
use crate::shard::ShardState;
use crate::store::{EmbeddedStore, ITEM_BYTES, cost_of_dead_edits, plain};
use crate::write_context::WriteContext;
use crate::{edit, edit_dead, enqueue, moves, past, read, settle, topics};

/// Where the ids of a batch are, and what the act answered to those that are there. `decides`: what is remembered of a
/// message that is gone is the answer to an item, so that it is acted on too.
fn at_source<I, A>(
    conn: &Connection,
    state: &mut ShardState,
    now: Timestamp,
    items: Vec<I>,
    (id, decides): (impl Fn(&I) -> &MessageId, impl Fn(&I, &Outcome) -> bool),
    act: impl FnOnce(&mut ShardState, Vec<I>) -> Result<Vec<A>, Fault>,
) -> Result<Vec<Lookup<A>>, Fault> {
    let place = |item: &I| -> Result<Lookup<()>, Fault> {
        Ok(match moves::place(conn, state, id(item))? {
            IdLocation::There => Lookup::Found(()),
            IdLocation::Frozen => Lookup::Frozen,
            IdLocation::Absent => match past::became(conn, state.key, state.memory, now, id(item))? {
                Some(became) if decides(item, &became) => Lookup::Found(()),
                became => Lookup::Absent(became),
            },
        })
    };
    let places = items.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    let there = items.into_iter().zip(&places).filter(|(_, place)| **place == Lookup::Found(())).map(|(item, _)| item);
    let there: Vec<I> = there.collect();
    let mut answers = act(state, there)?.into_iter();
    let each =
        places.into_iter().map(|place| place.map(|()| answers.next().expect("one answer for each that is there")));
    Ok(each.collect())
}

impl EmbeddedStore {
    /// Has the writer do one step on one shard.
    pub(crate) async fn step<A: Send + 'static>(
        &self,
        op: &'static str,
        mode: CommitMode,
        size: (usize, usize),
        shard: &Shard,
        mut act: impl FnMut(&Connection, &mut ShardState) -> Result<A, Fault> + Send + 'static,
    ) -> Result<A, StoreError> {
        let shard = shard.clone();
        let act = move |ctx: &mut WriteContext| ctx.on_shard(&shard, &mut act);
        self.ask(op, mode, size, act).await
    }
}

/// The calls on ids whose home is another shard by now.
impl EmbeddedStore {
    pub(crate) async fn enqueue_at_source(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: &[Enqueue],
    ) -> Result<Vec<Lookup<Enqueued>>, StoreError> {
        let ready: Vec<Ready> = batch.iter().map(Ready::new).collect();
        let bytes = ready.iter().map(|item| item.len() + ITEM_BYTES).sum();
        let ids: Vec<MessageId> = batch.iter().map(|item| item.id.clone()).collect();
        let (ids, mut ready) = (Arc::new(ids), ready);
        self.step("enqueue_at_source", CommitMode::NewMessages, (batch.len(), bytes), shard, move |conn, state| {
            let items = ids.iter().zip(&mut ready).collect();
            at_source(
                conn,
                state,
                now,
                items,
                (
                    |(id, _): &(&MessageId, &mut Ready)| *id,
                    |(_, item): &(&MessageId, &mut Ready), became: &Outcome| {
                        item.on_conflict.is_refused_at_source(*became)
                    },
                ),
                |state, there| {
                    let mut there = there.into_iter().map(|(_, item)| item);
                    there.try_fold(Vec::new(), |mut answers, item| {
                        answers.extend(enqueue::enqueue(conn, state, now, std::slice::from_mut(item))?);
                        Ok(answers)
                    })
                },
            )
        })
        .await
    }

    pub(crate) async fn edit_at_source(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: &[Edit],
    ) -> Result<Vec<Lookup<Edited>>, StoreError> {
        let batch = batch.to_vec();
        let act = move |conn: &Connection, state: &mut ShardState| {
            let act = |state: &mut ShardState, there: Vec<Edit>| {
                // A note is for the home.
                Ok(edit::edit(conn, state, now, (&there, Notes::None))?)
            };
            at_source(conn, state, now, batch.clone(), (Edit::id, |_: &Edit, _: &Outcome| false), act)
        };
        let answers = self.step("edit_at_source", CommitMode::Synced, plain(1), shard, act).await?;
        Ok(answers.into_iter().map(Edited::at_source).collect())
    }

    pub(crate) async fn get_at_source(
        &self,
        shard: &Shard,
        ids: &[MessageId],
    ) -> Result<Vec<Lookup<StoredMessage>>, StoreError> {
        let ids = ids.to_vec();
        let now = self.present();
        self.step("get_at_source", CommitMode::Synced, plain(ids.len()), shard, move |conn, state| {
            let key = state.key;
            let act = |_: &mut ShardState, there: Vec<MessageId>| {
                Ok(read::get(conn, key, &there)?.into_iter().flatten().collect())
            };
            at_source(conn, state, now, ids.clone(), (|id: &MessageId| id, |_: &MessageId, _: &Outcome| false), act)
        })
        .await
    }

    pub(crate) async fn settle_at_source(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: &[Settle],
    ) -> Result<Vec<Lookup<Settled>>, StoreError> {
        let bytes = batch.iter().map(Settle::body_bytes).sum::<usize>();
        let (batch, (items, spent)) = (batch.to_vec(), plain(batch.len()));
        self.step("settle_at_source", CommitMode::Synced, (items, spent + bytes), shard, move |conn, state| {
            let act = |state: &mut ShardState, there: Vec<Settle>| Ok(settle::settle(conn, state, now, &there)?);
            let decides = |item: &Settle, became: &Outcome| {
                matches!(item.action, Settlement::Ack | Settlement::Repeat(_)) && became.is_ack_of(item.score)
            };
            at_source(conn, state, now, batch.clone(), (|item: &Settle| &item.id, decides), act)
        })
        .await
    }

    pub(crate) async fn resolve_dead_letters_at_source(
        &self,
        shard: &Shard,
        now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<Vec<Lookup<bool>>, StoreError> {
        let ids = ids.to_vec();
        self.step("resolve_dead_letters_at_source", CommitMode::Synced, plain(ids.len()), shard, move |conn, state| {
            let act = |state: &mut ShardState, there: Vec<MessageId>| {
                Ok(settle::resolve_dead_letters(conn, state, now, &there, action)?)
            };
            at_source(conn, state, now, ids.clone(), (|id: &MessageId| id, |_: &MessageId, _: &Outcome| false), act)
        })
        .await
    }

    pub(crate) async fn edit_dead_at_source(
        &self,
        shard: &Shard,
        now: Timestamp,
        edits: &[DeadEdit],
    ) -> Result<Vec<Lookup<DeadEdited>>, StoreError> {
        let (edits, (mode, size)) = (edits.to_vec(), cost_of_dead_edits(edits));
        self.step("edit_dead_at_source", mode, size, shard, move |conn, state| {
            let act =
                |state: &mut ShardState, there: Vec<DeadEdit>| Ok(edit_dead::edit_dead(conn, state, now, &there)?);
            let decides = |edit: &DeadEdit, became: &Outcome| edit.rewritten() == Some(became.nonce);
            at_source(conn, state, now, edits.clone(), (|edit: &DeadEdit| &edit.id, decides), act)
        })
        .await
    }
}

#[async_trait]
impl RoutingAuthority for EmbeddedStore {
    async fn routing(&self, topic: &TopicName) -> Result<Option<RoutingRecord>, StoreError> {
        let topics = self.topics().await?;
        Ok(topics.iter().find(|record| record.name == *topic).map(TopicRecord::routing_record))
    }

    async fn swap_routing(
        &self,
        topic: &TopicName,
        seen: &RoutingRecord,
        new: &RoutingRecord,
    ) -> Result<(), StoreError> {
        let (topic, seen, new) = (topic.clone(), seen.clone(), new.clone());
        let act = move |ctx: &mut WriteContext| topics::swap(ctx, &topic, &seen, &new);
        self.ask("change a topic's routing", CommitMode::OwnTransaction, plain(1), act).await
    }
}

#[async_trait]
impl ResizeStore for EmbeddedStore {
    async fn fence(
        &self,
        topic: &TopicName,
        index: u32,
        routing: &Routing,
        floor: &DeadlineFloor,
    ) -> Result<Fenced, StoreError> {
        let (topic, routing, floor) = (topic.clone(), routing.clone(), *floor);
        let act = move |ctx: &mut WriteContext| topics::fence(ctx, &topic, index, &routing, &floor);
        self.ask("fence a shard", CommitMode::OwnTransaction, plain(1), act).await
    }

    async fn inspect(&self, topic: &TopicName, indexes: Range<u32>) -> Result<Vec<Option<Inspected>>, StoreError> {
        let topic = topic.clone();
        let act = move |ctx: &mut WriteContext| {
            let shards = ctx.topics.get(&topic).map(|topic| &topic.shards);
            let inspected = |index| -> Result<Option<Inspected>, Fault> {
                let Some(state) = shards.and_then(|shards| shards.get(&index)) else { return Ok(None) };
                let outbox = moves::named(&ctx.conn, state)?;
                let held = state.live + state.dead + outbox.map_or(0, |(_, _, frozen)| frozen);
                Ok(Some(Inspected { routing: Routing::clone(&state.routing), floor: state.floor(), outbox, held }))
            };
            indexes.clone().map(inspected).collect()
        };
        self.ask("inspect shards", CommitMode::Committed, plain(1), act).await
    }

    async fn scan(&self, shard: &Shard, from: Option<&Cursor>, limit: usize) -> Result<ScanPage, StoreError> {
        let from = from.cloned();
        self.step("scan", CommitMode::Synced, plain(limit), shard, move |conn, state| {
            moves::scan(conn, state, from.as_ref(), limit)
        })
        .await
    }

    async fn freeze_batch(
        &self,
        shard: &Shard,
        to: u32,
        ids: &[MessageId],
        nonce: u64,
    ) -> Result<Option<Batch>, StoreError> {
        let (index, ids, now) = (shard.index, ids.to_vec(), self.present());
        self.step("take", CommitMode::Synced, plain(ids.len()), shard, move |conn, state| {
            moves::take(conn, state, (index, to), &ids, nonce, now)
        })
        .await
    }

    async fn outbox(&self, shard: &Shard) -> Result<Option<Batch>, StoreError> {
        let index = shard.index;
        let act = move |conn: &Connection, state: &mut ShardState| moves::outbox(conn, state, index);
        self.step("outbox", CommitMode::Synced, plain(1), shard, act).await
    }

    async fn check_room(&self, shard: &Shard) -> Result<(), StoreError> {
        self.step("check_room", CommitMode::NewMessages, plain(1), shard, |_, _| Ok(())).await
    }

    async fn apply_batch(&self, shard: &Shard, batch: &Batch) -> Result<ApplyOutcome, StoreError> {
        let bytes =
            |frozen: &duetime_core::resize_store::Frozen| frozen.body.as_ref().map_or(0, Bytes::len) + ITEM_BYTES;
        let size = (batch.messages.len(), batch.messages.iter().map(bytes).sum());
        let batch = batch.clone();
        self.step("put", CommitMode::Synced, size, shard, move |conn, state| moves::put(conn, state, &batch)).await
    }

    async fn last_applied_batch(&self, shard: &Shard, from: u32) -> Result<Option<BatchId>, StoreError> {
        let act = move |conn: &Connection, state: &mut ShardState| Ok(moves::last_applied_batch(conn, state, from)?);
        self.step("last_applied_batch", CommitMode::Synced, plain(1), shard, act).await
    }

    async fn rename_batch(&self, shard: &Shard, seen: u64, new: BatchId) -> Result<bool, StoreError> {
        let act = move |conn: &Connection, state: &mut ShardState| Ok(moves::rename_batch(conn, state, seen, new)?);
        self.step("rename_batch", CommitMode::Synced, plain(1), shard, act).await
    }

    async fn discard_batch(&self, shard: &Shard, nonce: u64) -> Result<bool, StoreError> {
        let act = move |conn: &Connection, state: &mut ShardState| Ok(moves::discard_batch(conn, state, nonce)?);
        self.step("discard_batch", CommitMode::Synced, plain(1), shard, act).await
    }

    async fn hand_over_places(&self, shard: &Shard, places: u32) -> Result<u64, StoreError> {
        let act = move |_: &Connection, state: &mut ShardState| {
            state.meta.places = state.meta.places.max(places);
            state.changed = true;
            Ok(state.held)
        };
        self.step("hand_over_places", CommitMode::Synced, plain(1), shard, act).await
    }

    async fn restore_batch(&self, shard: &Shard, batch: &Batch) -> Result<bool, StoreError> {
        let (size, batch) = (plain(batch.messages.len()), batch.clone());
        let act = move |conn: &Connection, state: &mut ShardState| moves::restore_batch(conn, state, &batch);
        self.step("restore_batch", CommitMode::Synced, size, shard, act).await
    }
}
