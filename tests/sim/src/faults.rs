//! What goes wrong in a world, and when.
//!
//! A fault has a beginning and an end, and is noted in the history: what it does not touch is judged as if all were
//! well. A third of the worlds have none.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use duetime_testkit::history::FaultKind;
use tokio::time::{Instant, sleep};

use crate::clients::Shared;
use crate::draw::Dice;
use crate::plan::{Part, Plan};
use crate::world::{Node, VISIBILITY, World, orders, wanted};

/// Longest time before the first fault.
const CALM_MS_MAX: u64 = 9_000;
/// Longest cut between a node and a master.
const CUT_MS_MAX: u64 = 9_000;
/// Longest stop of a node.
const STOPPED_MS_MAX: u64 = 12_000;
/// How wrong a clock is.
const WRONG_MS: [i64; 5] = [-3_600_000, 3_600_000, -5_000, 5_000, -1_500];
/// How far all clocks are ahead together.
pub const ALL_AHEAD_MS: i64 = 300_000;

/// What is different about a whole world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// Nothing: clients do everything for a while.
    Long,
    /// The store starts again from a snapshot while a shard count changes.
    GoesBack,
    /// The masters are full while a shard count changes.
    Full,
    /// Ids are claimed at two shards, in two lives, while a shard count changes.
    Crossing,
    /// Messages die and are redriven all the time while the shard count changes.
    Revived,
    /// Dead letters are edited and moved while others act on them, the network fails and the shard count changes.
    Letters,
    /// Messages come again by a rule while everything but the clocks fails and the shard count changes.
    Series,
    /// Messages are removed to be handed out while the network is cut for longer than a claim holds.
    Removed,
    /// Bulk plans are carried out and taken back while others act on the same messages, and the network and nodes fail.
    Undone,
}

impl Course {
    pub fn of(seed: u64) -> Self {
        match seed % 16 {
            13 if seed % 32 == 13 => Self::Undone,
            5 | 13 => Self::GoesBack,
            2 => Self::Full,
            4 if seed % 32 == 4 => Self::Series,
            6 if seed % 32 == 6 => Self::Letters,
            6 => Self::Removed,
            10 => Self::Crossing,
            14 => Self::Revived,
            _ => Self::Long,
        }
    }
}

/// Which faults a world has.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is drawn by itself")]
pub struct Trouble {
    pub network: bool,
    pub stops: bool,
    pub clocks: bool,
    pub failovers: bool,
    /// The master of the topics' records comes back with nothing.
    pub empties: bool,
    /// A topic is deleted and created again, over and over.
    pub lives: bool,
    /// Topics are deleted without force beside enqueues.
    pub deletions: bool,
    /// What is different about the whole world; nothing else goes wrong then.
    pub course: Course,
    /// The visibility timeout is lowered.
    pub lowers: bool,
    /// Nodes may end connections at the servers.
    pub may_end: bool,
}

impl Trouble {
    /// Drawn for a seed: every third world is without faults.
    pub fn of(plan: &Plan, dice: &Dice) -> Self {
        let faulty = !plan.seed.is_multiple_of(3);
        let mut trouble = Self {
            network: faulty && dice.permille(500),
            stops: faulty && dice.permille(400),
            clocks: faulty && dice.permille(400),
            failovers: faulty && dice.permille(300),
            empties: faulty && dice.permille(200),
            lives: dice.permille(500),
            deletions: dice.permille(300),
            course: Course::of(plan.seed),
            lowers: dice.permille(200),
            may_end: dice.permille(700),
        };
        // Nobody could say whose messages are gone if the records went in the middle of a deletion; and where
        // clocks jump, the end of a call says nothing: its connection has to be ended.
        trouble.lives &= !trouble.empties;
        trouble.deletions &= !trouble.empties && !trouble.failovers;
        if trouble.course != Course::Long {
            let (clocks, empties) = (false, false);
            let failovers = trouble.failovers && trouble.course == Course::Series;
            // Only letters and series go on beside faults.
            let has_faults = matches!(trouble.course, Course::Letters | Course::Series);
            let network = match trouble.course {
                Course::Removed => true,
                Course::Undone => faulty,
                _ => trouble.network && has_faults,
            };
            let stops = trouble.stops && has_faults;
            trouble = Self { network, stops, clocks, failovers, empties, ..trouble };
        }
        trouble.may_end |= trouble.clocks;
        let Self { network, stops, clocks, failovers, empties, lives, deletions, lowers, .. } = &mut trouble;
        let parts = [
            (network, Part::Network),
            (stops, Part::Stops),
            (clocks, Part::Clocks),
            (failovers, Part::Failovers),
            (empties, Part::Empties),
            (lives, Part::Lives),
            (deletions, Part::Deletions),
            (lowers, Part::Lowers),
        ];
        parts.into_iter().for_each(|(has, part)| *has &= plan.has(part));
        trouble
    }
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn some<'a, T>(dice: &Dice, of: &'a [T]) -> &'a T {
    &of[usize::try_from(dice.below(of.len() as u64)).expect("few")]
}

