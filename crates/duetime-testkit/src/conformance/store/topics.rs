//! Topics: created, changed by version, deleted; and nothing crosses from one to another.

use crate::at_home::{AllCounted as _, MessagesAtHome as _, SettledAtHome as _};
use std::time::Duration;

use duetime_core::store::{DeadAction, DeadKept, Edit, Settle, Settlement};
use duetime_core::{
    ChangeId, Deletion, LeaseClass, MessageState, Routing, RoutingState, Score, Shard, StoreError, TopicRecord,
};

use super::world::{World, all_time, fresh_record, id, message};
use crate::conformance::StoreFactory;

async fn stored(world: &World, record: &TopicRecord) -> Option<TopicRecord> {
    world.store.topics().await.unwrap().into_iter().find(|one| one.name == record.name)
}

/// The error of each operation on a shard, in a row.
pub(super) async fn every_refusal(world: &World, shard: &Shard) -> Vec<StoreError> {
    let (store, now) = (&world.store, world.now());
    let settle = Settle { id: id("a"), score: Score::new(now, LeaseClass::TOPIC, 1), action: Settlement::Ack };
    let nack = Settle { action: Settlement::Nack(Duration::ZERO), ..settle.clone() };
    vec![
        store.enqueue(shard, now, &[message("a", world.ago(1))]).await.unwrap_err(),
        store.edit(shard, now, &[Edit::Cancel(id("a"))]).await.unwrap_err(),
        store.edit(shard, now, &[Edit::Reschedule(id("a"), world.ago(1))]).await.unwrap_err(),
        store.get(shard, &[id("a")]).await.unwrap_err(),
        store.claim(shard, now, &world.request(1)).await.unwrap_err(),
        store.settle(shard, now, &[settle]).await.unwrap_err(),
        store.settle(shard, now, &[nack]).await.unwrap_err(),
        store.dead_letters(shard, None, 10).await.unwrap_err(),
        store.list(shard, &all_time(), 10).await.unwrap_err(),
        store.resolve_dead_letters(shard, now, &[id("a")], DeadAction::Redrive).await.unwrap_err(),
        store.resolve_dead_letters(shard, now, &[id("a")], DeadAction::Purge).await.unwrap_err(),
        store.expire_dead_letters(shard, now, DeadKept::default()).await.unwrap_err(),
    ]
}

pub async fn a_topic_is_read_back_as_it_was_put(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    assert_eq!(stored(&world, &world.record).await.as_ref(), Some(&world.record));
}

pub async fn a_topic_is_created_only_once(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let mut rival = world.record.clone();
    rival.config.max_payload = 7;
    let refused = world.store.put_topic(&rival, None).await;
    assert!(matches!(refused, Err(StoreError::Conflict)), "{refused:?}");
    assert_eq!(stored(&world, &world.record).await.as_ref(), Some(&world.record));
    assert!(world.get("a").await.is_some());
}

pub async fn a_topic_is_changed_from_the_version_seen(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let mut changed = world.record.clone();
    changed.config.max_payload = 7;
    changed.version = 2;
    world.store.put_topic(&changed, Some(1)).await.unwrap();
    assert_eq!(stored(&world, &changed).await.as_ref(), Some(&changed));
    let late = TopicRecord { version: 2, ..world.record.clone() };
    let refused = world.store.put_topic(&late, Some(1)).await;
    assert!(matches!(refused, Err(StoreError::Conflict)), "{refused:?}");
    assert_eq!(stored(&world, &changed).await.as_ref(), Some(&changed));
    assert!(world.get("a").await.is_some(), "messages stay");
}

pub async fn a_topic_that_is_not_there_can_not_be_changed(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let absent = TopicRecord { version: 4, ..fresh_record(world.now()) };
    let refused = world.store.put_topic(&absent, Some(3)).await;
    assert!(matches!(refused, Err(StoreError::Conflict)), "{refused:?}");
    assert_eq!(stored(&world, &absent).await, None);
}

pub async fn a_change_never_touches_the_routing(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let mut changed = world.record.clone();
    changed.version = 2;
    changed.routing = Routing {
        epoch: 9,
        change_id: ChangeId(9),
        shards: 8,
        previous: 3,
        state: RoutingState::Moving,
        seed: None,
        watermark: false,
        max_in_flight: None,
    };
    world.store.put_topic(&changed, Some(1)).await.unwrap();
    assert_eq!(stored(&world, &changed).await.unwrap().routing, world.record.routing);
    world.put("a", world.ago(1000)).await;
}

