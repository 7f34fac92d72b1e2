//! The watermark of a topic, while its shards move and where one does not answer.

use duetime_core::{Mover as _, ResizeStore as _, UndoneState};
use duetime_testkit::plain_message;

use super::*;
use crate::{HeldBy, Watermark};

impl Fixture {
    async fn watermark(&self) -> Watermark {
        self.router.watermarks.read(&self.topic).await.unwrap().expect("the topic has one")
    }

    /// With another topic, which has one.
    async fn with_watermark(shards: u32) -> Self {
        let mut fixture = Self::with_shards(shards).await;
        assert_eq!(fixture.router.watermarks.read(&fixture.topic).await.unwrap(), None);
        fixture.topic = TopicName::new("bills").unwrap();
        let config = change(&format!("{{\"shards\":{shards},\"watermark\":true}}"));
        fixture.catalog.put(&fixture.topic, &config).await.unwrap();
        fixture
    }
}

#[tokio::test]
async fn a_message_that_moves_holds_the_watermark_all_the_way() {
    let fixture = Fixture::with_watermark(2).await;
    let id = fixture.moving_id(&[2, 4]);
    let due_at = Timestamp::from_millis(fixture.clock.now().as_millis() - 5000);
    let item = plain_message(id.as_str(), Due::At(due_at));
    fixture.router.enqueue(&fixture.topic, vec![item]).await.remove(0).unwrap();
    let record = fixture.catalog.get(&fixture.topic).unwrap();
    let from = record.routing.home(&fixture.topic, &id).index;
    let claimed = fixture.store.claim(&record.shard(from), fixture.clock.now(), &claim_request(1)).await.unwrap();
    assert_eq!(claimed.messages.len(), 1);
    let held = async |shard| {
        let found = fixture.watermark().await;
        let Some(HeldBy::Message { shard: by, due_at: at, state, .. }) = found.held_by else { panic!("{found:?}") };
        assert_eq!((found.at, at, by), (due_at, due_at, shard));
        state
    };
    assert!(matches!(held(from).await, UndoneState::InFlight(_)));
    fixture.resize(4, false).await;
    assert!(matches!(held(from).await, UndoneState::InFlight(_)));
    let routing = fixture.catalog.get(&fixture.topic).unwrap().routing.clone();
    assert!(routing.is_moving());
    let to = routing.home(&fixture.topic, &id).index;
    let source = routing.shard(&fixture.topic, from);
    fixture.small.freeze_batch(&source, to, std::slice::from_ref(&id), 7).await.unwrap();
    assert_eq!(held(from).await, UndoneState::Moving);
    MoveDeps::new(fixture.store.clone()).finish(&fixture.topic, &routing, from).await.unwrap();
    assert!(matches!(held(to).await, UndoneState::InFlight(_)));
    fixture.router.edit(&fixture.topic, vec![Edit::Cancel(id)]).await.remove(0).unwrap();
    assert_eq!(fixture.watermark().await, Watermark { at: fixture.clock.now(), held_by: None });
}

#[tokio::test]
async fn it_stands_still_while_a_shard_does_not_answer_and_never_goes_back() {
    let fixture = Fixture::with_watermark(2).await;
    let first = fixture.watermark().await.at;
    assert_eq!(first, fixture.clock.now());
    fixture.clock.advance(Duration::from_secs(5));
    *fixture.watched.bad_shard.lock() = Some(1);
    assert_eq!(fixture.watermark().await, Watermark { at: first, held_by: Some(HeldBy::Unreachable(1)) });
    *fixture.watched.bad_shard.lock() = None;
    assert_eq!(fixture.watermark().await.at, fixture.clock.now());
    let late = plain_message("late", Due::At(first));
    fixture.router.enqueue(&fixture.topic, vec![late]).await.remove(0).unwrap();
    let found = fixture.watermark().await;
    assert_eq!(found.at, fixture.clock.now());
    assert!(matches!(found.held_by, Some(HeldBy::Message { due_at, .. }) if due_at == first), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn those_who_ask_together_share_a_reading() {
    let fixture = Fixture::with_watermark(2).await;
    let asks = (0..100).map(|_| fixture.router.watermarks.read_together(&fixture.topic));
    let found = futures::future::join_all(asks).await;
    assert!(found.iter().all(|found| found.as_ref().unwrap().as_ref().unwrap().at == fixture.clock.now()));
    assert_eq!(fixture.watched.undone.load(Ordering::SeqCst), 2, "one for each shard");
}
