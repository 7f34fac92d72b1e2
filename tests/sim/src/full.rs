//! A world whose masters are full while a shard count changes: what is on its way between shards can be cancelled all
//! the same.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::{MessageId, OnConflict};
use tokio::time::Instant;

use crate::clients::{Client, FAR};
use crate::world::{Node, World, orders};

/// Messages that are cancelled.
const MESSAGES: usize = 60;
/// Longest time from the begin of the change until the masters are full.
const CHANGED_FOR_MS_MAX: u64 = 120;
/// A cancel is answered within this.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// Enqueues, changes, fills the masters, and cancels everything.
pub async fn live(world: &Arc<World>, nodes: &Arc<Vec<Node>>, client: &Client) -> u32 {
    let ids: Vec<MessageId> = (0..MESSAGES).map(|n| MessageId::new(&format!("kept-{n}")).expect("a good id")).collect();
    client.enqueue_all(&ids, FAR, false, "first", OnConflict::Reject).await;
    world.masters.replicate();
    let last = 7 + u32::try_from(world.dice.below(2)).expect("few");
    world.request(&nodes[0], &orders(), last).await;
    world.dice.pause(CHANGED_FOR_MS_MAX).await;
    world.masters.fill(true);
    for id in &ids {
        let began = Instant::now();
        client.cancel(id).await;
        let took = began.elapsed();
        assert!(took < ANSWERED_WITHIN, "the cancel of {id} was answered after {took:?}, while the masters were full");
    }
    world.masters.fill(false);
    last
}
