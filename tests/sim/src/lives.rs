//! A topic that is deleted and created again, by nodes that stop in the middle of it.
//!
//! Each life has ids of its own, and one that all have. What is left of them goes with their topic: they are noted as
//! cancelled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::MessageId;
use duetime_testkit::history::{Change, What};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::clients::Client;
use crate::faults::stop;
use crate::masters::Masters;
use crate::same_id::AGAIN;
use crate::world::{Node, World, drafts, wanted};

/// Lives of the topic in one world.
const LIVES: u64 = 4;
/// Lives of a producer's ids in one of the topic's.
const IDS: u64 = 4;
/// After this another node takes a creation for abandoned.
const TAKEN_OVER_AFTER: Duration = Duration::from_millis(10_050);

/// Waits until the records of the topics show this, for a short while.
async fn until(world: &World, shows: impl Fn(&Masters) -> bool) -> bool {
    for _ in 0..200 {
        if shows(&world.masters) {
            return true;
        }
        sleep(Duration::from_millis(1)).await;
    }
    false
}

/// Creates, uses and deletes the topic, again and again.
pub async fn live(world: Arc<World>, nodes: Arc<Vec<Node>>, client: Client) {
    let dice = world.dice.clone();
    let mut late = JoinSet::new();
    let mut earlier = None;
    for life in 0..LIVES {
        create(&world, &nodes, &client, &mut late).await;
        client.meet_again(&mut earlier).await;
        let mut producers = JoinSet::new();
        for n in 0..2 {
            producers.spawn(client.clone().produce(format!("l{life}-p{n}"), IDS));
        }
        if dice.permille(500) {
            let node = &nodes[usize::try_from(dice.below(nodes.len() as u64)).expect("few")];
            world.request_once(node, &drafts(), 1 + u32::try_from(dice.below(5)).expect("few")).await;
        }
        while let Some(ended) = producers.join_next().await {
            ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        }
        // Whoever is still at the last creation or deletion is waited for: the next one is not his.
        while let Some(ended) = late.join_next().await {
            ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        }
        if life + 1 < LIVES {
            if world.trouble.stops && nodes.len() > 1 && dice.permille(300) {
                // A node stops while it informs the shards of a change, and their topic is deleted meanwhile.
                world.request_once(&nodes[0], &drafts(), 6 + u32::try_from(dice.below(3)).expect("few")).await;
                dice.pause(60).await;
                let (stops, nodes) = (world.clone(), nodes.clone());
                late.spawn(async move { stop(&stops, &nodes[0]).await });
            }
            delete(&world, &nodes, &client, life, &mut late).await;
        }
    }
}

async fn create(world: &Arc<World>, nodes: &Arc<Vec<Node>>, client: &Client, late: &mut JoinSet<()>) {
    let dice = &world.dice;
    let shards = 1 + u32::try_from(dice.below(5)).expect("few");
    if world.trouble.stops && nodes.len() > 1 && dice.permille(400) {
        let (world, nodes) = (world.clone(), nodes.clone());
        let (catalog, change) = (nodes[0].door.catalog.clone(), wanted(shards));
        late.spawn(async move {
            while catalog.put(&drafts(), &change).await.is_err() {
                sleep(Duration::from_millis(300)).await;
            }
        });
        if until(&world, |masters| masters.is_creating(&drafts())).await {
            world.dice.pause(10).await;
            let stops = world.clone();
            late.spawn(async move { stop(&stops, &nodes[0]).await });
            sleep(TAKEN_OVER_AFTER).await;
        }
    }
    let began = Instant::now();
    while client.door().await.catalog.put(&drafts(), &wanted(shards)).await.is_err() {
        client.again(began, "a creation").await;
    }
}

async fn delete(world: &Arc<World>, nodes: &Arc<Vec<Node>>, client: &Client, life: u64, late: &mut JoinSet<()>) {
    let stem = format!("l{life}-");
    let is_of = |id: &str| id.starts_with(&stem) || id == AGAIN;
    let events = world.history.events();
    let ids: BTreeSet<&str> = events.iter().map(|event| event.id.as_str()).filter(|id| is_of(id)).collect();
    let ids: Vec<MessageId> = ids.into_iter().map(|id| MessageId::new(id).expect("a good id")).collect();
    ids.iter().for_each(|id| client.note(id, What::Invoked(Change::Cancel)));
    if world.trouble.stops && nodes.len() > 1 && world.dice.permille(400) {
        let catalog = nodes[0].door.catalog.clone();
        late.spawn(async move {
            let _ = catalog.delete(&drafts(), duetime_core::Deletion::Force).await;
        });
        let begun = until(world, |masters| !masters.has_topic(&drafts())).await;
        if begun {
            world.dice.pause(10).await;
            let (stops, nodes) = (world.clone(), nodes.clone());
            late.spawn(async move { stop(&stops, &nodes[0]).await });
            sleep(Duration::from_millis(50)).await;
        } else {
            // It would be free to delete the next life: it has not looked yet.
            while let Some(ended) = late.join_next().await {
                ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
            }
        }
    }
    let began = Instant::now();
    loop {
        let node = &nodes[nodes.len() - 1];
        match node.door.catalog.delete(&drafts(), duetime_core::Deletion::Force).await {
            Ok(_) => break,
            Err(_) => client.again(began, "a deletion").await,
        }
    }
    // A claim made before may still be on its way to its consumer.
    ids.iter().for_each(|id| client.answered(id, "in_flight"));
}
