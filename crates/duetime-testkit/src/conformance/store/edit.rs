//! Cancel and reschedule, in every state of a message's life.

use std::time::Duration;

use duetime_core::limits::{CANCELS_KEPT, ID_BYTES_MAX};
use duetime_core::store::{Edit, Edited, EnqueueOutcome, Settled, Settlement};
use duetime_core::{Due, MessageState, OnConflict};

use super::world::{FIRST_WAIT, SHORT, World, every_settlement, id, ids, message};
use crate::conformance::StoreFactory;

pub async fn a_cancelled_message_is_never_claimed(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("due", world.ago(1000)).await;
    world.put("later", world.ago(-60_000)).await;
    assert_eq!(world.cancel("due").await, Edited::Cancelled);
    assert_eq!(world.cancel("later").await, Edited::Cancelled);
    assert_eq!((world.get("due").await, world.get("later").await), (None, None));
    assert_eq!(world.claim(10).await.messages, []);
    assert_eq!(world.cancel("due").await, Edited::Unknown);
    assert_eq!(world.survey().await, duetime_core::store::ShardCounts::default());
}

pub async fn what_is_not_there_is_unknown(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    assert_eq!(world.cancel("a").await, Edited::Unknown);
    assert_eq!(world.reschedule("a", world.ago(1000)).await, Edited::Unknown);
    assert_eq!(world.get("a").await, None);
}

pub async fn cancel_of_a_message_in_flight_removes_it_and_says_so(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for how in every_settlement() {
        world.put("a", world.ago(1000)).await;
        let claimed = world.claim_one().await;
        assert_eq!(world.cancel("a").await, Edited::InFlight);
        assert_eq!(world.get("a").await, None);
        assert_eq!(world.settle(&claimed, how).await, Settled::Expired);
        assert_eq!(world.survey().await, duetime_core::store::ShardCounts::default());
    }
}

pub async fn a_shard_remembers_the_claims_that_cancels_ended(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let mut ended = Vec::new();
    for n in 0..CANCELS_KEPT + 3 {
        // As long as an id may be.
        let name = format!("{n:0>ID_BYTES_MAX$}");
        world.put(&name, world.ago(1000)).await;
        let claimed = world.claim_one().await;
        assert_eq!(world.cancel(&name).await, Edited::InFlight);
        ended.push((claimed.id, claimed.score));
    }
    world.put("waits", world.ago(-60_000)).await;
    assert_eq!(world.cancel("waits").await, Edited::Cancelled);
    world.put("acked", world.ago(1000)).await;
    assert_eq!(world.settle(&world.claim_one().await, Settlement::Ack).await, Settled::Ok);
    let noted = world.store.cancelled_claims(&world.shard()).await.unwrap();
    assert!((CANCELS_KEPT..=ended.len()).contains(&noted.len()), "{}", noted.len());
    assert_eq!(noted, ended[ended.len() - noted.len()..], "the last ones, and no others");
}

pub async fn cancel_of_a_claim_that_ran_out_unnoticed_says_in_flight(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    world.claim_as(&world.short_request(1)).await;
    world.pass(SHORT).await;
    assert_eq!(world.cancel("a").await, Edited::InFlight);
    assert_eq!(world.claim(10).await.messages, []);
    assert_eq!(world.survey().await, duetime_core::store::ShardCounts::default());
}

pub async fn cancel_of_a_suspect_says_that_it_may_have_been_delivered(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    world.claim_as(&world.short_request(1)).await;
    world.pass(SHORT).await;
    assert_eq!(world.claim(10).await.expired, 1);
    assert_eq!(world.cancel("a").await, Edited::InFlight);
    assert_eq!(world.get("a").await, None);
    assert_eq!(world.survey().await, duetime_core::store::ShardCounts::default());
}

