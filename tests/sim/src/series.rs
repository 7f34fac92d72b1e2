//! A world in which messages come again by a rule, while nodes stop, the network fails, masters fail over and the shard
//! count changes.
//!
//! An id lives as long as its series, so the history, which knows one delivery of an id, is not asked: who consumes
//! writes down which turn of which series it is handed, and judges at once. No turn is lost, none comes after it was
//! answered as done, none before its time, none out of order, and none after an answered cancel. Only where a failover
//! took back what was answered may a turn come again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_core::store::{ClaimedMessage, Edit, Edited, Enqueue, EnqueueOutcome, Settle, Settled, Settlement};
use duetime_core::{
    Clock as _, Due, End, Headers, MessageId, Nonce, OnConflict, Receipt, Repeat, RepeatAsk, Shard, Successor,
    Timestamp,
};
use duetime_router::{SettleAnswer, SettleAsk};
use duetime_testkit::at_home::SettledAtHome as _;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::clients::Client;
use crate::mutation::Mutation;
use crate::world::{Node, VISIBILITY, World, orders};

/// Series at once.
const SERIES: u64 = 6;
/// Who consumes.
const CONSUMERS: usize = 3;
/// Changes of the shard count.
const CHANGES: u64 = 4;
/// Shards there are at most.
const SHARDS_MAX: u64 = 4;
/// Time between two changes.
const CALM_MS_MAX: u64 = 12_000;
/// Longest distance between two turns.
const EVERY_S_MAX: u64 = 4;
/// Longest pause between two claims.
const PAUSE_MS_MAX: u64 = 200;
/// Longest a consumer holds a message: more than it is hidden for, so that some acks come too late.
const HELD_MS_MAX: u64 = 12_000;
const CLAIMED_MAX: usize = 8;

/// What is known of one series.
#[derive(Debug)]
struct Ledger {
    start: Timestamp,
    every: Duration,
    /// The last turn that was handed out.
    last: Option<u64>,
    /// Acks of that turn: how many are under way, and when the last one ended.
    acking: u32,
    acked_until: Option<Timestamp>,
    /// An ack of that turn was answered as done, when there had been so many upsets.
    done: Option<u64>,
    /// Turns that were answered as done.
    turns: u64,
    /// When a cancel was answered.
    cancelled: Option<Timestamp>,
}

type Ledgers = Arc<Mutex<BTreeMap<MessageId, Ledger>>>;

impl Ledger {
    fn time(&self, turn: u64) -> Timestamp {
        self.start.plus(self.every * u32::try_from(turn).expect("few turns"))
    }

    /// Judges a turn that is handed out by a claim that was sent at `sent`.
    fn handed(&mut self, message: &ClaimedMessage, (sent, now): (Timestamp, Timestamp), upsets: u64) {
        let id = &message.id;
        let at = Repeat::of(&message.headers).expect("it is one of a series").at;
        let into = at.since(self.start).as_millis();
        assert!(at >= self.start && into.is_multiple_of(self.every.as_millis()), "I15: {id} is due between its turns");
        assert_eq!(message.due_at, at, "I15: {id} is due at another time than that of its turn");
        assert!(now >= at, "I2: {id} comes {:?} before its time", at.since(now));
        assert!(self.cancelled.is_none_or(|cancelled| sent < cancelled), "I3: {id} comes after it was cancelled");
        let turn = u64::try_from(into / self.every.as_millis()).expect("few turns");
        let is_undone = self.done.is_some_and(|then| then != upsets);
        match self.last {
            Some(last) if turn == last => {
                assert!(self.done.is_none() || is_undone, "I4: turn {turn} of {id} comes after it was done");
                return;
            }
            Some(last) if turn < last => {
                assert!(upsets > 0, "I4: turn {turn} of {id} comes after turn {last}");
            }
            Some(last) => {
                // Turns that passed before the ack are left out; those after it are not.
                let until = if self.acking > 0 { Some(now) } else { self.acked_until };
                assert!(until.is_some() || upsets > 0, "I1: turn {turn} of {id} comes, and nobody acked turn {last}");
                let is_missed = until.is_none_or(|until| self.time(turn - 1) <= until) || turn == last + 1;
                assert!(is_missed || upsets > 0, "I1: between turns {last} and {turn} of {id} one is lost");
            }
            None => assert!(turn == 0, "I1: the first turn of {id} is lost: turn {turn} comes first"),
        }
        (self.last, self.acking, self.acked_until, self.done) = (Some(turn), 0, None, None);
    }
}

