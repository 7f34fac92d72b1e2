//! A real RabbitMQ, with messages that lapin published, and queues whose messages are dead-lettered at the end of a time.

use duetime_testkit::servers::RabbitMqServer;
use lapin::options::{
    BasicConsumeOptions, BasicGetOptions, BasicNackOptions, BasicPublishOptions, BasicRejectOptions,
    QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use serde_json::json;

use super::*;

const LOGIN: (&str, &str) = ("duetime", "canary-word");
/// How long the queue `waiting` has its messages wait.
const TTL_MS: u32 = 3_600_000;

struct Broker {
    server: RabbitMqServer,
    _connection: Connection,
    channel: Channel,
}

impl Broker {
    async fn start() -> Self {
        let (user, password) = LOGIN;
        let server = RabbitMqServer::start_with(&format!("default_user = {user}\ndefault_pass = {password}")).await;
        let connection =
            Connection::connect(&server.url(user, password), ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        Self { server, _connection: connection, channel }
    }

    /// Anew, a queue `waiting` of a kind, whose messages come to `due` after an hour.
    async fn begins(&self, kind: &str) {
        for queue in ["waiting", "due"] {
            self.channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await.unwrap();
        }
        self.declare("due", FieldTable::default()).await;
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
        arguments.insert("x-message-ttl".into(), AMQPValue::LongUInt(TTL_MS));
        arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("".into()));
        arguments.insert("x-dead-letter-routing-key".into(), AMQPValue::LongString("due".into()));
        self.declare("waiting", arguments).await;
    }

    async fn declare(&self, queue: &str, arguments: FieldTable) -> u32 {
        let durable = QueueDeclareOptions { durable: true, ..Default::default() };
        self.channel.queue_declare(queue.into(), durable, arguments).await.unwrap().message_count()
    }

    /// How many messages lie in a queue, held ones not counted.
    async fn count(&self, queue: &str) -> u32 {
        let passive = QueueDeclareOptions { passive: true, ..Default::default() };
        self.channel.queue_declare(queue.into(), passive, FieldTable::default()).await.unwrap().message_count()
    }

    async fn publish(&self, payload: &[u8], properties: BasicProperties) {
        let options = BasicPublishOptions::default();
        let sent = self.channel.basic_publish("".into(), "waiting".into(), options, payload, properties).await.unwrap();
        sent.await.unwrap();
    }

    fn url(&self, port: u16) -> String {
        format!("amqp://{}:{}@127.0.0.1:{port}", LOGIN.0, LOGIN.1)
    }

    /// Waits until all that was held is in the queue again.
    async fn has(&self, queue: &str, count: u32) {
        let end = tokio::time::Instant::now() + Duration::from_secs(20);
        while self.count(queue).await != count {
            let there = self.count(queue).await;
            duetime_testkit::in_time!(tokio::time::Instant::now() < end, "{there} in {queue}, not {count}");
            let because = duetime_testkit::wait::Because::AskedAgain;
            duetime_testkit::wait::let_pass(Duration::from_millis(20), because).await;
        }
    }
}

fn import<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["import", "orders", "--from", "rabbitmq-dlx", url, "--queue", "waiting", "--json"], more].concat()
}

fn named(id: &str) -> BasicProperties {
    BasicProperties::default().with_message_id(id.into())
}

/// One server for all of it, which takes seconds to start.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_in_rabbitmq_is_brought_over_once_and_as_it_was() {
    let broker = Broker::start().await;
    messages_that_wait_for_their_dead_letter_exchange_keep_ids_contents_and_due_times(&broker).await;
    a_command_killed_before_it_enqueues_or_acknowledges_loses_no_message_and_doubles_none_when_it_runs_again(&broker)
        .await;
    of_equal_messages_without_an_id_none_that_was_looked_at_is_taken_for_one_that_is_here(&broker).await;
    a_lost_answer_doubles_no_message_without_an_id(&broker).await;
    a_message_with_the_id_of_a_delivered_one_or_another_header_is_not_taken_for_it(&broker).await;
    what_was_rejected_into_the_queue_waits_a_whole_time_from_then(&broker).await;
    // It leaves messages that it looked at.
    a_message_that_the_topic_refuses_stays_and_one_with_the_id_of_another_is_not_taken_for_it(&broker).await;
}