pub async fn what_had_no_answer_may_have_been_delivered_whatever_is_done_to_it_next(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let unanswered = async |text: &str, charged| {
        world.put(text, world.ago(1000)).await;
        let claimed = world.claim_one().await;
        let how = Settlement::Unanswered { wait: Duration::from_secs(60), charged };
        assert_eq!(world.settle(&claimed, how).await, Settled::Ok);
    };
    for charged in [false, true] {
        unanswered("a", charged).await;
        let found = world.get("a").await.unwrap();
        assert_eq!((found.state, found.attempts), (MessageState::Scheduled, 1), "it was sent at least once");
        assert!(found.visible_at >= world.moment(30_000));
        assert_eq!(world.survey().await.in_flight, 0);
        assert_eq!(world.cancel("a").await, Edited::InFlight);
        assert_eq!(world.survey().await, duetime_core::store::ShardCounts::default());
    }
    unanswered("b", true).await;
    assert!(matches!(world.reschedule("b", world.ago(-60_000)).await, Edited::Rescheduled(_)));
    assert_eq!(world.cancel("b").await, Edited::InFlight);
    unanswered("c", false).await;
    let again = duetime_core::store::Enqueue { on_conflict: OnConflict::Replace, ..message("c", world.ago(-60_000)) };
    assert_eq!(world.enqueue(&[again]).await[0].outcome, EnqueueOutcome::ReplacedInFlight);
    assert_eq!(world.cancel("c").await, Edited::Cancelled, "nobody was given what took its place");
    let twice = [id("d"), id("d")].map(Edit::Cancel);
    unanswered("d", false).await;
    assert_eq!(world.edit(&twice).await, [Edited::InFlight, Edited::Unknown]);
    assert_eq!(world.survey().await, duetime_core::store::ShardCounts::default());
}

pub async fn what_had_no_answer_is_claimed_alone_and_keeps_its_attempt_only_if_it_is_charged(
    factory: &dyn StoreFactory,
) {
    let world = World::new(factory).await;
    for (charged, attempt) in [(false, 1), (true, 2)] {
        world.put("a", world.ago(1000)).await;
        let claimed = world.claim_one().await;
        world.settle(&claimed, Settlement::Unanswered { wait: Duration::ZERO, charged }).await;
        world.put("b", world.ago(-5)).await;
        world.pass(Duration::from_millis(20)).await;
        let claim = world.claim(10).await;
        assert_eq!(ids(&claim), ["a"]);
        assert_eq!((claim.messages[0].suspect, claim.messages[0].attempt), (true, attempt));
        assert_eq!(world.settle(&claim.messages[0], Settlement::Ack).await, Settled::Ok);
        assert_eq!(world.cancel("b").await, Edited::Cancelled);
    }
}

pub async fn cancel_of_a_dead_letter_removes_it(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put_dead("a").await;
    world.put_dead("b").await;
    assert_eq!(world.cancel("a").await, Edited::Cancelled);
    assert_eq!(world.get("a").await, None);
    let page = world.store.dead_letters(&world.shard(), None, 10).await.unwrap();
    assert_eq!(page.messages.len(), 1);
    assert_eq!(world.cancel("a").await, Edited::Unknown);
}

pub async fn a_cancelled_id_may_be_scheduled_again_as_new(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let claimed = world.claim_one().await;
    world.settle(&claimed, Settlement::Nack(Duration::from_secs(60))).await;
    assert_eq!(world.cancel("a").await, Edited::Cancelled);
    world.put("a", world.ago(500)).await;
    assert_eq!(world.claim_one().await.attempt, 1);
}

pub async fn a_message_moved_later_is_not_claimed_at_its_old_time(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let later = world.moment(60_000);
    assert_eq!(world.reschedule("a", Due::At(later)).await, Edited::Rescheduled(later));
    let claim = world.claim(10).await;
    assert_eq!((claim.messages, claim.next_due), (Vec::new(), Some(later)));
    let found = world.get("a").await.unwrap();
    assert_eq!((found.due_at, found.visible_at), (later, later));
}

pub async fn a_message_moved_sooner_is_claimed_at_its_new_time(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(-60_000)).await;
    let sooner = world.moment(-1000);
    assert_eq!(world.reschedule("a", Due::At(sooner)).await, Edited::Rescheduled(sooner));
    let claimed = world.claim_one().await;
    assert_eq!(claimed.due_at, sooner);
    assert_eq!(claimed.payload, "payload of a");
}

