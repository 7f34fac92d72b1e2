//! Scheduling an id that lives, by the rules that compare due times.

use std::time::Duration;

use duetime_core::store::{Enqueue, EnqueueOutcome, Settled, Settlement};
use duetime_core::{Due, MessageState, OnConflict, Timestamp};

use super::world::{FIRST_WAIT, SHORT, World, message};
use crate::conformance::StoreFactory;

const RULES: [OnConflict; 2] = [OnConflict::Earliest, OnConflict::Latest];

/// A message by this rule, with a payload that no other has.
fn by_rule(text: &str, due: Due, on_conflict: OnConflict) -> Enqueue {
    let one = message(text, due);
    Enqueue { payload: format!("payload of {}", one.nonce.0).into(), on_conflict, ..one }
}

/// Enqueues it, and says what the answer is and whether that very message is there then.
async fn place(world: &World, item: &Enqueue) -> (EnqueueOutcome, Timestamp, bool) {
    let answer = world.enqueue(std::slice::from_ref(item)).await.remove(0);
    let there = world.get(item.id.as_str()).await.unwrap();
    let is_it = (there.nonce, &there.payload, &there.headers) == (item.nonce, &item.payload, &item.headers);
    assert_eq!(there.due_at, answer.due_at, "the answer says when what is there is due");
    (answer.outcome, answer.due_at, is_it)
}

pub async fn of_two_that_wait_one_is_there_whole_by_its_due_time(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let at = |seconds: i64| world.moment(seconds * 1000);
    for (rule, kept, wins) in [(OnConflict::Earliest, at(90), at(30)), (OnConflict::Latest, at(30), at(90))] {
        let (text, there) = (format!("{rule:?}"), at(60));
        let one = |due_at| by_rule(&text, Due::At(due_at), rule);
        assert_eq!(place(&world, &one(there)).await, (EnqueueOutcome::Scheduled, there, true), "{rule:?}: it is new");
        for other in [kept, there] {
            assert_eq!(place(&world, &one(other)).await, (EnqueueOutcome::Kept, there, false), "{rule:?}");
        }
        assert_eq!(place(&world, &one(wins)).await, (EnqueueOutcome::Replaced, wins, true), "{rule:?}");
        assert_eq!(world.get(&text).await.unwrap().visible_at, wins);
    }
    assert_eq!(world.survey().await.scheduled, 2);
}

pub async fn a_delay_is_compared_by_the_due_time_it_means(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let (short, long) = (Duration::from_secs(60), Duration::from_secs(600));
    for (rule, kept, wins) in [(OnConflict::Earliest, long, short), (OnConflict::Latest, short, long)] {
        let text = format!("{rule:?}");
        let mut first = by_rule(&text, Due::At(world.moment(300_000)), rule);
        first.headers = duetime_core::Headers::new(vec![("k".to_owned(), "v".to_owned())]).unwrap();
        assert_eq!(place(&world, &first).await.0, EnqueueOutcome::Scheduled);
        assert_eq!(place(&world, &by_rule(&text, Due::In(kept), rule)).await.0, EnqueueOutcome::Kept);
        let (outcome, _, is_it) = place(&world, &by_rule(&text, Due::In(wins), rule)).await;
        assert_eq!((outcome, is_it), (EnqueueOutcome::Replaced, true), "{rule:?}");
    }
}

pub async fn the_same_enqueue_by_due_time_is_answered_as_one_that_is_there(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for rule in RULES {
        let text = format!("{rule:?}");
        world.put(&text, world.ago(-60_000)).await;
        let seconds = if rule == OnConflict::Earliest { 30 } else { 90 };
        let wins = by_rule(&text, Due::In(Duration::from_secs(seconds)), rule);
        let (outcome, due_at, _) = place(&world, &wins).await;
        assert_eq!(outcome, EnqueueOutcome::Replaced);
        world.pass(Duration::from_millis(20)).await;
        assert_eq!(place(&world, &wins).await, (EnqueueOutcome::Scheduled, due_at, true), "{rule:?}");
    }
}

