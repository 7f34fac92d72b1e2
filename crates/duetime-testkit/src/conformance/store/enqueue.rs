//! Scheduling: new ids, ids that live, repetitions, due times, batches.

use crate::at_home::MessagesAtHome as _;
use std::time::Duration;

use duetime_core::limits::{BATCH_ITEMS_MAX, DUE_AHEAD_MAX};
use duetime_core::store::{DeadAction, EnqueueOutcome, Settled, Settlement};
use duetime_core::{Due, MessageState, OnConflict, Timestamp};

use super::world::{World, every_settlement, id, ids, message, replacement};
use crate::conformance::StoreFactory;

pub async fn a_scheduled_message_is_there_as_it_was_given(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let due_at = world.moment(60_000);
    let given = message("a", Due::At(due_at));
    let answers = world.enqueue(std::slice::from_ref(&given)).await;
    assert_eq!((answers[0].outcome, answers[0].due_at), (EnqueueOutcome::Scheduled, due_at));
    let found = world.get("a").await.unwrap();
    assert_eq!((found.id, found.state, found.attempts), (given.id, MessageState::Scheduled, 0));
    assert_eq!((found.due_at, found.visible_at, found.nonce), (due_at, due_at, given.nonce));
    assert_eq!((found.headers, found.payload, found.death), (given.headers, given.payload, None));
    assert_eq!(world.get("another").await, None);
}

pub async fn an_id_that_lives_is_refused_and_nothing_changes(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(-60_000)).await;
    let before = world.get("a").await.unwrap();
    let answers = world.enqueue(&[message("a", world.ago(1000))]).await;
    assert_eq!(answers[0].outcome, EnqueueOutcome::Duplicate);
    assert!([before.due_at, Timestamp::ZERO].contains(&answers[0].due_at), "{answers:?}");
    assert_eq!(world.get("a").await.unwrap(), before);
}

pub async fn an_id_that_lives_is_replaced_when_asked(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(-60_000)).await;
    let due_at = world.moment(90_000);
    let second = replacement("a", Due::At(due_at));
    let answers = world.enqueue(std::slice::from_ref(&second)).await;
    assert_eq!((answers[0].outcome, answers[0].due_at), (EnqueueOutcome::Replaced, due_at));
    let found = world.get("a").await.unwrap();
    assert_eq!((found.payload, found.nonce, found.due_at), (second.payload, second.nonce, due_at));
    assert_eq!(world.survey().await.scheduled, 1);
}

pub async fn replace_of_an_id_that_is_not_there_schedules_it(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let answers = world.enqueue(&[replacement("a", world.ago(-60_000))]).await;
    assert_eq!(answers[0].outcome, EnqueueOutcome::Scheduled);
    assert!(world.get("a").await.is_some());
}

pub async fn the_same_nonce_is_answered_as_the_first_time(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let given = message("a", world.ago(-60_000));
    let first = world.enqueue(std::slice::from_ref(&given)).await;
    let again = world.enqueue(std::slice::from_ref(&given)).await;
    assert_eq!(first, again);
    let relative = message("b", Due::In(Duration::from_secs(60)));
    let first = world.enqueue(std::slice::from_ref(&relative)).await;
    world.pass(Duration::from_millis(20)).await;
    let again = world.enqueue(std::slice::from_ref(&relative)).await;
    assert_eq!(first, again, "the due time is the one the message has");
    assert_eq!(world.survey().await.scheduled, 2);
}

pub async fn the_same_nonce_changes_nothing_while_the_message_is_in_flight_or_dead(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for on_conflict in [OnConflict::Reject, OnConflict::Replace] {
        let given = duetime_core::store::Enqueue { on_conflict, ..message("a", world.ago(1000)) };
        world.enqueue(std::slice::from_ref(&given)).await;
        let claimed = world.claim_one().await;
        let again = world.enqueue(std::slice::from_ref(&given)).await;
        assert_ne!(again[0].outcome, EnqueueOutcome::Duplicate);
        assert_eq!(world.get("a").await.unwrap().state, MessageState::InFlight);
        assert_eq!(world.settle(&claimed, Settlement::Bury("refused".to_owned())).await, Settled::Ok);
        let again = world.enqueue(std::slice::from_ref(&given)).await;
        assert_ne!(again[0].outcome, EnqueueOutcome::Duplicate);
        assert_eq!(world.get("a").await.unwrap().state, MessageState::Dead);
        let purged = world.store.resolve_dead_letters(&world.shard(), world.now(), &[id("a")], DeadAction::Purge).await;
        assert_eq!(purged.unwrap(), [true]);
    }
}

pub async fn a_relative_delay_counts_from_the_present(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let delay = Duration::from_secs(60);
    let earliest = world.now().plus(delay);
    let answers = world.enqueue(&[message("a", Due::In(delay))]).await;
    let latest = world.now().plus(delay);
    assert!((earliest..=latest).contains(&answers[0].due_at), "{earliest} to {latest}: {answers:?}");
    assert_eq!(world.get("a").await.unwrap().due_at, answers[0].due_at);
}

pub async fn a_delay_of_nothing_is_due_at_once(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", Due::In(Duration::ZERO)).await;
    assert_eq!(ids(&world.claim(10).await), ["a"]);
}

pub async fn a_due_time_in_the_past_is_kept_and_due_at_once(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for (text, due_at) in [("old", world.moment(-5000)), ("oldest", Timestamp::from_millis(1))] {
        let answers = world.enqueue(&[message(text, Due::At(due_at))]).await;
        assert_eq!(answers[0].due_at, due_at);
        let claimed = world.claim_one().await;
        assert_eq!((claimed.id.as_str(), claimed.due_at), (text, due_at));
    }
}

