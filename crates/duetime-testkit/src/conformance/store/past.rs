//! What a shard remembers of messages that are gone.

use std::time::Duration;

use duetime_core::store::{
    ClaimRequest, DeadAction, Edit, Edited, EnqueueOutcome, Enqueued, Settle, Settled, Settlement,
};
use duetime_core::{DeliveryMode, Due, End, Lookup, Memory, MessageId, Outcome, Role, Score, Shard, Timestamp};

use crate::at_home::{MessagesAtHome as _, SettledAtHome as _};
use crate::conformance::StoreFactory;

use super::world::{World, id, message, replacement, settle};

/// Long enough for a test in real time.
const HOUR: Duration = Duration::from_secs(3600);

/// A shard of a world that remembers for so long, in the first memory of its topic.
fn for_so_long(world: &World, window: Duration) -> Shard {
    world.shard().remembering(Memory { window, since: 1, watermark: false })
}

pub(super) fn remembering(world: &World) -> Shard {
    for_so_long(world, HOUR)
}

async fn find_in(world: &World, shard: &Shard, text: &str) -> Option<Outcome> {
    match world.store.get_at(shard, Role::Home, &[id(text)]).await.expect("get is answered").remove(0) {
        Lookup::Absent(outcome) => outcome,
        found => panic!("{text} is gone, and not {found:?}"),
    }
}

pub(super) async fn find(world: &World, text: &str) -> Option<Outcome> {
    find_in(world, &remembering(world), text).await
}

async fn end_of(world: &World, text: &str) -> Option<End> {
    find(world, text).await.map(|outcome| outcome.end)
}

async fn enqueue(world: &World, batch: &[duetime_core::store::Enqueue]) -> Vec<Enqueued> {
    world.store.enqueue(&remembering(world), world.now(), batch).await.expect("enqueue is answered")
}

async fn edit(world: &World, batch: &[Edit]) -> Vec<Edited> {
    world.store.edit(&remembering(world), world.now(), batch).await.expect("edit is answered")
}

async fn cancel(world: &World, text: &str) -> Edited {
    edit(world, &[Edit::Cancel(id(text))]).await[0]
}

async fn settle_all(world: &World, batch: &[Settle]) -> Vec<Settled> {
    world.store.settle(&remembering(world), world.now(), batch).await.expect("settle is answered")
}

/// Puts a message that is due, claims it and acks it; its receipt.
async fn deliver(world: &World, text: &str) -> Settle {
    world.put(text, world.ago(1000)).await;
    let ack = settle(&world.claim_one().await, Settlement::Ack);
    assert_eq!(settle_all(world, std::slice::from_ref(&ack)).await, [Settled::Ok]);
    ack
}

pub async fn what_became_of_a_message_is_remembered(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let before = world.now();
    let due_at = world.moment(-1000);
    let first = message("acked", Due::At(due_at));
    enqueue(&world, std::slice::from_ref(&first)).await;
    let claimed = world.claim_one().await;
    assert_eq!(settle_all(&world, &[settle(&claimed, Settlement::Ack)]).await, [Settled::Ok]);
    let outcome = find(&world, "acked").await.expect("it is remembered");
    assert_eq!((outcome.end, outcome.score, outcome.attempts()), (End::Delivered, claimed.score, 1));
    assert_eq!((outcome.due_at, outcome.nonce), (due_at, first.nonce));
    // A store's own clock may be apart from the caller's.
    let (since, until) = (before.as_millis() - 2_000, world.now().as_millis() + 2_000);
    assert!((since..=until).contains(&outcome.at.as_millis()), "{outcome:?}");
    assert_eq!(outcome.change, duetime_core::routing::change_of(world.routing().epoch));

    world.put("cancelled", world.ago(-60_000)).await;
    assert_eq!(cancel(&world, "cancelled").await, Edited::Cancelled);
    assert_eq!(end_of(&world, "cancelled").await, Some(End::Cancelled));

    world.put("held", world.ago(1000)).await;
    let held = world.claim_one().await;
    assert_eq!(cancel(&world, "held").await, Edited::InFlight);
    let outcome = find(&world, "held").await.expect("it is remembered");
    assert_eq!((outcome.end, outcome.score), (End::CancelledInFlight, held.score));

    world.put_dead("purged").await;
    let purge = |ids: Vec<MessageId>| {
        let (shard, now, store) = (remembering(&world), world.now(), world.store.clone());
        async move { store.resolve_dead_letters(&shard, now, &ids, DeadAction::Purge).await.unwrap() }
    };
    assert_eq!(purge(vec![id("purged")]).await, [true]);
    let outcome = find(&world, "purged").await.expect("it is remembered");
    assert_eq!((outcome.end, outcome.attempts()), (End::Dead, 1));
    world.put_dead("dead").await;
    assert_eq!(cancel(&world, "dead").await, Edited::Cancelled);
    let outcome = find(&world, "dead").await.expect("it is remembered");
    assert_eq!((outcome.end, outcome.attempts()), (End::Cancelled, 1));
    assert_eq!(find(&world, "never").await, None);
}

