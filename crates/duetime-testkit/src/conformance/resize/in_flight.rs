//! A bound of what is in flight while the shard count changes: what is claimed stays, and new shards are given places.

use std::time::Duration;

use duetime_core::resize_store::DeadlineFloor;
use duetime_core::store::{Claim, Settled, Settlement};
use duetime_core::{Due, InFlightBound, RoutingState, StoreError};

use super::world::{MORE, World, ids};
use crate::conformance::StoreFactory;

/// How long a claim holds that is to run out, but not before what is tried until then.
const RUNS_OUT: Duration = Duration::from_millis(800);

fn claimed(claim: &Claim) -> usize {
    claim.messages.len()
}

pub async fn what_is_claimed_stays_where_it_is_until_it_has_run_out(factory: &dyn StoreFactory) {
    let mut world = World::with_max_in_flight(factory, 30).await;
    world.begin(MORE).await;
    world.put(0, "held", Due::At(world.moment(-9000))).await;
    world.claim_one(0).await;
    world.put(0, "running out", Due::At(world.moment(-9000))).await;
    let short = world.request(1, RUNS_OUT);
    assert_eq!(claimed(&world.store.claim(&world.shard(0), world.now(), &short).await.unwrap()), 1);
    world.put(0, "free", world.ago(-60_000)).await;
    let all = ids(&["held", "running out", "free"]);
    let batch = world.store.freeze_batch(&world.shard(0), 3, &all, 7).await.unwrap().unwrap();
    assert_eq!(batch.messages.iter().map(|frozen| &frozen.id).collect::<Vec<_>>(), [&ids(&["free"])[0]]);
    world.put_batch(&batch).await;
    world.discard_batch(&batch).await;
    assert_eq!(world.store.freeze_batch(&world.shard(0), 3, &all, 8).await.unwrap(), None);
    world.pass(RUNS_OUT + RUNS_OUT).await;
    // The new shard has looked for such claims up to the present before one comes, which ran out earlier.
    world.store.hand_over_places(&world.shard(3), 2).await.unwrap();
    assert_eq!(claimed(&world.claim(3, 10).await), 0, "what came is due in a minute");
    let batch = world.store.freeze_batch(&world.shard(0), 3, &all, 9).await.unwrap().unwrap();
    assert_eq!(batch.messages.iter().map(|frozen| &frozen.id).collect::<Vec<_>>(), [&ids(&["running out"])[0]]);
    world.put_batch(&batch).await;
    world.discard_batch(&batch).await;
    // There it holds no place.
    world.put(3, "other", Due::At(world.moment(-20_000))).await;
    let next = world.claim(3, 10).await;
    assert_eq!((claimed(&next), next.expired), (1, 1), "{next:?}");
}

pub async fn a_new_shard_has_as_many_in_flight_as_places_were_handed_over(factory: &dyn StoreFactory) {
    let mut world = World::with_max_in_flight(factory, 15).await;
    world.begin(MORE).await;
    assert_eq!(world.shard(4).in_flight, InFlightBound::HandedOver(3));
    for text in ["a", "b", "c", "d"] {
        world.put(4, text, world.ago(1000)).await;
    }
    let none = world.claim(4, 10).await;
    assert_eq!((claimed(&none), none.due_left, none.is_full), (0, 4, true));
    assert_eq!(world.store.hand_over_places(&world.shard(4), 1).await.unwrap(), 0);
    let first = world.claim(4, 10).await;
    assert_eq!((claimed(&first), first.is_full), (1, true));
    // What was handed over is not taken back, and no more count than its part.
    assert_eq!(world.store.hand_over_places(&world.shard(4), 0).await.unwrap(), 1);
    assert_eq!(world.settle(4, &first.messages[0], Settlement::Ack).await, Settled::Ok);
    assert_eq!(claimed(&world.claim(4, 10).await), 1);
    assert_eq!(world.store.hand_over_places(&world.shard(4), 9).await.unwrap(), 1);
    assert_eq!(claimed(&world.claim(4, 10).await), 2);
}

pub async fn under_another_record_a_shard_begins_without_places(factory: &dyn StoreFactory) {
    let mut world = World::with_max_in_flight(factory, 15).await;
    world.begin(MORE).await;
    let earlier = world.shard(4);
    world.store.hand_over_places(&earlier, 3).await.unwrap();
    // Repeated, the fence leaves them.
    let routing = world.record.routing.clone();
    world.store.fence(&world.record.name, 4, &routing, &DeadlineFloor::default()).await.unwrap();
    world.put(4, "a", world.ago(1000)).await;
    assert_eq!(claimed(&world.claim(4, 10).await), 1);
    // The change is undone by another, and then made again.
    for shards in [3, MORE] {
        let mut seen = world.record.routing_record();
        seen.routing.state = RoutingState::Stable;
        world.store.swap_routing(&world.record.name, &world.record.routing_record(), &seen).await.unwrap();
        world.record.set_routing(&seen);
        world.begin(shards).await;
    }
    world.put(4, "b", world.ago(1000)).await;
    let none = world.claim(4, 10).await;
    assert_eq!((claimed(&none), none.is_full), (0, true), "{none:?}");
    let refused = world.store.hand_over_places(&earlier, 3).await.unwrap_err();
    assert!(matches!(refused, StoreError::Stale(_)), "{refused:?}");
}

pub async fn no_bound_is_taken_that_the_shards_cannot_keep_and_none_is_changed_while_ids_move(
    factory: &dyn StoreFactory,
) {
    let mut world = World::with_max_in_flight(factory, 15).await;
    let put = async |world: &World, max_in_flight: Option<u32>| {
        let all = world.store.topics().await.unwrap();
        let mut record = all.into_iter().find(|record| record.name == world.record.name).expect("it is there");
        let seen = record.version;
        record.version += 1;
        record.config.max_in_flight = max_in_flight;
        world.store.put_topic(&record, Some(seen)).await.map(drop)
    };
    let refused = put(&world, Some(2)).await;
    assert!(matches!(refused, Err(StoreError::Conflict)), "three shards: {refused:?}");
    put(&world, Some(16)).await.unwrap();
    put(&world, Some(15)).await.unwrap();
    world.begin(MORE).await;
    for other in [Some(16), None] {
        let refused = put(&world, other).await;
        assert!(matches!(refused, Err(StoreError::Conflict)), "{other:?}: {refused:?}");
    }
    put(&world, Some(15)).await.unwrap();
}
