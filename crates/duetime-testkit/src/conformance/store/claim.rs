//! Claims: what is due, oldest first, within bounds, hidden from others, by both clocks.

use crate::at_home::{MessagesAtHome as _, SettledAtHome as _};
use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_BYTES_MAX};
use duetime_core::store::{ClaimRequest, DeadAction, Edit, Enqueue, Settled, Settlement};
use duetime_core::{DeliveryMode, Due, LeaseClass, MessageState, Receipt, StoreError, Timestamp};

use super::world::{ATTEMPTS, LONG, World, id, ids, message, settle};
use crate::conformance::StoreFactory;

pub async fn only_what_is_due_is_claimed(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let later = world.moment(60_000);
    world.put("later", Due::At(later)).await;
    let claim = world.claim(10).await;
    assert_eq!((claim.messages, claim.next_due, claim.due_left), (Vec::new(), Some(later), 0));
    world.put("due", world.ago(1)).await;
    let claim = world.claim(10).await;
    assert_eq!(ids(&claim), ["due"]);
}

pub async fn a_message_is_claimed_once_its_time_has_come(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let due_at = world.moment(100);
    world.put("a", Due::At(due_at)).await;
    let early = world.claim(10).await;
    assert!(early.messages.is_empty() || early.now >= due_at);
    world.pass(Duration::from_millis(100)).await;
    let claim = world.claim(10).await;
    assert_eq!(early.messages.len() + claim.messages.len(), 1);
    assert!(claim.now >= due_at);
}

pub async fn an_empty_shard_has_nothing_and_waits_for_nothing(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let before = world.now();
    let claim = world.claim(10).await;
    assert_eq!((claim.messages, claim.next_due, claim.due_left), (Vec::new(), None, 0));
    assert_eq!((claim.buried, claim.expired), (0, 0));
    assert!((before..=world.now()).contains(&claim.now));
}

pub async fn a_claimed_message_comes_with_all_it_was_given(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let due_at = world.moment(-1000);
    let given = message("a", Due::At(due_at));
    world.enqueue(std::slice::from_ref(&given)).await;
    let claimed = world.claim_one().await;
    assert_eq!((claimed.id, claimed.attempt, claimed.suspect), (given.id, 1, false));
    assert_eq!((claimed.due_at, claimed.nonce), (due_at, given.nonce));
    assert_eq!((claimed.headers, claimed.payload), (given.headers, given.payload));
    assert_eq!((claimed.score.attempts(), claimed.score.class()), (1, LeaseClass::TOPIC));
}

pub async fn the_oldest_is_claimed_first(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for (text, age_ms) in [("third", 300), ("first", 500), ("fourth", 1), ("second", 400)] {
        world.put(text, world.ago(age_ms)).await;
    }
    assert_eq!(ids(&world.claim(3).await), ["first", "second", "third"]);
    assert_eq!(ids(&world.claim(3).await), ["fourth"]);
}

pub async fn no_more_than_asked_is_claimed_and_the_rest_is_counted(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let start = world.moment(-100).as_millis();
    let due_at = |n: i64| Timestamp::from_millis(start + 3 * n);
    for n in 0..5 {
        world.put(&format!("m{n}"), Due::At(due_at(n))).await;
    }
    world.put("later", world.ago(-60_000)).await;
    let claim = world.claim(2).await;
    assert_eq!(ids(&claim), ["m0", "m1"]);
    assert_eq!((claim.due_left, claim.next_due), (3, Some(due_at(2))));
    let claim = world.claim(10).await;
    assert_eq!((claim.messages.len(), claim.due_left), (3, 0));
}

pub async fn one_claim_brings_the_largest_batch_and_no_more(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for from in [0, 150] {
        let batch: Vec<_> = (from..from + 150).map(|n| message(&format!("m{n:03}"), world.ago(1000))).collect();
        world.enqueue(&batch).await;
    }
    let claim = world.claim(BATCH_ITEMS_MAX).await;
    assert_eq!((claim.messages.len(), claim.due_left), (BATCH_ITEMS_MAX, 300 - BATCH_ITEMS_MAX as u64));
    let seen: BTreeSet<_> = claim.messages.iter().map(|one| one.id.clone()).collect();
    assert_eq!(seen.len(), BATCH_ITEMS_MAX);
}

