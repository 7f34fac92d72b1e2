//! What a Kafka broker takes from a client that does nothing but produce and wait for its answers.

use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream;
use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};
use tokio::time::Instant;

use super::{CALLS, PAYLOAD};

/// Messages in one call of Duetime's sink for Kafka.
const BATCH: usize = 256;
/// As the sink has it.
const LINGER_MS: &str = "2";

/// Records to `topic`, acknowledged by all replicas: an idempotent producer, as many on their way as Duetime has.
pub async fn produce(brokers: &str, topic: &str, count: u64) -> Duration {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("enable.idempotence", "true").set("linger.ms", LINGER_MS);
    let producer: FutureProducer = config.create().expect("the client starts");
    let payload = vec![b'x'; PAYLOAD];
    // It takes half a second until a producer has its id, which is not what is measured.
    let first = producer.send_result(FutureRecord::<str, [u8]>::to(topic).payload(&payload));
    first.map_err(|(error, _)| error).expect("there is room").await.expect("an answer").expect("acknowledged");
    let began = Instant::now();
    let one = |call: u64| {
        let batch = (call * BATCH as u64..count.min((call + 1) * BATCH as u64)).map(|n| {
            let record = FutureRecord::<str, [u8]>::to(topic).payload(&payload);
            let key = format!("{n:036}");
            producer.send_result(record.key(&key)).map_err(|(error, _)| error).expect("there is room")
        });
        let answers: Vec<_> = batch.collect();
        async move {
            for answer in join_all(answers).await {
                answer.expect("an answer").expect("acknowledged");
            }
        }
    };
    let calls = stream::iter(0..count.div_ceil(BATCH as u64)).map(one);
    calls.buffer_unordered(CALLS).for_each(|()| async {}).await;
    began.elapsed()
}
