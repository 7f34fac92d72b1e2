//! Wishes for a shard count, to several nodes at once: the last one wins, `"auto"` follows the number of
//! nodes, and what cannot be done is refused or says why it waits.

use std::time::Duration;

use duetime_client::{Client, NewMessage, Shards};
use duetime_core::{Due, ShardCount};
use duetime_testkit::servers::{Node, RedisOptions, RedisServer};
use futures::future::join_all;
use serde_json::json;
use tokio::time::Instant;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const TOPIC: &str = "orders";
/// Messages that are due in an hour, and are still there in the end.
const MESSAGES: u64 = 2_000;
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a number must stay for the test to believe that it stays.
const STAYS: Duration = Duration::from_secs(3);
/// Above it, a server that holds nothing takes nothing.
const FULL: &str = "100kb";

/// Nodes on one Redis, and a client of each.
struct House {
    redis: RedisServer,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    config: &'static str,
}

impl House {
    async fn new(nodes: usize, config: &'static str) -> Self {
        let options = RedisOptions { append_only: true, ..RedisOptions::default() };
        let redis = RedisServer::start_with(options).await;
        let mut house = Self { redis, nodes: Vec::new(), clients: Vec::new(), config };
        for _ in 0..nodes {
            house.join().await;
        }
        let far = Due::In(Duration::from_secs(3600));
        let ids: Vec<u64> = (0..MESSAGES).collect();
        for part in ids.chunks(500) {
            let batch: Vec<_> = part.iter().map(|n| NewMessage::new("x").id(format!("m{n}")).due(far)).collect();
            house.clients[0].enqueue_many(TOPIC, &batch).await.unwrap();
        }
        house
    }

    async fn join(&mut self) {
        let config =
            format!("[node]\nid = \"n{}\"\n[ownership]\nmode = \"round-robin\"\n{}", self.nodes.len(), self.config);
        let node = Node::start(PROGRAM, &self.redis.url(), &config).await;
        self.clients.push(Client::new(&node.url(), None).unwrap());
        self.nodes.push(node);
    }

    async fn shards(&self) -> Shards {
        self.clients[0].shards(TOPIC).await.unwrap()
    }

