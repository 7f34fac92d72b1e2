//! Of a topic with a watermark: what is not done, by when it was due, whatever was done to it since.

use std::time::Duration;

use duetime_core::resize_store::Frozen;
use duetime_core::store::{
    DeadAction, DeadChange, DeadEdit, Edit, Edited, EnqueueOutcome, Settled, Settlement, StoreError,
};
use duetime_core::watermark::UNDONE_DROPPED_MAX;
use duetime_core::{
    DeliveryMode, Due, Headers, LeaseClass, Memory, Nonce, Role, Shard, Timestamp, Undone, UndoneMessage, UndoneState,
};

use super::world::{FIRST_WAIT, LONG, SHORT, World, id, message, replacement};
use crate::at_home::MessagesAtHome as _;
use crate::conformance::StoreFactory;

async fn undone(world: &World) -> Undone {
    world.store.undone(&world.shard(), world.now()).await.expect("undone is answered")
}

/// The message that holds the watermark back, and since when.
async fn held_by(world: &World) -> Option<(String, Timestamp)> {
    let undone = undone(world).await;
    let held = undone.held_by()?;
    assert_eq!(undone.watermark(), held.due_at);
    Some((held.id.as_ref()?.to_string(), held.due_at))
}

fn held(text: &str, at: Timestamp) -> Option<(String, Timestamp)> {
    Some((text.to_owned(), at))
}

/// Schedules a message that was due so long ago; its due time.
async fn put(world: &World, text: &str, millis: i64) -> Timestamp {
    let due_at = world.moment(-millis);
    world.put(text, Due::At(due_at)).await;
    due_at
}

pub async fn without_anything_that_is_due_the_watermark_is_the_present(factory: &dyn StoreFactory) {
    let world = World::with_watermark(factory).await;
    let (before, seen) = (world.now(), undone(&world).await);
    assert_eq!((seen.oldest.clone(), seen.held_by()), (None, None));
    assert!(before.since(seen.watermark()) <= Duration::from_secs(1), "{seen:?}");
    let later = put(&world, "later", -60_000).await;
    let seen = undone(&world).await;
    assert_eq!((seen.watermark(), seen.held_by()), (seen.now, None));
    let oldest = UndoneMessage { id: Some(id("later")), due_at: later, state: UndoneState::Due };
    assert_eq!(seen.oldest, Some(oldest));
}

pub async fn what_is_due_holds_it_back_until_it_is_done(factory: &dyn StoreFactory) {
    let world = World::with_watermark(factory).await;
    let first = put(&world, "first", 5000).await;
    let second = put(&world, "second", 4000).await;
    assert_eq!(held_by(&world).await, held("first", first));
    let claimed = world.claim_one().await;
    let seen = undone(&world).await.oldest.expect("it is not done");
    assert_eq!((seen.id, seen.due_at), (Some(id("first")), first));
    assert_eq!(seen.state, UndoneState::InFlight(claimed.score.visible_at()));
    assert_eq!(world.settle(&claimed, Settlement::Ack).await, Settled::Ok);
    assert_eq!(held_by(&world).await, held("second", second));
    assert_eq!(world.cancel("second").await, Edited::Cancelled);
    assert_eq!(held_by(&world).await, None);
}

pub async fn whatever_gives_a_message_back_it_holds_by_its_first_due_time(factory: &dyn StoreFactory) {
    let wait = Duration::from_secs(60);
    for (text, how) in [
        ("nack", Settlement::Nack(wait)),
        ("defer", Settlement::Defer(wait)),
        ("unanswered", Settlement::Unanswered { wait, charged: false }),
        ("charged", Settlement::Unanswered { wait, charged: true }),
        ("release", Settlement::Release),
        ("extend", Settlement::Extend(LONG, LeaseClass::TOPIC)),
    ] {
        let world = World::with_watermark(factory).await;
        let due_at = put(&world, text, 5000).await;
        let claimed = world.claim_one().await;
        let settled = world.settle(&claimed, how).await;
        assert!(matches!(settled, Settled::Ok | Settled::Extended(_)), "{text}: {settled:?}");
        assert_eq!(held_by(&world).await, held(text, due_at));
        let state = undone(&world).await.oldest.expect("it is there").state;
        let is_right = match text {
            "extend" => matches!(state, UndoneState::InFlight(_)),
            "release" => state == UndoneState::Retrying(due_at),
            _ => matches!(state, UndoneState::Retrying(at) if at > world.now()),
        };
        assert!(is_right, "{text}: {state:?}");
        assert!(matches!(world.cancel(text).await, Edited::Cancelled | Edited::InFlight));
        assert_eq!(held_by(&world).await, None, "{text}");
    }
}

