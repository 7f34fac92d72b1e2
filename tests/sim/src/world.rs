//! One world: masters, nodes with their catalogs, routers and movers, clients, and what goes wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::{Draw, OwnedShards, Resizing as _, ShardCount, Timestamp, TopicConfig, TopicName};
use duetime_metrics::Meters;
use duetime_resize::{MoveDeps, ResizeConfig, ResizeDeps, Resizer, Step, Steps};
use duetime_router::{Catalog, Retention, RoutedStore, Router, TopicChange};
use duetime_small_redis::SmallRedis;
use duetime_store_redis::{Durability, RedisStore, RedisStoreConfig, Surroundings};
use duetime_testkit::TokioClock;
use duetime_testkit::history::Recorder;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clients::{Client, Door, Shared};
use crate::clocks::SimClock;
use crate::draw::Dice;
use crate::faults::{Course, Trouble};
use crate::judge;
use crate::marks::{self, Asks};
use crate::masters::{MasterDeps, Masters};
use crate::mutation::Mutation;
use crate::net::{NodeDial, NodeNet, Weather};
use crate::past::REMEMBERED_FOR;
use crate::plan::{Part, Plan};
use crate::trace::Trace;
use crate::witness::Masterwise;

/// The topic that is never deleted, and changes its number of shards.
pub const ORDERS: &str = "orders";
/// The topic that is deleted and created again.
pub const DRAFTS: &str = "drafts";

pub const START: Timestamp = Timestamp::from_millis(1_763_683_200_000);
/// Longest wait of a node for one answer.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections of a node to one master, over which its calls go in turn.
const CONNECTIONS: usize = 2;
const PRODUCERS: u64 = 3;
const CONSUMERS: u64 = 3;
const LIVES: u64 = 12;
const LIVES_FEW: u64 = 4;
/// Ids with a request that is given up.
const GIVEN_UP: u64 = 4;
/// Longest time a batch is kept that only one server has.
const GRACE_MS_MAX: u64 = 500;
/// How often a mover stops after a step where much is to happen meanwhile.
const DOZES_OFTEN_PERMILLE: u64 = 400;
/// Longest stop of a mover.
const DOZE_MS_MAX: u64 = 20_000;
/// Shards a node may be asked to scan.
const SHARDS_MAX: u32 = 16;
/// How long a claim hides its messages, and how long it did before that was lowered.
pub const VISIBILITY: Duration = Duration::from_secs(8);
pub const VISIBILITY_BEFORE: Duration = Duration::from_secs(120);
/// How long dead letters are kept, and how many: longer than any world and its clocks go, and more than there are.
const DEAD_RETENTION: Duration = Duration::from_secs(9 * 365 * 24 * 3600);
const DEAD_MAX: u64 = 1_000_000;
/// How often a world may begin to move again after it came to rest.
const ROUNDS_MAX: u32 = 8;
/// Longest time until everything a replica may have is there.
const LAG_MS_MAX: u64 = 800;

/// What a run says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story {
    /// Events in the history.
    pub events: usize,
    /// A short number for all that happened, from what was sent to what clients saw: the same seed has the same.
    pub print: u64,
    /// Deliveries that were accepted.
    pub accepted: usize,
    /// Changes of the shard count that were carried out.
    pub changes: u64,
    /// Duplicates that a fault explains.
    pub explained: usize,
    /// Accepted deliveries that were in flight at a fault: it explains no more duplicates than that.
    pub in_flight: usize,
    /// Whether a fault was there from the beginning to the end.
    pub all_through: bool,
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

/// One node.
pub struct Node {
    pub door: Door,
    pub clock: Arc<SimClock>,
    pub store: Arc<RedisStore>,
    pub draw: Draw,
    resizer: Resizer,
    pub owned: watch::Sender<Arc<OwnedShards>>,
    pub shutdown: CancellationToken,
}

