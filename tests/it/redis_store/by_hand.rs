//! What an operator sees with redis-cli, and what the store makes of damage done by hand.

use duetime_testkit::at_home::{AllCounted as _, MessagesAtHome as _, SettledAtHome as _};
use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::{ClaimedMessage, Edit, Enqueue, Settle, Settled, Settlement, ShardCounts, StoreError};
use duetime_core::{
    ClaimStore as _, Clock, Due, Headers, LeaseClass, MessageId, MessageStore as _, RecordKind, RecordStore as _,
    Shard, Timestamp, TopicRecord, TopicStore as _,
};
use duetime_redis::slots;
use duetime_store_redis::RedisStore;
use duetime_testkit::servers::RedisServer;
use duetime_testkit::{WallClock, claim_request, plain_message, topic_record};

use crate::redis_faults::server::ask;

/// One topic of two shards; what is done is done to the second.
pub(super) struct World {
    pub(super) server: RedisServer,
    pub(super) store: Arc<RedisStore>,
    pub(super) record: TopicRecord,
    pub(super) shard: Shard,
    /// The name of the shard's ZSET.
    pub(super) key: String,
}

pub(super) fn now() -> Timestamp {
    WallClock.now()
}

pub(super) fn id(text: &str) -> MessageId {
    MessageId::new(text).unwrap()
}

/// One that is due.
pub(super) fn message(text: &str) -> Enqueue {
    Enqueue {
        payload: text.as_bytes().to_vec().into(),
        ..plain_message(text, Due::At(Timestamp::from_millis(now().as_millis() - 1000)))
    }
}

impl World {
    pub(super) async fn new() -> Self {
        let server = RedisServer::start().await;
        let store = crate::store_load::connect(server.url()).await;
        let record = store.put_topic(&topic_record("orders", 2, now()), None).await.unwrap();
        let shard = record.routing.shard(&record.name, 1);
        let key = format!("duetime:{{{}}}:orders:1", slots::tag_of(slots::slot_of(&record.name, 1)));
        Self { server, store, record, shard, key }
    }

    pub(super) async fn put(&self, texts: &[&str]) {
        let batch: Vec<Enqueue> = texts.iter().map(|text| message(text)).collect();
        self.store.enqueue(&self.shard, now(), &batch).await.unwrap();
    }

    pub(super) async fn put_with(&self, text: &str, headers: &Headers) {
        let one = Enqueue { headers: headers.clone(), ..message(text) };
        self.store.enqueue(&self.shard, now(), &[one]).await.unwrap();
    }

    pub(super) async fn claim(&self) -> (Vec<ClaimedMessage>, u64) {
        let ask = claim_request(10);
        let claim = self.store.claim(&self.shard, now(), &ask).await.unwrap();
        (claim.messages, claim.buried)
    }

    pub(super) async fn settle(&self, message: &ClaimedMessage, how: Settlement) -> Settled {
        let batch = [Settle { id: message.id.clone(), score: message.score, action: how }];
        self.store.settle(&self.shard, now(), &batch).await.unwrap()[0]
    }

    pub(super) async fn text(&self, words: &str) -> String {
        redis::from_redis_value(ask(&self.server, words).await.unwrap()).unwrap()
    }

    pub(super) async fn survey(&self) -> ShardCounts {
        self.store.all_counts(std::slice::from_ref(&self.shard), now()).await.unwrap()[0]
    }
}

#[tokio::test]
async fn a_message_whose_body_vanished_is_a_dead_letter_that_says_so() {
    let world = World::new().await;
    world.put(&["a", "b", "c"]).await;
    ask(&world.server, &format!("HDEL {}:body b", world.key)).await.unwrap();
    // A body somebody else wrote is no better.
    ask(&world.server, &format!("HSET {}:body c nonsense", world.key)).await.unwrap();
    let (messages, buried) = world.claim().await;
    assert_eq!((messages.len(), messages[0].id.as_str(), buried), (1, "a", 2));
    let dead = world.store.dead_letters(&world.shard, None, 10).await.unwrap().messages;
    let reasons: Vec<(&str, &str)> =
        dead.iter().map(|m| (m.id.as_str(), m.death.as_ref().unwrap().reason.as_str())).collect();
    assert_eq!(reasons[0], ("b", "its body is missing in the store"));
    assert!(reasons[1].0 == "c" && reasons[1].1.contains("cannot be read"), "{reasons:?}");
    assert_eq!(world.survey().await, ShardCounts { in_flight: 1, dead: 2, ..world.survey().await });
}

#[tokio::test]
async fn an_operator_reads_the_next_time_class_and_attempts_in_the_score() {
    let world = World::new().await;
    world.put(&["a"]).await;
    assert!(world.text(&format!("ZSCORE {} a", world.key)).await.ends_with("000"), "nobody holds it, no attempt");
    let (held, _) = world.claim().await;
    let score = world.text(&format!("ZSCORE {} a", world.key)).await;
    assert_eq!(score, held[0].score.raw().to_string());
    assert!(score.len() == 16 && score.ends_with("101"), "the topic's class, the first attempt: {score}");
}

