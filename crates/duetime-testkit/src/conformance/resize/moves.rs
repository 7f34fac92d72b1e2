//! Scans and puts: nothing is missed, and a batch arrives once, as it was.

use crate::at_home::{AllCounted as _, MessagesAtHome as _};
use std::collections::BTreeMap;
use std::time::Duration;

use duetime_core::resize_store::{ApplyOutcome, Batch, BatchId, Frozen, FrozenState};
use duetime_core::store::{DeadAction, Edit, Edited, Enqueue, Settled, Settlement};
use duetime_core::{Due, Headers, MessageId, MessageState, Score, Timestamp, max_attempts};

use super::world::{LONG, SHORT, World};
use crate::conformance::StoreFactory;
use crate::conformance::store::world::{id, message};

type Seen = BTreeMap<MessageId, (MessageState, Timestamp)>;

/// A whole scan, and how many pages it had.
async fn scan(world: &World, index: u32, limit: usize) -> (Seen, usize) {
    let (mut seen, mut pages, mut from) = (Seen::new(), 0, None);
    loop {
        let page = world.store.scan(&world.shard(index), from.as_ref(), limit).await.unwrap();
        assert_eq!(page.first, pages == 0);
        seen.extend(page.found.into_iter().map(|one| (one.id, (one.state, one.visible_at))));
        pages += 1;
        from = page.next;
        if from.is_none() {
            return (seen, pages);
        }
    }
}

pub async fn a_scan_meets_every_message_in_whatever_state(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    assert_eq!(scan(&world, 0, 10).await.0, Seen::new());
    world.put_dead(0, "dead").await;
    world.put(0, "held", world.ago(1000)).await;
    let held = world.claim_one(0).await;
    let due_at = world.moment(-500);
    world.put(0, "waits", Due::At(due_at)).await;
    let died_at = world.get(0, "dead").await.unwrap().visible_at;
    let expected = Seen::from([
        (id("dead"), (MessageState::Dead, died_at)),
        (id("held"), (MessageState::InFlight, held.score.visible_at())),
        (id("waits"), (MessageState::Scheduled, due_at)),
    ]);
    assert_eq!(scan(&world, 0, 10).await.0, expected);
    world.take(0, 3, &["held", "waits", "dead"]).await;
    assert_eq!(scan(&world, 0, 10).await.0, Seen::new());
}

pub async fn a_scan_in_pages_misses_nothing_that_stays(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    // More than servers keep in their small encodings.
    let batch: Vec<Enqueue> = (0..600).map(|n| message(&format!("stays-{n}"), world.ago(1000))).collect();
    for part in batch.chunks(200) {
        world.store.enqueue(&world.shard(0), world.now(), part).await.unwrap();
    }
    let (mut seen, mut from, mut round) = (Seen::new(), None, 0);
    loop {
        let page = world.store.scan(&world.shard(0), from.as_ref(), 50).await.unwrap();
        seen.extend(page.found.into_iter().map(|one| (one.id, (one.state, one.visible_at))));
        from = page.next;
        if from.is_none() {
            break;
        }
        // Meanwhile others come and go, and scores change.
        world.put(0, &format!("comes-{round}"), world.ago(2000)).await;
        let claimed = world.claim(0, 20).await.messages;
        for one in claimed.iter().filter(|one| one.id.as_str().starts_with("comes")) {
            assert_eq!(world.settle(0, one, Settlement::Ack).await, Settled::Ok);
        }
        round += 1;
    }
    assert!(round > 3, "it takes several pages");
    for n in 0..600 {
        assert!(seen.contains_key(&id(&format!("stays-{n}"))), "stays-{n} was missed");
    }
}

pub async fn a_receipt_of_the_source_shard_settles_nothing_that_the_new_home_gave_out(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    // Both are claimed for the same time from the same moment on.
    let (now, request) = (world.now(), || world.request(1, LONG));
    for (source, home, text) in [(0, 3, "a"), (1, 4, "b")] {
        world.put(source, text, world.ago(1000)).await;
        let first = world.store.claim(&world.shard(source), now, &request()).await.unwrap().messages.remove(0);
        let gone = world.store.edit(&world.shard(source), now, &[Edit::Cancel(id(text))]).await.unwrap();
        assert_eq!(gone, [Edited::InFlight]);
        world.put(home, text, world.ago(1000)).await;
        let second = world.store.claim(&world.shard(home), now, &request()).await.unwrap().messages.remove(0);
        assert_ne!(first.score, second.score);
        assert_eq!(world.settle(home, &first, Settlement::Ack).await, Settled::Expired);
        assert_eq!(world.settle(home, &second, Settlement::Ack).await, Settled::Ok);
    }
}

