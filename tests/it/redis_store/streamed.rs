//! One step of the delivery in place: what it makes of marks of earlier claims, of damaged bodies and
//! of a repeated call.

use duetime_testkit::at_home::MessagesAtHome as _;
use std::time::Duration;

use duetime_core::resize_store::{ApplyOutcome, Batch, BatchId, Frozen, FrozenState, ResizeStore as _};
use duetime_core::store::{DeadAction, Settlement};
use duetime_core::{
    ClaimStore as _, Expiry, Headers, InPlace, LeaseClass, MessageStore as _, Nonce, OnExpiry, Score, StreamTransfer,
    Streamed, Timestamp, envelope, max_attempts, own_visibility,
};
use duetime_testkit::wait::{Because, let_pass};

use super::by_hand::{World, id, now};
use crate::redis_faults::server::ask;

impl World {
    async fn step(&self, request: u64) -> Streamed {
        let ask = StreamTransfer { request, limit: 256, how: InPlace::default(), on_expiry: OnExpiry::Drop };
        self.store.deliver_in_place(&self.shard, now(), &ask).await.unwrap()
    }

    /// Ids, attempts and payloads in the stream.
    async fn entries(&self) -> Vec<(String, String, String)> {
        let all = ask(&self.server, &format!("XRANGE {}:stream - +", self.key)).await.unwrap();
        let all: Vec<(String, Vec<String>)> = redis::from_redis_value(all).unwrap();
        let value = |fields: &[String], name: &str| {
            let at = fields.iter().step_by(2).position(|field| field == name).expect("it has the field");
            fields[2 * at + 1].clone()
        };
        all.iter()
            .map(|(_, fields)| (value(fields, "id"), value(fields, "attempt"), value(fields, "payload")))
            .collect()
    }

    async fn counts(&self) -> (u64, u64, u64) {
        let survey = self.survey().await;
        (survey.scheduled, survey.in_flight, survey.dead)
    }
}

fn entry(name: &str, attempt: &str) -> (String, String, String) {
    (name.to_owned(), attempt.to_owned(), name.to_owned())
}

#[tokio::test]
async fn a_message_that_an_earlier_sink_had_keeps_its_attempts() {
    let world = World::new().await;
    world.put(&["tried"]).await;
    let (held, _) = world.claim().await;
    world.settle(&held[0], Settlement::Nack(Duration::ZERO)).await;
    world.put(&["fresh"]).await;
    let step = world.step(1).await;
    assert_eq!((step.count, step.ran_out), (2, 0));
    assert_eq!(step.visible.iter().map(|(_, messages)| messages).sum::<u64>(), 2);
    assert_eq!(world.entries().await, [entry("fresh", "1"), entry("tried", "2")]);
    assert_eq!(world.counts().await, (0, 0, 0));
}

#[tokio::test]
async fn a_message_whose_claim_ran_out_is_handed_over_and_held_by_nobody() {
    let world = World::new().await;
    world.put(&["held"]).await;
    let (held, _) = world.claim().await;
    // Its deadline is past by hand: time is not waited for.
    let past = Score::new(Timestamp::from_millis(now().as_millis() - 5000), held[0].score.class(), 1);
    ask(&world.server, &format!("ZADD {} {} held", world.key, past.raw())).await.unwrap();
    assert_eq!(world.counts().await.1, 1);
    let step = world.step(1).await;
    assert_eq!((step.count, step.ran_out), (1, 1));
    assert_eq!(world.entries().await, [entry("held", "2")]);
    assert_eq!(world.counts().await, (0, 0, 0));
}

#[tokio::test]
async fn a_message_that_comes_from_another_shard_keeps_its_attempts() {
    let world = World::new().await;
    let due = Timestamp::from_millis(now().as_millis() - 1000);
    let body = envelope::encode(due, Nonce(7), &Headers::default(), b"moved");
    let state = FrozenState::Live(Score::new(due, LeaseClass::FREE, 3));
    let messages = vec![Frozen { id: id("moved"), state, body: Some(body) }];
    let batch = Batch { name: BatchId { number: 1, nonce: 5 }, from: 0, to: 1, messages };
    assert!(matches!(
        world.store.apply_batch(&world.shard, &batch).await.unwrap(),
        ApplyOutcome::Done { fresh: 1, .. }
    ));
    assert_eq!(world.step(1).await.count, 1);
    assert_eq!(world.entries().await, [entry("moved", "4")]);
}

#[tokio::test]
async fn a_redriven_message_is_handed_over_with_the_headers_it_was_given() {
    let world = World::new().await;
    world.put(&["again"]).await;
    let (held, _) = world.claim().await;
    world.settle(&held[0], Settlement::Bury("broken".into())).await;
    world.store.resolve_dead_letters(&world.shard, now(), &[id("again")], DeadAction::Redrive).await.unwrap();
    assert_eq!(world.step(1).await.count, 1);
    assert_eq!(world.entries().await, [entry("again", "1")]);
    let all = ask(&world.server, &format!("XRANGE {}:stream - +", world.key)).await.unwrap();
    let all: Vec<(String, Vec<String>)> = redis::from_redis_value(all).unwrap();
    assert!(all[0].1.iter().all(|field| !field.contains("redrives")), "the count is no header of it: {all:?}");
}

