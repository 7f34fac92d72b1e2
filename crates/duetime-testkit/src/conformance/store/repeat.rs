//! A claim whose answer was lost is repeated with its request's name, and costs no attempt.

use duetime_core::DeliveryMode;
use duetime_core::store::{ClaimRequest, Settled, Settlement};

use super::world::{World, ids};
use crate::conformance::StoreFactory;

pub async fn a_claim_repeated_by_its_request_has_the_same_answer(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for (text, age_ms) in [("a", 900), ("b", 800), ("c", 700)] {
        world.put(text, world.ago(age_ms)).await;
    }
    let request = world.request(2);
    let first = world.claim_as(&request).await;
    let again = world.claim_as(&request).await;
    assert_eq!(ids(&first), ["a", "b"]);
    assert_eq!(first.messages, again.messages);
    assert_eq!(again.due_left, 1);
    assert_eq!(world.get("a").await.unwrap().attempts, 1);
    assert_eq!(world.get("c").await.unwrap().attempts, 0);
    assert_eq!(world.settle(&first.messages[0], Settlement::Ack).await, Settled::Ok);
}

pub async fn a_repeated_claim_answers_only_what_is_still_held(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for (text, age_ms) in [("acked", 900), ("nacked", 800), ("cancelled", 700), ("held", 600), ("other", 500)] {
        world.put(text, world.ago(age_ms)).await;
    }
    let request = world.request(4);
    let first = world.claim_as(&request).await;
    world.settle(&first.messages[0], Settlement::Ack).await;
    world.settle(&first.messages[1], Settlement::Nack(std::time::Duration::ZERO)).await;
    world.cancel("cancelled").await;
    let again = world.claim_as(&request).await;
    assert_eq!(ids(&again), ["held"]);
    assert_eq!(again.messages[0], first.messages[3]);
}

pub async fn the_last_sixteen_claims_are_remembered(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for n in 0..16 {
        world.put(&format!("m{n:02}"), world.ago(1000 - n)).await;
    }
    let request = world.request(1);
    let first = world.claim_as(&request).await;
    for n in 1..16 {
        assert_eq!(ids(&world.claim(1).await), [format!("m{n:02}")]);
    }
    assert_eq!(world.claim_as(&request).await.messages, first.messages);
}

pub async fn a_repeated_claim_of_a_suspect_answers_it_again(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    world.claim_as(&world.short_request(1)).await;
    world.pass(super::world::SHORT).await;
    world.claim(10).await;
    world.pass(super::world::FIRST_WAIT).await;
    let request = world.request(10);
    let first = world.claim_as(&request).await;
    assert!(first.messages[0].suspect);
    assert_eq!(world.claim_as(&request).await.messages, first.messages);
}

pub async fn an_at_most_once_claim_repeated_brings_nothing_twice(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let once = ClaimRequest { delivery: DeliveryMode::AtMostOnce, ..world.request(10) };
    assert_eq!(ids(&world.claim_as(&once).await), ["a"]);
    assert_eq!(world.claim_as(&once).await.messages, []);
}
