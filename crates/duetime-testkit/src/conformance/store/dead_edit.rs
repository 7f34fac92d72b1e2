//! Dead letters that are edited or moved out: only the letter that was read, and once.

use std::time::Duration;

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::store::{DeadAction, DeadChange, DeadEdit, DeadEdited, Edit, Edited, Settled, Settlement};
use duetime_core::{End, Headers, Lookup, Memory, MessageState, Nonce, Role, Shard, StoredMessage};

use crate::at_home::{MessagesAtHome as _, SettledAtHome as _};
use crate::conformance::StoreFactory;

use super::world::{World, id, message, replacement, settle};

const HOUR: Duration = Duration::from_secs(3600);
/// A request that is repeated comes again so much later.
const LATER: Duration = Duration::from_secs(10);
const KEPT: &str = "1 2 kept";
const NEW_NONCE: Nonce = Nonce(0xed17);

fn remembering(world: &World) -> Shard {
    world.shard().remembering(Memory { window: HOUR, since: 1, watermark: false })
}

/// `letter` with another payload.
fn rewrite(letter: &StoredMessage) -> DeadEdit {
    let header = ("duetime-previous".to_owned(), KEPT.to_owned());
    let headers =
        Headers::from_stored(letter.headers.iter().map(|(n, v)| (n.into(), v.into())).chain([header]).collect());
    let change = DeadChange::Rewrite { nonce: NEW_NONCE, headers, payload: "edited".into() };
    DeadEdit { change, ..move_out(letter) }
}

fn move_out(letter: &StoredMessage) -> DeadEdit {
    let died_at = letter.death.as_ref().expect("it is dead").at;
    DeadEdit { id: letter.id.clone(), nonce: letter.nonce, died_at, change: DeadChange::MoveOut }
}

async fn act(world: &World, shard: &Shard, edits: &[DeadEdit]) -> Vec<DeadEdited> {
    let done = world.store.edit_dead_letters_at(shard, Role::Home, world.now(), edits).await;
    Lookup::finals(done.expect("edits of letters are answered").answers).expect("a home knows")
}

async fn act_one(world: &World, edit: &DeadEdit) -> DeadEdited {
    act(world, &remembering(world), std::slice::from_ref(edit)).await[0]
}

async fn dead(world: &World, text: &str) -> StoredMessage {
    world.put_dead(text).await;
    world.get(text).await.expect("it is there")
}

/// Repeats may come much later: where time can be moved, it is.
async fn pass_some(world: &World) {
    world.pass(if world.moves_time() { LATER } else { Duration::from_millis(2) }).await;
}

pub async fn an_edited_letter_is_due_at_once_as_another_message_in_its_place(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let letter = dead(&world, "a").await;
    dead(&world, "other").await;
    // The second death is in another millisecond.
    world.pass(Duration::from_millis(2)).await;
    world.store.resolve_dead_letters(&world.shard(), world.now(), &[id("a")], DeadAction::Redrive).await.unwrap();
    let claimed = world.claim_one().await;
    world.settle(&claimed, Settlement::Bury("again".to_owned())).await;
    assert_eq!(act_one(&world, &rewrite(&letter)).await, DeadEdited::Changed, "it died again since");
    let letter = world.get("a").await.unwrap();
    assert_eq!((letter.redrives, act_one(&world, &rewrite(&letter)).await), (1, DeadEdited::Done));
    let found = world.get("a").await.unwrap();
    assert_eq!((found.state, found.attempts, found.redrives, found.death), (MessageState::Scheduled, 0, 0, None));
    assert_eq!((found.nonce, &found.payload[..]), (NEW_NONCE, &b"edited"[..]));
    assert_eq!(found.headers.iter().last(), Some(("duetime-previous", KEPT)));
    assert!(found.due_at <= world.now() && found.due_at >= letter.death.unwrap().at, "{:?}", found.due_at);
    world.pass(Duration::from_millis(2)).await;
    let claimed = world.claim_one().await;
    assert_eq!((claimed.attempt, &claimed.payload[..]), (1, &b"edited"[..]));
    assert_eq!(world.settle(&claimed, Settlement::Ack).await, Settled::Ok);
    let survey = world.survey().await;
    assert_eq!((survey.scheduled, survey.in_flight, survey.dead), (0, 0, 1));
}

pub async fn a_repeated_edit_is_known_whatever_became_of_its_message(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let letter = dead(&world, "a").await;
    let edit = rewrite(&letter);
    // Twice in one batch too.
    let done = act(&world, &remembering(&world), &[edit.clone(), edit.clone()]).await;
    assert_eq!(done, [DeadEdited::Done, DeadEdited::Already]);
    pass_some(&world).await;
    assert_eq!(act_one(&world, &edit).await, DeadEdited::Already, "it waits");
    let claimed = world.claim_one().await;
    assert_eq!(act_one(&world, &edit).await, DeadEdited::Already, "it is claimed");
    world.settle(&claimed, Settlement::Bury("again".to_owned())).await;
    pass_some(&world).await;
    assert_eq!(act_one(&world, &edit).await, DeadEdited::Already, "it is dead again");
    assert_eq!(world.get("a").await.unwrap().state, MessageState::Dead);
    let shard = remembering(&world);
    let ids = [id("a")];
    world.store.resolve_dead_letters(&shard, world.now(), &ids, DeadAction::Redrive).await.unwrap();
    world.pass(Duration::from_millis(2)).await;
    let claimed = world.claim_one().await;
    let acked = world.store.settle(&shard, world.now(), &[settle(&claimed, Settlement::Ack)]).await.unwrap();
    assert_eq!(acked, [Settled::Ok]);
    pass_some(&world).await;
    assert_eq!(act_one(&world, &edit).await, DeadEdited::Already, "it was delivered, and is remembered");
    assert_eq!(act(&world, &world.shard(), &[edit]).await, [DeadEdited::Unknown], "where nothing is remembered");
    assert_eq!(world.get("a").await, None);
}

