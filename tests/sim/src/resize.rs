//! The contract of the resize, as one node calls it over the simulated network.

use std::ops::Range;

use async_trait::async_trait;
use duetime_core::limits::OLD_ITEMS_MAX;
use duetime_core::resize_store::{
    ApplyOutcome, Batch, BatchId, Cursor, DeadlineFloor, Fenced, Inspected, Lookup, Replication, ScanPage,
};
use duetime_core::store::{AckWait, DeadAction, Edit, Edited, Enqueue, Enqueued, Settle, Settled};
use duetime_core::{
    ClaimStore as _, MessageId, MessageStore as _, ResizeStore, Role, Routing, RoutingAuthority, RoutingRecord, Shard,
    StoreError, StoredMessage, Timestamp, TopicName, TopicRecord,
};

use crate::server::{Sent, Server, at_once, cancels, is_done};
use crate::store::{SimStore, check_skew, due_of, master_of, seat};
use crate::wire::Kept;

/// Raises one shard to a record of a topic that exists. Messages of a life that nobody deleted are never emptied.
fn fence(
    server: &Server,
    shard: &Shard,
    record: &TopicRecord,
    routing: &Routing,
    floor: &DeadlineFloor,
    deleted: u64,
) -> Result<Fenced, StoreError> {
    if let Some((there, holds)) = server.mem.shard_holds(&shard.topic, shard.index)
        && there.life() != routing.life()
    {
        let left_over = there.life() < routing.life() && (holds == 0 || there.life() <= deleted);
        if !left_over {
            return Err(StoreError::UnknownShard(shard.to_string()));
        }
        server.empty(&seat(shard));
        server.mem.remove_shard(&shard.topic, shard.index);
    }
    server.mem.know_topic(record);
    at_once(server.mem.fence(&shard.topic, shard.index, routing, floor))
}

/// The calls on ids whose home is another shard by now.
impl SimStore {
    pub(crate) async fn enqueue_at_source(
        &self,
        shard: &Shard,
        _now: Timestamp,
        batch: &[Enqueue],
    ) -> Result<Vec<Lookup<Enqueued>>, StoreError> {
        let (batch, request) = (batch.to_vec(), self.link.dice.next());
        let script = move |server: &Server, shard: &Shard, sent: &Sent| {
            let mut sent = *sent;
            check_skew(server, &mut sent, batch.iter().map(|item| &item.due))?;
            let act = || at_once(server.mem.enqueue_at(shard, Role::Source, sent.caller, &batch));
            server.once(&seat(shard), "enqueue_at_source", request, &sent, act)
        };
        self.kept(shard, script).await
    }

    pub(crate) async fn edit_at_source(
        &self,
        shard: &Shard,
        _now: Timestamp,
        batch: &[Edit],
    ) -> Result<Vec<Lookup<Edited>>, StoreError> {
        let mut all = Vec::with_capacity(batch.len());
        for run in batch.chunk_by(|a, b| cancels(a) == cancels(b)) {
            for part in run.chunks(OLD_ITEMS_MAX) {
                let (part, request) = (part.to_vec(), self.link.dice.next());
                let script = move |server: &Server, shard: &Shard, sent: &Sent| {
                    let mut sent = *sent;
                    check_skew(server, &mut sent, part.iter().filter_map(due_of))?;
                    let act = || {
                        let edited = at_once(server.mem.edit_at(shard, Role::Source, sent.caller, &part))?.answers;
                        let done = |one: &Lookup<Edited>| matches!(one, Lookup::Found(there) if is_done(there));
                        server.has_edited(&shard.topic, &part, edited.iter().map(done));
                        Ok(edited)
                    };
                    server.once(&seat(shard), "edit_at_source", request, &sent, act)
                };
                all.extend(self.kept(shard, script).await?);
            }
        }
        Ok(all)
    }

    pub(crate) async fn get_at_source(
        &self,
        shard: &Shard,
        ids: &[MessageId],
    ) -> Result<Vec<Lookup<StoredMessage>>, StoreError> {
        let ids = ids.to_vec();
        self.kept(shard, move |server, shard, _| at_once(server.mem.get_at(shard, Role::Source, &ids))).await
    }

    pub(crate) async fn settle_at_source(
        &self,
        shard: &Shard,
        _now: Timestamp,
        batch: &[Settle],
    ) -> Result<Vec<Lookup<Settled>>, StoreError> {
        let mut all = Vec::with_capacity(batch.len());
        for part in batch.chunks(OLD_ITEMS_MAX) {
            let (part, request) = (part.to_vec(), self.link.dice.next());
            let script = move |server: &Server, shard: &Shard, sent: &Sent| {
                let act = || {
                    let settled =
                        at_once(server.mem.settle_at(shard, Role::Source, sent.caller, &part, AckWait::No))?.answers;
                    let done =
                        |one: &Lookup<Settled>| matches!(one, Lookup::Found(there) if *there != Settled::Expired);
                    server.has_settled(&shard.topic, &part, settled.iter().map(done));
                    Ok(settled)
                };
                server.once(&seat(shard), "settle_at_source", request, sent, act)
            };
            all.extend(self.kept(shard, script).await?);
        }
        Ok(all)
    }

