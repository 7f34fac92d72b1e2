//! What arrived at a cluster.

use std::time::Duration;

use duetime_testkit::conformance::sink::Received;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers as _};
use rdkafka::{ClientConfig, Message as _, Offset, TopicPartitionList};
use tokio::time::Instant;

use super::PARTITIONS;

/// Longest wait for the ends of all partitions.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest wait for the next message or end.
const POLL: Duration = Duration::from_millis(100);

/// How far the topic of some cluster was read.
pub(super) struct Reader {
    brokers: String,
    topic: String,
    read: [i64; PARTITIONS],
    /// Of each message read: its key, and where it was.
    pub(super) keys: Vec<(String, i32)>,
}

impl Reader {
    pub(super) fn of(brokers: &str, topic: &str) -> Self {
        Self { brokers: brokers.to_owned(), topic: topic.to_owned(), read: [0; PARTITIONS], keys: Vec::new() }
    }

    fn connect(&self) -> BaseConsumer {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers).set("group.id", "test").set("enable.auto.commit", "false");
        config.set("enable.partition.eof", "true").set("fetch.wait.max.ms", "50");
        let reader: BaseConsumer = config.create().unwrap();
        let mut from = TopicPartitionList::new();
        for (partition, next) in self.read.iter().enumerate() {
            from.add_partition_offset(&self.topic, partition as i32, Offset::Offset(*next)).unwrap();
        }
        reader.assign(&from).unwrap();
        reader
    }

    /// What arrived since the last call: all that was acknowledged before this one.
    pub(super) fn fetch(&mut self) -> Vec<Received> {
        tokio::task::block_in_place(|| self.poll_all())
    }

    fn poll_all(&mut self) -> Vec<Received> {
        let reader = self.connect();
        let (mut received, mut ended) = (Vec::new(), [false; PARTITIONS]);
        let patience = Instant::now() + PATIENCE;
        while ended != [true; PARTITIONS] {
            duetime_testkit::in_time!(Instant::now() < patience, "the topic {} has no end: {ended:?}", self.topic);
            match reader.poll(POLL) {
                Some(Ok(got)) => {
                    let key = String::from_utf8(got.key().unwrap_or_default().to_vec()).unwrap();
                    self.keys.push((key, got.partition()));
                    self.read[got.partition() as usize] = got.offset() + 1;
                    received.push(read(&got));
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => ended[partition as usize] = true,
                Some(Err(_)) | None => {}
            }
        }
        received
    }
}

fn read(got: &BorrowedMessage<'_>) -> Received {
    let headers = got.headers().unwrap();
    let text = |name: &str| {
        let of_name = headers.iter().find(|header| header.key == name);
        of_name.map_or_else(String::new, |one| String::from_utf8(one.value.unwrap_or_default().to_vec()).unwrap())
    };
    Received {
        topic: text("duetime-topic"),
        id: percent_encoding::percent_decode_str(&text("duetime-id")).decode_utf8().unwrap().into_owned(),
        delivery_id: text("duetime-delivery-id"),
        attempt: text("duetime-attempt"),
        due_at: text("duetime-due-at"),
        payload: got.payload().unwrap_or_default().to_vec(),
    }
}