pub async fn a_moved_message_is_as_it_was(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    world.put_dead(0, "dead").await;
    world.put(0, "nacked", world.ago(1000)).await;
    let claimed = world.claim_one(0).await;
    world.settle(0, &claimed, Settlement::Nack(Duration::from_secs(60))).await;
    world.put(0, "held", world.ago(1000)).await;
    world.claim_one(0).await;
    world.put_dead(0, "redriven").await;
    let redriven = [id("redriven")];
    world.store.resolve_dead_letters(&world.shard(0), world.now(), &redriven, DeadAction::Redrive).await.unwrap();
    world.put(0, "waits", Due::In(Duration::from_secs(3600))).await;
    let texts = ["dead", "nacked", "held", "redriven", "waits"];
    let mut before = Vec::new();
    for text in texts {
        before.push(world.get(0, text).await.unwrap());
    }
    assert_eq!(before[3].redrives, 1);
    let counts = world.store.all_counts(&[world.shard(0)], world.now()).await.unwrap();
    world.carry(0, 3, &texts).await;
    for (text, before) in texts.iter().zip(before) {
        assert_eq!(world.get(0, text).await, None);
        assert_eq!(world.get(3, text).await, Some(before));
    }
    assert_eq!(world.store.all_counts(&[world.shard(3)], world.now()).await.unwrap(), counts);
    let letters = world.store.dead_letters(&world.shard(3), None, 10).await.unwrap().messages;
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].death.as_ref().unwrap().reason, "dead was refused");
}

pub async fn a_moved_message_has_the_attempts_that_it_says(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    // The topic's are ten.
    for (text, most) in [("fewer", 2), ("more", 12)] {
        let headers = max_attempts::kept_in(most, &Headers::default());
        let own = Enqueue { headers, ..message(text, world.ago(1000)) };
        world.store.enqueue(&world.shard(0), world.now(), &[own]).await.unwrap();
    }
    for one in world.claim(0, 10).await.messages {
        world.settle(0, &one, Settlement::Nack(Duration::ZERO)).await;
    }
    world.carry(0, 3, &["fewer", "more"]).await;
    let mut last = BTreeMap::new();
    loop {
        let claim = world.claim(3, 10).await;
        if claim.messages.is_empty() {
            break;
        }
        for one in &claim.messages {
            last.insert(one.id.clone(), one.attempt);
            world.settle(3, one, Settlement::Nack(Duration::ZERO)).await;
        }
    }
    assert_eq!(last, BTreeMap::from([(id("fewer"), 2), (id("more"), 12)]));
}

pub async fn a_receipt_stays_good_across_a_move(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    for text in ["acked", "nacked", "extended"] {
        world.put(0, text, world.ago(1000)).await;
    }
    let held = world.claim(0, 10).await.messages;
    assert_eq!(held.len(), 3);
    world.carry(0, 3, &["acked", "nacked", "extended"]).await;
    let find = |text: &str| held.iter().find(|one| one.id.as_str() == text).unwrap();
    assert_eq!(world.settle(0, find("acked"), Settlement::Ack).await, Settled::Expired, "it is not here");
    assert_eq!(world.settle(3, find("acked"), Settlement::Ack).await, Settled::Ok);
    assert_eq!(world.settle(3, find("nacked"), Settlement::Nack(Duration::ZERO)).await, Settled::Ok);
    let how = Settlement::Extend(LONG, duetime_core::LeaseClass::TOPIC);
    let extended = world.settle(3, find("extended"), how).await;
    let Settled::Extended(score) = extended else { panic!("{extended:?}") };
    assert!(score > find("extended").score);
    assert_eq!(world.claim_one(3).await.attempt, 2);
}

pub async fn a_claim_that_runs_out_after_its_move_is_a_suspect(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    world.put(0, "a", world.ago(1000)).await;
    world.put(0, "b", world.ago(1000)).await;
    let request = world.request(10, SHORT);
    let held = world.store.claim(&world.shard(0), world.now(), &request).await.unwrap().messages;
    assert_eq!(held.len(), 2);
    world.carry(0, 3, &["a"]).await;
    // The claim's answer was lost: it is repeated, and has what is still here.
    let again = world.store.claim(&world.shard(0), world.now(), &request).await.unwrap().messages;
    assert_eq!(again.len(), 1);
    world.pass(SHORT).await;
    let claim = world.claim(3, 10).await;
    assert_eq!((claim.expired, claim.messages.len()), (1, 1));
    assert!(claim.messages[0].suspect);
    assert_eq!(claim.messages[0].attempt, 2);
}