pub async fn acks_in_a_batch_with_other_settlements_are_remembered(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let all = ["a", "b", "c", "d"];
    enqueue(&world, &all.map(|text| message(text, world.ago(1000)))).await;
    let claimed = world.claim(4).await.messages;
    let how = [Settlement::Ack, Settlement::Nack(HOUR), Settlement::Bury("no".to_owned()), Settlement::Ack];
    let batch: Vec<Settle> = claimed.iter().zip(how).map(|(one, how)| settle(one, how)).collect();
    assert_eq!(settle_all(&world, &batch).await, [Settled::Ok; 4]);
    for at in [0, 3] {
        let outcome = find(&world, claimed[at].id.as_str()).await.expect("it is remembered");
        assert_eq!((outcome.end, outcome.score), (End::Delivered, claimed[at].score));
    }
    let again = [batch[0].clone(), batch[1].clone(), batch[3].clone()];
    assert_eq!(settle_all(&world, &again).await, [Settled::Already, Settled::Expired, Settled::Already]);
}

pub async fn what_is_removed_as_it_is_claimed_is_remembered_as_delivered(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    enqueue(&world, &[message("a", world.ago(1000)), message("b", world.ago(500))]).await;
    let request = ClaimRequest { delivery: DeliveryMode::AtMostOnce, ..world.request(10) };
    let claim = world.store.claim(&remembering(&world), world.now(), &request).await.unwrap();
    assert_eq!(claim.messages.len(), 2);
    for text in ["a", "b"] {
        let outcome = find(&world, text).await.expect("it is remembered");
        assert_eq!((outcome.end, outcome.attempts()), (End::Delivered, 1), "{text}");
        assert_ne!(outcome.due_at, Timestamp::ZERO);
    }
}

pub async fn what_has_expired_is_removed_and_remembered_as_that(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    enqueue(&world, &["a", "b"].map(|text| message(text, world.ago(1000)))).await;
    let claimed = world.claim(2).await.messages;
    let batch = [settle(&claimed[0], Settlement::Expire), settle(&claimed[1], Settlement::Ack)];
    assert_eq!(settle_all(&world, &batch).await, [Settled::Ok; 2]);
    let survey = world.survey().await;
    assert_eq!((survey.scheduled, survey.in_flight, survey.dead), (0, 0, 0));
    let ends = [find(&world, "a").await, find(&world, "b").await].map(|outcome| outcome.map(|outcome| outcome.end));
    assert_eq!(ends, [Some(End::Expired), Some(End::Delivered)]);
    // A receipt of what has expired proves nothing more.
    let ack = settle(&claimed[0], Settlement::Ack);
    assert_eq!(settle_all(&world, &[ack]).await, [Settled::Expired]);
    assert!(matches!(cancel(&world, "a").await, Edited::Gone(outcome) if outcome.end == End::Expired));
}

pub async fn a_cancel_of_what_is_gone_says_what_became_of_it(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let ack = deliver(&world, "a").await;
    let Edited::Gone(outcome) = cancel(&world, "a").await else { panic!("it is gone") };
    assert_eq!((outcome.end, outcome.score), (End::Delivered, ack.score));
    world.put("b", world.ago(-60_000)).await;
    let twice = edit(&world, &[Edit::Cancel(id("b")), Edit::Cancel(id("b")), Edit::Cancel(id("a"))]).await;
    assert_eq!(twice[0], Edited::Cancelled);
    assert!(matches!(twice[1], Edited::Gone(outcome) if outcome.end == End::Cancelled), "{twice:?}");
    assert!(matches!(twice[2], Edited::Gone(outcome) if outcome.end == End::Delivered), "{twice:?}");
    assert_eq!(edit(&world, &[Edit::Reschedule(id("a"), world.ago(0))]).await, [Edited::Unknown]);
}

pub async fn an_ack_that_is_repeated_is_answered_already(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let ack = deliver(&world, "a").await;
    for _ in 0..2 {
        assert_eq!(settle_all(&world, std::slice::from_ref(&ack)).await, [Settled::Already]);
    }
    // Another receipt of it proves nothing, and neither does this one for anything but an ack.
    let other = Settle { score: Score::from_raw(ack.score.raw() - 1_000), ..ack.clone() };
    let bury = Settle { action: Settlement::Bury("no".to_owned()), ..ack.clone() };
    assert_eq!(settle_all(&world, &[other]).await, [Settled::Expired]);
    assert_eq!(settle_all(&world, &[bury]).await, [Settled::Expired]);
    // It stays so when the id lives anew.
    let anew = enqueue(&world, &[replacement("a", world.ago(-60_000))]).await;
    assert_eq!(anew[0].outcome, EnqueueOutcome::Scheduled);
    assert_eq!(settle_all(&world, &[ack]).await, [Settled::Already]);
    assert!(world.get("a").await.is_some(), "a repeated ack removed a later message");
}

