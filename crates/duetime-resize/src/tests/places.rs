//! A topic with a bound of what is in flight: places of new shards, and what is claimed where the topic has none.

use duetime_core::store::ClaimRequest;
use duetime_core::{InFlightBound, Shard};
use duetime_testkit::claim_request;

use super::forgotten::run_for;
use super::*;

#[tokio::test(start_paused = true)]
async fn new_shards_have_their_places_while_nothing_can_move_to_them() {
    let world = World::with(1, 100).await;
    world.bound(8).await;
    let resizer = world.resizer(ResizeConfig::default());
    world.small.set_full(true);
    world.request(&resizer, 8).await.unwrap();
    world.look().await;
    run_for(&resizer, Duration::from_secs(5)).await;
    world.small.set_full(false);
    let routing = world.record().await.routing;
    assert!(routing.is_moving());
    for index in 1..8 {
        let (shard, now) = (routing.shard(&world.topic, index), world.clock.now());
        let due = plain_message(&format!("due {index}"), Due::At(now));
        world.store.enqueue(&shard, now, &[due]).await.unwrap();
        let claim = world.store.claim(&shard, now, &claim_request(1)).await.unwrap();
        assert_eq!(claim.messages.len(), 1, "shard {index} has no place");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_claimed_in_a_shard_that_the_topic_does_not_have_comes_home() {
    let world = World::with(4, 100).await;
    world.bound(8).await;
    let resizer = world.resizer(ResizeConfig::default());
    world.request(&resizer, 2).await.unwrap();
    let routing = world.settle(&resizer).await;
    let [source, place] = [1, 3].map(|index| routing.shard(&world.topic, index));
    world.store.fence(&world.topic, 3, &routing, &DeadlineFloor::default()).await.unwrap();
    let page = world.store.scan(&source, None, 10).await.unwrap();
    let ids: Vec<MessageId> = page.found.into_iter().map(|scanned| scanned.id).collect();
    let batch = world.store.freeze_batch(&source, 3, &ids, 70).await.unwrap().unwrap();
    world.store.apply_batch(&place, &batch).await.unwrap();
    // The messages are due in an hour; the record that is forgotten gave the shard places.
    world.small.set_ahead_ms(7_200_000);
    let place = Shard { in_flight: InFlightBound::None, ..place };
    let request = ClaimRequest { visibility: Duration::from_secs(86_400), ..claim_request(1) };
    let now = world.clock.now().plus(Duration::from_secs(7_200));
    assert_eq!(world.store.claim(&place, now, &request).await.unwrap().messages.len(), 1);
    world.small.set_ahead_ms(0);
    run_for(&resizer, Duration::from_secs(60)).await;
    world.check(100).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_that_waits_for_what_is_in_flight_says_so() {
    let world = World::with(2, 0).await;
    world.bound(8).await;
    for n in 0..8 {
        world.enqueue(&n.to_string(), Duration::ZERO).await;
    }
    let source = world.record().await.routing.shard(&world.topic, 1);
    let request = ClaimRequest { visibility: Duration::from_secs(86_400), ..claim_request(4) };
    let claim = world.store.claim(&source, world.clock.now(), &request).await.unwrap();
    assert!(!claim.messages.is_empty());
    let resizer = world.resizer(ResizeConfig::default());
    world.request(&resizer, 1).await.unwrap();
    world.look().await;
    run_for(&resizer, Duration::from_secs(60)).await;
    let blocked = resizer.progress(&world.topic).await.unwrap().expect("it is under way").blocked;
    assert!(blocked.as_ref().is_some_and(|why| why.contains("in flight")), "{blocked:?}");
}
