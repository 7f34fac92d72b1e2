//! The sink for Kafka on a real broker, which is killed, stalled and started again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::{Delivery, Headers, Sink, Verdict};
use duetime_testkit::conformance::sink::{Part, Received, SinkWorld, message, run_all};
use duetime_testkit::servers::{Proxy, TansuOptions, TansuServer, free_port};
use duetime_testkit::wait::{Because, let_pass};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::reader::Reader;
use super::{LARGEST, PARTITIONS, bind, config};
use crate::targets::{Arrived, Target};

/// Longest wait until a broker is used again.
const RECOVERY_MAX: Duration = Duration::from_secs(30);

/// A broker with one topic, behind a network that is cut while the broker starts: it makes topics that
/// it is asked for and does not have, and would make this one before the test asks it to.
pub(crate) struct Broker {
    server: TansuServer,
    proxy: Proxy,
    topic: &'static str,
}

impl Broker {
    /// For tests that are the same for all targets.
    pub(crate) async fn start() -> Self {
        Self::with("orders").await
    }

    async fn with(topic: &'static str) -> Self {
        let port = free_port();
        let proxy = Proxy::before(port).await;
        let topics = vec![(topic, PARTITIONS as u32)];
        let options = TansuOptions { topics, port: Some(port), advertised: Some(proxy.port()) };
        Self { server: TansuServer::start_with(options).await, proxy, topic }
    }

    fn kill(&mut self) {
        self.proxy.cut();
        self.server.stop_hard();
    }

    async fn start_again(&mut self) {
        self.server.start_again().await;
        self.proxy.heal();
    }

    /// Reads its topic from the beginning.
    fn reader(&self) -> Reader {
        Reader::of(&self.server.address(), self.topic)
    }
}

#[async_trait]
impl Target for Broker {
    fn config(&self) -> String {
        format!("type = \"kafka\"\nbrokers = {:?}\n", self.server.address())
    }

    fn settings(&self) -> Value {
        json!({})
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    fn answers_within(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn arrived(&mut self) -> Vec<Arrived> {
        let received = self.reader().fetch();
        received.into_iter().map(|message| (message.id, message.attempt)).collect()
    }
}

struct World {
    broker: Broker,
    reader: Reader,
    sink: Arc<dyn Sink>,
}

#[async_trait]
impl SinkWorld for World {
    fn lacks(&self) -> &'static [Part] {
        &[Part::BehindProxy]
    }

    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    async fn received(&mut self) -> Option<Vec<Received>> {
        Some(self.reader.fetch())
    }

    fn refused_message(&self) -> Option<Delivery> {
        Some(message("large", vec![b'x'; LARGEST + 1]))
    }

    async fn take_down(&mut self) -> bool {
        self.broker.kill();
        true
    }

    async fn bring_back(&mut self) {
        self.broker.start_again().await;
        // It forgot all.
        self.reader = self.broker.reader();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_broker_keeps_the_contract_of_a_sink_and_keys_keep_their_order() {
    let broker = Broker::with("due.conformance").await;
    let mut reader = broker.reader();
    let keyed = json!({"name": "k", "topic": "due.{topic}", "key": "{header.shop|none}"});
    let sink = bind(&config(&broker.server.address()), keyed).unwrap();
    let of_shop = |n: usize| {
        let headers = Headers::new(vec![("shop".to_owned(), format!("s{}", n % 5))]).unwrap();
        Delivery { headers, ..message(&format!("k{n:03}"), "x") }
    };
    let batch: Vec<Delivery> = (0..200).map(of_shop).collect();
    assert!(sink.deliver(&batch).await.iter().all(|verdict| *verdict == Verdict::Accepted));
    let received = reader.fetch();
    assert_eq!(received.len(), 200);
    assert_eq!(reader.keys.iter().collect::<BTreeSet<_>>().len(), 5, "each key is in one partition");
    for shop in (0..5).map(|n| format!("s{n}")) {
        let of_one = received.iter().zip(&reader.keys).filter(|(_, (key, _))| *key == shop);
        let ids: Vec<_> = of_one.map(|(message, _)| &message.id).collect();
        assert!(ids.len() == 40 && ids.is_sorted(), "{ids:?}");
    }

    // A stall is an absence. This broker fences its producer then, and another takes over.
    broker.server.stall().await;
    let verdict = sink.deliver(&[message("stalled", "x")]).await.remove(0);
    assert!(
        matches!(&verdict, Verdict::Unavailable { reason } | Verdict::NoAnswer { reason } if reason.contains("within 4000 ms")),
        "{verdict:?}"
    );
    broker.server.resume();
    let end = Instant::now() + RECOVERY_MAX;
    loop {
        let verdict = sink.deliver(&[message("stalled", "x")]).await;
        if verdict == [Verdict::Accepted] {
            break;
        }
        duetime_testkit::in_time!(Instant::now() < end, "the broker is not used again: {verdict:?}");
        let_pass(Duration::from_millis(100), Because::AskedAgain).await;
    }
    let again = reader.fetch();
    assert!(again.iter().all(|message| message.id == "stalled"), "{again:?}");
    run_all(&mut World { broker, reader, sink }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_out_shorter_than_a_producer_takes_to_begin_only_delays_the_beginning() {
    let broker = Broker::with("conformance").await;
    let brokers = broker.server.address();
    let short = format!("type = \"kafka\"\nbrokers = {brokers:?}\ntimeout = \"150ms\"\nconnect_timeout = \"1s\"\n");
    let sink = bind(&short, json!({"name": "k"})).unwrap();
    let end = Instant::now() + RECOVERY_MAX;
    while sink.deliver(&[message("short", "x")]).await != [Verdict::Accepted] {
        duetime_testkit::in_time!(Instant::now() < end, "it never begins");
    }
}
