//! The authority: the routing record is read, and changed by whoever saw it last.

use duetime_core::{Deletion, RoutingRecord, StoreError, TopicConfig, TopicRecord};

use super::world::{MORE, World};
use crate::conformance::StoreFactory;
use crate::conformance::store::world::fresh_record;

pub async fn a_fresh_topic_has_its_first_record_and_no_requested_count(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let found = world.store.routing(&world.record.name).await.unwrap().unwrap();
    assert_eq!(found, RoutingRecord { routing: world.record.routing.clone(), desired: None, earlier: Vec::new() });
}

pub async fn a_topic_that_is_not_there_has_no_record(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let absent = fresh_record(world.now());
    assert_eq!(world.store.routing(&absent.name).await.unwrap(), None);
    let seen = absent.routing_record();
    let refused = world.store.swap_routing(&absent.name, &seen, &seen).await;
    assert!(matches!(refused, Err(StoreError::Conflict)), "{refused:?}");
}

pub async fn a_record_is_swapped_only_by_who_saw_it_last(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let name = &world.record.name;
    let seen = world.record.routing_record();
    let first = RoutingRecord { routing: world.next(MORE), desired: None, earlier: Vec::new() };
    let second = RoutingRecord { routing: world.next(MORE + 1), desired: None, earlier: Vec::new() };
    world.store.swap_routing(name, &seen, &first).await.unwrap();
    for stale in [&seen, &second, &RoutingRecord { desired: Some(9), ..first.clone() }] {
        let refused = world.store.swap_routing(name, stale, &second).await;
        assert!(matches!(refused, Err(StoreError::Conflict)), "{refused:?}");
    }
    assert_eq!(world.store.routing(name).await.unwrap(), Some(first.clone()));
    let requested = RoutingRecord { desired: Some(9), ..first.clone() };
    world.store.swap_routing(name, &first, &requested).await.unwrap();
    assert_eq!(world.store.routing(name).await.unwrap(), Some(requested));
}

pub async fn all_topics_are_answered_with_the_record_that_was_swapped_in(factory: &dyn StoreFactory) {
    let mut world = World::new(factory).await;
    world.begin(MORE).await;
    let all = world.store.topics().await.unwrap();
    let told = all.iter().find(|record| record.name == world.record.name).unwrap();
    assert_eq!(*told, world.record);
}

pub async fn a_change_of_the_topic_keeps_record_and_requested_count(factory: &dyn StoreFactory) {
    let mut world = World::new(factory).await;
    let before = world.record.clone();
    world.begin(MORE).await;
    let moving = world.record.routing_record();
    let requested = RoutingRecord { desired: Some(2), ..moving.clone() };
    world.store.swap_routing(&before.name, &moving, &requested).await.unwrap();
    // Whoever changes the topic has read it before the resize began.
    let config = TopicConfig { max_payload: 77, ..before.config.clone() };
    world.store.put_topic(&TopicRecord { config, version: 2, ..before.clone() }, Some(1)).await.unwrap();
    assert_eq!(world.store.routing(&before.name).await.unwrap(), Some(requested));
    let all = world.store.topics().await.unwrap();
    let told = all.iter().find(|record| record.name == before.name).unwrap();
    assert_eq!((told.config.max_payload, told.version, told.max_shards_ever()), (77, 2, MORE));
}

pub async fn a_topic_whose_shard_count_changes_is_deleted_by_force_alone(factory: &dyn StoreFactory) {
    let mut world = World::new(factory).await;
    world.put(0, "a", world.ago(1000)).await;
    world.begin(MORE).await;
    let name = world.record.name.clone();
    let batch = world.take(0, 4, &["a"]).await;
    let refused = world.store.delete_topic(&name, Deletion::IfEmpty).await;
    assert!(matches!(refused, Err(StoreError::NotEmpty { .. })), "{refused:?}");
    assert_eq!(world.put_batch(&batch).await, 1);
    world.discard_batch(&batch).await;
    assert!(world.get(4, "a").await.is_some());
    assert!(world.store.delete_topic(&name, Deletion::Force).await.unwrap());
}

pub async fn a_topic_deleted_while_it_moves_leaves_nothing(factory: &dyn StoreFactory) {
    let mut world = World::moving(factory).await;
    let name = world.record.name.clone();
    for index in 0..MORE {
        world.put(index, &format!("left-{index}"), world.ago(1000)).await;
    }
    world.take(0, 4, &["left-0"]).await;
    // Shrunk since: shards 2 to 4 are retired, and go too.
    world.begin(2).await;
    world.begin(1).await;
    assert!(world.store.delete_topic(&name, duetime_core::Deletion::Force).await.unwrap());
    assert!(world.store.inspect(&name, 0..MORE).await.unwrap().iter().all(Option::is_none));
    let refused =
        world.store.fence(&name, 0, &world.next(2), &duetime_core::resize_store::DeadlineFloor::default()).await;
    assert!(matches!(refused, Err(StoreError::UnknownShard(_))), "{refused:?}");
    // Created again, it grows into empty shards of its own.
    world.pass(std::time::Duration::from_millis(2)).await;
    world.record = TopicRecord { name: name.clone(), ..fresh_record(world.now()) };
    world.record = world.store.put_topic(&world.record, None).await.unwrap();
    world.begin(MORE).await;
    for index in 0..MORE {
        assert_eq!(world.claim(index, 10).await.messages, [], "shard {index}");
        assert_eq!(world.store.outbox(&world.shard(index)).await.unwrap(), None);
    }
}
