//! Messages whose own destinations do not take them, at the head of every shard: the others are on time, and the bad
//! ones are offered no more often than their attempts say.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::jetstream::{self, stream};
use duetime_testkit::Webhook;
use duetime_testkit::servers::{NatsServer, RabbitMqServer};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::Answer;
use futures::StreamExt as _;
use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::test_node::{TestNode, ids};

const SHARDS: usize = 4;
/// Bad messages at the head of each shard.
const BAD: usize = 200;
const ATTEMPTS: usize = 3;
/// The bad ones are there for this long before the others.
const AHEAD: Duration = Duration::from_millis(300);
/// Of the others: so many at a time, so often, this far apart.
const GOOD: usize = 20;
const ROUNDS: usize = 50;
const APART: Duration = Duration::from_millis(200);
/// Almost all of them arrive within this, which is a bound of a bucket of the metric.
const LATE_MAX: Duration = Duration::from_secs(5);
const SHARE: f64 = 0.99;
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct Found {
    bad: usize,
    good: usize,
    failed: usize,
    /// Failures that cost nothing, since on a busy machine no good one was accepted for two seconds.
    undecided: usize,
    /// How often the target accepted nobody for so long that it counted as down.
    outages: usize,
}

/// Bad messages at the head of all shards.
pub(crate) async fn bad_ones_ahead(sink: &str, settings: Value) -> Found {
    ahead(BAD * SHARDS, sink, settings).await
}

/// A topic of the sink `s` to which so many bad messages go ahead of others; a message says by the header `to` what
/// it is.
async fn ahead(bad: usize, sink: &str, mut settings: Value) -> Found {
    let node = TestNode::new(&format!("[sinks.s]\n{sink}")).await;
    settings["name"] = json!("s");
    let retry = json!({"max_attempts": ATTEMPTS, "initial": "200ms", "max": "1s"});
    let (status, body) = node.topic("orders", json!({"shards": SHARDS, "sink": settings, "retry": retry})).await;
    assert_eq!(status, 201, "{body}");
    let messages = |ids: Vec<String>, to: &str| -> Vec<Value> {
        ids.into_iter().map(|id| json!({"id": id, "delay": 0, "payload": to, "headers": {"to": to}})).collect()
    };
    node.enqueue_all("orders", messages(ids("bad", bad).collect(), "bad")).await;
    let_pass(AHEAD, Because::Quiet).await;
    let end = Instant::now() + PATIENCE;
    let (mut round, mut sent) = (0, 0);
    // The others go on until the last bad one is a dead letter: alone, it could not be distinguished from an outage.
    while round < ROUNDS || node.counts("orders").await["dead"] != bad {
        let count = if round < ROUNDS { GOOD } else { 1 };
        node.enqueue_all("orders", messages(ids(&format!("good-{round}"), count).collect(), "good")).await;
        (round, sent) = (round + 1, sent + count);
        let counts = node.counts("orders").await;
        duetime_testkit::in_time!(
            Instant::now() < end,
            "not all are dead letters: {counts}\n{}",
            node.process.output()
        );
        let_pass(APART, Because::AskedAgain).await;
    }
    node.drained("orders", PATIENCE).await;
    assert_eq!(node.counts("orders").await["dead"], bad, "no good one is among them");
    let accepted = node.metric("duetime_lateness_seconds_count").await;
    assert!(accepted >= sent as f64, "{accepted} of {sent} good ones were accepted");
    let in_time = node.bucket("duetime_lateness_seconds", LATE_MAX).await / accepted;
    duetime_testkit::in_time!(in_time >= SHARE, "{in_time} within {LATE_MAX:?}:\n{}", node.process.output());
    let page = node.dead("orders").await;
    assert!(page.iter().all(|dead| dead["attempts"] == ATTEMPTS), "{page:?}");
    let failed = node.metric("duetime_sink_errors_total").await as usize;
    let outages = node.metric("duetime_breaker_opens_total").await as usize;
    let undecided = node.metric("duetime_failures_undecided_total").await as usize;
    println!(
        "{in_time} of {accepted} within {LATE_MAX:?}, {failed} offers of {bad} bad ones, {undecided} undecided, \
         {outages} outages, {round} rounds"
    );
    Found { bad, good: sent, failed, undecided, outages }
}

impl Found {
    /// Each bad one was offered as often as its attempts say.
    #[track_caller]
    pub(crate) fn as_often_as_attempts_say(&self) {
        assert_eq!(self.failed, self.bad * ATTEMPTS, "offers of bad messages that failed");
    }

    /// Bound of the offers of one message that is met with silence: the first silence costs no attempt, and neither
    /// does what fails while the target counts as down, which a busy machine may bring about.
    fn silent_offers_max(&self) -> usize {
        ATTEMPTS + 1 + self.outages
    }

    /// Each bad one was offered as often as its attempts say, and as often as a silence is excused.
    #[track_caller]
    pub(crate) fn as_often_as_silence_is_excused(&self) {
        self.at_most(self.silent_offers_max());
    }