pub async fn an_ack_of_a_claim_that_ended_is_no_repetition(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let first = world.claim_one().await;
    assert_eq!(settle_all(&world, &[settle(&first, Settlement::Nack(Duration::ZERO))]).await, [Settled::Ok]);
    world.pass(Duration::from_millis(5)).await;
    let second = world.claim_one().await;
    assert_eq!(settle_all(&world, &[settle(&second, Settlement::Ack)]).await, [Settled::Ok]);
    let again = [settle(&first, Settlement::Ack), settle(&second, Settlement::Ack)];
    assert_eq!(settle_all(&world, &again).await, [Settled::Expired, Settled::Already]);
}

pub async fn an_id_that_is_remembered_is_not_scheduled_twice(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let first = message("a", world.ago(1000));
    let new = message("new", world.ago(-60_000));
    enqueue(&world, std::slice::from_ref(&first)).await;
    let claimed = world.claim_one().await;
    settle_all(&world, &[settle(&claimed, Settlement::Ack)]).await;
    let batch = [message("a", world.ago(1000)), new.clone(), first.clone()];
    let answers = enqueue(&world, &batch).await;
    assert_eq!(answers[0].outcome, EnqueueOutcome::Duplicate);
    assert_eq!(answers[0].became.map(|outcome| outcome.score), Some(claimed.score));
    assert_eq!(answers[1].outcome, EnqueueOutcome::Scheduled, "the one beside it");
    assert_eq!((answers[2].outcome, answers[2].became), (EnqueueOutcome::Scheduled, None), "the very same enqueue");
    assert_eq!(world.claim(10).await.messages.len(), 0, "it was scheduled twice");
    assert!(world.get("new").await.is_some());
    // What lives is a duplicate of what lives.
    let living = enqueue(&world, &[message("new", world.ago(0))]).await;
    assert_eq!((living[0].outcome, living[0].became), (EnqueueOutcome::Duplicate, None));

    let anew = enqueue(&world, &[replacement("a", world.ago(-60_000))]).await;
    assert_eq!(anew[0].outcome, EnqueueOutcome::Scheduled, "a replacement is scheduled anew");
    assert_eq!(cancel(&world, "a").await, Edited::Cancelled);
    assert_eq!(end_of(&world, "a").await, Some(End::Cancelled), "the last of its lives counts");
}

pub async fn a_cancel_that_overtakes_its_enqueue_holds(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    assert_eq!(edit(&world, &[Edit::CancelGone(id("a"))]).await, [Edited::Unknown]);
    assert_eq!(find(&world, "a").await, None, "nothing was noted");
    for _ in 0..2 {
        assert_eq!(cancel(&world, "a").await, Edited::Unknown);
    }
    assert_eq!(end_of(&world, "a").await, Some(End::CancelledBefore));
    let item = message("a", world.ago(1000));
    for _ in 0..2 {
        let answers = enqueue(&world, &[item.clone(), message("b", world.ago(-60_000))]).await;
        assert_eq!(answers[0].outcome, EnqueueOutcome::CancelledBefore);
        assert_eq!(answers[0].became.map(|outcome| outcome.end), Some(End::CancelledBefore));
    }
    assert_eq!(world.claim(10).await.messages.len(), 0, "it was cancelled");
    let anew = enqueue(&world, &[replacement("a", world.ago(1000))]).await;
    assert_eq!(anew[0].outcome, EnqueueOutcome::Scheduled);
    let claimed = world.claim_one().await;
    settle_all(&world, &[settle(&claimed, Settlement::Ack)]).await;
    assert_eq!(end_of(&world, "a").await, Some(End::Delivered), "the note counts no more");
}

pub async fn without_a_memory_nothing_is_remembered(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("a", world.ago(1000)).await;
    let claimed = world.claim_one().await;
    assert_eq!(world.settle(&claimed, Settlement::Ack).await, Settled::Ok);
    assert_eq!(world.cancel("b").await, Edited::Unknown);
    assert_eq!((find(&world, "a").await, find(&world, "b").await), (None, None));
    // And what was remembered is not looked at.
    let ack = deliver(&world, "c").await;
    assert_eq!(world.cancel("c").await, Edited::Unknown);
    assert_eq!(world.settle_all(&[ack]).await, [Settled::Expired]);
    assert_eq!(world.enqueue(&[message("c", world.ago(0))]).await[0].outcome, EnqueueOutcome::Scheduled);
}

