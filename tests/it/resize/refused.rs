//! A request for a shard count that cannot be had, or not be written down, is refused and forgotten.

use std::time::Duration;

use duetime_client::Client;
use duetime_core::ShardCount;
use duetime_testkit::servers::{Node, RedisOptions, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use serde_json::json;
use tokio::time::Instant;

use super::PROGRAM;

const TOPIC: &str = "orders";
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_cannot_be_written_down_is_refused_and_later_taken() {
    let kept = RedisOptions { append_only: true, ..RedisOptions::default() };
    let mut redis = RedisServer::start_with(kept).await;
    let node = Node::start(PROGRAM, &redis.url(), "[topics.orders]\nshards = 8\n").await;
    let client = Client::new(&node.url(), None).unwrap();
    for wrong in [json!(0), json!(4097), json!("many")] {
        let refused = client.set_shards(TOPIC, &wrong).await.unwrap_err();
        let problem = refused.problem().expect("the node refuses");
        assert_eq!(problem.status, 400, "{problem}");
        assert!(problem.detail.contains("shards must be 1 to 4096"), "it names what is possible: {problem}");
    }
    let refused = client.set_shards("nobody", &json!(9)).await.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, "unknown_topic");
    redis.stop_hard();
    let refused = client.set_shards(TOPIC, &json!(12)).await.unwrap_err();
    let problem = refused.problem().expect("the node refuses");
    assert_eq!((problem.status, problem.code.as_str()), (503, "authority_unavailable"), "{problem}");
    redis.start_again().await;
    let end = Instant::now() + PATIENCE;
    let seen = loop {
        match client.shards(TOPIC).await {
            Ok(seen) => break seen,
            Err(error) => {
                duetime_testkit::in_time!(Instant::now() < end, "the node does not find its store again: {error}")
            }
        }
        let_pass(LOOK_EVERY, Because::AskedAgain).await;
    };
    assert_eq!(seen.configured, ShardCount::Fixed(8), "what was refused was not kept");
    client.set_shards(TOPIC, &json!(12)).await.unwrap();
    loop {
        let seen = client.shards(TOPIC).await.unwrap();
        if seen.shard_count == 12 && seen.resize.is_none() {
            break;
        }
        duetime_testkit::in_time!(Instant::now() < end, "not resized: {:?}", seen.resize);
        let_pass(LOOK_EVERY, Because::AskedAgain).await;
    }
}
