//! One simulated master: shards (of the reference store), the records of the topics, what it remembers of
//! requests, and a replica that is a little behind.
//!
//! A call is carried out as one atomic step when it arrives, unless its connection was ended here, the server it
//! was sent to was replaced meanwhile, or its time is over.

use duetime_testkit::at_home::{MessagesAtHome as _, SettledAtHome as _};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use duetime_core::limits::CLOCK_SKEW_MAX;
use duetime_core::store::{Claim, ClaimRequest, Edit, Edited, Settle, Settled, Settlement};
use duetime_core::{ClaimStore as _, Clock as _, MessageId, Shard, StoreError, Timestamp, TopicName};
use duetime_testkit::history::{Outcome, Recorder, What};
use duetime_testkit::{ManualClock, MemStore};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::catalogue::Catalogue;
use crate::clocks::SimClock;
use crate::mutation::Mutation;

/// Requests of one kind that a shard remembers.
const REQUESTS_KEPT: usize = 16;

/// One shard, by topic and index.
pub type Seat = (TopicName, u32);

/// What a sending says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// By the server's clock, when the call must not be carried out any more.
    pub not_after: Timestamp,
    /// The caller's present.
    pub caller: Timestamp,
    /// An earlier sending may have taken effect.
    pub repeated: bool,
}

/// Why a call was not carried out, or refused.
#[derive(Debug)]
pub enum Refusal {
    /// Its time is over; nothing was written.
    Late,
    /// What the script says.
    Store(StoreError),
}

/// Answers by request, by kind of call.
type Rings = BTreeMap<&'static str, VecDeque<(u64, Arc<dyn Any + Send + Sync>)>>;

/// What a server keeps beside the shards, and its replica has a copy of.
#[derive(Clone, Debug, Default)]
struct Beside {
    rings: BTreeMap<Seat, Rings>,
    /// With [`Mutation::HighWater`], the latest moment a claim has seen.
    high: BTreeMap<Seat, Timestamp>,
    /// With [`Mutation::DeadlinesRunAhead`], the last deadline.
    last: BTreeMap<Seat, Timestamp>,
    catalogue: Catalogue,
}

#[derive(Debug, Default)]
struct Inside {
    /// Grows with every failover and restart.
    generation: u64,
    clients: u64,
    /// Connections that were ended by `CLIENT KILL`.
    ended: BTreeSet<u64>,
    present: Beside,
    replica: Beside,
}

/// What no server knows, for the judge of the world.
#[derive(Debug, Default)]
struct Witness {
    /// When the deletion of each life was noted.
    deleted: BTreeMap<(TopicName, u64), Instant>,
    /// Shards that were emptied while they held messages.
    emptied: Vec<(Seat, u64, Instant)>,
    /// How many cancels, or reschedules, of a message were carried out.
    edited: BTreeMap<(TopicName, MessageId, bool), u64>,
}

/// One simulated master: shards (of the reference store), the records of the topics, what it remembers of requests,
/// and a replica that is a little behind.
#[derive(Debug)]
pub struct Server {
    witness: Mutex<Witness>,
    history: Arc<Recorder>,
    pub mem: Arc<MemStore>,
    pub clock: Arc<SimClock>,
    pub left_out: Option<Mutation>,
    inside: Mutex<Inside>,
}

/// The answer of a call of the reference store, which never waits.
pub fn at_once<T>(call: impl Future<Output = T>) -> T {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("the reference store answers at once"),
    }
}

pub fn id_of(edit: &Edit) -> &MessageId {
    match edit {
        Edit::Cancel(id) | Edit::Reschedule(id, _) => id,
    }
}

pub fn cancels(edit: &Edit) -> bool {
    matches!(edit, Edit::Cancel(_))
}

/// Whether this answer says that the edit was carried out.
pub fn is_done(edited: &Edited) -> bool {
    matches!(edited, Edited::Cancelled | Edited::Rescheduled(_))
}

impl Server {
    pub fn new(clock: Arc<SimClock>, history: &Arc<Recorder>, left_out: Option<Mutation>) -> Arc<Self> {
        let (mem, history) = (MemStore::new(), history.clone());
        mem.set_clock(Some(clock.clone()));
        Arc::new(Self { witness: Mutex::default(), history, mem, clock, left_out, inside: Mutex::default() })
    }

    pub fn leaves_out(&self, rule: Mutation) -> bool {
        self.left_out == Some(rule)
    }

