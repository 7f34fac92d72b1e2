//! Lives of a topic: what is carried out late, what vanished, and how it is put back.

use duetime_testkit::at_home::MessagesAtHome as _;
use std::sync::Arc;

use duetime_core::Draw;
use duetime_core::resize_store::{DeadlineFloor, ResizeStore as _, RoutingAuthority as _};
use duetime_core::routing::RoutingState;
use duetime_core::store::{Adopt, StoreError};
use duetime_core::{ChangeId, Routing, RoutingRecord, ShardCount, TopicConfig, TopicRecord, TopicStore as _};
use duetime_metrics::Meters;
use duetime_redis::slots;
use duetime_resize::MoveDeps;
use duetime_router::{Catalog, RouteError, Router, ShardAnomaly};
use duetime_testkit::WallClock;

use super::by_hand::{World, id, now};
use crate::redis_faults::server::{ask, connection};

pub(super) const MAKE: &str = include_str!("../../../crates/duetime-store-redis/lua/make.lua");
const CREATE: &str = include_str!("../../../crates/duetime-store-redis/lua/create.lua");
const FENCE: &str = include_str!("../../../crates/duetime-store-redis/lua/fence.lua");
const UNMAKE: &str = include_str!("../../../crates/duetime-store-redis/lua/unmake.lua");
const SWAP: &str = include_str!("../../../crates/duetime-store-redis/lua/topic_swap.lua");
const SUFFIXES: [&str; 8] = ["", ":body", ":dead", ":deadinfo", ":meta", ":outbox", ":moved", ":stream"];

/// Runs a script as a call that was on its way for long; its answer as text.
pub(super) async fn late(world: &World, script: String, keys: &[String], args: &[String]) -> String {
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(script).arg(keys.len());
    for arg in keys.iter().chain(args) {
        cmd.arg(arg);
    }
    match cmd.query_async::<redis::Value>(&mut connection(&world.server).await.unwrap()).await {
        Ok(value) => redis::from_redis_value::<String>(value).unwrap_or_else(|_| "a list".to_owned()),
        Err(error) => format!("{} {}", error.code().unwrap_or("?"), error.detail().unwrap_or("")),
    }
}

pub(super) fn keys(world: &World, many: usize) -> Vec<String> {
    SUFFIXES[..many].iter().map(|suffix| format!("{}{suffix}", world.key)).collect()
}

async fn late_create(world: &World, record: &TopicRecord) -> String {
    let routing = &record.routing;
    let args = [routing.epoch.to_string(), routing.change_id.to_string(), "2".into(), "2".into(), "stable".into()];
    let args = [args.as_slice(), &[String::new(), "0".into(), String::new()]].concat();
    late(world, [MAKE, CREATE].concat(), &keys(world, 7), &args).await
}

async fn late_unmake(world: &World, life: u64) -> String {
    late(world, UNMAKE.to_owned(), &keys(world, 8), &[life.to_string(), "1000".into()]).await
}

/// Puts `value` in place of the topic's record, or nothing.
async fn set_record(world: &World, value: Option<&str>) {
    let mut cmd = redis::cmd(if value.is_some() { "HSET" } else { "HDEL" });
    cmd.arg("duetime:topics").arg("orders").arg(value);
    cmd.query_async::<redis::Value>(&mut connection(&world.server).await.unwrap()).await.unwrap();
}

async fn born_again(world: &mut World) -> TopicRecord {
    let before = world.record.clone();
    assert!(world.store.delete_topic(&before.name, duetime_core::Deletion::Force).await.unwrap());
    let fresh = TopicRecord { version: 1, ..before.clone().in_life(0) };
    world.record = world.store.put_topic(&fresh, None).await.unwrap();
    world.shard = world.record.routing.shard(&before.name, 1);
    before
}

