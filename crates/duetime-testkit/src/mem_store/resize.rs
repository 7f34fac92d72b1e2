//! The contract of the resize, each call handed to the one shard it is about.

use std::cmp::Ordering;
use std::ops::Range;

use async_trait::async_trait;
use duetime_core::resize_store::{
    ApplyOutcome, Batch, BatchId, Cursor, DeadlineFloor, Fenced, Inspected, Lookup, ResizeStore, RoutingAuthority,
    ScanPage,
};
use duetime_core::routing::RoutingState;
use duetime_core::store::{DeadAction, Edit, Edited, Enqueue, Enqueued, Settle, Settled, Settlement};
use duetime_core::{
    MessageId, Outcome, Routing, RoutingRecord, Shard, StoreError, StoredMessage, Timestamp, TopicName,
};

use super::MemStore;
use super::shard::ShardState;

/// Acts on the items whose ids are there; where each id is was looked up before the first act. `ends`: what is remembered
/// of it decides, so that it is acted on too.
fn act_there<I, A>(
    state: &mut ShardState,
    items: &[I],
    id: impl Fn(&I) -> &MessageId,
    ends: impl Fn(&I, &Outcome) -> bool,
    mut act: impl FnMut(&mut ShardState, &I) -> A,
) -> Vec<Lookup<A>> {
    let homes: Vec<Lookup<()>> = items.iter().map(|item| state.at_source(id(item))).collect();
    let each = items.iter().zip(homes).map(|(item, home)| match home {
        Lookup::Found(()) => Lookup::Found(act(state, item)),
        Lookup::Absent(Some(outcome)) if ends(item, &outcome) => Lookup::Found(act(state, item)),
        Lookup::Absent(outcome) => Lookup::Absent(outcome),
        Lookup::Frozen => Lookup::Frozen,
    });
    each.collect()
}

/// The calls on ids whose home is another shard by now.
impl MemStore {
    pub(super) async fn enqueue_at_source(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: &[Enqueue],
    ) -> Result<Vec<Lookup<Enqueued>>, StoreError> {
        self.agree_on(now, batch.iter().any(Enqueue::is_relative))?;
        let (_, later) = self.both(now);
        let rejected = |item: &Enqueue, became: &Outcome| item.on_conflict.is_refused_at_source(*became);
        let act = |state: &mut ShardState| {
            Ok(act_there(state, batch, |item| &item.id, rejected, |state, item| state.enqueue(later, item)))
        };
        self.on_shard(shard, act)
    }

    pub(super) async fn edit_at_source(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: &[Edit],
    ) -> Result<Vec<Lookup<Edited>>, StoreError> {
        self.agree_on(now, batch.iter().any(Edit::is_relative))?;
        let (_, later) = self.both(now);
        let act = |state: &mut ShardState| {
            // A note is for the home.
            let act = |state: &mut ShardState, edit: &Edit| state.edit(later, &edit.clone().without_note());
            Ok(act_there(state, batch, Edit::id, |_, _| false, act))
        };
        Ok(self.on_shard(shard, act)?.into_iter().map(Edited::at_source).collect())
    }

    pub(super) async fn get_at_source(
        &self,
        shard: &Shard,
        ids: &[MessageId],
    ) -> Result<Vec<Lookup<StoredMessage>>, StoreError> {
        let read = |state: &mut ShardState, id: &MessageId| state.read(id).expect("it is there");
        self.on_shard(shard, |state| Ok(act_there(state, ids, |id| id, |_, _| false, read)))
    }

    pub(super) async fn settle_at_source(
        &self,
        shard: &Shard,
        now: Timestamp,
        batch: &[Settle],
    ) -> Result<Vec<Lookup<Settled>>, StoreError> {
        self.agree_on(now, batch.iter().any(Settle::is_relative))?;
        let both = self.both(now);
        self.on_shard(shard, |state| {
            let homes = batch.iter().map(|item| match state.at_source(&item.id) {
                Lookup::Absent(Some(outcome)) if item.action == Settlement::Ack && outcome.is_ack_of(item.score) => {
                    Lookup::Found(())
                }
                home => home,
            });
            let homes: Vec<Lookup<()>> = homes.collect();
            let there = homes.iter().zip(batch).filter(|(home, _)| **home == Lookup::Found(()));
            let there: Vec<Settle> = there.map(|(_, item)| item.clone()).collect();
            let mut settled = state.settle(both, &there).into_iter();
            let each = homes.into_iter().map(|home| home.map(|()| settled.next().expect("one for each")));
            Ok(each.collect())
        })
    }

