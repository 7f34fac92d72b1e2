//! A world in which messages die and are redriven all the time while the shard count changes, again and again: no change is
//! done before they are at home.
//!
//! A look at a shard sees the living first, then the dead: what lived again between the two is in neither.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_core::store::{DeadAction, Edit, Settle, Settled, Settlement};
use duetime_core::{Clock as _, MessageId, OnConflict, Shard};
use duetime_testkit::at_home::SettledAtHome as _;
use duetime_testkit::history::{Change, Outcome, What, digest};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::clients::Client;
use crate::world::{Node, VISIBILITY, World, orders};

/// Ids that die and live.
const MESSAGES: usize = 6;
/// Changes of the shard count.
const CHANGES: u64 = 12;
/// Shards there are at most.
const SHARDS_MAX: u64 = 4;
/// Longest pause between two claims, and between two redrives: about as long as a call takes.
const PAUSE_MS_MAX: u64 = 6;
/// Why they die.
const REASON: &str = "refused for good";

/// Letters that nobody redrives at present.
type Dead = Arc<Mutex<BTreeSet<MessageId>>>;

/// Has messages die and live, and changes the shard count meanwhile.
pub async fn live(world: &Arc<World>, nodes: &Arc<Vec<Node>>, client: &Client) -> u32 {
    let ids: Vec<MessageId> = (0..MESSAGES).map(|n| MessageId::new(&format!("dies-{n}")).expect("a good id")).collect();
    client.enqueue_all(&ids, Duration::ZERO, false, "first", OnConflict::Reject).await;
    let (dead, stop, mut all) = (Dead::default(), Arc::<AtomicBool>::default(), JoinSet::new());
    all.spawn(client.clone().bury(dead.clone(), stop.clone()));
    for _ in 0..2 {
        all.spawn(client.clone().redrive(dead.clone(), stop.clone()));
    }
    let mut last = 1;
    for _ in 0..CHANGES {
        let others = (1..=SHARDS_MAX).filter(|shards| *shards != u64::from(last)).collect::<Vec<_>>();
        last = u32::try_from(others[usize::try_from(world.dice.below(SHARDS_MAX - 1)).expect("few")]).expect("few");
        world.request(&nodes[0], &orders(), last).await;
        client.changed_to(last).await;
        client.are_found(&ids).await;
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = all.join_next().await {
        crate::world::passed_on(ended);
    }
    for id in &ids {
        client.edit_all(&[(Change::Cancel, Edit::Cancel(id.clone()))]).await;
    }
    last
}

impl Client {
    /// Waits until a node has learnt that the change is done.
    async fn changed_to(&self, shards: u32) {
        let began = Instant::now();
        let is_done = |routing: &duetime_core::Routing| !routing.is_moving() && routing.shards == shards;
        while !self.door().await.catalog.get(&self.topic).is_some_and(|record| is_done(&record.routing)) {
            self.again(began, "a change of the shard count").await;
        }
    }

    /// Looks for messages that nobody removes.
    async fn are_found(&self, ids: &[MessageId]) {
        for id in ids {
            let began = Instant::now();
            let found = loop {
                match self.door().await.router.get(&self.topic, vec![id.clone()]).await.pop() {
                    Some(Ok((_, found))) => break found,
                    _ => self.again(began, "a look for a message").await,
                }
            };
            assert!(found.is_some(), "I11: a change is done, and {id} is not at home");
        }
    }

    /// Claims whatever is due, and refuses it for good.
    async fn bury(self, dead: Dead, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::Relaxed) {
            self.dice().pause(PAUSE_MS_MAX).await;
            let Some(record) = self.door().await.catalog.get(&self.topic) else { continue };
            for index in 0..record.routing.reach() {
                self.bury_due(&record.routing.shard(&self.topic, index), &dead).await;
            }
        }
    }

    async fn bury_due(&self, shard: &Shard, dead: &Dead) {
        let request = self.request(MESSAGES, VISIBILITY);
        let Some(claim) = self.claim(shard, &request).await else { return };
        for message in claim.messages {
            let (id, attempt) = (message.id, message.attempt);
            self.note(&id, What::Handed { attempt, payload: digest(&message.payload), until_ms: None });
            let action = Settlement::Bury(REASON.to_owned());
            let settle = Settle { id: id.clone(), score: message.score, action };
            let settled = self.door().await.routed.settle(shard, self.shared.clock.now(), &[settle]).await;
            if settled.is_ok_and(|settled| settled[0] == Settled::Ok) {
                self.note(&id, What::Settled { attempt, outcome: Outcome::Rejected });
                self.note(&id, What::Dead { attempts: attempt, reason: REASON.to_owned() });
                dead.lock().insert(id);
            }
        }
    }

    /// Has dead letters live again.
    async fn redrive(self, dead: Dead, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::Relaxed) {
            self.dice().pause(PAUSE_MS_MAX).await;
            let Some(id) = dead.lock().pop_first() else { continue };
            self.note(&id, What::Invoked(Change::Redrive));
            let (began, mut repeated) = (Instant::now(), false);
            loop {
                let door = self.door().await;
                let settled =
                    door.router.dead.settle(&self.topic, std::slice::from_ref(&id), DeadAction::Redrive).await;
                match settled.done[0] {
                    Ok(done) => {
                        assert!(done || repeated, "{id}: a dead letter is said to be none");
                        break;
                    }
                    Err(_) => {
                        repeated = true;
                        self.again(began, "a redrive").await;
                    }
                }
            }
            self.answered(&id, "redriven");
        }
    }
}
