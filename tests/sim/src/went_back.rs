//! A world whose store goes back: all masters start again from a snapshot, while a shard count changes, and nodes that
//! know of the change go on. The epoch that the change had is given again.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::{Enqueue, EnqueueOutcome};
use duetime_core::{Due, Headers, MessageId, Nonce, OnConflict};
use futures::future::join_all;
use tokio::time::{Instant, sleep};

use crate::clients::{Client, Door, FAR};
use crate::draw::Dice;
use crate::judge;
use crate::world::{Node, World, orders};

/// Messages that are there all the time.
const MESSAGES: usize = 80;
/// Longest time from the begin of the change until the store goes back: before a shard knows of it, or later.
const CHANGED_FOR_MS_MAX: [u64; 2] = [120, 1_500];
/// Longest time until the shard count is asked for again.
const ASKED_AGAIN_MS_MAX: u64 = 1_500;
/// Longest stop of the node that began the change, or cut between it and the records of the topics.
const STOPPED_MS_MAX: u64 = 6_000;
/// How often somebody looks for messages meanwhile.
const LOOKS: u64 = 40;

/// Looks for all messages at one node, and enqueues them once more: each of them is there.
async fn look(door: &Door, ids: &[MessageId], dice: &Dice) {
    door.net.awake().await;
    let again = ids.iter().map(|id| Enqueue {
        id: id.clone(),
        due: Due::In(FAR),
        headers: Headers::default(),
        payload: "second".into(),
        on_conflict: OnConflict::Reject,
        nonce: Nonce(dice.next()),
    });
    for (id, placed) in ids.iter().zip(door.router.enqueue(&orders(), again.collect()).await) {
        if let Ok(placed) = placed {
            assert_eq!(placed.outcome, EnqueueOutcome::Duplicate, "I11: {id} is enqueued although it is there");
        }
    }
    for (id, found) in ids.iter().zip(door.router.get(&orders(), ids.to_vec()).await) {
        if let Ok((_, found)) = found {
            assert!(found.is_some(), "I4: {id} is said not to be there");
        }
    }
}

/// Enqueues, changes, goes back, changes to something else, and leaves what is there to the judge.
pub async fn live(world: &Arc<World>, nodes: &Arc<Vec<Node>>, client: &Client) -> u32 {
    let dice = &world.dice;
    let ids: Vec<MessageId> = (0..MESSAGES).map(|n| MessageId::new(&format!("kept-{n}")).expect("a good id")).collect();
    client.enqueue_all(&ids, FAR, false, "first", OnConflict::Reject).await;
    world.masters.replicate();
    let snapshots = world.masters.snapshots();
    let (first, second) = (&nodes[nodes.len() - 1], &nodes[0]);
    world.request_once(first, &orders(), 7 + u32::try_from(dice.below(2)).expect("few")).await;
    dice.pause(CHANGED_FOR_MS_MAX[usize::from(dice.permille(500))]).await;
    let until = Instant::now() + Duration::from_millis(dice.below(STOPPED_MS_MAX));
    match dice.below(10) {
        0..=3 => first.door.net.stop_until(until),
        // It goes on by the change that it knows: it cannot read the records of the topics.
        4..=8 => world.masters.with_topic(&orders()).into_iter().for_each(|master| {
            world.weather.cut(first.door.net.number, master, until);
        }),
        _ => {}
    }
    world.masters.start_again_from(&snapshots);
    dice.pause(ASKED_AGAIN_MS_MAX).await;
    let last = 1 + u32::try_from(dice.below(6)).expect("few");
    world.request(second, &orders(), last).await;
    for _ in 0..LOOKS {
        dice.pause(200).await;
        join_all(client.shared.doors.iter().map(|door| look(door, &ids, dice))).await;
    }
    let observer = world.observer().await;
    // A change that was forgotten may have taken the place of the one that was asked for.
    for _ in 0..20 {
        if judge::is_at_rest(world, &observer, last).await {
            break;
        }
        sleep(Duration::from_secs(15)).await;
        world.request(second, &orders(), last).await;
    }
    last
}
