//! The source shard of an id: calls act on what lives there, create nothing, and leave alone what is frozen.

use crate::at_home::{AllCounted as _, MessagesAtHome as _};
use std::time::Duration;

use duetime_core::resize_store::Lookup;
use duetime_core::store::{
    AckWait, DeadAction, DeadChange, DeadEdit, DeadEdited, Edit, Edited, EnqueueOutcome, Settle, Settled, Settlement,
};
use duetime_core::{Due, End, MessageState, Nonce, OnConflict, Role, Score, StoredMessage, Successor};

use super::world::{World, ids};
use crate::conformance::StoreFactory;
use crate::conformance::store::world::{id, message, replacement};

/// Shard 0 has: `there` in flight, `later` scheduled, `dead` dead, and `frozen` in its outbox.
async fn source_shard(factory: &dyn StoreFactory) -> (World, duetime_core::store::ClaimedMessage) {
    let world = World::moving(factory).await;
    world.put_dead(0, "dead").await;
    world.put(0, "there", world.ago(1000)).await;
    let held = world.claim_one(0).await;
    world.put(0, "later", Due::In(Duration::from_secs(3600))).await;
    world.put(0, "frozen", world.ago(1000)).await;
    world.take(0, 4, &["frozen"]).await;
    (world, held)
}

pub async fn an_enqueue_acts_on_what_lives_there_and_creates_nothing(factory: &dyn StoreFactory) {
    let (world, _) = source_shard(factory).await;
    let batch = [
        message("absent", world.ago(5)),
        message("later", world.ago(5)),
        replacement("frozen", world.ago(5)),
        replacement("dead", world.ago(5)),
        replacement("absent", Due::In(Duration::from_secs(1))),
        replacement("later", world.ago(5)),
    ];
    let answers = world.store.enqueue_at(&world.shard(0), Role::Source, world.now(), &batch).await.unwrap();
    let outcomes: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            Lookup::Found(enqueued) => Lookup::Found(enqueued.outcome),
            Lookup::Absent(became) => Lookup::Absent(*became),
            Lookup::Frozen => Lookup::Frozen,
        })
        .collect();
    let there = |outcome| Lookup::Found(outcome);
    let (duplicate, replaced) = (there(EnqueueOutcome::Duplicate), there(EnqueueOutcome::Replaced));
    assert_eq!(
        outcomes,
        [Lookup::Absent(None), duplicate, Lookup::Frozen, replaced.clone(), Lookup::Absent(None), replaced]
    );
    assert_eq!(world.get(0, "absent").await, None);
    assert_eq!(world.get(0, "dead").await.unwrap().payload, "second payload of dead");
    assert_eq!(world.get(0, "later").await.unwrap().due_at, answers_due(&answers[5]));
}

pub async fn an_enqueue_by_due_time_compares_with_what_lives_there(factory: &dyn StoreFactory) {
    let (world, _) = source_shard(factory).await;
    let by_rule = |text, seconds: i64, on_conflict| {
        let due = Due::At(world.moment(seconds * 1000));
        duetime_core::store::Enqueue { on_conflict, ..message(text, due) }
    };
    let batch = [
        by_rule("later", 7200, OnConflict::Earliest),
        by_rule("absent", 60, OnConflict::Earliest),
        by_rule("later", 60, OnConflict::Earliest),
        by_rule("frozen", 60, OnConflict::Latest),
        by_rule("later", 30, OnConflict::Latest),
        by_rule("there", 60, OnConflict::Earliest),
    ];
    let answers = world.store.enqueue_at(&world.shard(0), Role::Source, world.now(), &batch).await.unwrap();
    let outcomes: Vec<_> = answers.into_iter().map(|answer| answer.map(|enqueued| enqueued.outcome)).collect();
    let there = Lookup::Found;
    assert_eq!(
        outcomes,
        [
            there(EnqueueOutcome::Kept),
            Lookup::Absent(None),
            there(EnqueueOutcome::Replaced),
            Lookup::Frozen,
            there(EnqueueOutcome::Kept),
            there(EnqueueOutcome::ReplacedInFlight),
        ]
    );
    assert_eq!(world.get(0, "later").await.unwrap().nonce, batch[2].nonce);
    assert_eq!(world.get(0, "absent").await, None);
}