pub async fn a_repeated_claim_never_answers_what_a_batch_brought(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    world.put(3, "own", world.ago(1000)).await;
    let request = world.request(10, LONG);
    let claim = world.store.claim(&world.shard(3), world.now(), &request).await.unwrap();
    // Deadlines are unique in a shard; one of another shard may be the same by chance.
    world.put(0, "brought", world.ago(1000)).await;
    let mut batch = world.take(0, 3, &["brought"]).await;
    batch.messages[0].state = FrozenState::Live(claim.messages[0].score);
    world.put_batch(&batch).await;
    let again = world.store.claim(&world.shard(3), world.now(), &request).await.unwrap();
    assert!(again.messages.iter().all(|one| one.id.as_str() == "own"), "{again:?}");
    assert_eq!(world.settle(3, &claim.messages[0], Settlement::Ack).await, Settled::Ok);
    assert_eq!(world.get(3, "brought").await.unwrap().state, MessageState::InFlight);
}

pub async fn a_batch_is_put_once(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    world.put(0, "a", world.ago(1000)).await;
    let batch = world.take(0, 3, &["a"]).await;
    assert_eq!(world.put_batch(&batch).await, 1);
    let claimed = world.claim_one(3).await;
    assert_eq!(world.settle(3, &claimed, Settlement::Ack).await, Settled::Ok);
    assert_eq!(world.put_batch(&batch).await, 0, "the same batch again brings nothing back");
    assert_eq!(world.get(3, "a").await, None);
}

pub async fn an_id_that_lives_at_the_destination_stays_as_it_is(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    for text in ["lives", "died", "new"] {
        world.put(0, text, world.ago(1000)).await;
    }
    world.put_dead(3, "died").await;
    world.put(3, "lives", Due::In(Duration::from_secs(3600))).await;
    let (lives, died) = (world.get(3, "lives").await, world.get(3, "died").await);
    let batch = world.take(0, 3, &["lives", "died", "new"]).await;
    assert_eq!(world.put_batch(&batch).await, 1);
    assert_eq!((world.get(3, "lives").await, world.get(3, "died").await), (lives, died));
    assert_eq!(world.claim_one(3).await.id, id("new"));
    let survey = world.store.all_counts(&[world.shard(3)], world.now()).await.unwrap()[0];
    assert_eq!((survey.scheduled, survey.in_flight, survey.dead), (1, 1, 1));
}

pub async fn a_batch_that_is_not_above_the_last_is_a_conflict(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    let shard = world.shard(3);
    world.put(0, "a", world.ago(1000)).await;
    world.put(0, "b", world.ago(1000)).await;
    world.carry(0, 3, &["a"]).await;
    let last = world.store.last_applied_batch(&shard, 0).await.unwrap().unwrap();
    // What a failover makes of a source: its numbers are used again, with other nonces.
    let mut batch = world.take(0, 3, &["b"]).await;
    for number in [last.number, last.number.saturating_sub(1)] {
        let again = BatchId { number, nonce: last.nonce ^ 1 };
        batch.name = again;
        assert_eq!(world.store.apply_batch(&shard, &batch).await.unwrap(), ApplyOutcome::Conflict { last });
        assert_eq!(world.get(3, "b").await, None, "nothing was written");
    }
    assert_eq!(world.store.last_applied_batch(&shard, 0).await.unwrap(), Some(last));
    batch.name = BatchId { number: last.number + 1, nonce: 77 };
    assert_eq!(world.put_batch(&batch).await, 1);
    assert_eq!(world.store.last_applied_batch(&shard, 0).await.unwrap(), Some(batch.name));
}

pub async fn batches_of_each_source_are_remembered_by_themselves(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    let shard = world.shard(3);
    world.put(0, "a", world.ago(1000)).await;
    world.put(1, "b", world.ago(1000)).await;
    let (first, second) = (world.take(0, 3, &["a"]).await, world.take(1, 3, &["b"]).await);
    assert_eq!(world.store.last_applied_batch(&shard, 0).await.unwrap(), None);
    world.put_batch(&first).await;
    assert_eq!(world.store.last_applied_batch(&shard, 1).await.unwrap(), None);
    world.put_batch(&second).await;
    assert_eq!(world.store.last_applied_batch(&shard, 0).await.unwrap(), Some(first.name));
    assert_eq!(world.store.last_applied_batch(&shard, 1).await.unwrap(), Some(second.name));
}

pub async fn deadlines_go_on_above_what_a_batch_brings(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    world.put(0, "far", world.ago(1000)).await;
    let request = world.request(1, Duration::from_secs(3600));
    let far = world.store.claim(&world.shard(0), world.now(), &request).await.unwrap().messages.remove(0);
    world.carry(0, 3, &["far"]).await;
    let floor = world.store.inspect(&world.record.name, 3..4).await.unwrap().remove(0).unwrap().floor;
    assert_eq!(floor.of(far.score.class()), far.score.visible_at());
    world.put(3, "near", world.ago(1000)).await;
    let near = world.claim_one(3).await;
    assert!(near.score.visible_at() > floor.of(near.score.class()), "{:?}", near.score);
    assert_ne!(Score::new(near.score.visible_at(), near.score.class(), 1), far.score);
}

