//! A bound of what is in flight: what counts, what does not, and what is claimed of the rest.

use std::time::Duration;

use duetime_core::store::{Claim, ClaimRequest, Edit, Settled, Settlement};
use duetime_core::{InFlightBound, MessageState, Shard};

use super::world::{FIRST_WAIT, LONG, World, every_settlement, id, ids, message, settle};
use crate::at_home::{MessagesAtHome as _, SettledAtHome as _};
use crate::conformance::StoreFactory;

/// How long a claim holds that is to run out, but not before what is tried until then.
const RUNS_OUT: Duration = Duration::from_millis(800);
/// How far a clock is ahead: longer than such a claim holds, and no further than clocks may be apart.
const AHEAD_MS: i64 = 1_500;

async fn claim_as(world: &World, in_flight: InFlightBound, request: &ClaimRequest) -> Claim {
    let shard = Shard { in_flight, ..world.shard() };
    world.store.claim(&shard, world.now(), request).await.expect("claim is answered")
}

fn running_out(world: &World, limit: usize) -> ClaimRequest {
    ClaimRequest { visibility: RUNS_OUT, ..world.request(limit) }
}

/// A claim of whatever is due, where so many may be in flight.
async fn claim(world: &World, most: u32) -> Claim {
    claim_as(world, InFlightBound::Most(most), &world.request(10)).await
}

pub async fn no_more_is_in_flight_than_the_shard_may_have(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for (text, age_ms) in [("a", 500), ("b", 400), ("c", 300), ("d", 200), ("e", 100)] {
        world.put(text, world.ago(age_ms)).await;
    }
    let first = claim(&world, 3).await;
    assert_eq!((ids(&first), first.due_left, first.is_full), (vec!["a", "b", "c"], 2, true));
    let none = claim(&world, 3).await;
    assert_eq!((ids(&none), none.due_left, none.is_full), (vec![], 2, true));
    // A lower bound takes nothing back, a higher one is room, and without one there is always room.
    assert_eq!(ids(&claim(&world, 2).await), [""; 0]);
    let fourth = claim(&world, 4).await;
    assert_eq!((ids(&fourth), fourth.is_full), (vec!["d"], true));
    let last = claim_as(&world, InFlightBound::None, &world.request(10)).await;
    assert_eq!((ids(&last), last.is_full), (vec!["e"], false));
    assert_eq!(world.survey().await.in_flight, 5);
}

pub async fn a_claim_with_room_for_all_is_not_full(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let empty = claim(&world, 1).await;
    assert_eq!((empty.messages.len(), empty.is_full), (0, false));
    world.put("a", world.ago(500)).await;
    let one = claim(&world, 2).await;
    assert_eq!((ids(&one), one.is_full), (vec!["a"], false));
}

pub async fn whatever_ends_a_claim_leaves_room_for_another(factory: &dyn StoreFactory) {
    for how in every_settlement().into_iter().chain([Settlement::Remove, Settlement::Expire]) {
        let world = World::new(factory).await;
        world.put("a", world.ago(500)).await;
        world.put("b", world.ago(400)).await;
        let held = claim(&world, 1).await.messages.remove(0);
        let ends = !matches!(how, Settlement::Extend(..));
        world.settle(&held, how.clone()).await;
        world.pass(Duration::from_millis(1)).await;
        let next = claim(&world, 1).await;
        assert_eq!(next.messages.len(), usize::from(ends), "{how:?}: {next:?}");
        assert!(next.is_full, "{how:?}");
    }
    let world = World::new(factory).await;
    world.put("a", world.ago(500)).await;
    world.put("b", world.ago(400)).await;
    claim(&world, 1).await;
    world.edit(&[Edit::Cancel(id("a"))]).await;
    assert_eq!(ids(&claim(&world, 1).await), ["b"]);
}

pub async fn what_waits_for_its_retry_is_not_in_flight(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(500)).await;
    world.put("b", world.ago(400)).await;
    let held = claim(&world, 1).await.messages.remove(0);
    assert_eq!(world.settle(&held, Settlement::Nack(LONG)).await, Settled::Ok);
    assert_eq!(ids(&claim(&world, 1).await), ["b"]);
    assert_eq!(ids(&claim(&world, 1).await), [""; 0]);
}

