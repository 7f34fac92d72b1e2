//! Dead letters: read in pages, redriven, purged.

use crate::at_home::MessagesAtHome as _;
use std::time::Duration;

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::store::{DeadAction, DeadKept, Edit, Enqueue, EnqueueOutcome, Settled, Settlement};
use duetime_core::{End, Lookup, Memory, MessageId, MessageState, OnConflict, Role};

use super::world::{World, id, ids, message, settle};
use crate::conformance::StoreFactory;

async fn resolve_dead_letters(world: &World, names: &[&str], action: DeadAction) -> Vec<bool> {
    let ids: Vec<MessageId> = names.iter().map(|text| id(text)).collect();
    world.store.resolve_dead_letters(&world.shard(), world.now(), &ids, action).await.unwrap()
}

const HOUR: Duration = Duration::from_secs(3600);
/// None is kept, however young.
const NONE_KEPT: DeadKept = DeadKept { age: Some(Duration::ZERO), newest: 0, beyond: 0 };

/// The same by age alone.
fn younger_than(age: Duration) -> DeadKept {
    DeadKept { age: Some(age), ..NONE_KEPT }
}

/// The same by number alone.
fn newest(newest: u64, beyond: u64) -> DeadKept {
    DeadKept { age: None, newest, beyond }
}

async fn expire(world: &World, kept: DeadKept) -> u64 {
    world.store.expire_dead_letters(&world.shard(), world.now(), kept).await.unwrap()
}

async fn letters(world: &World) -> Vec<String> {
    let page = world.store.dead_letters(&world.shard(), None, BATCH_ITEMS_MAX).await.unwrap();
    page.messages.into_iter().map(|one| one.id.to_string()).collect()
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

pub async fn dead_letters_end_by_their_own_age_and_one_that_died_again_begins_anew(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for text in ["a", "b"] {
        world.put_dead(text).await;
    }
    world.put("lives", world.ago(-60_000)).await;
    world.pass(Duration::from_millis(2)).await;
    assert_eq!(expire(&world, younger_than(HOUR)).await, 0);
    if world.moves_time() {
        world.pass(HOUR / 2).await;
        resolve_dead_letters(&world, &["a"], DeadAction::Redrive).await;
        let claim = world.claim_all().await;
        let again = claim.iter().find(|one| one.id.as_str() == "a").unwrap();
        let lives = claim.iter().find(|one| one.id.as_str() == "lives").unwrap();
        world.settle(again, Settlement::Bury("again".to_owned())).await;
        world.settle(lives, Settlement::Defer(HOUR)).await;
        let died_at = world.get("a").await.unwrap().death.unwrap().at;
        world.pass(HOUR / 2).await;
        // Twice, as a node does that met no answer, or two of them.
        assert_eq!([expire(&world, younger_than(HOUR)).await, expire(&world, younger_than(HOUR)).await], [1, 0]);
        assert_eq!(letters(&world).await, ["a"]);
        world.pass(died_at.plus(HOUR).since(world.now()).saturating_sub(Duration::from_millis(1))).await;
        assert_eq!(expire(&world, younger_than(HOUR)).await, 0, "a millisecond is left");
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(expire(&world, younger_than(HOUR)).await, 1);
    } else {
        assert_eq!(expire(&world, NONE_KEPT).await, 2);
    }
    assert_eq!(letters(&world).await, Vec::<String>::new());
    assert_eq!(expire(&world, NONE_KEPT).await, 0);
    assert_eq!(world.get("lives").await.unwrap().state, MessageState::Scheduled);
    let survey = world.survey().await;
    assert_eq!((survey.scheduled, survey.dead, survey.in_flight), (1, 0, 0));
}

pub async fn the_newest_dead_letters_stay_and_no_more_go_than_were_too_many(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for text in ["a", "b", "c", "d", "e"] {
        world.put_dead(text).await;
    }
    assert_eq!(expire(&world, newest(5, 3)).await, 0);
    assert_eq!(expire(&world, newest(1, 1)).await, 1, "no more than asked for");
    assert_eq!(letters(&world).await, ["b", "c", "d", "e"]);
    assert_eq!([expire(&world, newest(2, 2)).await, expire(&world, newest(2, 2)).await], [2, 0]);
    assert_eq!(letters(&world).await, ["d", "e"]);
    // What died again is the newest.
    resolve_dead_letters(&world, &["d"], DeadAction::Redrive).await;
    let claimed = world.claim_one().await;
    world.settle(&claimed, Settlement::Bury("again".to_owned())).await;
    assert_eq!(expire(&world, newest(1, 1)).await, 1);
    assert_eq!(letters(&world).await, ["d"]);
    assert_eq!(expire(&world, newest(u64::MAX, u64::MAX)).await, 0);
    assert_eq!(expire(&world, newest(0, u64::MAX)).await, 1);
}

pub async fn an_expired_dead_letter_ends_as_a_purged_one(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put_dead("a").await;
    world.pass(Duration::from_millis(2)).await;
    let shard = world.shard().remembering(Memory { window: HOUR, since: 1, watermark: false });
    assert_eq!(world.store.expire_dead_letters(&shard, world.now(), NONE_KEPT).await.unwrap(), 1);
    let found = world.store.get_at(&shard, Role::Home, &[id("a")]).await.unwrap().remove(0);
    let Lookup::Absent(Some(outcome)) = found else { panic!("{found:?}") };
    assert_eq!((outcome.end, outcome.attempts()), (End::Dead, 1));
    assert_eq!(world.survey().await, duetime_core::store::ShardCounts::default());
    assert_eq!(world.store.bytes(&[world.shard()]).await.unwrap(), 0);
    let again = world.store.enqueue(&shard, world.now(), &[message("a", world.ago(1000))]).await.unwrap();
    assert_eq!(again[0].outcome, EnqueueOutcome::Duplicate, "its id is remembered");
}

pub async fn dead_letters_are_removed_in_steps(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let names: Vec<String> = (0..BATCH_ITEMS_MAX + 44).map(|n| format!("m{n}")).collect();
    for part in names.chunks(BATCH_ITEMS_MAX) {
        world.enqueue(&part.iter().map(|text| message(text, world.ago(1000))).collect::<Vec<_>>()).await;
        let claim = world.claim_all().await;
        let bury: Vec<_> = claim.iter().map(|one| settle(one, Settlement::Bury("refused".to_owned()))).collect();
        world.settle_all(&bury).await;
    }
    world.pass(Duration::from_millis(2)).await;
    let steps = [expire(&world, NONE_KEPT).await, expire(&world, NONE_KEPT).await, expire(&world, NONE_KEPT).await];
    assert_eq!(steps, [BATCH_ITEMS_MAX as u64, 44, 0]);
}