#[tokio::test]
async fn a_creation_that_is_carried_out_late_changes_nothing() {
    let mut world = World::new().await;
    let before = born_again(&mut world).await;
    world.put(&["a"]).await;
    let mut overtaken = world.record.clone();
    overtaken.routing.change_id = ChangeId(3);
    for record in [&before, &overtaken] {
        assert!(late_create(&world, record).await.starts_with("OVERTAKEN"), "of an earlier life, or overtaken");
    }
    assert_eq!(late_create(&world, &world.record.clone()).await, "0", "the very creation, repeated");
    assert_eq!(world.survey().await.scheduled, 1);
    assert!(world.store.delete_topic(&before.name, duetime_core::Deletion::Force).await.unwrap());
    for record in [&before, &world.record.clone()] {
        assert!(late_create(&world, record).await.starts_with("OVERTAKEN"), "of a life that is deleted");
    }
}

#[tokio::test]
async fn a_shard_that_holds_messages_is_not_made_anew_for_a_later_life() {
    let world = World::new().await;
    world.put(&["a"]).await;
    let later = world.record.clone().in_life(world.record.routing.life() + 1);
    assert!(late_create(&world, &later).await.starts_with("OCCUPIED 1"), "nobody deleted it");
    let routing = &later.routing;
    let args = [routing.epoch.to_string(), routing.change_id.to_string(), "2".into(), "2".into(), "stable".into()];
    for (made, said) in [("0", "LOST"), ("1", "OCCUPIED 1")] {
        let floor = vec!["0".to_owned(); 8];
        let args = [args.as_slice(), &[String::new(), "0".into(), made.into()], &floor, &[String::new()]].concat();
        assert!(late(&world, [MAKE, FENCE].concat(), &keys(&world, 7), &args).await.starts_with(said));
    }
    assert_eq!(world.survey().await.scheduled, 1);
}

#[tokio::test]
async fn a_removal_that_is_carried_out_late_touches_no_later_life() {
    let mut world = World::new().await;
    let before = born_again(&mut world).await;
    world.put(&["a"]).await;
    assert_eq!(late_unmake(&world, before.routing.life()).await, "0");
    assert!(world.store.get(&world.shard, &[id("a")]).await.unwrap()[0].is_some());
    ask(&world.server, &format!("XADD {}:stream 1-1 a b", world.key)).await.unwrap();
    assert_eq!(late_unmake(&world, world.record.routing.life()).await, "1");
    assert_eq!(world.text(&format!("EXISTS {} {0}:stream", world.key)).await, "0", "its stream goes too");
}

#[tokio::test]
async fn a_record_that_is_published_late_is_not_published() {
    let mut world = World::new().await;
    let before = born_again(&mut world).await;
    assert!(world.store.delete_topic(&before.name, duetime_core::Deletion::Force).await.unwrap());
    let keys =
        ["duetime:topics", "duetime:{duetime:topics}:pending", "duetime:{duetime:topics}:lives"].map(str::to_owned);
    let text = serde_json::to_string(&before).unwrap();
    for noted in ["", "the note of its creation"] {
        let life = before.routing.life().to_string();
        let args = ["orders", "", &text, noted, "", &life, "", "0"].map(str::to_owned);
        assert_eq!(late(&world, SWAP.to_owned(), &keys, &args).await, "0");
    }
    assert_eq!(world.store.topics().await.unwrap(), []);
}

#[tokio::test]
async fn a_topic_that_vanished_is_not_created_again_and_is_adopted_with_all_it_has() {
    let world = World::new().await;
    world.put(&["a", "b"]).await;
    let mut changed = world.record.clone();
    (changed.config.max_payload, changed.version) = (77, 2);
    world.store.put_topic(&changed, Some(1)).await.unwrap();
    ask(&world.server, "DEL duetime:topics duetime:{duetime:topics}:lives").await.unwrap();
    let name = &world.record.name;
    assert_eq!(world.store.remains(name).await.unwrap(), 2);
    // With fewer shards, so that none of the new ones is where the messages are.
    let config = TopicConfig { shards: ShardCount::Fixed(1), ..TopicConfig::default() };
    let again = TopicRecord::new(name.clone(), config, 1, ChangeId(3), now());
    let refused = world.store.put_topic(&again, None).await;
    assert!(matches!(refused, Err(StoreError::Vanished { messages: 2, .. })), "{refused:?}");

    let adopted = world.store.adopt_topic(name, &Adopt { now: now(), ..Adopt::default() }).await.unwrap();
    assert!(adopted.restored && adopted.lost.is_empty() && adopted.recreated.is_empty());
    assert_eq!((&adopted.record.routing, adopted.record.config.max_payload), (&world.record.routing, 77));
    assert_eq!(world.store.topics().await.unwrap(), [adopted.record]);
    assert_eq!(world.claim().await.0.len(), 2);
}

