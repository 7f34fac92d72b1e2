//! The contract of the resize, each call handed to where it is done.

use std::ops::Range;

use async_trait::async_trait;
use duetime_core::reshard::{
    Batch, BatchName, BatchPut, Cursor, Fenced, Floor, Inspected, Reshard, RoutingAuthority, ScanPage,
};
use duetime_core::{MessageId, Routing, RoutingRecord, Shard, StoreError, TopicName};

use crate::store::RedisStore;

#[async_trait]
impl RoutingAuthority for RedisStore {
    async fn routing(&self, topic: &TopicName) -> Result<Option<RoutingRecord>, StoreError> {
        self.read_routing(topic).await
    }

    async fn swap_routing(
        &self,
        topic: &TopicName,
        seen: &RoutingRecord,
        new: &RoutingRecord,
    ) -> Result<(), StoreError> {
        self.replace_routing(topic, seen, new).await
    }
}

#[async_trait]
impl Reshard for RedisStore {
    async fn fence(
        &self,
        topic: &TopicName,
        index: u32,
        routing: &Routing,
        floor: &Floor,
    ) -> Result<Fenced, StoreError> {
        self.fence_shard(topic, index, routing, floor).await
    }

    async fn inspect(&self, topic: &TopicName, indexes: Range<u32>) -> Result<Vec<Option<Inspected>>, StoreError> {
        self.inspect_shards(topic, indexes).await
    }

    async fn scan(&self, shard: &Shard, from: Option<&Cursor>, limit: usize) -> Result<ScanPage, StoreError> {
        self.scan_shard(shard, from, limit).await
    }

    async fn take(&self, shard: &Shard, to: u32, ids: &[MessageId], nonce: u64) -> Result<Option<Batch>, StoreError> {
        self.take_messages(shard, to, ids, nonce).await
    }

    async fn outbox(&self, shard: &Shard) -> Result<Option<Batch>, StoreError> {
        self.read_outbox(shard).await
    }

    async fn put(&self, shard: &Shard, batch: &Batch) -> Result<BatchPut, StoreError> {
        self.put_batch(shard, batch).await
    }

    async fn memory(&self, shard: &Shard, from: u32) -> Result<Option<BatchName>, StoreError> {
        self.remembered(shard, from).await
    }

    async fn renumber(&self, shard: &Shard, seen: u64, new: BatchName) -> Result<bool, StoreError> {
        self.rename_batch(shard, seen, Some(new)).await
    }

    async fn drop_batch(&self, shard: &Shard, nonce: u64) -> Result<bool, StoreError> {
        self.rename_batch(shard, nonce, None).await
    }
}
