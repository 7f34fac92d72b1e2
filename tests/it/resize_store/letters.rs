//! Dead letters that died together arrive in a shard that is full of others from the same moment.

use bytes::Bytes;
use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::resize_store::{ApplyOutcome, Batch, BatchId, Frozen, FrozenState};
use duetime_testkit::servers::RedisServer;

use super::connect;
use super::moving::{MovingTopic, id};

/// Letters in the destination, one place behind the other.
const THERE: i64 = 20_000;
const FIRST: i64 = 1_763_683_200_000_000;
/// Of a batch as movers make them.
const BROUGHT: usize = 64;

fn batch(number: u64, text: &str, places: impl Iterator<Item = i64>) -> Batch {
    let letter = |at: i64| FrozenState::Dead { at, attempts: 3, reason: "used up its 3 attempts".to_owned() };
    let frozen =
        |(n, at)| Frozen { id: id(&format!("{text}-{number}-{n}")), state: letter(at), body: Some(Bytes::new()) };
    let messages = places.enumerate().map(frozen).collect();
    Batch { name: BatchId { number, nonce: number }, from: 0, to: 4, messages }
}

/// How many ZCOUNT the server has run since its statistics were reset.
fn counted(server: &RedisServer) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_zcount:calls="));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn a_batch_of_dead_letters_finds_its_places_in_few_looks_whatever_is_there() {
    let server = RedisServer::start().await;
    let moving = MovingTopic::begin(connect(&server).await).await;
    let size = i64::try_from(BATCH_ITEMS_MAX).unwrap();
    let mut number = 0;
    for from in (0..THERE).step_by(BATCH_ITEMS_MAX) {
        number += 1;
        let there = batch(number, "there", (from..(from + size).min(THERE)).map(|n| FIRST + n));
        assert!(matches!(moving.put(&there).await.unwrap(), ApplyOutcome::Done { .. }));
    }
    let spread = (0..).map(|n: i64| FIRST + n * 7_919 % THERE);
    let together = std::iter::repeat(FIRST);
    let places: [Box<dyn Iterator<Item = i64>>; 2] = [Box::new(spread), Box::new(together)];
    for places in places {
        number += 1;
        server.cli(&["CONFIG", "RESETSTAT"]);
        let brought = batch(number, "brought", places.take(BROUGHT));
        let done = moving.put(&brought).await.unwrap();
        assert!(matches!(done, ApplyOutcome::Done { fresh, .. } if fresh == BROUGHT as u64), "{done:?}");
        let looks = counted(&server);
        assert!(looks < 3 * BROUGHT as u64, "{looks} looks for {BROUGHT} letters among {THERE}");
    }
    let all = moving.store.inspect(&moving.topic, 4..5).await.unwrap()[0].as_ref().unwrap().held;
    assert_eq!(all, THERE as u64 + 2 * BROUGHT as u64);
}