    /// A new connection: its name, and the server's generation.
    pub fn connect(&self) -> (u64, u64) {
        let mut inside = self.inside.lock();
        inside.clients += 1;
        (inside.clients, inside.generation)
    }

    pub fn generation(&self) -> u64 {
        self.inside.lock().generation
    }

    /// Ends a connection: what it sent and was not carried out yet never is.
    pub fn end(&self, client: u64) {
        self.inside.lock().ended.insert(client);
    }

    /// Whether what arrives over this connection is still listened to.
    pub fn listens_to(&self, client: u64, generation: u64) -> bool {
        let inside = self.inside.lock();
        inside.generation == generation && !inside.ended.contains(&client)
    }

    pub fn is_late(&self, sent: &Sent) -> bool {
        !self.leaves_out(Mutation::LateCalls) && self.clock.now() > sent.not_after
    }

    /// The shard a call names; where lives are not compared, as if it named the present one.
    pub fn named(&self, shard: &Shard) -> Shard {
        let mut shard = shard.clone();
        if self.leaves_out(Mutation::AnyLife)
            && let Some((routing, _)) = self.mem.shard_holds(&shard.topic, shard.index)
            && routing.life() != duetime_core::routing::life_of(shard.epoch)
        {
            let changes = shard.epoch % duetime_core::routing::LIFE;
            shard.epoch = routing.life() * duetime_core::routing::LIFE + changes;
            // The name of the change would tell the lives apart, too.
            shard.change_id = routing.change_id;
        }
        shard
    }

