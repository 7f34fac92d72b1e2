//! What each broker takes from a client that does nothing but publish and wait for confirms.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{self, FuturesUnordered};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueuePurgeOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Connection, ConnectionProperties};
use tokio::time::Instant;

use super::{BATCH, CALLS, PAYLOAD, TOPIC};

/// Durable queues `names`, empty.
pub async fn queues(url: &str, names: &[&str]) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.expect("the broker answers");
    let channel = connection.create_channel().await.expect("a channel");
    for name in names {
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare((*name).into(), options, FieldTable::default()).await.expect("a queue");
        channel.queue_purge((*name).into(), QueuePurgeOptions::default()).await.expect("an empty queue");
    }
}

/// Persistent messages to a durable queue, each confirmed: eight channels, a batch on its way on each.
pub async fn rabbitmq(url: &str, count: u64) -> Duration {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.expect("the broker answers");
    let began = Instant::now();
    let one = async |share: u64| {
        let channel = connection.create_channel().await.expect("a channel");
        channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
        let options = BasicPublishOptions { mandatory: true, immediate: false };
        let mut left = share as usize;
        while left > 0 {
            let batch = left.min(BATCH);
            let mut confirms = Vec::with_capacity(batch);
            for _ in 0..batch {
                let properties =
                    BasicProperties::default().with_delivery_mode(2).with_message_id("x".repeat(32).into());
                let sent = channel.basic_publish("".into(), TOPIC.into(), options, &[b'x'; PAYLOAD], properties).await;
                confirms.push(sent.expect("published"));
            }
            for confirm in confirms {
                assert!(confirm.await.expect("confirmed").is_ack());
            }
            left -= batch;
        }
    };
    (0..CALLS as u64).map(|_| one(count / CALLS as u64)).collect::<FuturesUnordered<_>>().collect::<Vec<()>>().await;
    let took = began.elapsed();
    queues(url, &[TOPIC]).await;
    took
}

/// A JetStream stream that takes these subjects.
pub async fn stream(url: &str, subjects: &[&str]) {
    let client = async_nats::connect(url).await.expect("the server answers");
    let context = async_nats::jetstream::new(client);
    let subjects = subjects.iter().map(|subject| (*subject).to_owned()).collect();
    let config = async_nats::jetstream::stream::Config { name: "due".to_owned(), subjects, ..Default::default() };
    let stream = context.get_or_create_stream(config).await.expect("a stream");
    stream.purge().await.expect("an empty stream");
}

/// Messages to a JetStream stream, each acknowledged, as many on their way as Duetime has.
pub async fn nats(url: &str, count: u64) -> Duration {
    let client = async_nats::connect(url).await.expect("the server answers");
    let context = async_nats::jetstream::new(client);
    let payload = bytes::Bytes::from(vec![b'x'; PAYLOAD]);
    let began = Instant::now();
    let one = |_| {
        let (context, payload) = (context.clone(), payload.clone());
        async move { context.publish(TOPIC, payload).await.expect("published").await.expect("acknowledged") }
    };
    stream::iter(0..count).map(one).buffer_unordered(BATCH * CALLS).for_each(|_| async {}).await;
    let took = began.elapsed();
    stream(url, &[TOPIC, super::LATE]).await;
    took
}

/// `XADD` in pipelines, as many on their way as Duetime has.
pub async fn redis_stream(url: &str, count: u64) -> Duration {
    let client = redis::Client::open(url).expect("a good URL");
    let connection = client.get_multiplexed_async_connection().await.expect("the server answers");
    let began = Instant::now();
    let one = |_| {
        let mut connection = connection.clone();
        async move {
            let mut pipeline = redis::pipe();
            for _ in 0..BATCH {
                let add =
                    pipeline.cmd("XADD").arg(TOPIC).arg("*").arg("topic").arg(TOPIC).arg("id").arg("x".repeat(36));
                let add =
                    add.arg("delivery-id").arg("x".repeat(32)).arg("attempt").arg(1).arg("due-at").arg(began_ms());
                add.arg("payload").arg(&[b'x'; PAYLOAD][..]).ignore();
            }
            pipeline.query_async::<()>(&mut connection).await.expect("added");
        }
    };
    stream::iter(0..count / BATCH as u64).map(one).buffer_unordered(CALLS).for_each(|()| async {}).await;
    let took = began.elapsed();
    let mut connection = connection.clone();
    redis::cmd("DEL").arg(TOPIC).exec_async(&mut connection).await.expect("removed");
    took
}

/// A number as long as a due time.
fn began_ms() -> i64 {
    1_800_000_000_000
}
