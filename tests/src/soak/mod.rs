//! Random faults on real servers and real nodes under load, round after round, each judged by its history.
//!
//! `bin/soak` calls [`run`]. [`world`] has the servers and nodes, [`load`] and [`consume`] what users do and
//! note, [`faults`] what befalls them, [`judge`] the verdict.

mod api;
mod consume;
mod faults;
mod judge;
mod load;
mod world;

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::crash::Draw;

/// What the nodes store in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// A Redis Cluster of three masters and three replicas, with etcd and three nodes.
    Cluster,
    /// The embedded store of one node.
    Embedded,
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long messages come in, over all rounds.
    pub length: Duration,
    /// How long one round is.
    pub round: Duration,
    /// On what.
    pub store: StoreKind,
    /// Faults, their order and their lengths follow from it.
    pub seed: u64,
    /// Messages a second.
    pub rate: u64,
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = match self.store {
            StoreKind::Cluster => "cluster",
            StoreKind::Embedded => "embedded",
        };
        let (length, round) = (self.length.as_secs(), self.round.as_secs());
        write!(f, "soak --for {length}s --store {store} --seed {} --rate {} --round {round}s", self.seed, self.rate)
    }
}

/// What was seen in all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    rounds: usize,
    faults: usize,
    messages: usize,
    accepted: usize,
    explained: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} rounds, {} faults, {} messages, {} accepted, {} duplicates that a fault explains",
            self.rounds, self.faults, self.messages, self.accepted, self.explained
        )
    }
}

/// Runs it to its end.
///
/// # Errors
///
/// The first verdict that is not good, or what did not end in its time.
pub async fn run(options: Options) -> Result<Summary, String> {
    let mut world = world::World::start(&options).await;
    let mut draw = Draw::new(options.seed, 0);
    let mut judge = judge::Judge::default();
    let mut summary = Summary::default();
    let began = Instant::now();
    consume::start(&world.shared, options.seed);
    while began.elapsed() < options.length {
        let left = options.length - began.elapsed();
        // No short round at the end.
        let length = if left < options.round * 3 / 2 { left } else { options.round };
        let producers = load::start(&world.shared, &options, summary.rounds);
        summary.faults += faults::befall(&mut world, &mut draw, Instant::now() + length, began).await;
        world.shared.producing(false);
        let sent = producers.join_all().await.into_iter().sum();
        world.recover().await;
        let verdict = judge.round(&world, sent).await?;
        println!("{:7.1} s  round {}: {}", began.elapsed().as_secs_f64(), summary.rounds, verdict.to_string().trim());
        summary.rounds += 1;
        summary.messages += sent;
        summary.accepted += verdict.accepted;
        summary.explained += verdict.explained.len();
    }
    Ok(summary)
}
