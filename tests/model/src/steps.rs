//! What can happen next: an actor's step, a fault, time.

use stateright::{Model, Property};

use crate::mover::{self, Mover};
use crate::settings::{Mutation, SHARDS, Settings};
use crate::world::{Record, World};
use crate::{client, properties};

/// One step of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A resize begins.
    Begin,
    /// A client's next script or wait.
    Client(usize),
    /// A client claims from a shard.
    Claim(usize, usize),
    /// A mover's next script or wait.
    Mover(usize),
    /// A mover forgets everything.
    Crash(usize),
    /// The deadline of a claim passes.
    Pass(u8),
    /// A replica takes over.
    Failover(usize),
    /// A replica catches up.
    CatchUp(usize),
}

impl Model for Settings {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::start(self)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.wrong.is_some() {
            return;
        }
        let hasty = self.mutation == Some(Mutation::SecondResizeWhileMoving);
        if usize::from(world.authority.epoch) < self.plan.len() && (hasty || !world.authority.moving) {
            steps.push(Step::Begin);
        }
        for me in 0..world.clients.len() {
            steps.push(Step::Client(me));
            steps.extend((0..SHARDS).map(|shard| Step::Claim(me, shard)));
        }
        for me in 0..world.movers.len() {
            steps.push(Step::Mover(me));
            if world.crashes > 0 && world.movers[me] != Mover::Idle {
                steps.push(Step::Crash(me));
            }
        }
        if world.expiries > 0 {
            steps.extend((1..world.tokens).filter(|token| !world.has_passed(*token)).map(Step::Pass));
        }
        for (at, shard) in world.shards.iter().enumerate() {
            if shard.primary.epoch > 0 && world.failovers > 0 {
                steps.push(Step::Failover(at));
            }
            if self.catch_up && shard.primary != shard.replica {
                steps.push(Step::CatchUp(at));
            }
        }
    }

    fn next_state(&self, last: &World, step: Step) -> Option<World> {
        let mut world = last.clone();
        match step {
            Step::Begin => {
                world.authority = Record { epoch: world.authority.epoch + 1, moving: true };
            }
            Step::Client(me) => world = client::step(self, last, me, None)?,
            Step::Claim(me, shard) => world = client::step(self, last, me, Some(shard))?,
            Step::Mover(me) => {
                let (after, mover) = mover::step(self, last, me)?;
                world = after;
                world.movers[me] = mover;
            }
            Step::Crash(me) => {
                world.movers[me] = Mover::Idle;
                world.crashes -= 1;
            }
            Step::Pass(token) => {
                world.passed |= 1 << token;
                world.expiries -= 1;
                let held = |shard: &crate::world::Shard| {
                    let frozen = shard.primary.outbox.iter().flat_map(|batch| batch.items.values());
                    shard
                        .primary
                        .items
                        .values()
                        .chain(frozen)
                        .find(|item| item.token == Some(token))
                        .map(|item| item.life)
                };
                let life = last.shards.iter().find_map(held)?;
                world.told[usize::from(life)].expired += 1;
            }
            Step::Failover(at) => {
                let shard = &mut world.shards[at];
                shard.primary = shard.replica.clone();
                shard.term += 1;
                world.failovers -= 1;
                world.failed_over += 1;
            }
            Step::CatchUp(at) => {
                let shard = &mut world.shards[at];
                shard.replica = shard.primary.clone();
            }
        }
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}
