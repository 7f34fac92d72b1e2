//! The consumer of the documents: it reads on while the shard count changes, on one server and on a cluster.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use duetime_client::{Client, NewMessage};
use duetime_testkit::servers::{Node, RedisCluster};
use duetime_testkit::violation::timed_out;
use duetime_testkit::wait::{Because, let_pass};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::{PATIENCE, PROGRAM, TOPIC, config, server};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples/stream_consumer.py");

/// Nothing more comes in this time, once all has come.
const QUIET: Duration = Duration::from_secs(2);

/// The consumer, which reads until it is ended.
fn consumer(node: &Node, redis: &str, more: &[&str]) -> Child {
    assert!(Path::new(EXAMPLE).exists());
    // `./test` has one with redis-py.
    let python = std::env::var("DUETIME_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut example = Command::new(python);
    example.args([EXAMPLE, "--node", &node.url(), "--redis", redis, "--topic", TOPIC]).args(more);
    example.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
}

async fn enqueue(client: &Client, from: usize, to: usize) {
    let all: Vec<NewMessage> = (from..to).map(|n| NewMessage::new(format!("p{n}")).id(format!("m-{n}"))).collect();
    client.enqueue_many(TOPIC, &all).await.unwrap();
}

/// What it is handed: all of so many messages, once each.
async fn is_handed(mut consumer: Child, messages: usize) {
    let mut lines = BufReader::new(consumer.stdout.take().unwrap()).lines();
    let mut ids = BTreeSet::new();
    let end = Instant::now() + PATIENCE;
    while ids.len() < messages {
        let line = tokio::time::timeout_at(end, lines.next_line()).await;
        let Ok(line) = line else { timed_out(format!("it was handed {} of {messages}", ids.len())) };
        let line = line.unwrap().expect("it goes on");
        let id = line.split(' ').next().unwrap().to_owned();
        assert!(ids.insert(id), "twice: {line}");
    }
    let more = tokio::time::timeout(QUIET, lines.next_line()).await;
    assert!(more.is_err(), "more than was enqueued: {more:?}");
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
    is_handed(consumer, 900).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_consumer_reads_what_shards_delivered_that_were_no_more_when_it_started() {
    let redis = server().await;
    let node = Node::start(PROGRAM, &redis.url(), &config("")).await;
    let client = Client::new(&node.url(), None).unwrap();
    resize(&client, 16).await;
    enqueue(&client, 0, 300).await;
    let delivered = async {
        while client.topic(TOPIC).await.unwrap().scheduled > 0 {
            let_pass(Duration::from_millis(50), Because::AskedAgain).await;
        }
    };
    tokio::time::timeout(PATIENCE, delivered).await.expect("all are in the streams");
    resize(&client, 3).await;
    assert_eq!(client.shards(TOPIC).await.unwrap().retired_streams.len(), 13);
    let consumer = consumer(&node, &redis.url(), &[]);
    enqueue(&client, 300, 400).await;
    is_handed(consumer, 400).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_consumer_reads_every_message_of_a_cluster_once() {
    let cluster = RedisCluster::start(3, 0).await;
    let node = Node::start(PROGRAM, &cluster.url(), &config("")).await;
    let client = Client::new(&node.url(), None).unwrap();
    let first = cluster.url().replace("redis-cluster", "redis");
    let consumer = consumer(&node, first.split(',').next().unwrap(), &["--cluster"]);
    enqueue(&client, 0, 400).await;
    is_handed(consumer, 400).await;
}