    pub(crate) async fn resolve_dead_letters_at_source(
        &self,
        shard: &Shard,
        _now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<Vec<Lookup<bool>>, StoreError> {
        let mut all = Vec::with_capacity(ids.len());
        for part in ids.chunks(OLD_ITEMS_MAX) {
            let (part, request) = (part.to_vec(), self.link.dice.next());
            let script = move |server: &Server, shard: &Shard, sent: &Sent| {
                let act = || {
                    let settled = server.mem.resolve_dead_letters_at(shard, Role::Source, sent.caller, &part, action);
                    Ok(at_once(settled)?.answers)
                };
                server.once(&seat(shard), "resolve_dead_letters_at_source", request, sent, act)
            };
            all.extend(self.kept(shard, script).await?);
        }
        Ok(all)
    }
}

#[async_trait]
impl RoutingAuthority for SimStore {
    async fn routing(&self, topic: &TopicName) -> Result<Option<RoutingRecord>, StoreError> {
        self.read_routing(topic).await
    }

    async fn swap_routing(
        &self,
        topic: &TopicName,
        seen: &RoutingRecord,
        new: &RoutingRecord,
    ) -> Result<(), StoreError> {
        self.swap(topic, seen, new).await
    }
}

#[async_trait]
impl ResizeStore for SimStore {
    async fn fence(
        &self,
        topic: &TopicName,
        index: u32,
        routing: &Routing,
        floor: &DeadlineFloor,
    ) -> Result<Fenced, StoreError> {
        let shard = routing.shard(topic, index);
        let unknown = || StoreError::UnknownShard(shard.to_string());
        let (record, deleted) = self.of_life(topic, routing.life()).await?.ok_or_else(unknown)?;
        let (to, floor) = (routing.clone(), *floor);
        // A fence is for its own life: it names its shard itself.
        let act = {
            let (shard, record) = (shard.clone(), record.clone());
            move |server: &Server, _: &Sent| fence(server, &shard, &record, &to, &floor, deleted)
        };
        let fenced = self.link.call(self.master(&shard), true, Kept::Shard(seat(&shard)), act).await?;
        if fenced.before.is_none() && self.of_life(topic, routing.life()).await?.is_none() {
            // Its topic was deleted meanwhile: what was made for it is taken back. Not where the record is gone by
            // itself, for messages may be in it by now.
            if self.noted(topic).await?.2 >= routing.life() {
                self.unmake(&shard, routing.life()).await?;
            }
            return Err(unknown());
        }
        Ok(fenced)
    }

    async fn inspect(&self, topic: &TopicName, indexes: Range<u32>) -> Result<Vec<Option<Inspected>>, StoreError> {
        let mut all = Vec::new();
        for index in indexes {
            let name = topic.clone();
            let look = move |server: &Server, _: &Sent| at_once(server.mem.inspect(&name, index..index + 1));
            let master = master_of(self.link.servers.len(), topic, index);
            all.extend(self.link.call(master, false, Kept::No, look).await?);
        }
        Ok(all)
    }

    async fn scan(&self, shard: &Shard, from: Option<&Cursor>, limit: usize) -> Result<ScanPage, StoreError> {
        let from = from.cloned();
        self.kept(shard, move |server, shard, _| at_once(server.mem.scan(shard, from.as_ref(), limit))).await
    }

    async fn freeze_batch(
        &self,
        shard: &Shard,
        to: u32,
        ids: &[MessageId],
        nonce: u64,
    ) -> Result<Option<Batch>, StoreError> {
        let ids = ids.to_vec();
        self.kept(shard, move |server, shard, _| at_once(server.mem.freeze_batch(shard, to, &ids, nonce))).await
    }

    async fn outbox(&self, shard: &Shard) -> Result<Option<Batch>, StoreError> {
        self.kept(shard, |server, shard, _| at_once(server.mem.outbox(shard))).await
    }

    /// No server is ever full.
    async fn check_room(&self, _: &Shard) -> Result<(), StoreError> {
        Ok(())
    }

    async fn apply_batch(&self, shard: &Shard, batch: &Batch) -> Result<ApplyOutcome, StoreError> {
        let batch = batch.clone();
        let script = move |server: &Server, shard: &Shard, _: &Sent| at_once(server.mem.apply_batch(shard, &batch));
        if !self.alone {
            return self.kept(shard, script).await;
        }
        // Answered by its server alone: the next failover may undo it.
        match self.quick(shard, true, script).await? {
            ApplyOutcome::Done { fresh, .. } => Ok(ApplyOutcome::Done { fresh, kept: Replication::Unreplicated }),
            conflict @ ApplyOutcome::Conflict { .. } => Ok(conflict),
        }
    }

    async fn last_applied_batch(&self, shard: &Shard, from: u32) -> Result<Option<BatchId>, StoreError> {
        self.kept(shard, move |server, shard, _| at_once(server.mem.last_applied_batch(shard, from))).await
    }

    async fn rename_batch(&self, shard: &Shard, seen: u64, new: BatchId) -> Result<bool, StoreError> {
        self.kept(shard, move |server, shard, _| at_once(server.mem.rename_batch(shard, seen, new))).await
    }

    async fn discard_batch(&self, shard: &Shard, nonce: u64) -> Result<bool, StoreError> {
        self.kept(shard, move |server, shard, _| at_once(server.mem.discard_batch(shard, nonce))).await
    }

    async fn restore_batch(&self, shard: &Shard, batch: &Batch) -> Result<bool, StoreError> {
        let batch = batch.clone();
        self.kept(shard, move |server, shard, _| at_once(server.mem.restore_batch(shard, &batch))).await
    }
}