    /// Each bad one was offered so often on average, at most, but for what cost nothing, and no less often than its
    /// attempts say.
    #[track_caller]
    pub(crate) fn at_most(&self, times: usize) {
        let most = self.bad * times + self.undecided;
        let says = format!("{} offers failed, {most} at most of bad ones", self.failed);
        assert!((self.bad * ATTEMPTS..=most + self.good).contains(&self.failed), "{says}");
        // On a busy machine a good one may have had no answer in time, too.
        duetime_testkit::in_time!(self.failed <= most, "{says}");
    }
}

/// A webhook that answers bad messages so; how often it was asked for each of them.
async fn webhook(bad: usize, answer: Answer, sink: &str) -> (Found, BTreeMap<String, usize>) {
    let hook = Webhook::start();
    hook.answer(move |hit| if hit.header("to") == "bad" { answer.clone() } else { Answer::status(200) });
    let config = format!("type = \"http\"\nurl = {:?}\nallow = [\"127.0.0.1\"]\n{sink}", hook.url("/due"));
    let found = ahead(bad, &config, json!({})).await;
    let mut asked = BTreeMap::new();
    for hit in hook.hits().iter().filter(|hit| hit.header("to") == "bad") {
        *asked.entry(hit.header("duetime-id").to_owned()).or_default() += 1;
    }
    (found, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_of_a_webhook_that_answer_503_delay_nobody_else() {
    let (found, asked) = webhook(BAD * SHARDS, Answer::status(503), "").await;
    found.as_often_as_attempts_say();
    assert!(asked.len() == BAD * SHARDS && asked.values().all(|times| *times == ATTEMPTS), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_of_a_webhook_that_never_answer_delay_nobody_else() {
    // Each holds one of 64 requests for a whole time-out: more of them, or longer, is more than there is room for.
    let (found, asked) = webhook(BAD, Answer::status(200).after(PATIENCE), "timeout = \"200ms\"\n").await;
    found.as_often_as_silence_is_excused();
    assert!(asked.values().all(|times| *times <= found.silent_offers_max()), "{asked:?}");
}

/// A NATS server with a stream for what is good.
async fn nats() -> (NatsServer, async_nats::Client) {
    let server = NatsServer::start_with("").await;
    let client = async_nats::connect(server.url()).await.unwrap();
    let subjects = vec!["good.>".to_owned()];
    let good = stream::Config { name: "GOOD".to_owned(), subjects, ..Default::default() };
    jetstream::new(client.clone()).create_stream(good).await.unwrap();
    (server, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_stream_of_nats_delays_no_other() {
    let (server, client) = nats().await;
    let full = stream::Config {
        name: "BAD".to_owned(),
        subjects: vec!["bad.>".to_owned()],
        max_messages: 1,
        discard: stream::DiscardPolicy::New,
        ..Default::default()
    };
    let jetstream = jetstream::new(client);
    jetstream.create_stream(full).await.unwrap();
    jetstream.publish("bad.first", "x".into()).await.unwrap().await.unwrap();
    let sink = format!("type = \"nats\"\nurl = {:?}\n", server.url());
    bad_ones_ahead(&sink, json!({"subject": "{header.to}.due"})).await.as_often_as_attempts_say();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subject_of_nats_that_nobody_acknowledges_delays_no_other() {
    let (server, client) = nats().await;
    // Somebody listens, so that the server refuses nothing, and says nothing.
    let mut listener = client.subscribe("bad.>").await.unwrap();
    client.flush().await.unwrap();
    let listening = tokio::spawn(async move { while listener.next().await.is_some() {} });
    let sink = format!("type = \"nats\"\nurl = {:?}\ntimeout = \"1s\"\n", server.url());
    bad_ones_ahead(&sink, json!({"subject": "{header.to}.due"})).await.as_often_as_silence_is_excused();
    listening.abort();
}

/// A RabbitMQ broker with a queue for what is good, and one for what is bad with these arguments.
async fn rabbitmq(bad: FieldTable) -> RabbitMqServer {
    let broker = RabbitMqServer::start_with("").await;
    let url = broker.url("guest", "guest");
    let connection = lapin::Connection::connect(&url, lapin::ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    for (queue, arguments) in [("good", FieldTable::default()), ("bad", bad)] {
        channel.queue_declare(queue.into(), QueueDeclareOptions::durable(), arguments).await.unwrap();
    }
    broker
}

async fn to_rabbitmq(broker: &RabbitMqServer) -> Found {
    let sink = format!("type = \"rabbitmq\"\nurl = {:?}\ntimeout = \"1s\"\n", broker.url("guest", "guest"));
    bad_ones_ahead(&sink, json!({"routing_key": "{header.to}"})).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_of_rabbitmq_delays_no_other() {
    let mut full = FieldTable::default();
    full.insert("x-max-length".into(), AMQPValue::LongInt(0));
    full.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    to_rabbitmq(&rabbitmq(full).await).await.as_often_as_attempts_say();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_of_rabbitmq_that_does_not_confirm_delays_no_other() {
    let broker = rabbitmq(FieldTable::default()).await;
    // Its process stands still, like a replicated queue without a majority.
    broker.control(&[
        "eval",
        "{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, <<\"bad\">>)), sys:suspend(amqqueue:get_pid(Q)).",
    ]);
    to_rabbitmq(&broker).await.as_often_as_silence_is_excused();
}
