//! Settlements: ack, nack, release, extend, bury, one by one and in batches.

use crate::at_home::SettledAtHome as _;
use std::time::Duration;

use duetime_core::limits::REASON_BYTES_MAX;
use duetime_core::store::{ClaimedMessage, Settled, Settlement, ShardCounts};
use duetime_core::{Due, LeaseClass, MessageState};

use super::world::{LONG, SHORT, World, id, ids, message, settle};
use crate::conformance::StoreFactory;

pub async fn an_acknowledged_message_is_gone(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let claimed = world.claim_one().await;
    assert_eq!(world.settle(&claimed, Settlement::Ack).await, Settled::Ok);
    assert_eq!(world.get("a").await, None);
    assert_eq!(world.survey().await, ShardCounts::default());
    assert_eq!(world.claim(10).await.next_due, None);
}

pub async fn a_nacked_message_comes_again_after_its_delay(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let due_at = world.moment(-1000);
    world.put("a", Due::At(due_at)).await;
    let claimed = world.claim_one().await;
    let delay = Duration::from_millis(100);
    let earliest = world.now().plus(delay);
    assert_eq!(world.settle(&claimed, Settlement::Nack(delay)).await, Settled::Ok);
    let latest = world.now().plus(delay);
    let found = world.get("a").await.unwrap();
    assert_eq!((found.state, found.attempts, found.due_at), (MessageState::Scheduled, 1, due_at));
    assert!((earliest..=latest).contains(&found.visible_at), "{found:?}");
    let early = world.claim(10).await;
    assert!(early.messages.is_empty() || early.now >= found.visible_at);
    // Where time passes by itself, the delay may be over already.
    let claimed = match early.messages.into_iter().next() {
        Some(claimed) => claimed,
        None => {
            world.pass(delay).await;
            world.claim_one().await
        }
    };
    assert_eq!((claimed.attempt, claimed.suspect, claimed.due_at), (2, false, due_at));
}

pub async fn a_released_message_has_its_attempt_back_and_its_old_place(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let due_at = world.moment(-1000);
    world.put("a", Due::At(due_at)).await;
    world.put("b", world.ago(500)).await;
    let claimed = world.claim_one().await;
    assert_eq!(world.settle(&claimed, Settlement::Release).await, Settled::Ok);
    let found = world.get("a").await.unwrap();
    assert_eq!((found.state, found.attempts, found.visible_at), (MessageState::Scheduled, 0, due_at));
    let claim = world.claim(10).await;
    assert_eq!(ids(&claim), ["a", "b"]);
    assert_eq!(claim.messages[0].attempt, 1);
}

pub async fn a_deferred_message_has_its_attempt_back_and_comes_later(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let due_at = world.moment(-1000);
    world.put("a", Due::At(due_at)).await;
    world.put("b", world.ago(500)).await;
    let claimed = world.claim_one().await;
    let earliest = world.now().plus(LONG);
    assert_eq!(world.settle(&claimed, Settlement::Defer(LONG)).await, Settled::Ok);
    let found = world.get("a").await.unwrap();
    assert_eq!((found.state, found.attempts, found.due_at), (MessageState::Scheduled, 0, due_at));
    assert!(found.visible_at >= earliest, "not before {earliest:?}, yet {:?}", found.visible_at);
    assert_eq!(ids(&world.claim(10).await), ["b"]);
    assert_eq!(world.settle(&claimed, Settlement::Defer(LONG)).await, Settled::Expired);
}

pub async fn a_release_after_a_nack_keeps_the_attempts_before(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let claimed = world.claim_one().await;
    world.settle(&claimed, Settlement::Nack(Duration::ZERO)).await;
    let claimed = world.claim_one().await;
    assert_eq!(claimed.attempt, 2);
    world.settle(&claimed, Settlement::Release).await;
    assert_eq!(world.claim_one().await.attempt, 2);
}

