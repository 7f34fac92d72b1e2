//! Cancels of one version of a message, and what is remembered of one that moved elsewhere.

use std::time::Duration;

use duetime_core::store::{Edit, Edited, Enqueue, EnqueueOutcome, Settlement};
use duetime_core::{End, Lookup, Memory, MessageState, OnConflict, Outcome, Role, Shard, Version};

use crate::at_home::MessagesAtHome as _;
use crate::conformance::StoreFactory;

use super::world::{World, id, message, replacement};

fn remembering(world: &World) -> Shard {
    world.shard().remembering(Memory { window: Duration::from_secs(3600), since: 1, watermark: false })
}

async fn version_of(world: &World, text: &str) -> Version {
    world.get(text).await.expect("it is there").version().expect("it is scheduled")
}

async fn edit(world: &World, batch: &[Edit]) -> Vec<Edited> {
    world.store.edit(&remembering(world), world.now(), batch).await.expect("edit is answered")
}

fn cancel_if(text: &str, version: Version, moved: bool) -> Edit {
    Edit::CancelIf { id: id(text), version, moved }
}

async fn place(world: &World, item: Enqueue, on_conflict: OnConflict) -> EnqueueOutcome {
    let batch = [Enqueue { on_conflict, ..item }];
    world.store.enqueue(&remembering(world), world.now(), &batch).await.expect("enqueue is answered")[0].outcome
}

fn is_end(edited: &Edited, end: End) -> bool {
    matches!(edited, Edited::Gone(outcome) if outcome.end == end)
}

pub async fn a_cancel_of_a_version_removes_that_and_no_other(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let (near, far) = (world.ago(-60_000), world.ago(-120_000));
    for text in ["same", "replaced", "rescheduled", "back", "gone"] {
        world.put(text, near).await;
    }
    let mut asks = Vec::new();
    for text in ["same", "replaced", "rescheduled", "back", "gone"] {
        asks.push(cancel_if(text, version_of(&world, text).await, false));
    }
    // With the due time that it had.
    world.enqueue(&[replacement("replaced", near)]).await;
    world.reschedule("rescheduled", far).await;
    world.reschedule("back", far).await;
    world.reschedule("back", near).await;
    world.cancel("gone").await;
    let expected = [Edited::Cancelled, Edited::Changed, Edited::Changed, Edited::Cancelled, Edited::Unknown];
    assert_eq!(world.edit(&asks).await, expected);
    assert_eq!(world.survey().await.scheduled, 2);
    assert!(world.get("same").await.is_none() && world.get("back").await.is_none());
    for text in ["replaced", "rescheduled"] {
        let version = version_of(&world, text).await;
        let twice = [cancel_if(text, version, false), cancel_if(text, version, false)];
        assert_eq!(world.edit(&twice).await, [Edited::Cancelled, Edited::Unknown], "{text}");
    }
}

pub async fn a_cancel_of_a_version_takes_nothing_that_is_claimed_was_tried_or_is_dead(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let scheduled = version_of(&world, "a").await;
    let claimed = world.claim_one().await;
    assert_eq!(world.get("a").await.unwrap().version(), None);
    let held = Version { score: claimed.score, ..scheduled };
    assert_eq!(world.edit(&[cancel_if("a", scheduled, true), cancel_if("a", held, true)]).await, [Edited::Changed; 2]);
    world.settle(&claimed, Settlement::Nack(Duration::from_secs(60))).await;
    assert_eq!(world.edit(&[cancel_if("a", scheduled, true)]).await, [Edited::Changed]);
    let retrying = version_of(&world, "a").await;
    assert_eq!(world.edit(&[cancel_if("a", retrying, true)]).await, [Edited::Cancelled]);
    world.put_dead("d").await;
    let dead = world.get("d").await.unwrap();
    assert_eq!((dead.state, dead.version()), (MessageState::Dead, None));
    assert_eq!(
        world.edit(&[cancel_if("d", Version { nonce: dead.nonce, ..scheduled }, true)]).await,
        [Edited::Changed]
    );
    assert!(world.get("d").await.is_some());
}

pub async fn what_moved_is_remembered_with_its_version_and_not_scheduled_here_again(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let far = world.ago(-60_000);
    world.put("a", far).await;
    let version = version_of(&world, "a").await;
    let twice = edit(&world, &[cancel_if("a", version, true), cancel_if("a", version, true)]).await;
    assert_eq!(twice[0], Edited::Cancelled);
    let Edited::Gone(outcome) = twice[1] else { panic!("it moved: {twice:?}") };
    assert_eq!((outcome.end, outcome.version()), (End::Moved, version));
    for rule in [OnConflict::Reject, OnConflict::Replace] {
        assert_eq!(place(&world, message("a", far), rule).await, EnqueueOutcome::Duplicate, "{rule:?}");
    }
    assert!(world.get("a").await.is_none());
    assert_eq!(place(&world, message("a", far), OnConflict::Return).await, EnqueueOutcome::Scheduled);
    assert_eq!(place(&world, message("a", far), OnConflict::Return).await, EnqueueOutcome::Duplicate, "it lives");

    // What ended here does not come back.
    edit(&world, &[Edit::Cancel(id("a"))]).await;
    assert_eq!(place(&world, message("a", far), OnConflict::Return).await, EnqueueOutcome::Duplicate);
    let moved = edit(&world, &[cancel_if("a", version, true)]).await;
    assert!(is_end(&moved[0], End::Cancelled), "{moved:?}");
}