    /// Waits until the shards are as `good` says.
    async fn until(&self, what: &str, good: impl Fn(&Shards) -> bool) -> Shards {
        let end = Instant::now() + PATIENCE;
        loop {
            let seen = self.shards().await;
            if good(&seen) {
                return seen;
            }
            assert!(Instant::now() < end, "never {what}: {} shards, {:?}", seen.shard_count, seen.resize);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until there are that many and nothing moves.
    async fn until_resized(&self, shards: u32) {
        self.until(&format!("{shards} shards"), |seen| seen.shard_count == shards && seen.resize.is_none()).await;
    }

    /// Every message is there once.
    async fn check(&self) {
        let topic = self.clients[0].topic(TOPIC).await.unwrap();
        assert_eq!((topic.scheduled, topic.in_flight, topic.dead), (MESSAGES, 0, 0));
        for n in (0..MESSAGES).step_by(37) {
            assert_eq!(self.clients[0].message(TOPIC, &format!("m{n}")).await.unwrap().state, "scheduled");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_wishes_at_once_end_at_one_of_them_and_then_the_last_one_wins() {
    let house = House::new(3, "[resize]\nleave_due_within = \"0s\"\n[topics.orders]\nshards = 8\n").await;
    let asked: Vec<u32> = (11..21).collect();
    let wishes = asked.iter().map(|shards| {
        let client = &house.clients[*shards as usize % house.clients.len()];
        async move { client.set_shards(TOPIC, &json!(shards)).await }
    });
    for answer in join_all(wishes).await {
        answer.expect("a wish is taken whatever others wish for");
    }
    // The configuration is the last that was written; the count follows it.
    let settled = |seen: &Shards| seen.resize.is_none() && seen.configured == ShardCount::Fixed(seen.shard_count);
    let seen = house.until("settled", settled).await;
    assert!(asked.contains(&seen.shard_count), "{} was not asked for", seen.shard_count);
    tokio::time::sleep(STAYS).await;
    assert_eq!(house.shards().await.epoch, seen.epoch, "and it stays");
    house.check().await;
    // One after the other, faster than any is done.
    for (n, shards) in [40, 3, 24, 9].into_iter().enumerate() {
        let told = house.clients[n % 3].set_shards(TOPIC, &json!(shards)).await.unwrap();
        assert!(told.resize.is_some() || told.shard_count == shards, "it says what runs: {told:?}");
    }
    house.until_resized(9).await;
    house.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_follows_the_nodes_that_come_and_go_and_not_the_one_that_restarts() {
    let config = "[resize]\nauto_min = 4\nauto_max = 16\nauto_factor = 4\nauto_grow_after = \"500ms\"\n\
        auto_shrink_after = \"8s\"\n[topics.orders]\nshards = \"auto\"\n";
    let mut house = House::new(1, config).await;
    house.until_resized(4).await;
    house.join().await;
    house.until_resized(8).await;
    house.join().await;
    house.until_resized(16).await;
    // 5 × 4 is above the maximum, and so is no change.
    house.join().await;
    house.join().await;
    let epoch = house.shards().await.epoch;
    tokio::time::sleep(STAYS).await;
    // A restart takes less than it takes to shrink.
    assert!(house.nodes[4].sigterm(PATIENCE).await.success());
    house.nodes[4].start_again().await;
    tokio::time::sleep(STAYS).await;
    assert_eq!(house.shards().await.epoch, epoch, "neither the maximum nor a restart moves anything");
    for node in &mut house.nodes[1..] {
        node.kill();
    }
    house.until_resized(4).await;
    house.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_whose_destination_is_full_says_so_and_goes_on_when_there_is_room() {
    let config = "[resize]\nmessages_per_second = 300\n[topics.orders]\nshards = 8\n";
    let house = House::new(1, config).await;
    house.clients[0].set_shards(TOPIC, &json!(16)).await.unwrap();
    house.until("begun", |seen| seen.resize.as_ref().is_some_and(|resize| resize.moved > 0)).await;
    house.redis.cli(&["CONFIG", "SET", "maxmemory", FULL]);
    let blocked = |seen: &Shards| seen.resize.as_ref().and_then(|resize| resize.blocked.clone());
    let seen = house.until("blocked", |seen| blocked(seen).is_some()).await;
    let why = blocked(&seen).unwrap();
    assert!(why.contains("full"), "{why}");
    house.redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    house.until_resized(16).await;
    house.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wish_that_cannot_be_written_down_is_refused_and_later_taken() {
    let mut house = House::new(1, "[topics.orders]\nshards = 8\n").await;
    for wrong in [json!(0), json!(4097), json!("many")] {
        let refused = house.clients[0].set_shards(TOPIC, &wrong).await.unwrap_err();
        let problem = refused.problem().expect("the node refuses").clone();
        assert_eq!(problem.status, 400, "{problem}");
        assert!(problem.detail.contains("shards must be 1 to 4096"), "it names what is possible: {problem}");
    }
    let refused = house.clients[0].set_shards("nobody", &json!(9)).await.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, "unknown_topic");
    house.redis.stop_hard();
    let refused = house.clients[0].set_shards(TOPIC, &json!(12)).await.unwrap_err();
    let problem = refused.problem().expect("the node refuses").clone();
    assert_eq!((problem.status, problem.code.as_str()), (503, "authority_unavailable"), "{problem}");
    house.redis.start_again().await;
    // What was refused was not kept.
    let end = Instant::now() + PATIENCE;
    while house.clients[0].shards(TOPIC).await.is_err() {
        assert!(Instant::now() < end, "the node does not find its store again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(house.shards().await.configured, ShardCount::Fixed(8));
    house.clients[0].set_shards(TOPIC, &json!(12)).await.unwrap();
    house.until_resized(12).await;
}
