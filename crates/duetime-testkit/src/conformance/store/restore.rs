//! What a bulk action removed is put back as it was, once, and only where nothing else happened to it.

use std::time::Duration;

use duetime_core::resize_store::Frozen;
use duetime_core::store::{ClaimedMessage, DeadAction, Edit, Edited, EnqueueOutcome, Settled, Settlement, StoreError};
use duetime_core::{End, Memory, Shard, StoredMessage};

use crate::at_home::{MessagesAtHome as _, SettledAtHome as _};
use crate::conformance::StoreFactory;

use super::world::{World, id, message, replacement, settle};

fn remembering(world: &World) -> Shard {
    world.shard().remembering(Memory { window: Duration::from_secs(3600), since: 1, watermark: false })
}

/// Who removes, and who else does.
const BY: u64 = 7;
const OTHER: u64 = 8;

/// How `message` is removed, and with what it is put back.
fn removal(message: &StoredMessage) -> (Edit, Frozen) {
    Frozen::taken_out(message.clone(), BY).expect("nobody holds it")
}

async fn take_out(world: &World, shard: &Shard, text: &str) -> (StoredMessage, Frozen) {
    let there = world.get(text).await.expect("it is there");
    let (edit, frozen) = removal(&there);
    assert_eq!(world.store.edit(shard, world.now(), &[edit]).await.expect("edit is answered"), [Edited::Cancelled]);
    assert!(world.get(text).await.is_none(), "{text} is gone");
    (there, frozen)
}

async fn ack(world: &World, shard: &Shard, claimed: &ClaimedMessage) {
    let batch = [settle(claimed, Settlement::Ack)];
    assert_eq!(world.store.settle(shard, world.now(), &batch).await.expect("settle is answered"), [Settled::Ok]);
}

async fn restore(world: &World, shard: &Shard, taken: &Frozen) -> bool {
    let again = std::slice::from_ref(taken);
    world.store.restore(shard, world.now(), BY, again).await.expect("restore is answered").answers[0]
}

pub async fn what_was_removed_is_put_back_as_it_was(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("tried", world.ago(1000)).await;
    let claimed = world.claim_one().await;
    world.settle(&claimed, Settlement::Nack(Duration::from_secs(60))).await;
    world.put("later", world.ago(-60_000)).await;
    world.put_dead("dead").await;
    let (shard, before) = (remembering(&world), world.survey().await);
    for text in ["tried", "later", "dead"] {
        let (was, taken) = take_out(&world, &shard, text).await;
        assert!(restore(&world, &shard, &taken).await, "{text}");
        assert_eq!(world.get(text).await, Some(was));
        assert!(!restore(&world, &shard, &taken).await, "{text} lives");
    }
    assert_eq!(world.survey().await, before);
    let page = world.store.dead_letters(&world.shard(), None, 10).await.expect("a page");
    assert_eq!(page.messages.len(), 1);
}

pub async fn what_was_put_back_and_has_ended_does_not_come_back_again(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let shard = remembering(&world);
    world.put("a", world.ago(1000)).await;
    let (_, taken) = take_out(&world, &shard, "a").await;
    assert!(restore(&world, &shard, &taken).await);
    let claimed = world.claim_one().await;
    ack(&world, &shard, &claimed).await;
    assert!(!restore(&world, &shard, &taken).await, "it was delivered");
    world.put("b", world.ago(-1000)).await;
    let (_, taken) = take_out(&world, &shard, "b").await;
    assert!(restore(&world, &shard, &taken).await);
    assert_eq!(world.store.edit(&shard, world.now(), &[Edit::Cancel(id("b"))]).await.unwrap(), [Edited::Cancelled]);
    assert!(!restore(&world, &shard, &taken).await, "it was cancelled");
    // Its second end is remembered by nobody: a caller that does not know yet that the topic remembers.
    world.put("c", world.ago(-1000)).await;
    let (_, taken) = take_out(&world, &shard, "c").await;
    assert!(restore(&world, &shard, &taken).await);
    assert_eq!(world.edit(&[Edit::Cancel(id("c"))]).await, [Edited::Cancelled]);
    assert!(!restore(&world, &shard, &taken).await, "the removal was taken back before");
    assert!(world.get("a").await.is_none() && world.get("b").await.is_none());
}

