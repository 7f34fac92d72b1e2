//! Dead letters: read in pages, redriven, purged.

#![expect(missing_docs, reason = "a sentence's name says it all")]

use crate::at_home::MessagesAtHome as _;
use std::time::Duration;

use duetime_core::store::{DeadAction, Edit, Enqueue, Settled, Settlement};
use duetime_core::{MessageId, MessageState, OnConflict};

use super::world::{World, id, ids, message, settle};
use crate::conformance::StoreFactory;

async fn resolve_dead_letters(world: &World, names: &[&str], action: DeadAction) -> Vec<bool> {
    let ids: Vec<MessageId> = names.iter().map(|text| id(text)).collect();
    world.store.resolve_dead_letters(&world.shard(), world.now(), &ids, action).await.unwrap()
}

pub async fn a_dead_letter_keeps_all_it_was_given_and_how_it_died(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let given = message("a", world.ago(1000));
    world.enqueue(std::slice::from_ref(&given)).await;
    let before = world.now();
    let claimed = world.claim_one().await;
    world.settle(&claimed, Settlement::Bury("refused for good".to_owned())).await;
    let page = world.store.dead_letters(&world.shard(), None, 10).await.unwrap();
    assert_eq!((page.messages.len(), page.next), (1, None));
    let letter = &page.messages[0];
    assert_eq!(Some(letter), world.get("a").await.as_ref());
    assert_eq!((&letter.id, letter.state, letter.attempts), (&given.id, MessageState::Dead, 1));
    assert_eq!((&letter.payload, &letter.headers, letter.nonce), (&given.payload, &given.headers, given.nonce));
    assert_eq!(letter.due_at, claimed.due_at);
    let death = letter.death.as_ref().unwrap();
    assert_eq!(death.reason, "refused for good");
    assert!((before..=world.now()).contains(&death.at), "{death:?}");
}

pub async fn dead_letters_are_read_in_pages_each_once_oldest_first(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let names: Vec<String> = (0..10).map(|n| format!("m{n}")).collect();
    let batch: Vec<_> = names.iter().map(|text| message(text, world.ago(1000))).collect();
    world.enqueue(&batch).await;
    let claim = world.claim(10).await;
    let bury = |n: usize| settle(&claim.messages[n], Settlement::Bury(format!("reason {n}")));
    // They die in one moment, as far as the clock can show.
    world.settle_all(&[9, 3, 5, 1, 7].map(bury)).await;
    world.settle_all(&[0, 2, 4, 6, 8].map(bury)).await;
    for limit in [1, 3, 5, 10, 100] {
        let (mut from, mut seen) = (None, Vec::new());
        loop {
            let page = world.store.dead_letters(&world.shard(), from, limit).await.unwrap();
            assert!(page.messages.len() <= limit);
            seen.extend(page.messages.iter().map(|one| one.id.as_str().to_owned()));
            from = page.next;
            if from.is_none() {
                break;
            }
            assert!(!page.messages.is_empty(), "a page with another behind it is not empty");
            assert!(seen.len() <= names.len(), "a letter comes again in pages of {limit}: {seen:?}");
        }
        assert_eq!(seen, ["m9", "m3", "m5", "m1", "m7", "m0", "m2", "m4", "m6", "m8"], "in pages of {limit}");
    }
}

pub async fn a_shard_without_dead_letters_has_an_empty_page(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let page = world.store.dead_letters(&world.shard(), None, 10).await.unwrap();
    assert_eq!((page.messages, page.next), (Vec::new(), None));
}

pub async fn a_page_starts_behind_letters_that_went_away_meanwhile(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for text in ["a", "b", "c", "d"] {
        world.put_dead(text).await;
    }
    let first = world.store.dead_letters(&world.shard(), None, 2).await.unwrap();
    resolve_dead_letters(&world, &["a", "b", "c"], DeadAction::Purge).await;
    let second = world.store.dead_letters(&world.shard(), first.next, 2).await.unwrap();
    assert_eq!(second.messages.len(), 1);
    assert_eq!(second.messages[0].id, id("d"));
}

pub async fn a_redriven_letter_is_due_at_once_with_all_attempts_back(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put_dead("a").await;
    world.put_dead("b").await;
    assert_eq!(resolve_dead_letters(&world, &["a"], DeadAction::Redrive).await, [true]);
    let found = world.get("a").await.unwrap();
    assert_eq!((found.state, found.attempts, found.death), (MessageState::Scheduled, 0, None));
    let claim = world.claim(10).await;
    assert_eq!(ids(&claim), ["a"]);
    assert_eq!((claim.messages[0].attempt, claim.messages[0].suspect), (1, false));
    assert_eq!(claim.messages[0].payload, "payload of a");
    let survey = world.survey().await;
    assert_eq!((survey.in_flight, survey.dead), (1, 1));
    assert_eq!(resolve_dead_letters(&world, &["a"], DeadAction::Redrive).await, [false]);
}