pub async fn a_deleted_topic_is_gone_and_its_shards_refuse(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put_dead("dead").await;
    world.put("held", world.ago(1000)).await;
    world.claim_one().await;
    world.put("free", world.ago(1000)).await;
    assert!(world.store.delete_topic(&world.record.name, duetime_core::Deletion::Force).await.unwrap());
    assert_eq!(stored(&world, &world.record).await, None);
    for shard in world.shards() {
        for refusal in every_refusal(&world, &shard).await {
            assert!(matches!(refusal, StoreError::UnknownShard(_)), "{refusal:?}");
        }
    }
    assert!(!world.store.delete_topic(&world.record.name, duetime_core::Deletion::Force).await.unwrap());
}

pub async fn a_topic_that_holds_anything_is_deleted_by_force_alone(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let refused = async |what: &str| {
        let answer = world.store.delete_topic(&world.record.name, Deletion::IfEmpty).await;
        assert!(matches!(answer, Err(StoreError::NotEmpty { .. })), "with {what}: {answer:?}");
        assert_eq!(stored(&world, &world.record).await.as_ref(), Some(&world.record), "with {what}");
    };
    world.put_dead("dead").await;
    refused("a dead letter").await;
    world.store.resolve_dead_letters(&world.shard(), world.now(), &[id("dead")], DeadAction::Purge).await.unwrap();
    world.put("held", world.ago(1000)).await;
    let held = world.claim_one().await;
    refused("a message in flight").await;
    world.settle(&held, Settlement::Ack).await;
    world.put("later", world.ago(-60_000)).await;
    refused("a message that is not due").await;
    let edited = world.store.edit(&world.shard(), world.now(), &[Edit::Cancel(id("later"))]).await.unwrap();
    assert_eq!(edited, [duetime_core::store::Edited::Cancelled]);
    assert!(world.store.delete_topic(&world.record.name, Deletion::IfEmpty).await.unwrap(), "nothing is left");
    assert_eq!(stored(&world, &world.record).await, None);
    assert!(!world.store.delete_topic(&world.record.name, Deletion::IfEmpty).await.unwrap());
}

pub async fn an_enqueue_beside_a_deletion_without_force_is_refused_or_stays(factory: &dyn StoreFactory) {
    for round in 0..30 {
        let world = World::new(factory).await;
        let (shard, now, batch) = (world.shard_at(1), world.now(), [message("a", world.ago(-60_000))]);
        let (deleted, enqueued) =
            futures::join!(world.store.delete_topic(&world.record.name, Deletion::IfEmpty), async {
                // At another moment of the deletion each time.
                for _ in 0..round % 10 {
                    tokio::task::yield_now().await;
                }
                world.store.enqueue(&shard, now, &batch).await
            });
        let acknowledged = enqueued.is_ok();
        let is_there = stored(&world, &world.record).await.is_some();
        match deleted {
            Ok(deleted) => assert!(deleted && !acknowledged && !is_there, "round {round}: {enqueued:?}"),
            Err(StoreError::NotEmpty { .. }) => assert!(is_there, "round {round}"),
            Err(other) => panic!("round {round}: {other}"),
        }
        if acknowledged {
            assert_eq!(world.store.all_counts(&[shard], now).await.unwrap()[0].messages(), 1, "round {round}");
        }
    }
}

pub async fn a_topic_that_was_never_there_is_not_deleted(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let absent = fresh_record(world.now());
    assert!(!world.store.delete_topic(&absent.name, duetime_core::Deletion::Force).await.unwrap());
}

pub async fn a_topic_created_again_starts_empty(factory: &dyn StoreFactory) {
    let mut world = World::new(factory).await;
    world.put_dead("dead").await;
    world.put("free", world.ago(1000)).await;
    world.store.delete_topic(&world.record.name, duetime_core::Deletion::Force).await.unwrap();
    let again = TopicRecord { name: world.record.name.clone(), ..fresh_record(world.now()) };
    world.record = world.store.put_topic(&again, None).await.unwrap();
    assert_eq!((world.get("dead").await, world.get("free").await), (None, None));
    assert_eq!(world.survey().await, duetime_core::store::ShardCounts::default());
    world.put("free", world.ago(1000)).await;
    assert_eq!(world.claim_one().await.attempt, 1);
}

pub async fn a_topic_of_many_messages_is_deleted_whole(factory: &dyn StoreFactory) {
    let mut world = World::new(factory).await;
    for part in 0..10 {
        let batch: Vec<_> = (0..200).map(|n| message(&format!("m{part}-{n}"), world.ago(1000))).collect();
        world.enqueue(&batch).await;
    }
    assert!(world.store.delete_topic(&world.record.name, duetime_core::Deletion::Force).await.unwrap());
    let again = TopicRecord { name: world.record.name.clone(), ..fresh_record(world.now()) };
    world.record = world.store.put_topic(&again, None).await.unwrap();
    assert_eq!(world.survey().await, duetime_core::store::ShardCounts::default());
}

