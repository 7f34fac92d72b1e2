//! A store that went back to an earlier time under a node that remembers a later change of the shard count.

use duetime_core::resize_store::{DeadlineFloor, ResizeStore as _};

use super::*;

impl Fixture {
    /// The node remembers a change to so many shards, of which the store knows nothing any more.
    fn remember_change(&self, shards: u32) -> Routing {
        let known = self.catalog.get(&self.topic).unwrap().routing.clone();
        let later = Routing { epoch: known.epoch + 1, change_id: ChangeId(9), previous: known.shards, shards, ..known };
        assert!(self.catalog.learn(&self.topic, &later));
        later
    }

    /// Makes a shard of the store, empty, whatever was there.
    async fn make_shard(&self, index: u32, routing: &Routing) {
        self.small.lose_shard(&routing.shard(&self.topic, index));
        // A shard that messages are about to move into may be missing.
        let moving = Routing { previous: 0, state: RoutingState::Moving, ..routing.clone() };
        for routing in [&moving, routing] {
            self.store.fence(&self.topic, index, routing, &DeadlineFloor::default()).await.unwrap();
        }
    }

    fn shards(&self) -> u32 {
        self.catalog.get(&self.topic).unwrap().routing.shards
    }
}

fn all() -> Vec<Enqueue> {
    (0..100).map(|n| message(&format!("m{n}"))).collect()
}

fn cancels() -> Vec<Edit> {
    all().into_iter().map(|message| Edit::Cancel(message.id)).collect()
}

#[tokio::test]
async fn nothing_that_is_there_is_unknown_after_the_store_forgot_a_change_of_the_shard_count() {
    for (shards, forgotten) in [(8, 4), (4, 8), (4, 3)] {
        let fixture = Fixture::with_shards(shards).await;
        fixture.enqueue(all()).await;
        fixture.remember_change(forgotten);
        let again = fixture.enqueue(all()).await;
        let doubled = again.iter().filter(|done| done.as_ref().unwrap().outcome != EnqueueOutcome::Duplicate).count();
        assert_eq!((doubled, fixture.shards()), (0, shards));
        fixture.remember_change(forgotten);
        let cancelled = fixture.router.edit(&fixture.topic, cancels()).await;
        assert!(cancelled.iter().all(|done| done.as_ref().unwrap().edited == Edited::Cancelled), "{cancelled:?}");
        assert_eq!(fixture.catalog.issues().of_catalog(), None);
    }
}

#[tokio::test]
async fn a_change_that_the_store_forgot_and_gave_the_epoch_of_to_another_is_forgotten_here_too() {
    let fixture = Fixture::with_shards(2).await;
    fixture.enqueue(all()).await;
    let present = fixture.remember_change(3);
    // The store has another change of that epoch, which every shard has heard of.
    let begun = Routing { change_id: ChangeId(8), shards: 4, state: RoutingState::Moving, ..present };
    let seen = fixture.store.routing(&fixture.topic).await.unwrap().unwrap();
    let record = RoutingRecord { routing: begun.clone(), desired: None, earlier: Vec::new() };
    fixture.store.swap_routing(&fixture.topic, &seen, &record).await.unwrap();
    for index in 0..4 {
        fixture.store.fence(&fixture.topic, index, &begun, &DeadlineFloor::default()).await.unwrap();
    }
    let again = fixture.enqueue(all()).await;
    assert!(again.iter().all(|done| done.as_ref().unwrap().outcome == EnqueueOutcome::Duplicate), "{again:?}");
    let cancelled = fixture.router.edit(&fixture.topic, cancels()).await;
    assert!(cancelled.iter().all(|done| done.as_ref().unwrap().edited == Edited::Cancelled), "{cancelled:?}");
    assert_eq!((fixture.shards(), fixture.catalog.issues().of_catalog()), (4, None));
}

#[tokio::test]
async fn nothing_is_answered_while_shards_have_another_change_of_the_epoch_that_the_catalog_has() {
    let fixture = Fixture::with_shards(2).await;
    fixture.enqueue(all()).await;
    let rival = Routing { change_id: ChangeId(8), ..fixture.catalog.get(&fixture.topic).unwrap().routing.clone() };
    for index in 0..2 {
        fixture.make_shard(index, &rival).await;
    }
    for done in fixture.router.edit(&fixture.topic, cancels()).await {
        let Err(RouteError::Store(error)) = done else { panic!("{done:?}") };
        assert!(matches!(*error, StoreError::Outdated(_)), "{error}");
    }
    fixture.router.consistency.check_shards().await;
    assert!(fixture.catalog.issues().of_catalog().is_some_and(|(word, _)| word == "topic_outdated"));
}

#[tokio::test]
async fn messages_on_their_way_to_a_shard_that_the_topic_does_not_have_are_brought_home_and_named() {
    for was_put in [false, true] {
        let fixture = Fixture::with_shards(2).await;
        fixture.enqueue(all()).await;
        let routing = fixture.catalog.get(&fixture.topic).unwrap().routing.clone();
        let source = routing.shard(&fixture.topic, 0);
        let ids: Vec<MessageId> = all().into_iter().map(|message| message.id).collect();
        let batch = fixture.store.freeze_batch(&source, 6, &ids, 77).await.unwrap().unwrap();
        if was_put {
            fixture.make_shard(6, &routing).await;
            fixture.store.apply_batch(&routing.shard(&fixture.topic, 6), &batch).await.unwrap();
        }
        fixture.router.consistency.check_shards().await;
        assert!(fixture.catalog.issues().of_topics()[0].contains("on their way"));
        let found = fixture.router.edit(&fixture.topic, cancels()).await;
        assert!(found.iter().all(|done| done.as_ref().unwrap().edited == Edited::Cancelled), "{found:?}");
        fixture.router.consistency.check_shards().await;
        assert_eq!(fixture.catalog.issues().of_topics(), [""; 0]);
    }
}

#[tokio::test]
async fn nothing_is_answered_where_only_a_part_of_the_store_forgot_a_change_until_an_operator_decides() {
    let fixture = Fixture::with_shards(8).await;
    fixture.enqueue(all()).await;
    let later = fixture.remember_change(4);
    fixture.store.fence(&fixture.topic, 0, &later, &DeadlineFloor::default()).await.unwrap();
    // As it is done each second.
    fixture.catalog.refresh().await.unwrap();
    for _ in 0..2 {
        for done in fixture.router.edit(&fixture.topic, cancels()).await {
            let Err(RouteError::Store(error)) = done else { panic!("{done:?}") };
            assert!(matches!(*error, StoreError::Outdated(_)), "{error}");
        }
    }
    assert!(fixture.catalog.issues().of_catalog().is_some_and(|(word, _)| word == "topic_outdated"));
}

#[tokio::test]
async fn the_review_goes_back_where_nobody_asks() {
    let fixture = Fixture::with_shards(8).await;
    fixture.remember_change(4);
    fixture.catalog.refresh().await.unwrap();
    fixture.router.consistency.check_topics().await;
    assert_eq!(fixture.shards(), 8);
}
