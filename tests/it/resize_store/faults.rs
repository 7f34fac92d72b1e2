//! A Redis that is full, whose replicas lag, that fails over, or whose answers are lost, while messages
//! move.

use duetime_testkit::at_home::MessagesAtHome as _;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::resize_store::{ApplyOutcome, DeadlineFloor, Lookup, Replication, ResizeStore as _};
use duetime_core::routing::LIFE;
use duetime_core::store::{AckWait, DeadAction, Edited, Settled, Settlement};
use duetime_core::{Role, RoutingAuthority, StoreError, TopicStore as _};
use duetime_metrics::Meters;
use duetime_store_redis::{RedisStore, RedisStoreConfig};
use duetime_testkit::servers::{RedisOptions, RedisServer};
use duetime_testkit::violation::timed_out;
use duetime_testkit::wait::{Because, let_pass};

use super::moving::{MovingTopic, id, message, now};
use crate::redis_faults::lost::LossyWay;
use crate::redis_faults::server::durable;

async fn connect(url: String, retry_for: Duration) -> Arc<RedisStore> {
    let config = RedisStoreConfig { url: url.into(), retry_for, connections: 1, ..RedisStoreConfig::default() };
    RedisStore::connect(config, Arc::new(Meters::new())).await.unwrap()
}

#[tokio::test]
async fn what_is_on_its_way_to_a_full_destination_arrives_and_nothing_more_is_taken_for_it() {
    let server = RedisServer::start().await;
    let moving = MovingTopic::begin(connect(server.url(), Duration::from_secs(2)).await).await;
    moving.enqueue(0, &["a", "b"]).await;
    let filler: Vec<_> = (0..64).map(|n| message(&format!("filler-{n}"), 4096)).collect();
    moving.store.enqueue(&moving.shard(1), now(), &filler).await.unwrap();
    moving.store.check_room(&moving.shard(4)).await.unwrap();
    let batch = moving.take(&["a", "b"]).await.unwrap().unwrap();
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = moving.store.check_room(&moving.shard(4)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Full(_)), "{refused:?}");
    // All that brings nothing new goes on.
    assert!(matches!(moving.put(&batch).await.unwrap(), ApplyOutcome::Done { fresh: 2, .. }));
    assert_eq!(moving.store.last_applied_batch(&moving.shard(4), 0).await.unwrap(), Some(batch.name));
    assert!(moving.store.discard_batch(&moving.shard(0), batch.name.nonce).await.unwrap());
    assert!(moving.get(4, "a").await.is_some());
    assert_eq!(moving.claim(4).await.len(), 2);
    moving.store.fence(&moving.topic, 0, &moving.routing, &DeadlineFloor::default()).await.unwrap();
    let scanned = moving.store.scan(&moving.shard(1), None, 10).await.unwrap();
    assert!(!scanned.found.is_empty());
}

