//! A message that comes again: the next one is written in its place, in the step that settles it.

use crate::at_home::{MessagesAtHome as _, SettledAtHome as _};
use std::time::Duration;

use duetime_core::store::{
    ClaimedMessage, DeadAction, Enqueue, EnqueueOutcome, Settle, Settled, Settlement, ShardCounts,
};
use duetime_core::{Due, End, LeaseClass, MessageState, REPEAT, Repeat, RepeatAsk, Successor, Timestamp};

use super::past::{find, remembering};
use super::world::{FIRST_WAIT, LONG, World, id, message, replacement, settle};
use crate::conformance::StoreFactory;

const EVERY: Duration = Duration::from_secs(3_600);

/// The first of a series of one an hour, due at `due`.
fn first(world: &World, text: &str, due: Timestamp) -> Enqueue {
    let mut item = Enqueue { due: Due::At(due), ..message(text, Due::At(due)) };
    let ask = RepeatAsk { every: Some(EVERY), ..RepeatAsk::default() };
    item.repeat(&ask, true, world.now()).expect("a good rule");
    item
}

async fn put(world: &World, text: &str) -> Timestamp {
    let due = world.moment(-1_000);
    let answers = world.enqueue(&[first(world, text, due)]).await;
    assert_eq!(answers[0].outcome, EnqueueOutcome::Scheduled, "{text} is new");
    due
}

fn successor_of(world: &World, claimed: &ClaimedMessage, end: End) -> Box<Successor> {
    Successor::of_claimed(claimed, end, world.now()).expect("it is one of a series")
}

fn delivered(world: &World, claimed: &ClaimedMessage) -> Settlement {
    Settlement::Repeat(successor_of(world, claimed, End::Delivered))
}

fn due_first(first: Timestamp, turns: u32) -> Timestamp {
    first.plus(EVERY * turns)
}

pub async fn the_next_one_takes_the_place_of_the_one_before(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let due = put(&world, "a").await;
    world.put("other", Due::In(EVERY * 9)).await;
    let claimed = world.claim_one().await;
    assert!(claimed.headers.get(REPEAT).is_some());
    let next = successor_of(&world, &claimed, End::Delivered);
    assert_eq!(world.settle(&claimed, Settlement::Repeat(next.clone())).await, Settled::Ok);
    let found = world.get("a").await.expect("the next one is there");
    assert_eq!((found.state, found.attempts, found.redrives), (MessageState::Scheduled, 0, 0));
    assert_eq!((found.due_at, found.visible_at), (due_first(due, 1), due_first(due, 1)));
    assert_eq!((found.nonce, &found.headers, &found.payload), (next.nonce, &next.headers, &claimed.payload));
    assert_ne!(found.nonce, claimed.nonce);
    assert_eq!(Repeat::of(&found.headers).map(|repeat| repeat.at), Some(due_first(due, 1)));
    let counts = world.survey().await;
    assert_eq!((counts.scheduled, counts.in_flight, counts.dead), (2, 0, 0));
    assert_eq!(counts.head, Some(due_first(due, 1)));
    assert_eq!(world.claim(10).await.messages, [], "it is not due yet");
}

pub async fn a_series_goes_on_turn_by_turn(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let due = put(&world, "a").await;
    for turn in 1..5 {
        let claimed = world.claim_one().await;
        assert_eq!((claimed.attempt, claimed.suspect), (1, false));
        // Each is moved to the present: a moved message leaves the rule where it was.
        assert_eq!(world.settle(&claimed, delivered(&world, &claimed)).await, Settled::Ok);
        let found = world.get("a").await.expect("the next one is there");
        assert_eq!(found.due_at, due_first(due, turn), "turn {turn}");
        world.reschedule("a", world.ago(1)).await;
    }
    let counts = world.survey().await;
    assert_eq!((counts.messages(), counts.in_flight), (1, 0));
}