pub async fn a_cancel_of_what_moved_says_so_and_holds_where_it_comes_back(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let far = world.ago(-60_000);
    world.put("a", far).await;
    let version = version_of(&world, "a").await;
    edit(&world, &[cancel_if("a", version, true)]).await;
    let cancelled = edit(&world, &[Edit::Cancel(id("a"))]).await;
    assert!(is_end(&cancelled[0], End::Moved), "{cancelled:?}");
    let moved = edit(&world, &[cancel_if("a", version, true)]).await;
    assert!(is_end(&moved[0], End::CancelledBefore), "the note is shown to who moves it: {moved:?}");
    assert_eq!(place(&world, message("a", far), OnConflict::Return).await, EnqueueOutcome::CancelledBefore);
    assert!(world.get("a").await.is_none());
}

pub async fn a_source_moves_what_lives_there_and_knows_what_moved(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let (shard, now, store) = (remembering(&world), world.now(), &world.store);
    let far = world.ago(-60_000);
    for text in ["a", "b"] {
        world.put(text, far).await;
    }
    let (a, b) = (version_of(&world, "a").await, version_of(&world, "b").await);
    let asks = [("a", a), ("b", a), ("c", a), ("a", a)].map(|(text, version)| cancel_if(text, version, true));
    let edited = store.edit_at(&shard, Role::Source, now, &asks).await.unwrap().answers;
    let moved = |answer: &Lookup<Edited>| matches!(answer, Lookup::Absent(Some(Outcome { end: End::Moved, .. })));
    assert_ne!(a, b);
    assert_eq!(edited[..3], [Lookup::Found(Edited::Cancelled), Lookup::Found(Edited::Changed), Lookup::Absent(None)]);
    assert!(moved(&edited[3]), "{edited:?}");
    let rules = [OnConflict::Reject, OnConflict::Replace, OnConflict::Return];
    let items = rules.map(|on_conflict| Enqueue { on_conflict, ..message("a", far) });
    let placed = store.enqueue_at(&shard, Role::Source, now, &items).await.unwrap();
    for refused in &placed[..2] {
        assert!(matches!(refused, Lookup::Found(done) if done.outcome == EnqueueOutcome::Duplicate), "{placed:?}");
    }
    assert!(matches!(placed[2], Lookup::Absent(Some(_))), "what comes back goes on to its home: {placed:?}");
    store.edit_at(&shard, Role::Source, now, &[Edit::Cancel(id("b"))]).await.unwrap();
    let back = [Enqueue { on_conflict: OnConflict::Return, ..message("b", far) }];
    let placed = store.enqueue_at(&shard, Role::Source, now, &back).await.unwrap();
    assert!(matches!(placed[0], Lookup::Absent(Some(_))), "the home may know more than its cancel: {placed:?}");
}

pub async fn what_comes_back_is_scheduled_where_its_move_was_later_than_what_an_earlier_home_remembers(
    factory: &dyn StoreFactory,
) {
    let world = World::new(factory).await;
    let far = world.ago(-60_000);
    for text in ["moved", "before", "lives"] {
        world.put(text, far).await;
    }
    edit(&world, &[Edit::Cancel(id("lives")), Edit::Cancel(id("noted"))]).await;
    let Edited::Gone(cancelled) = edit(&world, &[Edit::Cancel(id("lives"))]).await[0] else { panic!("it was there") };
    world.put("lives", far).await;
    for text in ["moved", "before"] {
        let version = version_of(&world, text).await;
        edit(&world, &[cancel_if(text, version, true)]).await;
    }
    let later = Outcome { change: cancelled.change + 1, ..cancelled };
    let asks =
        [("moved", cancelled), ("before", later), ("lives", cancelled), ("noted", cancelled), ("none", cancelled)];
    let items =
        asks.map(|(text, earlier)| Enqueue { on_conflict: OnConflict::ReturnAfter(earlier), ..message(text, far) });
    let placed = world.store.enqueue(&remembering(&world), world.now(), &items).await.unwrap();
    let seen: Vec<_> = placed.iter().map(|one| (one.outcome, one.became.map(|became| became.change))).collect();
    let refused = |by: Outcome| (EnqueueOutcome::Duplicate, Some(by.change));
    let expected = [
        (EnqueueOutcome::Scheduled, None),
        refused(later),
        (EnqueueOutcome::Duplicate, None),
        refused(cancelled),
        refused(cancelled),
    ];
    assert_eq!(seen, expected);
}
