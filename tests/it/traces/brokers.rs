//! The span of a delivery goes on in what a real broker hands to its readers.

use std::collections::BTreeMap;

use async_nats::jetstream::{self, stream};
use duetime_testkit::Webhook;
use duetime_testkit::servers::{NatsServer, RabbitMqServer, RedisServer};
use futures::StreamExt as _;
use lapin::options::{BasicGetOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Connection, ConnectionProperties};
use serde_json::{Value, json};

use super::{PRODUCER, World, creation, links, own};
use crate::redis_faults::server::connection;

/// Names and values of headers or fields.
type Names = BTreeMap<String, String>;

/// Hands one message to the sink `s` of the file's `lines`: what `read` finds at the broker has the span that the
/// collector got, under these names.
async fn goes_on(lines: &str, sink: Value, [span_name, creator_name]: [&str; 2], read: impl AsyncFnOnce() -> Names) {
    let world = World::before(Webhook::start(), &[], lines).await;
    world.put("spread", json!({"shards": 1, "sink": sink})).await;
    world.post("spread/messages", json!({"id": "m-1", "delay": 0, "headers": {"tracestate": "vendor=1"}})).await;
    let span = world.spans_of(1).await.remove(0);
    assert_eq!(links(&span), [creation()]);
    // A span is recorded when the broker has taken the message.
    let names = read().await;
    assert_eq!(names.get(span_name), Some(&format!("00-{}-01", own(&span))), "{names:?}");
    assert_eq!(names.get(creator_name).map(String::as_str), Some(PRODUCER), "{names:?}");
    let is_state = |name: &String| name.ends_with("tracestate");
    assert!(!names.keys().any(is_state), "the producer's state is not that of another trace: {names:?}");
}

#[tokio::test]
async fn a_message_of_rabbitmq_carries_the_span_of_its_hand_over() {
    let broker = RabbitMqServer::start_with("default_user = duetime\ndefault_pass = duetime\n").await;
    let url = broker.url("duetime", "duetime");
    let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.queue_declare("due".into(), QueueDeclareOptions::durable(), FieldTable::default()).await.unwrap();
    let read = async || {
        let got = channel.basic_get("due".into(), BasicGetOptions { no_ack: true }).await.unwrap().expect("a message");
        let headers = got.properties.headers().clone().expect("headers");
        let text = |value: &AMQPValue| match value {
            AMQPValue::LongString(text) => text.to_string(),
            other => panic!("{other:?}"),
        };
        headers.inner().iter().map(|(name, value)| (name.to_string(), text(value))).collect()
    };
    let lines = format!("[sinks.s]\ntype = \"rabbitmq\"\nurl = {url:?}");
    let sink = json!({"name": "s", "exchange": "", "routing_key": "due"});
    goes_on(&lines, sink, ["traceparent", "duetime-created-by"], read).await;
}

#[tokio::test]
async fn a_message_of_nats_carries_the_span_of_its_hand_over() {
    let server = NatsServer::start_with("").await;
    let jetstream = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let config = stream::Config { name: "DUE".to_owned(), subjects: vec!["due".to_owned()], ..Default::default() };
    let stream = jetstream.create_stream(config).await.unwrap();
    let read = async || {
        let consumer = stream.create_consumer(jetstream::consumer::pull::Config::default()).await.unwrap();
        let got = consumer.fetch().max_messages(1).messages().await.unwrap().next().await.expect("a message").unwrap();
        let headers = got.headers.as_ref().expect("headers");
        headers.iter().map(|(name, values)| (name.to_string(), values[0].to_string())).collect()
    };
    let lines = format!("[sinks.s]\ntype = \"nats\"\nurl = {:?}", server.url());
    goes_on(&lines, json!({"name": "s", "subject": "due"}), ["traceparent", "duetime-created-by"], read).await;
}

#[tokio::test]
async fn an_entry_of_a_stream_of_redis_carries_the_span_of_its_hand_over() {
    let server = RedisServer::start().await;
    let read = async || {
        let mut connection = connection(&server).await.unwrap();
        let entries: redis::streams::StreamRangeReply =
            redis::cmd("XRANGE").arg("due").arg("-").arg("+").query_async(&mut connection).await.unwrap();
        let fields = entries.ids.into_iter().next().expect("an entry").map;
        fields.into_iter().map(|(name, value)| (name, redis::from_redis_value(value).unwrap())).collect()
    };
    let lines = format!("[sinks.s]\ntype = \"redis-stream\"\nurl = {:?}", server.url());
    goes_on(&lines, json!({"name": "s", "stream": "due"}), ["header.traceparent", "created-by"], read).await;
}

#[cfg(feature = "kafka")]
#[tokio::test]
async fn a_message_of_kafka_carries_the_span_of_its_hand_over() {
    use duetime_testkit::servers::TansuServer;
    use rdkafka::Message as _;
    use rdkafka::consumer::{Consumer as _, StreamConsumer};
    use rdkafka::message::Headers as _;

    let broker = TansuServer::start(&[("due", 1)]).await;
    let read = async || {
        let mut config = rdkafka::ClientConfig::new();
        config.set("bootstrap.servers", broker.address()).set("group.id", "test").set("enable.auto.commit", "false");
        let consumer: StreamConsumer = config.create().unwrap();
        let mut from = rdkafka::TopicPartitionList::new();
        from.add_partition_offset("due", 0, rdkafka::Offset::Beginning).unwrap();
        consumer.assign(&from).unwrap();
        let got = consumer.recv().await.unwrap();
        let text = |value: Option<&[u8]>| String::from_utf8(value.unwrap_or_default().to_vec()).unwrap();
        got.headers().expect("headers").iter().map(|one| (one.key.to_owned(), text(one.value))).collect()
    };
    let lines = format!("[sinks.s]\ntype = \"kafka\"\nbrokers = {:?}", broker.address());
    goes_on(&lines, json!({"name": "s", "topic": "due"}), ["traceparent", "duetime-created-by"], read).await;
}