pub async fn an_edit_overtakes_no_purge_no_cancel_and_no_new_message_of_its_id(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let shard = remembering(&world);
    let purge = async |text: &str| {
        let done = world.store.resolve_dead_letters(&shard, world.now(), &[id(text)], DeadAction::Purge).await;
        assert_eq!(done.unwrap(), [true], "{text}");
    };
    let cancel = async |text: &str| {
        let answers = world.store.edit(&shard, world.now(), &[Edit::Cancel(id(text))]).await.unwrap();
        assert_eq!(answers, [Edited::Cancelled], "{text}");
    };
    // What ended after it was edited does not come back by a repetition.
    let edit = rewrite(&dead(&world, "late").await);
    assert_eq!(act_one(&world, &edit).await, DeadEdited::Done);
    cancel("late").await;
    pass_some(&world).await;
    assert_eq!((act_one(&world, &edit).await, world.get("late").await), (DeadEdited::Already, None));
    let texts = ["purged", "cancelled", "replaced", "anew", "redriven"];
    let mut letters = Vec::new();
    for text in texts {
        letters.push(dead(&world, text).await);
    }
    purge("purged").await;
    cancel("cancelled").await;
    world.enqueue(&[replacement("replaced", world.ago(-60_000))]).await;
    purge("anew").await;
    world.enqueue(&[message("anew", world.ago(-60_000))]).await;
    let redriven = world.store.resolve_dead_letters(&shard, world.now(), &[id("redriven")], DeadAction::Redrive).await;
    assert_eq!(redriven.unwrap(), [true]);
    let there = async || {
        let mut all = Vec::new();
        for text in texts {
            all.push(world.get(text).await);
        }
        all
    };
    let before = there().await;
    let expected = {
        use DeadEdited::{Changed, Unknown};
        [Unknown, Unknown, Changed, Changed, Changed]
    };
    assert_eq!(act(&world, &shard, &letters.iter().map(rewrite).collect::<Vec<_>>()).await, expected);
    assert_eq!(act(&world, &shard, &letters.iter().map(move_out).collect::<Vec<_>>()).await, expected);
    assert_eq!(there().await, before);
}

pub async fn letters_are_moved_out_each_by_its_own_enqueue_and_death_and_that_is_remembered(
    factory: &dyn StoreFactory,
) {
    use DeadEdited::{Changed, Done, Unknown};

    let world = World::new(factory).await;
    let shard = remembering(&world);
    let first = dead(&world, "a").await;
    let other = dead(&world, "b").await;
    // Somebody replaced it, and that one died too.
    world.enqueue(&[replacement("a", world.ago(1000))]).await;
    let claimed = world.claim_one().await;
    world.settle(&claimed, Settlement::Bury("refused".to_owned())).await;
    let second = world.get("a").await.unwrap();
    let wrong_time = DeadEdit { died_at: second.death.as_ref().unwrap().at.plus(LATER), ..move_out(&second) };
    let batch = [move_out(&first), wrong_time, move_out(&other)];
    assert_eq!(act(&world, &shard, &batch).await, [Changed, Changed, Done]);
    world.pass(Duration::from_millis(2)).await;
    assert_eq!(act(&world, &shard, &[move_out(&second), move_out(&second)]).await, [Done, Unknown], "it went once");
    assert_eq!(act(&world, &shard, &[move_out(&second)]).await, [Unknown]);
    let found = world.store.get_at(&shard, Role::Home, &[id("a"), id("b")]).await.unwrap();
    for (found, attempts) in found.iter().zip([1, 1]) {
        let Lookup::Absent(Some(outcome)) = found else { panic!("{found:?}") };
        assert_eq!((outcome.end, outcome.attempts()), (End::Moved, attempts));
    }
    assert_eq!(world.survey().await, duetime_core::store::ShardCounts::default());
}

pub async fn edits_of_letters_are_answered_one_by_one_in_batches_of_any_size(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let (a, b) = (dead(&world, "a").await, dead(&world, "b").await);
    assert_eq!(act(&world, &world.shard(), &[]).await, []);
    let none = |n: usize| DeadEdit { id: id(&format!("none-{n}")), ..rewrite(&a) };
    let mut edits: Vec<DeadEdit> = (0..BATCH_ITEMS_MAX).map(none).collect();
    edits.insert(1, rewrite(&a));
    edits.push(move_out(&b));
    let done = act(&world, &world.shard(), &edits).await;
    assert_eq!(done.len(), edits.len());
    let is_done = |at: usize| done[at] == DeadEdited::Done;
    assert_eq!((0..done.len()).filter(|at| is_done(*at)).collect::<Vec<_>>(), [1, edits.len() - 1]);
    assert_eq!(done.iter().filter(|one| **one == DeadEdited::Unknown).count(), BATCH_ITEMS_MAX);
}
