//! One world: a few nodes with their routers and movers, clients, and what goes wrong.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::{
    MessageState, OwnedShards, Reshard as _, Resizing as _, ShardCount, Store as _, Timestamp, TopicConfig, TopicName,
    TopicRecord,
};
use duetime_metrics::Meters;
use duetime_resize::{Draw, ResizeConfig, ResizeParts, Resizer, Step, Steps, Tools};
use duetime_router::{Catalog, RoutedStore, Router, TopicChange};
use duetime_testkit::TokioClock;
use duetime_testkit::history::{FaultKind, FinalState, Left, Recorder, Rules, check, digest};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clients::{Client, Door, VISIBILITY};
use crate::draw::Dice;
use crate::faulty::FaultyStore;

const START: Timestamp = Timestamp::from_millis(1_763_683_200_000);
const PRODUCERS: u64 = 3;
const CONSUMERS: u64 = 2;
const LIVES: u64 = 12;
/// Longest time a batch is kept that only one server has.
const GRACE_MS_MAX: u64 = 500;
/// Longest stop of a mover.
const DOZE_MS_MAX: u64 = 20_000;
/// Shards a node may be told to scan.
const SHARDS_MAX: u32 = 16;
/// Longest virtual time of a world after its clients have ended.
const END_MAX: Duration = Duration::from_secs(3_600);

/// What a run says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    /// Events in the history.
    pub events: usize,
    /// A short number for the whole history: the same seed has the same.
    pub print: u64,
    /// Hand-overs that were accepted.
    pub accepted: usize,
    /// Changes of the shard count that were carried out.
    pub changes: u64,
}

struct Node {
    door: Door,
    resizer: Resizer,
    owned: watch::Sender<Arc<OwnedShards>>,
    shutdown: CancellationToken,
}

/// A mover that stops for long after a step now and then, and goes on as if nothing had happened meanwhile.
#[derive(Debug)]
struct Dozes {
    dice: Arc<Dice>,
    permille: u64,
}

#[async_trait]
impl Steps for Dozes {
    async fn reached(&self, _: Step) {
        if self.dice.permille(self.permille) {
            self.dice.pause(DOZE_MS_MAX).await;
        }
    }
}

struct World {
    topic: TopicName,
    store: Arc<FaultyStore>,
    clock: Arc<TokioClock>,
    history: Arc<Recorder>,
    dice: Arc<Dice>,
    dozes_permille: u64,
}

impl World {
    /// A node that has just started; asked again until the store answers.
    async fn node(&self) -> Node {
        let meters = Arc::new(Meters::new());
        let catalog = loop {
            if let Ok(catalog) = Catalog::open(self.store.clone(), self.clock.clone()).await {
                break catalog;
            }
        };
        let dice = self.dice.clone();
        let mut tools = Tools { draw: Draw::new(move || dice.next()), ..Tools::new(self.store.clone()) };
        let router = Router::new(tools.clone(), catalog.clone(), self.clock.clone(), meters.clone());
        tools.grace = Duration::from_millis(self.dice.below(GRACE_MS_MAX));
        tools.steps = Arc::new(Dozes { dice: self.dice.clone(), permille: self.dozes_permille });
        let owned = watch::Sender::new(self.some_shards());
        let resizer = Resizer::new(ResizeParts {
            tools,
            authority: self.store.clone(),
            topics: catalog.watch(),
            owned: owned.subscribe(),
            nodes: catalog.nodes(),
            clock: self.clock.clone(),
            meters,
            config: ResizeConfig { leave_due_within: Duration::from_millis(100), ..ResizeConfig::default() },
        });
        let shutdown = CancellationToken::new();
        tokio::spawn(resizer.clone().run(shutdown.clone()));
        tokio::spawn(catalog.clone().run(shutdown.clone()));
        let door = Door { routed: RoutedStore::new(router.clone()), router, catalog };
        Node { door, resizer, owned, shutdown }
    }

    /// Shards a node may scan: all, or any, whatever the others do.
    fn some_shards(&self) -> Arc<OwnedShards> {
        let all = self.dice.permille(500);
        let owned = (0..SHARDS_MAX).filter(|_| all || self.dice.permille(400));
        Arc::new(OwnedShards(owned.map(|index| (self.topic.clone(), index)).collect()))
    }

    async fn wish(&self, node: &Node, shards: u32) {
        let change = TopicChange::whole(&TopicConfig { shards: ShardCount::Fixed(shards), ..TopicConfig::default() });
        while node.door.catalog.put(&self.topic, &change).await.is_err()
            || node.resizer.ask(&self.topic, ShardCount::Fixed(shards)).await.is_err()
        {
            self.dice.pause(50).await;
        }
    }

    /// Everything that is anywhere, and the check that it is at home and nothing is on its way (I11).
    async fn look(&self, record: &TopicRecord) -> FinalState {
        let inner = &self.store.inner;
        let mut left = Vec::new();
        for (index, inspected) in (0..).zip(inner.inspect(&self.topic, 0..record.widest()).await.expect("the model")) {
            let Some(inspected) = inspected else { continue };
            assert_eq!(inspected.outbox, None, "shard {index} has messages on their way");
            let shard = inspected.routing.shard(&self.topic, index);
            let page = inner.scan(&shard, None, usize::MAX / 2).await.expect("the model");
            for found in page.found {
                assert_eq!(record.routing.home(&self.topic, &found.id).index, index, "{} is not at home", found.id);
                let message = inner.get(&shard, std::slice::from_ref(&found.id)).await.expect("the model");
                let message = message.into_iter().flatten().next().expect("it was just seen");
                left.push(Left {
                    topic: self.topic.to_string(),
                    id: found.id.to_string(),
                    state: found.state.as_str().to_owned(),
                    payload: digest(&message.payload),
                    reason: message.death.filter(|_| found.state == MessageState::Dead).map(|death| death.reason),
                });
            }
        }
        FinalState { left, counts: None }
    }
}