    /// What was answered to this request, if it is repeated and remembered; else acts, and remembers. (A first sending
    /// has nothing to ask: no other of its name can come after it.)
    pub fn once<T: Clone + Send + Sync + 'static>(
        &self,
        seat: &Seat,
        kind: &'static str,
        request: u64,
        sent: &Sent,
        act: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if sent.repeated
            && let Some(known) = self.recall(seat, kind, request)
        {
            return Ok(known);
        }
        let answer = act()?;
        self.remember(seat, kind, request, answer.clone());
        Ok(answer)
    }

    pub fn recall<T: Clone + 'static>(&self, seat: &Seat, kind: &'static str, request: u64) -> Option<T> {
        let inside = self.inside.lock();
        let ring = inside.present.rings.get(seat)?.get(kind)?;
        ring.iter().find(|(known, _)| *known == request).and_then(|(_, answer)| answer.downcast_ref().cloned())
    }

    pub fn remember<T: Send + Sync + 'static>(&self, seat: &Seat, kind: &'static str, request: u64, answer: T) {
        let mut inside = self.inside.lock();
        let ring = inside.present.rings.entry(seat.clone()).or_default().entry(kind).or_default();
        ring.push_back((request, Arc::new(answer)));
        if ring.len() > REQUESTS_KEPT {
            ring.pop_front();
        }
    }

    /// Takes down that the deletion of a life is noted.
    pub fn is_deleted(&self, topic: &TopicName, life: u64) {
        self.witness.lock().deleted.entry((topic.clone(), life)).or_insert_with(Instant::now);
    }

    /// Takes down which acks of a batch are carried out, now: the consumer may hear of it long afterwards, or never.
    pub fn has_settled(&self, topic: &TopicName, batch: &[Settle], done: impl Iterator<Item = bool>) {
        for (settle, _) in batch.iter().zip(done).filter(|(settle, done)| *done && settle.action == Settlement::Ack) {
            let what = What::Settled { attempt: settle.score.attempts(), outcome: Outcome::Accepted };
            self.history.note(topic.as_str(), settle.id.as_str(), what);
        }
    }

    /// Takes down which cancels and reschedules of a batch were carried out.
    pub fn has_edited(&self, topic: &TopicName, batch: &[Edit], done: impl Iterator<Item = bool>) {
        let mut witness = self.witness.lock();
        for (edit, _) in batch.iter().zip(done).filter(|(_, done)| *done) {
            *witness.edited.entry((topic.clone(), id_of(edit).clone(), cancels(edit))).or_default() += 1;
        }
    }

    /// How often such an edit of this message was carried out here.
    pub fn times_edited(&self, topic: &TopicName, edit: &Edit) -> u64 {
        let key = (topic.clone(), id_of(edit).clone(), cancels(edit));
        self.witness.lock().edited.get(&key).copied().unwrap_or(0)
    }

    /// Cancels or reschedules a batch.
    pub fn edit(&self, shard: &Shard, sent: &Sent, batch: &[Edit]) -> Result<Vec<Edited>, StoreError> {
        let edited = at_once(self.mem.edit(shard, sent.caller, batch))?;
        self.has_edited(&shard.topic, batch, edited.iter().map(is_done));
        Ok(edited)
    }

    /// Settles a batch.
    pub fn settle(&self, shard: &Shard, sent: &Sent, batch: &[Settle]) -> Result<Vec<Settled>, StoreError> {
        let settled = at_once(self.mem.settle(shard, sent.caller, batch))?;
        self.has_settled(&shard.topic, batch, settled.iter().map(|one| *one != Settled::Expired));
        Ok(settled)
    }

    /// Shards of this server that held messages when they were emptied, and whose life `catalogue` had not deleted.
    pub fn emptied(&self, catalogue: &Self) -> Vec<String> {
        let emptied = self.witness.lock().emptied.clone();
        let deleted = &catalogue.witness.lock().deleted;
        let good = |(seat, life, at): &(Seat, u64, Instant)| {
            deleted.get(&(seat.0.clone(), *life)).is_some_and(|noted| noted <= at)
        };
        let bad = emptied.into_iter().filter(|one| !good(one));
        bad.map(|(seat, life, _)| format!("{}:{} of life {life}", seat.0, seat.1)).collect()
    }

    /// Forgets what a shard remembered, which is about to be removed or made anew.
    pub fn empty(&self, seat: &Seat) {
        if let Some((routing, holds)) = self.mem.shard_holds(&seat.0, seat.1)
            && holds > 0
        {
            self.witness.lock().emptied.push((seat.clone(), routing.life(), Instant::now()));
        }
        self.inside.lock().present.rings.remove(seat);
    }

    /// A claim, with the rules on time that may be left out.
    pub fn claim(&self, shard: &Shard, sent: &Sent, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let seat = (shard.topic.clone(), shard.index);
        let (mut caller, mut request) = (sent.caller, request.clone());
        let apart_ms = (self.clock.now().as_millis() - caller.as_millis()).unsigned_abs();
        let mut inside = self.inside.lock();
        if self.leaves_out(Mutation::HighWater) && u128::from(apart_ms) <= CLOCK_SKEW_MAX.as_millis() {
            let high = inside.present.high.entry(seat.clone()).or_default();
            caller = caller.min(self.clock.now()).max(*high);
            *high = caller;
            self.mem.set_clock(Some(ManualClock::at(caller)));
        }
        if self.leaves_out(Mutation::DeadlinesRunAhead) {
            let last = inside.present.last.get(&seat).copied().unwrap_or_default();
            request.visibility = request.visibility.max(last.since(caller));
        }
        let claim = at_once(self.mem.claim(shard, caller, &request));
        self.mem.set_clock(Some(self.clock.clone()));
        if let Ok(claim) = &claim {
            let last = inside.present.last.entry(seat).or_default();
            claim.messages.iter().for_each(|message| *last = message.score.visible_at().max(*last));
        }
        claim
    }

    /// Works on the records of the topics.
    pub fn catalogue<T>(&self, act: impl FnOnce(&mut Catalogue) -> T) -> T {
        act(&mut self.inside.lock().present.catalogue)
    }

    /// Brings the replica of one shard up to date.
    pub fn mirror(&self, seat: &Seat) {
        let mut inside = self.inside.lock();
        self.mem.mirror(&seat.0, seat.1);
        match inside.present.rings.get(seat).cloned() {
            Some(rings) => inside.replica.rings.insert(seat.clone(), rings),
            None => inside.replica.rings.remove(seat),
        };
    }

    /// Brings the replica of the topics' records up to date.
    pub fn mirror_catalogue(&self) {
        let mut inside = self.inside.lock();
        inside.replica.catalogue = inside.present.catalogue.clone();
    }

    /// Brings the whole replica up to date.
    pub fn mirror_all(&self) {
        let mut inside = self.inside.lock();
        self.mem.mirror_all();
        inside.replica = inside.present.clone();
    }

    /// The replica takes over: what it had not heard of is lost, and so is what was on its way to the old one.
    pub fn fail_over(&self) {
        let mut inside = self.inside.lock();
        inside.generation += 1;
        self.mem.fail_over_all();
        inside.present = inside.replica.clone();
    }

    /// It comes back with nothing, and so does its replica.
    pub fn comes_back_empty(&self) {
        let mut inside = self.inside.lock();
        inside.generation += 1;
        inside.present = Beside::default();
        inside.replica = Beside::default();
    }
}