/// Everything there is.
pub struct World {
    pub masters: Masters,
    pub witness: Arc<Masterwise>,
    durability: Durability,
    pub clock: Arc<TokioClock>,
    pub history: Arc<Recorder>,
    pub trace: Arc<Trace>,
    pub dice: Arc<Dice>,
    pub weather: Arc<Weather>,
    pub trouble: Trouble,
    /// Whether the orders are remembered when they are gone.
    pub remembers: bool,
    /// Whether the orders have a watermark.
    pub watermark: bool,
    max_in_flight: Option<u32>,
    dozes_permille: u64,
    nodes_made: AtomicU64,
}

pub fn orders() -> TopicName {
    TopicName::new(ORDERS).expect("a good name")
}

pub fn drafts() -> TopicName {
    TopicName::new(DRAFTS).expect("a good name")
}

/// A topic as its users want it.
pub fn wanted(shards: u32) -> TopicChange {
    wanted_to_remember(shards, Duration::ZERO)
}

pub fn wanted_to_remember(shards: u32, remember: Duration) -> TopicChange {
    TopicChange::whole(&TopicConfig { remember, ..config(shards) })
}

/// What a node scans that has all shards to itself.
pub fn every_shard() -> OwnedShards {
    let names = [orders(), drafts()];
    OwnedShards(names.iter().flat_map(|name| (0..SHARDS_MAX).map(move |index| (name.clone(), index))).collect())
}

fn config(shards: u32) -> TopicConfig {
    TopicConfig {
        shards: ShardCount::Fixed(shards),
        visibility_timeout: VISIBILITY,
        // Longer than any world, and more than it has: whatever is removed by it should have stayed.
        dead_retention: Some(DEAD_RETENTION),
        dead_max: Some(DEAD_MAX),
        ..TopicConfig::default()
    }
}

impl World {
    /// A node that has just started.
    pub async fn node(&self) -> Node {
        let number = usize::try_from(self.nodes_made.fetch_add(1, Ordering::Relaxed)).expect("few");
        let meters = Arc::new(Meters::new());
        let clock = SimClock::new(self.clock.clone());
        let net = NodeNet::new(number, &self.masters.addresses, &self.weather, &self.dice, &self.trace);
        let dice = self.dice.clone();
        let draw = Draw::new(move || dice.next());
        let surroundings = Surroundings {
            dial: Some(Arc::new(NodeDial(net.clone()))),
            draw: Some(draw.clone()),
            clock: Some(clock.clone()),
        };
        let store = self.connect(surroundings).await;
        let catalog = loop {
            match Catalog::open(store.clone(), clock.clone(), draw.clone()).await {
                Ok(catalog) => break catalog,
                Err(_) => self.dice.pause(500).await,
            }
        };
        let (drawn, own) = (draw.clone(), draw.clone());
        let mut deps = MoveDeps { draw, ..MoveDeps::new(store.clone()) };
        let router = Router::new(store.clone(), Arc::new(deps.clone()), catalog.clone(), clock.clone(), meters.clone());
        deps.grace = Duration::from_millis(self.dice.below(GRACE_MS_MAX));
        deps.steps = Arc::new(Dozes { dice: self.dice.clone(), permille: self.dozes_permille });
        let owned = watch::Sender::new(self.some_shards());
        let resizer = Resizer::new(ResizeDeps {
            deps,
            authority: store.clone(),
            records: store.clone(),
            counts: store.clone(),
            topics: catalog.watch(),
            owned: owned.subscribe(),
            nodes: catalog.nodes(),
            clock: clock.clone(),
            meters,
            config: ResizeConfig { leave_due_within: Duration::from_millis(100), ..ResizeConfig::default() },
        });
        let shutdown = CancellationToken::new();
        tokio::spawn(resizer.clone().run(shutdown.clone()));
        tokio::spawn(catalog.clone().run(shutdown.clone()));
        tokio::spawn(router.consistency.clone().run(shutdown.clone()));
        tokio::spawn(Retention::new(router.clone(), owned.subscribe(), drawn).run(shutdown.clone()));
        let door = Door { routed: RoutedStore::new(router.clone()), router, catalog, net };
        Node { door, clock, store, draw: own, resizer, owned, shutdown }
    }