pub async fn the_bytes_of_one_claim_are_bounded(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let large = |text: &str, age_ms| Enqueue {
        payload: Bytes::from(vec![b'x'; CLAIM_BYTES_MAX * 4 / 10]),
        ..message(text, world.ago(age_ms))
    };
    for (text, age_ms) in [("a", 50), ("b", 40), ("c", 30), ("d", 20)] {
        world.enqueue(&[large(text, age_ms)]).await;
    }
    let claim = world.claim(10).await;
    assert_eq!((ids(&claim), claim.due_left), (vec!["a", "b"], 2));
    assert_eq!(world.get("c").await.unwrap().attempts, 0);
    assert_eq!(ids(&world.claim(10).await), ["c", "d"]);
}

pub async fn a_message_above_the_bound_is_claimed_alone(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let payload = Bytes::from(vec![b'x'; CLAIM_BYTES_MAX + 1]);
    world.enqueue(&[Enqueue { payload: payload.clone(), ..message("large", world.ago(50)) }]).await;
    world.put("small", world.ago(40)).await;
    let claim = world.claim(10).await;
    assert_eq!(ids(&claim), ["large"]);
    assert_eq!(claim.messages[0].payload, payload);
    assert_eq!(ids(&world.claim(10).await), ["small"]);
}

pub async fn what_is_claimed_is_hidden_until_its_deadline(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let before = world.now();
    let claim = world.claim(10).await;
    let deadline = claim.messages[0].score.visible_at();
    assert!((before.plus(LONG)..=world.now().plus(LONG)).contains(&deadline));
    assert_eq!((claim.next_due, claim.due_left), (Some(deadline), 0));
    assert_eq!(world.claim(10).await.messages, []);
    let found = world.get("a").await.unwrap();
    assert_eq!((found.state, found.visible_at, found.attempts), (MessageState::InFlight, deadline, 1));
}

pub async fn one_claim_has_one_deadline_and_no_two_the_same(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let batch: Vec<_> = (0..20).map(|n| message(&format!("m{n:02}"), world.ago(1000))).collect();
    world.enqueue(&batch).await;
    let now = world.now();
    let mut deadlines = BTreeSet::new();
    for _ in 0..10 {
        let claim = world.store.claim(&world.shard(), now, &world.request(2)).await.unwrap();
        assert_eq!(claim.messages.len(), 2);
        assert_eq!(claim.messages[0].score, claim.messages[1].score);
        deadlines.insert(claim.messages[0].score.visible_at());
    }
    assert_eq!(deadlines.len(), 10);
}

pub async fn a_long_claim_does_not_push_the_deadline_of_a_short_one(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    world.put("b", world.ago(900)).await;
    let hour = Duration::from_secs(3600);
    let class = LeaseClass::for_visibility(hour);
    let long = world.claim_as(&ClaimRequest { visibility: hour, class, ..world.request(1) }).await;
    assert_eq!(long.messages[0].score.class(), class);
    assert!(long.messages[0].score.visible_at() >= long.now.plus(hour));
    let short = world.claim(1).await;
    assert!(short.messages[0].score.visible_at() < short.now.plus(hour / 2));
}

pub async fn each_claim_is_one_attempt_more(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    for attempt in 1..=ATTEMPTS {
        let claimed = world.claim_one().await;
        assert_eq!((claimed.attempt, claimed.score.attempts()), (attempt, attempt));
        assert_eq!(world.settle(&claimed, Settlement::Nack(Duration::ZERO)).await, Settled::Ok);
    }
}

pub async fn a_message_out_of_attempts_is_buried_and_not_claimed(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    for _ in 0..ATTEMPTS {
        let claimed = world.claim_one().await;
        world.settle(&claimed, Settlement::Nack(Duration::ZERO)).await;
    }
    let claim = world.claim(10).await;
    assert_eq!((claim.messages, claim.buried, claim.due_left), (Vec::new(), 1, 0));
    let found = world.get("a").await.unwrap();
    assert_eq!((found.state, found.attempts), (MessageState::Dead, ATTEMPTS));
    assert!(!found.death.unwrap().reason.is_empty());
}