#[tokio::test]
async fn a_topic_that_vanished_and_is_deleted_is_gone_and_its_name_is_free() {
    let world = World::new().await;
    world.put(&["a"]).await;
    ask(&world.server, "DEL duetime:topics duetime:{duetime:topics}:lives").await.unwrap();
    let name = &world.record.name;
    assert!(world.store.delete_topic(name, duetime_core::Deletion::Force).await.unwrap());
    assert_eq!(world.store.remains(name).await.unwrap(), 0);
    let adopted = world.store.adopt_topic(name, &Adopt { now: now(), ..Adopt::default() }).await;
    assert!(matches!(adopted, Err(StoreError::UnknownShard(_))), "{adopted:?}");
    let made = world.store.put_topic(&world.record.clone().in_life(0), None).await.unwrap();
    assert!(made.routing.life() > world.record.routing.life());
    assert_eq!(world.store.get(&made.routing.shard(name, 1), &[id("a")]).await.unwrap(), [None]);
}

#[tokio::test]
async fn a_lost_shard_is_made_anew_only_when_the_loss_is_accepted() {
    let world = World::new().await;
    let (name, routing) = (&world.record.name, &world.record.routing);
    ask(&world.server, &format!("DEL {}", keys(&world, 7).join(" "))).await.unwrap();
    let refused = world.store.fence(name, 1, routing, &DeadlineFloor::default()).await;
    assert!(matches!(refused, Err(StoreError::Lost(_))), "{refused:?}");
    let ask = Adopt { now: now(), ..Adopt::default() };
    let adopted = world.store.adopt_topic(name, &ask).await.unwrap();
    assert_eq!((adopted.restored, adopted.lost, adopted.recreated), (false, vec![1], vec![]));
    let refused = world.store.get(&world.shard, &[id("a")]).await;
    assert!(matches!(refused, Err(StoreError::UnknownShard(_))), "{refused:?}");
    let adopted = world.store.adopt_topic(name, &Adopt { accept_loss: true, ..ask }).await.unwrap();
    assert_eq!((adopted.lost, adopted.recreated), (vec![], vec![1]));
    world.put(&["a"]).await;
}

