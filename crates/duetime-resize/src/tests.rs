//! The whole crate on a small Redis.

use duetime_testkit::at_home::MessagesAtHome as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::limits::{BATCH_ITEMS_MAX, SHARDS_MAX};
use duetime_core::resize_store::DeadlineFloor;
use duetime_core::store::Enqueue;
use duetime_core::{
    ChangeId, Clock, Due, MessageId, OwnedShards, ResizeError, Resizing as _, Routing, RoutingAuthority, RoutingRecord,
    ShardCount, Store, StoreError, Timestamp, TopicName, TopicRecord, Topics,
};
use duetime_metrics::{Event, Meters};
use duetime_small_store::SmallStore;
use duetime_testkit::{TokioClock, plain_message, topic_record};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{MoveDeps, ResizeConfig, ResizeDeps, Resizer, Step, Steps};

mod forgotten;
mod places;
mod revived;

const START: Timestamp = Timestamp::from_millis(1_763_683_200_000);

/// Stops the mover for ever at the nth step of a kind, as if its node had died there.
#[derive(Debug)]
struct DiesAt(Mutex<Option<(Step, u32)>>);

#[async_trait]
impl Steps for DiesAt {
    async fn reached(&self, step: Step) {
        let dies = {
            let mut at = self.0.lock();
            match at.as_mut() {
                Some((kind, left)) if *kind == step && *left == 0 => true,
                Some((kind, left)) if *kind == step => {
                    *left -= 1;
                    false
                }
                _ => false,
            }
        };
        if dies {
            std::future::pending::<()>().await;
        }
    }
}

struct World {
    store: Arc<dyn Store>,
    small: Arc<SmallStore>,
    clock: Arc<TokioClock>,
    topic: TopicName,
    topics: watch::Sender<Arc<Topics>>,
    owned: watch::Sender<Arc<OwnedShards>>,
    meters: Arc<Meters>,
}

impl World {
    async fn with(shards: u32, messages: usize) -> Self {
        let clock = TokioClock::at(START);
        let small = Arc::new(SmallStore::new(clock.clone()).await);
        let store: Arc<dyn Store> = small.shared();
        let topic = store.put_topic(&topic_record("orders", shards, START), None).await.unwrap().name;
        let owned = (0..SHARDS_MAX).map(|index| (topic.clone(), index)).collect();
        let world = Self {
            store,
            small,
            clock,
            topic,
            topics: watch::Sender::default(),
            owned: watch::Sender::new(Arc::new(OwnedShards(owned))),
            meters: Arc::new(Meters::new()),
        };
        for n in 0..messages {
            world.enqueue(&n.to_string(), Duration::from_secs(3600)).await;
        }
        world.look().await;
        world
    }

    async fn record(&self) -> TopicRecord {
        self.store.topics().await.unwrap().remove(0)
    }

    async fn look(&self) {
        let record = self.record().await;
        self.topics.send_replace(Arc::new([(self.topic.clone(), Arc::new(record))].into()));
    }

    async fn enqueue(&self, id: &str, delay: Duration) {
        let id = MessageId::new(id).unwrap();
        let record = self.record().await;
        let item = Enqueue { payload: id.as_str().to_owned().into(), ..plain_message(id.as_str(), Due::In(delay)) };
        self.store.enqueue(&record.routing.home(&self.topic, &id), self.clock.now(), &[item]).await.unwrap();
    }

    /// The setting, without the request.
    async fn set(&self, shards: u32) {
        let mut record = self.record().await;
        record.config.shards = ShardCount::Fixed(shards);
        record.version += 1;
        self.store.put_topic(&record, Some(record.version - 1)).await.unwrap();
    }

    /// From now on so many may be in flight.
    async fn bound(&self, max: u32) {
        let mut record = self.record().await;
        record.config.max_in_flight = Some(max);
        record.version += 1;
        self.store.put_topic(&record, Some(record.version - 1)).await.unwrap();
    }

    /// As the HTTP API does it: the setting, then the request.
    async fn request(&self, resizer: &Resizer, shards: u32) -> Result<RoutingRecord, ResizeError> {
        self.set(shards).await;
        resizer.ask(&self.topic, ShardCount::Fixed(shards)).await
    }

    fn resizer(&self, config: ResizeConfig) -> Resizer {
        self.resizer_with(config, MoveDeps::new(self.store.clone()))
    }

    fn resizer_with(&self, config: ResizeConfig, deps: MoveDeps) -> Resizer {
        Resizer::new(self.parts(config, deps))
    }

