//! A client: carries out its operations one after the other, with a copy of the routing record that
//! may be old. At the source shard first, then at the new one; messages are created only at the new one.

use crate::settings::{Mutation, Op, Settings};
use crate::world::{Item, Life, Record, Told, World, Wrong};

/// What is to be done to an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Schedule it; repeated with the same life (the nonce) until answered.
    Put(Life),
    /// Cancel it; what was there and acknowledged when the cancel began.
    Remove(Option<Life>),
    /// Settle a claim: with this proof, of this life; as a dead letter or for good.
    Settle {
        /// What the receipt carries.
        proof: u8,
        /// The claim's token, by which the model judges.
        token: u8,
        /// The life that was claimed.
        life: Life,
        /// A dead letter.
        bury: bool,
    },
}

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum At {
    /// Between operations.
    Start,
    /// About to act on an id, at the home of this number in the order of looking.
    Act(Act, u8, usize),
    /// Found nothing at the home of this number; waits for the replica of that shard (and its term), so
    /// that no failover brings back what was seen to be absent.
    Absent(Act, u8, usize, u8),
    /// Waits for the replica of this shard (and its term) before it is answered; what a cancel removed.
    Wait(Act, u8, usize, u8, Option<Life>),
}

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    /// How many of its operations are done.
    pub done: usize,
    /// Its copy of the routing record.
    pub record: Record,
    /// Where it is.
    pub at: At,
}

impl Client {
    /// Has done nothing yet.
    #[must_use]
    pub fn new(record: Record) -> Self {
        Self { done: 0, record, at: At::Start }
    }
}

enum Door {
    Open,
    Stale(Record),
    NotReady,
}

fn door(settings: &Settings, world: &World, shard: usize, record: Record) -> Door {
    let epoch = world.shards[shard].primary.epoch;
    if settings.mutation == Some(Mutation::NoFence) || epoch == record.epoch {
        Door::Open
    } else if epoch > record.epoch {
        Door::Stale(Record { epoch, moving: true })
    } else {
        Door::NotReady
    }
}

/// The homes in the order in which they are looked at.
fn order(settings: &Settings, record: Record, act: Act, id: u8) -> Vec<usize> {
    let (new, old) = record.homes(settings, id);
    match (settings.mutation, old) {
        (_, None) | (Some(Mutation::StraightToNewHome), _) => vec![new],
        (Some(Mutation::NewHomeFirst), Some(old)) if matches!(act, Act::Put(_)) => vec![new, old, new],
        (Some(Mutation::NewHomeFirst), Some(old)) => vec![new, old],
        (_, Some(old)) => vec![old, new],
    }
}

/// The client's next step, at `shard` if it claims; `None`: it is done, or must wait for others.
#[must_use]
pub fn step(settings: &Settings, world: &World, me: usize, shard: Option<usize>) -> Option<World> {
    let mut world = world.clone();
    let client = world.clients[me];
    let op = *settings.clients[me].get(client.done)?;
    match (client.at, shard) {
        (At::Start, Some(shard)) if matches!(op, Op::ClaimAck | Op::ClaimBury) => {
            claim(settings, &mut world, me, shard, op == Op::ClaimBury)?;
        }
        (At::Start, None) => match op {
            Op::Enqueue(id) => {
                let life = Life::try_from(world.told.len()).expect("few lives");
                world.told.push(Told { id, ..Told::default() });
                world.clients[me].at = At::Act(Act::Put(life), id, 0);
            }
            Op::Cancel(id) => {
                let there = world.told.iter().rposition(|told| told.id == id && told.enqueued && !told.removed);
                let there = there.map(|life| Life::try_from(life).expect("few lives"));
                world.clients[me].at = At::Act(Act::Remove(there), id, 0);
            }
            Op::ClaimAck | Op::ClaimBury => return None,
        },
        (At::Act(act, id, look), None) => look_at(settings, &mut world, me, act, id, look)?,
        (At::Absent(act, id, look, term), None) => {
            let shard = order(settings, client.record, act, id)[look];
            let confirmed = settings.mutation == Some(Mutation::AbsenceUnconfirmed) || world.wait(shard, term);
            world.clients[me].at = At::Act(act, id, if confirmed { look + 1 } else { 0 });
        }
        (At::Wait(act, id, shard, term, removed), None) => {
            if world.wait(shard, term) {
                match (act, removed) {
                    (Act::Put(life), _) => world.told[usize::from(life)].enqueued = true,
                    (_, Some(life)) => world.told[usize::from(life)].cancelled = true,
                    _ => {}
                }
                finish(&mut world, me);
            } else {
                world.clients[me].at = At::Act(act, id, 0);
            }
        }
        _ => return None,
    }
    Some(world)
}

fn finish(world: &mut World, me: usize) {
    world.clients[me].done += 1;
    world.clients[me].at = At::Start;
}

