//! The answer to one call is lost; the call is repeated and answered as it was the first time.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::{
    ClaimRequest, ClaimedMessage, DeadAction, Edit, Edited, Enqueue, EnqueueOutcome, Settle, Settled, Settlement,
    StoreError, Survey,
};
use duetime_core::{
    ClaimStore as _, DeliveryMode, Due, Headers, LeaseClass, MessageId, MessageStore as _, Nonce, OnConflict,
    RetryPolicy, ScheduleStore as _, Shard, ShardCount, Timestamp, TopicConfig, TopicName, TopicRecord,
    TopicStore as _,
};
use duetime_metrics::Meters;
use duetime_store_redis::{RedisStore, RedisStoreConfig};

use super::load::now;
use super::lost::LossyWay;
use super::server::Server;

struct World {
    way: LossyWay,
    store: Arc<RedisStore>,
    shard: Shard,
    server: Server,
}

fn id(text: &str) -> MessageId {
    MessageId::new(text).unwrap()
}

impl World {
    async fn new() -> Self {
        let server = Server::start(&[]).await;
        let way = LossyWay::to(server.port).await;
        let retry_for = Duration::from_secs(2);
        let config =
            RedisStoreConfig { url: way.url.clone(), connections: 1, retry_for, ..RedisStoreConfig::default() };
        let store = RedisStore::connect(config, Arc::new(Meters::new())).await.unwrap();
        let topic = TopicName::new("orders").unwrap();
        let config = TopicConfig { shards: ShardCount::Fixed(1), ..TopicConfig::default() };
        let record = TopicRecord::new(topic.clone(), config, 1, "0123456789abcdef".into(), now());
        let record = store.put_topic(&record, None).await.unwrap();
        let world = Self { way, store, shard: record.routing.shard(&topic, 0), server };
        // The subscription's answers are not the ones to lose.
        tokio::time::sleep(Duration::from_millis(200)).await;
        world
    }

    /// Runs `call` so that its first answer is lost. Its script is loaded already.
    async fn losing<T>(&self, call: impl Future<Output = T>) -> T {
        self.way.lose_next();
        let answer = call.await;
        assert!(self.way.has_lost(), "an answer was lost");
        answer
    }

    fn message(&self, text: &str) -> Enqueue {
        Enqueue {
            id: id(text),
            due: Due::At(Timestamp::from_millis(now().as_millis() - 1000)),
            headers: Headers::default(),
            payload: text.as_bytes().to_vec().into(),
            on_conflict: OnConflict::Reject,
            nonce: Nonce(rand::random()),
        }
    }

    async fn put(&self, texts: &[&str]) {
        let batch: Vec<Enqueue> = texts.iter().map(|text| self.message(text)).collect();
        self.store.enqueue(&self.shard, now(), &batch).await.unwrap();
    }

    async fn claim(&self) -> Vec<ClaimedMessage> {
        let ask = ClaimRequest {
            request: rand::random(),
            limit: 10,
            visibility: Duration::from_secs(30),
            class: LeaseClass::TOPIC,
            retry: RetryPolicy::default(),
            delivery: DeliveryMode::AtLeastOnce,
        };
        self.store.claim(&self.shard, now(), &ask).await.unwrap().messages
    }

    async fn claim_for(&self, visibility: Duration) -> Result<Vec<ClaimedMessage>, StoreError> {
        let ask = ClaimRequest {
            request: rand::random(),
            limit: 10,
            visibility,
            class: LeaseClass::TOPIC,
            retry: RetryPolicy::default(),
            delivery: DeliveryMode::AtLeastOnce,
        };
        self.store.claim(&self.shard, now(), &ask).await.map(|claim| claim.messages)
    }

    async fn settle(&self, claimed: &ClaimedMessage, how: Settlement) -> Settled {
        let batch = [Settle { id: claimed.id.clone(), score: claimed.score, how }];
        self.store.settle(&self.shard, now(), &batch).await.unwrap()[0]
    }

