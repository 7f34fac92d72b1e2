//! A mover: fences, takes, puts, checks, drops, verifies, commits. It has no state that matters:
//! after a crash another one, or itself, starts again at the fence.

use crate::settings::{Mutation, Settings, home};
use crate::world::{Batch, Record, World};

/// Where a mover is. Each step is one script or one wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Mover {
    /// Has nothing in hand.
    Idle,
    /// About to fence this shard.
    Fence(u8, usize),
    /// Waits for the replica of the shard it fenced.
    FenceWait(u8, usize, u8),
    /// About to look for misplaced messages in this shard.
    Scan(u8, usize),
    /// Waits for the source's replica.
    TakeWait(u8, usize, Batch, u8),
    /// About to put the batch of this source.
    Put(u8, usize, Batch),
    /// Waits for the destination's replica.
    PutWait(u8, usize, Batch, u8),
    /// About to look once more whether the destination's present primary remembers the batch.
    Check(u8, usize, Batch),
    /// About to drop the batch at its source.
    Drop(u8, usize, Batch),
    /// About to verify this shard.
    Verify(u8, usize),
    /// Waits for the replica of the shard it found clean: what was seen to be gone must not come back.
    VerifyWait(u8, usize, u8),
    /// About to commit.
    Commit(u8),
}

/// The mover's next step; `None`: there is nothing it can do.
#[must_use]
pub fn step(settings: &Settings, world: &World, me: usize) -> Option<(World, Mover)> {
    let mover = &world.movers[me];
    let mut world = world.clone();
    let mutated = |mutation| settings.mutation == Some(mutation);
    let record = |epoch| Record { epoch, moving: true };
    let next = match mover.clone() {
        Mover::Idle => {
            if !world.authority.moving {
                return None;
            }
            let epoch = world.authority.epoch;
            if mutated(Mutation::NoFence) { Mover::Scan(epoch, 0) } else { Mover::Fence(epoch, 0) }
        }
        Mover::Fence(epoch, shard) => {
            if world.shards[shard].primary.epoch > epoch {
                return Some((world, Mover::Idle));
            }
            world.fence(shard, epoch);
            let term = world.shards[shard].term;
            Mover::FenceWait(epoch, shard, term)
        }
        Mover::FenceWait(epoch, shard, term) => {
            if !world.wait(shard, term) {
                Mover::Fence(epoch, shard)
            } else if shard + 1 < record(epoch).reach(settings) {
                Mover::Fence(epoch, shard + 1)
            } else {
                Mover::Scan(epoch, 0)
            }
        }
        Mover::Scan(epoch, source) => scan(settings, &mut world, me, epoch, source),
        Mover::TakeWait(epoch, source, batch, term) => {
            if !settings.wait_for_take || world.wait(source, term) {
                if mutated(Mutation::DropBeforePut) {
                    world.shards[source].primary.outbox = None;
                }
                Mover::Put(epoch, source, batch)
            } else {
                Mover::Scan(epoch, source)
            }
        }
        Mover::Put(epoch, source, batch) => put(settings, &mut world, epoch, source, batch),
        Mover::PutWait(epoch, source, batch, term) => {
            if mutated(Mutation::NoWaitAtDestination) || world.wait(batch.to, term) {
                Mover::Check(epoch, source, batch)
            } else {
                Mover::Put(epoch, source, batch)
            }
        }
        Mover::Check(epoch, source, batch) => {
            let remembered = world.shards[batch.to].primary.applied[source];
            if same(settings, remembered, &batch) {
                Mover::Drop(epoch, source, batch)
            } else {
                Mover::Put(epoch, source, batch)
            }
        }
        Mover::Drop(epoch, source, batch) => {
            let server = &mut world.shards[source].primary;
            if stale(settings, server.epoch, epoch) {
                return Some((world, Mover::Idle));
            }
            if server.outbox.as_ref().is_some_and(|held| held.nonce == batch.nonce) {
                server.outbox = None;
                if mutated(Mutation::CopyWithoutFreezing) {
                    server.items.retain(|id, _| !batch.items.contains_key(id));
                }
            }
            Mover::Scan(epoch, source)
        }
        Mover::Verify(epoch, shard) => {
            let server = &world.shards[shard].primary;
            let misplaced = server.items.keys().any(|id| home(*id, record(epoch).shards(settings)) != shard);
            if server.epoch > epoch {
                Mover::Idle
            } else if server.epoch != epoch || server.outbox.is_some() || misplaced {
                Mover::Fence(epoch, 0)
            } else {
                Mover::VerifyWait(epoch, shard, world.shards[shard].term)
            }
        }
        Mover::VerifyWait(epoch, shard, term) => {
            if !mutated(Mutation::VerifyUnreplicated) && !world.wait(shard, term) {
                Mover::Verify(epoch, shard)
            } else if shard + 1 < record(epoch).reach(settings) {
                Mover::Verify(epoch, shard + 1)
            } else {
                Mover::Commit(epoch)
            }
        }
        Mover::Commit(epoch) => {
            if world.authority == record(epoch) {
                world.authority.moving = false;
            }
            Mover::Idle
        }
    };
    Some((world, next))
}

