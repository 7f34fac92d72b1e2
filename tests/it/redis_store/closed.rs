//! A deletion without force: shards that it closes, what opens them again, and what counts as something held. And
//! what a claim hides from whom, where clocks are apart.

use duetime_testkit::at_home::{MessagesAtHome as _, SettledAtHome as _};
use std::time::Duration;

use duetime_core::resize_store::{DeadlineFloor, ResizeStore as _, RoutingAuthority as _};
use duetime_core::store::{ClaimRequest, Enqueue, Settle, Settled, Settlement, StoreError};
use duetime_core::{ClaimStore as _, Deletion, Due, LeaseClass, Timestamp, TopicStore as _};
use duetime_metrics::Meters;
use duetime_store_redis::{RedisStore, RedisStoreConfig};
use duetime_testkit::claim_request;
use duetime_testkit::servers::{RedisOptions, RedisServer};

use super::by_hand::{World, id, now};
use super::lives::{MAKE, keys, late};
use crate::redis_faults::server::ask;

const SEAL: &str = include_str!("../../../crates/duetime-store-redis/lua/seal.lua");

/// Closes shard 1 as a deletion does that then dies.
async fn close(world: &World) {
    let args = [world.record.routing.epoch.to_string(), "1".into(), "0".into()];
    assert_eq!(late(world, [MAKE, SEAL].concat(), &keys(world, 8), &args).await, "a list");
}

#[tokio::test]
async fn a_shard_that_a_deletion_left_closed_is_opened_by_the_next_call_under_the_next_record() {
    let world = World::new().await;
    let (name, before) = (&world.record.name, &world.record.routing);
    close(&world).await;
    let refused = world.store.get(&world.shard, &[id("a")]).await;
    assert!(matches!(refused, Err(StoreError::NotReady(_))), "it takes nothing in: {refused:?}");
    let refused = world.store.fence(name, 1, before, &DeadlineFloor::default()).await;
    let Err(StoreError::Stale(next)) = refused else { panic!("{refused:?}") };
    assert_eq!((next.epoch, next.shards, next.previous), (before.epoch + 1, before.shards, before.previous));
    assert_eq!(world.store.routing(name).await.unwrap().unwrap().routing, *next, "the authority has it");
    world.store.fence(name, 1, &next, &DeadlineFloor::default()).await.unwrap();
    assert_eq!(world.store.get(&next.shard(name, 1), &[id("a")]).await.unwrap(), [None]);
    // The very closing, carried out late.
    let args = [before.epoch.to_string(), "1".into(), "0".into()];
    assert!(late(&world, [MAKE, SEAL].concat(), &keys(&world, 8), &args).await.starts_with("OVERTAKEN"));
    assert_eq!(world.store.get(&next.shard(name, 1), &[id("a")]).await.unwrap(), [None]);
    assert!(world.store.delete_topic(name, Deletion::IfEmpty).await.unwrap());
}

#[tokio::test]
async fn a_shard_that_was_closed_is_not_opened_once_its_topic_is_deleted() {
    let world = World::new().await;
    let name = &world.record.name;
    close(&world).await;
    assert!(world.store.delete_topic(name, Deletion::IfEmpty).await.unwrap(), "what is closed is empty");
    let refused = world.store.fence(name, 1, &world.record.routing, &DeadlineFloor::default()).await;
    assert!(matches!(refused, Err(StoreError::UnknownShard(_))), "{refused:?}");
    assert_eq!(world.text(&format!("HEXISTS {}:meta sealed", world.key)).await, "0");
}

#[tokio::test]
async fn a_deletion_that_finds_something_as_it_closes_leaves_every_shard_open() {
    let world = World::new().await;
    world.put(&["a"]).await;
    // As if it had been enqueued between the look and the closing of shard 1.
    let other = world.record.routing.shard(&world.record.name, 0);
    close(&world).await;
    let meta = format!("{}:meta", world.key);
    assert_eq!(world.text(&format!("HEXISTS {meta} sealed")).await, "0", "one that holds something is not closed");
    let refused = world.store.delete_topic(&world.record.name, Deletion::IfEmpty).await;
    assert!(matches!(&refused, Err(StoreError::NotEmpty { why, .. }) if why.contains("1 messages")), "{refused:?}");
    assert_eq!(world.store.get(&other, &[id("b")]).await.unwrap(), [None]);
}

