//! A topic whose sink is NATS JetStream, on a real server that is killed and stalled.

use std::sync::Arc;

use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::{self, stream};
use async_trait::async_trait;
use duetime_core::{Delivery, Headers, Sink, Verdict};
use duetime_testkit::conformance::sink::{CANARY, Received, SinkWorld, message, run_all};
use duetime_testkit::servers::{NatsServer, Proxy};
use futures::StreamExt as _;
use serde_json::json;

use crate::bound_sink::{bind, until_taken};

/// Messages above this are refused by the test's stream.
const LARGEST: i32 = 200_000;

async fn server() -> NatsServer {
    NatsServer::start_with(&format!("authorization {{ user: duetime, password: {CANARY:?} }}")).await
}

async fn jetstream(server: &NatsServer) -> jetstream::Context {
    let options = async_nats::ConnectOptions::new().user_and_password("duetime".to_owned(), CANARY.to_owned());
    jetstream::new(options.connect(server.url()).await.unwrap())
}

async fn declare(server: &NatsServer) {
    let config = stream::Config {
        name: "ORDERS".to_owned(),
        subjects: vec!["orders.>".to_owned()],
        max_message_size: LARGEST,
        ..Default::default()
    };
    jetstream(server).await.create_stream(config).await.unwrap();
}

/// All in the stream that the consumer `test` has not had.
async fn fetch(server: &NatsServer) -> Vec<Received> {
    let stream = jetstream(server).await.get_stream("ORDERS").await.unwrap();
    let config = pull::Config { durable_name: Some("test".to_owned()), ..Default::default() };
    let consumer: PullConsumer = stream.get_or_create_consumer("test", config).await.unwrap();
    let mut received = Vec::new();
    let mut waiting = consumer.fetch().max_messages(10_000).messages().await.unwrap();
    while let Some(got) = waiting.next().await {
        let got = got.unwrap();
        got.ack().await.unwrap();
        let headers = got.headers.as_ref().unwrap();
        let text = |name: &str| headers.get(name).map_or_else(String::new, ToString::to_string);
        let id = text("duetime-id");
        received.push(Received {
            topic: text("duetime-topic"),
            id: percent_encoding::percent_decode_str(&id).decode_utf8().unwrap().into_owned(),
            delivery_id: text("Nats-Msg-Id"),
            attempt: text("duetime-attempt"),
            due_at: text("duetime-due-at"),
            payload: got.payload.to_vec(),
        });
    }
    received
}

struct World {
    server: NatsServer,
    sink: Arc<dyn Sink>,
}

#[async_trait]
impl SinkWorld for World {
    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    async fn received(&mut self) -> Option<Vec<Received>> {
        Some(fetch(&self.server).await)
    }

    fn refused_message(&self) -> Option<Delivery> {
        Some(message("large", vec![b'x'; LARGEST as usize + 1]))
    }

    async fn behind_proxy(&mut self) -> Option<(Arc<dyn Sink>, Proxy)> {
        let proxy = Proxy::before(self.server.port()).await;
        let config = config(&self.server).replace("\"3s\"", "\"5m\"");
        let config = config.replace(&self.server.url(), &format!("nats://127.0.0.1:{}", proxy.port()));
        Some((bind(&config, json!({"name": "n", "subject": "orders.{topic}"})).unwrap(), proxy))
    }

    async fn take_down(&mut self) -> bool {
        self.server.stop_hard();
        true
    }

    async fn bring_back(&mut self) {
        self.server.start_again().await;
    }
}

fn config(server: &NatsServer) -> String {
    format!("type = \"nats\"\nurl = {:?}\nuser = \"duetime\"\npassword = {CANARY:?}\ntimeout = \"3s\"\n", server.url())
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_keeps_the_contract_of_a_sink_and_says_what_is_wrong() {
    let server = server().await;
    declare(&server).await;
    let sink = bind(&config(&server), json!({"name": "n", "subject": "orders.{topic}"})).unwrap();

    // A subject that no stream takes is that message's matter, and so is one that NATS refuses.
    let routed = bind(&config(&server), json!({"name": "n", "subject": "{header.kind|orders}.{id}"})).unwrap();
    let mut batch: Vec<Delivery> = (0..50).map(|n| message(&format!("a.b *{n}>"), "x")).collect();
    batch[7].headers = Headers::new(vec![("kind".to_owned(), "nobody".to_owned())]).unwrap();
    batch[9].headers = Headers::new(vec![("kind".to_owned(), String::new())]).unwrap();
    let verdicts = routed.deliver(&batch).await;
    for (n, verdict) in verdicts.iter().enumerate() {
        match n {
            7 => assert!(matches!(verdict, Verdict::Retry { reason, .. } if reason.contains("nobody.a_b__7_"))),
            9 => assert!(matches!(verdict, Verdict::Rejected { reason } if reason.contains("empty part"))),
            _ => assert_eq!(*verdict, Verdict::Accepted, "{n}"),
        }
    }
    assert_eq!(fetch(&server).await.len(), 48);

    // A full stream that keeps the old is an absence: it is the same for all that go there.
    let full = stream::Config {
        name: "SMALL".to_owned(),
        subjects: vec!["small".to_owned()],
        max_messages: 3,
        discard: stream::DiscardPolicy::New,
        ..Default::default()
    };
    jetstream(&server).await.create_stream(full).await.unwrap();
    let small = bind(&config(&server), json!({"name": "n", "subject": "small"})).unwrap();
    for (n, verdict) in small.deliver(&batch[..6]).await.iter().enumerate() {
        let full = matches!(verdict, Verdict::Retry { reason, .. } if reason.contains("maximum messages"));
        assert!(if n < 3 { *verdict == Verdict::Accepted } else { full }, "{n}: {verdict:?}");
    }

    // A stall is an absence; what was sent into it is stored once.
    let stalled = [message("stalled", "x")];
    assert_eq!(sink.deliver(&[message("before", "y")]).await, [Verdict::Accepted]);
    assert_eq!(fetch(&server).await.len(), 1);
    server.stall().await;
    let verdict = sink.deliver(&stalled).await.remove(0);
    assert!(matches!(&verdict, Verdict::NoAnswer { reason } if reason.contains("within 3000 ms")), "{verdict:?}");
    server.resume();
    until_taken(&*sink, &stalled).await;
    assert_eq!(fetch(&server).await.len(), 1);

    let wrong = config(&server).replace("duetime\"", "nobody\"");
    let said = bind(&wrong, json!({"name": "n"})).unwrap().check().await.unwrap_err();
    assert!(said.contains("could not connect") && !said.contains(CANARY), "{said}");
    for (subject, says) in [("a..b", "subject"), ("a b", "wildcards"), ("orders.>", "wildcards"), ("{x}", "{header")] {
        let error = bind(&config(&server), json!({"name": "n", "subject": subject})).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
    let error = bind("type = \"nats\"\nurl = \"nats://u:canary@x\"", json!({"name": "n"})).unwrap_err();
    assert!(error.contains("`user`") && !error.contains("canary"), "{error}");
    run_all(&mut World { server, sink }).await;
}