async fn with_replica() -> (RedisServer, RedisServer) {
    let primary = RedisServer::start_with(RedisOptions {
        lines: vec!["repl-diskless-sync yes".to_owned(), "repl-diskless-sync-delay 0".to_owned()],
        ..RedisOptions::default()
    })
    .await;
    let replica =
        RedisServer::start_with(RedisOptions { replica_of: Some(primary.port()), ..RedisOptions::default() }).await;
    for _ in 0..200 {
        if primary.cli(&["INFO", "replication"]).contains("state=online") {
            return (primary, replica);
        }
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
    timed_out(format!("the replica does not follow:\n{}", replica.log()));
}

#[tokio::test]
async fn a_server_without_a_replica_says_so() {
    let server = RedisServer::start().await;
    let moving = MovingTopic::begin(connect(server.url(), Duration::from_secs(2)).await).await;
    moving.enqueue(0, &["a"]).await;
    let batch = moving.take(&["a"]).await.unwrap().unwrap();
    assert_eq!(moving.put(&batch).await.unwrap(), ApplyOutcome::Done { fresh: 1, kept: Replication::Unreplicated });
}

#[tokio::test]
async fn nothing_is_answered_before_a_replica_has_it() {
    let (primary, replica) = with_replica().await;
    let store = connect(primary.url(), Duration::from_millis(1500)).await;
    let moving = MovingTopic::begin(store.clone()).await;
    moving.enqueue(0, &["a", "b"]).await;
    let batch = moving.take(&["a"]).await.unwrap().unwrap();
    replica.pause();
    let late = |error: &StoreError| matches!(error, StoreError::Unavailable { .. });
    assert!(late(&moving.put(&batch).await.unwrap_err()));
    // What is absent may be so only here: somebody's cancel could still be undone by a failover.
    moving.store.edit(&moving.shard(0), now(), &[duetime_core::store::Edit::Cancel(id("b"))]).await.unwrap();
    assert!(late(&moving.cancel_old(&["b"]).await.unwrap_err()));
    assert!(late(&moving.store.get_at(&moving.shard(0), Role::Source, &[id("b")]).await.unwrap_err()));
    assert!(late(&moving.store.scan(&moving.shard(1), None, 10).await.unwrap_err()));
    assert!(late(&moving.store.last_applied_batch(&moving.shard(4), 0).await.unwrap_err()));
    let seen = store.routing(&moving.topic).await.unwrap().unwrap();
    let mut requested = seen.clone();
    requested.desired = Some(9);
    assert!(late(&store.swap_routing(&moving.topic, &seen, &requested).await.unwrap_err()));
    replica.resume();
    assert_eq!(moving.put(&batch).await.unwrap(), ApplyOutcome::Done { fresh: 0, kept: Replication::Replicated });
    assert_eq!(moving.cancel_old(&["b"]).await.unwrap(), [Lookup::Absent(None)]);
    assert_eq!(moving.store.last_applied_batch(&moving.shard(4), 0).await.unwrap(), Some(batch.name));
}

#[tokio::test]
async fn a_scan_that_meets_another_primary_begins_again() {
    let mut server = RedisServer::start_with(RedisOptions { append_only: true, ..RedisOptions::default() }).await;
    let moving = MovingTopic::begin(connect(server.url(), Duration::from_secs(15)).await).await;
    let many: Vec<_> = (0..400).map(|n| message(&format!("m{n}"), 10)).collect();
    moving.store.enqueue(&moving.shard(0), now(), &many[..200]).await.unwrap();
    moving.store.enqueue(&moving.shard(0), now(), &many[200..]).await.unwrap();
    let first = moving.store.scan(&moving.shard(0), None, 20).await.unwrap();
    let second = moving.store.scan(&moving.shard(0), first.next.as_ref(), 20).await.unwrap();
    assert_eq!((first.first, second.first), (true, false));
    server.stop_hard();
    server.start_again().await;
    let third = moving.store.scan(&moving.shard(0), second.next.as_ref(), 20).await.unwrap();
    assert!(third.first, "what was seen before the restart is void");
}

/// A way to Redis that loses answers.
async fn lossy() -> (RedisServer, LossyWay, MovingTopic) {
    let server = durable(&[]).await;
    let way = LossyWay::to(server.port()).await;
    let moving = MovingTopic::begin(connect(way.url.clone(), Duration::from_secs(15)).await).await;
    let_pass(Duration::from_millis(200), Because::Quiet).await;
    (server, way, moving)
}

/// The next answer is lost, on connections that are open already.
async fn lose_next(way: &LossyWay, moving: &MovingTopic) {
    for _ in 0..8 {
        moving.store.outbox(&moving.shard(2)).await.unwrap();
    }
    way.lose_next();
}

#[tokio::test]
async fn a_cancel_at_the_old_home_whose_answer_is_lost_is_answered_as_done() {
    let (_server, way, moving) = lossy().await;
    moving.enqueue(0, &["a", "b", "held"]).await;
    moving.cancel_old(&["other"]).await.unwrap();
    lose_next(&way, &moving).await;
    let answers = moving.cancel_old(&["a", "x", "b"]).await.unwrap();
    assert!(way.has_lost());
    let cancelled = Lookup::Found(Edited::Cancelled);
    assert_eq!(answers, [cancelled.clone(), Lookup::Absent(None), cancelled]);
}

#[tokio::test]
async fn settlements_at_the_old_home_whose_answers_are_lost_are_answered_as_done() {
    let (_server, way, moving) = lossy().await;
    moving.enqueue(0, &["acked", "buried", "extended"]).await;
    let held = moving.claim(0).await;
    let find = |text: &str| held.iter().find(|one| one.id.as_str() == text).unwrap();
    moving.cancel_old(&["warm"]).await.unwrap();
    let warm = duetime_core::store::Settle { id: id("warm"), score: held[0].score, action: Settlement::Ack };
    moving.store.settle_at(&moving.shard(0), Role::Source, now(), &[warm], AckWait::No).await.unwrap();
    for (text, how) in [("acked", Settlement::Ack), ("buried", Settlement::Bury("why".to_owned()))] {
        lose_next(&way, &moving).await;
        assert_eq!(moving.settle_old(find(text), how).await, Lookup::Found(Settled::Ok), "{text}");
        assert!(way.has_lost());
    }
    lose_next(&way, &moving).await;
    let how = Settlement::Extend(Duration::from_secs(60), duetime_core::LeaseClass::TOPIC);
    let Lookup::Found(Settled::Extended(score)) = moving.settle_old(find("extended"), how).await else { panic!() };
    let mut claimed = find("extended").clone();
    claimed.score = score;
    assert_eq!(moving.settle_old(&claimed, Settlement::Ack).await, Lookup::Found(Settled::Ok));
    moving
        .store
        .resolve_dead_letters_at(&moving.shard(0), Role::Source, now(), &[id("x")], DeadAction::Purge)
        .await
        .unwrap();
    lose_next(&way, &moving).await;
    let purged = moving
        .store
        .resolve_dead_letters_at(&moving.shard(0), Role::Source, now(), &[id("buried")], DeadAction::Purge)
        .await;
    assert_eq!(purged.unwrap().answers, [Lookup::Found(true)]);
    assert!(way.has_lost());
}

#[tokio::test]
async fn each_step_of_a_move_whose_answer_is_lost_is_taken_once() {
    let (_server, way, moving) = lossy().await;
    moving.enqueue(0, &["a", "b", "c"]).await;
    // The scripts are known to the server before an answer is lost.
    let warm = moving.take(&["c"]).await.unwrap().unwrap();
    moving.put(&warm).await.unwrap();
    moving.store.discard_batch(&moving.shard(0), warm.name.nonce).await.unwrap();
    lose_next(&way, &moving).await;
    let batch = moving.take(&["a", "b"]).await.unwrap().unwrap();
    assert!(way.has_lost());
    assert_eq!((batch.messages.len(), batch.name.number), (2, warm.name.number + 1));
    lose_next(&way, &moving).await;
    assert!(matches!(moving.put(&batch).await.unwrap(), ApplyOutcome::Done { .. }));
    assert!(way.has_lost());
    let new = duetime_core::resize_store::BatchId { number: 70, nonce: 7 };
    moving.store.rename_batch(&moving.shard(0), 1, new).await.unwrap();
    lose_next(&way, &moving).await;
    assert!(moving.store.rename_batch(&moving.shard(0), batch.name.nonce, new).await.unwrap());
    assert!(way.has_lost());
    lose_next(&way, &moving).await;
    // Its batch is gone after the first: that is all a repetition can say.
    moving.store.discard_batch(&moving.shard(0), new.nonce).await.unwrap();
    assert!(way.has_lost());
    assert_eq!(moving.store.outbox(&moving.shard(0)).await.unwrap(), None);
    assert_eq!(moving.claim(4).await.len(), 3);
}

#[tokio::test]
async fn a_shard_left_over_from_a_deleted_topic_is_not_taken_for_a_new_ones() {
    let server = RedisServer::start().await;
    let store = connect(server.url(), Duration::from_secs(2)).await;
    let moving = MovingTopic::begin(store.clone()).await;
    moving.enqueue(4, &["old"]).await;
    let keys = server.cli(&["KEYS", "*:orders:4*"]);
    let keys: Vec<&str> = keys.lines().collect();
    assert_eq!(keys.len(), 7, "{keys:?}");
    for key in &keys {
        server.cli(&["COPY", key, &format!("kept-{key}")]);
    }
    let topic = moving.topic.clone();
    drop(moving);
    assert!(store.delete_topic(&topic, duetime_core::Deletion::Force).await.unwrap());
    let left = server.cli(&["KEYS", "duetime:*:orders:*"]);
    assert!(left.lines().all(|key| key.ends_with(":meta")), "{left}");
    for key in &keys {
        server.cli(&["RENAME", &format!("kept-{key}"), key]);
    }
    let_pass(Duration::from_millis(5), Because::Time).await;
    let moving = MovingTopic::begin(store.clone()).await;
    assert_eq!(moving.claim(4).await, []);
    // And the other way round: a node that slept since the old topic does not reach into the new one's shards.
    let meta = keys.iter().find(|key| key.ends_with(":meta")).unwrap();
    server.cli(&["HSET", meta, "epoch", &(moving.routing.epoch + LIFE).to_string()]);
    let refused = store.fence(&moving.topic, 4, &moving.routing, &DeadlineFloor::default()).await.unwrap_err();
    assert!(matches!(refused, StoreError::Stale(_)), "{refused:?}");
}
