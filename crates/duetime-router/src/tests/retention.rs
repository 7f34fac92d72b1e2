//! Dead letters that topics keep no longer.

use duetime_core::store::{AckWait, Settle, Settlement};
use duetime_core::{OwnedShards, Role};
use tokio::sync::watch;

use super::*;
use crate::Retention;

const HOUR: Duration = Duration::from_secs(3600);

/// A node that scans all shards of these topics.
pub(super) fn retention(fixture: &Fixture, topics: &[&TopicName]) -> Retention {
    let all = topics.iter().flat_map(|topic| (0..4).map(|index| ((*topic).clone(), index)));
    let owned = watch::Sender::new(Arc::new(OwnedShards(all.collect())));
    Retention::new(fixture.router.clone(), owned.subscribe(), Draw::new(rand::random::<u64>))
}

/// So many messages die, and all else that is due in the topic; their ids.
pub(super) async fn die(fixture: &Fixture, topic: &TopicName, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|n| format!("{n}-{}", rand::random::<u64>())).collect();
    let items: Vec<Enqueue> = names.iter().map(|name| message(name)).collect();
    assert!(fixture.router.enqueue(topic, items).await.iter().all(Result::is_ok));
    for shard in fixture.catalog.get(topic).unwrap().routing.all(topic) {
        loop {
            let request = ClaimRequest { visibility: HOUR, ..claim_request(BATCH_ITEMS_MAX) };
            let claim = fixture.store.claim(&shard, fixture.clock.now(), &request).await.unwrap().messages;
            let bury = |one: &duetime_core::store::ClaimedMessage| Settle {
                id: one.id.clone(),
                score: one.score,
                action: Settlement::Bury("refused".to_owned()),
            };
            let batch: Vec<Settle> = claim.iter().map(bury).collect();
            let now = fixture.clock.now();
            fixture.store.settle_at(&shard, Role::Home, now, &batch, AckWait::No).await.unwrap();
            if claim.is_empty() {
                break;
            }
        }
    }
    names
}

pub(super) async fn dead(fixture: &Fixture, topic: &TopicName) -> u64 {
    fixture.router.counter.count(topic).await.unwrap().total.dead
}

async fn set(fixture: &Fixture, text: &str) {
    fixture.catalog.put(&fixture.topic, &change(text)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn as_many_dead_letters_stay_as_the_topic_keeps() {
    let fixture = Fixture::with_shards(4).await;
    let retention = retention(&fixture, &[&fixture.topic]);
    die(&fixture, &fixture.topic, 50).await;
    assert!(!retention.look(0).await.unwrap());
    assert_eq!(dead(&fixture, &fixture.topic).await, 50, "it keeps all");
    set(&fixture, r#"{"dead_max":10}"#).await;
    // Two nodes at once remove no more than one.
    let both = tokio::join!(retention.look(0), retention.look(0));
    assert!(both.0.is_ok() && both.1.is_ok());
    assert_eq!((dead(&fixture, &fixture.topic).await, fixture.counted(Event::DeadExpired)), (10, 40));
    set(&fixture, r#"{"dead_max":null,"dead_retention":"1h"}"#).await;
    die(&fixture, &fixture.topic, 5).await;
    fixture.clock.advance(HOUR - Duration::from_millis(1));
    assert!(!retention.look(1).await.unwrap());
    assert_eq!(dead(&fixture, &fixture.topic).await, 15);
    fixture.clock.advance(Duration::from_millis(1));
    while retention.look(2).await.unwrap() {}
    assert_eq!((dead(&fixture, &fixture.topic).await, fixture.counted(Event::DeadExpired)), (0, 55));
}

#[tokio::test(start_paused = true)]
async fn a_topic_with_many_has_its_turn_with_others_and_is_gone_on_with() {
    let fixture = Fixture::with_shards(4).await;
    let other = TopicName::new("zebras").unwrap();
    let keep = |shards| change(&format!(r#"{{"shards":{shards},"dead_retention":"1s"}}"#));
    fixture.catalog.put(&other, &keep(1)).await.unwrap();
    set(&fixture, r#"{"dead_retention":"1s"}"#).await;
    die(&fixture, &fixture.topic, 6_000).await;
    die(&fixture, &other, 3).await;
    // A time of death is unique in its shard: of a thousand and more in one millisecond some are dated into the next.
    fixture.clock.advance(Duration::from_secs(2));
    let retention = retention(&fixture, &[&fixture.topic, &other]);
    let began = tokio::time::Instant::now();
    assert!(retention.look(0).await.unwrap(), "there is more");
    assert_eq!(dead(&fixture, &other).await, 0);
    let left = dead(&fixture, &fixture.topic).await;
    assert_eq!(left, 6_000 - 4 * BATCH_ITEMS_MAX as u64, "a step of each shard");
    while retention.look(1).await.unwrap() {}
    assert_eq!(dead(&fixture, &fixture.topic).await, 0);
    assert!(began.elapsed() >= Duration::from_secs(2), "6,000 at 2,560 a second");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_removed_by_settings_that_are_others_by_now_or_cannot_be_read() {
    let fixture = Fixture::with_shards(4).await;
    set(&fixture, r#"{"dead_max":1}"#).await;
    die(&fixture, &fixture.topic, 9).await;
    let retention = retention(&fixture, &[&fixture.topic]);
    let held = hold(&fixture.watched.reads);
    assert!(retention.look(0).await.is_err(), "the catalog does not answer");
    assert_eq!(dead_in_store(&fixture).await, 9);
    *fixture.watched.reads.lock() = None;
    held.add_permits(100);
    let draw = Draw::new(rand::random::<u64>);
    let elsewhere = Catalog::open(fixture.store.clone(), fixture.clock.clone(), draw).await.unwrap();
    elsewhere.put(&fixture.topic, &change(r#"{"dead_max":null}"#)).await.unwrap();
    assert_eq!(fixture.catalog.get(&fixture.topic).unwrap().config.dead_max, Some(1), "not heard of here");
    assert!(!retention.look(1).await.unwrap());
    assert_eq!(dead_in_store(&fixture).await, 9);
}

/// Without a look at the catalog.
async fn dead_in_store(fixture: &Fixture) -> u64 {
    let record = fixture.catalog.get(&fixture.topic).unwrap();
    let shards: Vec<_> = record.routing.all(&fixture.topic).collect();
    let counts = fixture.router.dispatcher.context.schedule.counts(&shards, fixture.clock.now()).await.unwrap();
    counts.into_iter().flatten().map(|counts| counts.dead).sum()
}
