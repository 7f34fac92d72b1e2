//! The answer to one call is lost; the call is repeated and answered as it was the first time.

use duetime_testkit::at_home::{AllCounted as _, MessagesAtHome as _, SettledAtHome as _};
use std::sync::Arc;
use std::time::Duration;

use duetime_core::resize_store::{DeadlineFloor, ResizeStore as _, RoutingAuthority as _};
use duetime_core::store::{
    ClaimRequest, ClaimedMessage, DeadAction, Edit, Edited, Enqueue, EnqueueOutcome, Settle, Settled, Settlement,
    ShardCounts, StoreError,
};
use duetime_core::{
    ChangeId, ClaimStore as _, Due, LeaseClass, MessageId, MessageState, OnConflict, Routing, RoutingRecord, Shard,
    StoredMessage, Timestamp, TopicStore as _,
};
use duetime_metrics::Meters;
use duetime_store_redis::{RedisStore, RedisStoreConfig};
use duetime_testkit::servers::RedisServer;
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::{claim_request, plain_message, topic_record};

use super::lost::LossyWay;
use super::server::{ask, durable};
use crate::store_load::now;

pub struct World {
    pub way: LossyWay,
    pub store: Arc<RedisStore>,
    /// Another node's, whose way loses nothing.
    pub other: Arc<RedisStore>,
    pub shard: Shard,
    pub server: RedisServer,
}

pub fn id(text: &str) -> MessageId {
    MessageId::new(text).unwrap()
}

async fn claim_by(store: &RedisStore, shard: &Shard, visibility: Duration) -> Result<Vec<ClaimedMessage>, StoreError> {
    let ask = ClaimRequest { visibility, ..claim_request(10) };
    store.claim(shard, now(), &ask).await.map(|claim| claim.messages)
}

impl World {
    pub async fn new() -> Self {
        Self::of(durable(&[]).await, Duration::from_secs(10)).await
    }

    pub async fn of(server: RedisServer, retry_for: Duration) -> Self {
        let way = LossyWay::to(server.port()).await;
        // The two overwrite none of each other's answers.
        let config = RedisStoreConfig { first_reply_slot: Some(0), ..RedisStoreConfig::default() };
        let config = RedisStoreConfig { url: way.url.clone().into(), connections: 1, retry_for, ..config };
        let store = RedisStore::connect(config, Arc::new(Meters::new())).await.unwrap();
        let record = store.put_topic(&topic_record("orders", 1, now()), None).await.unwrap();
        let config = RedisStoreConfig { first_reply_slot: Some(32), ..RedisStoreConfig::default() };
        let config = RedisStoreConfig { url: server.url().into(), ..config };
        let other = RedisStore::connect(config, Arc::new(Meters::new())).await.unwrap();
        let world = Self { way, store, other, shard: record.routing.shard(&record.name, 0), server };
        // The subscription's answers are not the ones to lose.
        let_pass(Duration::from_millis(200), Because::Quiet).await;
        world
    }

    /// Runs `call` so that its first answer is lost. Its script is loaded already.
    async fn losing<T>(&self, call: impl Future<Output = T>) -> T {
        self.way.lose_next();
        let answer = call.await;
        assert!(self.way.has_lost(), "an answer was lost");
        answer
    }

    /// The same; `between` is done before the call is sent again.
    pub async fn losing_and<T, B>(&self, call: impl Future<Output = T>, between: impl Future<Output = B>) -> (T, B) {
        self.way.lose_next_and_cut();
        let between = async {
            while !self.way.has_lost() {
                tokio::task::yield_now().await;
            }
            let done = between.await;
            self.way.cut(false);
            done
        };
        tokio::join!(call, between)
    }

    pub fn message(&self, text: &str) -> Enqueue {
        Enqueue {
            payload: text.as_bytes().to_vec().into(),
            ..plain_message(text, Due::At(Timestamp::from_millis(now().as_millis() - 1000)))
        }
    }

    pub async fn put(&self, texts: &[&str]) {
        let batch: Vec<Enqueue> = texts.iter().map(|text| self.message(text)).collect();
        self.store.enqueue(&self.shard, now(), &batch).await.unwrap();
    }

    async fn claim(&self) -> Vec<ClaimedMessage> {
        self.claim_for(Duration::from_secs(30)).await.unwrap()
    }

