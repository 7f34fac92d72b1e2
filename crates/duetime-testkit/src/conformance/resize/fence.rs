//! Fences: a shard learns of a new record, once and for ever, and keeps all it has.

use crate::at_home::{AllCounted as _, MessagesAtHome as _};
use duetime_core::resize_store::DeadlineFloor;
use duetime_core::routing::RoutingState;
use duetime_core::store::{Settled, Settlement, ShardCounts};
use duetime_core::{ChangeId, LeaseClass, Role, Routing, StoreError, Timestamp};

use super::world::{LONG, MORE, World, ids};
use crate::conformance::StoreFactory;
use crate::conformance::store::world::{fresh_record, id, message};

pub async fn a_fence_creates_a_new_shard_empty(factory: &dyn StoreFactory) {
    let mut world = World::new(factory).await;
    let next = world.next(MORE);
    let fenced = world.store.fence(&world.record.name, 4, &next, &DeadlineFloor::default()).await.unwrap();
    assert_eq!((fenced.before, fenced.floor), (None, DeadlineFloor::default()));
    world.record.routing = next;
    let survey = world.store.all_counts(&[world.shard(4)], world.now()).await.unwrap();
    assert_eq!(survey, [ShardCounts::default()]);
    world.put(4, "a", world.ago(1000)).await;
    assert_eq!(world.claim_one(4).await.attempt, 1);
}

pub async fn a_fence_raises_a_shard_and_leaves_its_messages_and_receipts(factory: &dyn StoreFactory) {
    let mut world = World::new(factory).await;
    world.put(0, "held", world.ago(2000)).await;
    world.put(0, "waits", world.ago(1000)).await;
    let held = world.claim_one(0).await;
    let (before, next) = (world.record.routing.clone(), world.next(MORE));
    let fenced = world.store.fence(&world.record.name, 0, &next, &DeadlineFloor::default()).await.unwrap();
    assert_eq!(fenced.before, Some(before));
    assert_eq!(fenced.floor.of(LeaseClass::TOPIC), held.score.visible_at());
    world.record.routing = next;
    assert_eq!(world.settle(0, &held, Settlement::Ack).await, Settled::Ok);
    assert_eq!(world.claim_one(0).await.id, id("waits"));
}

pub async fn a_fence_repeated_changes_nothing(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    world.put(3, "a", world.ago(1000)).await;
    let routing = world.record.routing.clone();
    let fenced = world.store.fence(&world.record.name, 3, &routing, &DeadlineFloor::default()).await.unwrap();
    assert_eq!(fenced.before, Some(routing));
    assert_eq!(world.claim_one(3).await.id, id("a"));
}

pub async fn an_older_caller_learns_the_record_from_every_call(factory: &dyn StoreFactory) {
    let mut world = World::new(factory).await;
    let old = world.shard(0);
    world.put(0, "a", world.ago(1000)).await;
    world.begin(MORE).await;
    for refusal in refusals(&world, &old).await {
        let StoreError::Stale(present) = refusal else { panic!("{refusal:?}") };
        assert_eq!(*present, world.record.routing);
    }
    assert!(world.get(0, "a").await.is_some());
}

pub async fn a_caller_with_a_forgotten_change_of_the_same_epoch_learns_the_record_from_every_call(
    factory: &dyn StoreFactory,
) {
    let world = World::moving(factory).await;
    world.put(0, "a", world.ago(1000)).await;
    let forgotten = Routing { change_id: ChangeId(3), shards: 8, ..world.record.routing.clone() };
    let mut all = refusals(&world, &forgotten.shard(&world.record.name, 0)).await;
    let shard = forgotten.shard(&world.record.name, 0);
    let request = world.request(1, LONG);
    all.push(world.store.claim(&shard, world.now(), &request).await.unwrap_err());
    for refusal in all {
        let StoreError::Stale(present) = refusal else { panic!("{refusal:?}") };
        assert_eq!(*present, world.record.routing);
    }
    assert_eq!(world.claim_one(0).await.id, id("a"));
}