fn answers_due(answer: &Lookup<duetime_core::store::Enqueued>) -> duetime_core::Timestamp {
    let Lookup::Found(enqueued) = answer else { panic!("{answer:?}") };
    enqueued.due_at
}

pub async fn an_enqueue_of_relative_delays_gets_its_due_times(factory: &dyn StoreFactory) {
    let (world, _) = source_shard(factory).await;
    let hour = Duration::from_secs(3600);
    let batch = [message("absent", Due::In(hour)), replacement("dead", Due::In(hour))];
    let answers = world.store.enqueue_at(&world.shard(0), Role::Source, world.now(), &batch).await.unwrap();
    assert_eq!(answers[0], Lookup::Absent(None));
    let due = answers_due(&answers[1]);
    assert!(due >= world.moment(3_598_000) && due <= world.moment(3_602_000), "{due}");
    assert_eq!(world.get(0, "dead").await.unwrap().visible_at, due);
}

pub async fn the_same_nonce_is_answered_as_the_first_time_there_too(factory: &dyn StoreFactory) {
    let (world, _) = source_shard(factory).await;
    let again = replacement("later", world.ago(5));
    let shard = world.shard(0);
    world.store.enqueue_at(&shard, Role::Source, world.now(), std::slice::from_ref(&again)).await.unwrap();
    let answers = world.store.enqueue_at(&shard, Role::Source, world.now(), &[again]).await.unwrap();
    assert!(matches!(&answers[0], Lookup::Found(e) if e.outcome == EnqueueOutcome::Scheduled), "{answers:?}");
}

pub async fn a_cancel_removes_what_lives_there(factory: &dyn StoreFactory) {
    let (world, _) = source_shard(factory).await;
    let cancels: Vec<Edit> =
        ["absent", "there", "frozen", "dead", "later", "later"].map(|text| Edit::Cancel(id(text))).into();
    let answers = world.store.edit_at(&world.shard(0), Role::Source, world.now(), &cancels).await.unwrap().answers;
    let cancelled = Lookup::Found(Edited::Cancelled);
    let expected = [
        Lookup::Absent(None),
        Lookup::Found(Edited::InFlight),
        Lookup::Frozen,
        cancelled.clone(),
        cancelled,
        // Cancelled by the same batch: it is not there any more.
        Lookup::Absent(None),
    ];
    assert_eq!(answers, expected);
    for text in ["there", "dead", "later"] {
        assert_eq!(world.get(0, text).await, None, "{text}");
    }
    assert_eq!(world.store.outbox(&world.shard(0)).await.unwrap().unwrap().messages.len(), 1);
    let survey = world.store.all_counts(&[world.shard(0)], world.now()).await.unwrap()[0];
    assert_eq!((survey.scheduled, survey.in_flight, survey.dead), (0, 0, 0));
}

pub async fn a_reschedule_moves_what_nobody_holds(factory: &dyn StoreFactory) {
    let (world, _) = source_shard(factory).await;
    let due_at = world.moment(-7);
    let moves: Vec<Edit> =
        ["absent", "there", "frozen", "dead", "later"].map(|text| Edit::Reschedule(id(text), Due::At(due_at))).into();
    let answers = world.store.edit_at(&world.shard(0), Role::Source, world.now(), &moves).await.unwrap().answers;
    let expected = [
        Lookup::Absent(None),
        Lookup::Found(Edited::InFlight),
        Lookup::Frozen,
        Lookup::Found(Edited::Dead),
        Lookup::Found(Edited::Rescheduled(due_at)),
    ];
    assert_eq!(answers, expected);
    assert_eq!(world.claim_one(0).await.due_at, due_at);
}

