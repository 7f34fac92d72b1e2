//! The outbox: what is frozen, under which name, until it is dropped.

use crate::at_home::{AllCounted as _, MessagesAtHome as _};
use bytes::Bytes;
use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_BYTES_MAX};
use duetime_core::resize_store::{Batch, BatchId, FrozenState};
use duetime_core::store::{DeadKept, Edit, Enqueue, Settled, Settlement};
use duetime_core::{Due, UndoneState};

use super::world::{World, ids};
use crate::conformance::StoreFactory;
use crate::conformance::store::world::{all_time, id, message};

pub async fn a_frozen_message_is_claimed_by_nobody_and_shown_to_all(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    world.put_dead(0, "dead").await;
    world.put(0, "a", world.ago(1000)).await;
    world.put(0, "held", world.ago(2000)).await;
    world.claim_one(0).await;
    let died = world.get(0, "dead").await.unwrap();
    let batch = world.take(0, 3, &["held", "absent", "dead", "a"]).await;
    let texts: Vec<&str> = batch.messages.iter().map(|one| one.id.as_str()).collect();
    assert_eq!((batch.from, batch.to, texts), (0, 3, vec!["a", "dead", "held"]));
    assert_eq!(world.claim(0, 10).await.messages, []);
    let survey = world.store.all_counts(&[world.shard(0)], world.now()).await.unwrap()[0];
    assert_eq!((survey.scheduled, survey.due, survey.in_flight, survey.dead), (0, 0, 0, 0));
    assert_eq!(survey.head, None);
    assert_eq!(world.get(0, "a").await, None);
    assert_eq!((survey.moving, survey.messages()), (3, 3));
    let dead = world.store.dead_letters(&world.shard(0), None, 10).await.unwrap();
    assert_eq!((dead.messages, dead.next), (vec![died], None));
    world.put(0, "b", world.ago(500)).await;
    world.put(0, "later", world.ago(-90_000)).await;
    for limit in [1, 2, 10] {
        let (mut range, mut listed) = (all_time(), Vec::new());
        loop {
            let page = world.store.list(&world.shard(0), &range, limit).await.unwrap();
            assert!(page.found.len() <= limit);
            listed.extend(page.found.iter().map(|one| one.id.to_string()));
            let Some(last) = page.found.last().filter(|_| page.more) else { break };
            range.after = Some(last.place());
        }
        assert_eq!(listed, ["a", "b", "held", "later"], "in pages of {limit}");
    }
    let seen = world.store.inspect(&world.record.name, 0..1).await.unwrap().remove(0).unwrap();
    assert_eq!(seen.outbox, Some((batch.name, 3, 3)));
}

pub async fn a_frozen_dead_letter_is_kept_until_it_has_arrived(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    world.put_dead(0, "moves").await;
    world.put_dead(0, "stays").await;
    world.pass(std::time::Duration::from_millis(2)).await;
    let batch = world.take(0, 3, &["moves"]).await;
    let none_kept = DeadKept { age: Some(std::time::Duration::ZERO), ..DeadKept::default() };
    let expire = |index| {
        let (store, shard, now) = (world.store.clone(), world.shard(index), world.now());
        async move { store.expire_dead_letters(&shard, now, none_kept).await.unwrap() }
    };
    assert_eq!([expire(0).await, expire(0).await, expire(3).await], [1, 0, 0]);
    world.store.apply_batch(&world.shard(3), &batch).await.unwrap();
    assert!(world.get(3, "moves").await.is_some());
    assert_eq!([expire(3).await, expire(0).await], [1, 0]);
    assert_eq!(world.get(3, "moves").await, None);
}

pub async fn a_batch_carries_all_a_message_has(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    world.put(0, "held", world.ago(2000)).await;
    let held = world.claim_one(0).await;
    world.put_dead(0, "dead").await;
    let dead = world.get(0, "dead").await.unwrap();
    let batch = world.take(0, 3, &["held", "dead"]).await;
    assert_eq!(batch.messages[1].state, FrozenState::Live(held.score));
    let FrozenState::Dead { at, attempts, reason } = &batch.messages[0].state else { panic!("{batch:?}") };
    assert_eq!((at / 1000, *attempts, reason.as_str()), (dead.visible_at.as_millis(), 1, "dead was refused"));
    for one in &batch.messages {
        let body = duetime_core::envelope::decode(one.body.as_ref().unwrap()).unwrap();
        assert_eq!(body.payload, format!("payload of {}", one.id));
    }
    assert_eq!(world.store.outbox(&world.shard(0)).await.unwrap(), Some(batch));
}