    fn parts(&self, config: ResizeConfig, deps: MoveDeps) -> ResizeDeps {
        ResizeDeps {
            deps,
            authority: self.store.clone(),
            records: self.store.clone(),
            counts: self.store.clone(),
            topics: self.topics.subscribe(),
            owned: self.owned.subscribe(),
            nodes: watch::channel(1).1,
            clock: self.clock.clone(),
            meters: self.meters.clone(),
            config,
        }
    }

    /// Runs a resizer until nothing moves and nothing is requested.
    async fn settle(&self, resizer: &Resizer) -> Routing {
        let shutdown = CancellationToken::new();
        let run = tokio::spawn(resizer.clone().run(shutdown.clone()));
        let record = tokio::time::timeout(Duration::from_secs(600), async {
            loop {
                self.look().await;
                let record = self.record().await;
                if !record.routing.is_moving() && record.desired.is_none() {
                    return record;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        let record = record.await.expect("it ends");
        shutdown.cancel();
        run.await.unwrap();
        record.routing
    }

    /// Sees that every id is in its home, once, and nothing is on its way.
    async fn check(&self, messages: usize) {
        let record = self.record().await;
        let mut seen = 0;
        for (index, inspected) in
            (0..).zip(self.store.inspect(&self.topic, 0..record.max_shards_ever() + 8).await.unwrap())
        {
            let Some(inspected) = inspected else { continue };
            assert_eq!(inspected.outbox, None);
            let shard = inspected.routing.shard(&self.topic, index);
            let mut from = None;
            loop {
                let page = self.store.scan(&shard, from.as_ref(), BATCH_ITEMS_MAX).await.unwrap();
                seen += page.found.len();
                for scanned in page.found {
                    assert_eq!(record.routing.home(&self.topic, &scanned.id).index, index, "{}", scanned.id);
                }
                from = page.next;
                if from.is_none() {
                    break;
                }
            }
        }
        assert_eq!(seen, messages);
    }
}

fn all_steps() -> impl Iterator<Item = Step> {
    Step::ALL.into_iter().map(|(step, _)| step).filter(|step| *step != Step::Renumbered)
}

#[tokio::test(start_paused = true)]
async fn shards_grow_and_shrink_and_every_message_comes_home() {
    let world = World::with(8, 1_500).await;
    let resizer = world.resizer(ResizeConfig::default());
    for (n, shards) in [32, 8, 31, 1, 16].into_iter().enumerate() {
        world.request(&resizer, shards).await.unwrap();
        let routing = world.settle(&resizer).await;
        assert_eq!((routing.shards, routing.change()), (shards, n as u64 + 2));
        world.check(1_500).await;
    }
    assert!(world.meters.topic(&world.topic).counted(Event::Moved) > 4_000);
    assert_eq!(resizer.progress(&world.topic).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_mover_that_dies_at_any_step_is_replaced_by_another() {
    for step in all_steps() {
        for nth in [0, 1] {
            let world = World::with(4, 600).await;
            let steps = Arc::new(DiesAt(Mutex::new(Some((step, nth)))));
            let mut deps = MoveDeps::new(world.store.clone());
            deps.steps = steps.clone();
            let first = world.resizer_with(ResizeConfig::default(), deps);
            let shutdown = CancellationToken::new();
            let run = tokio::spawn(first.clone().run(shutdown.clone()));
            let ask = world.request(&first, 9);
            let _ = tokio::time::timeout(Duration::from_secs(1), ask).await;
            world.look().await;
            tokio::time::sleep(Duration::from_secs(60)).await;
            run.abort();
            let second = world.resizer(ResizeConfig::default());
            world.request(&second, 9).await.unwrap();
            assert_eq!(world.settle(&second).await.shards, 9, "{step:?}");
            world.check(600).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn several_movers_at_once_do_no_harm() {
    let world = World::with(8, 1_000).await;
    let movers: Vec<Resizer> = (0..4).map(|_| world.resizer(ResizeConfig::default())).collect();
    world.request(&movers[0], 3).await.unwrap();
    world.look().await;
    let settle = movers.iter().map(|mover| world.settle(mover));
    for routing in futures::future::join_all(settle).await {
        assert_eq!((routing.shards, routing.change()), (3, 2));
    }
    world.check(1_000).await;
}

#[tokio::test(start_paused = true)]
async fn the_last_request_wins_and_one_change_runs_at_a_time() {
    let world = World::with(2, 100).await;
    let resizer = world.resizer(ResizeConfig::default());
    for n in 1..=10 {
        world.request(&resizer, n * 3).await.unwrap();
    }
    let present = resizer.check(&world.topic).await.unwrap();
    assert_eq!((present.routing.shards, present.desired), (3, Some(30)));
    let progress = resizer.progress(&world.topic).await.unwrap().unwrap();
    assert_eq!((progress.from, progress.to, progress.desired), (2, 3, Some(30)));
    let routing = world.settle(&resizer).await;
    assert_eq!((routing.shards, routing.previous, routing.change()), (30, 3, 3));
    world.check(100).await;
    let nobody = TopicName::new("nobody").unwrap();
    let refused = resizer.ask(&nobody, ShardCount::Fixed(2)).await;
    assert!(matches!(refused, Err(ResizeError::UnknownTopic(_))));
}

#[tokio::test(start_paused = true)]
async fn the_new_epoch_is_above_every_epoch_that_a_shard_has_heard_of() {
    let world = World::with(2, 10).await;
    // As a fence left it whose change the authority has forgotten at a failover.
    let present = world.record().await.routing;
    let lost = Routing { epoch: present.epoch + 8, change_id: ChangeId(9), ..present };
    world.store.fence(&world.topic, 1, &lost, &DeadlineFloor::default()).await.unwrap();
    let resizer = world.resizer(ResizeConfig::default());
    world.request(&resizer, 4).await.unwrap();
    assert_eq!(world.settle(&resizer).await.change(), 10);
    world.check(10).await;
}

#[tokio::test(start_paused = true)]
async fn messages_about_to_fall_due_are_left_where_they_are_but_not_for_ever() {
    let world = World::with(1, 0).await;
    for n in 0..50 {
        world.enqueue(&format!("soon-{n}"), Duration::from_secs(2)).await;
        world.enqueue(&format!("late-{n}"), Duration::from_secs(60)).await;
    }
    let resizer = world.resizer(ResizeConfig::default());
    world.request(&resizer, 2).await.unwrap();
    let begun = tokio::time::Instant::now();
    let shutdown = CancellationToken::new();
    world.look().await;
    tokio::spawn(resizer.clone().run(shutdown.clone()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let record = world.record().await;
    let page = world.store.scan(&record.routing.shard(&world.topic, 1), None, 1_000).await.unwrap();
    assert!(page.found.iter().all(|scanned| scanned.id.as_str().starts_with("late")) && page.found.len() > 10);
    world.settle(&world.resizer(ResizeConfig::default())).await;
    assert!(begun.elapsed() > Duration::from_secs(4), "nobody delivers here: they were left until they were late");
    world.check(100).await;
    shutdown.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_setting_whose_request_was_lost_is_carried_out_all_the_same() {
    let world = World::with(2, 30).await;
    world.set(5).await;
    let resizer = world.resizer(ResizeConfig::default());
    world.look().await;
    let shutdown = CancellationToken::new();
    tokio::spawn(resizer.clone().run(shutdown.clone()));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.settle(&resizer).await.shards, 5);
    world.check(30).await;
    shutdown.cancel();
}

#[tokio::test(start_paused = true)]
async fn the_scrubber_brings_home_what_a_failover_brought_back() {
    let world = World::with(4, 0).await;
    let routing = world.record().await.routing;
    for index in 0..4 {
        let item = Enqueue {
            payload: "x".into(),
            ..plain_message(&format!("lost-{index}"), Due::In(Duration::from_secs(3600)))
        };
        let home = routing.home(&world.topic, &item.id).index;
        let wrong = routing.shard(&world.topic, (home + 1) % 4);
        world.store.enqueue(&wrong, world.clock.now(), &[item]).await.unwrap();
    }
    let shutdown = CancellationToken::new();
    world.look().await;
    tokio::spawn(world.resizer(ResizeConfig::default()).run(shutdown.clone()));
    tokio::time::sleep(Duration::from_secs(30)).await;
    world.check(4).await;
    shutdown.cancel();
}

/// Looks are answered, but its replicas are behind: nothing is ever for certain.
#[derive(Debug)]
struct Behind(Arc<dyn Store>);

#[async_trait]
impl RoutingAuthority for Behind {
    async fn routing(&self, topic: &TopicName) -> Result<Option<RoutingRecord>, StoreError> {
        self.0.routing(topic).await
    }

    async fn swap_routing(&self, _: &TopicName, _: &RoutingRecord, _: &RoutingRecord) -> Result<(), StoreError> {
        Err(StoreError::Unavailable { doing: "wait for replicas", source: "behind".into() })
    }
}

#[tokio::test(start_paused = true)]
async fn no_shard_learns_of_a_change_that_a_failover_of_the_authority_may_undo() {
    let world = World::with(2, 30).await;
    world.request(&world.resizer(ResizeConfig::default()), 4).await.unwrap();
    let mut parts = world.parts(ResizeConfig::default(), MoveDeps::new(world.store.clone()));
    parts.authority = Arc::new(Behind(world.store.clone()));
    let resizer = Resizer::new(parts);
    let shutdown = CancellationToken::new();
    world.look().await;
    tokio::spawn(resizer.run(shutdown.clone()));
    tokio::time::sleep(Duration::from_secs(30)).await;
    let shards = world.store.inspect(&world.topic, 0..4).await.unwrap();
    assert!(shards.iter().flatten().all(|shard| shard.routing.change() == 1), "{shards:?}");
    shutdown.cancel();
    world.settle(&world.resizer(ResizeConfig::default())).await;
    world.check(30).await;
}

/// An authority whose nth call from now on, counted from 0, is kept back until it is let go: its node stands still.
#[derive(Debug)]
struct StandsStill {
    store: Arc<dyn Store>,
    calls_left: Mutex<Option<u32>>,
    is_still: watch::Sender<bool>,
}

impl StandsStill {
    fn at(store: &Arc<dyn Store>, nth: u32) -> Arc<Self> {
        let (store, calls_left) = (store.clone(), Mutex::new(Some(nth)));
        Arc::new(Self { store, calls_left, is_still: watch::Sender::new(false) })
    }

    async fn reached(&self) {
        let stops = {
            let mut left = self.calls_left.lock();
            let stops = *left == Some(0);
            *left = left.and_then(|left| left.checked_sub(1));
            stops
        };
        if stops {
            self.is_still.send_replace(true);
            self.is_still.subscribe().wait_for(|is_still| !is_still).await.unwrap();
        }
    }
}

#[async_trait]
impl RoutingAuthority for StandsStill {
    async fn routing(&self, topic: &TopicName) -> Result<Option<RoutingRecord>, StoreError> {
        self.reached().await;
        self.store.routing(topic).await
    }

    async fn swap_routing(
        &self,
        topic: &TopicName,
        seen: &RoutingRecord,
        new: &RoutingRecord,
    ) -> Result<(), StoreError> {
        self.reached().await;
        self.store.swap_routing(topic, seen, new).await
    }
}

/// A node that knows of a request for 5 shards stands still at its nth call of the authority; meanwhile 7 are asked
/// for, and made by another node.
async fn a_request_is_superseded_while_its_node_stands_still(world: World, nth: u32, carried_out: u64) {
    let authority = StandsStill::at(&world.store, nth);
    let mut parts = world.parts(ResizeConfig::default(), MoveDeps::new(world.store.clone()));
    parts.authority = authority.clone();
    world.look().await;
    let shutdown = CancellationToken::new();
    tokio::spawn(Resizer::new(parts).run(shutdown.clone()));
    authority.is_still.subscribe().wait_for(|is_still| *is_still).await.unwrap();
    let other = world.resizer(ResizeConfig::default());
    world.settle(&other).await;
    world.request(&other, 7).await.unwrap();
    let routing = world.settle(&other).await;
    assert_eq!((routing.shards, routing.change()), (7, carried_out));
    authority.is_still.send_replace(false);
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.look().await;
    }
    assert_eq!(world.record().await.routing, routing, "an old request was carried out");
    world.check(30).await;
    shutdown.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_setting_that_was_changed_while_its_node_stood_still_is_not_carried_out() {
    for nth in [0, 1] {
        let world = World::with(2, 30).await;
        world.set(5).await;
        // 2 to 5 by the other node, then to 7.
        a_request_is_superseded_while_its_node_stands_still(world, nth, 3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_kept_request_that_was_superseded_while_its_node_stood_still_is_not_carried_out() {
    for nth in [1, 2] {
        let world = World::with(2, 30).await;
        world.set(5).await;
        let seen = world.record().await.routing_record();
        let kept = RoutingRecord { desired: Some(5), ..seen.clone() };
        world.store.swap_routing(&world.topic, &seen, &kept).await.unwrap();
        a_request_is_superseded_while_its_node_stands_still(world, nth, 3).await;
    }
}