async fn messages_that_wait_for_their_dead_letter_exchange_keep_ids_contents_and_due_times(broker: &Broker) {
    broker.begins("classic").await;
    let node = topic().await;
    let url = broker.url(broker.server.port());
    let published = now_ms() / 1000;
    let mut table = FieldTable::default();
    table.insert("tenant".into(), AMQPValue::LongString("shop-é".into()));
    table.insert("tries".into(), AMQPValue::LongInt(3));
    let whole =
        named("order/1").with_timestamp(published as u64).with_headers(table).with_content_type("text/x".into());
    broker.publish(b"\xff\x00order 1", whole).await;
    broker.publish(b"order 2", named("order-2").with_expiration("60000".into()).with_timestamp(published as u64)).await;
    let before = now_ms();
    broker.publish(b"order 3", named("order-3").with_expiration("600000".into())).await;
    // Nothing tells these from one another.
    for _ in 0..3 {
        broker.publish(b"tick", BasicProperties::default()).await;
    }
    let counted = to(&node, &import(&url, &["--ttl", "1h", "--dry-run"])).done().json();
    assert_eq!((&counted["tally"]["scheduled"], broker.count("waiting").await), (&6.into(), 6), "{counted}");

    let without = to(&node, &import(&url, &[])).refused(1, &["x-message-ttl as --ttl"]).json();
    assert_eq!((&without["tally"]["scheduled"], &without["tally"]["refused"]), (&2.into(), &4.into()), "{without}");
    assert_eq!(without["drained"]["waiting"], 4, "{without}");
    let did = to(&node, &import(&url, &["--ttl", "1h"])).done().json();
    let after = now_ms();
    assert_eq!((&did["tally"]["scheduled"], &did["drained"]["removed"]), (&4.into(), &4.into()), "{did}");
    assert_eq!(did["drained"]["headers_dropped"], 1, "{did}");
    assert_eq!((broker.count("waiting").await, broker.count("due").await), (0, 0));

    let there = messages(&node);
    let first = &there["order/1"];
    assert_eq!(first["payload_base64"], "/wBvcmRlciAx");
    let headers = json!({"tenant": "shop-é", "content-type": "text/x", "rabbitmq-routing-key": "waiting"});
    assert_eq!(first["headers"], headers);
    // Published within the second of its timestamp.
    assert_eq!(first["due_at"], (published + 1) * 1000 + i64::from(TTL_MS));
    assert_eq!(there["order-2"]["due_at"], (published + 1) * 1000 + 60_000);
    let due = there["order-3"]["due_at"].as_i64().unwrap();
    assert!(before + 600_000 <= due && due <= after + 600_000, "{due}");
    let ticks: Vec<_> = there.iter().filter(|(_, message)| message["payload"] == "tick").collect();
    assert!(ticks.len() == 3 && ticks.iter().all(|(id, _)| id.starts_with("sha256:")), "{ticks:?}");
    // The same content again, which nobody was given yet: none of them is the one that is here.
    for _ in 0..2 {
        broker.publish(b"tick", BasicProperties::default()).await;
    }
    let did = to(&node, &import(&url, &["--ttl", "1h"])).done().json();
    assert_eq!((&did["tally"]["scheduled"], messages(&node).len()), (&2.into(), 8), "{did}");
}

