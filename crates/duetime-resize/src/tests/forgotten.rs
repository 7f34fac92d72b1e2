//! What a change leaves that the store has forgotten, a store that went back, and deadlines of two shards.

use duetime_core::store::{ClaimRequest, Settle, Settlement};
use duetime_core::{ClaimStore as _, LeaseClass};
use duetime_testkit::at_home::SettledAtHome as _;
use duetime_testkit::claim_request;

use super::*;

#[tokio::test(start_paused = true)]
async fn no_change_ends_while_messages_are_on_their_way_to_a_shard_that_the_topic_does_not_have() {
    let world = World::with(4, 100).await;
    let resizer = world.resizer(ResizeConfig::default());
    world.request(&resizer, 2).await.unwrap();
    let routing = world.settle(&resizer).await;
    // One shard with messages, and a retired one that a failover brought some back in.
    for from in [0, 3] {
        world.store.fence(&world.topic, from, &routing, &DeadlineFloor::default()).await.unwrap();
        let page = world.store.scan(&routing.shard(&world.topic, from.min(1)), None, 10).await.unwrap();
        let ids: Vec<MessageId> = page.found.into_iter().map(|scanned| scanned.id).collect();
        if from == 3 {
            let batch = world.store.freeze_batch(&routing.shard(&world.topic, 1), 3, &ids, 70).await.unwrap().unwrap();
            world.store.apply_batch(&routing.shard(&world.topic, 3), &batch).await.unwrap();
            world.store.discard_batch(&routing.shard(&world.topic, 1), 70).await.unwrap();
        }
        world.store.freeze_batch(&routing.shard(&world.topic, from), 7, &ids, 77).await.unwrap().unwrap();
    }
    world.request(&resizer, 3).await.unwrap();
    assert_eq!(world.settle(&resizer).await.shards, 3);
    world.check(100).await;
}

/// Runs a resizer, whose node looks at no topic again meanwhile.
pub(super) async fn run_for(resizer: &Resizer, time: Duration) {
    let shutdown = CancellationToken::new();
    let run = tokio::spawn(resizer.clone().run(shutdown.clone()));
    tokio::time::sleep(time).await;
    shutdown.cancel();
    run.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_scrubber_brings_messages_home_that_are_on_their_way_to_no_shard() {
    let world = World::with(2, 100).await;
    let routing = world.record().await.routing;
    let ids: Vec<MessageId> = (0..100).map(|n| MessageId::new(&n.to_string()).unwrap()).collect();
    let frozen = world.store.freeze_batch(&routing.shard(&world.topic, 1), 7, &ids, 77).await.unwrap().unwrap();
    assert!(!frozen.messages.is_empty());
    let resizer = world.resizer(ResizeConfig::default());
    world.look().await;
    run_for(&resizer, Duration::from_secs(60)).await;
    world.check(100).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_shard_is_not_made_anew_by_a_node_whose_catalog_went_back() {
    let world = World::with(4, 100).await;
    let resizer = world.resizer(ResizeConfig::default());
    let before = world.store.routing(&world.topic).await.unwrap().unwrap();
    world.request(&resizer, 8).await.unwrap();
    world.settle(&resizer).await;
    world.look().await;
    // The catalog and shard 6 were on a master that came back as it was before; the node knows the later record.
    let later = world.store.routing(&world.topic).await.unwrap().unwrap();
    world.store.swap_routing(&world.topic, &later, &before).await.unwrap();
    world.small.lose_shard(&later.routing.shard(&world.topic, 6));
    run_for(&resizer, Duration::from_secs(60)).await;
    let shard = world.store.inspect(&world.topic, 6..7).await.unwrap().remove(0);
    assert!(shard.is_none(), "empty, it would pass for one that nothing was in");
}

#[tokio::test(start_paused = true)]
async fn no_change_begins_where_a_forgotten_one_may_have_moved_messages_out_of_sight() {
    let world = World::with(2, 10).await;
    let present = world.record().await.routing;
    let forgotten = Routing { epoch: present.epoch + 1, change_id: ChangeId(9), shards: 8, previous: 2, ..present };
    world.store.fence(&world.topic, 1, &forgotten, &DeadlineFloor::default()).await.unwrap();
    let refused = world.request(&world.resizer(ResizeConfig::default()), 4).await;
    assert!(matches!(refused, Err(ResizeError::Store(StoreError::Outdated(_)))), "{refused:?}");
}

/// Claims a message at the only source shard for a day once all are fenced, and acks it.
#[derive(Debug)]
struct ClaimsAtTheSource(Arc<SmallStore>, TopicName, Mutex<Option<Timestamp>>);

#[async_trait]
impl Steps for ClaimsAtTheSource {
    async fn reached(&self, step: Step) {
        if step != Step::Fenced || self.2.lock().is_some() {
            return;
        }
        let Self(store, topic, deadline) = self;
        let source = store.routing(topic).await.unwrap().unwrap().routing.shard(topic, 0);
        // The messages are due in an hour.
        let now = START.plus(Duration::from_secs(7_200));
        store.set_ahead_ms(7_200_000);
        let request = ClaimRequest { visibility: Duration::from_secs(86_400), ..claim_request(1) };
        let claimed = store.claim(&source, now, &request).await.unwrap().messages.remove(0);
        *deadline.lock() = Some(claimed.score.visible_at());
        let ack = Settle { id: claimed.id, score: claimed.score, action: Settlement::Ack };
        store.settle(&source, now, &[ack]).await.unwrap();
        store.set_ahead_ms(0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_ends_with_every_new_home_above_the_deadlines_that_its_sources_gave_meanwhile() {
    let world = World::with(1, 50).await;
    let steps = Arc::new(ClaimsAtTheSource(world.small.clone(), world.topic.clone(), Mutex::default()));
    let mut deps = MoveDeps::new(world.store.clone());
    deps.steps = steps.clone();
    let resizer = world.resizer_with(ResizeConfig::default(), deps);
    world.request(&resizer, 2).await.unwrap();
    world.settle(&resizer).await;
    let given = steps.2.lock().expect("it was claimed");
    let home = world.store.inspect(&world.topic, 1..2).await.unwrap().remove(0).unwrap();
    assert!(home.floor.of(LeaseClass::TOPIC) >= given);
}