pub async fn an_id_to_which_something_else_happened_is_left_alone(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let shard = remembering(&world);
    let far = world.ago(-60_000);
    world.put("again", world.ago(1000)).await;
    let (_, taken) = take_out(&world, &shard, "again").await;
    let placed = world.store.enqueue(&shard, world.now(), &[replacement("again", world.ago(1000))]).await.unwrap();
    assert_eq!(placed[0].outcome, EnqueueOutcome::Scheduled);
    let anew = world.get("again").await;
    assert!(!restore(&world, &shard, &taken).await, "it lives anew");
    assert_eq!(world.get("again").await, anew);
    let claimed = world.claim_one().await;
    ack(&world, &shard, &claimed).await;
    assert!(!restore(&world, &shard, &taken).await, "it was delivered since");

    // Two plans removed it, each another one.
    world.put("twice", far).await;
    let (_, first) = take_out(&world, &shard, "twice").await;
    world.store.enqueue(&shard, world.now(), &[replacement("twice", world.ago(-90_000))]).await.unwrap();
    let (was, second) = take_out(&world, &shard, "twice").await;
    assert!(!restore(&world, &shard, &first).await, "the later one is remembered");
    assert!(restore(&world, &shard, &second).await);
    assert_eq!(world.get("twice").await, Some(was));

    // Whoever cancels it himself was promised that it is never delivered.
    world.put("promised", far).await;
    let (was, taken) = take_out(&world, &shard, "promised").await;
    let answers = world.store.edit(&shard, world.now(), &[Edit::Cancel(id("promised"))]).await.unwrap();
    assert!(matches!(answers[0], Edited::Gone(outcome) if outcome.end == End::Cancelled), "{answers:?}");
    assert!(!restore(&world, &shard, &taken).await);
    world.put("version", far).await;
    let (_, of_version) = take_out(&world, &shard, "version").await;
    let version = was.version().unwrap();
    let cancel = Edit::CancelIf { id: id("version"), version, moved: false };
    world.store.edit(&shard, world.now(), &[cancel]).await.unwrap();
    assert!(!restore(&world, &shard, &of_version).await);
    // It lives in another topic.
    world.put("moved", far).await;
    let (was, of_moved) = take_out(&world, &shard, "moved").await;
    let gone = Edit::CancelIf { id: id("moved"), version: was.version().unwrap(), moved: true };
    world.store.edit(&shard, world.now(), &[gone]).await.unwrap();
    assert!(!restore(&world, &shard, &of_moved).await);

    // What was cancelled for good is not put back by who remembers it.
    world.put("good", far).await;
    let (_, frozen) = removal(&world.get("good").await.unwrap());
    world.store.edit(&shard, world.now(), &[Edit::Cancel(id("good"))]).await.unwrap();
    assert!(!restore(&world, &shard, &frozen).await);
}

pub async fn only_the_very_removal_is_put_back(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let shard = remembering(&world);
    // Another plan's, of the same version.
    for text in ["live", "dead"] {
        match text {
            "live" => world.put(text, world.ago(-60_000)).await,
            _ => world.put_dead(text).await,
        }
        let (was, taken) = take_out(&world, &shard, text).await;
        let refused = world.store.restore(&shard, world.now(), OTHER, std::slice::from_ref(&taken)).await;
        assert_eq!(refused.unwrap().answers, [false], "another removed {text}");
        assert!(restore(&world, &shard, &taken).await);
        assert_eq!(world.get(text).await, Some(was));
    }
    // It was put back, given a later due time, and removed again: it is of the same enqueue.
    world.put("later", world.ago(-60_000)).await;
    let (_, soon) = take_out(&world, &shard, "later").await;
    assert!(restore(&world, &shard, &soon).await);
    let due = duetime_core::Due::In(Duration::from_secs(3600));
    let moved = world.store.edit(&shard, world.now(), &[Edit::Reschedule(id("later"), due)]).await.unwrap();
    assert!(matches!(moved[..], [Edited::Rescheduled(_)]), "{moved:?}");
    let (was, late) = take_out(&world, &shard, "later").await;
    assert!(!restore(&world, &shard, &soon).await, "it would come early");
    assert!(restore(&world, &shard, &late).await);
    assert_eq!(world.get("later").await, Some(was));
    // A nack changes when it is visible, and its attempts, alone.
    world.put("tried", world.ago(1000)).await;
    let (_, fresh) = take_out(&world, &shard, "tried").await;
    assert!(restore(&world, &shard, &fresh).await);
    let claimed = world.claim_one().await;
    world.settle(&claimed, Settlement::Nack(Duration::from_secs(60))).await;
    let (_, tried) = take_out(&world, &shard, "tried").await;
    assert!(!restore(&world, &shard, &fresh).await, "it had an attempt, and waits");
    assert!(restore(&world, &shard, &tried).await);
    // A purge of a letter that a plan took out is for good.
    world.put_dead("purged").await;
    let (_, taken) = take_out(&world, &shard, "purged").await;
    let purged = world.store.resolve_dead_letters(&shard, world.now(), &[id("purged")], DeadAction::Purge).await;
    assert_eq!(purged.unwrap(), [false]);
    assert!(!restore(&world, &shard, &taken).await);
}

