//! A claim that ended without a verdict: its message is retried alone, with backoff, and not for ever.

use duetime_core::store::{ClaimRequest, Settled, Settlement};
use duetime_core::{MessageState, RetryPolicy, Timestamp};
use std::time::Duration;

use super::world::{ATTEMPTS, FIRST_WAIT, SHORT, World, every_settlement, ids};
use crate::conformance::StoreFactory;

/// Claims what is due and lets the claim run out; answers its deadline.
async fn run_out(world: &World, limit: usize) -> Timestamp {
    let claim = world.claim_as(&world.short_request(limit)).await;
    let deadline = claim.messages[0].score.visible_at();
    world.pass(SHORT).await;
    deadline
}

/// Claims until nothing due is left; answers how many claims were found ended.
async fn notice(world: &World) -> u64 {
    let mut expired = 0;
    loop {
        let claim = world.claim(10).await;
        assert_eq!(claim.messages, [], "nothing is to be taken yet");
        expired += claim.expired;
        if claim.due_left == 0 {
            return expired;
        }
    }
}

pub async fn a_message_whose_claim_ran_out_waits_for_its_backoff(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let deadline = run_out(&world, 1).await;
    assert_eq!(notice(&world).await, 1);
    let found = world.get("a").await.unwrap();
    assert_eq!((found.state, found.attempts), (MessageState::Scheduled, 1));
    assert_eq!(found.visible_at, deadline.plus(FIRST_WAIT), "no jitter");
    let survey = world.survey().await;
    assert_eq!((survey.scheduled, survey.in_flight, survey.head), (1, 0, Some(found.visible_at)));
}

pub async fn suspects_are_claimed_one_by_one_from_their_second_run_out_on(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    world.put("b", world.ago(900)).await;
    run_out(&world, 10).await;
    assert_eq!(notice(&world).await, 2);
    world.pass(FIRST_WAIT).await;
    // Most consumers that vanish were stopped: together once more.
    let together = world.claim_as(&world.short_request(10)).await;
    assert_eq!(ids(&together), ["a", "b"]);
    assert!(together.messages.iter().all(|one| one.suspect && one.attempt == 2));
    world.pass(SHORT).await;
    assert_eq!(notice(&world).await, 2);
    world.pass(FIRST_WAIT * 2).await;
    for text in ["a", "b"] {
        let claim = world.claim(10).await;
        assert_eq!(ids(&claim), [text]);
        assert!(claim.messages[0].suspect);
        assert_eq!(claim.messages[0].attempt, 3);
        assert_eq!(world.settle(&claim.messages[0], Settlement::Ack).await, Settled::Ok);
    }
    assert_eq!(world.survey().await, duetime_core::store::ShardCounts::default());
}

pub async fn what_ran_out_long_ago_is_taken_together_too_unless_it_has_one_attempt_left(factory: &dyn StoreFactory) {
    for (max_attempts, taken) in [(ATTEMPTS, vec!["a", "b", "c"]), (2, vec!["a"])] {
        let world = World::new(factory).await;
        for (n, text) in ["a", "b", "c"].into_iter().enumerate() {
            world.put(text, world.ago(1000 - n as i64)).await;
        }
        run_out(&world, 10).await;
        world.pass(FIRST_WAIT + Duration::from_millis(20)).await;
        world.put("behind", world.ago(1)).await;
        let mut request = world.request(10);
        request.retry.max_attempts = max_attempts;
        let claim = world.claim_as(&request).await;
        assert_eq!((ids(&claim), claim.expired), (taken.clone(), taken.len() as u64));
        assert!(claim.messages.iter().all(|one| one.suspect && one.attempt == 2));
        assert_eq!(world.survey().await.in_flight, 3, "what is not taken is still claimed by the one that ran out");
    }
}

pub async fn a_claim_takes_the_ordinary_ones_before_the_first_suspect(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("suspect", world.ago(1000)).await;
    run_out(&world, 1).await;
    notice(&world).await;
    world.pass(FIRST_WAIT).await;
    world.put("a", world.ago(5000)).await;
    world.put("b", world.ago(4000)).await;
    world.pass(Duration::from_millis(20)).await;
    world.put("behind", world.ago(1)).await;
    let first = world.claim(10).await;
    assert_eq!((ids(&first), first.due_left), (vec!["a", "b"], 2));
    let second = world.claim(10).await;
    assert_eq!((ids(&second), second.messages[0].suspect), (vec!["suspect"], true));
    let third = world.claim(10).await;
    assert_eq!((ids(&third), third.messages[0].suspect), (vec!["behind"], false));
}

