//! A topic whose sink is Kafka: on the client library's own cluster, with errors put into it.

mod errors;
mod gate;
mod login;
mod poison;
mod reader;
mod tansu;

use std::collections::BTreeSet;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use duetime_testkit::conformance::sink::CANARY;
use duetime_testkit::wait::{Because, let_pass};
use rdkafka::error::KafkaResult;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use serde_json::json;

use self::reader::Reader;
pub(crate) use self::tansu::Broker;
use crate::bound_sink::bind;
use crate::test_node::{TestNode, ids};

/// Messages above this are refused by the test's sink.
const LARGEST: usize = 200_000;
const PARTITIONS: usize = 3;

type Mock = MockCluster<'static, DefaultProducerContext>;
type Order = Box<dyn FnOnce(&Mock) + Send>;

/// The client library's cluster, which may not leave its thread.
struct Cluster {
    orders: SyncSender<Order>,
    brokers: String,
}

impl Cluster {
    fn start() -> Self {
        Self::of(1)
    }

    /// One of so many brokers.
    fn of(brokers: i32) -> Self {
        let (orders, given) = sync_channel::<Order>(1);
        let (tell, told) = sync_channel(1);
        std::thread::spawn(move || {
            let cluster = MockCluster::new(brokers).unwrap();
            tell.send(cluster.bootstrap_servers()).unwrap();
            given.into_iter().for_each(|order| order(&cluster));
        });
        Self { orders, brokers: told.recv().unwrap() }
    }

    /// Has it done before it answers.
    fn order(&self, order: impl FnOnce(&Mock) -> KafkaResult<()> + Send + 'static) {
        let (tell, told) = sync_channel(1);
        self.orders.send(Box::new(move |cluster| tell.send(order(cluster)).unwrap())).unwrap();
        told.recv().unwrap().unwrap();
    }

    /// The next requests of this kind are answered with these errors.
    fn errors(&self, of: RDKafkaApiKey, errors: &[RDKafkaRespErr]) {
        let errors = errors.to_vec();
        self.order(move |cluster| {
            cluster.request_errors(of, &errors);
            Ok(())
        });
    }

    fn down(&self) {
        self.order(|cluster| cluster.broker_down(1));
    }

    fn up(&self) {
        self.order(|cluster| cluster.broker_up(1));
    }
}

/// What the sink has set in every test.
fn config(brokers: &str) -> String {
    format!(
        "type = \"kafka\"\nbrokers = {:?}\ntimeout = \"4s\"\nconnect_timeout = \"2s\"\nmax_message = {LARGEST}\n\
             compression = \"zstd\"\nproperties = {{ \"client.rack\" = {CANARY:?} }}\n",
        brokers
    )
}

/// A cluster of one broker, and a reader of one of its topics.
struct Kafka {
    cluster: Cluster,
    reader: Reader,
}

impl Kafka {
    fn with(topic: &'static str) -> Self {
        let cluster = Cluster::start();
        cluster.order(|cluster| cluster.create_topic(topic, PARTITIONS as i32, 1));
        let reader = Reader::of(&cluster.brokers, topic);
        Self { cluster, reader }
    }

    fn config(&self) -> String {
        config(&self.cluster.brokers)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_a_topic_that_make_no_sense_are_refused_with_the_fix() {
    let config = config(&Cluster::start().brokers);
    for (given, says) in [
        (json!({"name": "k", "topic": "a b"}), "letters"),
        (json!({"name": "k", "topic": ""}), "letters"),
        (json!({"name": "k", "kee": "x"}), "did you mean \"key\""),
        (json!({"name": "k", "key": "{x}"}), "{header"),
    ] {
        let error = bind(&config, given).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_goes_away_costs_no_attempt_and_nothing_is_lost() {
    let mut kafka = Kafka::with("orders");
    let node = TestNode::new(&format!("[sinks.k]\n{}", kafka.config())).await;
    let retry = json!({"max_attempts": 2, "initial": "20ms"});
    let settings = json!({"shards": 4, "sink": {"name": "k"}, "retry": retry});
    let (status, body) = node.topic("orders", settings).await;
    assert_eq!(status, 201, "{body}");
    node.enqueue("orders", ids("before", 1_000)).await;
    node.drained("orders", Duration::from_secs(20)).await;
    kafka.cluster.down();
    node.enqueue("orders", ids("during", 1_000)).await;
    let_pass(Duration::from_secs(6), Because::Fault).await;
    kafka.cluster.up();
    node.drained("orders", Duration::from_secs(60)).await;
    assert_eq!(node.counts("orders").await["dead"], 0);
    let received = kafka.reader.fetch();
    let again: Vec<_> = received.iter().filter(|message| message.attempt != "1").collect();
    assert!(again.is_empty(), "{again:?}\n{}", node.process.output());
    assert_eq!(received.iter().map(|message| &message.id).collect::<BTreeSet<_>>().len(), 2_000);
    assert!(!node.process.output().contains(CANARY));
}