pub async fn a_relative_move_counts_from_the_present(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let delay = Duration::from_secs(60);
    let earliest = world.now().plus(delay);
    let Edited::Rescheduled(due_at) = world.reschedule("a", Due::In(delay)).await else { panic!("it is there") };
    assert!((earliest..=world.now().plus(delay)).contains(&due_at));
    assert_eq!(world.get("a").await.unwrap().due_at, due_at);
}

pub async fn a_moved_message_has_its_attempts_back(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let claimed = world.claim_one().await;
    world.settle(&claimed, Settlement::Nack(Duration::ZERO)).await;
    assert_eq!(world.get("a").await.unwrap().attempts, 1);
    world.reschedule("a", world.ago(500)).await;
    assert_eq!(world.get("a").await.unwrap().attempts, 0);
    assert_eq!(world.claim_one().await.attempt, 1);
}

pub async fn a_message_in_flight_is_not_moved(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let claimed = world.claim_one().await;
    let before = world.get("a").await.unwrap();
    assert_eq!(world.reschedule("a", world.ago(-60_000)).await, Edited::InFlight);
    assert_eq!(world.get("a").await.unwrap(), before);
    assert_eq!(world.settle(&claimed, Settlement::Ack).await, Settled::Ok);
}

pub async fn a_dead_letter_is_not_moved(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put_dead("a").await;
    let before = world.get("a").await.unwrap();
    assert_eq!(world.reschedule("a", world.ago(1000)).await, Edited::Dead);
    assert_eq!(world.get("a").await.unwrap(), before);
    assert_eq!(world.claim(10).await.messages, []);
}

pub async fn a_moved_suspect_has_its_attempts_back_and_comes_alone(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    world.claim_as(&world.short_request(1)).await;
    world.pass(SHORT).await;
    assert_eq!(world.claim(10).await.expired, 1);
    assert!(matches!(world.reschedule("a", world.ago(1000)).await, Edited::Rescheduled(_)));
    world.put("b", world.ago(500)).await;
    let claim = world.claim(10).await;
    assert_eq!((ids(&claim), claim.messages[0].suspect, claim.messages[0].attempt), (vec!["a"], true, 1));
    assert_eq!(ids(&world.claim(10).await), ["b"]);
    world.pass(FIRST_WAIT).await;
    assert_eq!(world.claim(10).await.messages, []);
}

pub async fn edits_of_a_batch_are_answered_one_by_one_in_order(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for text in ["held", "a", "b", "c"] {
        world.put(text, world.ago(1000)).await;
        if text == "held" {
            world.claim_one().await;
        }
    }
    let later = world.moment(60_000);
    let answers = world
        .edit(&[
            Edit::Cancel(id("a")),
            Edit::Reschedule(id("a"), Due::At(later)),
            Edit::Cancel(id("none")),
            Edit::Reschedule(id("b"), Due::At(later)),
            Edit::Cancel(id("held")),
            Edit::Cancel(id("b")),
            Edit::Cancel(id("b")),
            Edit::Reschedule(id("c"), Due::At(later)),
        ])
        .await;
    use Edited::{Cancelled, InFlight, Rescheduled, Unknown};
    let expected = [Cancelled, Unknown, Unknown, Rescheduled(later), InFlight, Cancelled, Unknown, Rescheduled(later)];
    assert_eq!(answers, expected);
    assert_eq!(world.survey().await.scheduled, 1);
    assert_eq!(world.get("c").await.unwrap().state, MessageState::Scheduled);
}

pub async fn an_id_cancelled_twice_in_one_batch_is_unknown_the_second_time(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("held", world.ago(1000)).await;
    world.claim_one().await;
    world.put("free", world.ago(1000)).await;
    let twice = [id("held"), id("free"), id("held"), id("free")].map(Edit::Cancel);
    assert_eq!(world.edit(&twice).await, [Edited::InFlight, Edited::Cancelled, Edited::Unknown, Edited::Unknown]);
    assert_eq!(world.survey().await, duetime_core::store::ShardCounts::default());
    let again = world.enqueue(&[message("held", world.ago(-1000))]).await;
    assert_eq!(again[0].outcome, EnqueueOutcome::Scheduled);
}