pub async fn a_batch_that_is_put_back_is_as_it_was(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    world.put_dead(0, "dead").await;
    world.put(0, "held", world.ago(2000)).await;
    let held = world.claim_one(0).await;
    world.put(0, "waits", world.ago(1000)).await;
    let texts = ["dead", "held", "waits"];
    let mut before = Vec::new();
    for text in texts {
        before.push(world.get(0, text).await);
    }
    let counts = world.store.all_counts(&[world.shard(0)], world.now()).await.unwrap();
    let batch = world.take(0, 3, &texts).await;
    let another = Batch { name: BatchId { nonce: batch.name.nonce ^ 1, ..batch.name }, ..batch.clone() };
    assert!(!world.store.restore_batch(&world.shard(0), &another).await.unwrap());
    assert_eq!(world.get(0, "waits").await, None, "it is still frozen");
    assert!(world.store.restore_batch(&world.shard(0), &batch).await.unwrap());
    assert!(!world.store.restore_batch(&world.shard(0), &batch).await.unwrap(), "it is there already");
    assert_eq!(world.store.outbox(&world.shard(0)).await.unwrap(), None);
    for (text, before) in texts.iter().zip(before) {
        assert_eq!(world.get(0, text).await, before);
    }
    assert_eq!(world.store.all_counts(&[world.shard(0)], world.now()).await.unwrap(), counts);
    assert_eq!(world.settle(0, &held, Settlement::Ack).await, Settled::Ok);
    assert!(world.take(0, 4, &["waits"]).await.name.number > batch.name.number);
}

pub async fn an_outbox_that_is_not_empty_is_answered_instead(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    world.put(0, "a", world.ago(1000)).await;
    world.put(0, "b", world.ago(1000)).await;
    let first = world.take(0, 3, &["a"]).await;
    assert_eq!(world.take(0, 4, &["b"]).await, first);
    assert_eq!(world.claim_one(0).await.id, id("b"));
    world.discard_batch(&first).await;
    assert_eq!(world.store.outbox(&world.shard(0)).await.unwrap(), None);
    let second = world.take(0, 4, &["b"]).await;
    assert_eq!((second.name.number, second.to), (first.name.number + 1, 4));
}

pub async fn a_take_of_what_is_not_there_takes_nothing(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    world.put(0, "a", world.ago(1000)).await;
    assert_eq!(world.store.freeze_batch(&world.shard(0), 3, &ids(&["x", "y"]), 1).await.unwrap(), None);
    assert_eq!(world.store.freeze_batch(&world.shard(0), 3, &[], 1).await.unwrap(), None);
    assert_eq!(world.store.outbox(&world.shard(0)).await.unwrap(), None);
    assert_eq!(world.take(0, 3, &["a", "a"]).await.messages.len(), 1);
}