async fn a_command_killed_before_it_enqueues_or_acknowledges_loses_no_message_and_doubles_none_when_it_runs_again(
    broker: &Broker,
) {
    broker.begins("classic").await;
    let (node, victim) = (topic().await, Victim::default());
    for n in 0..600 {
        broker.publish(format!("order {n}").as_bytes(), named(&format!("order-{n}"))).await;
    }
    let url = broker.url(broker.server.port());
    kill_at_the_enqueue(&node, &import(&url, &["--ttl", "1h"])).await;
    broker.has("waiting", 600).await;
    let killed = victim.clone();
    // The acknowledgement of AMQP: class 60, method 80.
    let tap = Tap::start(broker.server.port(), &[0, 60, 0, 80], move || kill(&killed));
    begin(&victim, &node, &import(&broker.url(tap.port), &["--ttl", "1h"]));
    is_killed(&victim).await;
    let enqueued = messages(&node).len();
    assert!(enqueued > 0, "it was killed before it had enqueued anything");
    let did = loop {
        // What was held is in the queue again once the broker has noticed.
        let did = to(&node, &import(&url, &["--ttl", "1h"])).done().json();
        if messages(&node).len() >= 600 {
            break did;
        }
    };
    broker.has("waiting", 0).await;
    let there = messages(&node);
    let mut payloads: Vec<&str> = there.values().map(|message| message["payload"].as_str().unwrap()).collect();
    payloads.sort_unstable();
    payloads.dedup();
    assert_eq!((there.len(), payloads.len()), (600, 600), "{did}");
    assert_eq!(broker.count("due").await, 0);
}

async fn a_message_that_the_topic_refuses_stays_and_one_with_the_id_of_another_is_not_taken_for_it(broker: &Broker) {
    broker.begins("quorum").await;
    let node = topic().await;
    let url = broker.url(broker.server.port());
    to(&node, &["enqueue", "orders", "--payload", "order 1", "--id", "order-1", "--delay", "1h"]).done();
    to(&node, &["enqueue", "orders", "--payload", "of somebody else", "--id", "order-2", "--delay", "1h"]).done();
    for n in 0..300 {
        broker.publish(format!("order {n}").as_bytes(), named(&format!("order-{n}"))).await;
    }
    broker.publish("x".repeat(2_000).as_bytes(), named("large")).await;
    let folder = tempfile::tempdir().unwrap();
    let refused = folder.path().join("refused.ndjson");
    let args = import(&url, &["--ttl", "1h", "--refused", refused.to_str().unwrap()]);
    let did = to(&node, &args).refused(1, &["large: the payload has 2000 bytes", "another message with its id"]).json();
    let tally = ["scheduled", "duplicate", "refused"].map(|what| did["tally"][what].as_u64().unwrap());
    assert_eq!((tally, &did["drained"]["removed"]), ([298, 1, 2], &299.into()), "{did}");
    assert_eq!(std::fs::read_to_string(&refused).unwrap().lines().count(), 2);
    broker.has("waiting", 2).await;
    // A consumer there says that messages do not wait.
    let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
    let consumer = broker.channel.basic_consume("due".into(), "".into(), options, none).await.unwrap();
    let wrong = ["import", "orders", "--from", "rabbitmq-dlx", &url, "--queue", "due", "--ttl", "1h"];
    to(&node, &wrong).refused(1, &["has consumers"]);
    drop(consumer);
    to(&node, &[&wrong[..6], &["absent"]].concat()).refused(1, &["there is no queue absent"]);
    let mut left = Vec::new();
    while let Some(got) = broker.channel.basic_get("waiting".into(), BasicGetOptions::default()).await.unwrap() {
        left.push(got.properties.message_id().as_ref().unwrap().to_string());
    }
    left.sort_unstable();
    assert_eq!(left, ["large", "order-2"]);
    assert_eq!(broker.count("due").await, 0);
}

/// The broker says of what somebody has looked at that it was delivered before, as it does of what a drain gave back.
async fn of_equal_messages_without_an_id_none_that_was_looked_at_is_taken_for_one_that_is_here(broker: &Broker) {
    broker.begins("classic").await;
    let node = topic().await;
    let url = broker.url(broker.server.port());
    let publish = async |count: usize| {
        for _ in 0..count {
            broker.publish(b"tick", BasicProperties::default()).await;
        }
    };
    publish(10).await;
    to(&node, &import(&url, &["--ttl", "1h"])).done();
    publish(15).await;
    for _ in 0..15 {
        broker.channel.basic_get("waiting".into(), BasicGetOptions::default()).await.unwrap().unwrap();
    }
    let options = BasicNackOptions { multiple: true, requeue: true };
    broker.channel.basic_nack(0, options).await.unwrap();
    broker.has("waiting", 15).await;
    let did = to(&node, &import(&url, &["--ttl", "1h"])).done().json();
    assert_eq!((messages(&node).len(), broker.count("waiting").await), (25, 0), "{did}");
}