pub async fn edits_of_many_ids_are_answered_in_order(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    let batch: Vec<_> = (0..80).map(|n| message(&format!("m{n}"), world.ago(1000))).collect();
    world.store.enqueue(&world.shard(0), world.now(), &batch).await.unwrap();
    let edits: Vec<Edit> = (0..160).map(|n| Edit::Cancel(id(&format!("m{}", n * 2)))).collect();
    let answers = world.store.edit_at(&world.shard(0), Role::Source, world.now(), &edits).await.unwrap().answers;
    for (n, answer) in answers.iter().enumerate() {
        let expected = if n < 40 { Lookup::Found(Edited::Cancelled) } else { Lookup::Absent(None) };
        assert_eq!(*answer, expected, "m{}", n * 2);
    }
}

pub async fn a_read_finds_what_lives_there(factory: &dyn StoreFactory) {
    let (world, _) = source_shard(factory).await;
    let found =
        world.store.get_at(&world.shard(0), Role::Source, &ids(&["absent", "there", "frozen", "dead"])).await.unwrap();
    assert_eq!((&found[0], &found[2]), (&Lookup::Absent(None), &Lookup::Frozen));
    let states = [(&found[1], MessageState::InFlight), (&found[3], MessageState::Dead)];
    for (one, state) in states {
        let Lookup::Found(one) = one else { panic!("{found:?}") };
        assert_eq!(one.state, state);
        assert_eq!(one.payload, format!("payload of {}", one.id));
    }
}

pub async fn a_receipt_is_settled_where_its_message_lives(factory: &dyn StoreFactory) {
    let (world, held) = source_shard(factory).await;
    let shard = world.shard(0);
    let settle = |text: &str, score: Score, how: Settlement| Settle { id: id(text), score, action: how };
    let later = world.get(0, "later").await.unwrap();
    let scheduled = Score::new(later.visible_at, duetime_core::LeaseClass::FREE, 0);
    let batch = [
        settle("absent", held.score, Settlement::Ack),
        settle("frozen", held.score, Settlement::Ack),
        settle("dead", held.score, Settlement::Nack(Duration::ZERO)),
        // The score it has, but not one of a claim.
        settle("later", scheduled, Settlement::Ack),
        settle("there", held.score, Settlement::Nack(Duration::from_secs(60))),
    ];
    let answers = world.store.settle_at(&shard, Role::Source, world.now(), &batch, AckWait::No).await.unwrap().answers;
    let expired = Lookup::Found(Settled::Expired);
    assert_eq!(
        answers,
        [Lookup::Absent(None), Lookup::Frozen, expired.clone(), expired.clone(), Lookup::Found(Settled::Ok)]
    );
    let again =
        world.store.settle_at(&shard, Role::Source, world.now(), &batch[4..], AckWait::No).await.unwrap().answers;
    assert_eq!(again, [expired]);
    assert!(world.get(0, "later").await.is_some());
    let survey = world.store.all_counts(&[shard], world.now()).await.unwrap()[0];
    assert_eq!((survey.scheduled, survey.in_flight, survey.dead), (2, 0, 1));
}

pub async fn an_extension_there_has_a_new_receipt(factory: &dyn StoreFactory) {
    let (world, held) = source_shard(factory).await;
    let how = Settlement::Extend(Duration::from_secs(90), duetime_core::LeaseClass::TOPIC);
    let batch = [Settle { id: held.id.clone(), score: held.score, action: how }];
    let answers =
        world.store.settle_at(&world.shard(0), Role::Source, world.now(), &batch, AckWait::No).await.unwrap().answers;
    let Lookup::Found(Settled::Extended(score)) = answers[0] else { panic!("{answers:?}") };
    assert!(score > held.score);
    let ack = [Settle { id: held.id, score, action: Settlement::Ack }];
    assert_eq!(
        world.store.settle_at(&world.shard(0), Role::Source, world.now(), &ack, AckWait::No).await.unwrap().answers,
        [Lookup::Found(Settled::Ok)]
    );
    assert_eq!(world.get(0, "there").await, None);
}