pub async fn a_message_in_time_is_claimed_past_one_that_is_buried(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("used up", world.ago(1000)).await;
    let claimed = world.claim_one().await;
    world.settle(&claimed, Settlement::Nack(Duration::ZERO)).await;
    world.put("fresh", world.ago(500)).await;
    world.pass(Duration::from_millis(2)).await;
    let mut strict = world.request(10);
    strict.retry.max_attempts = 1;
    let claim = world.claim_as(&strict).await;
    assert_eq!((ids(&claim), claim.buried), (vec!["fresh"], 1));
}

pub async fn nothing_is_early_by_the_callers_clock(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(500)).await;
    let behind = world.moment(-1000);
    let claim = world.store.claim(&world.shard(), behind, &world.request(10)).await.unwrap();
    assert_eq!((claim.messages, claim.now), (Vec::new(), behind));
    assert_eq!(ids(&world.claim(10).await), ["a"]);
}

pub async fn nothing_is_early_by_the_stores_clock(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    if world.moves_time() {
        // The store's clock is the caller's.
        return;
    }
    world.put("a", world.ago(-800)).await;
    let ahead = world.moment(1500);
    let claim = world.store.claim(&world.shard(), ahead, &world.request(10)).await.unwrap();
    assert_eq!(claim.messages, []);
    assert!(claim.now <= world.now());
}

pub async fn a_clock_that_was_ahead_lets_nothing_out_early_and_puts_nothing_off(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    // A store with a clock of its own serves nobody who is further away.
    let ahead_ms = if world.moves_time() { 3_600_000 } else { 1_500 };
    world.put("during", world.ago(1000)).await;
    let ahead = world.store.claim(&world.shard(), world.moment(ahead_ms), &world.request(1)).await.unwrap();
    assert_eq!(ids(&ahead), ["during"]);
    let due_at = world.moment(ahead_ms / 2);
    world.put("later", Due::At(due_at)).await;
    let put_right = world.claim(10).await;
    assert!(put_right.messages.is_empty() || put_right.now >= due_at, "{put_right:?}");
    let delayed = world.enqueue(&[message("soon", Due::In(Duration::from_millis(10)))]).await[0].due_at;
    assert!(delayed <= world.moment(10), "{delayed}");
    world.pass(Duration::from_millis(20)).await;
    let claim = world.claim(1).await;
    assert!(claim.messages[0].score.visible_at() <= claim.now.plus(LONG + LONG / 8), "{claim:?}");
}

pub async fn a_shorter_visibility_holds_from_the_next_claim_on(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let day = 86_400;
    for (n, seconds) in [day, 1860, 60, 45, 1].into_iter().enumerate() {
        world.put(&format!("m{n}"), world.ago(1000)).await;
        let visibility = Duration::from_secs(seconds);
        let class = LeaseClass::for_visibility(visibility);
        let claim = world.claim_as(&ClaimRequest { visibility, class, ..world.request(1) }).await;
        let deadline = claim.messages[0].score.visible_at();
        let latest = claim.now.plus(visibility + visibility / 8);
        assert!(deadline >= claim.now.plus(visibility) && deadline <= latest, "{seconds} s: {claim:?}");
    }
}

pub async fn clocks_far_apart_take_nothing(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    if world.moves_time() {
        // The store's clock is the caller's.
        return;
    }
    world.put("a", world.ago(60_000)).await;
    for apart_ms in [-10_000, 10_000] {
        let claim = world.store.claim(&world.shard(), world.moment(apart_ms), &world.request(10)).await;
        let Err(StoreError::ClockSkew(said_ms)) = claim else { panic!("skew is refused: {claim:?}") };
        assert!((said_ms.abs() - 10_000).abs() < 1000, "{said_ms}");
    }
    assert_eq!(world.get("a").await.unwrap().state, MessageState::Scheduled);
    assert_eq!(ids(&world.claim(10).await), ["a"]);
}

