//! Epochs: callers with another routing record than the shard's are turned away.

use duetime_core::{Routing, Shard, StoreError, TopicRecord};

use super::topics::every_refusal;
use super::world::{World, fresh_record};
use crate::conformance::StoreFactory;

/// A topic whose routing was changed four times before.
async fn at_epoch_five(world: &mut World) {
    let mut record = fresh_record(world.now());
    record.routing.epoch = 5;
    world.record = world.store.put_topic(&record, None).await.unwrap();
}

fn of_epoch(record: &TopicRecord, epoch: u64) -> Shard {
    Shard { epoch, ..record.routing.shard(&record.name, 0) }
}

pub async fn an_older_epoch_is_stale_and_learns_the_present_record(factory: &dyn StoreFactory) {
    let mut world = World::new(factory).await;
    at_epoch_five(&mut world).await;
    for change in [1, 4] {
        let epoch = world.routing().epoch - 5 + change;
        for refusal in every_refusal(&world, &of_epoch(&world.record, epoch)).await {
            let StoreError::Stale(present) = refusal else { panic!("{refusal:?}") };
            let expected: &Routing = world.routing();
            assert_eq!(&*present, expected);
        }
    }
    assert_eq!(world.survey().await, duetime_core::store::ShardCounts::default());
}

pub async fn a_newer_epoch_is_not_ready(factory: &dyn StoreFactory) {
    let mut world = World::new(factory).await;
    at_epoch_five(&mut world).await;
    for change in [6, 50] {
        let epoch = world.routing().epoch - 5 + change;
        for refusal in every_refusal(&world, &of_epoch(&world.record, epoch)).await {
            assert!(matches!(refusal, StoreError::NotReady(_)), "{refusal:?}");
        }
    }
}

pub async fn the_same_epoch_is_served(factory: &dyn StoreFactory) {
    let mut world = World::new(factory).await;
    at_epoch_five(&mut world).await;
    world.put("a", world.ago(1000)).await;
    assert_eq!(world.claim_one().await.attempt, 1);
}

pub async fn a_shard_that_was_never_made_is_unknown(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let beyond = world.shard_at(world.routing().shards);
    let absent = fresh_record(world.now());
    for shard in [beyond, of_epoch(&absent, 1)] {
        for refusal in every_refusal(&world, &shard).await {
            assert!(matches!(refusal, StoreError::UnknownShard(_)), "{refusal:?}");
        }
    }
}