/// Has series go on, and changes the shard count meanwhile; the shard count in the end.
pub async fn live(world: &Arc<World>, nodes: &Arc<Vec<Node>>, client: &Client) -> u32 {
    let (ledgers, stop) = (Ledgers::default(), Arc::<AtomicBool>::default());
    let (mut all, mut faults, mut replicas) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
    for n in 0..SERIES {
        client.begin(MessageId::new(&format!("series-{n}")).expect("a good id"), &ledgers).await;
    }
    for _ in 0..CONSUMERS {
        all.spawn(client.clone().take_turns(ledgers.clone(), stop.clone()));
    }
    faults.spawn(crate::faults::direct(world.clone(), nodes.clone(), client.shared.clone()));
    if world.trouble.failovers {
        replicas.spawn(crate::world::replicate(world.clone()));
    }
    let mut last = 1;
    for _ in 0..CHANGES {
        world.dice.pause(CALM_MS_MAX).await;
        last = 1 + u32::try_from(world.dice.below(SHARDS_MAX)).expect("few");
        world.request(&nodes[0], &orders(), last).await;
    }
    while let Some(ended) = faults.join_next().await {
        crate::world::passed_on(ended);
    }
    let ids: Vec<MessageId> = ledgers.lock().keys().cloned().collect();
    for id in ids {
        client.end_series(&id, &ledgers).await;
    }
    // What comes now was claimed before, or comes after its cancel.
    tokio::time::sleep(VISIBILITY * 2).await;
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = all.join_next().await {
        crate::world::passed_on(ended);
    }
    for (id, ledger) in &*ledgers.lock() {
        assert!(ledger.turns > 0, "{id} did not get on: {ledger:?}");
    }
    replicas.abort_all();
    last
}

impl Client {
    async fn begin(&self, id: MessageId, ledgers: &Ledgers) {
        let now = self.shared.clock.now();
        let every = Duration::from_secs(1 + self.dice().below(EVERY_S_MAX));
        let due = now.plus(Duration::from_millis(self.dice().below(4_000)));
        let mut item = Enqueue {
            id: id.clone(),
            due: Due::At(due),
            headers: Headers::default(),
            payload: "again".into(),
            on_conflict: OnConflict::Reject,
            nonce: Nonce(self.dice().next()),
        };
        let ask = RepeatAsk { every: Some(every), ..RepeatAsk::default() };
        item.repeat(&ask, true, now).expect("a good rule");
        let ledger = Ledger {
            start: due,
            every,
            last: None,
            acking: 0,
            acked_until: None,
            done: None,
            turns: 0,
            cancelled: None,
        };
        ledgers.lock().insert(id, ledger);
        let began = Instant::now();
        loop {
            match self.door().await.router.enqueue(&self.topic, vec![item.clone()]).await.pop() {
                Some(Ok(placed)) => {
                    return assert_eq!(placed.outcome, EnqueueOutcome::Scheduled, "a series begins once");
                }
                _ => self.again(began, "an enqueue").await,
            }
        }
    }

    /// Cancels a series until that is answered. It was there all the time.
    async fn end_series(&self, id: &MessageId, ledgers: &Ledgers) {
        let (began, mut repeated) = (Instant::now(), false);
        loop {
            let edit = vec![Edit::Cancel(id.clone())];
            let upsets = self.shared.upsets.load(Ordering::Relaxed);
            match self.door().await.router.edit(&self.topic, edit).await.pop() {
                Some(Ok(changed)) => {
                    let is_there = matches!(changed.edited, Edited::Cancelled | Edited::InFlight);
                    assert!(is_there || repeated || upsets > 0, "I1: {id} is lost: {:?}", changed.edited);
                    break;
                }
                _ => {
                    repeated = true;
                    self.again(began, "a cancel").await;
                }
            }
        }
        let now = self.shared.clock.now();
        ledgers.lock().get_mut(id).expect("it began").cancelled = Some(now);
    }

