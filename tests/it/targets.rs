//! One target of each kind behind a network that fails, for tests that are the same for all.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::{self, stream};
use async_trait::async_trait;
use duetime_testkit::Webhook;
use duetime_testkit::servers::{NatsServer, Proxy, RabbitMqServer, RedisOptions, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use futures::StreamExt as _;
use lapin::options::{BasicConsumeOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use parking_lot::Mutex;
use redis::AsyncCommands as _;
use redis::streams::StreamRangeReply;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::redis_faults::server::connection;

const PATIENCE: Duration = Duration::from_secs(60);
/// Entries of a stream that are read at once.
const PAGE: usize = 1_000;

/// A message as it arrived: its id, and which attempt it said it was.
pub(crate) type Arrived = (String, String);

/// One target of each kind behind a network that fails, for tests that are the same for all.
#[async_trait]
pub(crate) trait Target: Send {
    /// The lines of a `[sinks.NAME]`, all but its time-outs.
    fn config(&self) -> String;

    /// What a topic sets beside the sink's name.
    fn settings(&self) -> Value;

    fn proxy(&self) -> &Proxy;

    /// Time-outs with which a sink for it works: a connection that is made anew, and an answer.
    fn answers_within(&self) -> Duration {
        Duration::from_millis(400)
    }

    /// Reads all that arrived, not while the network fails.
    async fn arrived(&mut self) -> Vec<Arrived>;
}

/// Waits until so many messages have arrived, and answers all that did, also what came twice.
pub(crate) async fn all_of(target: &mut impl Target, count: usize) -> Vec<Arrived> {
    let end = Instant::now() + PATIENCE;
    loop {
        let arrived = target.arrived().await;
        let seen = arrived.iter().map(|(id, _)| id).collect::<BTreeSet<_>>().len();
        if seen >= count {
            assert_eq!(seen, count, "more arrived than was sent");
            return arrived;
        }
        duetime_testkit::in_time!(Instant::now() < end, "{seen} of {count} messages arrived");
        let_pass(Duration::from_millis(100), Because::AskedAgain).await;
    }
}

pub(crate) struct Streams {
    server: RedisServer,
    proxy: Proxy,
}

impl Streams {
    pub(crate) async fn start() -> Self {
        let server = RedisServer::start_with(RedisOptions::default()).await;
        let proxy = Proxy::before(server.port()).await;
        Self { server, proxy }
    }
}

#[async_trait]
impl Target for Streams {
    fn config(&self) -> String {
        format!("type = \"redis-stream\"\nurl = {:?}\n", self.server.url_at(self.proxy.port()))
    }

    fn settings(&self) -> Value {
        json!({"stream": "due"})
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    async fn arrived(&mut self) -> Vec<Arrived> {
        let mut connection = connection(&self.server).await.unwrap();
        let text = |value: &redis::Value| redis::from_redis_value(value.clone()).unwrap();
        let (mut arrived, mut from) = (Vec::new(), "-".to_owned());
        loop {
            let page: StreamRangeReply = connection.xrange_count("due", &from, "+", PAGE).await.unwrap();
            let Some(last) = page.ids.last() else { return arrived };
            from = format!("({}", last.id);
            arrived.extend(page.ids.iter().map(|entry| (text(&entry.map["id"]), text(&entry.map["attempt"]))));
        }
    }
}

pub(crate) struct Nats {
    server: NatsServer,
    proxy: Proxy,
}

impl Nats {
    pub(crate) async fn start() -> Self {
        let server = NatsServer::start_with("").await;
        let admin = jetstream::new(async_nats::connect(server.url()).await.unwrap());
        let subjects = vec!["due".to_owned()];
        admin.create_stream(stream::Config { name: "DUE".to_owned(), subjects, ..Default::default() }).await.unwrap();
        let proxy = Proxy::before(server.port()).await;
        Self { server, proxy }
    }
}

#[async_trait]
impl Target for Nats {
    fn config(&self) -> String {
        format!("type = \"nats\"\nurl = \"nats://127.0.0.1:{}\"\n", self.proxy.port())
    }

    fn settings(&self) -> Value {
        json!({"subject": "due"})
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    async fn arrived(&mut self) -> Vec<Arrived> {
        let admin = jetstream::new(async_nats::connect(self.server.url()).await.unwrap());
        let mut stream = admin.get_stream("DUE").await.unwrap();
        let count = stream.info().await.unwrap().state.messages;
        let from_start =
            pull::OrderedConfig { headers_only: true, deliver_policy: DeliverPolicy::All, ..Default::default() };
        let messages = stream.create_consumer(from_start).await.unwrap().messages().await.unwrap();
        let arrived = messages.take(usize::try_from(count).unwrap()).map(|got| {
            let got = got.unwrap();
            let text = |name: &str| got.headers.as_ref().unwrap().get(name).unwrap().to_string();
            (text("duetime-id"), text("duetime-attempt"))
        });
        arrived.collect().await
    }
}

/// A RabbitMQ broker with a queue, which is read all the time.
pub(crate) struct Rabbit {
    broker: RabbitMqServer,
    proxy: Proxy,
    _reader: lapin::Connection,
    read: Arc<Mutex<Vec<Arrived>>>,
}

impl Rabbit {
    pub(crate) async fn start() -> Self {
        let broker = RabbitMqServer::start_with("").await;
        let url = broker.url("guest", "guest");
        let reader = lapin::Connection::connect(&url, lapin::ConnectionProperties::default()).await.unwrap();
        let channel = reader.create_channel().await.unwrap();
        channel.queue_declare("due".into(), QueueDeclareOptions::durable(), FieldTable::default()).await.unwrap();
        let options = BasicConsumeOptions { no_ack: true, ..Default::default() };
        let consuming = channel.basic_consume("due".into(), "test".into(), options, FieldTable::default());
        let mut messages = consuming.await.unwrap();
        let read = Arc::new(Mutex::new(Vec::new()));
        let noted = read.clone();
        tokio::spawn(async move {
            while let Some(Ok(got)) = messages.next().await {
                let headers = got.properties.headers().as_ref().unwrap().inner();
                let id = headers["duetime-id"].as_long_string().unwrap().to_string();
                let attempt = headers["duetime-attempt"].as_long_string().unwrap().to_string();
                noted.lock().push((id, attempt));
            }
        });
        let proxy = Proxy::before(broker.port()).await;
        Self { broker, proxy, _reader: reader, read }
    }
}

#[async_trait]
impl Target for Rabbit {
    fn config(&self) -> String {
        let url =
            self.broker.url("guest", "guest").replace(&self.broker.port().to_string(), &self.proxy.port().to_string());
        format!("type = \"rabbitmq\"\nurl = {url:?}\n")
    }

    fn settings(&self) -> Value {
        json!({"routing_key": "due"})
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    async fn arrived(&mut self) -> Vec<Arrived> {
        self.read.lock().clone()
    }
}

pub(crate) struct Hook {
    pub(crate) hook: Webhook,
    proxy: Proxy,
    /// It is reached without the proxy, which takes connections even when it passes nothing on.
    direct: bool,
}

impl Hook {
    pub(crate) async fn direct() -> Self {
        Self { direct: true, ..Self::start().await }
    }

    pub(crate) async fn start() -> Self {
        let hook = Webhook::start();
        let proxy = Proxy::before(hook.port()).await;
        Self { hook, proxy, direct: false }
    }
}

#[async_trait]
impl Target for Hook {
    fn config(&self) -> String {
        let port = if self.direct { self.hook.port() } else { self.proxy.port() };
        format!("type = \"http\"\nurl = \"http://127.0.0.1:{port}/due\"\nallow = [\"127.0.0.1\"]\n")
    }

    fn settings(&self) -> Value {
        json!({})
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    async fn arrived(&mut self) -> Vec<Arrived> {
        let of = |hit: duetime_testkit::webhook::Hit| {
            (hit.header("duetime-id").to_owned(), hit.header("duetime-attempt").to_owned())
        };
        self.hook.hits().into_iter().map(of).collect()
    }
}
