//! Partitions that take nothing, at the head of every shard, while others are well.

use std::time::Duration;

use serde_json::json;

use super::Cluster;
use crate::sink_poison::{Found, bad_ones_ahead};

/// A broker is silent for longer than any of these tests.
const SILENCE: Duration = Duration::from_secs(300);

/// A cluster of so many brokers with the topics `good` and `bad`, led by the first and the last.
fn cluster(brokers: i32) -> Cluster {
    let cluster = Cluster::of(brokers);
    for (topic, leader) in [("good", 1), ("bad", brokers)] {
        cluster.order(move |cluster| {
            cluster.create_topic(topic, 1, 1)?;
            cluster.partition_leader(topic, 0, Some(leader))
        });
    }
    cluster
}

async fn to_kafka(cluster: &Cluster) -> Found {
    let sink = format!("type = \"kafka\"\nbrokers = {:?}\ntimeout = \"1s\"\n", cluster.brokers);
    bad_ones_ahead(&sink, json!({"topic": "{header.to}"})).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_of_kafka_without_a_leader_delays_no_other() {
    let cluster = cluster(1);
    cluster.order(|cluster| cluster.partition_leader("bad", 0, None));
    to_kafka(&cluster).await.as_often_as_silence_is_excused();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_broker_of_kafka_delays_the_partitions_of_no_other() {
    let cluster = cluster(2);
    cluster.order(|cluster| cluster.broker_round_trip_time(2, SILENCE));
    // Whether the brokers answer may be asked of the silent one: then nothing is known, and nobody pays.
    to_kafka(&cluster).await.at_most(6);
}
