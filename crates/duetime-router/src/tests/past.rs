//! What a topic remembers of messages that are gone, found from any shard count.

use duetime_core::{End, Mover as _, ResizeStore as _, StoredMessage};
use duetime_testkit::{claim_request, plain_message};

use super::*;

const DAY: Duration = Duration::from_secs(24 * 3600);

impl Fixture {
    pub(super) async fn remembering(shards: u32) -> Self {
        let fixture = Self::with_shards(shards).await;
        fixture.set_memory(DAY).await;
        fixture
    }

    async fn set_memory(&self, remember: Duration) {
        let mut config = self.catalog.get(&self.topic).unwrap().config.clone();
        config.remember = remember;
        self.catalog.put(&self.topic, &TopicChange::whole(&config)).await.unwrap();
    }

    /// Another number of shards; `moves`: what is there is moved, and the change is done.
    pub(super) async fn resize(&self, shards: u32, moves: bool) {
        let seen = self.store.routing(&self.topic).await.unwrap().unwrap();
        let (epoch, change_id) = (seen.routing.epoch + 1, ChangeId(u64::from(shards)));
        let (state, previous) = (RoutingState::Moving, seen.routing.shards);
        let routing = Routing {
            epoch,
            change_id,
            shards,
            previous,
            state,
            seed: seen.routing.seed,
            watermark: seen.routing.watermark,
            max_in_flight: seen.routing.max_in_flight,
        };
        let moving = RoutingRecord { routing: routing.clone(), ..seen.clone() };
        self.store.swap_routing(&self.topic, &seen, &moving).await.unwrap();
        let mover = MoveDeps::new(self.store.clone());
        mover.fence_all(&self.topic, &routing).await.unwrap();
        if moves {
            for index in 0..previous {
                let shard = routing.shard(&self.topic, index);
                let page = self.small.scan(&shard, None, 1_000).await.unwrap();
                let away = |id: &MessageId| routing.home(&self.topic, id).index != index;
                for id in page.found.into_iter().map(|one| one.id).filter(away) {
                    let to = routing.home(&self.topic, &id).index;
                    self.small.freeze_batch(&shard, to, std::slice::from_ref(&id), 7).await.unwrap();
                    mover.finish(&self.topic, &routing, index).await.unwrap();
                }
            }
            let stable = moving.committed(self.clock.now());
            self.store.swap_routing(&self.topic, &moving, &stable).await.unwrap();
            mover.fence_all(&self.topic, &stable.routing).await.unwrap();
        }
        self.catalog.refresh().await.unwrap();
    }

    async fn place(&self, id: &MessageId, on_conflict: OnConflict) -> crate::Placed {
        let item = Enqueue { on_conflict, ..enqueue(id.as_str()) };
        self.router.enqueue(&self.topic, vec![item]).await.remove(0).unwrap()
    }

    async fn cancel(&self, id: &MessageId) -> Edited {
        self.router.edit(&self.topic, vec![Edit::Cancel(id.clone())]).await.remove(0).unwrap().edited
    }

    async fn find(&self, id: &MessageId) -> Result<StoredMessage, Option<End>> {
        let found = self.router.find(&self.topic, vec![id.clone()]).await.remove(0).unwrap().1;
        found.map_err(|became| became.map(|became| became.end))
    }

    fn homes(&self, id: &MessageId, counts: &[u32]) -> Vec<u32> {
        let seed = self.catalog.get(&self.topic).unwrap().routing.seed(&self.topic);
        counts.iter().map(|shards| duetime_core::routing::shard_of(id, seed, *shards)).collect()
    }

    /// An id with another home under each of these counts.
    pub(super) fn moving_id(&self, counts: &[u32]) -> MessageId {
        let ids = (0..100_000).map(|n| MessageId::new(&format!("m{n}")).unwrap());
        let apart = |id: &MessageId| {
            let homes = self.homes(id, counts);
            homes.windows(2).all(|pair| pair[0] != pair[1])
        };
        ids.into_iter().find(apart).expect("one of many")
    }
}

fn enqueue(id: &str) -> Enqueue {
    Enqueue { payload: Bytes::from_static(b"x"), ..plain_message(id, Due::In(Duration::from_secs(60))) }
}

#[tokio::test]
async fn what_ended_is_known_under_every_later_shard_count() {
    let fixture = Fixture::remembering(2).await;
    let id = fixture.moving_id(&[2, 4, 8]);
    assert_eq!(fixture.place(&id, OnConflict::Reject).await.outcome, EnqueueOutcome::Scheduled);
    assert_eq!(fixture.cancel(&id).await, Edited::Cancelled);
    for (shards, moves) in [(4, true), (8, false)] {
        fixture.resize(shards, moves).await;
        assert_eq!(fixture.find(&id).await, Err(Some(End::Cancelled)), "{shards} shards");
        let placed = fixture.place(&id, OnConflict::Reject).await;
        assert_eq!(placed.outcome, EnqueueOutcome::Duplicate, "{shards} shards");
        assert_eq!(placed.became.map(|became| became.end), Some(End::Cancelled));
        assert!(matches!(fixture.cancel(&id).await, Edited::Gone(became) if became.end == End::Cancelled));
    }
    // It leaves no note in the present home, and lives anew by a replacement alone.
    assert_eq!(fixture.place(&id, OnConflict::Replace).await.outcome, EnqueueOutcome::Scheduled);
    let lives = fixture.place(&id, OnConflict::Reject).await;
    assert_eq!((lives.outcome, lives.became), (EnqueueOutcome::Duplicate, None), "what lives is answered");
    assert_eq!(fixture.cancel(&id).await, Edited::Cancelled, "what another shard remembers hides no message");
    fixture.clock.advance(DAY + Duration::from_secs(120));
    let anew = fixture.place(&id, OnConflict::Reject).await;
    assert_eq!(anew.outcome, EnqueueOutcome::Scheduled, "the window has passed");
}