    async fn connect(&self, surroundings: Surroundings) -> Arc<RedisStore> {
        let config = RedisStoreConfig {
            url: self.masters.url().into(),
            durability: self.durability,
            connections: CONNECTIONS,
            response_timeout: RESPONSE_TIMEOUT,
            surroundings,
            ..RedisStoreConfig::default()
        };
        loop {
            match RedisStore::connect(config.clone(), Arc::new(Meters::new())).await {
                Ok(store) => return store,
                // A clock is wrong, or nobody answers.
                Err(_) => self.dice.pause(500).await,
            }
        }
    }

    /// The store as somebody sees it to whom nothing is ever late or lost.
    pub async fn observer(&self) -> Arc<RedisStore> {
        let dial = SmallRedis::of(&self.masters.all());
        let dice = self.dice.clone();
        let draw = Some(Draw::new(move || dice.next()));
        self.connect(Surroundings { dial: Some(dial), draw, clock: Some(self.clock.clone()) }).await
    }

    /// Shards a node may scan: all, or any, whatever the others do.
    fn some_shards(&self) -> Arc<OwnedShards> {
        let all = self.dice.permille(500);
        Arc::new(OwnedShards(every_shard().0.into_iter().filter(|_| all || self.dice.permille(400)).collect()))
    }

    /// The topic as its users want it in this world.
    fn wanted(&self, topic: &TopicName, shards: u32) -> TopicChange {
        if *topic != orders() {
            return wanted(shards);
        }
        let remember = if self.remembers { REMEMBERED_FOR } else { Duration::ZERO };
        let Self { watermark, max_in_flight, .. } = *self;
        TopicChange::whole(&TopicConfig { remember, watermark, max_in_flight, ..config(shards) })
    }

    pub async fn request(&self, node: &Node, topic: &TopicName, shards: u32) {
        while node.door.catalog.put(topic, &self.wanted(topic, shards)).await.is_err()
            || node.resizer.ask(topic, ShardCount::Fixed(shards)).await.is_err()
        {
            self.dice.pause(500).await;
        }
    }

    /// A change of the number of shards that somebody asks for once.
    pub async fn request_once(&self, node: &Node, topic: &TopicName, shards: u32) {
        if node.door.catalog.change(topic, &self.wanted(topic, shards)).await.is_ok() {
            let _ = node.resizer.ask(topic, ShardCount::Fixed(shards)).await;
        }
    }
}

/// Replicas that lag: each master's is brought up to date now and then.
pub async fn replicate(world: Arc<World>) {
    loop {
        world.dice.pause(LAG_MS_MAX).await;
        world.masters.replicate();
    }
}

/// What is known of a world, also of one that fails.
#[derive(Debug, Default)]
pub struct Seen(Mutex<Option<(Arc<Recorder>, Arc<Trace>)>>);

impl Seen {
    /// The history and the trace, once the world has begun.
    pub fn get(&self) -> Option<(Arc<Recorder>, Arc<Trace>)> {
        self.0.lock().clone()
    }
}

/// Runs a world to its end; fails when an invariant is broken.
pub fn run(plan: &Plan, left_out: Option<Mutation>, keeps_lines: bool, seen: &Seen) -> Story {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(live(plan, left_out, keeps_lines, seen))
}

/// Fails with what failed in a task.
pub fn passed_on(ended: Result<(), tokio::task::JoinError>) {
    ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
}

