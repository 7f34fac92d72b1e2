//! The answer to one call is lost, and the server is full when it is sent again.

use std::time::Duration;

use duetime_core::Memory;
use duetime_core::store::{Edit, Edited, StoreError};
use duetime_testkit::at_home::MessagesAtHome as _;

use super::repeats::{World, id};
use super::server::ask;
use crate::store_load::now;

#[tokio::test]
async fn what_a_server_that_is_full_since_refuses_may_have_been_done() {
    let world = World::new().await;
    world.put(&["loads the script"]).await;
    let item = [world.message("a")];
    let full = ask(&world.server, "CONFIG SET maxmemory 1");
    let (answer, _) = world.losing_and(world.store.enqueue(&world.shard, now(), &item), full).await;
    assert!(matches!(answer, Err(StoreError::Unavailable { .. })), "{answer:?}");
    assert!(world.get("a").await.is_some());
    ask(&world.server, "CONFIG SET maxmemory 0").await.unwrap();

    let shard =
        world.shard.clone().remembering(Memory { window: Duration::from_secs(3600), since: 1, watermark: false });
    let cancel = |text: &str| [Edit::Cancel(id(text))];
    let (nobody, unknown) = (cancel("nobody"), cancel("unknown"));
    assert_eq!(world.store.edit(&shard, now(), &nobody).await.unwrap(), [Edited::Unknown]);
    let full = ask(&world.server, "CONFIG SET maxmemory 1");
    let (answer, _) = world.losing_and(world.store.edit(&shard, now(), &unknown), full).await;
    assert_eq!(answer.unwrap(), [Edited::Unknown], "it was noted before the server was full");
}