    async fn cancel(&self, texts: &[&str]) -> Vec<Edited> {
        let batch: Vec<Edit> = texts.iter().map(|text| Edit::Cancel(id(text))).collect();
        self.store.edit(&self.shard, now(), &batch).await.unwrap()
    }

    /// How many messages are claimed, by the server's own word.
    async fn survey_there(&self) -> u64 {
        let tag = duetime_redis::slots::tag_of(duetime_redis::slots::slot_of(&self.shard.topic, self.shard.index));
        let words = format!("HGET duetime:{{{tag}}}:{}:{}:meta in_flight", self.shard.topic, self.shard.index);
        let told = self.server.ask(&words).await.unwrap();
        redis::from_redis_value(told).unwrap()
    }

    async fn survey(&self) -> Survey {
        self.store.survey(std::slice::from_ref(&self.shard), now()).await.unwrap()[0]
    }
}

#[tokio::test]
async fn an_enqueue_whose_answer_is_lost_schedules_once() {
    let world = World::new().await;
    world.put(&["first"]).await;
    let batch = [world.message("a"), world.message("b")];
    let answers = world.losing(world.store.enqueue(&world.shard, now(), &batch)).await.unwrap();
    assert!(answers.iter().all(|answer| answer.outcome == EnqueueOutcome::Scheduled), "{answers:?}");
    assert_eq!(world.survey().await.scheduled, 3);
}

#[tokio::test]
async fn a_claim_whose_answer_is_lost_costs_no_attempt() {
    let world = World::new().await;
    assert!(world.claim().await.is_empty());
    world.put(&["a", "b"]).await;
    let claimed = world.losing(world.claim()).await;
    assert_eq!(claimed.iter().map(|m| (m.id.as_str(), m.attempt)).collect::<Vec<_>>(), [("a", 1), ("b", 1)]);
    assert_eq!(world.survey().await.in_flight, 2);
}

#[tokio::test]
async fn an_outage_longer_than_the_visibility_timeout_and_all_patience_spends_no_attempt() {
    let world = World::new().await;
    let short = Duration::from_millis(100);
    assert!(world.claim_for(short).await.unwrap().is_empty());
    world.put(&["a", "b"]).await;
    // The claim is made, its answer is lost, and nothing comes through any more until it is given up.
    world.way.lose_next();
    let claim = world.claim_for(short);
    let cutting = async {
        while !world.way.has_lost() {
            tokio::task::yield_now().await;
        }
        world.way.cut(true);
    };
    let (given_up, ()) = tokio::join!(claim, cutting);
    assert!(matches!(given_up, Err(StoreError::Unavailable { .. })), "{given_up:?}");
    assert_eq!(world.survey_there().await, 2, "it was made");
    world.way.cut(false);
    let long = Duration::from_secs(1);
    let claimed = world.claim_for(long).await.unwrap();
    assert_eq!(claimed.iter().map(|m| (m.id.as_str(), m.attempt)).collect::<Vec<_>>(), [("a", 1), ("b", 1)]);
    assert!(claimed.iter().all(|message| message.score.visible_at() > now()), "held from its answer on");
    assert_eq!(world.settle(&claimed[0], Settlement::Ack).await, Settled::Ok);
    // What was given out with an answer and not settled is another matter.
    tokio::time::sleep(long + short).await;
    world.claim_for(short).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let again = world.claim_for(short).await.unwrap();
    assert_eq!(again.iter().map(|m| (m.id.as_str(), m.attempt)).collect::<Vec<_>>(), [("b", 2)]);
}

