//! A message that says how many deliveries it may have, whatever its topic says.

use crate::at_home::MessagesAtHome as _;
use std::time::Duration;

use duetime_core::store::{ClaimRequest, DeadAction, Enqueue, EnqueueOutcome, Settled, Settlement};
use duetime_core::{DeliveryMode, Headers, MAX_ATTEMPTS, MessageState, max_attempts};

use super::world::{ATTEMPTS, FIRST_WAIT, SHORT, World, id, ids, message, replacement};
use crate::conformance::StoreFactory;

/// `given` with a number of its own, among other headers.
fn with_own(most: u8, given: Enqueue) -> Enqueue {
    let headers = Headers::new(vec![("shop".to_owned(), "7".to_owned())]).expect("a good header");
    Enqueue { headers: max_attempts::kept_in(most, &headers), ..given }
}

async fn put(world: &World, text: &str, most: u8) {
    let answers = world.enqueue(&[with_own(most, message(text, world.ago(1000)))]).await;
    assert_eq!(answers[0].outcome, EnqueueOutcome::Scheduled, "{text} is new");
}

/// Claims and gives back what is due until nothing is; answers how often.
async fn given_back(world: &World, request: impl Fn() -> ClaimRequest) -> u8 {
    let mut attempts = 0;
    for _ in 0..200 {
        let claim = world.claim_as(&request()).await;
        let Some(claimed) = claim.messages.first() else { return attempts };
        attempts += 1;
        assert_eq!(claimed.attempt, attempts, "they grow by one");
        assert_eq!(world.settle(claimed, Settlement::Nack(Duration::ZERO)).await, Settled::Ok);
    }
    panic!("it is claimed for ever");
}

/// Claims and lets claims run out until the message is dead; answers how often.
async fn run_out(world: &World) -> u8 {
    let mut attempts = 0;
    for _ in 0..50 {
        let mut request = world.short_request(10);
        request.retry.initial = Duration::from_millis(5);
        request.retry.max = Duration::from_millis(5);
        let claim = world.claim_as(&request).await;
        attempts += claim.messages.len() as u8;
        if claim.buried == 1 {
            return attempts;
        }
        world.pass(SHORT).await;
    }
    panic!("it never dies");
}

async fn reason_of(world: &World, text: &str) -> (u8, String) {
    let found = world.get(text).await.expect("it is there");
    assert_eq!(found.state, MessageState::Dead, "{text}");
    (found.attempts, found.death.expect("it died").reason)
}

pub async fn a_message_has_as_many_attempts_as_it_says_fewer_or_more_than_its_topic(factory: &dyn StoreFactory) {
    for most in [1, 2, ATTEMPTS, ATTEMPTS + 2, 99] {
        let world = World::new(factory).await;
        put(&world, "a", most).await;
        assert_eq!(given_back(&world, || world.request(10)).await, most);
        let (attempts, reason) = reason_of(&world, "a").await;
        assert_eq!((attempts, reason), (most, format!("used up its {most} attempts")));
    }
}

pub async fn beside_it_the_others_have_those_of_their_topic(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    put(&world, "fewer", 1).await;
    world.put("usual", world.ago(900)).await;
    put(&world, "more", 9).await;
    let mut last = std::collections::BTreeMap::new();
    loop {
        let claim = world.claim(10).await;
        if claim.messages.is_empty() {
            break;
        }
        for one in &claim.messages {
            last.insert(one.id.to_string(), one.attempt);
            world.settle(one, Settlement::Nack(Duration::ZERO)).await;
        }
    }
    let wanted = [("fewer", 1), ("more", 9), ("usual", ATTEMPTS)].map(|(text, most)| (text.to_owned(), most));
    assert_eq!(last, wanted.into());
    assert_eq!(world.survey().await.dead, 3);
}

pub async fn a_claim_that_runs_out_for_the_last_time_that_it_says_is_its_end(factory: &dyn StoreFactory) {
    for most in [1, 2, ATTEMPTS + 1] {
        let world = World::new(factory).await;
        put(&world, "a", most).await;
        assert_eq!(run_out(&world).await, most);
        let (attempts, reason) = reason_of(&world, "a").await;
        assert_eq!(attempts, most);
        assert_eq!(reason, format!("used up its {most} attempts; the last claim ended without a verdict"));
    }
}