pub async fn a_memory_that_begins_anew_knows_nothing_of_the_one_before(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    deliver(&world, "a").await;
    let anew = world.shard().remembering(Memory { window: HOUR, since: 7, watermark: false });
    assert_eq!(find_in(&world, &anew, "a").await, None);
    let edited = world.store.edit(&anew, world.now(), &[Edit::Cancel(id("a"))]).await.unwrap();
    assert_eq!(edited, [Edited::Unknown]);
    assert_eq!(find_in(&world, &anew, "a").await.map(|outcome| outcome.end), Some(End::CancelledBefore));
}

pub async fn an_outcome_is_remembered_for_the_window_and_no_longer(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let window = if world.moves_time() { HOUR } else { Duration::from_millis(1200) };
    let shard = for_so_long(&world, window);
    let put_and_cancel = async |text: &str| {
        world.put(text, world.ago(-60_000_000)).await;
        let edited = world.store.edit(&shard, world.now(), &[Edit::Cancel(id(text))]).await.unwrap();
        assert_eq!(edited, [Edited::Cancelled]);
    };
    // More than the generations of any store, so that the oldest are dropped.
    let mut ended = Vec::new();
    for n in 0..20 {
        let (text, from) = (format!("m{n}"), world.now());
        put_and_cancel(&text).await;
        ended.push((text, from, world.now()));
        world.pass(window / 5).await;
        for (text, from, to) in &ended {
            // It ended between two moments, and is looked for between two others.
            let before = world.now();
            let is_found = find_in(&world, &shard, text).await.is_some();
            let (least, most) = (before.since(*to), world.now().since(*from));
            assert!(is_found || most >= window, "{text} was forgotten after {most:?} of {window:?}");
            assert!(!is_found || least <= window, "{text} is remembered after {least:?} of {window:?}");
        }
    }
    let longer = for_so_long(&world, window * 100);
    let before = find_in(&world, &longer, "m19").await;
    assert!(before.is_some(), "a longer window forgets nothing that was within the one before");
}

pub async fn a_source_says_what_became_of_what_ended_there(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let shard = remembering(&world);
    let ack = deliver(&world, "acked").await;
    assert_eq!(cancel(&world, "noted").await, Edited::Unknown);
    world.put("here", world.ago(-60_000)).await;
    let is_end = |found: &Option<Outcome>, end| found.is_some_and(|outcome| outcome.end == end);
    let (store, now) = (&world.store, world.now());

    let found = store.get_at(&shard, Role::Source, &["acked", "noted", "here", "never"].map(id)).await.unwrap();
    assert!(matches!(&found[0], Lookup::Absent(became) if is_end(became, End::Delivered)), "{found:?}");
    assert!(matches!(&found[1], Lookup::Absent(became) if is_end(became, End::CancelledBefore)), "{found:?}");
    assert!(matches!(&found[2..], [Lookup::Found(_), Lookup::Absent(None)]), "{found:?}");

    let edits = ["acked", "here", "here", "never"].map(|text| Edit::Cancel(id(text)));
    let edited = store.edit_at(&shard, Role::Source, now, &edits).await.unwrap().answers;
    assert!(matches!(&edited[0], Lookup::Absent(became) if is_end(became, End::Delivered)), "{edited:?}");
    assert_eq!(edited[1], Lookup::Found(Edited::Cancelled));
    assert!(matches!(&edited[2], Lookup::Absent(became) if is_end(became, End::Cancelled)), "{edited:?}");
    assert_eq!(edited[3], Lookup::Absent(None));
    assert_eq!(find(&world, "never").await, None, "a source notes nothing");

    let items = [
        message("acked", world.ago(0)),
        replacement("acked", world.ago(0)),
        message("noted", world.ago(0)),
        message("never", world.ago(0)),
    ];
    let placed = store.enqueue_at(&shard, Role::Source, now, &items).await.unwrap();
    assert!(matches!(&placed[0], Lookup::Found(done) if done.outcome == EnqueueOutcome::Duplicate), "{placed:?}");
    assert!(matches!(placed[1], Lookup::Absent(Some(_))), "a replacement goes on to its home: {placed:?}");
    assert!(matches!(&placed[2], Lookup::Found(done) if done.outcome == EnqueueOutcome::CancelledBefore), "{placed:?}");
    assert_eq!(placed[3], Lookup::Absent(None));

    let other = Settle { score: Score::from_raw(ack.score.raw() - 1_000), ..ack.clone() };
    let nack = Settle { action: Settlement::Nack(HOUR), ..ack.clone() };
    let wait = duetime_core::store::AckWait::No;
    let settled = store.settle_at(&shard, Role::Source, now, &[ack, other, nack], wait).await.unwrap().answers;
    assert_eq!(settled[0], Lookup::Found(Settled::Already));
    assert!(matches!(settled[1..], [Lookup::Absent(Some(_)), Lookup::Absent(Some(_))]), "{settled:?}");
}
