//! Looks at shards from outside: survey, heads, forecast, hints; and that the counts add up.

use crate::at_home::{AllCounted as _, MessagesAtHome as _};
use std::time::Duration;

use duetime_core::store::{Settlement, ShardCounts};
use duetime_core::{Due, Timestamp};

use super::world::{World, message};
use crate::conformance::StoreFactory;

pub async fn a_store_that_serves_says_it_is_ready(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.store.ready().await.unwrap();
}

pub async fn an_empty_shard_is_surveyed_as_empty(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let surveys = world.store.all_counts(&world.shards(), world.now()).await.unwrap();
    assert_eq!(surveys, vec![ShardCounts::default(); world.shards().len()]);
    assert_eq!(world.store.next_due(&world.shards()).await.unwrap(), vec![None; world.shards().len()]);
}

pub async fn a_survey_counts_each_message_once(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    world.put_dead("dead").await;
    for text in ["held 1", "held 2"] {
        world.put(text, world.ago(1000)).await;
        world.claim_one().await;
    }
    let head = world.moment(-700);
    world.put("due", Due::At(head)).await;
    world.put("later", world.ago(-60_000)).await;
    world.put("latest", world.ago(-90_000)).await;
    let survey = world.survey().await;
    assert_eq!(survey, ShardCounts { scheduled: 3, due: 1, in_flight: 2, dead: 1, moving: 0, head: Some(head) });
}

pub async fn shards_are_surveyed_in_the_order_asked(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let due_at = world.moment(60_000);
    let given = [message("a", Due::At(due_at)), message("b", Due::At(due_at.plus(Duration::from_secs(1))))];
    world.store.enqueue(&world.shard_at(2), world.now(), &given).await.unwrap();
    let asked = [world.shard_at(2), world.shard_at(0), world.shard_at(2)];
    let counts: Vec<u64> =
        world.store.all_counts(&asked, world.now()).await.unwrap().iter().map(|one| one.scheduled).collect();
    assert_eq!(counts, [2, 0, 2]);
    assert_eq!(world.store.next_due(&asked).await.unwrap(), [Some(due_at), None, Some(due_at)]);
    assert_eq!(world.store.next_due(&[]).await.unwrap(), []);
}

pub async fn the_bytes_of_bodies_follow_what_is_there(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let bytes = async || world.store.bytes(&world.shards()).await.unwrap();
    assert_eq!(bytes().await, 0);
    let sized = |n: usize| {
        let mut one = message(&format!("message {n:02}"), world.ago(1000));
        one.payload = vec![7; 1000].into();
        one
    };
    let batch: Vec<_> = (0..20).map(sized).collect();
    world.enqueue(&batch).await;
    let of_one = bytes().await / 20;
    assert!((1000..1100).contains(&of_one), "{of_one}");
    let claimed = world.claim(4).await.messages;
    assert_eq!(bytes().await, 20 * of_one, "what is claimed is there");
    world.settle(&claimed[0], Settlement::Ack).await;
    world.settle(&claimed[1], Settlement::Bury("no".to_owned())).await;
    world.cancel(batch[10].id.as_str()).await;
    assert_eq!(bytes().await, 18 * of_one, "a dead letter is there, an acked and a cancelled one is not");
}

pub async fn the_head_is_the_first_visible_time(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let head = async || world.store.next_due(&[world.shard()]).await.unwrap()[0];
    let (sooner, later) = (world.moment(-1000), world.moment(60_000));
    world.put("later", Due::At(later)).await;
    assert_eq!(head().await, Some(later));
    world.put("sooner", Due::At(sooner)).await;
    assert_eq!(head().await, Some(sooner));
    let claimed = world.claim_one().await;
    assert_eq!(head().await, Some(claimed.score.visible_at().min(later)));
    world.settle(&claimed, Settlement::Ack).await;
    assert_eq!(head().await, Some(later));
}

pub async fn a_forecast_counts_what_falls_into_each_bucket_over_all_shards(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let start = world.now().as_millis() + 100_000;
    let at = |offset: i64| Timestamp::from_millis(start + offset);
    let put = async |index: u32, text: &str, offset: i64| {
        let given = [message(text, Due::At(at(offset)))];
        world.store.enqueue(&world.shard_at(index), world.now(), &given).await.unwrap();
    };
    put(0, "before", -1).await;
    put(0, "first", 0).await;
    put(1, "end of first", 999).await;
    put(2, "second", 1000).await;
    put(2, "fourth", 3500).await;
    put(2, "behind", 4000).await;
    let edges = [0, 1000, 2000, 3000, 4000].map(at);
    let counts = world.store.whole_forecast(&world.shards(), &edges).await.unwrap();
    assert_eq!(counts, [2, 1, 0, 1]);
    let of_one = world.store.whole_forecast(&[world.shard_at(1)], &edges).await.unwrap();
    assert_eq!(of_one, [1, 0, 0, 0]);
}

pub async fn a_sooner_head_is_hinted(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let mut hints = world.store.wakeups();
    let due_at = world.moment(40);
    world.put("later", world.ago(-60_000)).await;
    world.put("soon", Due::At(due_at)).await;
    let hint = async {
        loop {
            let hint = hints.recv().await.expect("the store lives");
            if hint.topic == world.record.name && hint.visible_at.is_some_and(|at| at <= due_at) {
                return hint;
            }
        }
    };
    let hint = tokio::time::timeout(Duration::from_secs(2), hint).await.expect("the owner is hinted");
    assert_eq!((hint.index, hint.visible_at), (0, Some(due_at)));
}

pub async fn whatever_happens_the_counts_add_up(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let batch: Vec<_> = (0..40).map(|n| message(&format!("m{n:02}"), world.ago(1000 - n))).collect();
    world.enqueue(&batch).await;
    let held = world.claim(25).await.messages;
    let check = async |gone: u64| {
        let survey = world.survey().await;
        assert_eq!(survey.scheduled + survey.in_flight + survey.dead + gone, 40, "{survey:?}");
        survey
    };
    check(0).await;
    for (n, one) in held.iter().enumerate() {
        let how = match n % 5 {
            0 => Settlement::Ack,
            1 => Settlement::Nack(Duration::from_secs(5)),
            2 => Settlement::Release,
            3 => Settlement::Bury("refused".to_owned()),
            _ => continue,
        };
        world.settle(one, how).await;
    }
    let survey = check(5).await;
    assert_eq!((survey.in_flight, survey.dead, survey.scheduled), (5, 5, 25));
    for n in 0..40 {
        world.cancel(&format!("m{n:02}")).await;
    }
    assert_eq!(world.survey().await, ShardCounts::default());
}
