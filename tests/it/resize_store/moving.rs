//! A topic of three shards that is becoming one of five, on a store under test.

use duetime_testkit::at_home::MessagesAtHome as _;
use std::sync::Arc;

use duetime_core::resize_store::{ApplyOutcome, Batch, DeadlineFloor, Lookup};
use duetime_core::routing::RoutingState;
use duetime_core::store::{AckWait, ClaimedMessage, Edit, Edited, Enqueue, Settle, Settled, Settlement};
use duetime_core::{
    ChangeId, Clock, Due, MessageId, Role, Routing, RoutingRecord, Shard, Store, StoreError, StoredMessage, Timestamp,
    TopicName,
};
use duetime_testkit::{WallClock, claim_request, plain_message, topic_record};

pub struct MovingTopic {
    pub store: Arc<dyn Store>,
    pub topic: TopicName,
    pub routing: Routing,
}

pub fn id(text: &str) -> MessageId {
    MessageId::new(text).unwrap()
}

pub fn now() -> Timestamp {
    WallClock.now()
}

pub fn message(text: &str, payload: usize) -> Enqueue {
    Enqueue {
        payload: vec![7; payload].into(),
        ..plain_message(text, Due::At(Timestamp::from_millis(now().as_millis() - 1000)))
    }
}

impl MovingTopic {
    pub async fn begin(store: Arc<dyn Store>) -> Self {
        let record = store.put_topic(&topic_record("orders", 3, now()), None).await.unwrap();
        let topic = record.name.clone();
        let routing = Routing {
            epoch: record.routing.epoch + 1,
            change_id: ChangeId(2),
            shards: 5,
            previous: 3,
            state: RoutingState::Moving,
            seed: None,
            watermark: false,
            max_in_flight: None,
        };
        let new = RoutingRecord { routing: routing.clone(), desired: None, earlier: Vec::new() };
        store.swap_routing(&topic, &record.routing_record(), &new).await.unwrap();
        for index in 0..5 {
            store.fence(&topic, index, &routing, &DeadlineFloor::default()).await.unwrap();
        }
        Self { store, topic, routing }
    }

    pub fn shard(&self, index: u32) -> Shard {
        self.routing.shard(&self.topic, index)
    }

    pub async fn enqueue(&self, index: u32, texts: &[&str]) {
        let batch: Vec<Enqueue> = texts.iter().map(|text| message(text, 10)).collect();
        self.store.enqueue(&self.shard(index), now(), &batch).await.unwrap();
    }

    pub async fn claim(&self, index: u32) -> Vec<ClaimedMessage> {
        let ask = claim_request(10);
        self.store.claim(&self.shard(index), now(), &ask).await.unwrap().messages
    }

    pub async fn take(&self, texts: &[&str]) -> Result<Option<Batch>, StoreError> {
        let ids: Vec<MessageId> = texts.iter().map(|text| id(text)).collect();
        self.store.freeze_batch(&self.shard(0), 4, &ids, rand::random()).await
    }

    pub async fn put(&self, batch: &Batch) -> Result<ApplyOutcome, StoreError> {
        self.store.apply_batch(&self.shard(batch.to), batch).await
    }

    pub async fn get(&self, index: u32, text: &str) -> Option<StoredMessage> {
        self.store.get(&self.shard(index), &[id(text)]).await.unwrap().remove(0)
    }

    pub async fn cancel_old(&self, texts: &[&str]) -> Result<Vec<Lookup<Edited>>, StoreError> {
        let batch: Vec<Edit> = texts.iter().map(|text| Edit::Cancel(id(text))).collect();
        Ok(self.store.edit_at(&self.shard(0), Role::Source, now(), &batch).await?.answers)
    }

    pub async fn settle_old(&self, claimed: &ClaimedMessage, how: Settlement) -> Lookup<Settled> {
        let batch = [Settle { id: claimed.id.clone(), score: claimed.score, action: how }];
        self.store.settle_at(&self.shard(0), Role::Source, now(), &batch, AckWait::No).await.unwrap().answers.remove(0)
    }
}