pub async fn an_extended_claim_holds_longer_under_a_new_receipt(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let mut claimed = world.claim_as(&world.short_request(1)).await.messages.remove(0);
    let old = claimed.clone();
    let earliest = world.now().plus(LONG);
    let answer = world.settle(&claimed, Settlement::Extend(LONG, LeaseClass::TOPIC)).await;
    let Settled::Extended(score) = answer else { panic!("it is held: {answer:?}") };
    assert!(score.visible_at() >= earliest);
    // Nor longer than was asked for, but for the time that the call took and the store's own precision.
    let latest = world.now().plus(LONG).plus(Duration::from_secs(1));
    assert!(score.visible_at() <= latest, "{:?} is later than {latest:?}", score.visible_at());
    assert_eq!((score.attempts(), score.class()), (1, LeaseClass::TOPIC));
    world.pass(SHORT).await;
    assert_eq!(world.claim(10).await.expired, 0);
    assert_eq!(world.settle(&old, Settlement::Ack).await, Settled::Expired);
    assert_eq!(world.get("a").await.unwrap().visible_at, score.visible_at());
    claimed.score = score;
    assert_eq!(world.settle(&claimed, Settlement::Ack).await, Settled::Ok);
}

pub async fn an_extension_has_a_receipt_of_its_own_even_at_the_same_moment(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let mut claimed = world.claim_one().await;
    let now = world.now();
    let mut seen = vec![claimed.score];
    for _ in 0..5 {
        let extend = settle(&claimed, Settlement::Extend(LONG, LeaseClass::TOPIC));
        let answer = world.store.settle(&world.shard(), now, &[extend]).await.unwrap()[0];
        let Settled::Extended(score) = answer else { panic!("it is held: {answer:?}") };
        assert!(!seen.contains(&score));
        seen.push(score);
        claimed.score = score;
    }
}

pub async fn a_claim_is_extended_into_the_class_of_its_new_length(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let mut claimed = world.claim_one().await;
    let hour = Duration::from_secs(3600);
    let class = LeaseClass::for_visibility(hour);
    let answer = world.settle(&claimed, Settlement::Extend(hour, class)).await;
    let Settled::Extended(score) = answer else { panic!("it is held: {answer:?}") };
    assert_eq!(score.class(), class);
    assert_eq!(world.survey().await.in_flight, 1);
    claimed.score = score;
    assert_eq!(world.settle(&claimed, Settlement::Release).await, Settled::Ok);
    assert_eq!(world.survey().await.in_flight, 0);
}

pub async fn each_claim_of_a_batch_is_extended_by_its_own_time_also_to_an_earlier_end(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let texts = ["a", "b", "c", "gone"];
    for text in texts {
        world.put(text, world.ago(1000)).await;
    }
    let claimed = world.claim(10).await.messages;
    let gone = claimed.iter().find(|one| one.id == id("gone")).unwrap();
    assert_eq!(world.settle(gone, Settlement::Ack).await, Settled::Ok);
    // Longer than what it was claimed for, as long, and shorter; two of one length have one end or two.
    let spans = [2 * LONG, SHORT, 2 * LONG, LONG];
    let extend = |(one, span): (&ClaimedMessage, &Duration)| {
        settle(one, Settlement::Extend(*span, LeaseClass::for_visibility(*span)))
    };
    let batch: Vec<_> = claimed.iter().zip(&spans).map(extend).collect();
    let before = world.now();
    let answers = world.store.settle(&world.shard(), world.now(), &batch).await.unwrap();
    for ((one, span), answer) in claimed.iter().zip(spans).zip(answers) {
        if one.id == id("gone") {
            assert_eq!(answer, Settled::Expired);
            continue;
        }
        let Settled::Extended(score) = answer else { panic!("{:?} is held: {answer:?}", one.id) };
        let (earliest, latest) = (before.plus(span), world.now().plus(span).plus(Duration::from_secs(1)));
        assert!((earliest..=latest).contains(&score.visible_at()), "{:?}: {score:?}", one.id);
        assert_eq!(world.get(one.id.as_str()).await.unwrap().visible_at, score.visible_at());
    }
    world.pass(SHORT).await;
    let again = world.claim(10).await;
    assert_eq!(again.expired, 1, "the short one is over, and no other");
}