pub async fn the_epoch_itself_and_ten_years_ahead_are_due_times(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let far = world.now().plus(DUE_AHEAD_MAX);
    world.put("far", Due::At(far)).await;
    world.put("first", Due::At(Timestamp::ZERO)).await;
    assert_eq!(world.get("far").await.unwrap().due_at, far);
    let claim = world.claim(10).await;
    assert_eq!(ids(&claim), ["first"]);
    assert_eq!(world.get("first").await.unwrap().due_at, Timestamp::ZERO);
}

pub async fn a_batch_is_answered_item_by_item_in_order(factory: &dyn StoreFactory) {
    use EnqueueOutcome::{Duplicate, Replaced, Scheduled};
    let world = World::new(factory).await;
    world.put("there", world.ago(-60_000)).await;
    world.put("there too", world.ago(-60_000)).await;
    let batch = [
        message("new", world.ago(-61_000)),
        message("there", world.ago(-62_000)),
        replacement("there too", world.ago(-63_000)),
        message("new", world.ago(-64_000)),
        replacement("new", Due::In(Duration::from_secs(65))),
        message("last", Due::In(Duration::ZERO)),
    ];
    let answers = world.enqueue(&batch).await;
    let outcomes: Vec<EnqueueOutcome> = answers.iter().map(|answer| answer.outcome).collect();
    assert_eq!(outcomes, [Scheduled, Duplicate, Replaced, Duplicate, Replaced, Scheduled]);
    let Due::At(first) = batch[0].due else { unreachable!() };
    let Due::At(third) = batch[2].due else { unreachable!() };
    assert_eq!((answers[0].due_at, answers[2].due_at), (first, third));
    assert_eq!(world.get("new").await.unwrap().nonce, batch[4].nonce);
    assert_eq!(world.get("new").await.unwrap().due_at, answers[4].due_at);
    assert_eq!(world.get("there too").await.unwrap().payload, batch[2].payload);
    assert_eq!(world.survey().await.scheduled, 4);
}

pub async fn an_empty_batch_is_answered_with_nothing(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    assert_eq!(world.enqueue(&[]).await, []);
    assert_eq!(world.edit(&[]).await, []);
    assert_eq!(world.settle_all(&[]).await, []);
    assert_eq!(world.store.get(&world.shard(), &[]).await.unwrap(), []);
    let none = world.store.resolve_dead_letters(&world.shard(), world.now(), &[], DeadAction::Purge).await.unwrap();
    assert!(none.is_empty());
}

pub async fn a_batch_of_the_largest_size_is_taken_whole(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let batch: Vec<_> = (0..BATCH_ITEMS_MAX).map(|n| message(&format!("m{n:03}"), world.ago(1000))).collect();
    let answers = world.enqueue(&batch).await;
    assert!(answers.iter().all(|answer| answer.outcome == EnqueueOutcome::Scheduled));
    let claim = world.claim(BATCH_ITEMS_MAX).await;
    assert_eq!(claim.messages.len(), BATCH_ITEMS_MAX);
    let acks: Vec<_> = claim.messages.iter().map(|one| super::world::settle(one, Settlement::Ack)).collect();
    assert!(world.settle_all(&acks).await.iter().all(|answer| *answer == Settled::Ok));
    assert_eq!(world.survey().await, duetime_core::store::ShardCounts::default());
}

pub async fn the_claim_of_a_replaced_message_can_not_be_settled(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for how in every_settlement() {
        world.put("a", world.ago(1000)).await;
        let claimed = world.claim_one().await;
        // Who replaces it learns that somebody may be delivering what it was; of the next one nobody holds anything.
        for wanted in [EnqueueOutcome::ReplacedInFlight, EnqueueOutcome::Replaced] {
            let answers = world.enqueue(&[replacement("a", world.ago(-60_000))]).await;
            assert_eq!(answers[0].outcome, wanted);
        }
        assert_eq!(world.settle(&claimed, how.clone()).await, Settled::Expired, "{how:?}");
        let found = world.get("a").await.unwrap();
        assert_eq!((found.state, found.attempts), (MessageState::Scheduled, 0));
        assert_eq!(world.survey().await.in_flight, 0);
        world.cancel("a").await;
    }
}

pub async fn a_dead_id_is_refused_or_replaced_as_one_that_lives(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put_dead("a").await;
    let refused = world.enqueue(&[message("a", world.ago(1000))]).await;
    assert_eq!(refused[0].outcome, EnqueueOutcome::Duplicate);
    assert_eq!(world.get("a").await.unwrap().state, MessageState::Dead);
    let replaced = world.enqueue(&[replacement("a", world.ago(1000))]).await;
    assert_eq!(replaced[0].outcome, EnqueueOutcome::Replaced);
    let found = world.get("a").await.unwrap();
    assert_eq!((found.state, found.attempts, found.death), (MessageState::Scheduled, 0, None));
    assert_eq!(world.survey().await.dead, 0);
    assert_eq!(world.claim_one().await.attempt, 1);
}

pub async fn a_new_id_beside_dead_ones_is_scheduled(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put_dead("dead").await;
    let batch = [message("x", world.ago(1000)), message("dead", world.ago(1000)), message("y", world.ago(900))];
    let outcomes: Vec<_> = world.enqueue(&batch).await.iter().map(|answer| answer.outcome).collect();
    assert_eq!(outcomes, [EnqueueOutcome::Scheduled, EnqueueOutcome::Duplicate, EnqueueOutcome::Scheduled]);
    assert_eq!(ids(&world.claim(10).await), ["x", "y"]);
    let survey = world.survey().await;
    assert_eq!((survey.in_flight, survey.dead), (2, 1));
}
