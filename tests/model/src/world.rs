//! The state of the world: shards with their replicas, the authority, actors and what is known of
//! every life of an id.

use std::collections::BTreeMap;

use crate::client::Client;
use crate::mover::Mover;
use crate::settings::{SHARDS, Settings, home};

/// One life of an id: an enqueue of it.
pub type Life = u8;

/// A message in a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Item {
    /// Which life of its id.
    pub life: Life,
    /// A dead letter: cannot be claimed, moves like the others.
    pub dead: bool,
    /// The token of the claim that holds it.
    pub token: Option<u8>,
    /// How many times it was claimed.
    pub attempts: u8,
}

/// Messages frozen for a move.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    /// Counts the batches of this source.
    pub number: u8,
    /// Random in life; here: never the same twice.
    pub nonce: u8,
    /// Where it goes.
    pub to: usize,
    /// What is in it.
    pub items: BTreeMap<u8, Item>,
}

/// What one server of a shard holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Server {
    /// 0: the shard does not exist.
    pub epoch: u8,
    /// Scheduled, in flight and dead.
    pub items: BTreeMap<u8, Item>,
    /// Frozen.
    pub outbox: Option<Batch>,
    /// Of the last batch taken.
    pub number: u8,
    /// Number and nonce of the last batch put here, by source.
    pub applied: [(u8, u8); SHARDS],
}

/// A shard: its primary, the replica behind it, and how often the replica took over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shard {
    /// Answers.
    pub primary: Server,
    /// Follows.
    pub replica: Server,
    /// Grows with each failover: an answer of an earlier term proves nothing.
    pub term: u8,
}

/// The routing record, as anybody may hold a copy of it. Shard counts follow from the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Grows by one with every resize.
    pub epoch: u8,
    /// A resize is under way.
    pub moving: bool,
}

impl Record {
    /// M.
    #[must_use]
    pub fn shards(self, settings: &Settings) -> u8 {
        settings.plan[usize::from(self.epoch) - 1]
    }

    /// M before.
    #[must_use]
    pub fn previous(self, settings: &Settings) -> u8 {
        settings.plan[usize::from(self.epoch).saturating_sub(2)]
    }

    /// The new home of an id, and its old one if that is another.
    #[must_use]
    pub fn homes(self, settings: &Settings, id: u8) -> (usize, Option<usize>) {
        let new = home(id, self.shards(settings));
        let old = home(id, self.previous(settings));
        (new, (self.moving && old != new).then_some(old))
    }

    /// Every shard that takes part.
    #[must_use]
    pub fn reach(self, settings: &Settings) -> usize {
        usize::from(self.shards(settings).max(self.previous(settings)))
    }
}

/// What the outside knows of one life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Told {
    /// Its id.
    pub id: u8,
    /// The enqueue was acknowledged.
    pub enqueued: bool,
    /// Somebody removed it: an ack or a cancel acted on it.
    pub removed: bool,
    /// A cancel that acted on it was acknowledged.
    pub cancelled: bool,
    /// Claims of it.
    pub claims: u8,
    /// Deadlines of claims of it that passed.
    pub expired: u8,
}

/// Something that must never happen, seen as it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wrong {
    /// A claim brought a message whose cancel was acknowledged.
    ClaimedAfterCancel,
    /// `unknown` was answered for a message that was there all the time.
    UnknownThoughThere,
    /// An ack removed another life than the one that was claimed.
    AckOfAnotherLife,
    /// A receipt whose claim still holds was refused.
    ValidReceiptRefused,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The shards.
    pub shards: Vec<Shard>,
    /// The routing record's one authority.
    pub authority: Record,
    /// Clients.
    pub clients: Vec<Client>,
    /// Movers.
    pub movers: Vec<Mover>,
    /// What the outside knows of each life.
    pub told: Vec<Told>,
    /// The next claim's token.
    pub tokens: u8,
    /// Bit by token: its deadline has passed.
    pub passed: u32,
    /// The next batch's nonce.
    pub nonces: u8,
    /// Faults left.
    pub crashes: u8,
    /// Faults left.
    pub failovers: u8,
    /// Faults left.
    pub expiries: u8,
    /// Failovers so far: they excuse a second delivery.
    pub failed_over: u8,
    /// What went wrong as it happened.
    pub wrong: Option<Wrong>,
}

impl World {
    /// The start: what is stored is acknowledged and replicated.
    #[must_use]
    pub fn start(settings: &Settings) -> Self {
        let first = Record { epoch: 1, moving: false };
        let mut shards = vec![Shard::default(); SHARDS];
        for shard in shards.iter_mut().take(usize::from(settings.plan[0])) {
            shard.primary.epoch = 1;
        }
        let mut told = Vec::new();
        for id in &settings.stored {
            let life = Life::try_from(told.len()).expect("few lives");
            told.push(Told { id: *id, enqueued: true, ..Told::default() });
            let item = Item { life, dead: false, token: None, attempts: 0 };
            shards[home(*id, settings.plan[0])].primary.items.insert(*id, item);
        }
        for shard in &mut shards {
            shard.replica = shard.primary.clone();
        }
        Self {
            shards,
            authority: first,
            clients: settings.clients.iter().map(|_| Client::new(first)).collect(),
            movers: vec![Mover::Idle; settings.movers],
            told,
            tokens: 1,
            passed: 0,
            nonces: 1,
            crashes: settings.crashes,
            failovers: settings.failovers,
            expiries: settings.expiries,
            failed_over: 0,
            wrong: None,
        }
    }

    /// Whether the deadline of a claim has passed.
    #[must_use]
    pub fn has_passed(&self, token: u8) -> bool {
        self.passed & (1 << token) != 0
    }

    /// Whether a claim may take the message.
    #[must_use]
    pub fn is_claimable(&self, item: &Item) -> bool {
        !item.dead && item.token.is_none_or(|token| self.has_passed(token))
    }

    /// Brings the replica up to date, if no failover came in between; false: the answer is unknown.
    pub fn wait(&mut self, shard: usize, term: u8) -> bool {
        let shard = &mut self.shards[shard];
        if shard.term != term {
            return false;
        }
        shard.replica = shard.primary.clone();
        true
    }

    /// Raises a shard to `epoch`, creating it if need be.
    pub fn fence(&mut self, shard: usize, epoch: u8) {
        let server = &mut self.shards[shard].primary;
        server.epoch = server.epoch.max(epoch);
    }

    /// Copies of a life that count: claimable or dead ones, and frozen ones not put yet.
    #[must_use]
    pub fn living_copies(&self, id: u8, life: Option<Life>) -> usize {
        let fits = |item: &Item| life.is_none_or(|life| item.life == life);
        self.shards
            .iter()
            .enumerate()
            .map(|(from, shard)| {
                let live = usize::from(shard.primary.items.get(&id).is_some_and(fits));
                let frozen = shard.primary.outbox.as_ref().is_some_and(|batch| {
                    let put = self.shards[batch.to].primary.applied[from] == (batch.number, batch.nonce);
                    batch.items.get(&id).is_some_and(fits) && !put
                });
                live + usize::from(frozen)
            })
            .sum()
    }
}
