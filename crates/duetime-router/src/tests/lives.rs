//! What was meant for one life of a topic does nothing to the next, though the ids, and even the claims, are the same.

use duetime_core::store::{AckWait, Claim, DeadAction, Settle, Settled, Settlement};
use duetime_core::{DeliveryMode, Role, Shard};
use duetime_testkit::claim_request;

use super::*;
use crate::RoutedStore;

/// A topic that another node deleted and made again, each time with `order-1` in it, and a node that has not heard.
struct Remade {
    fixture: Fixture,
    first: Shard,
    claimed: Claim,
}

impl Fixture {
    async fn other_router(&self) -> Arc<Router> {
        let catalog =
            Catalog::open(self.store.clone(), self.clock.clone(), Draw::new(rand::random::<u64>)).await.unwrap();
        let deps = Arc::new(MoveDeps::new(self.store.clone()));
        Router::new(self.store.clone(), deps, catalog, self.clock.clone(), self.meters.clone())
    }

    fn only_shard(&self, router: &Router) -> Shard {
        router.dispatcher.catalog.get(&self.topic).unwrap().routing.shard(&self.topic, 0)
    }

    async fn claim_one(&self, shard: &Shard, delivery: DeliveryMode) -> Claim {
        let request = ClaimRequest { delivery, ..claim_request(1) };
        let claim = self.store.claim(shard, self.clock.now(), &request).await.unwrap();
        assert_eq!(claim.messages.len(), 1);
        claim
    }
}

impl Remade {
    async fn with(delivery: DeliveryMode) -> Self {
        let fixture = Fixture::with_shards(1).await;
        fixture.enqueue(vec![message("order-1")]).await;
        let first = fixture.only_shard(&fixture.router);
        let claimed = fixture.claim_one(&first, delivery).await;
        Self { fixture, first, claimed }
    }

    /// Deletes the topic and makes it again, at another node, and claims its message at the very same moment.
    async fn again(&self) -> (Arc<Router>, Shard, Claim) {
        let fixture = &self.fixture;
        let other = fixture.other_router().await;
        assert!(other.dispatcher.catalog.delete(&fixture.topic, duetime_core::Deletion::Force).await.unwrap());
        other.dispatcher.catalog.put(&fixture.topic, &change("{\"shards\":1}")).await.unwrap();
        assert!(other.enqueue(&fixture.topic, vec![message("order-1")]).await[0].is_ok());
        let second = fixture.only_shard(&other);
        let claimed = fixture.claim_one(&second, DeliveryMode::AtLeastOnce).await;
        (other, second, claimed)
    }

    fn receipt(&self, shard: &Shard, claim: &Claim) -> Receipt {
        let message = &claim.messages[0];
        Receipt::new(&self.fixture.topic, shard.index, shard.epoch, message.id.clone(), message.score)
    }

    async fn acked(&self, router: &Router, receipt: Receipt) -> SettleAnswer {
        let answers = router.settle(&self.fixture.topic, vec![(receipt, SettleAsk::Ack)]).await;
        answers.into_iter().next().unwrap().unwrap().0
    }
}

#[tokio::test]
async fn a_receipt_of_an_earlier_life_acks_nothing_though_its_proof_would_fit() {
    let remade = Remade::with(DeliveryMode::AtLeastOnce).await;
    let (other, second, claimed) = remade.again().await;
    assert_eq!(claimed.messages[0].score, remade.claimed.messages[0].score, "the proofs are the same");
    let early = remade.receipt(&remade.first, &remade.claimed);
    // One node knows the new life, the other has not heard of it.
    assert_eq!(remade.acked(&other, early.clone()).await, SettleAnswer::Gone);
    assert_eq!(remade.acked(&remade.fixture.router, early).await, SettleAnswer::Gone);
    let late = remade.receipt(&second, &claimed);
    assert_eq!(remade.acked(&remade.fixture.router, late).await, SettleAnswer::Ok);
}