    /// Claims what is due in all shards, and settles it in all ways.
    async fn take_turns(self, ledgers: Ledgers, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::Relaxed) {
            self.dice().pause(PAUSE_MS_MAX).await;
            let Some(record) = self.door().await.catalog.get(&self.topic) else { continue };
            for index in 0..record.routing.reach() {
                let shard = record.routing.shard(&self.topic, index);
                let sent = self.shared.clock.now();
                let Some(claim) = self.claim(&shard, &self.request(CLAIMED_MAX, VISIBILITY)).await else { continue };
                let now = self.shared.clock.now();
                // As any consumer: what comes too late is thrown away.
                for message in claim.messages.iter().filter(|message| now < message.score.visible_at()) {
                    let upsets = self.shared.upsets.load(Ordering::Relaxed);
                    ledgers.lock().get_mut(&message.id).expect("it began").handed(message, (sent, now), upsets);
                }
                for message in claim.messages.iter().filter(|message| now < message.score.visible_at()) {
                    self.settle_turn(&shard, message, &ledgers).await;
                }
            }
        }
    }

    async fn settle_turn(&self, shard: &Shard, message: &ClaimedMessage, ledgers: &Ledgers) {
        match self.dice().below(20) {
            0 => return,
            1 | 2 => {
                let nack = Settlement::Nack(Duration::from_millis(self.dice().below(2_000)));
                let settle = Settle { id: message.id.clone(), score: message.score, action: nack };
                let _ = self.door().await.routed.settle(shard, self.shared.clock.now(), &[settle]).await;
                return;
            }
            3 => self.dice().pause(HELD_MS_MAX).await,
            _ => {}
        }
        let turn = {
            let mut all = ledgers.lock();
            let ledger = all.get_mut(&message.id).expect("it began");
            let turn = Repeat::of(&message.headers).expect("it is one of a series").at;
            if ledger.last.map(|last| ledger.time(last)) == Some(turn) {
                ledger.acking += 1;
            }
            turn
        };
        let (as_engine, mut is_done) = (self.dice().permille(500), false);
        for _ in 0..5 {
            let answer =
                if as_engine { self.ack_as_engine(shard, message).await } else { self.ack(shard, message).await };
            match answer {
                Some(done) => {
                    is_done = done;
                    break;
                }
                None => self.dice().pause(500).await,
            }
        }
        let (now, upsets) = (self.shared.clock.now(), self.shared.upsets.load(Ordering::Relaxed));
        let mut all = ledgers.lock();
        let ledger = all.get_mut(&message.id).expect("it began");
        if ledger.last.map(|last| ledger.time(last)) == Some(turn) {
            ledger.acking = ledger.acking.saturating_sub(1);
            ledger.acked_until = Some(now);
            if is_done {
                ledger.done = Some(upsets);
            }
        }
        ledger.turns += u64::from(is_done);
    }

    /// Acks as a consumer does; whether that was answered as done.
    async fn ack(&self, shard: &Shard, message: &ClaimedMessage) -> Option<bool> {
        let receipt = Receipt::new(&self.topic, shard.index, shard.epoch, message.id.clone(), message.score);
        let asks = vec![(receipt.of_series(true), SettleAsk::Ack)];
        let (answer, _) = self.door().await.router.settle(&self.topic, asks).await.pop()?.ok()?;
        Some(answer == SettleAnswer::Ok)
    }

    /// Acks as the engine does.
    async fn ack_as_engine(&self, shard: &Shard, message: &ClaimedMessage) -> Option<bool> {
        let now = self.shared.clock.now();
        let next = Successor::of_claimed(message, End::Delivered, now).expect("it has no end");
        if self.shared.left_out.is_some_and(Mutation::is_next_by_itself) {
            return self.ack_and_enqueue(shard, message, *next).await;
        }
        let settle = Settle { id: message.id.clone(), score: message.score, action: Settlement::Repeat(next) };
        let settled = self.door().await.routed.settle(shard, now, &[settle]).await.ok()?;
        Some(settled[0] == Settled::Ok)
    }

    /// What the protocol does not do: ends the message, and writes the next one by another call.
    async fn ack_and_enqueue(&self, shard: &Shard, message: &ClaimedMessage, next: Successor) -> Option<bool> {
        let settle = Settle { id: message.id.clone(), score: message.score, action: Settlement::Expire };
        let settled = self.door().await.routed.settle(shard, self.shared.clock.now(), &[settle]).await.ok()?;
        if settled[0] != Settled::Ok {
            return Some(false);
        }
        let Successor { due_at, nonce, headers, payload, .. } = next;
        let (id, on_conflict) = (message.id.clone(), OnConflict::Reject);
        let item = Enqueue { id, due: Due::At(due_at), headers, payload, on_conflict, nonce };
        let placed = self.door().await.router.enqueue(&self.topic, vec![item]).await.pop()?.ok()?;
        Some(placed.outcome == EnqueueOutcome::Scheduled)
    }
}