pub async fn a_buried_message_is_a_dead_letter_with_its_reason(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let claimed = world.claim_one().await;
    let reason = "410 Gone, \"никогда\"";
    assert_eq!(world.settle(&claimed, Settlement::Bury(reason.to_owned())).await, Settled::Ok);
    let found = world.get("a").await.unwrap();
    assert_eq!((found.state, found.attempts), (MessageState::Dead, 1));
    assert_eq!(found.death.unwrap().reason, reason);
    let survey = world.survey().await;
    assert_eq!((survey.scheduled, survey.in_flight, survey.dead), (0, 0, 1));
    assert_eq!(world.claim(10).await.messages, []);
}

pub async fn an_overlong_reason_is_cut(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let claimed = world.claim_one().await;
    let reason = format!("x{}", "ж".repeat(REASON_BYTES_MAX));
    assert_eq!(world.settle(&claimed, Settlement::Bury(reason.clone())).await, Settled::Ok);
    let kept = world.get("a").await.unwrap().death.unwrap().reason;
    assert!(kept.len() <= REASON_BYTES_MAX && kept.len() > REASON_BYTES_MAX - 4, "{} bytes", kept.len());
    assert!(reason.starts_with(&kept));
}

pub async fn settlements_of_a_batch_are_answered_one_by_one_in_order(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let names = ["ack", "nack", "release", "extend", "bury", "cancelled"];
    let batch: Vec<_> = names.iter().enumerate().map(|(n, text)| message(text, world.ago(1000 - n as i64))).collect();
    world.enqueue(&batch).await;
    let claim = world.claim(10).await;
    assert_eq!(ids(&claim), names);
    world.cancel("cancelled").await;
    let held = &claim.messages;
    let answers = world
        .settle_all(&[
            settle(&held[5], Settlement::Ack),
            settle(&held[4], Settlement::Bury("refused".to_owned())),
            settle(&held[0], Settlement::Ack),
            settle(&held[0], Settlement::Ack),
            settle(&held[1], Settlement::Nack(Duration::from_secs(60))),
            settle(&held[3], Settlement::Extend(LONG * 2, LeaseClass::TOPIC)),
            settle(&held[2], Settlement::Release),
            settle(&held[2], Settlement::Ack),
        ])
        .await;
    let Settled::Extended(_) = answers[5] else { panic!("{answers:?}") };
    use Settled::{Expired, Ok};
    assert_eq!(answers[..5], [Expired, Ok, Ok, Expired, Ok]);
    assert_eq!(answers[6..], [Ok, Expired]);
    let survey = world.survey().await;
    assert_eq!((survey.scheduled, survey.in_flight, survey.dead), (2, 1, 1));
}

pub async fn acks_of_several_claims_in_one_batch_are_each_judged(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let batch: Vec<_> = (0..12).map(|n| message(&format!("m{n:02}"), world.ago(1000 - n))).collect();
    world.enqueue(&batch).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.extend(world.claim(3).await.messages);
    }
    world.cancel("m04").await;
    let released = world.settle(&held[7], Settlement::Release).await;
    assert_eq!(released, Settled::Ok);
    held.reverse();
    let acks: Vec<_> = held.iter().map(|one| settle(one, Settlement::Ack)).collect();
    let answers = world.settle_all(&acks).await;
    for (one, answer) in held.iter().zip(answers) {
        let lost = ["m04", "m07"].contains(&one.id.as_str());
        assert_eq!(answer, if lost { Settled::Expired } else { Settled::Ok }, "{}", one.id);
    }
    let survey = world.survey().await;
    assert_eq!((survey.scheduled, survey.in_flight), (1, 0));
}