pub async fn a_shard_that_was_not_fenced_is_not_ready(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let early = world.next(MORE).shard(&world.record.name, 0);
    for refusal in refusals(&world, &early).await {
        assert!(matches!(refusal, StoreError::NotReady(_)), "{refusal:?}");
    }
    let not_made = world.next(MORE).shard(&world.record.name, 4);
    for refusal in refusals(&world, &not_made).await {
        assert!(matches!(refusal, StoreError::UnknownShard(_)), "{refusal:?}");
    }
}

/// What every call of the resize says to a caller with this shard.
async fn refusals(world: &World, shard: &duetime_core::Shard) -> Vec<StoreError> {
    let (store, now) = (&world.store, world.now());
    let batch = [message("x", world.ago(1))];
    let name = duetime_core::resize_store::BatchId { number: 1, nonce: 1 };
    let empty = duetime_core::resize_store::Batch { name, from: 1, to: shard.index, messages: Vec::new() };
    vec![
        store.enqueue(shard, now, &batch).await.unwrap_err(),
        store.enqueue_at(shard, Role::Source, now, &batch).await.unwrap_err(),
        store.edit_at(shard, Role::Source, now, &[duetime_core::store::Edit::Cancel(id("a"))]).await.unwrap_err(),
        store.get_at(shard, Role::Source, &ids(&["a"])).await.unwrap_err(),
        store
            .resolve_dead_letters_at(shard, Role::Source, now, &ids(&["a"]), duetime_core::store::DeadAction::Purge)
            .await
            .unwrap_err(),
        store.scan(shard, None, 10).await.unwrap_err(),
        store.freeze_batch(shard, 1, &ids(&["a"]), 1).await.unwrap_err(),
        store.outbox(shard).await.unwrap_err(),
        store.apply_batch(shard, &empty).await.unwrap_err(),
        store.last_applied_batch(shard, 0).await.unwrap_err(),
        store.rename_batch(shard, 1, name).await.unwrap_err(),
        store.discard_batch(shard, 1).await.unwrap_err(),
        store.restore_batch(shard, &empty).await.unwrap_err(),
        store.check_room(shard).await.unwrap_err(),
    ]
}

pub async fn a_lower_fence_is_stale(factory: &dyn StoreFactory) {
    let mut world = World::new(factory).await;
    let first = world.record.routing.clone();
    world.begin(MORE).await;
    let refused = world.store.fence(&world.record.name, 0, &first, &DeadlineFloor::default()).await.unwrap_err();
    let StoreError::Stale(present) = refused else { panic!("{refused:?}") };
    assert_eq!(*present, world.record.routing);
}

pub async fn another_change_of_the_same_epoch_is_damage(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    let rival = Routing { change_id: ChangeId(3), ..world.record.routing.clone() };
    let refused = world.store.fence(&world.record.name, 0, &rival, &DeadlineFloor::default()).await.unwrap_err();
    assert!(matches!(refused, StoreError::Damaged(_)), "{refused:?}");
    let seen = world.store.inspect(&world.record.name, 0..1).await.unwrap().remove(0).unwrap();
    assert_eq!(seen.routing, world.record.routing);
}

pub async fn a_commit_may_be_sent_to_a_shard_and_is_not_taken_back(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    let moving = world.record.routing.clone();
    let stable = Routing { state: RoutingState::Stable, ..moving.clone() };
    for told in [&stable, &moving, &stable] {
        world.store.fence(&world.record.name, 1, told, &DeadlineFloor::default()).await.unwrap();
        let seen = world.store.inspect(&world.record.name, 1..2).await.unwrap().remove(0).unwrap();
        assert_eq!(seen.routing, stable);
    }
}

