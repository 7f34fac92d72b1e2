//! Lists by time: in pages, each message once, without bodies.

use std::time::Duration;

use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::store::Settlement;
use duetime_core::{Due, ListRange, Timestamp};

use super::world::{LONG, World, all_time, message};
use crate::conformance::StoreFactory;

/// The ids of all pages of so many.
async fn pages_of(world: &World, range: &ListRange, limit: usize) -> Vec<String> {
    let (mut range, mut seen) = (range.clone(), Vec::new());
    loop {
        let page = world.store.list(&world.shard(), &range, limit).await.unwrap();
        assert!(page.found.len() <= limit);
        assert!(!page.more || page.found.len() == limit, "a page with another behind it is full");
        seen.extend(page.found.iter().map(|one| one.id.to_string()));
        assert!(seen.len() <= 10_000, "a list does not end");
        let Some(last) = page.found.last().filter(|_| page.more) else { return seen };
        range.after = Some(last.place());
    }
}

pub async fn a_list_is_in_the_order_of_time_and_says_who_holds_what(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put("due", world.ago(1000)).await;
    let held = world.claim_one().await;
    world.put("later", Due::At(world.moment(90_000))).await;
    world.put("sooner", Due::At(world.moment(5000))).await;
    world.put("again", world.ago(500)).await;
    let claim = world.claim_one().await;
    world.settle(&claim, Settlement::Nack(Duration::from_secs(60))).await;
    let page = world.store.list(&world.shard(), &all_time(), 10).await.unwrap();
    let names: Vec<&str> = page.found.iter().map(|one| one.id.as_str()).collect();
    assert_eq!((names.as_slice(), page.more), (["sooner", "due", "again", "later"].as_slice(), false));
    let of = |name: &str| page.found.iter().find(|one| one.id.as_str() == name).unwrap().score;
    assert_eq!(of("due"), held.score);
    assert!(of("due").visible_at() <= world.now().plus(LONG + Duration::from_secs(1)));
    assert_eq!((of("again").class().is_held(), of("again").attempts()), (false, 1));
    assert_eq!((of("sooner").class().is_held(), of("sooner").attempts()), (false, 0));
}

pub async fn messages_of_one_moment_are_listed_once_each_in_pages_of_any_length(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let herd = world.moment(60_000);
    let names = ["b", "ba", "a", "é", "Z", "~", "aa", "%", "z", "ab", "B", "0"];
    let batch: Vec<_> = names.iter().map(|name| message(name, Due::At(herd))).collect();
    world.enqueue(&batch).await;
    world.put("before", Due::At(Timestamp::from_millis(herd.as_millis() - 1))).await;
    world.put("behind", Due::At(herd.plus(Duration::from_secs(1)))).await;
    for limit in [1, 2, 3, 5, 14, 100] {
        let seen = pages_of(&world, &all_time(), limit).await;
        assert_eq!((seen[0].as_str(), seen[13].as_str(), seen.len()), ("before", "behind", 14), "in pages of {limit}");
        let (mut same, mut given) = (seen[1..13].to_vec(), names.map(str::to_owned).to_vec());
        same.sort_unstable();
        given.sort_unstable();
        assert_eq!(same, given, "in pages of {limit}");
    }
}

pub async fn a_list_has_what_is_visible_in_its_range_and_no_dead_letters(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put_dead("dead").await;
    let start = world.moment(10_000);
    for (name, ms) in [("early", -1), ("first", 0), ("last", 999), ("late", 1000)] {
        world.put(name, Due::At(start.plus(Duration::from_millis(5000)))).await;
        let at = Timestamp::from_millis(start.as_millis() + ms);
        world.reschedule(name, Due::At(at)).await;
    }
    let range = ListRange { from: start, till: start.plus(Duration::from_secs(1)), after: None };
    for limit in [1, 2, 3, 100] {
        assert_eq!(pages_of(&world, &range, limit).await, ["first", "last"], "in pages of {limit}");
    }
    assert_eq!(pages_of(&world, &all_time(), 100).await.len(), 4);
}

pub async fn a_list_goes_on_behind_a_message_that_went_away(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let herd = world.moment(60_000);
    let names = ["a", "b", "c", "d", "e"];
    let batch: Vec<_> = names.iter().map(|name| message(name, Due::At(herd))).collect();
    world.enqueue(&batch).await;
    let first = world.store.list(&world.shard(), &all_time(), 3).await.unwrap();
    let mut seen: Vec<String> = first.found.iter().map(|one| one.id.to_string()).collect();
    world.cancel(first.found[2].id.as_str()).await;
    let rest = ListRange { after: Some(first.found[2].place()), ..all_time() };
    seen.extend(pages_of(&world, &rest, 1).await);
    seen.sort_unstable();
    assert_eq!(seen, names);
}

pub async fn a_page_has_no_more_than_a_batch(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let herd = world.moment(60_000);
    for part in 0..2 {
        let names = (0..200).map(|n| format!("m{part}-{n:03}"));
        let batch: Vec<_> = names.map(|name| message(&name, Due::At(herd))).collect();
        world.enqueue(&batch).await;
    }
    let page = world.store.list(&world.shard(), &all_time(), BATCH_ITEMS_MAX).await.unwrap();
    assert_eq!(page.found.len(), BATCH_ITEMS_MAX);
    assert_eq!(pages_of(&world, &all_time(), BATCH_ITEMS_MAX).await.len(), 400);
}