pub async fn nothing_crosses_from_topic_to_topic(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let mut other = World::new(factory).await;
    other.store = world.store.clone();
    // A name that begins with the other's, and one more that differs in its end alone.
    for (n, suffix) in [".0", "-", "0"].into_iter().enumerate() {
        let name = format!("{}{suffix}", world.record.name);
        let record = TopicRecord { name: name.parse().unwrap(), ..fresh_record(world.now()) };
        other.record = world.store.put_topic(&record, None).await.unwrap();
        world.put("a", world.ago(1000)).await;
        assert_eq!(other.get("a").await, None);
        assert_eq!(other.claim(10).await.messages, []);
        other.put("a", other.ago(1000)).await;
        let claimed = world.claim_one().await;
        let found = other.get("a").await.unwrap();
        assert_eq!((found.state, found.attempts), (MessageState::Scheduled, 0));
        assert_eq!(other.settle(&claimed, Settlement::Ack).await, duetime_core::store::Settled::Expired);
        assert!(world.store.delete_topic(&other.record.name, duetime_core::Deletion::Force).await.unwrap());
        assert_eq!(world.get("a").await.unwrap().state, MessageState::InFlight, "round {n}");
        assert_eq!(world.settle(&claimed, Settlement::Ack).await, duetime_core::store::Settled::Ok);
    }
}

pub async fn nothing_crosses_from_shard_to_shard(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let other = world.shard_at(1);
    let claim = world.store.claim(&other, world.now(), &world.request(10)).await.unwrap();
    assert_eq!(claim.messages, []);
    assert_eq!(world.store.get(&other, &[id("a")]).await.unwrap(), [None]);
    let edited = world.store.edit(&other, world.now(), &[Edit::Cancel(id("a"))]).await.unwrap();
    assert_eq!(edited, [duetime_core::store::Edited::Unknown]);
    assert!(world.get("a").await.is_some());
}

/// The same topic, deleted and created again with the number of shards it had.
async fn born_again(world: &mut World) -> TopicRecord {
    let before = world.record.clone();
    assert!(world.store.delete_topic(&before.name, duetime_core::Deletion::Force).await.unwrap());
    let again = TopicRecord { name: before.name.clone(), ..fresh_record(world.now()) };
    world.record = world.store.put_topic(&again, None).await.unwrap();
    before
}

pub async fn each_life_of_a_name_has_a_higher_number(factory: &dyn StoreFactory) {
    let mut world = World::new(factory).await;
    for _ in 0..3 {
        let before = born_again(&mut world).await;
        assert!(before.routing.life() > 0, "{before:?}");
        assert!(world.record.routing.life() > before.routing.life(), "{before:?} {:?}", world.record);
        assert_eq!(stored(&world, &world.record).await.as_ref(), Some(&world.record));
    }
}

pub async fn a_caller_of_an_earlier_life_learns_the_present_record_and_changes_nothing(factory: &dyn StoreFactory) {
    let mut world = World::new(factory).await;
    let before = born_again(&mut world).await;
    world.put("a", world.ago(1000)).await;
    for refusal in every_refusal(&world, &before.routing.shard(&before.name, 0)).await {
        let StoreError::Stale(present) = refusal else { panic!("{refusal:?}") };
        assert_eq!(*present, world.record.routing);
    }
    assert_eq!(world.claim_one().await.attempt, 1);
}

pub async fn a_caller_of_a_life_to_come_is_not_ready(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let later = world.record.clone().in_life(world.record.routing.life() + 1);
    for refusal in every_refusal(&world, &later.routing.shard(&later.name, 0)).await {
        assert!(matches!(refusal, StoreError::NotReady(_)), "{refusal:?}");
    }
}

pub async fn a_topic_that_is_well_is_adopted_as_it_is(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    assert_eq!(world.store.remains(&world.record.name).await.unwrap(), 0);
    let adopted = world.store.adopt_topic(&world.record.name, &duetime_core::store::Adopt::default()).await.unwrap();
    assert_eq!((adopted.record, adopted.restored, adopted.lost.len()), (world.record.clone(), false, 0));
    let nobody = fresh_record(world.now());
    let refused = world.store.adopt_topic(&nobody.name, &duetime_core::store::Adopt::default()).await;
    assert!(matches!(refused, Err(StoreError::UnknownShard(_))), "{refused:?}");
}