/// Runs the world's faults, one after the other.
pub async fn direct(world: Arc<World>, nodes: Arc<Vec<Node>>, shared: Arc<Shared>) {
    let trouble = world.trouble;
    sleep(millis(1_000 + world.dice.below(CALM_MS_MAX))).await;
    if trouble.clocks {
        clocks(&world, &nodes, &shared).await;
    }
    if trouble.network {
        network(&world, &nodes).await;
    }
    if trouble.stops {
        stop(&world, some(&world.dice, &nodes)).await;
    }
    if trouble.empties {
        empty(&world, &nodes, &shared).await;
    }
    if trouble.failovers {
        fail_over(&world, &shared).await;
    }
}

async fn network(world: &World, nodes: &[Node]) {
    let (dice, weather) = (&world.dice, &world.weather);
    world.history.fault_begins(FaultKind::NetworkFailed);
    *weather.lost_permille.lock() = 20;
    *weather.held_permille.lock() = 20;
    for _ in 0..dice.below(3) {
        let (node, master) = (some(dice, nodes).door.net.number, dice.below(world.masters.count() as u64));
        let until = Instant::now() + millis(dice.below(CUT_MS_MAX));
        weather.cut(node, usize::try_from(master).expect("few"), until);
    }
    sleep(millis(1_000 + dice.below(4_000))).await;
    *weather.lost_permille.lock() = 0;
    *weather.held_permille.lock() = 0;
    // It is over when the last of what was kept back has arrived.
    weather.cleared().await;
    world.history.fault_ends(FaultKind::NetworkFailed);
}

/// Stops a node for a while.
pub async fn stop(world: &World, node: &Node) {
    world.history.fault_begins(FaultKind::NodeStalled);
    let pause = millis(1_000 + world.dice.below(STOPPED_MS_MAX));
    node.door.net.stop_until(Instant::now() + pause);
    sleep(pause).await;
    world.history.fault_ends(FaultKind::NodeStalled);
}

async fn clocks(world: &World, nodes: &[Node], shared: &Shared) {
    let dice = &world.dice;
    for _ in 0..1 + dice.below(2) {
        world.history.fault_begins(FaultKind::StoreStalled);
        shared.upsets.fetch_add(1, Ordering::Relaxed);
        let all = world.masters.clocks.iter().chain(nodes.iter().map(|node| &node.clock));
        let all: Vec<_> = all.cloned().collect();
        let mut wrong = *some(dice, &WRONG_MS);
        let which = if dice.permille(330) {
            // Nobody could notice that: what is due meanwhile is early, and what is asked for is late.
            wrong = ALL_AHEAD_MS;
            shared.all_ahead.fetch_add(1, Ordering::Relaxed);
            all
        } else {
            vec![some(dice, &all).clone()]
        };
        which.iter().for_each(|clock| clock.set_ahead_ms(wrong));
        sleep(millis(500 + dice.below(2_500))).await;
        which.iter().for_each(|clock| clock.set_ahead_ms(0));
        // What was asked before is answered by then.
        sleep(Duration::from_secs(6)).await;
        let ahead = shared.all_ahead.load(Ordering::Relaxed);
        shared.all_ahead.fetch_add(ahead % 2, Ordering::Relaxed);
        world.history.fault_ends(FaultKind::StoreStalled);
    }
}

async fn fail_over(world: &World, shared: &Shared) {
    world.history.fault_begins(FaultKind::StoreStopped);
    for _ in 0..1 + world.dice.below(4) {
        shared.upsets.fetch_add(1, Ordering::Relaxed);
        let master = world.dice.below(world.masters.count() as u64);
        world.masters.fail_over(usize::try_from(master).expect("few"));
        shared.upsets.fetch_add(1, Ordering::Relaxed);
        sleep(millis(world.dice.below(1_500))).await;
    }
    // Claims that were lost run out.
    sleep(VISIBILITY).await;
    world.history.fault_ends(FaultKind::StoreStopped);
}

/// The records of the topics are gone; somebody asks for the topic as always, then it is adopted.
async fn empty(world: &World, nodes: &[Node], shared: &Shared) {
    let dice = &world.dice;
    world.history.fault_begins(FaultKind::StoreStopped);
    shared.upsets.fetch_add(1, Ordering::Relaxed);
    world.masters.forget_topics();
    sleep(millis(dice.below(2_500))).await;
    let node = some(dice, nodes);
    let shards = 1 + u32::try_from(dice.below(4)).expect("few");
    // It is refused as long as shards of this name hold messages.
    let _ = node.door.catalog.put(&orders(), &wanted(shards)).await;
    while node.door.catalog.adopt(&orders(), Some(&wanted(shards)), false).await.is_err() {
        dice.pause(500).await;
    }
    world.history.fault_ends(FaultKind::StoreStopped);
}
