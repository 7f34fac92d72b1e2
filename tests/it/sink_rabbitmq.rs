//! A topic whose sink is a RabbitMQ broker, on a real broker that is stopped, stalled and alarmed.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::{Delivery, Namespace, Sink, Verdict};
use duetime_sinks::SinkRegistry;
use duetime_testkit::WallClock;
use duetime_testkit::conformance::sink::{CANARY, Received, SinkWorld, message, run_all};
use duetime_testkit::servers::{Proxy, RabbitMqServer};
use lapin::options::{BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use serde_json::json;

use crate::bound_sink;

/// Messages above this are refused by the test's broker.
const LARGEST: usize = 200_000;

async fn broker() -> RabbitMqServer {
    // Versions differ in which of the two they take for which.
    let rights: String =
        ["read", "write"].map(|one| format!("default_permissions.{one} = ^(?!forbidden).*$\n")).concat();
    let rights = format!("default_permissions.configure = .*\n{rights}");
    let login = format!("default_user = duetime\ndefault_pass = {CANARY}\n{rights}");
    RabbitMqServer::start_with(&format!("max_message_size = {LARGEST}\n{login}")).await
}

async fn channel(broker: &RabbitMqServer) -> (Connection, Channel) {
    let connection =
        Connection::connect(&broker.url("duetime", CANARY), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}

/// An exchange `due` with a durable queue `all` that takes everything, and `few` that takes `few.*`.
async fn declare(channel: &Channel) {
    let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
    channel.exchange_declare("due".into(), ExchangeKind::Topic, durable, FieldTable::default()).await.unwrap();
    channel.queue_declare("all".into(), QueueDeclareOptions::durable(), FieldTable::default()).await.unwrap();
    bind(channel).await;
}

async fn bind(channel: &Channel) {
    let (queue, exchange, key) = ("all".into(), "due".into(), "orders.#".into());
    channel.queue_bind(queue, exchange, key, QueueBindOptions::default(), FieldTable::default()).await.unwrap();
}

fn text(headers: &BTreeMap<String, AMQPValue>, name: &str) -> String {
    match headers.get(name) {
        Some(AMQPValue::LongString(text)) => text.to_string(),
        other => panic!("{name}: {other:?}"),
    }
}

/// All that lies in the queue `all`.
async fn fetch(channel: &Channel) -> Vec<Received> {
    let mut received = Vec::new();
    while let Some(got) = channel.basic_get("all".into(), BasicGetOptions { no_ack: true }).await.unwrap() {
        let headers = got.properties.headers().as_ref().unwrap().inner();
        let headers = headers.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        assert_eq!(*got.properties.delivery_mode(), Some(2));
        let message_id = got.properties.message_id().as_ref().unwrap().to_string();
        assert_eq!(message_id, text(&headers, "duetime-delivery-id"));
        received.push(Received {
            topic: text(&headers, "duetime-topic"),
            id: percent_encoding::percent_decode_str(&text(&headers, "duetime-id")).decode_utf8().unwrap().into_owned(),
            delivery_id: text(&headers, "duetime-delivery-id"),
            attempt: text(&headers, "duetime-attempt"),
            due_at: text(&headers, "duetime-due-at"),
            payload: got.delivery.data,
        });
    }
    received
}

struct World {
    broker: RabbitMqServer,
    sink: Arc<dyn Sink>,
}

#[async_trait]
impl SinkWorld for World {
    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    async fn received(&mut self) -> Option<Vec<Received>> {
        let (_connection, channel) = channel(&self.broker).await;
        Some(fetch(&channel).await)
    }

    fn refused_message(&self) -> Option<Delivery> {
        Some(message("large", vec![b'x'; LARGEST + 1]))
    }

    async fn behind_proxy(&mut self) -> Option<(Arc<dyn Sink>, Proxy)> {
        let proxy = Proxy::before(self.broker.port()).await;
        let config = config(&self.broker).replace("\"3s\"", "\"5m\"");
        let config = config.replace(&self.broker.port().to_string(), &proxy.port().to_string());
        let topic = json!({"name": "mq", "exchange": "due", "routing_key": "orders.{topic}"});
        Some((bound_sink::bind(&config, topic).unwrap(), proxy))
    }

    async fn take_down(&mut self) -> bool {
        self.broker.stop_hard();
        true
    }

    async fn bring_back(&mut self) {
        self.broker.start_again().await;
    }
}

fn config(broker: &RabbitMqServer) -> String {
    format!("type = \"rabbitmq\"\nurl = {:?}\ntimeout = \"3s\"\n", broker.url("duetime", CANARY))
}

fn sink(broker: &RabbitMqServer, topic: serde_json::Value) -> Arc<dyn Sink> {
    bound_sink::bind(&config(broker), topic).unwrap()
}

fn failed(verdict: &Verdict, says: &str) {
    let (Verdict::Unavailable { reason } | Verdict::NoAnswer { reason } | Verdict::Retry { reason, .. }) = verdict
    else {
        panic!("{verdict:?}")
    };
    assert!(reason.contains(says) && !reason.contains(CANARY), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_keeps_the_contract_of_a_sink_and_says_what_is_wrong() {
    let broker = broker().await;
    let (connection, admin) = channel(&broker).await;
    declare(&admin).await;
    let sink_to =
        |exchange: &str, key: &str| sink(&broker, json!({"name": "mq", "exchange": exchange, "routing_key": key}));

    // A message that no queue takes is returned, and only that one.
    let by_header = sink_to("due", "{header.kind|orders}.x");
    let mut batch: Vec<Delivery> = (0..100).map(|n| message(&format!("route-{n}"), "x")).collect();
    for n in [3, 50, 51, 99] {
        batch[n].headers = duetime_core::Headers::new(vec![("Kind".to_owned(), format!("nobody{n}"))]).unwrap();
    }
    let verdicts = by_header.deliver(&batch).await;
    for (n, verdict) in verdicts.iter().enumerate() {
        if [3, 50, 51, 99].contains(&n) {
            let Verdict::Retry { reason, .. } = verdict else { panic!("{n}: {verdict:?}") };
            assert!(reason.contains(&format!("\"nobody{n}.x\"")) && reason.contains("NO_ROUTE"), "{reason}");
        } else {
            assert_eq!(*verdict, Verdict::Accepted, "{n}");
        }
    }
    assert_eq!(fetch(&admin).await.len(), 96);

    // A missing exchange is the topic's matter as a whole; so is a user without rights.
    let nowhere = sink_to("no-such-exchange", "x");
    for verdict in nowhere.deliver(&batch).await {
        failed(&verdict, "declare the exchange");
    }
    let said = nowhere.check().await.unwrap_err();
    duetime_testkit::in_time!(!said.contains("did not answer in time"), "{said}");
    assert!(said.contains("no-such-exchange"), "{said}");
    let refused = format!("[mq]\ntype = \"rabbitmq\"\nurl = {:?}", broker.url("nobody", CANARY));
    let refused =
        SinkRegistry::new(toml::from_str(&refused).unwrap(), Arc::new(WallClock), &Namespace::default()).unwrap();
    let said = refused.check().await.remove(0).1.unwrap_err();
    assert!(said.contains("ACCESS_REFUSED") && !said.contains(CANARY), "{said}");

    // So is an exchange that the user may not write to.
    let kind = ExchangeKind::Topic;
    admin.exchange_declare("forbidden".into(), kind, Default::default(), FieldTable::default()).await.unwrap();
    for verdict in sink_to("forbidden", "x").deliver(&batch).await {
        failed(&verdict, "give the user the right to write there");
    }

    // A full queue that refuses takes what it can hold, and the rest is tried again; so is what nobody waits for.
    let mut small = FieldTable::default();
    small.insert("x-max-length".into(), AMQPValue::LongInt(3));
    small.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    admin.queue_declare("small".into(), QueueDeclareOptions::durable(), small).await.unwrap();
    let verdicts = sink_to("", "small").deliver(&batch[..10]).await;
    let refused = |verdict: &Verdict| matches!(verdict, Verdict::Retry { reason, .. } if reason.contains("full"));
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Accepted || refused(verdict)), "{verdicts:?}");
    assert!(refused(&verdicts[9]) && verdicts[0] == Verdict::Accepted, "{verdicts:?}");
    let careless = json!({"name": "mq", "exchange": "due", "routing_key": "nobody", "mandatory": false});
    assert_eq!(sink(&broker, careless).deliver(&batch[..1]).await, [Verdict::Accepted], "it was asked not to care");

    // A routing key that AMQP cannot carry is that message's matter.
    let long = Delivery { ..message(&"é".repeat(128), "x") };
    let verdicts = sink_to("due", "orders.{id}").deliver(&[long, message("short", "x")]).await;
    assert!(matches!(&verdicts[0], Verdict::Rejected { reason } if reason.contains("255")), "{verdicts:?}");
    assert_eq!(verdicts[1], Verdict::Accepted);
    assert_eq!(fetch(&admin).await.len(), 1);

    // Under a memory alarm the broker takes nothing; it says so, and the sink does.
    let sink = sink_to("due", "orders.{topic}");
    assert_eq!(sink.deliver(&batch[..1]).await, [Verdict::Accepted]);
    broker.control(&["set_vm_memory_high_watermark", "0"]);
    for _ in 0..2 {
        failed(&sink.deliver(&batch[..1]).await[0], "takes nothing for now");
    }
    broker.control(&["set_vm_memory_high_watermark", "0.4"]);
    bound_sink::until_taken(&*sink, &batch[..1]).await;

    // A broker that stalls between publish and confirm is away, and is used again when it is back.
    broker.stall().await;
    failed(&sink.deliver(&batch[..3]).await[2], "did not confirm within 3000 ms");
    broker.resume();
    bound_sink::until_taken(&*sink, &batch[..1]).await;
    fetch(&admin).await;
    drop((admin, connection));
    run_all(&mut World { broker, sink }).await;
}
