//! A topic whose sink is a stream on a Redis server, on a real server that is killed and stalled.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::{Delivery, Headers, Sink, Verdict};
use duetime_testkit::conformance::sink::{CANARY, Part, Received, SinkWorld, message, run_all};
use duetime_testkit::servers::{Proxy, RedisOptions, RedisServer};
use serde_json::json;

use crate::bound_sink::{bind, until_taken};
use crate::redis_faults::server::connection;

async fn server() -> RedisServer {
    let user = Some(("duetime".to_owned(), CANARY.to_owned()));
    RedisServer::start_with(RedisOptions { append_only: true, user, ..RedisOptions::default() }).await
}

async fn connect(server: &RedisServer) -> redis::aio::MultiplexedConnection {
    connection(server).await.unwrap()
}

/// All entries of `stream`, which is emptied.
async fn fetch(server: &RedisServer, stream: &str) -> Vec<Received> {
    let mut connection = connect(server).await;
    let (entries, _): (redis::streams::StreamRangeReply, u64) =
        redis::pipe().atomic().xrange_all(stream).del(stream).query_async(&mut connection).await.unwrap();
    let entries = entries.ids.into_iter().map(|entry| {
        let fields: BTreeMap<String, Vec<u8>> =
            entry.map.into_iter().map(|(name, value)| (name, redis::from_redis_value(value).unwrap())).collect();
        let text = |name: &str| String::from_utf8(fields[name].clone()).unwrap();
        Received {
            topic: text("topic"),
            id: percent_encoding::percent_decode_str(&text("id")).decode_utf8().unwrap().into_owned(),
            delivery_id: text("delivery-id"),
            attempt: text("attempt"),
            due_at: text("due-at"),
            payload: fields["payload"].clone(),
        }
    });
    entries.collect()
}

struct World {
    server: RedisServer,
    sink: Arc<dyn Sink>,
}

#[async_trait]
impl SinkWorld for World {
    fn lacks(&self) -> &'static [Part] {
        &[Part::RefusedMessage]
    }

    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    async fn received(&mut self) -> Option<Vec<Received>> {
        Some(fetch(&self.server, "due:conformance").await)
    }

    async fn behind_proxy(&mut self) -> Option<(Arc<dyn Sink>, Proxy)> {
        let proxy = Proxy::before(self.server.port()).await;
        let config =
            format!("type = \"redis-stream\"\nurl = {:?}\ntimeout = \"5m\"\n", self.server.url_at(proxy.port()));
        Some((bind(&config, json!({"name": "r", "stream": "due:{topic}"})).unwrap(), proxy))
    }

    async fn take_down(&mut self) -> bool {
        self.server.stop_hard();
        true
    }

    async fn bring_back(&mut self) {
        self.server.start_again().await;
    }
}

fn config(server: &RedisServer) -> String {
    format!("type = \"redis-stream\"\nurl = {:?}\ntimeout = \"1s\"\n", server.url())
}

#[tokio::test]
async fn redis_streams_keep_the_contract_of_a_sink_and_say_what_is_wrong() {
    let server = server().await;
    let sink = bind(&config(&server), json!({"name": "r", "stream": "due:{topic}"})).unwrap();

    // A key that is no stream is the matter of the messages that go there.
    server.cli(&["SET", "due:taken", "x"]);
    let routed = json!({"name": "r", "stream": "due:{header.kind|free}", "max_length": 1000});
    let routed = bind(&config(&server), routed).unwrap();
    let mut batch: Vec<Delivery> = (0..50).map(|n| message(&format!("m-{n}"), "x")).collect();
    batch[7].headers = Headers::new(vec![("kind".to_owned(), "taken".to_owned())]).unwrap();
    let verdicts = routed.deliver(&batch).await;
    assert!(matches!(&verdicts[7], Verdict::Retry { reason, .. } if reason.contains("WRONGTYPE")), "{verdicts:?}");
    assert_eq!(verdicts.iter().filter(|verdict| **verdict == Verdict::Accepted).count(), 49);
    assert_eq!(fetch(&server, "due:free").await.len(), 49);

    // A server without memory, and one that stalls, take nothing from anybody.
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let verdict = sink.deliver(&batch[..1]).await.remove(0);
    assert!(matches!(&verdict, Verdict::Unavailable { reason } if reason.contains("memory")), "{verdict:?}");
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    server.pause();
    assert!(matches!(sink.deliver(&batch[..1]).await[0], Verdict::NoAnswer { .. }));
    server.resume();
    until_taken(&*sink, &batch[..1]).await;
    fetch(&server, "due:conformance").await;

    let wrong = config(&server).replace("duetime:", "nobody:");
    let said = bind(&wrong, json!({"name": "r"})).unwrap().check().await.unwrap_err();
    assert!(said.contains("user") && !said.contains(CANARY), "{said}");
    for (topic, says) in [
        (json!({"name": "r", "stream": ""}), "stream"),
        (json!({"name": "r", "max_length": 0}), "max_length"),
        (json!({"name": "r", "maxlength": 1}), "did you mean \"max_length\""),
    ] {
        let error = bind(&config(&server), topic).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
    let error = bind("type = \"redis-stream\"\nurl = \"amqp://u:canary@x\"", json!({"name": "r"})).unwrap_err();
    assert!(error.contains("redis://user:password@host") && !error.contains("canary"), "{error}");
    run_all(&mut World { server, sink }).await;
}