/// The node enqueues, and its answer gets lost.
async fn a_lost_answer_doubles_no_message_without_an_id(broker: &Broker) {
    broker.begins("classic").await;
    let node = topic().await;
    for _ in 0..20 {
        broker.publish(b"tick", BasicProperties::default()).await;
    }
    let port: u16 = node.url().rsplit(':').next().unwrap().parse().unwrap();
    let url = format!("http://127.0.0.1:{}", Tap::without_answer(port, b"POST /v1/topics/orders/messages").port);
    let source = broker.url(broker.server.port());
    let did = to(&node, &import(&source, &["--ttl", "1h", "--node", &url])).done().json();
    assert_eq!((messages(&node).len(), did["drained"]["removed"].as_u64()), (20, Some(20)), "{did}");
    assert_eq!(did["tally"]["duplicate"], 20, "no answer was lost: {did}");
}

/// A sender that gives each attempt the id of its order: what is delivered has the id of what still waits.
async fn a_message_with_the_id_of_a_delivered_one_or_another_header_is_not_taken_for_it(broker: &Broker) {
    broker.begins("classic").await;
    let node = topic().await;
    let url = broker.url(broker.server.port());
    to(&node, &["topic", "set", "orders", "--remember", "1h"]).done();
    for (id, delay) in [("delivered", "0s"), ("cancelled", "1h")] {
        to(&node, &["enqueue", "orders", "--id", id, "--payload", "x", "--delay", delay]).done();
    }
    to(&node, &["cancel", "orders", "cancelled"]).done();
    deliver(&node);
    to(&node, &["enqueue", "orders", "--id", "there", "--payload", "x", "--header", "a=1", "--delay", "1h"]).done();
    let of = |value: &str| {
        let mut table = FieldTable::default();
        table.insert("a".into(), AMQPValue::LongString(value.into()));
        named("there").with_headers(table)
    };
    let now = now_ms() as u64 / 1000;
    for properties in [named("delivered").with_timestamp(now), named("delivered"), named("cancelled"), of("2"), of("1")]
    {
        broker.publish(b"x", properties).await;
    }
    let did = to(&node, &import(&url, &["--ttl", "1h"])).refused(1, &["another message with its id"]).json();
    let tally = ["duplicate", "refused"].map(|what| did["tally"][what].as_u64().unwrap());
    assert_eq!((tally, &did["drained"]["removed"]), ([2, 3], &2.into()), "{did}");
    broker.has("waiting", 3).await;
}

/// A worker rejects what it cannot do yet, and the broker dead-letters it into the queue in which it waits.
async fn what_was_rejected_into_the_queue_waits_a_whole_time_from_then(broker: &Broker) {
    broker.begins("classic").await;
    let node = topic().await;
    let mut arguments = FieldTable::default();
    arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("".into()));
    arguments.insert("x-dead-letter-routing-key".into(), AMQPValue::LongString("waiting".into()));
    broker.declare("work", arguments).await;
    let (hours_ago, options) = (now_ms() as u64 / 1000 - 7_200, BasicPublishOptions::default());
    let properties = named("order-1").with_timestamp(hours_ago);
    let sent = broker.channel.basic_publish("".into(), "work".into(), options, b"order", properties).await.unwrap();
    sent.await.unwrap();
    broker.has("work", 1).await;
    let got = broker.channel.basic_get("work".into(), BasicGetOptions::default()).await.unwrap().unwrap();
    let rejected = now_ms();
    got.reject(BasicRejectOptions { requeue: false }).await.unwrap();
    broker.has("waiting", 1).await;
    to(&node, &import(&broker.url(broker.server.port()), &["--ttl", "1h"])).done();
    let due = messages(&node)["order-1"]["due_at"].as_i64().unwrap();
    let wanted = rejected + i64::from(TTL_MS);
    assert!(wanted <= due && due <= wanted + 60_000, "{due}, not {wanted}");
}