/// Runs the world of `seed` to its end.
///
/// # Panics
///
/// When an invariant is broken.
#[must_use]
pub fn run(seed: u64) -> Story {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(live(seed))
}

async fn live(seed: u64) -> Story {
    let dice = Arc::new(Dice::new(seed));
    let topic = TopicName::new("orders").expect("a good name");
    // A third of the worlds each: all well but for the movers; a bad network; failovers besides.
    let trouble = seed % 3;
    let store = FaultyStore::new(topic.clone(), dice.clone(), 0);
    let clock = TokioClock::at(START);
    let history = Recorder::new(clock.clone());
    let dozes_permille = dice.below(3) * 30;
    let world =
        World { topic: topic.clone(), store: store.clone(), clock, history, dice: dice.clone(), dozes_permille };
    let shards = 1 + u32::try_from(dice.below(6)).expect("few");
    let config = TopicConfig { shards: ShardCount::Fixed(shards), ..TopicConfig::default() };
    let record = TopicRecord::new(topic.clone(), config, 1, "first".to_owned(), START);
    store.inner.put_topic(&record, None).await.expect("the model");
    (0..shards).for_each(|index| store.inner.replicate(&topic, index));
    store.inner.replicate_topics();
    *store.lost_permille.lock() = if trouble > 0 { 20 } else { 0 };
    *store.alone.lock() = trouble == 2 && dice.permille(500);
    *store.fails_over_permille.lock() = if trouble == 2 { 100 } else { 0 };
    if trouble > 0 {
        world.history.fault_begins(FaultKind::NetworkFailed);
    }

    let mut nodes = Vec::new();
    for _ in 0..2 + dice.below(3) {
        nodes.push(world.node().await);
    }
    let client = Client {
        topic: topic.clone(),
        doors: nodes.iter().map(|node| node.door.clone()).collect(),
        clock: world.clock.clone(),
        history: world.history.clone(),
        dice: dice.clone(),
    };
    let (mut producers, mut consumers) = (JoinSet::new(), JoinSet::new());
    let stop = Arc::<AtomicBool>::default();
    for n in 0..PRODUCERS {
        producers.spawn(client.clone().produce(n, LIVES));
    }
    for _ in 0..CONSUMERS {
        consumers.spawn(client.clone().consume(stop.clone()));
    }
    let mut movers = Vec::new();
    let mut last = shards;
    while !producers.is_empty() {
        let node = &nodes[usize::try_from(dice.below(nodes.len() as u64)).expect("few")];
        match dice.below(5) {
            0 | 1 => {
                last = 1 + u32::try_from(dice.below(8)).expect("few");
                world.wish(node, last).await;
            }
            4 => node.owned.send_modify(|owned| *owned = world.some_shards()),
            2 => {
                // A node with a mover joins, and another one dies wherever it is.
                movers.push(world.node().await);
                if movers.len() > 1 {
                    let died: Node = movers.swap_remove(usize::try_from(dice.below(movers.len() as u64)).expect("few"));
                    died.shutdown.cancel();
                }
            }
            _ if trouble == 2 => match dice.below(10) {
                shard @ 0..8 => store.fail_over(u32::try_from(shard).expect("few")),
                _ => store.fail_over_authority(),
            },
            _ => {}
        }
        dice.pause(150).await;
        while let Some(ended) = producers.try_join_next() {
            ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        }
    }
    *store.lost_permille.lock() = 0;
    *store.fails_over_permille.lock() = 0;
    if trouble > 0 {
        world.history.fault_ends(FaultKind::NetworkFailed);
    }
    let ended = async {
        loop {
            let record = store.inner.topics().await.expect("the model").remove(0);
            let shards: Vec<_> = record.routing.all(&topic).collect();
            let surveys = store.inner.survey(&shards, START).await.expect("the model");
            let busy = surveys.iter().any(|survey| survey.in_flight > 0);
            let near = START.plus(Duration::from_secs(50_000));
            let waits = surveys.iter().any(|survey| survey.head.is_some_and(|head| head < near));
            if !busy
                && !waits
                && !record.routing.is_moving()
                && record.desired.is_none()
                && record.routing.shards == last
            {
                return record;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let record = tokio::time::timeout(END_MAX, ended).await.expect("the world comes to rest");
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = consumers.join_next().await {
        ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    }
    nodes.iter().chain(&movers).for_each(|node| node.shutdown.cancel());
    let left = world.look(&record).await;
    let rules = Rules { attempts_max: 90, aftermath_ms: 3 * VISIBILITY.as_millis() as i64 };
    let events = world.history.events();
    let verdict = check(&events, &left, rules);
    assert!(verdict.is_good(), "{verdict}");
    let mut lives: BTreeMap<&str, u32> = BTreeMap::new();
    left.left.iter().for_each(|left| *lives.entry(&left.id).or_default() += 1);
    assert!(lives.values().all(|lives| *lives == 1), "an id lives twice");
    let mut print = DefaultHasher::new();
    world.history.lines().hash(&mut print);
    Story {
        events: events.len(),
        print: print.finish(),
        accepted: verdict.accepted,
        changes: record.routing.change() - 1,
    }
}
