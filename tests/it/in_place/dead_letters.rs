//! What cannot be delivered in place dies with its reason and can be redriven; what is cancelled never arrives.

use std::collections::BTreeMap;
use std::time::Duration;

use duetime_client::{Client, DeadChoice, NewMessage};
use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use super::{PATIENCE, PROGRAM, TOPIC, config, connect, server, streams, text};

const MESSAGES: usize = 200;
/// What is done to the body of a message, and what its dead letter says.
const DAMAGES: [(&str, Option<&[u8]>, &str); 4] = [
    ("m-3", None, "its body is missing in the store"),
    ("m-50", Some(b"nonsense"), "its body cannot be read"),
    ("m-51", Some(b"\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0of another version"), "its body cannot be read"),
    ("m-199", Some(b"\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05"), "its body cannot be read"),
];

struct World {
    // First: a node ends before its store.
    node: Node,
    client: Client,
    _redis: RedisServer,
    connection: MultiplexedConnection,
}

impl World {
    /// A node whose shards all wait, because their streams' keys are taken.
    async fn held_up() -> Self {
        let redis = server().await;
        let mut connection = connect(&redis).await;
        for stream in streams() {
            let _: () = connection.set(&stream, "somebody else's").await.unwrap();
        }
        let node = Node::start(PROGRAM, &redis.url(), &config("")).await;
        let client = Client::new(&node.url(), None).unwrap();
        let all: Vec<NewMessage> =
            (0..MESSAGES).map(|n| NewMessage::new(format!("of m-{n}")).id(format!("m-{n}"))).collect();
        client.enqueue_many(TOPIC, &all).await.unwrap();
        Self { node, client, _redis: redis, connection }
    }

    async fn go_on(&mut self) {
        let _: () = self.connection.del(streams()).await.unwrap();
    }

    /// The hash with the body of `id`, and the body.
    async fn body(&mut self, id: &str) -> (String, Vec<u8>) {
        for stream in streams() {
            let key = stream.replace(":stream", ":body");
            let body: Option<Vec<u8>> = self.connection.hget(&key, id).await.unwrap();
            if let Some(body) = body {
                return (key, body);
            }
        }
        panic!("{id} has no body");
    }

    /// Waits until nothing but dead letters is left; answers them.
    async fn settled(&self) -> BTreeMap<String, String> {
        let end = Instant::now() + PATIENCE;
        while self.client.topic(TOPIC).await.unwrap().scheduled > 0 {
            duetime_testkit::in_time!(Instant::now() < end, "{}", self.node.output());
            let_pass(Duration::from_millis(30), Because::AskedAgain).await;
        }
        let page = self.client.dead(TOPIC, None, 100).await.unwrap();
        page.messages.into_iter().map(|one| (one.id, one.death.expect("it is dead").reason)).collect()
    }

    /// Waits until the node has counted so many of these events: it does so after the step.
    async fn counted(&self, event: &str, times: usize) {
        let wanted = format!("duetime_messages_total{{event={event:?},topic={TOPIC:?}}} {times}");
        let end = Instant::now() + PATIENCE;
        loop {
            let metrics = self.client.metrics().await.unwrap();
            if metrics.lines().any(|line| line == wanted) {
                return;
            }
            duetime_testkit::in_time!(Instant::now() < end, "{wanted} is not in {metrics}");
            let_pass(Duration::from_millis(30), Because::AskedAgain).await;
        }
    }

    /// The payloads of all entries of all streams; no message is in them twice.
    async fn arrived(&mut self) -> BTreeMap<String, String> {
        let mut arrived = BTreeMap::new();
        for stream in streams() {
            let found: redis::streams::StreamRangeReply = self.connection.xrange_all(&stream).await.unwrap();
            for entry in found.ids {
                let id = text(&entry.map, "id");
                assert_eq!(arrived.insert(id.clone(), text(&entry.map, "payload")), None, "{id} is there twice");
            }
        }
        arrived
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_handed_over_is_a_dead_letter_stops_nobody_and_arrives_once_it_is_fixed() {
    let mut world = World::held_up().await;
    let mut bodies = BTreeMap::new();
    for (id, damage, _) in DAMAGES {
        let (key, body) = world.body(id).await;
        match damage {
            Some(bytes) => world.connection.hset::<_, _, _, ()>(&key, id, bytes).await.unwrap(),
            None => world.connection.hdel::<_, _, ()>(&key, id).await.unwrap(),
        }
        bodies.insert(id, (key, body));
    }
    world.go_on().await;
    let dead = world.settled().await;
    let wanted: BTreeMap<String, String> =
        DAMAGES.iter().map(|(id, _, reason)| ((*id).to_owned(), (*reason).to_owned())).collect();
    assert_eq!(dead, wanted);
    let arrived = world.arrived().await;
    assert_eq!(arrived.len(), MESSAGES - DAMAGES.len(), "the others of its batch are there");
    assert!(arrived.iter().all(|(id, payload)| *payload == format!("of {id}")));
    world.counted("dead", DAMAGES.len()).await;

    // As it is, only the one without a body can be delivered, and empty; the others die again.
    let all = world.client.redrive(TOPIC, &DeadChoice::All).await.unwrap();
    assert_eq!(all.done, 4);
    let dead = world.settled().await;
    assert_eq!(dead.keys().collect::<Vec<_>>(), ["m-199", "m-50", "m-51"]);
    assert_eq!(world.arrived().await["m-3"], "");

    for id in dead.keys() {
        let (key, body) = &bodies[id.as_str()];
        let _: () = world.connection.hset(key, id, body).await.unwrap();
    }
    let ids = dead.keys().cloned().collect();
    assert_eq!(world.client.redrive(TOPIC, &DeadChoice::Ids(ids)).await.unwrap().done, 3);
    assert_eq!(world.settled().await, BTreeMap::new());
    let arrived = world.arrived().await;
    assert_eq!(arrived.len(), MESSAGES);
    assert!(arrived.iter().all(|(id, payload)| *payload == format!("of {id}") || id == "m-3"));
    world.counted("delivered", MESSAGES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_cancelled_before_its_step_never_arrives_whether_it_waits_is_due_or_dead() {
    let mut world = World::held_up().await;
    let (key, _) = world.body("m-7").await;
    let _: () = world.connection.hset(&key, "m-7", "nonsense").await.unwrap();
    let due: Vec<String> = (10..60).map(|n| format!("m-{n}")).collect();
    let later = NewMessage::new("x").id("later").due(duetime_core::Due::In(Duration::from_secs(3_600)));
    world.client.enqueue(TOPIC, &later).await.unwrap();
    for id in due.iter().map(String::as_str).chain(["later"]) {
        assert_eq!(world.client.cancel(TOPIC, id).await.unwrap().outcome, "cancelled", "{id}");
    }
    world.go_on().await;
    assert_eq!(world.settled().await.into_keys().collect::<Vec<_>>(), ["m-7"]);
    assert_eq!(world.client.cancel(TOPIC, "m-7").await.unwrap().outcome, "cancelled", "a dead letter too");
    assert_eq!(world.client.cancel(TOPIC, "m-8").await.unwrap().outcome, "unknown", "it is in its stream");
    assert_eq!(world.settled().await, BTreeMap::new());
    let arrived = world.arrived().await;
    assert_eq!(arrived.len(), MESSAGES - due.len() - 1);
    assert!(due.iter().all(|id| !arrived.contains_key(id)), "{arrived:?}");
    let told = world.client.topic(TOPIC).await.unwrap();
    assert_eq!((told.scheduled, told.in_flight, told.dead), (0, 0, 0));
}