pub async fn a_claim_that_is_over_writes_no_next_one(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    put(&world, "acked").await;
    let claimed = world.claim_one().await;
    let next = delivered(&world, &claimed);
    assert_eq!(world.settle(&claimed, next.clone()).await, Settled::Ok);
    let after = world.get("acked").await;
    assert_eq!(world.settle(&claimed, next).await, Settled::Expired, "a second ack");
    assert_eq!(world.settle(&claimed, Settlement::Ack).await, Settled::Expired);
    assert_eq!(world.get("acked").await, after);

    put(&world, "cancelled").await;
    let claimed = world.claim_one().await;
    world.cancel("cancelled").await;
    assert_eq!(world.settle(&claimed, delivered(&world, &claimed)).await, Settled::Expired);
    assert_eq!(world.get("cancelled").await, None, "a cancel ends the series");

    put(&world, "replaced").await;
    let claimed = world.claim_one().await;
    world.enqueue(&[replacement("replaced", Due::In(EVERY))]).await;
    let after = world.get("replaced").await;
    assert_eq!(world.settle(&claimed, delivered(&world, &claimed)).await, Settled::Expired);
    assert_eq!(world.get("replaced").await, after);

    put(&world, "extended").await;
    let claimed = world.claim_one().await;
    let longer = world.settle(&claimed, Settlement::Extend(LONG * 2, LeaseClass::TOPIC)).await;
    let Settled::Extended(score) = longer else { panic!("it was extended: {longer:?}") };
    assert_eq!(world.settle(&claimed, delivered(&world, &claimed)).await, Settled::Expired);
    let held = ClaimedMessage { score, ..claimed };
    assert_eq!(world.settle(&held, delivered(&world, &held)).await, Settled::Ok);
    assert_eq!(world.survey().await.in_flight, 0);
}

pub async fn one_that_is_given_back_is_tried_again_and_a_dead_letter_keeps_the_rule(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let due = put(&world, "a").await;
    let claimed = world.claim_one().await;
    assert_eq!(world.settle(&claimed, Settlement::Nack(FIRST_WAIT)).await, Settled::Ok);
    assert_eq!(world.get("a").await.map(|found| found.due_at), Some(due), "the same one");
    world.pass(FIRST_WAIT).await;
    let claimed = world.claim_one().await;
    assert_eq!(claimed.attempt, 2);
    assert_eq!(world.settle(&claimed, Settlement::Bury("refused".to_owned())).await, Settled::Ok);
    let letter = world.get("a").await.expect("a dead letter");
    assert_eq!((letter.state, Repeat::is_in(&letter.headers)), (MessageState::Dead, true));
    let redriven = world.store.resolve_dead_letters(&world.shard(), world.now(), &[id("a")], DeadAction::Redrive).await;
    assert_eq!(redriven.unwrap(), [true]);
    let claimed = world.claim_one().await;
    assert_eq!(world.settle(&claimed, delivered(&world, &claimed)).await, Settled::Ok);
    let found = world.get("a").await.expect("the series goes on");
    assert_eq!((found.due_at, found.redrives), (due_first(due, 1), 0));
}

pub async fn series_and_others_are_settled_in_one_batch(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let mut batch = Vec::new();
    for n in 0..40 {
        let (text, due) = (format!("m{n:02}"), world.moment(-1_000 + n));
        batch.push(if n % 2 == 0 { first(&world, &text, due) } else { message(&text, Due::At(due)) });
    }
    world.enqueue(&batch).await;
    let claimed = world.claim(256).await.messages;
    let action = |one: &ClaimedMessage| match Successor::of_claimed(one, End::Delivered, world.now()) {
        Some(next) => Settlement::Repeat(next),
        None => Settlement::Ack,
    };
    let settles: Vec<Settle> = claimed.iter().map(|one| settle(one, action(one))).collect();
    assert_eq!(world.settle_all(&settles).await, vec![Settled::Ok; 40]);
    let counts = world.survey().await;
    assert_eq!((counts.scheduled, counts.in_flight), (20, 0));
}

pub async fn what_of_a_series_was_delivered_or_expired_is_remembered_until_the_next(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let shard = remembering(&world);
    put(&world, "a").await;
    let claimed = world.claim_one().await;
    let batch = [settle(&claimed, delivered(&world, &claimed))];
    assert_eq!(world.store.settle(&shard, world.now(), &batch).await.unwrap(), [Settled::Ok]);
    assert!(world.get("a").await.is_some());
    assert_eq!(world.store.settle(&shard, world.now(), &batch).await.unwrap(), [Settled::Already]);
    world.reschedule("a", world.ago(1)).await;
    let second = world.claim_one().await;
    let expired = [settle(&second, Settlement::Repeat(successor_of(&world, &second, End::Expired)))];
    assert_eq!(world.store.settle(&shard, world.now(), &expired).await.unwrap(), [Settled::Ok]);
    assert_eq!(world.store.settle(&shard, world.now(), &expired).await.unwrap(), [Settled::Expired]);
    let edit = [duetime_core::store::Edit::Cancel(id("a"))];
    world.store.edit(&shard, world.now(), &edit).await.expect("it is cancelled");
    assert_eq!(find(&world, "a").await.map(|outcome| outcome.end), Some(End::Cancelled), "the last of them");
    let left: ShardCounts = world.survey().await;
    assert_eq!(left.messages(), 0);
}