pub async fn a_claim_that_ran_out_long_ago_is_taken_at_once_and_alone(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    run_out(&world, 1).await;
    world.pass(FIRST_WAIT + Duration::from_millis(20)).await;
    world.put("behind", world.ago(1)).await;
    let claim = world.claim(10).await;
    assert_eq!((ids(&claim), claim.expired), (vec!["a"], 1));
    assert!(claim.messages[0].suspect);
    assert_eq!(claim.messages[0].attempt, 2);
    assert_eq!(ids(&world.claim(10).await), ["behind"]);
    assert_eq!(world.survey().await.in_flight, 2);
}

pub async fn the_wait_of_a_suspect_grows(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    run_out(&world, 1).await;
    notice(&world).await;
    world.pass(FIRST_WAIT).await;
    let deadline = run_out(&world, 1).await;
    assert_eq!(notice(&world).await, 1);
    let found = world.get("a").await.unwrap();
    assert_eq!((found.visible_at, found.attempts), (deadline.plus(FIRST_WAIT * 2), 2));
}

pub async fn the_wait_of_a_suspect_is_that_of_the_list_and_then_the_last(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let (first, last) = (FIRST_WAIT, FIRST_WAIT / 2);
    let request = || {
        let mut request = world.short_request(1);
        request.retry = RetryPolicy { max_attempts: 9, ..RetryPolicy::of_waits(vec![first, last]) };
        request
    };
    for (attempt, wait) in [(1, first), (2, last), (3, last)] {
        let claim = world.claim_as(&request()).await;
        assert_eq!((ids(&claim), claim.messages[0].attempt), (vec!["a"], attempt));
        world.pass(SHORT).await;
        assert_eq!(world.claim_as(&request()).await.messages, [], "it waits");
        let deadline = claim.messages[0].score.visible_at();
        assert_eq!(world.get("a").await.unwrap().visible_at, deadline.plus(wait), "after attempt {attempt}");
        world.pass(wait).await;
    }
}

pub async fn a_suspect_out_of_attempts_is_a_dead_letter_with_its_reason(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let mut strict = world.short_request(10);
    strict.retry.max_attempts = 1;
    assert_eq!(ids(&world.claim_as(&strict).await), ["a"]);
    world.pass(SHORT).await;
    let claim = world.claim_as(&ClaimRequest { request: rand::random(), ..strict }).await;
    assert_eq!((claim.messages, claim.buried), (Vec::new(), 1));
    let found = world.get("a").await.unwrap();
    assert_eq!((found.state, found.attempts), (MessageState::Dead, 1));
    assert!(!found.death.unwrap().reason.is_empty());
    let survey = world.survey().await;
    assert_eq!((survey.scheduled, survey.in_flight, survey.dead), (0, 0, 1));
}

pub async fn a_message_that_always_kills_its_node_ends_as_a_dead_letter(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("poison", world.ago(1000)).await;
    let request = || {
        let mut request = world.short_request(1);
        request.visibility = Duration::from_millis(5);
        request.retry.initial = Duration::from_millis(5);
        request
    };
    let mut attempts = Vec::new();
    for _ in 0..40 {
        let claim = world.claim_as(&request()).await;
        attempts.extend(claim.messages.iter().map(|one| one.attempt));
        if claim.buried == 1 {
            break;
        }
        world.pass(Duration::from_millis(5)).await;
    }
    assert_eq!(attempts, (1..=ATTEMPTS).collect::<Vec<u8>>());
    assert_eq!(world.get("poison").await.unwrap().state, MessageState::Dead);
}

pub async fn a_nacked_suspect_is_an_ordinary_message_again(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    run_out(&world, 1).await;
    notice(&world).await;
    world.pass(FIRST_WAIT).await;
    let claimed = world.claim_one().await;
    assert!(claimed.suspect);
    world.settle(&claimed, Settlement::Nack(Duration::ZERO)).await;
    let claimed = world.claim_one().await;
    assert_eq!((claimed.suspect, claimed.attempt), (false, 3));
}

pub async fn a_receipt_is_worth_nothing_once_its_claim_was_found_ended(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let claim = world.claim_as(&world.short_request(1)).await;
    world.pass(SHORT).await;
    notice(&world).await;
    for how in every_settlement() {
        assert_eq!(world.settle(&claim.messages[0], how).await, Settled::Expired);
    }
    assert_eq!(world.get("a").await.unwrap().state, MessageState::Scheduled);
}

pub async fn claims_that_ran_out_count_as_due_until_they_are_noticed(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    run_out(&world, 1).await;
    let survey = world.survey().await;
    assert_eq!((survey.scheduled, survey.due, survey.in_flight), (0, 1, 1));
    notice(&world).await;
    let survey = world.survey().await;
    assert_eq!((survey.scheduled, survey.due, survey.in_flight), (1, 0, 0));
}
