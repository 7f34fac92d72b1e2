//! A world in which messages are removed to be handed out, as at most once, over a network that is cut for longer than
//! a claim holds: a removal that is sent again finds the message gone, and another consumer may have it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_core::store::{ClaimedMessage, Edit, Settle, Settled, Settlement};
use duetime_core::{Clock as _, MessageId, OnConflict};
use duetime_testkit::at_home::SettledAtHome as _;
use duetime_testkit::history::{Change, FaultKind, What, digest};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::clients::Client;
use crate::mutation::Mutation;
use crate::world::{Node, World};

const MESSAGES: u32 = 60;
/// One falls due after the other.
const APART: Duration = Duration::from_millis(300);
const CONSUMERS: usize = 4;
/// How long a claim holds.
const HELD: Duration = Duration::from_secs(2);
const CLAIMS_APART_MS_MAX: u64 = 60;
/// Longest cut between a node and a master, and how often some are cut.
const CUT_MS_MAX: u64 = 4_500;
const CUTS: usize = 10;
/// So many of the nodes are cut off, in a thousand.
const CUT_PERMILLE: u64 = 400;
/// Claims that were lost run out.
const AFTERMATH: Duration = Duration::from_secs(10);

/// Has messages removed by several consumers.
pub async fn live(world: &Arc<World>, nodes: &Arc<Vec<Node>>, client: &Client) {
    let ids: Vec<MessageId> = (0..MESSAGES).map(|n| MessageId::new(&format!("once-{n}")).expect("a good id")).collect();
    for (id, n) in ids.iter().zip(0..) {
        client.enqueue(id, APART * n, false, "first", OnConflict::Reject).await;
    }
    let (stop, mut all) = (Arc::<AtomicBool>::default(), JoinSet::new());
    for _ in 0..CONSUMERS {
        all.spawn(client.clone().remove_due(stop.clone()));
    }
    world.history.fault_begins(FaultKind::NetworkFailed);
    for _ in 0..CUTS {
        for node in nodes.iter().filter(|_| world.dice.permille(CUT_PERMILLE)) {
            let master = usize::try_from(world.dice.below(world.masters.count() as u64)).expect("few");
            let until = Instant::now() + Duration::from_millis(world.dice.below(CUT_MS_MAX));
            world.weather.cut(node.door.net.number, master, until);
        }
        world.dice.pause(CUT_MS_MAX).await;
    }
    world.weather.cleared().await;
    sleep(AFTERMATH).await;
    world.history.fault_ends(FaultKind::NetworkFailed);
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = all.join_next().await {
        crate::world::passed_on(ended);
    }
    for id in &ids {
        client.edit_all(&[(Change::Cancel, Edit::Cancel(id.clone()))]).await;
    }
}

impl Client {
    /// Claims what is due, and removes each message to hand it out.
    async fn remove_due(self, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::Relaxed) {
            self.dice().pause(CLAIMS_APART_MS_MAX).await;
            let Some(record) = self.door().await.catalog.get(&self.topic) else { continue };
            for index in 0..record.routing.reach() {
                let shard = record.routing.shard(&self.topic, index);
                let request = self.request(2, HELD);
                let Some(claim) = self.claim(&shard, &request).await else { continue };
                // As a node does: what comes after the end of its claim is another consumer's.
                let is_held = |message: &ClaimedMessage| self.shared.clock.now() < message.score.visible_at();
                for message in claim.messages.into_iter().filter(is_held) {
                    let payload = digest(&message.payload);
                    self.note(&message.id, What::Handed { attempt: message.attempt, payload, until_ms: None });
                    let acks = self.shared.left_out.is_some_and(Mutation::is_removal_by_ack);
                    let action = if acks { Settlement::Ack } else { Settlement::Remove };
                    let settle = Settle { id: message.id.clone(), score: message.score, action };
                    // As a node does: what has no answer is given to nobody.
                    let settled = self.door().await.routed.settle(&shard, self.shared.clock.now(), &[settle]).await;
                    if settled.is_ok_and(|settled| settled[0] == Settled::Ok) {
                        self.hand_out_once(&message);
                    }
                }
            }
        }
    }
}