#[tokio::test]
async fn what_has_expired_is_removed_or_a_dead_letter_and_never_in_the_stream() {
    for (on_expiry, dead) in [(OnExpiry::Drop, 0), (OnExpiry::Dead, 3)] {
        let world = World::new().await;
        world.put(&["first"]).await;
        let given = max_attempts::kept_in(1, &Headers::new(vec![("shop".into(), "7".into())]).unwrap());
        let given = own_visibility::kept_in(Duration::from_secs(5), &given);
        let expiring = |expiry: Expiry| expiry.kept_in(&given);
        let soon = Timestamp::from_millis(now().as_millis() - 1);
        world.put_with("after", &expiring(Expiry::After(Duration::ZERO))).await;
        world.put_with("at", &expiring(Expiry::At(soon))).await;
        world.put_with("later", &expiring(Expiry::After(Duration::from_secs(60)))).await;
        // As somebody else may write it.
        world.put_with("strange", &Headers::from_stored(vec![("duetime-expires".into(), "soon".into())])).await;
        world.put_with("held", &expiring(Expiry::At(soon))).await;
        let past = Score::new(Timestamp::from_millis(now().as_millis() - 5000), LeaseClass::TOPIC, 1);
        ask(&world.server, &format!("ZADD {} {} held", world.key, past.raw())).await.unwrap();
        ask(&world.server, &format!("HSET {}:meta in_flight 1 d1 {}", world.key, now().as_millis())).await.unwrap();
        let_pass(Duration::from_millis(20), Because::Time).await;
        let request = StreamTransfer { request: 1, limit: 256, how: InPlace::default(), on_expiry };
        let step = world.store.deliver_in_place(&world.shard, now(), &request).await.unwrap();
        assert_eq!((step.count, step.expired, step.buried, step.ran_out), (3, 3, dead, 1));
        let ids: Vec<String> = world.entries().await.into_iter().map(|(id, ..)| id).collect();
        assert_eq!(ids, ["first", "later", "strange"]);
        assert_eq!(world.counts().await, (0, 0, dead));
        let again = world.store.deliver_in_place(&world.shard, now(), &request).await.unwrap();
        assert_eq!((again.count, again.expired), (3, 0), "a repetition counts nothing twice");
        let all = ask(&world.server, &format!("XRANGE {}:stream - +", world.key)).await.unwrap();
        let all: Vec<(String, Vec<String>)> = redis::from_redis_value(all).unwrap();
        let fields = |at: usize| all[at].1.join(" ");
        let is_shown = |name: &str| fields(1).contains(name);
        let hidden = ["expires", "attempts", "visibility"];
        assert!(is_shown("header.shop 7") && !hidden.into_iter().any(is_shown), "{}", fields(1));
        let letters = world.store.dead_letters(&world.shard, None, 10).await.unwrap().messages;
        let reasons = letters.iter().map(|letter| letter.death.as_ref().unwrap().reason.as_str());
        assert!(reasons.clone().all(|reason| reason.starts_with("expired: ")), "{:?}", reasons.collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_damaged_message_dies_alone_and_lives_again_when_it_is_redriven() {
    let world = World::new().await;
    world.put(&["a", "b", "c", "d"]).await;
    ask(&world.server, &format!("HDEL {}:body b", world.key)).await.unwrap();
    ask(&world.server, &format!("HSET {}:body c nonsense", world.key)).await.unwrap();
    let step = world.step(1).await;
    assert_eq!((step.count, step.buried), (2, 2));
    assert_eq!(world.entries().await, [entry("a", "1"), entry("d", "1")]);
    let dead = world.store.dead_letters(&world.shard, None, 10).await.unwrap().messages;
    let reason = |at: usize| dead[at].death.as_ref().unwrap().reason.clone();
    assert_eq!((dead[0].id.as_str(), reason(0).as_str()), ("b", "its body is missing in the store"));
    assert!(dead[1].id.as_str() == "c" && reason(1).contains("cannot be read"), "{}", reason(1));
    assert_eq!(world.counts().await, (0, 0, 2));

    let before = now();
    world.store.resolve_dead_letters(&world.shard, now(), &[id("b")], DeadAction::Redrive).await.unwrap();
    let step = world.step(2).await;
    assert_eq!(step.count, 1, "the body was made anew, without a payload");
    // Late by what it waited since, and not since it was due first.
    assert!(step.visible.iter().all(|(since, _)| *since >= before), "{:?}", step.visible);
    assert_eq!(world.entries().await.len(), 3);
    assert_eq!(world.counts().await, (0, 0, 1));
}

#[tokio::test]
async fn what_was_visible_when_is_answered_for_each_moment() {
    let world = World::new().await;
    world.put(&["a", "b"]).await;
    let_pass(Duration::from_millis(3), Because::Time).await;
    world.put(&["c"]).await;
    let scores: Vec<i64> = {
        let all = ask(&world.server, &format!("ZRANGE {} 0 2 WITHSCORES", world.key)).await.unwrap();
        let all: Vec<(String, i64)> = redis::from_redis_value(all).unwrap();
        all.into_iter().map(|(_, score)| score / 1000).collect()
    };
    let step = world.step(1).await;
    let told: Vec<i64> = step.visible.iter().flat_map(|(since, n)| vec![since.as_millis(); *n as usize]).collect();
    assert_eq!(told, scores);
}