pub async fn what_is_given_back_for_nothing_costs_none_of_its_own_attempts(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    put(&world, "a", 1).await;
    let unanswered = Settlement::Unanswered { wait: Duration::ZERO, charged: false };
    for how in [Settlement::Release, Settlement::Defer(Duration::ZERO), unanswered] {
        let claimed = world.claim_one().await;
        assert_eq!(claimed.attempt, 1);
        assert_eq!(world.settle(&claimed, how).await, Settled::Ok);
    }
    let claimed = world.claim_one().await;
    assert_eq!((claimed.attempt, claimed.suspect), (1, true));
    world.settle(&claimed, Settlement::Nack(Duration::ZERO)).await;
    let claim = world.claim(10).await;
    assert_eq!((claim.messages, claim.buried), (Vec::new(), 1));
}

pub async fn a_redrive_gives_it_as_many_attempts_again(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    put(&world, "a", 2).await;
    for redrives in 1..=2 {
        assert_eq!(given_back(&world, || world.request(10)).await, 2);
        let ids = [id("a")];
        let action = DeadAction::Redrive;
        let done = world.store.resolve_dead_letters(&world.shard(), world.now(), &ids, action).await.unwrap();
        assert_eq!(done, [true]);
        let found = world.get("a").await.unwrap();
        assert_eq!((found.attempts, found.redrives), (0, redrives));
        assert_eq!(max_attempts::of(&found.headers), Some(2), "it says so still");
    }
}

pub async fn a_replacement_has_the_number_that_it_says_itself(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    put(&world, "a", 1).await;
    let other = with_own(4, replacement("a", world.ago(1000)));
    assert_eq!(world.enqueue(&[other]).await[0].outcome, EnqueueOutcome::Replaced);
    assert_eq!(given_back(&world, || world.request(10)).await, 4);
    world.enqueue(&[replacement("a", world.ago(1000))]).await;
    assert_eq!(given_back(&world, || world.request(10)).await, ATTEMPTS, "it says nothing");
}

pub async fn a_suspect_that_has_one_of_its_own_attempts_left_is_claimed_alone(factory: &dyn StoreFactory) {
    for (most, taken) in [(2, vec!["a"]), (3, vec!["a", "b"]), (9, vec!["a", "b"])] {
        let world = World::new(factory).await;
        put(&world, "a", most).await;
        world.put("b", world.ago(900)).await;
        assert_eq!(ids(&world.claim_as(&world.short_request(10)).await), ["a", "b"]);
        world.pass(SHORT + FIRST_WAIT + Duration::from_millis(20)).await;
        let claim = world.claim(10).await;
        assert_eq!(ids(&claim), taken, "it may have {most}");
        assert!(claim.messages.iter().all(|one| one.suspect && one.attempt == 2));
    }
}

pub async fn at_most_once_what_has_had_its_own_attempts_is_dead_and_what_has_not_goes(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    put(&world, "fewer", 1).await;
    put(&world, "more", 3).await;
    for one in world.claim(10).await.messages {
        world.settle(&one, Settlement::Nack(Duration::ZERO)).await;
    }
    let mut once = ClaimRequest { delivery: DeliveryMode::AtMostOnce, ..world.request(10) };
    once.retry.max_attempts = 1;
    let claim = world.claim_as(&once).await;
    assert_eq!((ids(&claim), claim.buried), (vec!["more"], 1));
    assert_eq!(world.get("more").await, None, "it was removed");
    assert_eq!(reason_of(&world, "fewer").await.0, 1);
}

pub async fn what_is_no_number_counts_as_none(factory: &dyn StoreFactory) {
    for strange in ["0", "100", "soon", ""] {
        let world = World::new(factory).await;
        let pair = (MAX_ATTEMPTS.to_owned(), strange.to_owned());
        let headers = Headers::from_stored(vec![("shop".to_owned(), "7".to_owned()), pair]);
        world.enqueue(&[Enqueue { headers, ..message("a", world.ago(1000)) }]).await;
        assert_eq!(given_back(&world, || world.request(10)).await, ATTEMPTS, "{strange:?}");
    }
}
