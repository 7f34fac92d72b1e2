//! Where ids are looked for, with scripted shards.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use duetime_core::Draw;
use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::routing::{RoutingState, shard_of};
use duetime_core::{ChangeId, Mover, RoutingId, Timestamp, TopicConfig, TopicStore as _};
use duetime_small_store::SmallStore;
use duetime_testkit::ManualClock;
use parking_lot::Mutex;

use super::*;
use crate::calls::batch_queue::BatchOutcome;

#[test]
fn an_id_is_looked_for_where_it_was_claimed_then_at_its_old_home_then_at_its_new_one() {
    let topic = TopicName::new("t").unwrap();
    let mut record = TopicRecord::new(topic.clone(), TopicConfig::default(), 1, ChangeId::default(), Timestamp::ZERO);
    record.routing = Routing {
        epoch: 2,
        change_id: ChangeId::default(),
        shards: 8,
        previous: 4,
        state: RoutingState::Moving,
        seed: None,
        watermark: false,
        max_in_flight: None,
    };
    let seed = record.routing.seed(&topic);
    let ids = || (0..1_000).map(|n| MessageId::new(&n.to_string()).unwrap());
    let moves = ids().find(|id| shard_of(id, seed, 4) == 1 && shard_of(id, seed, 8) == 5).unwrap();
    let stays = ids().find(|id| shard_of(id, seed, 8) == 1).unwrap();
    let candidates = |record: &TopicRecord, id, claimed| {
        let candidates = Candidates::of(record, seed, id, claimed, &[]);
        (0..candidates.count()).map(|candidate| candidates.at(candidate)).collect::<Vec<_>>()
    };
    assert_eq!(candidates(&record, &moves, None), [(1, Role::Source), (5, Role::Home)]);
    assert_eq!(candidates(&record, &moves, Some(5)), [(1, Role::Source), (5, Role::Home)]);
    assert_eq!(candidates(&record, &moves, Some(3)), [(3, Role::Source), (1, Role::Source), (5, Role::Home)]);
    assert_eq!(candidates(&record, &stays, Some(1)), [(1, Role::Home)]);
    record.routing.state = RoutingState::Stable;
    assert_eq!(candidates(&record, &moves, None), [(5, Role::Home)]);
    assert_eq!(candidates(&record, &moves, Some(1)), [(1, Role::Source), (5, Role::Home)]);
    assert_eq!(candidates(&record, &moves, Some(4_000)), [(5, Role::Home)], "a shard that never was");
}

/// Where each call went, and what is answered there.
struct Script {
    calls: Mutex<Vec<(u32, Role, usize)>>,
    answer: Box<dyn Fn(usize) -> Lookup<()> + Send + Sync>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Scripted;

impl Op for Scripted {
    type Item = (usize, Arc<Script>);
    type Answer = ();

    fn weight(_: &Self::Item) -> usize {
        1
    }

