//! The embedded store: what a move left when the process ended is there when it starts again.

use std::path::Path;
use std::sync::Arc;

use duetime_core::RoutingAuthority;
use duetime_core::resize_store::{ApplyOutcome, Lookup};
use duetime_core::store::Edited;
use duetime_store_embedded::EmbeddedStore;

use super::moving::MovingTopic;

fn open(folder: &Path) -> Arc<EmbeddedStore> {
    EmbeddedStore::open(folder, Default::default()).unwrap()
}

#[tokio::test]
async fn a_move_goes_on_after_a_restart_at_every_step() {
    let folder = tempfile::tempdir().unwrap();
    let moving = MovingTopic::begin(open(folder.path())).await;
    moving.enqueue(0, &["a", "b", "stays"]).await;
    let batch = moving.take(&["a", "b"]).await.unwrap().unwrap();
    let (topic, routing) = (moving.topic.clone(), moving.routing.clone());
    drop(moving);

    let moving = MovingTopic { store: open(folder.path()), topic: topic.clone(), routing: routing.clone() };
    assert_eq!(moving.store.routing(&topic).await.unwrap().unwrap().routing, routing);
    assert_eq!(moving.store.outbox(&moving.shard(0)).await.unwrap().as_ref(), Some(&batch));
    assert_eq!(moving.cancel_old(&["a", "stays"]).await.unwrap(), [Lookup::Frozen, Lookup::Found(Edited::Cancelled)]);
    assert!(matches!(moving.put(&batch).await.unwrap(), ApplyOutcome::Done { fresh: 2, .. }));
    drop(moving);

    let moving = MovingTopic { store: open(folder.path()), topic, routing };
    assert_eq!(moving.store.last_applied_batch(&moving.shard(4), 0).await.unwrap(), Some(batch.name));
    assert!(matches!(moving.put(&batch).await.unwrap(), ApplyOutcome::Done { fresh: 0, .. }));
    assert!(moving.store.discard_batch(&moving.shard(0), batch.name.nonce).await.unwrap());
    assert_eq!(moving.claim(4).await.len(), 2);
    moving.enqueue(0, &["c"]).await;
    assert_eq!(moving.take(&["c"]).await.unwrap().unwrap().name.number, batch.name.number + 1);
}

#[tokio::test]
async fn a_topic_begun_to_grow_opens_before_its_new_shards_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let moving = MovingTopic::begin(store.clone()).await;
    let seen = store.routing(&moving.topic).await.unwrap().unwrap();
    let mut next = seen.clone();
    next.routing.epoch += 1;
    (next.routing.previous, next.routing.shards) = (5, 9);
    store.swap_routing(&moving.topic, &seen, &next).await.unwrap();
    let topic = moving.topic.clone();
    drop((store, moving));
    let store = open(folder.path());
    assert_eq!(store.routing(&topic).await.unwrap(), Some(next));
}