    pub(super) async fn resolve_dead_letters_at_source(
        &self,
        shard: &Shard,
        now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<Vec<Lookup<bool>>, StoreError> {
        self.agree_on(now, action == DeadAction::Redrive)?;
        let (earlier, _) = self.both(now);
        let act = |state: &mut ShardState, id: &MessageId| state.resolve_dead_letters(earlier, id, action);
        self.on_shard(shard, |state| Ok(act_there(state, ids, |id| id, |_, _| false, act)))
    }
}

#[async_trait]
impl RoutingAuthority for MemStore {
    async fn routing(&self, topic: &TopicName) -> Result<Option<RoutingRecord>, StoreError> {
        Ok(self.inside.lock().topics.get(topic).map(duetime_core::TopicRecord::routing_record))
    }

    async fn swap_routing(
        &self,
        topic: &TopicName,
        seen: &RoutingRecord,
        new: &RoutingRecord,
    ) -> Result<(), StoreError> {
        let mut inside = self.inside.lock();
        let record = inside.topics.get_mut(topic).filter(|record| record.routing_record() == *seen);
        record.ok_or(StoreError::Conflict)?.set_routing(new);
        Ok(())
    }
}

#[async_trait]
impl ResizeStore for MemStore {
    async fn fence(
        &self,
        topic: &TopicName,
        index: u32,
        routing: &Routing,
        floor: &DeadlineFloor,
    ) -> Result<Fenced, StoreError> {
        let mut inside = self.inside.lock();
        let shard = routing.shard(topic, index);
        if inside.topics.get(topic).is_none_or(|record| record.routing.life() != routing.life()) {
            return Err(StoreError::UnknownShard(shard.to_string()));
        }
        if !routing.may_lack(index) && !inside.shards.contains_key(&(topic.clone(), index)) {
            return Err(StoreError::Lost(shard.to_string()));
        }
        let place = inside.shards.entry((topic.clone(), index));
        let mut before = None;
        let state = place
            .and_modify(|state| before = Some(state.routing.clone()))
            .or_insert_with(|| ShardState::new(index, routing.clone()));
        match state.routing.epoch.cmp(&routing.epoch) {
            Ordering::Greater => return Err(StoreError::Stale(Box::new(state.routing.clone()))),
            Ordering::Less => state.routing = routing.clone(),
            Ordering::Equal if state.routing.change_id != routing.change_id => {
                let text = format!("{topic}:{index} has epoch {} of another change of the shards", routing.epoch);
                return Err(StoreError::Damaged(text));
            }
            Ordering::Equal if routing.state == RoutingState::Stable => state.routing.state = RoutingState::Stable,
            Ordering::Equal => {}
        }
        state.raise(floor);
        Ok(Fenced { before, floor: state.floor() })
    }

    async fn inspect(&self, topic: &TopicName, indexes: Range<u32>) -> Result<Vec<Option<Inspected>>, StoreError> {
        let inside = self.inside.lock();
        let inspected = |state: &ShardState| Inspected {
            routing: state.routing.clone(),
            floor: state.floor(),
            outbox: state.outbox.as_ref().map(|batch| (batch.name, batch.to, batch.messages.len() as u64)),
            held: (state.live.len() + state.dead.len() + state.outbox.as_ref().map_or(0, |batch| batch.messages.len()))
                as u64,
        };
        Ok(indexes.map(|index| inside.shards.get(&(topic.clone(), index)).map(inspected)).collect())
    }

    async fn scan(&self, shard: &Shard, from: Option<&Cursor>, limit: usize) -> Result<ScanPage, StoreError> {
        self.on_shard(shard, |state| Ok(state.scan(from, limit)))
    }

    async fn freeze_batch(
        &self,
        shard: &Shard,
        to: u32,
        ids: &[MessageId],
        nonce: u64,
    ) -> Result<Option<Batch>, StoreError> {
        self.on_shard(shard, |state| Ok(state.take(shard.index, to, ids, nonce)))
    }

    async fn outbox(&self, shard: &Shard) -> Result<Option<Batch>, StoreError> {
        self.on_shard(shard, |state| Ok(state.outbox.clone()))
    }

    async fn check_room(&self, shard: &Shard) -> Result<(), StoreError> {
        self.on_shard(shard, |_| Ok(()))
    }

    async fn apply_batch(&self, shard: &Shard, batch: &Batch) -> Result<ApplyOutcome, StoreError> {
        self.on_shard(shard, |state| Ok(state.put(batch)))
    }

    async fn last_applied_batch(&self, shard: &Shard, from: u32) -> Result<Option<BatchId>, StoreError> {
        self.on_shard(shard, |state| Ok(state.applied.get(&from).copied()))
    }

    async fn rename_batch(&self, shard: &Shard, seen: u64, new: BatchId) -> Result<bool, StoreError> {
        self.on_shard(shard, |state| Ok(state.rename_batch(seen, new)))
    }

    async fn discard_batch(&self, shard: &Shard, nonce: u64) -> Result<bool, StoreError> {
        self.on_shard(shard, |state| Ok(state.discard_batch(nonce)))
    }

    async fn restore_batch(&self, shard: &Shard, batch: &Batch) -> Result<bool, StoreError> {
        self.on_shard(shard, |state| Ok(state.restore_batch(batch.name.nonce)))
    }
}
