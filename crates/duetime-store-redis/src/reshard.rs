//! The resize: routing records and, not yet, moves.

use async_trait::async_trait;
use duetime_core::reshard::{Reshard, RoutingAuthority, RoutingRecord};
use duetime_core::{StoreError, TopicName};

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

impl Reshard for RedisStore {}