pub async fn a_claim_that_ran_out_holds_no_place_whatever_was_due_before_it(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("first", world.ago(90_000)).await;
    world.put("second", world.ago(80_000)).await;
    let held = claim_as(&world, InFlightBound::Most(2), &running_out(&world, 10)).await;
    assert_eq!(ids(&held), ["first", "second"]);
    // Many of one millisecond, and of many.
    let same = world.ago(50_000);
    let batch: Vec<_> = (0..100).map(|n| message(&format!("same{n:03}"), same)).collect();
    world.enqueue(&batch).await;
    let batch: Vec<_> = (0..100).map(|n| message(&format!("m{n:03}"), world.ago(40_000 - n))).collect();
    world.enqueue(&batch).await;
    let none = claim(&world, 2).await;
    assert_eq!((none.messages.len(), none.due_left, none.is_full), (0, 200, true), "{none:?}");
    world.pass(RUNS_OUT).await;
    let more = claim(&world, 2).await;
    assert_eq!((ids(&more), more.expired), (vec!["same000", "same001"], 2));
    // Its retry waits as if the claim had met it.
    let first = world.get("first").await.unwrap();
    assert_eq!((first.state, first.attempts), (MessageState::Scheduled, 1));
    assert_eq!(first.visible_at, held.messages[0].score.visible_at().plus(FIRST_WAIT));
    let counts = world.survey().await;
    assert_eq!((counts.in_flight, counts.scheduled), (2, 200));
    assert!(claim(&world, 2).await.is_full);
}

pub async fn more_claims_that_ran_out_than_one_look_finds_are_found_by_the_next(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for from in [0, 200] {
        let batch: Vec<_> = (from..from + 200).map(|n| message(&format!("m{n:03}"), world.ago(90_000 - n))).collect();
        world.enqueue(&batch).await;
    }
    let mut held = 0;
    while held < 400 {
        held += claim_as(&world, InFlightBound::Most(400), &running_out(&world, 256)).await.messages.len();
    }
    world.put("old", world.ago(100_000)).await;
    // The deadline of each further claim is a moment later.
    world.pass(RUNS_OUT + RUNS_OUT).await;
    let first = claim(&world, 1).await;
    assert!((1..400).contains(&first.expired) && first.messages.is_empty(), "{first:?}");
    assert!(!first.is_full, "there is more to look at");
    let second = claim(&world, 1).await;
    assert_eq!((ids(&second), first.expired + second.expired), (vec!["old"], 400));
    assert_eq!(world.survey().await.in_flight, 1);
}

pub async fn a_claim_by_a_clock_that_was_put_back_holds_no_place_once_it_ran_out(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for (text, age_ms) in [("a", 500), ("b", 400), ("c", 300)] {
        world.put(text, world.ago(age_ms)).await;
    }
    let held = claim(&world, 1).await.messages.remove(0);
    // The clock that is ahead looks for claims that ran out up to its present.
    let shard = Shard { in_flight: InFlightBound::Most(1), ..world.shard() };
    let none = world.store.claim(&shard, world.moment(AHEAD_MS), &world.request(10)).await.expect("claim is answered");
    assert!(none.messages.is_empty() && none.is_full, "{none:?}");
    assert_eq!(world.settle(&held, Settlement::Ack).await, Settled::Ok);
    assert_eq!(ids(&claim_as(&world, InFlightBound::Most(1), &running_out(&world, 1)).await), ["b"]);
    world.pass(RUNS_OUT).await;
    let next = claim(&world, 1).await;
    assert_eq!((ids(&next), next.expired), (vec!["c"], 1));
}

pub async fn a_repeated_claim_is_answered_as_the_first_time_at_the_bound(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    for (text, age_ms) in [("a", 500), ("b", 400), ("c", 300)] {
        world.put(text, world.ago(age_ms)).await;
    }
    let request = world.request(2);
    let most = InFlightBound::Most(2);
    let first = claim_as(&world, most, &request).await;
    let again = claim_as(&world, most, &request).await;
    assert_eq!((ids(&first), ids(&again)), (vec!["a", "b"], vec!["a", "b"]));
    assert_eq!(world.survey().await.in_flight, 2);
}

pub async fn two_who_claim_at_once_keep_within_the_bound_together(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let batch: Vec<_> = (0..40).map(|n| message(&format!("m{n:02}"), world.ago(1000))).collect();
    world.enqueue(&batch).await;
    let both = futures::future::join_all((0..8).map(|_| claim(&world, 5))).await;
    assert_eq!(both.iter().map(|claim| claim.messages.len()).sum::<usize>(), 5);
}

pub async fn who_settles_or_cancels_is_told_that_there_is_room(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let bounded = Shard { in_flight: InFlightBound::Most(2), ..world.shard() };
    world.put("a", world.ago(500)).await;
    world.put("b", world.ago(400)).await;
    let held = claim(&world, 2).await.messages;
    let mut hints = world.store.wakeups();
    let ack = settle(&held[0], Settlement::Ack);
    world.store.settle(&bounded, world.now(), &[ack]).await.expect("settle is answered");
    world.store.edit(&bounded, world.now(), &[Edit::Cancel(id("b"))]).await.expect("edit is answered");
    let told: Vec<_> =
        std::iter::from_fn(|| hints.try_recv().ok()).filter(|hint| hint.topic == bounded.topic).collect();
    assert_eq!(told.iter().filter(|hint| hint.index == 0 && hint.visible_at.is_none()).count(), 2, "{told:?}");
}