fn claim(settings: &Settings, world: &mut World, me: usize, shard: usize, bury: bool) -> Option<()> {
    match door(settings, world, shard, world.clients[me].record) {
        Door::Stale(record) => {
            world.clients[me].record = record;
            return Some(());
        }
        Door::NotReady => return None,
        Door::Open => {}
    }
    let found = world.shards[shard].primary.items.iter().find(|(_, item)| world.is_claimable(item));
    let (id, item) = found.map(|(id, item)| (*id, *item))?;
    let token = world.tokens;
    world.tokens += 1;
    let attempts = item.attempts + 1;
    world.shards[shard].primary.items.insert(id, Item { token: Some(token), attempts, ..item });
    let told = &mut world.told[usize::from(item.life)];
    told.claims += 1;
    if told.cancelled {
        world.wrong = Some(Wrong::ClaimedAfterCancel);
    }
    let proof = if settings.mutation == Some(Mutation::ReceiptIsAttempts) { attempts } else { token };
    world.clients[me].at = At::Act(Act::Settle { proof, token, life: item.life, bury }, id, 0);
    Some(())
}

/// One script on one id at one home.
fn look_at(settings: &Settings, world: &mut World, me: usize, act: Act, id: u8, look: usize) -> Option<()> {
    let record = world.clients[me].record;
    let homes = order(settings, record, act, id);
    let shard = homes[look];
    match door(settings, world, shard, record) {
        Door::Stale(record) => {
            world.clients[me].record = record;
            world.clients[me].at = At::Act(act, id, 0);
            return Some(());
        }
        Door::NotReady => {
            world.fence(shard, record.epoch);
            return Some(());
        }
        Door::Open => {}
    }
    let server = &world.shards[shard].primary;
    let frozen = server.outbox.as_ref().is_some_and(|batch| batch.items.contains_key(&id));
    if frozen && settings.mutation != Some(Mutation::CopyWithoutFreezing) {
        return None;
    }
    let last = look + 1 == homes.len();
    match server.items.get(&id).copied() {
        Some(item) => act_on(settings, world, me, act, id, shard, item),
        None if !last => world.clients[me].at = At::Absent(act, id, look, world.shards[shard].term),
        None => act_on_nothing(world, me, act, id, shard),
    }
    Some(())
}

fn act_on(settings: &Settings, world: &mut World, me: usize, act: Act, id: u8, shard: usize, item: Item) {
    let term = world.shards[shard].term;
    match act {
        Act::Put(life) if item.life == life => {
            world.clients[me].at = At::Wait(act, id, shard, term, None);
        }
        Act::Put(_) => finish(world, me),
        Act::Remove(_) => {
            world.shards[shard].primary.items.remove(&id);
            world.told[usize::from(item.life)].removed = true;
            world.clients[me].at = At::Wait(act, id, shard, term, Some(item.life));
        }
        Act::Settle { proof, token, life, bury } => {
            let carried = if settings.mutation == Some(Mutation::ReceiptIsAttempts) {
                item.token.map(|_| item.attempts)
            } else {
                item.token
            };
            if carried == Some(proof) && !item.dead {
                if item.life != life {
                    world.wrong = Some(Wrong::AckOfAnotherLife);
                }
                let items = &mut world.shards[shard].primary.items;
                if bury {
                    items.insert(id, Item { dead: true, token: None, ..item });
                } else {
                    items.remove(&id);
                    world.told[usize::from(item.life)].removed = true;
                }
            } else {
                judge_refusal(world, id, life, token);
            }
            finish(world, me);
        }
    }
}

fn act_on_nothing(world: &mut World, me: usize, act: Act, id: u8, shard: usize) {
    match act {
        Act::Put(life) => {
            let item = Item { life, dead: false, token: None, attempts: 0 };
            world.shards[shard].primary.items.insert(id, item);
            let term = world.shards[shard].term;
            world.clients[me].at = At::Wait(act, id, shard, term, None);
        }
        Act::Remove(there) => {
            if there.is_some_and(|life| !world.told[usize::from(life)].removed) {
                world.wrong = Some(Wrong::UnknownThoughThere);
            }
            finish(world, me);
        }
        Act::Settle { token, life, .. } => {
            judge_refusal(world, id, life, token);
            finish(world, me);
        }
    }
}

/// A refused receipt must not be one whose claim still holds somewhere.
fn judge_refusal(world: &mut World, id: u8, life: Life, token: u8) {
    let holds = |item: Option<&Item>| item.is_some_and(|item| item.life == life && item.token == Some(token));
    let held = world.shards.iter().any(|shard| {
        let frozen = shard.primary.outbox.as_ref().and_then(|batch| batch.items.get(&id));
        holds(shard.primary.items.get(&id)) || holds(frozen)
    });
    if held && !world.has_passed(token) {
        world.wrong = Some(Wrong::ValidReceiptRefused);
    }
}