#[tokio::test]
async fn a_settlement_whose_answer_is_lost_is_answered_as_done() {
    let world = World::new().await;
    world.put(&["a", "b", "c", "d"]).await;
    let held = world.claim().await;
    assert_eq!(held.len(), 4);
    // Loads both scripts.
    let nobody = ClaimedMessage { id: id("nobody"), ..held[0].clone() };
    for how in [Settlement::Ack, Settlement::Release] {
        assert_eq!(world.settle(&nobody, how).await, Settled::Expired);
    }
    assert_eq!(world.losing(world.settle(&held[0], Settlement::Ack)).await, Settled::Ok);
    assert_eq!(world.losing(world.settle(&held[1], Settlement::Nack(Duration::from_secs(60)))).await, Settled::Ok);
    assert_eq!(world.losing(world.settle(&held[2], Settlement::Release)).await, Settled::Ok);
    assert_eq!(world.losing(world.settle(&held[3], Settlement::Bury("bad".into()))).await, Settled::Ok);
    let counts = world.survey().await;
    assert_eq!((counts.scheduled, counts.in_flight, counts.dead), (2, 0, 1));
    for message in &held {
        assert_eq!(world.settle(message, Settlement::Ack).await, Settled::Expired, "said again by the caller");
    }
}

#[tokio::test]
async fn an_extension_whose_answer_is_lost_answers_the_receipt_it_made() {
    let world = World::new().await;
    world.put(&["a"]).await;
    let held = world.claim().await;
    let longer = || Settlement::Extend(Duration::from_secs(60), LeaseClass::TOPIC);
    let nobody = ClaimedMessage { id: id("nobody"), ..held[0].clone() };
    assert_eq!(world.settle(&nobody, longer()).await, Settled::Expired);
    let answer = world.losing(world.settle(&held[0], longer())).await;
    let Settled::Extended(score) = answer else { panic!("{answer:?}") };
    assert_eq!(world.settle(&ClaimedMessage { score, ..held[0].clone() }, Settlement::Ack).await, Settled::Ok);
}

#[tokio::test]
async fn a_cancel_whose_answer_is_lost_says_what_it_did() {
    let world = World::new().await;
    world.put(&["held"]).await;
    assert_eq!(world.claim().await.len(), 1);
    world.put(&["a", "b", "c"]).await;
    assert_eq!(world.cancel(&["nobody"]).await, [Edited::Unknown]);
    assert_eq!(world.losing(world.cancel(&["a"])).await, [Edited::Cancelled]);
    let mixed = world.losing(world.cancel(&["b", "a", "held", "c"])).await;
    assert_eq!(mixed, [Edited::Cancelled, Edited::Unknown, Edited::InFlight, Edited::Cancelled]);
    assert_eq!(world.cancel(&["b"]).await, [Edited::Unknown], "said again by the caller");
    assert_eq!(world.survey().await, Survey::default());
}

#[tokio::test]
async fn a_long_cancel_whose_answer_is_lost_says_of_each_id_what_it_did() {
    let world = World::new().await;
    let names: Vec<String> = (0..256).map(|n| format!("k{n}")).collect();
    let there: Vec<&str> = names.iter().map(String::as_str).filter(|name| !name.ends_with('7')).collect();
    world.put(&there).await;
    assert_eq!(world.cancel(&["nobody"]).await, [Edited::Unknown]);
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let answers = world.losing(world.cancel(&all)).await;
    for (name, answer) in all.iter().zip(&answers) {
        let due = if name.ends_with('7') { Edited::Unknown } else { Edited::Cancelled };
        assert_eq!(*answer, due, "{name}");
    }
    let again = world.losing(world.cancel(&all)).await;
    assert!(again.iter().all(|answer| *answer == Edited::Unknown), "another cancel of the same ids");
}

#[tokio::test]
async fn a_redrive_and_a_purge_whose_answers_are_lost_are_answered_as_done() {
    let world = World::new().await;
    world.put(&["a", "b"]).await;
    for held in world.claim().await {
        world.settle(&held, Settlement::Bury("bad".into())).await;
    }
    let act = async |text: &str, action| world.store.settle_dead(&world.shard, now(), &[id(text)], action).await;
    assert_eq!(act("nobody", DeadAction::Purge).await.unwrap(), [false]);
    assert_eq!(world.losing(act("a", DeadAction::Redrive)).await.unwrap(), [true]);
    assert_eq!(world.losing(act("b", DeadAction::Purge)).await.unwrap(), [true]);
    let counts = world.survey().await;
    assert_eq!((counts.scheduled, counts.dead), (1, 0));
}
