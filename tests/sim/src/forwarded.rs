//! The end of a world of letters: those of a topic are forwarded to another one by all nodes at once, while nodes stop, the
//! network fails and the shard count changes, and what comes there ends there. No letter is lost, and none comes twice.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::{MessageId, MessageState, ShardCount, TopicConfig, dead_origin};
use duetime_router::TopicChange;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::clients::Client;
use crate::world::{Node, ORDERS, VISIBILITY, World, drafts, every_shard, orders};

/// Letters that are forwarded.
const LETTERS: usize = 40;
/// Shards there are at most.
const SHARDS_MAX: u64 = 4;
/// In which each node looks at its letters once more, or twice.
const LOOKS: Duration = Duration::from_secs(25);

fn forwarding(shards: u32) -> TopicChange {
    TopicChange::whole(&TopicConfig {
        shards: ShardCount::Fixed(shards),
        visibility_timeout: VISIBILITY,
        dead_to: Some(drafts()),
        ..TopicConfig::default()
    })
}

/// Has letters of the topic forwarded to `elsewhere`; the shard count in the end.
pub async fn live(world: &Arc<World>, nodes: &Arc<Vec<Node>>, client: &Client, elsewhere: &Client) -> u32 {
    let mut faults = JoinSet::new();
    faults.spawn(crate::faults::direct(world.clone(), nodes.clone(), client.shared.clone()));
    let ids: Vec<_> = (0..LETTERS).map(|n| MessageId::new(&format!("forwarded-{n}")).expect("a good id")).collect();
    client.die(ids.clone()).await;
    let last = 1 + u32::try_from(world.dice.below(SHARDS_MAX)).expect("few");
    world.request(&nodes[0], &orders(), last).await;
    while nodes[0].door.catalog.put(&orders(), &forwarding(last)).await.is_err() {
        world.dice.pause(500).await;
    }
    let every_shard = Arc::new(every_shard());
    nodes.iter().for_each(|node| drop(node.owned.send_replace(every_shard.clone())));
    let mut ended = JoinSet::new();
    for id in ids.clone() {
        let (client, elsewhere) = (client.clone(), elsewhere.clone());
        ended.spawn(async move {
            let began = Instant::now();
            // It may be in both for as long as whoever forwards it is stopped, or hears nothing.
            let found = loop {
                if let Some(found) = elsewhere.there(&id).await {
                    break found;
                }
                elsewhere.again(began, "a letter that is forwarded").await;
            };
            let says = dead_origin::of(&found.headers) == Some(ORDERS) && found.state == MessageState::Scheduled;
            assert!(says, "I1: it does not say where it died: {found:?}");
            if elsewhere.dice().permille(700) {
                // It ends before, perhaps, its letter does.
                elsewhere.end(&id).await;
            }
            while client.there(&id).await.is_some() {
                client.again(began, "the end of a letter that was forwarded").await;
            }
            elsewhere.end(&id).await;
        });
    }
    while let Some(one) = ended.join_next().await {
        crate::world::passed_on(one);
    }
    while let Some(one) = faults.join_next().await {
        crate::world::passed_on(one);
    }
    sleep(LOOKS).await;
    for id in &ids {
        let left = (client.there(id).await, elsewhere.there(id).await);
        assert!(left == (None, None), "I15: {id} was forwarded again after it had ended: {left:?}");
    }
    last
}