pub async fn deadlines_go_on_above_the_floor(factory: &dyn StoreFactory) {
    let mut world = World::new(factory).await;
    let next = world.next(MORE);
    let high = world.moment(3_600_000);
    let mut floor = DeadlineFloor::default();
    floor.raise(LeaseClass::TOPIC, high);
    let fenced = world.store.fence(&world.record.name, 4, &next, &floor).await.unwrap();
    assert_eq!(fenced.floor, floor);
    // Raised only: a lower floor that comes later changes nothing.
    let mut lower = DeadlineFloor::default();
    lower.raise(LeaseClass::TOPIC, Timestamp::from_millis(5));
    assert_eq!(world.store.fence(&world.record.name, 4, &next, &lower).await.unwrap().floor, floor);
    world.record.routing = next;
    world.put(4, "a", world.ago(1000)).await;
    // In whichever class the deadline is, it is above what any shard gave there.
    let given = world.claim_one(4).await.score;
    assert!(given.visible_at() > floor.of(given.class()), "{given:?}");
}

pub async fn a_retired_shard_keeps_its_record(factory: &dyn StoreFactory) {
    let mut world = World::new(factory).await;
    let old = world.shard(2);
    world.begin(1).await;
    let record = world.record.routing.clone();
    let refused = world.store.enqueue(&old, world.now(), &[message("a", world.ago(1))]).await.unwrap_err();
    let StoreError::Stale(present) = refused else { panic!("{refused:?}") };
    assert_eq!(*present, record);
    assert_eq!(world.store.inspect(&world.record.name, 2..3).await.unwrap()[0].as_ref().unwrap().routing, record);
    assert_eq!(world.claim(2, 1).await.messages, []);
}

pub async fn a_shard_of_no_topic_is_not_fenced(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let absent = fresh_record(world.now());
    let refused = world.store.fence(&absent.name, 0, &absent.routing, &DeadlineFloor::default()).await.unwrap_err();
    assert!(matches!(refused, StoreError::UnknownShard(_)), "{refused:?}");
    assert_eq!(world.store.inspect(&absent.name, 0..1).await.unwrap(), [None]);
}

pub async fn shards_are_inspected_in_order_whatever_their_epochs(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let next = world.next(MORE);
    world.store.fence(&world.record.name, 1, &next, &DeadlineFloor::default()).await.unwrap();
    world.store.fence(&world.record.name, 4, &next, &DeadlineFloor::default()).await.unwrap();
    let seen = world.store.inspect(&world.record.name, 0..MORE + 1).await.unwrap();
    let epochs: Vec<_> = seen.iter().map(|one| one.as_ref().map(|one| one.routing.epoch)).collect();
    let (old, new) = (Some(next.epoch - 1), Some(next.epoch));
    assert_eq!(epochs, [old, new, old, None, new, None]);
    assert!(seen.iter().flatten().all(|one| one.outbox.is_none()));
}

pub async fn a_fence_of_another_life_touches_nothing(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put(0, "a", world.ago(1000)).await;
    let life = world.record.routing.life();
    for other in [life - 1, life + 1] {
        let routing = world.record.routing.clone().in_life(other);
        let refused = world.store.fence(&world.record.name, 0, &routing, &DeadlineFloor::default()).await.unwrap_err();
        assert!(matches!(refused, StoreError::UnknownShard(_)), "{refused:?}");
    }
    assert_eq!(world.claim_one(0).await.id, id("a"));
}

pub async fn a_shard_that_should_be_there_is_not_made_by_a_fence(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    // As if it were one of a change that has ended: nobody says that it is new.
    let ended = Routing { state: RoutingState::Stable, shards: MORE, ..world.next(MORE) };
    let refused = world.store.fence(&world.record.name, 4, &ended, &DeadlineFloor::default()).await.unwrap_err();
    assert!(matches!(refused, StoreError::Lost(_)), "{refused:?}");
    assert_eq!(world.store.inspect(&world.record.name, 4..5).await.unwrap(), [None]);
}