pub async fn a_series_goes_on_where_its_message_lives(factory: &dyn StoreFactory) {
    let (world, held) = source_shard(factory).await;
    let (shard, due_at) = (world.shard(0), world.moment(60_000));
    let next = Successor {
        end: End::Delivered,
        due_at,
        nonce: NEW_NONCE,
        headers: held.headers.clone(),
        payload: held.payload.clone(),
    };
    let settle = |text: &str| {
        let action = Settlement::Repeat(Box::new(next.clone()));
        Settle { id: id(text), score: held.score, action }
    };
    let batch = ["absent", "frozen", "dead", "later", "there"].map(settle);
    let answers = world.store.settle_at(&shard, Role::Source, world.now(), &batch, AckWait::No).await.unwrap().answers;
    let expired = Lookup::Found(Settled::Expired);
    assert_eq!(
        answers,
        [Lookup::Absent(None), Lookup::Frozen, expired.clone(), expired.clone(), Lookup::Found(Settled::Ok)]
    );
    let there = world.get(0, "there").await.unwrap();
    assert_eq!((there.state, there.due_at, there.attempts), (MessageState::Scheduled, due_at, 0));
    assert_eq!((there.nonce, there.payload), (NEW_NONCE, held.payload));
    let again =
        world.store.settle_at(&shard, Role::Source, world.now(), &batch[4..], AckWait::No).await.unwrap().answers;
    assert_eq!(again, [expired]);
    assert_eq!(world.get(0, "absent").await, None);
}

pub async fn dead_letters_are_settled_where_they_lie(factory: &dyn StoreFactory) {
    let (world, _) = source_shard(factory).await;
    world.put_dead(0, "second").await;
    let shard = world.shard(0);
    let texts = ids(&["absent", "dead", "frozen", "later"]);
    let answers = world
        .store
        .resolve_dead_letters_at(&shard, Role::Source, world.now(), &texts, DeadAction::Redrive)
        .await
        .unwrap()
        .answers;
    assert_eq!(answers, [Lookup::Absent(None), Lookup::Found(true), Lookup::Frozen, Lookup::Found(false)]);
    assert_eq!(world.get(0, "dead").await.unwrap().redrives, 1);
    assert_eq!(world.claim_one(0).await.id, id("dead"));
    let answers = world
        .store
        .resolve_dead_letters_at(&shard, Role::Source, world.now(), &ids(&["second"]), DeadAction::Purge)
        .await;
    assert_eq!(answers.unwrap().answers, [Lookup::Found(true)]);
    assert_eq!(world.get(0, "second").await, None);
}

const NEW_NONCE: Nonce = Nonce(0xed17);

fn rewrite(letter: &StoredMessage) -> DeadEdit {
    let change = DeadChange::Rewrite { nonce: NEW_NONCE, headers: letter.headers.clone(), payload: "edited".into() };
    DeadEdit { id: letter.id.clone(), nonce: letter.nonce, died_at: letter.death.as_ref().unwrap().at, change }
}