#[tokio::test]
async fn a_record_that_cannot_be_read_harms_its_own_topic_alone() {
    let world = World::new().await;
    ask(&world.server, r#"HSET duetime:topics odd {"name":"odd"}"#).await.unwrap();
    assert_eq!(world.store.topics().await.unwrap(), std::slice::from_ref(&world.record));
    assert_eq!(world.store.unreadable(), ["odd"]);
    let odd = TopicRecord { name: "odd".parse().unwrap(), ..world.record.clone() };
    let refused = world.store.put_topic(&odd, None).await;
    assert!(matches!(refused, Err(StoreError::Damaged(_))), "{refused:?}");
    let other = TopicRecord { name: "other".parse().unwrap(), ..world.record.clone() };
    world.store.put_topic(&other, None).await.unwrap();
}

#[tokio::test]
async fn what_a_newer_version_wrote_into_a_record_is_kept_when_it_is_changed() {
    let world = World::new().await;
    let mut newer = serde_json::to_value(&world.record).unwrap();
    (newer["config"]["tier"], newer["routing"]["weights"]) = (3.into(), "even".into());
    set_record(&world, Some(&newer.to_string())).await;
    assert_eq!(world.store.topics().await.unwrap(), std::slice::from_ref(&world.record));
    let mut changed = world.record.clone();
    (changed.config.max_payload, changed.version) = (77, 2);
    world.store.put_topic(&changed, Some(1)).await.unwrap();
    let text = world.text("HGET duetime:topics orders").await;
    let there: serde_json::Value = serde_json::from_str(&text).unwrap();
    (newer["config"]["max_payload"], newer["version"]) = (77.into(), 2.into());
    assert_eq!(there, newer);
    set_record(&world, None).await;
}

/// The topic goes from two shards to four, and every shard has the record.
async fn growing(world: &World) -> Routing {
    let seen = world.record.routing_record();
    let (epoch, change_id) = (seen.routing.epoch + 1, ChangeId(9));
    let routing = Routing { epoch, change_id, shards: 4, state: RoutingState::Moving, ..seen.routing.clone() };
    let new = RoutingRecord { routing: routing.clone(), desired: None, earlier: Vec::new() };
    world.store.swap_routing(&world.record.name, &seen, &new).await.unwrap();
    for index in 0..4 {
        world.store.fence(&world.record.name, index, &routing, &DeadlineFloor::default()).await.unwrap();
    }
    routing
}

#[tokio::test]
async fn a_shard_that_is_gone_after_a_resize_made_it_is_lost_and_not_made_anew() {
    let world = World::new().await;
    let name = &world.record.name;
    let routing = growing(&world).await;
    // The same again, by whoever: all as it was.
    let again = world.store.fence(name, 3, &routing, &DeadlineFloor::default()).await.unwrap();
    assert_eq!(again.before.map(|before| before.epoch), Some(routing.epoch));
    let fresh = routing.shard(name, 3);
    let key = |suffix: &str| {
        let tag = slots::tag_of(slots::slot_of(name, 3));
        format!("duetime:{{{tag}}}:{name}:3{suffix}")
    };
    let all: Vec<String> = SUFFIXES[..7].iter().map(|suffix| key(suffix)).collect();
    ask(&world.server, &format!("DEL {}", all.join(" "))).await.unwrap();
    let refused = world.store.fence(name, 3, &routing, &DeadlineFloor::default()).await;
    assert!(matches!(refused, Err(StoreError::Lost(_))), "{refused:?}");
    let ask = Adopt { now: now(), ..Adopt::default() };
    assert_eq!(world.store.adopt_topic(name, &ask).await.unwrap().lost, [3]);
    let adopted = world.store.adopt_topic(name, &Adopt { accept_loss: true, ..ask }).await.unwrap();
    assert_eq!((adopted.lost, adopted.recreated), (vec![], vec![3]));
    world.store.fence(name, 3, &routing, &DeadlineFloor::default()).await.unwrap();
    assert_eq!(world.store.get(&fresh, &[id("a")]).await.unwrap(), [None], "it serves again");
}

#[tokio::test]
async fn a_resize_that_was_interrupted_while_it_made_a_shard_goes_on() {
    let world = World::new().await;
    let name = &world.record.name;
    let routing = growing(&world).await;
    // As it is when the node ended between making the shard and noting that it is made.
    let first = format!("duetime:{{{}}}:{name}:0:moved", slots::tag_of(slots::slot_of(name, 0)));
    ask(&world.server, &format!("HDEL {first} made:3")).await.unwrap();
    let meta = format!("duetime:{{{}}}:{name}:3:meta", slots::tag_of(slots::slot_of(name, 3)));
    let closed = routing.epoch - routing.change();
    ask(&world.server, &format!("HSET {meta} epoch {closed} rid {:016x}", 0)).await.unwrap();
    let early = world.store.get(&routing.shard(name, 3), &[id("a")]).await;
    assert!(matches!(early, Err(StoreError::NotReady(_))), "it takes nothing before it is noted: {early:?}");
    world.store.fence(name, 3, &routing, &DeadlineFloor::default()).await.unwrap();
    assert_eq!(world.store.get(&routing.shard(name, 3), &[id("a")]).await.unwrap(), [None]);
    let noted = ask(&world.server, &format!("HGET {first} made:3")).await.unwrap();
    assert_eq!(redis::from_redis_value::<u64>(noted).unwrap(), routing.epoch);
}

#[tokio::test]
async fn a_topic_of_which_an_older_catalog_was_restored_is_adopted_with_what_its_shards_have() {
    let mut world = World::new().await;
    let older = ask(&world.server, "HGET duetime:topics orders").await.unwrap();
    let older: String = redis::from_redis_value(older).unwrap();
    let before = born_again(&mut world).await;
    world.put(&["a", "b"]).await;
    set_record(&world, Some(&older)).await;
    let name = &before.name;
    let refused = world.store.get(&before.routing.shard(name, 1), &[id("a")]).await;
    assert!(matches!(refused, Err(StoreError::Stale(_))), "{refused:?}");
    let adopted = world.store.adopt_topic(name, &Adopt { now: now(), ..Adopt::default() }).await.unwrap();
    assert!(adopted.restored && adopted.lost.is_empty());
    assert_eq!(adopted.record.routing, world.record.routing);
    assert_eq!(world.store.topics().await.unwrap(), [adopted.record]);
    assert_eq!(world.claim().await.0.len(), 2);
}

#[tokio::test]
async fn a_topic_whose_shards_know_of_a_later_change_than_the_catalog_is_adopted_with_that_change() {
    let world = World::new().await;
    let older = ask(&world.server, "HGET duetime:topics orders").await.unwrap();
    let older: String = redis::from_redis_value(older).unwrap();
    let routing = growing(&world).await;
    set_record(&world, Some(&older)).await;
    let adopted = world.store.adopt_topic(&world.record.name, &Adopt { now: now(), ..Adopt::default() }).await.unwrap();
    assert!(adopted.restored && adopted.lost.is_empty());
    assert_eq!(adopted.record.routing, routing);
}

#[tokio::test]
async fn a_node_says_that_the_catalog_is_older_than_its_shards_until_the_topic_is_adopted() {
    let mut world = World::new().await;
    let older = ask(&world.server, "HGET duetime:topics orders").await.unwrap();
    let older: String = redis::from_redis_value(older).unwrap();
    born_again(&mut world).await;
    world.put(&["a", "b"]).await;
    set_record(&world, Some(&older)).await;
    let (clock, meters) = (Arc::new(WallClock), Arc::new(Meters::new()));
    let catalog = Catalog::open(world.store.clone(), clock.clone(), Draw::new(rand::random::<u64>)).await.unwrap();
    let router = Router::new(
        world.store.clone(),
        Arc::new(MoveDeps::new(world.store.clone())),
        catalog.clone(),
        clock,
        meters.clone(),
    );
    let name = &world.record.name;
    let refused = router.get(name, vec![id("a")]).await.remove(0);
    let Err(RouteError::Store(error)) = refused else { panic!("{refused:?}") };
    assert!(matches!(*error, StoreError::Outdated(_)), "{error}");
    router.consistency.check_shards().await;
    let (code, detail) = catalog.issues().of_catalog().unwrap();
    assert!(code == "topic_outdated" && detail.contains("orders (2 messages)"), "{detail}");
    assert!(meters.render().contains("duetime_topic_issues{kind=\"outdated\"} 1"));
    let places = router.consistency.anomalies(&catalog.get(name).unwrap()).await.unwrap();
    assert_eq!(places, [(0, ShardAnomaly::Later(0)), (1, ShardAnomaly::Later(2))]);

    assert!(catalog.adopt(name, None, false).await.unwrap().restored);
    router.consistency.check_shards().await;
    assert!(catalog.issues().of_catalog().is_none());
    assert!(meters.render().contains("duetime_topic_issues{kind=\"outdated\"} 0"));
    assert!(router.get(name, vec![id("nobody")]).await.remove(0).is_ok());
}