#[tokio::test]
async fn meta_stays_small_whatever_happens_and_every_key_outlives_its_messages() {
    let world = World::new().await;
    for round in 0..40 {
        let name = format!("m{round}");
        world.put(&[&name]).await;
        let (held, _) = world.claim().await;
        let class = LeaseClass::for_visibility(Duration::from_secs(1 << (round % 12)));
        let extended = world.settle(&held[0], Settlement::Extend(Duration::from_secs(60), class)).await;
        assert!(matches!(extended, Settled::Extended(_)), "{extended:?}");
        world.store.edit(&world.shard, now(), &[Edit::Cancel(id(&name))]).await.unwrap();
    }
    assert_eq!(world.text(&format!("OBJECT ENCODING {}:meta", world.key)).await, "listpack");
    for suffix in ["", ":body", ":dead", ":deadinfo", ":meta"] {
        assert_eq!(world.text(&format!("EXISTS {}{suffix}", world.key)).await, "1", "{suffix}");
    }
    assert_eq!(world.survey().await, ShardCounts::default());
}

#[tokio::test]
async fn the_bodies_of_messages_that_were_tried_are_read_together_and_once() {
    let world = World::new().await;
    let texts: Vec<String> = (0..10).map(|n| format!("m{n}")).collect();
    world.put(&texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let (held, _) = world.claim().await;
    for message in &held {
        assert_eq!(world.settle(message, Settlement::Nack(Duration::ZERO)).await, Settled::Ok);
    }
    world.put(&["fresh"]).await;
    world.server.cli(&["CONFIG", "RESETSTAT"]);
    let claim = world.store.claim(&world.shard, now(), &claim_request(11)).await.unwrap();
    assert_eq!(claim.messages.len(), 11);
    assert!(claim.messages.iter().all(|message| message.payload[..] == *message.id.as_str().as_bytes()));
    let stats = world.server.cli(&["INFO", "commandstats"]);
    let count = |command: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |line| line.split(',').next().unwrap().parse::<u32>().unwrap())
    };
    // One of meta, one of those that were tried, one of the other.
    assert_eq!((count("hmget"), count("hstrlen"), count("hget")), (3, 0, 0), "{stats}");
}

#[tokio::test]
async fn a_lost_shard_is_never_started_empty() {
    let world = World::new().await;
    ask(&world.server, &format!("DEL {}:meta", world.key)).await.unwrap();
    let refused = world.store.get(&world.shard, &[id("a")]).await;
    assert!(matches!(refused, Err(StoreError::UnknownShard(_))), "{refused:?}");
}

#[tokio::test]
async fn a_deletion_that_was_interrupted_is_finished_by_the_next() {
    let world = interrupted_deletion().await;
    assert!(world.store.delete_topic(&world.record.name, duetime_core::Deletion::Force).await.unwrap());
    is_finished(&world).await;
}

#[tokio::test]
async fn a_deletion_that_was_interrupted_is_finished_by_whichever_node_looks() {
    let world = interrupted_deletion().await;
    world.store.finish_deletions().await.unwrap();
    is_finished(&world).await;
    assert_eq!(world.text("EXISTS duetime:{duetime:topics}:pending").await, "0");
    world.store.finish_deletions().await.unwrap();
}

async fn interrupted_deletion() -> World {
    let world = World::new().await;
    world.put(&["a"]).await;
    // As far as a node came that died: the record is out of sight, the shards are there.
    let record = serde_json::to_string(&world.record).unwrap();
    let life = world.record.routing.life().to_string();
    let pending = format!(r#"{{"life":{life},"deleting":true,"since_ms":1,"record":{record}}}"#);
    ask(&world.server, "HDEL duetime:topics orders").await.unwrap();
    ask(&world.server, &format!("HSET duetime:{{duetime:topics}}:lives orders {life}")).await.unwrap();
    ask(&world.server, &format!("HSET duetime:{{duetime:topics}}:pending orders {pending}")).await.unwrap();
    world
}

async fn is_finished(world: &World) {
    let life = world.record.routing.life().to_string();
    // What stays is the number of the life, for whoever would make it again.
    for suffix in ["", ":body", ":dead", ":deadinfo", ":outbox", ":moved"] {
        assert_eq!(world.text(&format!("EXISTS {}{suffix}", world.key)).await, "0", "{suffix}");
    }
    assert_eq!(world.text(&format!("HGET {}:meta gone", world.key)).await, life);
    assert_eq!(world.text(&format!("HLEN {}:meta", world.key)).await, "1");
    assert_eq!(world.text("HGET duetime:{duetime:topics}:lives orders").await, life);
    assert!(!world.store.delete_topic(&world.record.name, duetime_core::Deletion::Force).await.unwrap());
}

#[tokio::test]
async fn a_version_of_a_sink_that_was_written_by_hand_never_comes_again_once_it_is_removed() {
    let World { server, store, .. } = World::new().await;
    let sink = |version: u64| format!(r#"{{"version":{version},"changed_at_ms":0,"config":{{"type":"log"}}}}"#);
    let (kind, written) = (RecordKind::Sink, sink(7));
    ask(&server, &format!("HSET duetime:{{duetime:topics}}:sinks hook {written}")).await.unwrap();
    store.swap_record(kind, "hook", Some(&written), None).await.unwrap();
    assert_eq!(store.records(kind).await.unwrap().last_version, 7);
    let again = store.swap_record(kind, "other", None, Some(&written)).await;
    assert!(matches!(again, Err(StoreError::Conflict)), "{again:?}");
    store.swap_record(kind, "other", None, Some(&sink(8))).await.unwrap();
}