#[tokio::test]
async fn a_receipt_of_a_later_life_is_settled_by_a_node_that_has_not_heard_of_it() {
    let remade = Remade::with(DeliveryMode::AtLeastOnce).await;
    let (_, second, claimed) = remade.again().await;
    let extend = vec![(remade.receipt(&second, &claimed), SettleAsk::Extend(None))];
    let answer = remade.fixture.router.settle(&remade.fixture.topic, extend).await.remove(0).unwrap().0;
    let SettleAnswer::Extended(receipt) = answer else { panic!("{answer:?}") };
    assert_eq!(remade.acked(&remade.fixture.router, receipt).await, SettleAnswer::Ok);
}

#[tokio::test]
async fn a_receipt_of_a_life_that_the_catalog_does_not_know_is_refused_as_such() {
    let remade = Remade::with(DeliveryMode::AtLeastOnce).await;
    let later = Shard { epoch: remade.first.epoch + duetime_core::routing::LIFE, ..remade.first.clone() };
    let ask = vec![(remade.receipt(&later, &remade.claimed), SettleAsk::Ack)];
    let answer = remade.fixture.router.settle(&remade.fixture.topic, ask).await.remove(0);
    assert!(
        matches!(&answer, Err(RouteError::Store(error)) if matches!(**error, StoreError::Outdated(_))),
        "{answer:?}"
    );
    // Receipts are made up easily: what the shards say counts.
    assert_eq!(remade.fixture.catalog.issues().of_catalog(), None);
}

#[tokio::test]
async fn what_the_engine_claimed_in_an_earlier_life_settles_nothing() {
    for delivery in [DeliveryMode::AtLeastOnce, DeliveryMode::AtMostOnce] {
        let remade = Remade::with(delivery).await;
        let (other, second, claimed) = remade.again().await;
        let mine = &remade.claimed.messages[0];
        for router in [&other, &remade.fixture.router] {
            let store = RoutedStore::new(router.clone());
            let settle = |score| Settle { id: mine.id.clone(), score, action: Settlement::Ack };
            let early = [settle(claimed.messages[0].score)];
            let now = remade.fixture.clock.now();
            let kept = store.settle_at(&remade.first, Role::Home, now, &early, AckWait::No).await.unwrap();
            let settled = duetime_core::Lookup::finals(kept.answers).unwrap();
            assert_eq!(settled, [Settled::Expired]);
        }
        assert_eq!(remade.acked(&other, remade.receipt(&second, &claimed)).await, SettleAnswer::Ok);
        assert!(other.get(&remade.fixture.topic, vec![id("order-1")]).await[0].as_ref().unwrap().1.is_none());
    }
}

#[tokio::test]
async fn nothing_is_claimed_by_who_knows_an_earlier_life() {
    let remade = Remade::with(DeliveryMode::AtLeastOnce).await;
    let (other, ..) = remade.again().await;
    other.enqueue(&remade.fixture.topic, vec![message("order-2")]).await;
    let store = RoutedStore::new(other);
    let request = claim_request(1);
    let refused = store.claim(&remade.first, remade.fixture.clock.now(), &request).await;
    assert!(matches!(refused, Err(StoreError::UnknownShard(_))), "{refused:?}");
}

#[tokio::test]
async fn a_change_that_names_a_life_is_refused_in_the_next_one() {
    let fixture = Fixture::with_shards(1).await;
    let before = fixture.only_shard(&fixture.router);
    let life = Some(duetime_core::routing::life_of(before.epoch));
    let other = fixture.other_router().await;
    assert!(other.dispatcher.catalog.delete(&fixture.topic, duetime_core::Deletion::Force).await.unwrap());
    other.dispatcher.catalog.put(&fixture.topic, &change("{\"shards\":1}")).await.unwrap();
    assert!(other.enqueue(&fixture.topic, vec![message("order-1")]).await[0].is_ok());
    for router in [&fixture.router, &other] {
        let edited = router.edit_in(&fixture.topic, life, vec![Edit::Cancel(id("order-1"))]).await.remove(0);
        assert!(matches!(edited, Err(RouteError::EarlierLife(_))), "{edited:?}");
        let purged = router.dead.settle_in(&fixture.topic, life, &[id("order-1")], DeadAction::Purge).await;
        assert!(matches!(purged.done[..], [Err(RouteError::EarlierLife(_))]), "{purged:?}");
    }
    let cancelled = fixture.router.edit(&fixture.topic, vec![Edit::Cancel(id("order-1"))]).await.remove(0);
    assert_eq!(cancelled.unwrap().edited, Edited::Cancelled);
}