pub async fn through_further_attempts_the_first_due_time_stays(factory: &dyn StoreFactory) {
    let world = World::with_watermark(factory).await;
    let due_at = put(&world, "a", 5000).await;
    let claimed = world.claim_one().await;
    world.settle(&claimed, Settlement::Nack(Duration::ZERO)).await;
    world.pass(Duration::from_millis(5)).await;
    let ran_out = world.claim_as(&world.short_request(1)).await;
    assert_eq!(ran_out.messages.len(), 1);
    world.pass(SHORT * 2).await;
    assert_eq!(world.claim(1).await.messages, [], "it waits after a claim that ran out");
    assert_eq!(held_by(&world).await, held("a", due_at));
    world.pass(FIRST_WAIT * 4).await;
    let last = world.claim_one().await;
    assert_eq!((last.attempt, held_by(&world).await), (3, held("a", due_at)));
    world.settle(&last, Settlement::Nack(Duration::ZERO)).await;
    world.pass(Duration::from_millis(5)).await;
    assert_eq!(world.claim(1).await.buried, 1);
    assert_eq!(held_by(&world).await, None, "it is a dead letter");
}

pub async fn every_end_of_a_claim_is_done(factory: &dyn StoreFactory) {
    let world = World::with_watermark(factory).await;
    for how in [Settlement::Ack, Settlement::Remove, Settlement::Expire, Settlement::Bury("refused".to_owned())] {
        let due_at = put(&world, "a", 5000).await;
        let claimed = world.claim_one().await;
        assert_eq!(held_by(&world).await, held("a", due_at));
        assert_eq!(world.settle(&claimed, how.clone()).await, Settled::Ok);
        assert_eq!(held_by(&world).await, None, "{how:?}");
    }
    // A whole claim, a part of one, and at once with another kind.
    let due_at = [put(&world, "b", 5000).await, put(&world, "c", 4000).await, put(&world, "d", 3000).await];
    let claimed = world.claim_all().await;
    assert_eq!(claimed.len(), 3);
    assert_eq!(world.settle(&claimed[1], Settlement::Ack).await, Settled::Ok);
    assert_eq!(held_by(&world).await, held("b", due_at[0]));
    let ack = |at: usize| super::world::settle(&claimed[at], Settlement::Ack);
    assert_eq!(world.settle_all(&[ack(0), ack(2)]).await, [Settled::Ok, Settled::Ok]);
    assert_eq!(held_by(&world).await, None);
    let due_at = put(&world, "once", 5000).await;
    let claimed = world.claim_one().await;
    world.settle(&claimed, Settlement::Nack(Duration::ZERO)).await;
    world.pass(Duration::from_millis(5)).await;
    assert_eq!(held_by(&world).await, held("once", due_at));
    let once = world.request(1);
    let once = duetime_core::store::ClaimRequest { delivery: DeliveryMode::AtMostOnce, ..once };
    assert_eq!(world.claim_as(&once).await.messages.len(), 1);
    assert_eq!(held_by(&world).await, None);
}

pub async fn a_moved_or_replaced_message_holds_by_its_new_due_time(factory: &dyn StoreFactory) {
    let world = World::with_watermark(factory).await;
    put(&world, "moved", 5000).await;
    let claimed = world.claim_one().await;
    world.settle(&claimed, Settlement::Nack(Duration::from_secs(60))).await;
    let later = world.moment(-2000);
    assert_eq!(world.reschedule("moved", Due::At(later)).await, Edited::Rescheduled(later));
    assert_eq!(held_by(&world).await, held("moved", later));
    world.cancel("moved").await;
    put(&world, "replaced", 5000).await;
    world.claim_one().await;
    let placed = world.enqueue(&[replacement("replaced", Due::At(later))]).await;
    assert_eq!(placed[0].outcome, EnqueueOutcome::ReplacedInFlight);
    assert_eq!(held_by(&world).await, held("replaced", later));
    let claimed = world.claim_one().await;
    assert_eq!(held_by(&world).await, held("replaced", later));
    world.settle(&claimed, Settlement::Ack).await;
    assert_eq!(held_by(&world).await, None);
}

pub async fn what_is_redriven_holds_from_then_on(factory: &dyn StoreFactory) {
    let world = World::with_watermark(factory).await;
    world.put_dead("a").await;
    world.put_dead("b").await;
    assert_eq!(held_by(&world).await, None);
    let before = undone(&world).await.watermark();
    let (shard, ids) = (world.shard(), [id("a")]);
    let done = world.store.resolve_dead_letters(&shard, world.now(), &ids, DeadAction::Redrive).await.unwrap();
    assert_eq!(done, [true]);
    let letter = world.get("b").await.expect("a dead letter");
    let edit = DeadEdit {
        id: id("b"),
        nonce: letter.nonce,
        died_at: letter.death.expect("it died").at,
        change: DeadChange::Rewrite { nonce: Nonce(7), headers: Headers::default(), payload: "b".into() },
    };
    world.store.edit_dead_letters_at(&shard, Role::Home, world.now(), &[edit]).await.unwrap();
    world.pass(Duration::from_millis(5)).await;
    for claimed in [false, true] {
        if claimed {
            assert_eq!(world.claim_all().await.len(), 2);
        }
        let seen = undone(&world).await;
        assert!(seen.held_by().is_some() && seen.watermark() >= before, "{before} {seen:?}");
    }
}

