//! Topics that somebody deletes without force while others put messages into them: one of the two is refused.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use duetime_core::store::Enqueue;
use duetime_core::{Clock as _, Deletion, Due, Headers, MessageId, Nonce, OnConflict, StoreError, TopicName};
use duetime_router::TopicCounts;
use tokio::time::Instant;

use crate::clients::{Client, FAR};
use crate::mutation::Mutation;
use crate::world::{Node, World, wanted};

/// Topics of one world.
const TOPICS: u64 = 3;
/// Enqueues beside one deletion.
const PUTS: u64 = 6;
/// Longest time before each of them, and before the deletion.
const BEFORE_MS_MAX: u64 = 40;

/// Creates topics, and deletes them beside enqueues.
pub async fn delete_beside_enqueues(world: Arc<World>, nodes: Arc<Vec<Node>>, client: Client) {
    let dice = &world.dice;
    for n in 0..TOPICS {
        dice.pause(8_000).await;
        let topic = TopicName::new(&format!("emptied-{n}")).expect("a good name");
        let began = Instant::now();
        while client
            .door()
            .await
            .catalog
            .put(&topic, &wanted(1 + u32::try_from(dice.below(4)).expect("few")))
            .await
            .is_err()
        {
            client.again(began, "a creation").await;
        }
        // Messages may be on their way between shards.
        if dice.permille(500) {
            let node = &nodes[usize::try_from(dice.below(nodes.len() as u64)).expect("few")];
            world.request_once(node, &topic, 1 + u32::try_from(dice.below(6)).expect("few")).await;
        }
        let upsets = client.shared.upsets.load(Ordering::Relaxed);
        let putting = futures::future::join_all((0..PUTS).map(|n| put(&client, &topic, n)));
        let deleting = async {
            dice.pause(BEFORE_MS_MAX).await;
            let node = &nodes[usize::try_from(dice.below(nodes.len() as u64)).expect("few")];
            delete(&client, node, &topic).await
        };
        let (put, deleted) = tokio::join!(putting, deleting);
        let calm = upsets == client.shared.upsets.load(Ordering::Relaxed);
        let acknowledged = put.into_iter().filter(|is| *is).count();
        assert!(
            !(calm && acknowledged > 0 && matches!(deleted, Ok(true))),
            "I1: {topic} was deleted without force, and {acknowledged} of its enqueues acknowledged"
        );
        let began = Instant::now();
        while client.door().await.catalog.delete(&topic, Deletion::Force).await.is_err() {
            client.again(began, "a deletion").await;
        }
    }
}

/// Deletes the topic if it is empty; true if it did.
async fn delete(client: &Client, node: &Node, topic: &TopicName) -> Result<bool, StoreError> {
    if !client.shared.left_out.is_some_and(Mutation::is_deletion_by_counts) {
        return node.door.catalog.delete(topic, Deletion::IfEmpty).await;
    }
    let is_empty = |counts: &TopicCounts| counts.total.scheduled + counts.total.in_flight + counts.total.dead == 0;
    // What is on its way between shards is not among these.
    match node.door.router.counter.count(topic).await {
        Ok(counts) if is_empty(&counts) => node.door.catalog.delete(topic, Deletion::Force).await,
        _ => Ok(false),
    }
}

/// Enqueues one message; true if it was acknowledged.
async fn put(client: &Client, topic: &TopicName, n: u64) -> bool {
    client.dice().pause(BEFORE_MS_MAX).await;
    let item = Enqueue {
        id: MessageId::new(&format!("put-{n}")).expect("a good id"),
        due: Due::At(client.shared.clock.now().plus(FAR + Duration::from_secs(n))),
        headers: Headers::default(),
        payload: "put".to_owned().into(),
        on_conflict: OnConflict::Reject,
        nonce: Nonce(client.dice().next()),
    };
    let answer = client.door().await.router.enqueue(topic, vec![item]).await.pop();
    matches!(answer, Some(Ok(_)))
}
