//! Dead letters that are forwarded to another topic.

use duetime_core::{MessageState, StoredMessage, TopicStore as _};

use super::retention::{dead, die, retention};
use super::*;
use crate::{CatalogError, Resend, Resent, Retention, resend};

struct World {
    fixture: Fixture,
    to: TopicName,
    retention: Retention,
}

impl World {
    /// `orders` forwards to `failed`, which remembers.
    async fn new() -> Self {
        let fixture = Fixture::with_shards(4).await;
        let to = TopicName::new("failed").unwrap();
        let retention = retention(&fixture, &[&fixture.topic, &to]);
        let world = Self { fixture, to, retention };
        world.set(&world.to, r#"{"shards":2,"remember":"1h"}"#).await.unwrap();
        world.set(&world.fixture.topic, r#"{"dead_to":"failed","remember":"1h"}"#).await.unwrap();
        world
    }

    async fn set(&self, topic: &TopicName, text: &str) -> Result<(), CatalogError> {
        self.fixture.catalog.put(topic, &change(text)).await.map(drop)
    }

    async fn look(&self) {
        while self.retention.look(0).await.unwrap() {}
    }

    /// Dead letters of `orders`, and what waits in `failed`.
    async fn counts(&self) -> (u64, u64) {
        let there = self.fixture.router.counter.count(&self.to).await.unwrap();
        (dead(&self.fixture, &self.fixture.topic).await, there.total.scheduled)
    }

    async fn read(&self, topic: &TopicName, name: &str) -> Option<StoredMessage> {
        self.fixture.router.get(topic, vec![id(name)]).await.remove(0).unwrap().1
    }

    fn issues(&self) -> Vec<String> {
        self.fixture.catalog.issues().of_topics()
    }
}

#[tokio::test(start_paused = true)]
async fn letters_go_to_the_other_topic_with_what_they_died_of_and_are_due_at_once() {
    let world = World::new().await;
    let names = die(&world.fixture, &world.fixture.topic, 150).await;
    world.look().await;
    assert_eq!(world.counts().await, (0, 150));
    assert_eq!(world.fixture.counted(Event::DeadForwarded), 150);
    let found = world.read(&world.to, &names[0]).await.unwrap();
    assert_eq!((found.state, found.attempts), (MessageState::Scheduled, 0));
    assert!(found.due_at <= world.fixture.clock.now());
    let said = |name: &str| found.headers.get(&format!("duetime-dead-{name}")).map(str::to_owned);
    assert_eq!((said("from").as_deref(), said("reason").as_deref()), (Some("orders"), Some("refused")));
    assert_eq!(said("attempts").as_deref(), Some("1"));
    // Dead again in its new topic it stays there.
    die(&world.fixture, &world.to, 0).await;
    assert_eq!((dead(&world.fixture, &world.to).await, world.counts().await), (150, (0, 0)));
    world.look().await;
    assert_eq!(dead(&world.fixture, &world.to).await, 150);
    // Brought back by hand it begins anew, once its first topic has forgotten that it left.
    world.set(&world.fixture.topic, r#"{"remember":"0s"}"#).await.unwrap();
    let back = Resend { to: world.fixture.topic.clone(), payload: None, died_at: None };
    let answers = resend(&world.fixture.router, &world.to, &[id(&names[0])], &back).await;
    assert!(matches!(answers[..], [Ok(Resent::Done)]), "{answers:?}");
    assert!(world.read(&world.fixture.topic, &names[0]).await.unwrap().headers.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_ends_between_the_two_steps_and_two_at_once_double_none() {
    let world = World::new().await;
    let fixture = &world.fixture;
    die(fixture, &fixture.topic, 40).await;
    fixture.watched.moves_fail.store(true, Ordering::SeqCst);
    assert!(world.retention.look(0).await.is_err());
    let (left, there) = world.counts().await;
    assert!(left == 40 && (1..=40).contains(&there), "in both topics, or in the first: {there}");
    // Some of them are delivered before anybody ends what was begun.
    let record = fixture.catalog.get(&world.to).unwrap();
    for shard in (0..record.routing.shards).map(|index| record.shard(index)) {
        let claim = fixture.store.claim(&shard, fixture.clock.now(), &claim_request(BATCH_ITEMS_MAX)).await.unwrap();
        let acks = claim.messages.iter().map(|one| duetime_core::store::Settle {
            id: one.id.clone(),
            score: one.score,
            action: duetime_core::store::Settlement::Ack,
        });
        let (acks, now): (Vec<_>, _) = (acks.collect(), fixture.clock.now());
        let wait = duetime_core::store::AckWait::No;
        fixture.store.settle_at(&shard, duetime_core::Role::Home, now, &acks, wait).await.unwrap();
    }
    fixture.watched.moves_fail.store(false, Ordering::SeqCst);
    let other = retention(fixture, &[&fixture.topic]);
    let both = tokio::join!(world.retention.look(0), other.look(0));
    assert!(both.0.is_ok() && both.1.is_ok(), "{both:?}");
    world.look().await;
    assert_eq!(world.counts().await, (0, 40 - there));
}

#[tokio::test(start_paused = true)]
async fn letters_stay_until_the_other_topic_takes_them_and_one_that_stays_holds_up_none() {
    let world = World::new().await;
    let fixture = &world.fixture;
    let names = die(fixture, &fixture.topic, 60).await;
    for (settings, why) in
        [(r#"{"remember":"9m"}"#, "does not remember"), (r#"{"remember":"1h","max_messages":7}"#, "is full")]
    {
        world.set(&world.to, settings).await.unwrap();
        world.look().await;
        assert!(world.issues().iter().any(|issue| issue.contains(why)), "{why}: {:?}", world.issues());
    }
    let (left, there) = world.counts().await;
    assert_eq!((left, there), (53, 7));
    fixture.catalog.delete(&world.to, duetime_core::Deletion::Force).await.unwrap();
    world.look().await;
    assert!(
        world.issues()[0].contains("orders are not forwarded: topic failed does not exist"),
        "{:?}",
        world.issues()
    );
    world.set(&world.to, r#"{"remember":"1h"}"#).await.unwrap();
    // One of them has an id that is there already.
    let mut stays = Vec::new();
    for name in &names {
        if stays.is_empty() && world.read(&fixture.topic, name).await.is_some() {
            stays.push(name.clone());
        }
    }
    fixture.router.enqueue(&world.to, vec![message(&stays[0])]).await.remove(0).unwrap();
    world.look().await;
    assert_eq!((world.counts().await, world.issues().len()), ((1, 53), 0));
    assert_eq!(world.read(&fixture.topic, &stays[0]).await.unwrap().state, MessageState::Dead);
    // What is forwarded no more is no issue.
    world.set(&fixture.topic, r#"{"dead_to":"nowhere"}"#).await.unwrap();
    world.look().await;
    assert_eq!(world.issues().len(), 1);
    world.set(&fixture.topic, r#"{"dead_to":null}"#).await.unwrap();
    world.look().await;
    assert_eq!((world.issues().len(), world.counts().await.0), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_letter_is_forwarded_once() {
    let world = World::new().await;
    let third = TopicName::new("third").unwrap();
    let refused = async |topic: &TopicName, text: &str| {
        let Err(CatalogError::Invalid { field, detail }) = world.set(topic, text).await else {
            panic!("{topic} {text} was taken")
        };
        assert_eq!(field.as_deref(), Some("dead_to"));
        detail
    };
    assert!(refused(&world.fixture.topic, r#"{"dead_to":"orders"}"#).await.contains("the topic itself"));
    assert!(refused(&world.to, r#"{"dead_to":"orders"}"#).await.contains("forwarded once"));
    assert!(refused(&third, r#"{"dead_to":"orders"}"#).await.contains("forwards its own"));
    world.set(&third, "{}").await.unwrap();
    assert!(refused(&world.fixture.topic, r#"{"dead_to":"third"}"#).await.contains("--remember 1h"));
    // Another change of a topic is not held up by what its target has become.
    world.set(&world.to, r#"{"remember":"0s"}"#).await.unwrap();
    world.set(&world.fixture.topic, r#"{"delay":"1s"}"#).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_circle_that_two_nodes_made_at_the_same_moment_moves_no_letter_twice() {
    let world = World::new().await;
    let fixture = &world.fixture;
    world.set(&fixture.topic, r#"{"remember":"10m"}"#).await.unwrap();
    let known = fixture.catalog.get(&world.to).unwrap();
    let mut record = (*known).clone();
    record.config.dead_to = Some(fixture.topic.clone());
    record.version += 1;
    fixture.store.put_topic(&record, Some(known.version)).await.unwrap();
    die(fixture, &fixture.topic, 5).await;
    world.look().await;
    assert_eq!(world.counts().await, (0, 5));
    die(fixture, &world.to, 0).await;
    // The first topic has forgotten that they left.
    fixture.clock.advance(Duration::from_secs(660));
    world.look().await;
    let back = fixture.router.counter.count(&fixture.topic).await.unwrap().total;
    assert_eq!((dead(fixture, &world.to).await, back.messages()), (5, 0));
}