pub async fn clocks_far_apart_refuse_relative_times_and_serve_the_rest(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    if world.moves_time() {
        // The store's clock is the caller's.
        return;
    }
    for text in ["a", "b", "c", "d"] {
        world.put(text, world.ago(1000)).await;
    }
    let held = world.claim(4).await.messages;
    world.settle(&held[0], Settlement::Bury("no".to_owned())).await;
    world.settle(&held[1], Settlement::Release).await;
    let (shard, wait, store) = (world.shard(), Duration::from_secs(60), &world.store);
    for apart_ms in [-10_000, 10_000] {
        let now = world.moment(apart_ms);
        let relative = [message("x", Due::In(wait)), message("y", Due::At(now))];
        let refused = store.enqueue(&shard, now, &relative).await;
        assert!(matches!(refused, Err(StoreError::ClockSkew(_))), "{refused:?}");
        let move_by = |due| [Edit::Reschedule(held[1].id.clone(), due), Edit::Cancel(id("none"))];
        let refused = store.edit(&shard, now, &move_by(Due::In(wait))).await;
        assert!(matches!(refused, Err(StoreError::ClockSkew(_))), "{refused:?}");
        for how in [Settlement::Nack(wait), Settlement::Extend(wait, LeaseClass::TOPIC)] {
            let both = [settle(&held[2], how), settle(&held[3], Settlement::Ack)];
            let refused = store.settle(&shard, now, &both).await;
            assert!(matches!(refused, Err(StoreError::ClockSkew(_))), "{refused:?}");
        }
        let refused =
            store.resolve_dead_letters(&shard, now, std::slice::from_ref(&held[0].id), DeadAction::Redrive).await;
        assert!(matches!(refused, Err(StoreError::ClockSkew(_))), "{refused:?}");
    }
    assert_eq!((world.get("x").await, world.get("y").await), (None, None), "a refusal does nothing");
    assert_eq!(world.survey().await.in_flight, 2);
    let now = world.moment(10_000);
    let due = Due::At(world.moment(60_000));
    assert_eq!(store.enqueue(&shard, now, &[message("y", due)]).await.unwrap().len(), 1);
    store.edit(&shard, now, &[Edit::Reschedule(held[1].id.clone(), due)]).await.unwrap();
    let done = [settle(&held[2], Settlement::Release), settle(&held[3], Settlement::Ack)];
    assert_eq!(store.settle(&shard, now, &done).await.unwrap(), [Settled::Ok, Settled::Ok]);
}

pub async fn at_most_once_removes_what_it_claims(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    world.put("b", world.ago(900)).await;
    world.put("later", world.ago(-60_000)).await;
    let once = ClaimRequest { delivery: DeliveryMode::AtMostOnce, ..world.request(10) };
    let claim = world.claim_as(&once).await;
    assert_eq!(ids(&claim), ["a", "b"]);
    assert!(claim.messages.iter().all(|one| one.score == Receipt::SETTLED && one.attempt == 1));
    assert_eq!(claim.messages[0].payload, "payload of a");
    assert_eq!(world.get("a").await, None);
    let survey = world.survey().await;
    assert_eq!((survey.scheduled, survey.due, survey.in_flight, survey.dead), (1, 0, 0, 0));
    assert_eq!(world.settle(&claim.messages[0], Settlement::Nack(Duration::ZERO)).await, Settled::Expired);
    assert_eq!(world.claim(10).await.messages, []);
}

pub async fn two_who_claim_at_once_share_nothing(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let batch: Vec<_> = (0..200).map(|n| message(&format!("m{n:03}"), world.ago(1000))).collect();
    world.enqueue(&batch).await;
    let claims = (0..10).map(|_| async {
        let mut mine = Vec::new();
        loop {
            let claim = world.claim(7).await;
            if claim.messages.is_empty() {
                return mine;
            }
            mine.extend(claim.messages.into_iter().map(|one| one.id));
        }
    });
    let all: Vec<_> = futures::future::join_all(claims).await.concat();
    assert_eq!(all.len(), 200);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), 200);
}