pub async fn what_is_put_back_holds_by_its_first_due_time(factory: &dyn StoreFactory) {
    let world = World::with_watermark(factory).await;
    let memory = Memory { window: Duration::from_secs(3600), since: 1, watermark: true };
    let shard = world.shard().remembering(memory);
    let due_at = put(&world, "a", 5000).await;
    let claimed = world.claim_one().await;
    world.settle(&claimed, Settlement::Nack(Duration::from_secs(60))).await;
    let (edit, taken): (Edit, Frozen) = Frozen::taken_out(world.get("a").await.unwrap(), 7).expect("nobody holds it");
    assert_eq!(world.store.edit(&shard, world.now(), &[edit]).await.unwrap(), [Edited::Cancelled]);
    assert_eq!(held_by(&world).await, None);
    assert_eq!(world.store.restore(&shard, world.now(), 7, &[taken]).await.unwrap().answers, [true]);
    assert_eq!(held_by(&world).await, held("a", due_at));
    // Beside what is remembered, too.
    assert_eq!(world.store.edit(&shard, world.now(), &[Edit::Cancel(id("a"))]).await.unwrap(), [Edited::Cancelled]);
    assert_eq!(held_by(&world).await, None);
}

pub async fn what_ended_without_its_entry_holds_nothing_back(factory: &dyn StoreFactory) {
    let world = World::with_watermark(factory).await;
    let blind = world.shard().remembering(Memory::default());
    let count = UNDONE_DROPPED_MAX + 3;
    for n in 0..count {
        put(&world, &format!("lost-{n}"), 5000).await;
    }
    let kept = put(&world, "kept", 1000).await;
    assert_eq!(world.claim_all().await.len(), count + 1);
    // By a caller that does not know of watermarks.
    let batch: Vec<Edit> = (0..count).map(|n| Edit::Cancel(id(&format!("lost-{n}")))).collect();
    world.store.edit(&blind, world.now(), &batch).await.unwrap();
    let mut seen = undone(&world).await;
    while seen.held_by().is_some_and(|held| held.id.is_none()) {
        seen = undone(&world).await;
    }
    assert_eq!(held_by(&world).await, held("kept", kept));
}

pub async fn the_watermark_that_is_kept_never_goes_back(factory: &dyn StoreFactory) {
    let world = World::with_watermark(factory).await;
    let at = Timestamp::from_millis;
    let keep = async |millis| world.store.keep_watermark(&world.shard(), at(millis)).await.unwrap();
    assert_eq!(keep(0).await, Timestamp::ZERO);
    assert_eq!(keep(1_763_700_000_123).await, at(1_763_700_000_123));
    assert_eq!(keep(1_763_700_000_122).await, at(1_763_700_000_123));
    assert_eq!(keep(0).await, at(1_763_700_000_123));
    let stale = Shard { epoch: world.shard().epoch - 1, ..world.shard() };
    let refused = world.store.keep_watermark(&stale, at(0)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Stale(_)), "{refused:?}");
    let refused = world.store.undone(&stale, world.now()).await.unwrap_err();
    assert!(matches!(refused, StoreError::Stale(_)), "{refused:?}");
}

pub async fn a_topic_made_again_begins_its_watermark_anew(factory: &dyn StoreFactory) {
    let world = World::with_watermark(factory).await;
    put(&world, "a", 5000).await;
    world.claim_one().await;
    world.store.keep_watermark(&world.shard(), world.now()).await.unwrap();
    world.store.delete_topic(&world.record.name, duetime_core::store::Deletion::Force).await.unwrap();
    let record = world.store.put_topic(&world.record, None).await.expect("it is made again");
    let shard = record.shard(0);
    assert_eq!(world.store.keep_watermark(&shard, Timestamp::ZERO).await.unwrap(), Timestamp::ZERO);
    assert_eq!(world.store.undone(&shard, world.now()).await.unwrap().oldest, None);
    world.store.enqueue(&shard, world.now(), &[message("a", Due::At(world.moment(-1000)))]).await.unwrap();
    assert_eq!(world.store.undone(&shard, world.now()).await.unwrap().oldest.map(|one| one.id), Some(Some(id("a"))));
}