async fn live(plan: &Plan, left_out: Option<Mutation>, keeps_lines: bool, seen: &Seen) -> Story {
    let dice = Arc::new(Dice::new(plan.seed));
    let clock = TokioClock::at(START);
    let trouble = Trouble::of(plan, &dice);
    let most = |part, many: u64, few: u64| if plan.has(part) { many } else { many.min(few) };
    let masters = usize::try_from(most(Part::Masters, 1 + dice.below(3), 1)).expect("few");
    let history = Recorder::new(clock.clone());
    let trace = Arc::new(Trace::new(keeps_lines));
    *seen.0.lock() = Some((history.clone(), trace.clone()));
    let is_long = matches!(trouble.course, Course::Long) && !trouble.empties;
    let max_in_flight = marks::max_in_flight(plan.seed).filter(|_| is_long && !trouble.clocks && !trouble.failovers);
    let shards_max = u64::from(max_in_flight.unwrap_or(marks::ORDERS_SHARDS_MAX));
    let witness = Masterwise::new(history.clone(), trace.clone(), max_in_flight);
    let deps = MasterDeps {
        truth: clock.clone(),
        dice: dice.clone(),
        witness: witness.clone(),
        edit: left_out.map(Mutation::edit),
        may_end: trouble.may_end && !left_out.is_some_and(Mutation::is_late_calls),
    };
    let replicated = trouble.failovers || dice.permille(300);
    let world = Arc::new(World {
        masters: Masters::new(masters, &deps),
        witness: witness.clone(),
        durability: if replicated { Durability::Replicas(1) } else { Durability::Memory },
        history,
        trace,
        clock: clock.clone(),
        weather: Arc::default(),
        dozes_permille: match trouble.course {
            Course::Full | Course::Crossing => DOZES_OFTEN_PERMILLE,
            Course::Revived | Course::Letters | Course::Series | Course::Removed | Course::Undone => 0,
            Course::Long | Course::GoesBack => most(Part::Dozes, dice.below(3) * 30, 0),
        },
        dice: dice.clone(),
        nodes_made: AtomicU64::new(0),
        // A topic that is adopted begins a new memory.
        remembers: plan.seed % 2 == 1 && is_long || matches!(trouble.course, Course::Letters | Course::Undone),
        watermark: marks::has_watermark(plan.seed) && is_long,
        max_in_flight,
        trouble,
    });
    let (mut last, more) = (1 + u32::try_from(dice.below(shards_max.min(6))).expect("few"), 1 + dice.below(3));
    if matches!(trouble.course, Course::Crossing | Course::Revived | Course::Letters | Course::Series | Course::Removed)
    {
        last = 1;
    }
    dice.salt(plan.salt);
    let mut nodes = vec![world.node().await];
    nodes[0].door.catalog.put(&orders(), &world.wanted(&orders(), last)).await.expect("all is well");
    for _ in 0..most(Part::Nodes, more, 1) {
        nodes.push(world.node().await);
    }
    world.masters.replicate();
    let nodes = Arc::new(nodes);
    let before = if trouble.lowers { VISIBILITY_BEFORE } else { VISIBILITY };
    let shared = Arc::new(Shared {
        doors: nodes.iter().map(|node| node.door.clone()).collect(),
        clock,
        history: world.history.clone(),
        dice: dice.clone(),
        witness,
        left_out,
        all_answered: !trouble.network && !trouble.stops && !trouble.failovers && !trouble.empties,
        weather: trouble.network.then(|| world.weather.clone()),
        stops: trouble.stops,
        remembers: world.remembers,
        healed: Mutex::default(),
        visibility_ms: AtomicU64::new(u64::try_from(before.as_millis()).expect("short")),
        unanswered_ms: AtomicU64::new(0),
        upsets: AtomicU64::new(0),
        all_ahead: AtomicU64::new(0),
        excused: Mutex::default(),
        deadlines_hold: !trouble.failovers && !trouble.clocks,
        unanswered: Mutex::default(),
        removed: Mutex::default(),
        moved: Mutex::default(),
        holds: Mutex::default(),
        due: Mutex::default(),
    });
    let client = Client { topic: orders(), shared: shared.clone() };
    let short = match trouble.course {
        Course::Long => None,
        Course::GoesBack => Some(crate::went_back::live(&world, &nodes, &client).await),
        Course::Full => Some(crate::full::live(&world, &nodes, &client).await),
        Course::Crossing => Some(crate::crossing::live(&world, &nodes, &client).await),
        Course::Revived => Some(crate::revived::live(&world, &nodes, &client).await),
        Course::Letters => Some(crate::letters::live(&world, &nodes, &client).await),
        Course::Series => Some(crate::series::live(&world, &nodes, &client).await),
        Course::Removed => {
            crate::removed::live(&world, &nodes, &client).await;
            Some(last)
        }
        Course::Undone => {
            crate::undone::live(&world, &nodes, &client).await;
            Some(last)
        }
    };
    if let Some(last) = short {
        let observer = world.observer().await;
        judge::comes_to_rest(&world, &observer, last).await;
        nodes.iter().for_each(|node| node.shutdown.cancel());
        return judge::judge(&world, &observer, &shared).await;
    }
    let (mut producers, mut others, mut replicas) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
    let stop = Arc::<AtomicBool>::default();
    for n in 0..most(Part::Producers, PRODUCERS, 1) {
        producers.spawn(client.clone().produce(format!("p{n}"), most(Part::Ids, LIVES, LIVES_FEW)));
    }
    if max_in_flight.is_some() {
        producers.spawn(client.clone().crowd(most(Part::Ids, marks::CROWDS, 1)));
    }
    // Where clocks jump nothing says when a sending is over.
    if !trouble.clocks && (trouble.network || trouble.stops) {
        producers.spawn(client.clone().give_up("g".to_owned(), GIVEN_UP));
    }
    let drafted = Client { topic: drafts(), shared: shared.clone() };
    if trouble.deletions {
        producers.spawn(crate::deletions::delete_beside_enqueues(world.clone(), nodes.clone(), drafted.clone()));
    }
    if trouble.lives {
        producers.spawn(crate::lives::live(world.clone(), nodes.clone(), drafted.clone()));
    }
    let consume = |others: &mut JoinSet<()>| {
        for _ in 0..most(Part::Consumers, CONSUMERS, 1) {
            others.spawn(client.clone().consume(stop.clone()));
        }
        if trouble.lives {
            others.spawn(drafted.clone().consume(stop.clone()));
        }
    };
    consume(&mut others);
    let asks = Arc::<Asks>::default();
    if world.watermark {
        others.spawn(client.clone().ask_watermarks(asks.clone(), stop.clone()));
    }
    if trouble.failovers {
        replicas.spawn(replicate(world.clone()));
    }
    producers.spawn(crate::faults::direct(world.clone(), nodes.clone(), shared.clone()));
    let mut movers = Vec::new();
    while !producers.is_empty() {
        let node = &nodes[usize::try_from(dice.below(nodes.len() as u64)).expect("few")];
        match if plan.has(Part::Changes) { dice.below(8) } else { 4 } {
            0 | 1 => {
                last = 1 + u32::try_from(dice.below(shards_max)).expect("few");
                world.request(node, &orders(), last).await;
            }
            2 => {
                // A node with a mover joins, and another one dies wherever it is.
                movers.push(world.node().await);
                if movers.len() > 1 {
                    let died: Node = movers.swap_remove(usize::try_from(dice.below(movers.len() as u64)).expect("few"));
                    died.shutdown.cancel();
                }
            }
            3 => node.owned.send_modify(|owned| *owned = world.some_shards()),
            4 if trouble.lowers => {
                let now = u64::try_from(VISIBILITY.as_millis()).expect("short");
                shared.visibility_ms.store(now, Ordering::Relaxed);
            }
            _ => {}
        }
        dice.pause(4_000).await;
        while let Some(ended) = producers.try_join_next() {
            passed_on(ended);
        }
    }
    // What catalogs lost has to be requested again.
    world.request(&nodes[0], &orders(), last).await;
    let observer = world.observer().await;
    for round in 1.. {
        judge::comes_to_rest(&world, &observer, last).await;
        stop.store(true, Ordering::Relaxed);
        while let Some(ended) = others.join_next().await {
            passed_on(ended);
        }
        // A node that was slow to follow settings which are changed by now may have begun one more change
        // meanwhile, and another one goes back to what is requested.
        if judge::is_at_rest(&world, &observer, last).await {
            break;
        }
        assert!(round < ROUNDS_MAX, "the world does not stay at rest");
        stop.store(false, Ordering::Relaxed);
        consume(&mut others);
    }
    drop(replicas);
    if world.remembers {
        let left = judge::look(&observer, &shared).await;
        client.judge_past(&world.history.events(), &left).await;
    }
    asks.judge(&world.history.events(), &shared.due.lock());
    nodes.iter().chain(&movers).for_each(|node| node.shutdown.cancel());
    judge::judge(&world, &observer, &shared).await
}