    async fn call(self, _: &OpContext, shard: &Shard, role: Role, items: &[Self::Item]) -> BatchOutcome<()> {
        items[0].1.calls.lock().push((shard.index, role, items.len()));
        let answer = |(n, script): &Self::Item| match role {
            Role::Source => (script.answer)(*n),
            Role::Home => Lookup::Found(()),
        };
        let mut called = BatchOutcome::new(items.len());
        called.add(items.len(), Ok(items.iter().map(answer).collect()));
        called
    }
}

async fn routed(topic: &TopicName, routing: Routing) -> (Arc<Catalog>, Dispatcher, BatchQueues<Scripted>) {
    let clock = ManualClock::at(Timestamp::from_millis(1_763_683_200_000));
    let store = SmallStore::new(clock.clone()).await.shared();
    let mut record = TopicRecord::new(topic.clone(), TopicConfig::default(), 1, ChangeId(1), Timestamp::ZERO);
    record.routing = Routing { epoch: 1, ..routing.clone() };
    store.put_topic(&record, None).await.unwrap();
    let catalog = Catalog::open(store.clone(), clock.clone(), Draw::new(rand::random::<u64>)).await.unwrap();
    catalog.learn(topic, &in_life_of(&catalog, topic, routing));
    let meters = Arc::new(duetime_metrics::Meters::new());
    let mover = Arc::new(duetime_resize::MoveDeps::new(store.clone()));
    let context = OpContext::new(store, mover, clock, meters);
    (catalog.clone(), Dispatcher::new(context.clone(), catalog), BatchQueues::new(context))
}

/// The same record in the topic's life.
fn in_life_of(catalog: &Catalog, topic: &TopicName, routing: Routing) -> Routing {
    routing.in_life(catalog.get(topic).unwrap().routing.life())
}

fn moving(epoch: u64, previous: u32, shards: u32) -> Routing {
    Routing {
        epoch,
        change_id: ChangeId(epoch),
        shards,
        previous,
        state: RoutingState::Moving,
        seed: None,
        watermark: false,
        max_in_flight: None,
    }
}

#[tokio::test]
async fn what_comes_behind_a_frozen_id_does_not_overtake_it() {
    let topic = TopicName::new("t").unwrap();
    let (_, _, queues) = routed(&topic, moving(2, 4, 8)).await;
    let answer = |n| if n == 5 { Lookup::Frozen } else { Lookup::Absent(None) };
    let script = Arc::new(Script { calls: Mutex::default(), answer: Box::new(answer) });
    // More than one call takes, all for one shard.
    let count = BATCH_ITEMS_MAX + 44;
    let group =
        (0..count).map(|n| PendingItem { at: n, candidate: 0, item: (n, script.clone()), became: None }).collect();
    let shard = Shard::new(topic, 1, RoutingId { epoch: 2, change_id: ChangeId(1) });
    let outcome = work(&queues, Scripted, (shard, Role::Source), group).await;
    assert_eq!(*script.calls.lock(), [(1, Role::Source, BATCH_ITEMS_MAX)], "the second call waits for the frozen id");
    let places = |pending: &[PendingItem<_>]| pending.iter().map(|next| next.at).collect::<Vec<_>>();
    let behind: Vec<usize> = [5].into_iter().chain(BATCH_ITEMS_MAX..count).collect();
    assert_eq!(places(&outcome.frozen), behind);
    assert!(
        outcome.frozen.iter().all(|next| next.candidate == 0) && outcome.absent.iter().all(|next| next.candidate == 1)
    );
    assert_eq!(outcome.absent.len() + outcome.frozen.len(), count);
}

#[tokio::test]
async fn after_a_change_of_the_routing_an_item_begins_again_at_its_first_place() {
    let topic = TopicName::new("t").unwrap();
    let first = moving(2, 4, 8);
    let (catalog, dispatcher, queues) = routed(&topic, first.clone()).await;
    let second = in_life_of(&catalog, &topic, moving(3, 16, 32));
    let seed = first.seed(&topic);
    let ids = || (0..10_000).map(|n| MessageId::new(&n.to_string()).unwrap());
    let moves = |id: &MessageId, from, to| shard_of(id, seed, from) != shard_of(id, seed, to);
    let id = ids().find(|id| moves(id, 4, 8) && moves(id, 16, 32) && moves(id, 8, 16)).unwrap();
    let home = |shards| shard_of(&id, seed, shards);
    // While it is looked for at its first place, another node ends this change and begins the next.
    let learned = (catalog.clone(), topic.clone(), second.clone());
    let answer = move |_| {
        learned.0.learn(&learned.1, &learned.2);
        Lookup::Absent(None)
    };
    let script = Arc::new(Script { calls: Mutex::default(), answer: Box::new(answer) });
    let answers =
        dispatcher.run(&queues, Scripted, &topic, vec![(0, script.clone())], |_, _| MessageRef::by_id(&id)).await;
    assert_eq!(answers[0].as_ref().map(|(index, ())| *index).unwrap(), home(32));
    let calls = [(home(4), Role::Source, 1), (home(16), Role::Source, 1), (home(32), Role::Home, 1)];
    assert_eq!(*script.calls.lock(), calls, "what is absent at a source shard may have been moved to another since");
}

/// Counts how often all shards of a topic are raised, which never ends for the topic `stuck`.
#[derive(Debug, Default)]
struct Raised(AtomicUsize);

#[async_trait]
impl Mover for Raised {
    async fn finish(&self, _: &TopicName, _: &Routing, _: u32) -> Result<u64, StoreError> {
        unreachable!("nothing is on its way")
    }

    async fn fence_all(&self, topic: &TopicName, _: &Routing) -> Result<(), StoreError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        if topic.as_str() == "stuck" {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// With topics of these names, whose ids are moving.
async fn raising(topics: &[&str]) -> (Dispatcher, Arc<Raised>, Vec<Arc<TopicRecord>>) {
    let clock = ManualClock::at(Timestamp::from_millis(1_763_683_200_000));
    let store = SmallStore::new(clock.clone()).await.shared();
    for name in topics {
        let name = TopicName::new(name).unwrap();
        let mut record = TopicRecord::new(name, TopicConfig::default(), 1, ChangeId(1), Timestamp::ZERO);
        record.routing = moving(2, 4, 8);
        store.put_topic(&record, None).await.unwrap();
    }
    let catalog = Catalog::open(store.clone(), clock.clone(), Draw::new(rand::random::<u64>)).await.unwrap();
    let records = topics.iter().map(|name| catalog.get(&TopicName::new(name).unwrap()).unwrap()).collect();
    let (mover, meters) = (Arc::<Raised>::default(), Arc::new(duetime_metrics::Meters::new()));
    (Dispatcher::new(OpContext::new(store, mover.clone(), clock, meters), catalog), mover, records)
}

#[tokio::test(start_paused = true)]
async fn shards_are_raised_once_however_many_of_them_have_not_heard_of_a_record() {
    let (dispatcher, mover, records) = raising(&["a", "b"]).await;
    for index in 0..8 {
        for record in &records {
            let refused = StoreError::NotReady(format!("{}:{index}", record.name));
            dispatcher.refresh_routing(&record.name, &record.routing, index, &refused).await.unwrap();
        }
    }
    assert_eq!(mover.0.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_topic_whose_shards_do_not_answer_holds_up_no_other() {
    let (dispatcher, _, records) = raising(&["stuck", "other"]).await;
    let raise = async |record: &TopicRecord| {
        let refused = StoreError::NotReady(format!("{}:0", record.name));
        dispatcher.refresh_routing(&record.name, &record.routing, 0, &refused).await
    };
    let within = |raised| tokio::time::timeout(Duration::from_secs(60), raised);
    let (stuck, other) = tokio::join!(within(raise(&records[0])), within(raise(&records[1])));
    assert!(stuck.is_err() && other.unwrap().is_ok());
}