pub async fn one_that_waits_for_its_retry_is_compared_by_its_due_time(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for rule in RULES {
        let text = format!("{rule:?}");
        world.put(&text, world.ago(1000)).await;
        let claimed = world.claim_one().await;
        assert_eq!(world.settle(&claimed, Settlement::Nack(Duration::from_secs(3600))).await, Settled::Ok);
        let (outcome, _, is_it) = place(&world, &by_rule(&text, world.ago(-60_000), rule)).await;
        let there = world.get(&text).await.unwrap();
        if rule == OnConflict::Earliest {
            assert_eq!((outcome, is_it, there.attempts), (EnqueueOutcome::Kept, false, 1), "its retry comes");
        } else {
            assert_eq!((outcome, is_it, there.attempts), (EnqueueOutcome::Replaced, true, 0));
        }
    }
}

pub async fn what_does_not_wait_is_replaced_by_either_rule(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for (rule, due) in [(OnConflict::Earliest, world.ago(-60_000)), (OnConflict::Latest, world.ago(60_000))] {
        let text = format!("held {rule:?}");
        world.put(&text, world.ago(1000)).await;
        let claimed = world.claim_one().await;
        let held = place(&world, &by_rule(&text, due, rule)).await;
        assert_eq!((held.0, held.2), (EnqueueOutcome::ReplacedInFlight, true), "{rule:?}");
        assert_eq!(world.settle(&claimed, Settlement::Ack).await, Settled::Expired);
        world.cancel(&text).await;

        let text = format!("unanswered {rule:?}");
        world.put(&text, world.ago(1000)).await;
        let claimed = world.claim_one().await;
        let unanswered = Settlement::Unanswered { wait: FIRST_WAIT, charged: true };
        assert_eq!(world.settle(&claimed, unanswered).await, Settled::Ok);
        let suspect = place(&world, &by_rule(&text, due, rule)).await;
        assert_eq!((suspect.0, suspect.2), (EnqueueOutcome::ReplacedInFlight, true), "{rule:?}: it may arrive");
        world.cancel(&text).await;

        let text = format!("dead {rule:?}");
        world.put_dead(&text).await;
        let dead = place(&world, &by_rule(&text, due, rule)).await;
        assert_eq!((dead.0, dead.2), (EnqueueOutcome::Replaced, true), "{rule:?}");
        assert_eq!(world.get(&text).await.unwrap().state, MessageState::Scheduled);
        world.cancel(&text).await;
    }
    let counts = world.survey().await;
    assert_eq!((counts.scheduled, counts.in_flight, counts.dead), (0, 0, 0));
}

pub async fn one_whose_claim_ran_out_is_replaced_by_either_rule(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for (rule, due) in [(OnConflict::Earliest, world.ago(-60_000)), (OnConflict::Latest, world.ago(60_000))] {
        let text = format!("{rule:?}");
        world.put(&text, world.ago(1000)).await;
        assert_eq!(world.claim_as(&world.short_request(1)).await.messages.len(), 1);
        world.pass(2 * SHORT).await;
        let (outcome, _, is_it) = place(&world, &by_rule(&text, due, rule)).await;
        assert_eq!((outcome, is_it), (EnqueueOutcome::ReplacedInFlight, true), "{rule:?}");
        world.cancel(&text).await;
    }
}

pub async fn due_times_are_compared_item_by_item_within_a_batch(factory: &dyn StoreFactory) {
    use EnqueueOutcome::{Kept, Replaced, Scheduled};
    let world = World::new(factory).await;
    let at = |seconds: i64| Due::At(world.moment(seconds * 1000));
    world.put_dead("beside").await;
    let batch = [
        by_rule("a", at(60), OnConflict::Earliest),
        by_rule("b", at(60), OnConflict::Latest),
        by_rule("a", at(70), OnConflict::Earliest),
        by_rule("b", at(70), OnConflict::Latest),
        by_rule("a", at(50), OnConflict::Earliest),
        by_rule("b", at(50), OnConflict::Latest),
        by_rule("a", at(55), OnConflict::Earliest),
    ];
    let answers = world.enqueue(&batch).await;
    let outcomes: Vec<EnqueueOutcome> = answers.iter().map(|answer| answer.outcome).collect();
    assert_eq!(outcomes, [Scheduled, Scheduled, Kept, Replaced, Replaced, Kept, Kept]);
    assert_eq!(world.get("a").await.unwrap().nonce, batch[4].nonce);
    assert_eq!(world.get("b").await.unwrap().nonce, batch[3].nonce);
    assert_eq!(world.survey().await.scheduled, 2);
}