pub async fn the_weight_of_a_batch_is_bounded(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    let heavy = |n: usize, bytes: usize| Enqueue {
        payload: Bytes::from(vec![7; bytes]),
        ..message(&format!("heavy-{n}"), world.ago(1000))
    };
    let batch: Vec<Enqueue> = (0..5).map(|n| heavy(n, CLAIM_BYTES_MAX / 4)).collect();
    world.store.enqueue(&world.shard(0), world.now(), &batch).await.unwrap();
    let texts: Vec<String> = (0..5).map(|n| format!("heavy-{n}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let taken = world.take(0, 3, &texts).await;
    assert_eq!(taken.messages.len(), 3, "the first that fit");
    world.put_batch(&taken).await;
    world.discard_batch(&taken).await;
    // One above the bound goes by itself.
    let over = heavy(9, CLAIM_BYTES_MAX + 1);
    world.store.enqueue(&world.shard(0), world.now(), std::slice::from_ref(&over)).await.unwrap();
    let taken = world.take(0, 3, &["heavy-9", "heavy-3"]).await;
    assert_eq!(taken.messages.len(), 1);
    world.put_batch(&taken).await;
    assert_eq!(world.get(3, "heavy-9").await.unwrap().payload, over.payload);
}

pub async fn a_batch_of_the_largest_size_goes_whole(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    let batch: Vec<Enqueue> = (0..BATCH_ITEMS_MAX).map(|n| message(&format!("m{n:03}"), world.ago(1000))).collect();
    world.store.enqueue(&world.shard(0), world.now(), &batch).await.unwrap();
    let all: Vec<_> = batch.iter().map(|one| one.id.clone()).collect();
    let taken = world.store.freeze_batch(&world.shard(0), 3, &all, 5).await.unwrap().unwrap();
    assert_eq!(taken.messages.len(), BATCH_ITEMS_MAX);
    assert_eq!(world.put_batch(&taken).await, BATCH_ITEMS_MAX as u64);
    assert_eq!(world.claim(3, BATCH_ITEMS_MAX).await.messages.len(), BATCH_ITEMS_MAX);
}

pub async fn only_the_batch_that_is_named_is_dropped(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    let shard = world.shard(0);
    assert!(!world.store.discard_batch(&shard, 7).await.unwrap());
    world.put(0, "a", world.ago(1000)).await;
    let batch = world.take(0, 3, &["a"]).await;
    assert!(!world.store.discard_batch(&shard, batch.name.nonce ^ 1).await.unwrap());
    assert_eq!(world.store.outbox(&shard).await.unwrap(), Some(batch.clone()));
    world.discard_batch(&batch).await;
    assert!(!world.store.discard_batch(&shard, batch.name.nonce).await.unwrap());
    assert_eq!(world.get(0, "a").await, None);
}

pub async fn only_the_batch_that_was_seen_is_renumbered(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    let shard = world.shard(0);
    let new = BatchId { number: 40, nonce: 0xabcd };
    assert!(!world.store.rename_batch(&shard, 7, new).await.unwrap());
    world.put(0, "a", world.ago(1000)).await;
    world.put(0, "b", world.ago(1000)).await;
    let batch = world.take(0, 3, &["a"]).await;
    assert!(!world.store.rename_batch(&shard, batch.name.nonce ^ 1, new).await.unwrap());
    assert!(world.store.rename_batch(&shard, batch.name.nonce, new).await.unwrap());
    let found = world.store.outbox(&shard).await.unwrap().unwrap();
    assert_eq!((found.name, &found.messages), (new, &batch.messages));
    assert!(world.store.discard_batch(&shard, new.nonce).await.unwrap());
    assert_eq!(world.take(0, 3, &["b"]).await.name.number, 41, "later batches are numbered above it");
}

pub async fn the_name_of_a_batch_is_kept_exactly(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    world.put(0, "a", Due::At(world.moment(-1000))).await;
    let batch = world.store.freeze_batch(&world.shard(0), 3, &ids(&["a"]), u64::MAX).await.unwrap().unwrap();
    assert_eq!(batch.name.nonce, u64::MAX);
    world.put_batch(&batch).await;
    assert_eq!(world.store.last_applied_batch(&world.shard(3), 0).await.unwrap(), Some(batch.name));
}

pub async fn a_move_takes_the_first_due_time_along_in_a_topic_with_a_watermark(factory: &dyn StoreFactory) {
    let mut world = World::with_watermark(factory).await;
    world.begin(super::world::MORE).await;
    let due_at = world.moment(-5000);
    world.put(0, "held", Due::At(due_at)).await;
    world.claim_one(0).await;
    world.put(0, "retried", Due::At(due_at)).await;
    let claimed = world.claim_one(0).await;
    world.settle(0, &claimed, Settlement::Nack(std::time::Duration::from_secs(60))).await;
    world.put(0, "fresh", world.ago(1000)).await;
    let held = async |index| {
        let seen = world.store.undone(&world.shard(index), world.now()).await.expect("undone is answered");
        seen.held_by().map(|held| (held.due_at, held.state))
    };
    let batch = world.take(0, 3, &["held", "retried", "fresh"]).await;
    assert_eq!(held(0).await, Some((due_at, UndoneState::Moving)));
    assert_eq!(held(3).await, None);
    world.put_batch(&batch).await;
    assert_eq!(held(0).await, Some((due_at, UndoneState::Moving)), "until it is dropped");
    assert!(matches!(held(3).await, Some((at, UndoneState::InFlight(_) | UndoneState::Retrying(_))) if at == due_at));
    world.discard_batch(&batch).await;
    assert_eq!(held(0).await, None);
    // And back at its source.
    world.put(1, "back", Due::At(due_at)).await;
    world.claim_one(1).await;
    let batch = world.take(1, 4, &["back"]).await;
    assert!(world.store.restore_batch(&world.shard(1), &batch).await.unwrap());
    assert!(matches!(held(1).await, Some((at, UndoneState::InFlight(_))) if at == due_at));
    world
        .store
        .edit(&world.shard(3), world.now(), &[Edit::Cancel(id("held")), Edit::Cancel(id("retried"))])
        .await
        .unwrap();
    let fresh = world.claim_one(3).await;
    assert_eq!(world.settle(3, &fresh, Settlement::Ack).await, Settled::Ok);
    assert_eq!(held(3).await, None);
}