pub async fn dead_letters_are_edited_where_they_lie(factory: &dyn StoreFactory) {
    let (world, _) = source_shard(factory).await;
    let shard = world.shard(0);
    let letter = world.get(0, "dead").await.unwrap();
    let edit_of = |text: &str| DeadEdit { id: id(text), ..rewrite(&letter) };
    let act = async |edits: &[DeadEdit]| {
        world.store.edit_dead_letters_at(&shard, Role::Source, world.now(), edits).await.unwrap().answers
    };
    let edits = ["absent", "dead", "frozen", "later"].map(edit_of);
    let (there, changed) = (Lookup::Found(DeadEdited::Done), Lookup::Found(DeadEdited::Changed));
    assert_eq!(act(&edits).await, [Lookup::Absent(None), there, Lookup::Frozen, changed]);
    assert_eq!(act(&edits[1..2]).await, [Lookup::Found(DeadEdited::Already)]);
    assert_eq!((world.get(0, "dead").await.unwrap().nonce, world.claim_one(0).await.id), (NEW_NONCE, id("dead")));
    world.put_dead(0, "second").await;
    let letter = world.get(0, "second").await.unwrap();
    let moved = DeadEdit { change: DeadChange::MoveOut, ..rewrite(&letter) };
    assert_eq!(act(&[moved]).await, [Lookup::Found(DeadEdited::Done)]);
    assert_eq!(world.get(0, "second").await, None);
}

pub async fn a_scan_says_that_a_dead_letter_lives_again_behind_it(factory: &dyn StoreFactory) {
    for how in ["redriven", "replaced", "edited"] {
        let world = World::moving(factory).await;
        world.put_dead(0, "dead").await;
        world.put(0, "a", Due::In(Duration::from_secs(3600))).await;
        let shard = world.shard(0);
        let first = world.store.scan(&shard, None, 1).await.unwrap();
        let mut met = first.found.iter().any(|one| one.id == id("dead"));
        let mut next = first.next.clone();
        if how == "replaced" {
            let anew = [replacement("dead", world.ago(5))];
            let answers = world.store.enqueue_at(&shard, Role::Source, world.now(), &anew).await.unwrap();
            assert!(matches!(&answers[0], Lookup::Found(one) if one.outcome == EnqueueOutcome::Replaced));
        } else if how == "edited" {
            let edits = [rewrite(&world.get(0, "dead").await.unwrap())];
            let answers = world.store.edit_dead_letters_at(&shard, Role::Source, world.now(), &edits).await;
            assert_eq!(answers.unwrap().answers, [Lookup::Found(DeadEdited::Done)]);
        } else {
            let (now, redrive) = (world.now(), DeadAction::Redrive);
            let answers =
                world.store.resolve_dead_letters_at(&shard, Role::Source, now, &ids(&["dead"]), redrive).await;
            assert_eq!(answers.unwrap().answers, [Lookup::Found(true)]);
        }
        let mut last = first.revived;
        while next.is_some() {
            let page = world.store.scan(&shard, next.as_ref(), 1).await.unwrap();
            met |= page.found.iter().any(|one| one.id == id("dead"));
            (next, last) = (page.next, page.revived);
        }
        assert!(
            met || last > first.revived,
            "it was there all the time, and nothing says that it may have been missed"
        );
        // What only lives, or dies, is met.
        let before = world.store.scan(&shard, None, 10).await.unwrap().revived;
        world.claim_one(0).await;
        world.store.edit_at(&shard, Role::Source, world.now(), &[Edit::Cancel(id("a"))]).await.unwrap();
        assert_eq!(world.store.scan(&shard, None, 10).await.unwrap().revived, before);
    }
}

pub async fn an_empty_batch_there_is_answered_with_nothing(factory: &dyn StoreFactory) {
    let (world, _) = source_shard(factory).await;
    let (shard, now) = (world.shard(0), world.now());
    assert!(world.store.enqueue_at(&shard, Role::Source, now, &[]).await.unwrap().is_empty());
    assert!(world.store.edit_at(&shard, Role::Source, now, &[]).await.unwrap().answers.is_empty());
    assert!(world.store.get_at(&shard, Role::Source, &[]).await.unwrap().is_empty());
    assert!(world.store.settle_at(&shard, Role::Source, now, &[], AckWait::No).await.unwrap().answers.is_empty());
    assert!(
        world
            .store
            .resolve_dead_letters_at(&shard, Role::Source, now, &[], DeadAction::Purge)
            .await
            .unwrap()
            .answers
            .is_empty()
    );
}