fn stale(settings: &Settings, shard_epoch: u8, epoch: u8) -> bool {
    settings.mutation != Some(Mutation::NoFence) && shard_epoch != epoch
}

fn same(settings: &Settings, remembered: (u8, u8), batch: &Batch) -> bool {
    remembered.0 == batch.number
        && (remembered.1 == batch.nonce || settings.mutation == Some(Mutation::NumberWithoutNonce))
}

/// One look at a source: an outbox that is there comes first, else the misplaced of one destination
/// are frozen, else the next source is looked at.
fn scan(settings: &Settings, world: &mut World, me: usize, epoch: u8, source: usize) -> Mover {
    let record = Record { epoch, moving: true };
    let impatient = settings.mutation == Some(Mutation::CommitWithoutVerify);
    let nonce = world.nonces;
    let term = world.shards[source].term;
    let server = &mut world.shards[source].primary;
    if stale(settings, server.epoch, epoch) {
        return if server.epoch > epoch { Mover::Idle } else { Mover::Fence(epoch, 0) };
    }
    let in_the_way = server.outbox.clone();
    if let Some(batch) = in_the_way
        && !impatient
    {
        return Mover::TakeWait(epoch, source, batch, term);
    }
    let homes = |id: u8| home(id, record.shards(settings));
    // Movers page in different orders, so their batches differ.
    let mut misplaced: Vec<u8> = server.items.keys().copied().filter(|id| homes(*id) != source).collect();
    if me % 2 == 1 {
        misplaced.reverse();
    }
    let Some(to) = misplaced.first().map(|id| homes(*id)).filter(|_| server.outbox.is_none()) else {
        if source + 1 < usize::from(record.previous(settings)) {
            return Mover::Scan(epoch, source + 1);
        }
        return if impatient { Mover::Commit(epoch) } else { Mover::Verify(epoch, 0) };
    };
    misplaced.retain(|id| homes(*id) == to);
    misplaced.truncate(settings.batch);
    let items = misplaced.iter().map(|id| (*id, server.items[id])).collect();
    server.number += 1;
    let batch = Batch { number: server.number, nonce, to, items };
    if settings.mutation != Some(Mutation::CopyWithoutFreezing) {
        server.items.retain(|id, _| !misplaced.contains(id));
    }
    server.outbox = Some(batch.clone());
    world.nonces += 1;
    Mover::TakeWait(epoch, source, batch, term)
}

/// Inserts a batch at its destination if it is new there; a conflict is renumbered at the source.
fn put(settings: &Settings, world: &mut World, epoch: u8, source: usize, batch: Batch) -> Mover {
    let term = world.shards[batch.to].term;
    let server = &mut world.shards[batch.to].primary;
    if stale(settings, server.epoch, epoch) {
        return if server.epoch > epoch { Mover::Idle } else { Mover::Fence(epoch, 0) };
    }
    let remembered = server.applied[source];
    if same(settings, remembered, &batch) {
        return Mover::PutWait(epoch, source, batch, term);
    }
    if batch.number > remembered.0 {
        for (id, item) in &batch.items {
            server.items.entry(*id).or_insert(*item);
        }
        server.applied[source] = (batch.number, batch.nonce);
        return Mover::PutWait(epoch, source, batch, term);
    }
    let nonce = world.nonces;
    let held = &mut world.shards[source].primary;
    if let Some(outbox) = held.outbox.as_mut().filter(|outbox| outbox.nonce == batch.nonce) {
        outbox.number = remembered.0 + 1;
        outbox.nonce = nonce;
        held.number = held.number.max(remembered.0 + 1);
        world.nonces += 1;
    }
    Mover::Scan(epoch, source)
}
