//! The resize: routing records and, not yet, moves.

use async_trait::async_trait;
use duetime_core::reshard::{Reshard, RoutingAuthority, RoutingRecord};
use duetime_core::{Store as _, StoreError, TopicName, TopicRecord};

use crate::store::EmbeddedStore;

#[async_trait]
impl RoutingAuthority for EmbeddedStore {
    async fn routing(&self, topic: &TopicName) -> Result<Option<RoutingRecord>, StoreError> {
        let topics = self.topics().await?;
        Ok(topics.iter().find(|record| record.name == *topic).map(TopicRecord::routing_record))
    }

    async fn swap_routing(&self, _: &TopicName, _: &RoutingRecord, _: &RoutingRecord) -> Result<(), StoreError> {
        Err(StoreError::Setup("the embedded store cannot change a topic's number of shards yet".to_owned()))
    }
}

impl Reshard for EmbeddedStore {}
