//! A store that went back to an earlier time under a node that remembers a later change of the shard count.

use duetime_core::resize_store::{DeadlineFloor, ResizeStore as _};

use super::*;

impl Fixture {
    /// The node remembers a change to so many shards, of which the store knows nothing any more.
    fn remember_change(&self, shards: u32) -> Routing {
        let known = self.catalog.get(&self.topic).unwrap().routing.clone();
        let later = Routing {
            epoch: known.epoch + 1,
            change_id: "of-the-change".to_owned(),
            previous: known.shards,
            shards,
            ..known
        };
        assert!(self.catalog.learn(&self.topic, &later));
        later
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
        assert_eq!(fixture.catalog.troubles().not_ready(), None);
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
    assert!(fixture.catalog.troubles().not_ready().is_some_and(|(word, _)| word == "topic_outdated"));
}

#[tokio::test]
async fn the_review_goes_back_where_nobody_asks() {
    let fixture = Fixture::with_shards(8).await;
    fixture.remember_change(4);
    fixture.catalog.refresh().await.unwrap();
    fixture.router.reviewer.look_at_topics().await;
    assert_eq!(fixture.shards(), 8);
}