pub async fn nothing_is_put_back_of_what_is_not_remembered(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("unnoted", world.ago(-60_000)).await;
    let (_, taken) = take_out(&world, &world.shard(), "unnoted").await;
    assert!(!restore(&world, &world.shard(), &taken).await, "it cannot be told from one that ended since");
    assert!(!restore(&world, &remembering(&world), &taken).await, "it was not remembered");

    let window = Duration::from_millis(500);
    let shard = world.shard().remembering(Memory { window, since: 1, watermark: false });
    world.put("forgotten", world.ago(-600_000)).await;
    let (_, taken) = take_out(&world, &shard, "forgotten").await;
    let anew = shard.clone().remembering(Memory { window, since: 2, watermark: false });
    assert!(!restore(&world, &anew, &taken).await, "that is another memory");
    world.pass(window).await;
    assert!(!restore(&world, &shard, &taken).await, "the window is over");
    assert_eq!(world.survey().await.scheduled, 0);
}

pub async fn what_is_held_or_another_by_now_is_not_removed(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let shard = world.shard();
    world.put("a", world.ago(1000)).await;
    let (edit, _) = removal(&world.get("a").await.unwrap());
    let claimed = world.claim_one().await;
    assert_eq!(world.edit(std::slice::from_ref(&edit)).await, [Edited::Changed]);
    world.settle(&claimed, Settlement::Ack).await;
    assert_eq!(world.edit(&[edit]).await, [Edited::Unknown]);
    world.put_dead("d").await;
    let (of_dead, _) = removal(&world.get("d").await.unwrap());
    world.pass(Duration::from_millis(5)).await;
    world.enqueue(&[replacement("d", world.ago(1000))]).await;
    assert_eq!(world.edit(std::slice::from_ref(&of_dead)).await, [Edited::Changed], "it lives");
    let claimed = world.claim_one().await;
    world.settle(&claimed, Settlement::Bury("again".to_owned())).await;
    assert_eq!(world.edit(&[of_dead]).await, [Edited::Changed], "it is another dead letter");
    // Redriven and dead again, it is of the same enqueue.
    let (of_death, _) = removal(&world.get("d").await.unwrap());
    let redrive = DeadAction::Redrive;
    assert_eq!(world.store.resolve_dead_letters(&shard, world.now(), &[id("d")], redrive).await.unwrap(), [true]);
    world.pass(Duration::from_millis(5)).await;
    let claimed = world.claim_one().await;
    world.settle(&claimed, Settlement::Bury("still".to_owned())).await;
    assert_eq!(world.edit(&[of_death]).await, [Edited::Changed], "it died once more");
    assert!(world.store.get(&shard, &[id("d")]).await.unwrap()[0].is_some());
}

pub async fn nothing_is_put_back_under_another_record_than_it_was_removed_under(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let shard = remembering(&world);
    world.put("a", world.ago(-1000)).await;
    let (_, taken) = take_out(&world, &shard, "a").await;
    let earlier = Shard { epoch: shard.epoch - 1, ..shard.clone() };
    let refused = world.store.restore(&earlier, world.now(), BY, std::slice::from_ref(&taken)).await;
    assert!(matches!(refused, Err(StoreError::Stale(_))), "{refused:?}");
    assert!(world.get("a").await.is_none());
    let batch: Vec<Frozen> = vec![taken.clone(), taken];
    let answers = world.store.restore(&shard, world.now(), BY, &batch).await.unwrap().answers;
    assert_eq!(answers, [true, false], "an id that is given twice is there once");
    world.enqueue(&[message("b", world.ago(-1000))]).await;
    assert_eq!(world.survey().await.scheduled, 2);
}
