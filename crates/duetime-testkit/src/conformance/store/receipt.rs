//! Receipts: each proves one claim, and nothing after it.

use std::time::Duration;

use duetime_core::store::{Settle, Settled, Settlement};
use duetime_core::{LeaseClass, MessageState, Receipt, Score};

use super::world::{World, every_settlement, id};
use crate::conformance::StoreFactory;

pub async fn the_receipt_of_an_earlier_claim_is_refused(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for how in every_settlement() {
        world.put("a", world.ago(1000)).await;
        let old = world.claim_one().await;
        world.settle(&old, Settlement::Release).await;
        let present = world.claim_one().await;
        assert_eq!((old.attempt, present.attempt), (1, 1));
        assert_ne!(old.score, present.score);
        assert_eq!(world.settle(&old, how).await, Settled::Expired);
        assert_eq!(world.get("a").await.unwrap().state, MessageState::InFlight);
        assert_eq!(world.settle(&present, Settlement::Ack).await, Settled::Ok);
    }
}

pub async fn the_receipt_of_an_earlier_life_is_refused(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for how in every_settlement() {
        let due = world.ago(1000);
        world.put("a", due).await;
        let old = world.claim_one().await;
        world.cancel("a").await;
        world.put("a", due).await;
        let present = world.claim_one().await;
        assert_eq!(world.settle(&old, how).await, Settled::Expired);
        assert_eq!(world.settle(&present, Settlement::Ack).await, Settled::Ok);
    }
}

pub async fn a_settled_claim_is_not_settled_again(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for first in [Settlement::Ack, Settlement::Nack(Duration::from_secs(60)), Settlement::Bury("no".to_owned())] {
        world.put("a", world.ago(1000)).await;
        let claimed = world.claim_one().await;
        assert_eq!(world.settle(&claimed, first).await, Settled::Ok);
        for how in every_settlement() {
            assert_eq!(world.settle(&claimed, how).await, Settled::Expired);
        }
        world.cancel("a").await;
    }
    assert_eq!(world.survey().await, duetime_core::store::ShardCounts::default());
}

pub async fn a_receipt_settles_only_its_own_message(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    world.put("b", world.ago(900)).await;
    let a = world.claim_one().await;
    let b = world.claim_one().await;
    for how in every_settlement() {
        let crossed = Settle { id: b.id.clone(), score: a.score, action: how.clone() };
        let absent = Settle { id: id("none"), score: a.score, action: how };
        assert_eq!(world.settle_all(&[crossed, absent]).await, [Settled::Expired, Settled::Expired]);
    }
    assert_eq!(world.survey().await.in_flight, 2);
}

pub async fn a_score_nobody_was_given_proves_nothing(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("free", world.ago(1000)).await;
    let visible_at = world.get("free").await.unwrap().visible_at;
    let forged =
        [Score::new(visible_at, LeaseClass::FREE, 0), Score::new(visible_at, LeaseClass::TOPIC, 0), Receipt::SETTLED];
    for score in forged {
        for how in every_settlement() {
            let answer = world.settle_all(&[Settle { id: id("free"), score, action: how.clone() }]).await;
            assert_eq!(answer, [Settled::Expired], "{score:?} {how:?}");
        }
    }
    let survey = world.survey().await;
    assert_eq!((survey.scheduled, survey.in_flight, survey.dead), (1, 0, 0));
}
