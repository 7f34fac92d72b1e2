//! The consumer of the documents: it reads on while the shard count changes, on one server and on a cluster.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use duetime_client::{Client, NewMessage};
use duetime_testkit::servers::{Node, RedisCluster};
use duetime_testkit::wait::{Because, let_pass};
use tokio::process::{Child, Command};

use super::{PATIENCE, PROGRAM, TOPIC, config, server};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples/stream_consumer.py");

/// The consumer, which ends by itself when nothing came for a while.
fn consumer(node: &Node, redis: &str, more: &[&str]) -> Child {
    assert!(Path::new(EXAMPLE).exists());
    // `./test` has one with redis-py.
    let python = std::env::var("DUETIME_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut example = Command::new(python);
    example.args([EXAMPLE, "--node", &node.url(), "--redis", redis, "--topic", TOPIC, "--until-idle", "8"]).args(more);
    example.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
}

async fn enqueue(client: &Client, from: usize, to: usize) {
    let all: Vec<NewMessage> = (from..to).map(|n| NewMessage::new(format!("p{n}")).id(format!("m-{n}"))).collect();
    client.enqueue_many(TOPIC, &all).await.unwrap();
}

/// What it was handed: all of so many messages, once each.
async fn ends_with(consumer: Child, messages: usize) {
    let out = tokio::time::timeout(PATIENCE, consumer.wait_with_output()).await.unwrap().unwrap();
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    let ids: BTreeSet<&str> = said.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!((said.lines().count(), ids.len()), (messages, messages));
}

async fn resize(client: &Client, shards: u32) {
    client.set_shards(TOPIC, &shards.into()).await.unwrap();
    let resized = async {
        loop {
            let now = client.shards(TOPIC).await.unwrap();
            if now.resize.is_none() && now.shards.len() == shards as usize {
                return;
            }
            let_pass(Duration::from_millis(100), Because::AskedAgain).await;
        }
    };
    tokio::time::timeout(PATIENCE, resized).await.expect("the topic is resized");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_consumer_reads_every_message_once_while_the_shard_count_changes() {
    let redis = server().await;
    let node = Node::start(PROGRAM, &redis.url(), &config("")).await;
    let client = Client::new(&node.url(), None).unwrap();
    let consumer = consumer(&node, &redis.url(), &[]);
    enqueue(&client, 0, 300).await;
    resize(&client, 16).await;
    enqueue(&client, 300, 600).await;
    resize(&client, 3).await;
    enqueue(&client, 600, 900).await;
    ends_with(consumer, 900).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_consumer_reads_every_message_of_a_cluster_once() {
    let cluster = RedisCluster::start(3, 0).await;
    let node = Node::start(PROGRAM, &cluster.url(), &config("")).await;
    let client = Client::new(&node.url(), None).unwrap();
    let first = cluster.url().replace("redis-cluster", "redis");
    let consumer = consumer(&node, first.split(',').next().unwrap(), &["--cluster"]);
    enqueue(&client, 0, 400).await;
    ends_with(consumer, 400).await;
}
