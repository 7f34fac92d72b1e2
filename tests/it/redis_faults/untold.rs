//! A call is repeated of which its shard remembers nothing: it was never carried out, or nobody can know.

use duetime_testkit::at_home::MessagesAtHome as _;
use std::time::Duration;

use duetime_core::store::{Edit, Edited, EnqueueOutcome, StoreError};
use duetime_testkit::servers::{RedisOptions, RedisServer, SkewedClock};
use duetime_testkit::wait::{Because, let_pass};

use super::repeats::{World, id};
use super::server::{ask, connection};
use crate::store_load::now;

impl World {
    /// Another session's calls, which end then by the server's clock, have taken all slots of the reply cache.
    async fn take_slots(&self, till_ms: i64) {
        let tag = duetime_redis::slots::tag_of(duetime_redis::slots::slot_of(&self.shard.topic, self.shard.index));
        let bodies = format!("duetime:{{{tag}}}:{}:{}:body", self.shard.topic, self.shard.index);
        let mut server = connection(&self.server).await.unwrap();
        let fields: Vec<Vec<u8>> = redis::cmd("HKEYS").arg(&bodies).query_async(&mut server).await.unwrap();
        let slots: Vec<Vec<u8>> = fields.into_iter().filter(|field| field.first() == Some(&0)).collect();
        assert!(!slots.is_empty());
        let mut taking = redis::cmd("HSET");
        taking.arg(&bodies);
        for slot in slots {
            taking.arg(slot).arg(format!("ffffffffffffffff 1 {till_ms}"));
        }
        let () = taking.query_async(&mut server).await.unwrap();
    }
}

#[tokio::test]
async fn an_enqueue_that_nobody_knows_of_any_more_is_not_made_again() {
    let world = World::new().await;
    world.put(&["first"]).await;
    let batch = [world.message("order")];
    let others = async {
        assert_eq!(world.edit_there(Edit::Cancel(id("order"))).await, Edited::Cancelled);
        world.take_slots(now().as_millis()).await;
    };
    let (answers, ()) = world.losing_and(world.store.enqueue(&world.shard, now(), &batch), others).await;
    assert!(matches!(answers, Err(StoreError::Unavailable { .. })), "{answers:?}");
    assert!(world.get("order").await.is_none(), "the cancel holds");
}

#[tokio::test]
async fn what_others_left_since_by_a_clock_that_was_put_back_is_not_taken_for_older() {
    let clock = SkewedClock::new();
    let options = RedisOptions { append_only: true, env: clock.env(), ..RedisOptions::default() };
    let world = World::of(RedisServer::start_with(options).await, Duration::from_secs(10)).await;
    // Whether the server's clock is ahead.
    let is_ahead = async || {
        let told: (i64, i64) = redis::from_redis_value(ask(&world.server, "TIME").await.unwrap()).unwrap();
        told.0 - now().as_millis() / 1000 > 1_800
    };
    clock.set(3_600);
    while !is_ahead().await {
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
    world.put(&["first"]).await;
    let batch = [world.message("order")];
    let others = async {
        assert_eq!(world.edit_there(Edit::Cancel(id("order"))).await, Edited::Cancelled);
        clock.set(0);
        while is_ahead().await {
            let_pass(Duration::from_millis(50), Because::AskedAgain).await;
        }
        world.take_slots(now().as_millis()).await;
    };
    let (answers, ()) = world.losing_and(world.store.enqueue(&world.shard, now(), &batch), others).await;
    assert!(matches!(answers, Err(StoreError::Unavailable { .. })), "{answers:?}");
    assert!(world.get("order").await.is_none(), "the cancel holds");
}

#[tokio::test]
async fn an_enqueue_that_was_not_carried_out_is_made_though_others_were_busy_since() {
    let world = World::new().await;
    world.put(&["first"]).await;
    // What it asks never reaches the server.
    world.way.cut(true);
    let batch = [world.message("order")];
    let others = async {
        for n in 0..10 {
            world.put_there(world.message(&format!("k{n}"))).await;
            world.edit_there(Edit::Cancel(id(&format!("k{n}")))).await;
        }
        world.way.cut(false);
    };
    let (answers, ()) = tokio::join!(world.store.enqueue(&world.shard, now(), &batch), others);
    assert_eq!(answers.unwrap()[0].outcome, EnqueueOutcome::Scheduled);
    assert!(world.get("order").await.is_some());
}