    async fn claim_for(&self, visibility: Duration) -> Result<Vec<ClaimedMessage>, StoreError> {
        claim_by(&self.store, &self.shard, visibility).await
    }

    pub async fn edit_there(&self, edit: Edit) -> Edited {
        self.other.edit(&self.shard, now(), &[edit]).await.unwrap()[0]
    }

    pub async fn put_there(&self, item: Enqueue) -> EnqueueOutcome {
        self.other.enqueue(&self.shard, now(), &[item]).await.unwrap()[0].outcome
    }

    pub async fn get(&self, text: &str) -> Option<StoredMessage> {
        self.store.get(&self.shard, &[id(text)]).await.unwrap().remove(0)
    }

    async fn settle(&self, claimed: &ClaimedMessage, how: Settlement) -> Settled {
        let batch = [Settle { id: claimed.id.clone(), score: claimed.score, action: how }];
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
        let told = ask(&self.server, &words).await.unwrap();
        redis::from_redis_value(told).unwrap()
    }

    async fn survey(&self) -> ShardCounts {
        self.store.all_counts(std::slice::from_ref(&self.shard), now()).await.unwrap()[0]
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
    let world = World::of(durable(&[]).await, Duration::from_secs(2)).await;
    let short = Duration::from_millis(100);
    assert!(world.claim_for(short).await.unwrap().is_empty());
    world.put(&["a", "b"]).await;
    // The claim is made, its answer is lost, and nothing comes through any more until it is given up.
    world.way.lose_next_and_cut();
    let given_up = world.claim_for(short).await;
    assert!(matches!(given_up, Err(StoreError::Unavailable { .. })), "{given_up:?}");
    assert_eq!(world.survey_there().await, 2, "it was made");
    world.way.cut(false);
    let long = Duration::from_secs(1);
    let claimed = world.claim_for(long).await.unwrap();
    assert_eq!(claimed.iter().map(|m| (m.id.as_str(), m.attempt)).collect::<Vec<_>>(), [("a", 1), ("b", 1)]);
    assert!(claimed.iter().all(|message| message.score.visible_at() > now()), "held from its answer on");
    assert_eq!(world.settle(&claimed[0], Settlement::Ack).await, Settled::Ok);
    // What was given out with an answer and not settled is another matter.
    let_pass(long + short, Because::Time).await;
    world.claim_for(short).await.unwrap();
    let_pass(Duration::from_millis(1200), Because::Time).await;
    let again = world.claim_for(short).await.unwrap();
    assert_eq!(again.iter().map(|m| (m.id.as_str(), m.attempt)).collect::<Vec<_>>(), [("b", 2)]);
}

#[tokio::test]
async fn a_settlement_whose_answer_is_lost_is_answered_as_done() {
    let world = World::new().await;
    world.put(&["a", "b", "c", "d", "e", "f"]).await;
    let held = world.claim().await;
    assert_eq!(held.len(), 6);
    // Loads both scripts.
    let nobody = ClaimedMessage { id: id("nobody"), ..held[0].clone() };
    for how in [Settlement::Ack, Settlement::Release] {
        assert_eq!(world.settle(&nobody, how).await, Settled::Expired);
    }
    assert_eq!(world.losing(world.settle(&held[0], Settlement::Ack)).await, Settled::Ok);
    assert_eq!(world.losing(world.settle(&held[1], Settlement::Nack(Duration::from_secs(60)))).await, Settled::Ok);
    assert_eq!(world.losing(world.settle(&held[2], Settlement::Release)).await, Settled::Ok);
    assert_eq!(world.losing(world.settle(&held[3], Settlement::Bury("bad".into()))).await, Settled::Ok);
    for (n, charged) in [(4, true), (5, false)] {
        let unanswered = Settlement::Unanswered { wait: Duration::from_secs(60), charged };
        assert_eq!(world.losing(world.settle(&held[n], unanswered)).await, Settled::Ok);
    }
    let counts = world.survey().await;
    assert_eq!((counts.scheduled, counts.in_flight, counts.dead), (4, 0, 1));
    for message in &held {
        assert_eq!(world.settle(message, Settlement::Ack).await, Settled::Expired, "said again by the caller");
    }
}

#[tokio::test]
async fn a_removal_is_done_only_by_the_call_that_removed() {
    let world = World::new().await;
    world.put(&["mine", "taken", "cancelled", "forgotten"]).await;
    let held = world.claim().await;
    let remove = |text: &str| {
        let one = held.iter().find(|one| one.id.as_str() == text).unwrap();
        Settle { id: one.id.clone(), score: one.score, action: Settlement::Remove }
    };
    // Loads the script.
    let nobody = [Settle { id: id("nobody"), ..remove("mine") }];
    assert_eq!(world.store.settle(&world.shard, now(), &nobody).await.unwrap(), [Settled::Expired]);
    let mine = [remove("mine")];
    assert_eq!(world.losing(world.store.settle(&world.shard, now(), &mine)).await.unwrap(), [Settled::Ok]);
    // The first sending never arrives, and then both are gone.
    world.way.cut(true);
    let both = [remove("taken"), remove("cancelled")];
    let others = async {
        let_pass(Duration::from_millis(300), Because::Fault).await;
        let taken = [remove("taken")];
        assert_eq!(world.other.settle(&world.shard, now(), &taken).await.unwrap(), [Settled::Ok]);
        assert_eq!(world.edit_there(Edit::Cancel(id("cancelled"))).await, Edited::InFlight);
        world.way.cut(false);
    };
    let (answers, ()) = tokio::join!(world.store.settle(&world.shard, now(), &both), others);
    assert_eq!(answers.unwrap(), [Settled::Expired, Settled::Expired]);
    // It arrives, and another's call overwrites its answer.
    let config = RedisStoreConfig { first_reply_slot: Some(0), ..RedisStoreConfig::default() };
    let config = RedisStoreConfig { url: world.server.url().into(), ..config };
    let rival = RedisStore::connect(config, Arc::new(Meters::new())).await.unwrap();
    let (forgotten, item) = ([remove("forgotten")], [world.message("another")]);
    let between = rival.enqueue(&world.shard, now(), &item);
    let (answers, _) = world.losing_and(world.store.settle(&world.shard, now(), &forgotten), between).await;
    assert!(matches!(answers, Err(StoreError::Unavailable { .. })), "{answers:?}");
    assert_eq!(world.get("forgotten").await, None);
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
    assert_eq!(world.survey().await, ShardCounts::default());
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
    let act =
        async |text: &str, action| world.store.resolve_dead_letters(&world.shard, now(), &[id(text)], action).await;
    assert_eq!(act("nobody", DeadAction::Purge).await.unwrap(), [false]);
    assert_eq!(world.losing(act("a", DeadAction::Redrive)).await.unwrap(), [true]);
    assert_eq!(world.losing(act("b", DeadAction::Purge)).await.unwrap(), [true]);
    let counts = world.survey().await;
    assert_eq!((counts.scheduled, counts.dead), (1, 0));
}

#[tokio::test]
async fn a_message_that_was_cancelled_before_its_enqueue_was_answered_is_not_made_again() {
    let world = World::new().await;
    world.put(&["first"]).await;
    for relative in [false, true] {
        let mut item = world.message("order");
        if relative {
            item.due = Due::In(Duration::from_secs(60));
        }
        let batch = [item];
        let enqueue = world.store.enqueue(&world.shard, now(), &batch);
        let (answers, cancelled) = world.losing_and(enqueue, world.edit_there(Edit::Cancel(id("order")))).await;
        assert_eq!(cancelled, Edited::Cancelled);
        let answer = answers.unwrap()[0];
        assert_eq!(answer.outcome, EnqueueOutcome::Scheduled, "as the first sending was");
        let due = if relative { now().plus(Duration::from_secs(60)) } else { now() };
        assert!(answer.due_at <= due, "{answer:?}");
        duetime_testkit::in_time!(answer.due_at.plus(Duration::from_secs(5)) > due, "{answer:?}");
        assert!(world.get("order").await.is_none(), "the cancel holds");
    }
}

#[tokio::test]
async fn a_message_that_was_taken_and_done_before_its_enqueue_was_answered_is_not_made_again() {
    let world = World::new().await;
    world.put(&["first"]).await;
    world.cancel(&["first"]).await;
    let batch = [world.message("order")];
    let taken = async {
        let claimed = claim_by(&world.other, &world.shard, Duration::from_secs(30)).await.unwrap();
        let acks: Vec<Settle> =
            claimed.iter().map(|m| Settle { id: m.id.clone(), score: m.score, action: Settlement::Ack }).collect();
        world.other.settle(&world.shard, now(), &acks).await.unwrap()
    };
    let (answers, settled) = world.losing_and(world.store.enqueue(&world.shard, now(), &batch), taken).await;
    assert_eq!((answers.unwrap()[0].outcome, settled), (EnqueueOutcome::Scheduled, vec![Settled::Ok]));
    assert_eq!(world.survey().await, ShardCounts::default(), "it is not delivered twice");
}

#[tokio::test]
async fn an_enqueue_that_was_refused_says_so_again_when_what_stood_in_its_way_has_gone() {
    let world = World::new().await;
    world.put(&["order"]).await;
    let batch = [world.message("order"), world.message("new")];
    let enqueue = world.store.enqueue(&world.shard, now(), &batch);
    let (answers, _) = world.losing_and(enqueue, world.edit_there(Edit::Cancel(id("order")))).await;
    let outcomes: Vec<EnqueueOutcome> = answers.unwrap().iter().map(|answer| answer.outcome).collect();
    assert_eq!(outcomes, [EnqueueOutcome::Duplicate, EnqueueOutcome::Scheduled]);
    assert!(world.get("order").await.is_none() && world.get("new").await.is_some());
}

#[tokio::test]
async fn a_replacement_whose_answer_is_lost_does_not_undo_a_later_one() {
    let world = World::new().await;
    world.put(&["order"]).await;
    let replacing = |body: &str| Enqueue {
        on_conflict: OnConflict::Replace,
        payload: body.as_bytes().to_vec().into(),
        ..world.message("order")
    };
    let batch = [replacing("one")];
    let enqueue = world.store.enqueue(&world.shard, now(), &batch);
    let (answers, later) = world.losing_and(enqueue, world.put_there(replacing("two"))).await;
    assert_eq!((answers.unwrap()[0].outcome, later), (EnqueueOutcome::Replaced, EnqueueOutcome::Replaced));
    assert_eq!(&world.get("order").await.unwrap().payload[..], b"two");
}

#[tokio::test]
async fn a_reschedule_whose_answer_is_lost_answers_what_it_did_and_undoes_nothing() {
    let world = World::new().await;
    let at = |seconds| Timestamp::from_millis(now().as_millis() / 1000 * 1000).plus(Duration::from_secs(seconds));
    let (hour, day) = (at(3_600), at(86_400));
    let all = ["a", "b", "c", "gone"];
    world.put(&all).await;
    let moves = |ids: &[&str], due| -> Vec<Edit> { ids.iter().map(|text| Edit::Reschedule(id(text), due)).collect() };
    world.store.edit(&world.shard, now(), &moves(&["nobody"], Due::At(hour))).await.unwrap();
    let batch = moves(&["a", "b", "c", "nobody"], Due::At(hour));
    let between = async {
        assert_eq!(world.edit_there(Edit::Cancel(id("a"))).await, Edited::Cancelled);
        let later = Edit::Reschedule(id("b"), Due::At(day));
        assert_eq!(world.edit_there(later).await, Edited::Rescheduled(day));
    };
    let (answers, ()) = world.losing_and(world.store.edit(&world.shard, now(), &batch), between).await;
    let moved = Edited::Rescheduled(hour);
    assert_eq!(answers.unwrap(), [moved, moved, moved, Edited::Unknown]);
    assert_eq!(world.get("b").await.unwrap().due_at, day, "the later change stands");
    // A delay is not counted twice.
    let batch = moves(&["c"], Due::In(Duration::from_secs(60)));
    let edit = world.store.edit(&world.shard, now(), &batch);
    let slow = let_pass(Duration::from_millis(700), Because::Time);
    let (answers, ()) = world.losing_and(edit, slow).await;
    let Edited::Rescheduled(due) = answers.unwrap()[0] else { panic!() };
    assert_eq!(world.get("c").await.unwrap().due_at, due);
    assert!(due.as_millis() < now().as_millis() + 59_600, "from the first sending on");
}

#[tokio::test]
async fn each_dead_letter_has_its_true_answer_though_the_first_one_is_lost() {
    let world = World::new().await;
    world.put(&["a", "b", "c"]).await;
    for held in world.claim().await {
        world.settle(&held, Settlement::Bury("bad".into())).await;
    }
    let act = async |texts: &[&str], action| {
        let ids: Vec<MessageId> = texts.iter().map(|text| id(text)).collect();
        world.store.resolve_dead_letters(&world.shard, now(), &ids, action).await
    };
    world.put(&["live"]).await;
    act(&["nobody"], DeadAction::Purge).await.unwrap();
    // Cancelled, after it was redriven; and what lives and was never dead was not redriven.
    let between = world.edit_there(Edit::Cancel(id("a")));
    let (answers, cancelled) = world.losing_and(act(&["a", "live", "nobody"], DeadAction::Redrive), between).await;
    assert_eq!((answers.unwrap(), cancelled), (vec![true, false, false], Edited::Cancelled));
    // Enqueued anew, after it was purged.
    let between = world.put_there(world.message("b"));
    let (answers, _) = world.losing_and(act(&["b", "nobody"], DeadAction::Purge), between).await;
    assert_eq!(answers.unwrap(), [true, false]);
    assert!(world.get("a").await.is_none() && world.get("b").await.is_some());
}

#[tokio::test]
async fn a_redrive_that_is_repeated_after_the_message_died_again_counts_once() {
    let world = World::new().await;
    world.put(&["a"]).await;
    let held = world.claim().await.remove(0);
    world.settle(&held, Settlement::Bury("bad".into())).await;
    world.store.resolve_dead_letters(&world.shard, now(), &[id("nobody")], DeadAction::Redrive).await.unwrap();
    // At the other node: it is claimed and refused again, before the redrive is sent again.
    let between = async {
        let held = claim_by(&world.other, &world.shard, Duration::from_secs(30)).await.unwrap().remove(0);
        let bury = [Settle { id: held.id, score: held.score, action: Settlement::Bury("again".into()) }];
        world.other.settle(&world.shard, now(), &bury).await.unwrap()[0]
    };
    let ids = [id("a")];
    let redrive = world.store.resolve_dead_letters(&world.shard, now(), &ids, DeadAction::Redrive);
    let (answers, buried) = world.losing_and(redrive, between).await;
    assert_eq!((answers.unwrap(), buried), (vec![true], Settled::Ok));
    let found = world.get("a").await.unwrap();
    assert_eq!((found.state, found.redrives), (MessageState::Dead, 1));
}

#[tokio::test]
async fn a_cancel_whose_answer_is_lost_does_not_cancel_what_came_since() {
    let world = World::new().await;
    world.put(&["a"]).await;
    world.cancel(&["nobody"]).await;
    let (answers, _) = world.losing_and(world.cancel(&["a"]), world.put_there(world.message("a"))).await;
    assert_eq!(answers, [Edited::Cancelled]);
    assert!(world.get("a").await.is_some(), "another message of that id");
}

#[tokio::test]
async fn what_was_done_before_its_shard_took_another_record_is_answered_as_done() {
    let world = World::new().await;
    world.put(&["first"]).await;
    let (topic, record) = (&world.shard.topic, world.other.topics().await.unwrap().remove(0));
    let seen = record.routing_record();
    let batch = [world.message("order")];
    let between = async {
        assert_eq!(world.edit_there(Edit::Cancel(id("order"))).await, Edited::Cancelled);
        let routing = Routing { epoch: seen.routing.epoch + 1, change_id: ChangeId(2), ..seen.routing.clone() };
        let new = RoutingRecord { routing: routing.clone(), desired: None, earlier: Vec::new() };
        world.other.swap_routing(topic, &seen, &new).await.unwrap();
        world.other.fence(topic, 0, &routing, &DeadlineFloor::default()).await.unwrap();
    };
    let (answers, ()) = world.losing_and(world.store.enqueue(&world.shard, now(), &batch), between).await;
    assert_eq!(answers.unwrap()[0].outcome, EnqueueOutcome::Scheduled);
    // What was not carried out is sent where it belongs now.
    world.way.cut(true);
    let uncut = async {
        let_pass(Duration::from_millis(300), Because::Fault).await;
        world.way.cut(false);
    };
    let batch = [world.message("other")];
    let (answers, ()) = tokio::join!(world.store.enqueue(&world.shard, now(), &batch), uncut);
    assert!(matches!(answers, Err(StoreError::Stale(_))), "{answers:?}");
}
