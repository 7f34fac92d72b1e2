//! A Redis Cluster loses masters and moves slots in the middle of changes.

use std::time::Duration;

use duetime_core::TopicName;
use duetime_redis::slots;
use duetime_testkit::history::FaultKind::StoreStopped;
use duetime_testkit::servers::RedisCluster;
use duetime_testkit::wait::{Because, let_pass};
use duetime_tests::crash::Draw;
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::nodes::TestCluster;
use super::troubles::until_blocked;
use super::{SETTINGS, SHARED};

const KEPT: usize = 200;
/// Masters are missed for a while, and movers wait for that.
const PATIENCE: Duration = Duration::from_secs(120);
/// Names seeds to run beside the usual one: `DUETIME_RESIZE_SEEDS=100..108`.
const SEEDS: &str = "DUETIME_RESIZE_SEEDS";
const SEED: u64 = 1;

/// What befalls the redis in the middle of a change.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// A replica takes over in good order.
    FailOver,
    Kill,
    /// The slot is moved to another master, with a pause in the middle.
    Move,
}

/// The slot of the routing records.
fn authority(redis: &RedisCluster) -> u16 {
    redis.nodes[0].cli(&["CLUSTER", "KEYSLOT", "duetime:topics"]).parse().unwrap()
}

fn slot(index: u32) -> u16 {
    slots::slot_of(&TopicName::new("orders").unwrap(), index)
}

async fn befalls(redis: &mut RedisCluster, slot: u16, trouble: Trouble) {
    let master = redis.owner(slot);
    match trouble {
        Trouble::FailOver => redis.fail_over(master).await,
        Trouble::Kill => {
            let replica = redis.replica_of(master);
            redis.nodes[master].stop_hard();
            redis.promoted(replica).await;
            redis.nodes[master].start_again().await;
            redis.settled().await;
        }
        Trouble::Move => {
            let to = redis.masters().into_iter().find(|other| *other != master).expect("three masters");
            redis.begin_move(slot, master, to);
            redis.move_keys(slot, master, to, 3);
            let_pass(Duration::from_millis(500), Because::Fault).await;
            redis.move_keys(slot, master, to, 1_000);
            redis.end_move(slot, to);
        }
    }
}

/// Source, destination and authority are failed over, killed and moved, each in the middle of some change.
async fn troubled(seed: u64) {
    let mut draw = Draw::new(seed, 0);
    let mut redis = RedisCluster::start(3, 1).await;
    let settings = format!("[store]\ndurability = \"replicas:1\"\n{SETTINGS}messages_per_second = 150\n");
    let cluster = TestCluster::start(&redis.url(), SHARED, 2, "8", &settings, KEPT, 0).await;
    let mut troubles = [Trouble::FailOver, Trouble::Kill, Trouble::Move];
    let (mut from, mut counts) = (8, vec![16, 6, 9]);
    for (n, which) in ["source", "destination", "authority"].into_iter().enumerate() {
        let shards = counts.remove(usize::try_from(draw.next()).unwrap_or(0) % counts.len());
        let pick = n + usize::try_from(draw.next() % u64::try_from(troubles.len() - n).unwrap()).unwrap();
        troubles.swap(n, pick);
        let slot = match which {
            "source" => slot(u32::try_from(draw.next() % u64::from(from)).unwrap()),
            "destination" => slot(u32::try_from(draw.next() % u64::from(shards)).unwrap()),
            _ => authority(&redis),
        };
        let after = Duration::from_millis(draw.next() % 400);
        println!("seed {seed}: {from} to {shards}, {which}: {:?} after {after:?}", troubles[n]);
        cluster.load.insist(shards).await;
        let_pass(after, Because::Rate).await;
        cluster.load.history.fault_begins(StoreStopped);
        befalls(&mut redis, slot, troubles[n]).await;
        cluster.load.history.fault_ends(StoreStopped);
        cluster.load.until_resized(shards, PATIENCE).await;
        from = shards;
    }
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn masters_fail_over_die_and_hand_slots_over_in_the_middle_of_changes() {
    let given = std::env::var(SEEDS).ok();
    let range = given.as_deref().and_then(|text| {
        let (first, end) = text.split_once("..")?;
        Some(first.parse::<u64>().ok()?..end.parse::<u64>().ok()?)
    });
    for seed in range.unwrap_or(SEED..SEED + 1) {
        troubled(seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_replicas_a_change_waits_for_a_master_that_is_away_and_says_so() {
    let mut redis = RedisCluster::start(3, 0).await;
    let settings = format!("[store]\nretry_for = \"2s\"\n{SETTINGS}messages_per_second = 100\n");
    let cluster = TestCluster::start(&redis.url(), SHARED, 2, "6", &settings, 60, 0).await;
    // The destination of all that moves, in the time for which moved batches are kept at their source.
    cluster.load.insist(7).await;
    cluster.load.history.fault_begins(StoreStopped);
    let away = redis.owner(slot(6));
    redis.nodes[away].stop_hard();
    until_blocked(&cluster.load, "the resize from 6 to 7 waits for it and goes on by itself").await;
    redis.nodes[away].start_again().await;
    redis.settled().await;
    cluster.load.until_resized(7, PATIENCE).await;
    // Who decides.
    let away = redis.owner(authority(&redis));
    redis.nodes[away].stop_hard();
    let refused = cluster.load.api.told(Method::PUT, "/shards", json!({ "shards": 9 })).await;
    let (status, told) = refused.expect("answered");
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{told}");
    assert!(told.to_string().contains("repeat the request when it is back"), "{told}");
    redis.nodes[away].start_again().await;
    redis.settled().await;
    cluster.load.history.fault_ends(StoreStopped);
    cluster.load.insist(8).await;
    cluster.load.until_resized(8, PATIENCE).await;
    cluster.finish().await;
}