#[tokio::test]
async fn entries_of_a_stream_in_place_refuse_a_deletion_without_force() {
    let world = World::new().await;
    let stream = format!("{}:stream", world.key);
    ask(&world.server, &format!("XADD {stream} * id a")).await.unwrap();
    let refused = world.store.delete_topic(&world.record.name, Deletion::IfEmpty).await;
    assert!(matches!(&refused, Err(StoreError::NotEmpty { why, .. }) if why.contains("1 entries")), "{refused:?}");
    assert_eq!(world.text(&format!("XLEN {stream}")).await, "1");
    ask(&world.server, &format!("XTRIM {stream} MAXLEN 0")).await.unwrap();
    assert!(world.store.delete_topic(&world.record.name, Deletion::IfEmpty).await.unwrap());
}

#[tokio::test]
async fn a_topic_whose_record_vanished_is_deleted_by_force_alone() {
    let world = World::new().await;
    ask(&world.server, "DEL duetime:topics duetime:{duetime:topics}:lives").await.unwrap();
    let refused = world.store.delete_topic(&world.record.name, Deletion::IfEmpty).await;
    assert!(matches!(refused, Err(StoreError::NotEmpty { .. })), "{refused:?}");
    assert!(world.store.delete_topic(&world.record.name, Deletion::Force).await.unwrap());
}

#[tokio::test]
async fn a_claim_and_an_extension_hide_for_the_whole_time_whoever_s_clock_is_behind() {
    let world = World::new().await;
    // A caller that is behind is refused when the call takes the rest of two seconds.
    for apart_ms in [-1_000, 1_900] {
        // Due by both clocks.
        let due = Due::At(Timestamp::from_millis(now().as_millis() - 5_000));
        let given = Enqueue { due, ..super::by_hand::message("a") };
        world.store.enqueue(&world.shard, now(), &[given]).await.unwrap();
        let caller = |at: Timestamp| Timestamp::from_millis(at.as_millis() + apart_ms);
        let hidden = Duration::from_secs(3);
        let request =
            ClaimRequest { visibility: hidden, class: LeaseClass::for_visibility(hidden), ..claim_request(1) };
        let began = now();
        let claim = world.store.claim(&world.shard, caller(began), &request).await.unwrap();
        let ended = now();
        let claimed = &claim.messages[0];
        assert!(claimed.score.visible_at() >= began.plus(hidden), "{apart_ms} ms apart: {claim:?}");
        // What the holder believes to have is never more than others leave it.
        assert!(claimed.score.visible_at().since(claim.later) <= hidden, "{apart_ms} ms apart: {claim:?}");
        assert!(claim.later >= began.max(caller(began)) && claim.now <= ended.min(caller(began)), "{claim:?}");
        let how = Settlement::Extend(hidden, LeaseClass::for_visibility(hidden));
        let began = now();
        let extend = [Settle { id: claimed.id.clone(), score: claimed.score, action: how }];
        let settled = world.store.settle(&world.shard, caller(began), &extend).await.unwrap().remove(0);
        let Settled::Extended(score) = settled else { panic!("{settled:?}") };
        assert!(score.visible_at() >= began.plus(hidden), "{apart_ms} ms apart: {score:?}");
        let ack = [Settle { id: claimed.id.clone(), score, action: Settlement::Ack }];
        assert_eq!(world.store.settle(&world.shard, now(), &ack).await.unwrap(), [Settled::Ok]);
    }
}

#[tokio::test]
async fn an_enqueue_by_a_user_who_lost_the_right_to_write_bodies_leaves_nothing() {
    let world = World::new().await;
    let (given, new) = (super::by_hand::message("a"), super::by_hand::message("b"));
    world.store.enqueue(&world.shard, now(), std::slice::from_ref(&given)).await.unwrap();
    ask(&world.server, "ACL SETUSER default -hset").await.unwrap();
    for batch in [vec![new.clone()], vec![given.clone(), new.clone()]] {
        world.store.enqueue(&world.shard, now(), &batch).await.unwrap_err();
    }
    ask(&world.server, "ACL SETUSER default +hset").await.unwrap();
    assert_eq!(world.survey().await.messages(), 1);
    assert_eq!(world.store.get(&world.shard, &[id("b")]).await.unwrap(), [None]);
    world.store.enqueue(&world.shard, now(), &[new]).await.unwrap();
    assert_eq!(world.claim().await.0.len(), 2);
}

#[tokio::test]
async fn a_server_that_runs_no_scripts_is_refused_at_the_start_with_the_remedy() {
    for command in ["SCRIPT", "EVALSHA"] {
        let lines = vec![format!("rename-command {command} \"\"")];
        let server = RedisServer::start_with(RedisOptions { lines, ..RedisOptions::default() }).await;
        let config = RedisStoreConfig { url: server.url().into(), ..RedisStoreConfig::default() };
        let refused = RedisStore::connect(config, std::sync::Arc::new(Meters::new())).await.unwrap_err();
        assert!(matches!(refused, StoreError::Setup(_)), "{refused}");
        assert!(refused.to_string().contains("rename-command"), "{refused}");
    }
}
