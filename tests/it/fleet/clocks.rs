//! A clock jumps by an hour, a node's or Redis's: nothing is early, whoever is alone with it says so, and
//! afterwards everything is delivered.

use duetime_testkit::at_home::{MessagesAtHome as _, SettledAtHome as _};
use std::time::Duration;

use duetime_core::store::{ClaimRequest, Enqueue, Settle, Settlement, StoreError};
use duetime_core::{ClaimStore as _, Clock, Due, LeaseClass, Shard, TopicStore as _};
use duetime_store_redis::RedisStore;
use duetime_testkit::servers::{RedisOptions, RedisServer, SkewedClock};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::{WallClock, claim_request, plain_message, topic_record};
use tokio::time::Instant;

use super::cluster::{Servers, Sharing, Spot, TestCluster, now_ms};
use super::secs;

pub const HOUR_S: i64 = 3_600;
/// For what must be seen in the end.
const SEEN_WITHIN: Duration = Duration::from_secs(30);

async fn a_nodes_clock_jumps_by(offset_s: i64, sharing: Sharing) {
    let clock = SkewedClock::new();
    let mut cluster = TestCluster::new(sharing, 2).await;
    cluster.join(clock.env()).await;
    cluster.produce();
    secs(2).await;
    clock.set(offset_s);
    // A producer's absolute times do not care, but relative ones would be by this node's word.
    let end = Instant::now() + SEEN_WITHIN;
    loop {
        let nodes = cluster.client(0).nodes().await.unwrap();
        let skewed = nodes.iter().find(|node| node.id == "n2");
        if skewed.is_some_and(|node| node.state == "unhealthy" && node.shards_owned == 0) {
            break;
        }
        duetime_testkit::in_time!(Instant::now() < end, "{nodes:?}\n{}", cluster.nodes[2].output());
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
    while !cluster.nodes[2].output().contains("clock and the store's are apart") {
        duetime_testkit::in_time!(Instant::now() < end, "{}", cluster.nodes[2].output());
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
    if sharing == Sharing::Etcd {
        cluster.shared_by(0, &[0, 1], SEEN_WITHIN).await;
    }
    secs(2).await;
    clock.set(0);
    let end = Instant::now() + SEEN_WITHIN;
    while cluster.shares(0).await.get("n2").is_none_or(|share| *share == 0) {
        duetime_testkit::in_time!(Instant::now() < end, "it takes its share again\n{}", cluster.nodes[2].output());
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
    cluster.finish_without_a_duplicate(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_an_hour_ahead_delivers_nothing_early_and_gives_its_shards_away() {
    a_nodes_clock_jumps_by(HOUR_S, Sharing::Etcd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_an_hour_behind_says_so_and_gives_its_shards_away() {
    a_nodes_clock_jumps_by(-HOUR_S, Sharing::RoundRobin).await;
}

async fn skewed_redis(clock: &SkewedClock) -> RedisServer {
    RedisServer::start_with(RedisOptions { env: clock.env(), ..RedisOptions::default() }).await
}

/// Waits until every node says of itself that it is in this state.
async fn all_are(cluster: &TestCluster, state: &str) {
    let end = Instant::now() + SEEN_WITHIN;
    for (n, node) in cluster.nodes.iter().enumerate() {
        loop {
            let told = cluster.client(n).nodes().await.unwrap();
            if told.iter().any(|node| node.id == format!("n{n}") && node.state == state) {
                break;
            }
            duetime_testkit::in_time!(Instant::now() < end, "n{n} is not {state}: {told:?}\n{}", node.output());
            let_pass(Duration::from_millis(50), Because::AskedAgain).await;
        }
    }
}

async fn rediss_clock_jumps_by(offsets_s: &[i64], sharing: Sharing) {
    let clock = SkewedClock::new();
    let mut cluster = TestCluster::empty(Servers::One(Box::new(skewed_redis(&clock).await)), sharing).await;
    for _ in 0..2 {
        cluster.join_at(Spot::default()).await;
    }
    cluster.all_share().await;
    cluster.produce();
    secs(1).await;
    for offset in offsets_s {
        clock.set(*offset);
        all_are(&cluster, "unhealthy").await;
        // What is due meanwhile waits: nobody takes it by the wrong clock, nor before its time.
        secs(2).await;
        clock.set(0);
        all_are(&cluster, "serving").await;
        cluster.arrived(now_ms(), SEEN_WITHIN).await;
    }
    for node in &cluster.nodes {
        assert!(node.output().contains("clock and the store's are apart"), "{}", node.output());
    }
    cluster.finish_without_a_duplicate(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_rediss_clock_is_an_hour_ahead_nothing_is_taken_and_then_everything_comes() {
    rediss_clock_jumps_by(&[HOUR_S], Sharing::Etcd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rediss_clock_may_jump_back_and_forward_and_nothing_is_early_or_lost() {
    rediss_clock_jumps_by(&[-HOUR_S, HOUR_S], Sharing::RoundRobin).await;
}

fn message(name: &str) -> Enqueue {
    Enqueue { payload: "x".into(), ..plain_message(name, Due::At(WallClock.now())) }
}

fn ask() -> ClaimRequest {
    ClaimRequest { visibility: Duration::from_secs(20), ..claim_request(10) }
}

async fn one_shard(store: &RedisStore) -> Shard {
    let topic = store.put_topic(&topic_record("orders", 1, WallClock.now()), None).await.unwrap();
    topic.routing.shard(&topic.name, 0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_refused_while_rediss_clock_is_ahead_and_comes_in_time_afterwards() {
    let clock = SkewedClock::new();
    let server = skewed_redis(&clock).await;
    let store = crate::store_load::connect(server.url()).await;
    let shard = one_shard(&store).await;
    store.enqueue(&shard, WallClock.now(), &[message("retried"), message("extended")]).await.unwrap();
    let claimed = async || store.claim(&shard, WallClock.now(), &ask()).await;
    let end = Instant::now() + SEEN_WITHIN;
    let mut held = Vec::new();
    while held.len() < 2 {
        duetime_testkit::in_time!(Instant::now() < end);
        held.extend(claimed().await.unwrap().messages);
    }
    clock.set(HOUR_S);
    while !matches!(claimed().await, Err(StoreError::ClockSkew(_))) {
        duetime_testkit::in_time!(Instant::now() < end, "the jump is not seen");
    }
    let how = |name: &str| match name {
        "retried" => Settlement::Nack(Duration::from_millis(100)),
        _ => Settlement::Extend(Duration::from_secs(1), LeaseClass::TOPIC),
    };
    let settled = held.iter().map(|one| Settle { id: one.id.clone(), score: one.score, action: how(one.id.as_str()) });
    let settled = settled.collect::<Vec<_>>();
    let refused = store.settle(&shard, WallClock.now(), &settled).await;
    assert!(matches!(refused, Err(StoreError::ClockSkew(_))), "{refused:?}");
    let delayed = [Enqueue { due: Due::In(Duration::from_secs(60)), ..message("delayed") }];
    let refused = store.enqueue(&shard, WallClock.now(), &delayed).await;
    assert!(matches!(refused, Err(StoreError::ClockSkew(_))), "{refused:?}");
    let absolute = [Enqueue { due: Due::At(WallClock.now().plus(Duration::from_secs(600))), ..message("absolute") }];
    store.enqueue(&shard, WallClock.now(), &absolute).await.unwrap();
    clock.set(0);
    while store.settle(&shard, WallClock.now(), &settled).await.is_err() {
        duetime_testkit::in_time!(Instant::now() < end, "the clock is not seen to be right");
        let_pass(Duration::from_millis(20), Because::AskedAgain).await;
    }
    let mut back = Vec::new();
    while back.len() < 2 {
        duetime_testkit::in_time!(Instant::now() < end, "only {back:?} came again");
        back.extend(claimed().await.map(|claim| claim.messages).unwrap_or_default().into_iter().map(|one| one.id));
        let_pass(Duration::from_millis(20), Because::AskedAgain).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_clocks_an_hour_ahead_and_put_right_leave_nothing_early_and_nothing_put_off() {
    let clock = SkewedClock::new();
    let server = skewed_redis(&clock).await;
    let store = crate::store_load::connect(server.url()).await;
    let shard = one_shard(&store).await;
    let hour = Duration::from_secs(HOUR_S.unsigned_abs());
    let (right, ahead) = (|| WallClock.now(), || WallClock.now().plus(hour));
    let due_in = |name: &str, wait: Duration| Enqueue { due: Due::At(right().plus(wait)), ..message(name) };
    let far = [due_in("in a minute", hour / 60), due_in("in ten minutes", hour / 6)];
    store.enqueue(&shard, right(), &far).await.unwrap();
    clock.set(HOUR_S);
    let end = Instant::now() + SEEN_WITHIN;
    while !matches!(store.claim(&shard, right(), &ask()).await, Err(StoreError::ClockSkew(_))) {
        duetime_testkit::in_time!(Instant::now() < end, "the jump is not seen");
    }
    let one = ClaimRequest { limit: 1, ..ask() };
    let claimed = store.claim(&shard, ahead(), &one).await.unwrap();
    clock.set(0);
    while store.claim(&shard, right(), &ask()).await.is_err() {
        duetime_testkit::in_time!(Instant::now() < end, "the clock is not seen to be right");
    }
    assert_eq!(claimed.messages.len(), 1);
    let early = store.claim(&shard, right(), &ask()).await.unwrap();
    assert!(early.messages.is_empty(), "{early:?}");
    let soon = Enqueue { due: Due::In(Duration::from_millis(50)), ..message("soon") };
    let due_at = store.enqueue(&shard, right(), &[soon]).await.unwrap()[0].due_at;
    assert!(due_at <= right().plus(Duration::from_secs(1)), "{due_at} is put off");
    let_pass(Duration::from_millis(100), Because::Time).await;
    let claimed = store.claim(&shard, right(), &ask()).await.unwrap();
    assert_eq!(claimed.messages.len(), 1, "{claimed:?}");
    assert!(claimed.messages[0].score.visible_at() <= right().plus(Duration::from_secs(25)), "{claimed:?}");
}
