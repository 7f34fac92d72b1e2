//! The contract of the resize, each call handed to where it is done.

use std::ops::Range;

use async_trait::async_trait;
use duetime_core::resize_store::{
    ApplyOutcome, Batch, BatchId, Cursor, DeadlineFloor, Fenced, Inspected, ResizeStore, RoutingAuthority, ScanPage,
};
use duetime_core::{MessageId, Routing, RoutingRecord, Shard, StoreError, TopicName};

use crate::store::RedisStore;
use crate::{catalog, moves};

#[async_trait]
impl RoutingAuthority for RedisStore {
    async fn routing(&self, topic: &TopicName) -> Result<Option<RoutingRecord>, StoreError> {
        catalog::read_routing(&self.calls, topic).await
    }

    async fn swap_routing(
        &self,
        topic: &TopicName,
        seen: &RoutingRecord,
        new: &RoutingRecord,
    ) -> Result<(), StoreError> {
        catalog::replace_routing(&self.calls, topic, seen, new).await
    }
}

#[async_trait]
impl ResizeStore for RedisStore {
    async fn fence(
        &self,
        topic: &TopicName,
        index: u32,
        routing: &Routing,
        floor: &DeadlineFloor,
    ) -> Result<Fenced, StoreError> {
        moves::fence_shard(&self.calls, topic, index, routing, floor).await
    }

    async fn inspect(&self, topic: &TopicName, indexes: Range<u32>) -> Result<Vec<Option<Inspected>>, StoreError> {
        moves::inspect_shards(&self.calls, topic, indexes).await
    }

    async fn scan(&self, shard: &Shard, from: Option<&Cursor>, limit: usize) -> Result<ScanPage, StoreError> {
        moves::scan_shard(&self.calls, shard, from, limit).await
    }

    async fn freeze_batch(
        &self,
        shard: &Shard,
        to: u32,
        ids: &[MessageId],
        nonce: u64,
    ) -> Result<Option<Batch>, StoreError> {
        moves::take_messages(&self.calls, shard, to, ids, nonce).await
    }

    async fn outbox(&self, shard: &Shard) -> Result<Option<Batch>, StoreError> {
        moves::read_outbox(&self.calls, shard).await
    }

    async fn apply_batch(&self, shard: &Shard, batch: &Batch) -> Result<ApplyOutcome, StoreError> {
        moves::put_batch(&self.calls, shard, batch).await
    }

    async fn last_applied_batch(&self, shard: &Shard, from: u32) -> Result<Option<BatchId>, StoreError> {
        moves::remembered(&self.calls, shard, from).await
    }

    async fn rename_batch(&self, shard: &Shard, seen: u64, new: BatchId) -> Result<bool, StoreError> {
        moves::rename_batch(&self.calls, shard, seen, Some(new)).await
    }

    async fn discard_batch(&self, shard: &Shard, nonce: u64) -> Result<bool, StoreError> {
        moves::rename_batch(&self.calls, shard, nonce, None).await
    }

    async fn restore_batch(&self, shard: &Shard, batch: &Batch) -> Result<bool, StoreError> {
        moves::restore_batch(&self.calls, shard, batch).await
    }

    async fn hand_over_places(&self, shard: &Shard, places: u32) -> Result<u64, StoreError> {
        moves::hand_over_places(&self.calls, shard, places).await
    }

    async fn check_room(&self, shard: &Shard) -> Result<(), StoreError> {
        moves::check_room(&self.calls, shard).await
    }
}