pub async fn dead_letters_of_two_shards_are_read_in_pages_each_once(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    for index in [0, 1] {
        for n in 0..6 {
            world.put_dead(index, &format!("dead-{index}-{n}")).await;
        }
    }
    world.carry(0, 3, &["dead-0-0", "dead-0-1", "dead-0-2", "dead-0-3", "dead-0-4", "dead-0-5"]).await;
    world.carry(1, 3, &["dead-1-0", "dead-1-1", "dead-1-2", "dead-1-3", "dead-1-4", "dead-1-5"]).await;
    let (mut texts, mut from) = (Vec::new(), None);
    loop {
        let page = world.store.dead_letters(&world.shard(3), from, 2).await.unwrap();
        texts.extend(page.messages.iter().map(|one| one.id.to_string()));
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), 12, "{texts:?}");
    // One that dies later stands behind them.
    world.put_dead(3, "last").await;
    let all = world.store.dead_letters(&world.shard(3), None, 100).await.unwrap().messages;
    assert_eq!(all.last().unwrap().id, id("last"));
}

pub async fn dead_letters_that_died_in_one_moment_are_read_in_pages_each_once(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    for (index, text) in [(3, "own"), (0, "first"), (0, "second")] {
        world.put_dead(index, text).await;
    }
    let mut own = world.take(3, 0, &["own"]).await;
    let moment = own.messages.remove(0).state;
    world.discard_batch(&own).await;
    world.put_dead(3, "own").await;
    let mut batch = world.take(3, 0, &["own"]).await;
    world.discard_batch(&batch).await;
    batch.from = 0;
    batch.to = 3;
    batch.messages.extend(world.take(0, 3, &["first", "second"]).await.messages);
    for one in &mut batch.messages {
        one.state = moment.clone();
    }
    assert_eq!(world.put_batch(&batch).await, 3);
    let (mut texts, mut from) = (Vec::new(), None);
    loop {
        let page = world.store.dead_letters(&world.shard(3), from, 1).await.unwrap();
        texts.extend(page.messages.iter().map(|one| one.id.to_string()));
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    texts.sort();
    assert_eq!(texts, ["first", "own", "second"]);
}

pub async fn dead_letters_find_the_free_places_of_a_run_and_behind_it(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    let first = world.now().as_millis() * 1000;
    let letters = |number, texts: &str, places: Vec<i64>| Batch {
        name: BatchId { number, nonce: number },
        from: 0,
        to: 3,
        messages: places
            .into_iter()
            .enumerate()
            .map(|(n, at)| Frozen {
                id: id(&format!("{texts}{n}")),
                state: FrozenState::Dead { at, attempts: 1, reason: "refused".to_owned() },
                body: None,
            })
            .collect(),
    };
    let run = (0..200).filter(|n| *n != 150).map(|n| first + n).collect();
    assert_eq!(world.put_batch(&letters(1, "run-", run)).await, 199);
    // The earliest death comes last.
    let late = (0..20).rev().map(|n| first + 100 + n).collect();
    assert_eq!(world.put_batch(&letters(2, "late-", late)).await, 20);
    assert_eq!(world.put_batch(&letters(3, "same-", vec![first + 7; 30])).await, 30);
    let texts = [("run-", 199), ("late-", 20), ("same-", 30)];
    let ids: Vec<MessageId> =
        texts.iter().flat_map(|(text, count)| (0..*count).map(move |n| id(&format!("{text}{n}")))).collect();
    let taken = world.store.freeze_batch(&world.shard(3), 0, &ids, 1).await.unwrap().unwrap();
    let place = |one: &Frozen| if let FrozenState::Dead { at, .. } = one.state { at - first } else { -1 };
    let mut places: Vec<i64> = taken.messages.iter().map(place).collect();
    places.sort_unstable();
    assert_eq!(places, (0..249).collect::<Vec<i64>>());
}

pub async fn a_sooner_head_that_is_brought_is_hinted(factory: &dyn StoreFactory) {
    let world = World::moving(factory).await;
    world.put(0, "soon", world.ago(10)).await;
    let batch = world.take(0, 3, &["soon"]).await;
    let mut hints = world.store.wakeups();
    world.put_batch(&batch).await;
    let hint = async {
        loop {
            let hint = hints.recv().await.expect("the store lives");
            if hint.topic == world.record.name && hint.index == 3 {
                return hint;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(2), hint).await.expect("the owner is hinted");
    assert_eq!(
        world.store.next_due(&[world.shard(3)]).await.unwrap()[0],
        Some(world.get(3, "soon").await.unwrap().visible_at)
    );
}