pub async fn each_redrive_is_counted_and_changes_nothing_else(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let given = message("a", world.ago(1000));
    world.enqueue(std::slice::from_ref(&given)).await;
    assert_eq!(world.get("a").await.unwrap().redrives, 0);
    for redrives in 1..=11 {
        let claimed = world.claim_one().await;
        assert_eq!((&claimed.headers, &claimed.payload, claimed.nonce), (&given.headers, &given.payload, given.nonce));
        world.settle(&claimed, Settlement::Bury("refused".to_owned())).await;
        assert_eq!(world.get("a").await.unwrap().redrives, redrives - 1, "a death counts nothing");
        // The second of one batch meets no dead letter, and neither does a repetition.
        assert_eq!(resolve_dead_letters(&world, &["a", "a"], DeadAction::Redrive).await, [true, false]);
        assert_eq!(resolve_dead_letters(&world, &["a"], DeadAction::Redrive).await, [false]);
        let found = world.get("a").await.unwrap();
        assert_eq!((found.redrives, found.attempts, found.due_at), (redrives, 0, claimed.due_at));
        assert_eq!((&found.headers, &found.payload, found.nonce), (&given.headers, &given.payload, given.nonce));
    }
    world.claim_one().await;
    assert_eq!(world.get("a").await.unwrap().redrives, 11, "while it is in flight too");
}

pub async fn a_move_in_time_keeps_the_count_of_redrives_and_a_replacement_begins_anew(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put_dead("a").await;
    resolve_dead_letters(&world, &["a"], DeadAction::Redrive).await;
    let moved = Edit::Reschedule(id("a"), world.ago(5000));
    world.store.edit(&world.shard(), world.now(), &[moved]).await.unwrap();
    assert_eq!(world.get("a").await.unwrap().redrives, 1);
    let again = Enqueue { on_conflict: OnConflict::Replace, ..message("a", world.ago(1000)) };
    world.enqueue(&[again]).await;
    assert_eq!(world.get("a").await.unwrap().redrives, 0);
}

pub async fn a_purged_letter_is_gone_for_good(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put_dead("a").await;
    assert_eq!(resolve_dead_letters(&world, &["a"], DeadAction::Purge).await, [true]);
    assert_eq!(world.get("a").await, None);
    assert_eq!(resolve_dead_letters(&world, &["a"], DeadAction::Purge).await, [false]);
    assert_eq!(world.survey().await, duetime_core::store::ShardCounts::default());
    world.put("a", world.ago(1000)).await;
    assert_eq!(world.claim_one().await.attempt, 1);
}

pub async fn only_dead_letters_are_redriven_or_purged(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("held", world.ago(1000)).await;
    let claimed = world.claim_one().await;
    world.put("free", world.ago(-60_000)).await;
    for action in [DeadAction::Redrive, DeadAction::Purge] {
        assert_eq!(resolve_dead_letters(&world, &["held", "free", "none"], action).await, [false, false, false]);
    }
    assert_eq!(world.get("free").await.unwrap().state, MessageState::Scheduled);
    assert_eq!(world.settle(&claimed, Settlement::Ack).await, Settled::Ok);
}

pub async fn dead_letters_of_a_batch_are_answered_one_by_one(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put_dead("a").await;
    world.put_dead("b").await;
    let answers = resolve_dead_letters(&world, &["b", "none", "a", "b"], DeadAction::Redrive).await;
    assert_eq!(answers, [true, false, true, false]);
    world.pass(Duration::from_millis(2)).await;
    assert_eq!(world.claim_all().await.len(), 2);
}

pub async fn a_letter_that_dies_twice_has_its_second_reason(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put_dead("a").await;
    world.put_dead("other").await;
    resolve_dead_letters(&world, &["a"], DeadAction::Redrive).await;
    let claimed = world.claim_one().await;
    world.settle(&claimed, Settlement::Bury("again".to_owned())).await;
    let page = world.store.dead_letters(&world.shard(), None, 10).await.unwrap();
    let seen: Vec<&str> = page.messages.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(seen, ["other", "a"]);
    assert_eq!(page.messages[1].death.as_ref().unwrap().reason, "again");
}