#[tokio::test]
async fn what_lived_anew_and_moved_after_a_change_of_the_shard_count_has_moved_and_may_come_back() {
    let fixture = Fixture::remembering(2).await;
    let id = fixture.moving_id(&[2, 4, 8]);
    fixture.place(&id, OnConflict::Reject).await;
    assert_eq!(fixture.cancel(&id).await, Edited::Cancelled);
    fixture.place(&id, OnConflict::Replace).await;
    fixture.resize(4, true).await;
    let version = fixture.find(&id).await.unwrap().version().unwrap();
    let away = vec![Edit::CancelIf { id: id.clone(), version, moved: true }];
    let edited = fixture.router.edit(&fixture.topic, away).await.remove(0).unwrap().edited;
    assert_eq!(edited, Edited::Cancelled);
    assert_eq!(fixture.find(&id).await, Err(Some(End::Moved)));
    assert!(matches!(fixture.cancel(&id).await, Edited::Gone(became) if became.end == End::Moved));
    for rule in [OnConflict::Reject, OnConflict::Replace] {
        let placed = fixture.place(&id, rule).await;
        assert_eq!(placed.became.map(|became| became.end), Some(End::Moved), "{rule:?}");
    }
    assert_eq!(fixture.place(&id, OnConflict::Return).await.outcome, EnqueueOutcome::Scheduled);
    // What ended here does not come back, whatever the shard count is by then.
    assert_eq!(fixture.cancel(&id).await, Edited::Cancelled);
    fixture.resize(8, true).await;
    let back = fixture.place(&id, OnConflict::Return).await;
    assert_eq!((back.outcome, back.became.map(|became| became.end)), (EnqueueOutcome::Duplicate, Some(End::Cancelled)));
}

#[tokio::test]
async fn a_cancel_that_overtook_its_enqueue_holds_after_a_change_of_the_shard_count() {
    let fixture = Fixture::remembering(2).await;
    let id = fixture.moving_id(&[2, 4]);
    assert_eq!(fixture.cancel(&id).await, Edited::Unknown);
    fixture.resize(4, true).await;
    assert_eq!(fixture.place(&id, OnConflict::Reject).await.outcome, EnqueueOutcome::CancelledBefore);
    assert_eq!(fixture.cancel(&id).await, Edited::Unknown);
}

#[tokio::test]
async fn an_ack_is_known_as_repeated_after_a_change_of_the_shard_count() {
    let fixture = Fixture::remembering(2).await;
    let id = fixture.moving_id(&[2, 4, 8]);
    fixture.place(&id, OnConflict::Reject).await;
    fixture.clock.advance(Duration::from_secs(61));
    let record = fixture.catalog.get(&fixture.topic).unwrap();
    let shard = record.routing.home(&fixture.topic, &id);
    let request = claim_request(1);
    let claimed = fixture.store.claim(&shard, fixture.clock.now(), &request).await.unwrap().messages.remove(0);
    // It is acked at the home that it moved to, which is no home of it any more when it is acked again.
    fixture.resize(4, true).await;
    let receipt = Receipt::new(&fixture.topic, shard.index, shard.epoch, id.clone(), claimed.score);
    let ack = async |router: &Router| {
        let answers = router.settle(&fixture.topic, vec![(receipt.clone(), SettleAsk::Ack)]).await;
        answers.into_iter().next().unwrap().unwrap().0
    };
    assert_eq!(ack(&fixture.router).await, SettleAnswer::Ok);
    fixture.resize(8, true).await;
    // Another node, which has settled nothing itself.
    let mover = Arc::new(MoveDeps::new(fixture.store.clone()));
    let (store, catalog, clock) = (fixture.store.clone(), fixture.catalog.clone(), fixture.clock.clone());
    let other = Router::new(store, mover, catalog, clock, Arc::new(Meters::new()));
    assert_eq!(ack(&other).await, SettleAnswer::Already);
    assert_eq!(fixture.find(&id).await, Err(Some(End::Delivered)));
}

#[tokio::test]
async fn a_memory_that_was_turned_off_is_forgotten() {
    let fixture = Fixture::remembering(2).await;
    let id = MessageId::new("a").unwrap();
    fixture.place(&id, OnConflict::Reject).await;
    assert_eq!(fixture.cancel(&id).await, Edited::Cancelled);
    fixture.set_memory(DAY * 2).await;
    assert_eq!(fixture.find(&id).await, Err(Some(End::Cancelled)), "a longer window keeps what is there");
    fixture.set_memory(Duration::ZERO).await;
    assert_eq!(fixture.find(&id).await, Err(None));
    assert_eq!(fixture.cancel(&id).await, Edited::Unknown);
    fixture.set_memory(DAY).await;
    assert_eq!(fixture.find(&id).await, Err(None), "it is another memory");
}
