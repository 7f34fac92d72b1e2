//! Cancels of unknown ids, which are noted where a topic remembers: how many there may be, and where there is no room.

use std::time::Duration;

use duetime_core::limits::NOTES_MAX;
use duetime_core::store::{Edit, Edited, EnqueueOutcome};
use duetime_core::{Memory, Shard};
use duetime_testkit::at_home::MessagesAtHome as _;
use duetime_testkit::wait::until;

use crate::redis_faults::server::{ask, connection};

use super::by_hand::{World, id, message, now};

/// Where the count of a generation begins in the ring of `meta`: since, the generation, and four beginnings come before.
const NOTES_AT: usize = 4 + 1 + 4 * 8;

fn remembering(world: &World, window: Duration) -> Shard {
    world.shard.clone().remembering(Memory { window, since: 1, watermark: false })
}

async fn cancel(world: &World, shard: &Shard, texts: &[&str]) -> Vec<Edited> {
    let edits: Vec<Edit> = texts.iter().map(|text| Edit::Cancel(id(text))).collect();
    world.store.edit(shard, now(), &edits).await.unwrap()
}

async fn scheduled(world: &World, shard: &Shard, text: &str) -> EnqueueOutcome {
    world.store.enqueue(shard, now(), &[message(text)]).await.unwrap()[0].outcome
}

/// The field of meta with the ring of generations.
async fn ring(world: &World) -> Vec<u8> {
    let mut get = redis::cmd("HGET");
    get.arg(format!("{}:meta", world.key)).arg("past");
    get.query_async(&mut connection(&world.server).await.unwrap()).await.unwrap()
}

fn notes(ring: &[u8], generation: usize) -> u32 {
    let at = NOTES_AT + 4 * generation;
    u32::from_be_bytes(ring[at..at + 4].try_into().unwrap())
}

async fn set_notes(world: &World, notes: u32) {
    let mut ring = ring(world).await;
    ring[NOTES_AT..NOTES_AT + 4].copy_from_slice(&notes.to_be_bytes());
    let mut set = redis::cmd("HSET");
    set.arg(format!("{}:meta", world.key)).arg("past").arg(ring);
    let _: i64 = set.query_async(&mut connection(&world.server).await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_full_server_cancels_what_is_there_and_notes_nothing() {
    let world = World::new().await;
    let shard = remembering(&world, Duration::from_secs(3600));
    world.put(&["a", "b"]).await;
    ask(&world.server, "CONFIG SET maxmemory 1").await.unwrap();
    assert_eq!(cancel(&world, &shard, &["x", "a", "y"]).await, [Edited::Full, Edited::Cancelled, Edited::Full]);
    assert_eq!(cancel(&world, &shard, &["b"]).await, [Edited::Cancelled]);
    assert!(matches!(cancel(&world, &shard, &["b"]).await[..], [Edited::Gone(_)]), "it is remembered all the same");
    // Nothing is to be noted in one that does not remember.
    assert_eq!(cancel(&world, &world.shard, &["x"]).await, [Edited::Unknown]);
    ask(&world.server, "CONFIG SET maxmemory 0").await.unwrap();
    assert_eq!(scheduled(&world, &shard, "x").await, EnqueueOutcome::Scheduled);
    assert_eq!(cancel(&world, &shard, &["y"]).await, [Edited::Unknown]);
    assert_eq!(scheduled(&world, &shard, "y").await, EnqueueOutcome::CancelledBefore);
}

#[tokio::test]
async fn a_shard_that_has_as_many_notes_as_it_may_refuses_more_until_they_are_over() {
    const WINDOW: Duration = Duration::from_secs(3);
    let world = World::new().await;
    let shard = remembering(&world, WINDOW);
    world.put(&["a"]).await;
    assert_eq!(cancel(&world, &shard, &["x", "y", "x"]).await, [Edited::Unknown; 3]);
    assert_eq!(cancel(&world, &shard, &["x"]).await, [Edited::Unknown]);
    assert_eq!(notes(&ring(&world).await, 0), 2, "each id once");
    set_notes(&world, NOTES_MAX - 1).await;
    assert_eq!(cancel(&world, &shard, &["p", "q", "a"]).await, [Edited::Unknown, Edited::Full, Edited::Cancelled]);
    assert_eq!(scheduled(&world, &shard, "q").await, EnqueueOutcome::Scheduled);
    assert_eq!(scheduled(&world, &shard, "p").await, EnqueueOutcome::CancelledBefore);
    // Nothing ends meanwhile; refused cancels alone are enough for what is there to grow old.
    let mut refused = 0;
    let is_noted = async || {
        let answers = cancel(&world, &shard, &["z"]).await;
        refused += usize::from(answers == [Edited::Full]);
        (answers == [Edited::Unknown]).then_some(())
    };
    until(WINDOW * 4, "the notes are over", is_noted).await;
    assert!(refused > 5, "{refused}");
    assert_eq!(scheduled(&world, &shard, "z").await, EnqueueOutcome::CancelledBefore);
}

#[tokio::test]
async fn a_ring_of_a_version_without_counts_is_read_and_completed() {
    let world = World::new().await;
    let shard = remembering(&world, Duration::from_secs(3600));
    assert_eq!(cancel(&world, &shard, &["x"]).await, [Edited::Unknown]);
    let (whole, key) = (ring(&world).await, format!("{}:meta", world.key));
    let mut set = redis::cmd("HSET");
    set.arg(key).arg("past").arg(&whole[..NOTES_AT]);
    let _: i64 = set.query_async(&mut connection(&world.server).await.unwrap()).await.unwrap();
    assert_eq!(scheduled(&world, &shard, "x").await, EnqueueOutcome::CancelledBefore);
    assert_eq!(cancel(&world, &shard, &["y"]).await, [Edited::Unknown]);
    let again = ring(&world).await;
    assert_eq!((&again[..NOTES_AT], notes(&again, 0)), (&whole[..NOTES_AT], 1));
}
